# Tables, figures and the report.


rule table:
    input:
        sweep_table,
        published=published_heads,
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
        folder=published_folder,
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


# Drawing is quick, starting up is not: one job draws all figures of a sweep. Its heatmaps are as
# many as the sweep has layers, so that every sweep has a rule of its own.
for SWEEP in CONFIG.sweeps:

    rule:
        name:
            f"draw_sweep_{SWEEP}"
        input:
            drawn_for_sweep(SWEEP),
        output:
            [beside(figure) for figure in sweep_figures(SWEEP)],
            [
                report(
                    png(figure),
                    caption=f"../report/{Path(figure).name.partition('_')[0]}.rst",
                    category="Figures",
                    labels={"figure": Path(figure).name.partition(".")[0]},
                )
                for figure in sweep_figures(SWEEP)
            ],
        log:
            log_of(f"draw_sweep/{SWEEP}"),
        params:
            settings=digest(CONFIG.sweeps[SWEEP].model_dump(mode="json")),
            sweep=SWEEP,
        shell:
            "headroom draw-sweep --log {log} --sweep {params.sweep:q}"


rule draw_selector:
    input:
        unpack(drawn_for_selector),
    output:
        beside(paths.PASS_AT_N),
        beside(paths.SPACE),
        pass_at_n=report(
            png(paths.PASS_AT_N),
            caption="../report/pass_at_n.rst",
            category="Figures",
            labels={"figure": "Pass@N, {selector}"},
        ),
        space=report(
            png(paths.SPACE),
            caption="../report/space.rst",
            category="Figures",
            labels={"figure": "heads and questions, {selector}"},
        ),
    log:
        log_of("draw_selector/{selector}"),
    shell:
        command("draw-selector", "selector")


rule selector_tables:
    input:
        [
            of_run(template).replace("{suffix}", "csv")
            for template in (paths.EMBEDDING_VALUE, paths.DIVERSITY, paths.CHOOSING)
        ],
    output:
        [
            of_run(template).replace("{suffix}", suffix)
            for template in (paths.EMBEDDING_VALUE, paths.DIVERSITY, paths.CHOOSING)
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


rule compression_tables:
    input:
        studied,
        published=published_compression,
    output:
        [
            of_run(paths.COMPRESSION_TABLE).format(exhibit=exhibit, suffix=suffix)
            for exhibit in EXHIBITS
            for suffix in ("csv", "tex")
        ],
        [
            report(
                of_run(paths.COMPRESSION_TABLE).format(exhibit=exhibit, suffix="md"),
                caption="../report/compression.rst",
                category="Tables",
                labels={"table": f"compression, {exhibit}"},
            )
            for exhibit in EXHIBITS
        ],
    log:
        log_of("compression_tables"),
    params:
        settings=all_study_settings,
        folder=published_folder,
        seed=CONFIG.seed,
    shell:
        f"{command('compression-tables')} --published {{params.folder:q}}"


rule draw_compression:
    input:
        study_files,
        published=published_compression,
    output:
        [beside(template) for template in STUDY_FIGURES],
        [
            report(
                png(template),
                caption=f"../report/{Path(template).name.partition('_')[0]}.rst",
                category="Figures",
                labels={
                    "figure": f"{Path(template).name.partition('_')[0]}, {{compression}}"
                },
            )
            for template in STUDY_FIGURES
        ],
    log:
        log_of("draw_compression/{compression}"),
    params:
        settings=study_settings,
        folder=published_folder,
        seed=CONFIG.seed,
    shell:
        f"{command('draw-compression', 'compression')} --published {{params.folder:q}}"


rule audit:
    input:
        published=published_heads + published_cuts,
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
        folder=published_folder,
        seed=CONFIG.seed,
    shell:
        f"{command('audit')} --published {{params.folder:q}}"


rule claims:
    input:
        judged,
        published=published_heads + published_claims,
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
        folder=published_folder,
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
        of_run(paths.FINDINGS),
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
