# Tables, figures and the report.


def sweep_table(wildcards):
    sweep = CONFIG.sweeps[wildcards.sweep]
    return accuracy(sweep.model, sweep.decoding, sweep.questions)


def sweep_graded(wildcards):
    sweep = CONFIG.sweeps[wildcards.sweep]
    return graded(sweep.model, sweep.decoding, sweep.questions)


def sweep_tables(wildcards):
    return [accuracy(s.model, s.decoding, s.questions) for s in CONFIG.sweeps.values()]


def sweep_settings(wildcards):
    return digest(CONFIG.sweeps[wildcards.sweep].model_dump(mode="json"))


def all_sweep_settings(wildcards):
    return digest(
        {name: s.model_dump(mode="json") for name, s in CONFIG.sweeps.items()}
    )


rule table:
    input:
        sweep_table,
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
    shell:
        command("table", "sweep")


def png(template):
    """Return the figure that the workflow's report shows."""
    return of_run(template).replace("{suffix}", "png")


def beside(template, *suffixes):
    """Return the files that a figure's job makes beside its PNG, or those with given suffixes."""
    suffixes = suffixes or ("pdf", "svg", "dark.svg", "csv", "json")
    return [of_run(template).replace("{suffix}", suffix) for suffix in suffixes]


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


rule controls:
    input:
        sweep_table,
        sweep_graded,
    output:
        [
            of_run(paths.CONTROLS).format(sweep="{sweep}", table=table, suffix=suffix)
            for table, suffix in (
                ("gains", "csv"),
                ("heads", "csv"),
                ("spread", "csv"),
                ("failures", "csv"),
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


PUBLISHED = Path(workflow.basedir) / "config" / "published"


rule audit:
    input:
        [
            str(PUBLISHED / name)
            for name in (
                published.HEAD_PRUNING,
                published.COMPRESSION,
                published.COMPRESSION_SIZES,
            )
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


def reported(wildcards):
    """Return everything that the report of this run shows."""
    files = beside(paths.AUDIT, "png", "json")
    files += [
        of_run(paths.AUDIT_TABLE).format(paper=paper, suffix="csv")
        for paper in ("sprint", "compression")
    ]
    if CONFIG.sweeps:
        files += beside(paths.VIOLINS, "png", "json") + beside(
            paths.LEVELS, "png", "json"
        )
    for name, sweep in CONFIG.sweeps.items():
        files.append(accuracy(sweep.model, sweep.decoding, sweep.questions))
        files.append(of_run(paths.TABLE).format(sweep=name, suffix="md"))
        files += [
            file.format(sweep=name) for file in beside(paths.FOREST, "png", "json")
        ]
        files += [
            of_run(paths.CONTROLS).format(sweep=name, table=table, suffix="csv")
            for table in ("gains", "heads", "spread", "failures")
        ]
        for layer in sorted({variant.layer for variant in pool(CONFIG, sweep)}):
            files += [
                file.format(sweep=name, layer=f"{layer:02d}")
                for file in beside(paths.HEATMAP, "png", "json")
            ]
    for name in CONFIG.selectors:
        figures = beside(paths.PASS_AT_N, "png", "json")
        results = (paths.CHOICE, paths.CURVES, paths.PAIRED, paths.SENSITIVITY)
        files += [file.format(selector=name) for file in figures]
        files += [of_run(template).format(selector=name) for template in results]
    for name in CONFIG.comparisons:
        files.append(of_run(paths.COMPARISON).format(comparison=name, suffix="md"))
    return files


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
