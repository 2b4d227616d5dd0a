# Tables, figures and the report.


rule table:
    input:
        sweep_table,
        published_heads,
    output:
        csv=of_run(paths.TABLE).replace("{suffix}", "csv"),
        tex=of_run(paths.TABLE).replace("{suffix}", "tex"),
        markdown=report(
            of_run(paths.TABLE).replace("{suffix}", "md"),
            caption="../report/table.rst",
            category="Tables",
            labels={"sweep": "{sweep}"},
        ),
    log:
        log_of("table/{sweep}"),
    params:
        settings=sweep_settings,
        folder=str(PUBLISHED),
    shell:
        f"{command('table', 'sweep')} --published {{params.folder:q}}"


rule violins:
    input:
        sweep_tables,
    output:
        beside(paths.VIOLINS),
        png=report(
            png(paths.VIOLINS),
            caption="../report/violins.rst",
            category="Figures",
            labels={"figure": "gains by subject and layer"},
        ),
    log:
        log_of("violins"),
    params:
        settings=all_sweep_settings,
    shell:
        command("violins")


rule levels:
    input:
        sweep_tables,
    output:
        beside(paths.LEVELS),
        png=report(
            png(paths.LEVELS),
            caption="../report/levels.rst",
            category="Figures",
            labels={"figure": "gains by level"},
        ),
    log:
        log_of("levels"),
    params:
        settings=all_sweep_settings,
    shell:
        command("levels")


rule heatmap:
    input:
        sweep_table,
    output:
        beside(paths.HEATMAP),
        png=report(
            png(paths.HEATMAP),
            caption="../report/heatmap.rst",
            category="Figures",
            labels={"figure": "heads by subject, {sweep}, layer {layer}"},
        ),
    log:
        log_of("heatmap/{sweep}_L{layer}"),
    params:
        settings=sweep_settings,
    shell:
        command("heatmap", "sweep", "layer")


rule curves:
    input:
        curves=of_run(paths.CURVES),
        paired=of_run(paths.PAIRED),
    output:
        beside(paths.PASS_AT_N),
        png=report(
            png(paths.PASS_AT_N),
            caption="../report/pass_at_n.rst",
            category="Figures",
            labels={"figure": "Pass@N, {selector}"},
        ),
    log:
        log_of("curves/{selector}"),
    shell:
        command("curves", "selector")


rule selector_tables:
    input:
        [
            of_run(template).replace("{suffix}", "csv")
            for template in (paths.EMBEDDING_VALUE, paths.DIVERSITY)
        ],
    output:
        [
            of_run(template).replace("{suffix}", suffix)
            for template in (paths.EMBEDDING_VALUE, paths.DIVERSITY)
            for suffix in ("md", "tex")
        ],
    log:
        log_of("selector_tables/{selector}"),
    shell:
        command("selector-tables", "selector")


rule controls:
    input:
        sweep_table,
        sweep_graded,
        sweep_activations,
    output:
        [
            of_run(paths.CONTROLS).format(sweep="{sweep}", table=table, suffix=suffix)
            for table, suffix in (
                ("gains", "csv"),
                ("heads", "csv"),
                ("spread", "csv"),
                ("failures", "csv"),
                ("placebos", "csv"),
                ("placebos", "md"),
                ("placebos", "tex"),
                ("gains", "tex"),
            )
        ],
        markdown=report(
            of_run(paths.CONTROLS).format(sweep="{sweep}", table="gains", suffix="md"),
            caption="../report/controls.rst",
            category="Tables",
            labels={"sweep": "{sweep}, controls"},
        ),
    log:
        log_of("controls/{sweep}"),
    params:
        settings=sweep_settings,
    shell:
        command("controls", "sweep")


rule forest:
    input:
        of_run(paths.CONTROLS).format(sweep="{sweep}", table="heads", suffix="csv"),
    output:
        beside(paths.FOREST),
        png=report(
            png(paths.FOREST),
            caption="../report/forest.rst",
            category="Figures",
            labels={"figure": "every head against base, {sweep}"},
        ),
    log:
        log_of("forest/{sweep}"),
    shell:
        command("forest", "sweep")


rule audit:
    input:
        published_heads,
        [
            str(PUBLISHED / name)
            for name in (published.COMPRESSION, published.COMPRESSION_SIZES)
        ],
    output:
        beside(paths.AUDIT),
        [
            of_run(paths.AUDIT_TABLE).format(paper=paper, suffix=suffix)
            for paper in ("sprint", "compression")
            for suffix in ("csv", "md", "tex")
        ],
        png=report(
            png(paths.AUDIT),
            caption="../report/audit.rst",
            category="Figures",
            labels={"figure": "published gains and chance"},
        ),
    log:
        log_of("audit"),
    params:
        folder=str(PUBLISHED),
        seed=CONFIG.seed,
    shell:
        f"{command('audit')} --published {{params.folder:q}}"


rule claims:
    input:
        judged,
        published_heads,
        published_claims,
    output:
        csv=of_run(paths.CLAIMS).replace("{suffix}", "csv"),
        tex=of_run(paths.CLAIMS).replace("{suffix}", "tex"),
        markdown=report(
            of_run(paths.CLAIMS).replace("{suffix}", "md"),
            caption="../report/claims.rst",
            category="Tables",
            labels={"table": "claims of the papers"},
        ),
    log:
        log_of("claims"),
    params:
        settings=digest(CONFIG.model_dump(mode="json")),
        folder=str(PUBLISHED),
    shell:
        f"{command('claims')} --published {{params.folder:q}}"


rule comparison_table:
    input:
        of_run(paths.COMPARISON).replace("{suffix}", "csv"),
    output:
        tex=of_run(paths.COMPARISON).replace("{suffix}", "tex"),
        markdown=of_run(paths.COMPARISON).replace("{suffix}", "md"),
    log:
        log_of("comparison_table/{comparison}"),
    shell:
        command("comparison-table", "comparison")


rule report_page:
    input:
        reported,
    output:
        report(
            of_run(paths.REPORT),
            caption="../report/report.rst",
            category="Report",
            labels={"page": "the whole report, self-contained"},
        ),
    log:
        log_of("report"),
    params:
        settings=digest(CONFIG.model_dump(mode="json")),
    shell:
        command("report")
