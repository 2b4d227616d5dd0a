# Tables, figures and the report.

PUBLISHED = Path(workflow.basedir) / "config" / "published"
PUBLISHED_HEADS = [
    str(PUBLISHED / name)
    for name in (published.HEAD_PRUNING, published.MISSING, published.FIGURE_5)
]
PUBLISHED_CUTS = [
    str(PUBLISHED / name)
    for name in (published.COMPRESSION, published.COMPRESSION_SIZES)
]
PUBLISHED_TRIALS = [
    str(PUBLISHED / name)
    for name in (published.COMPRESSION_FACTORS, published.COMPRESSION_STRATEGIES)
]
PUBLISHED_CLAIMS = [
    str(PUBLISHED / name)
    for name in (published.SPRINT_CLAIMS, published.COMPRESSION_CLAIMS)
]


rule table:
    input:
        lambda wildcards: RULES.sweep_table(wildcards.sweep),
        published=PUBLISHED_HEADS,
    output:
        csv=of_run(paths.TABLE, suffix="csv"),
        tex=of_run(paths.TABLE, suffix="tex"),
        markdown=exhibits.shown(
            of_run(paths.TABLE, suffix="md"), "table", "Tables", sweep="{sweep}"
        ),
    log:
        RULES.log("table/{sweep}"),
    params:
        settings=lambda wildcards: RULES.settings("sweeps", wildcards.sweep),
        folder=PUBLISHED,
    shell:
        command("table")


rule violins:
    input:
        RULES.sweep_tables(),
    output:
        RULES.drawn("violins"),
    log:
        RULES.log("violins"),
    params:
        settings=RULES.settings("sweeps"),
    shell:
        command("violins")


rule levels:
    input:
        RULES.sweep_tables(),
    output:
        RULES.drawn("levels"),
    log:
        RULES.log("levels"),
    params:
        settings=RULES.settings("sweeps"),
    shell:
        command("levels")


# Drawing is quick, starting a job is not: one job draws all figures of a sweep. The number of
# heatmaps depends on the sweep's layers, so every sweep has its own rule.
for SWEEP in CONFIG.sweeps:

    rule:
        name:
            f"draw_sweep_{SWEEP}"
        input:
            RULES.drawn_from(SWEEP, "sweep", "layer"),
        output:
            RULES.drawn("sweep", "layer", sweep=SWEEP),
        log:
            RULES.log(f"draw_sweep/{SWEEP}"),
        params:
            settings=RULES.settings("sweeps", SWEEP),
            sweep=SWEEP,
        shell:
            "headroom draw-sweep --log {log} --sweep {params.sweep:q}"


rule draw_selector:
    input:
        lambda wildcards: RULES.drawn_from(wildcards.selector, "selector"),
    output:
        RULES.drawn("selector"),
    log:
        RULES.log("draw_selector/{selector}"),
    shell:
        command("draw-selector")


rule selector_tables:
    input:
        [of_run(template, suffix="csv") for template in exhibits.SELECTOR_TABLES],
    output:
        [RULES.beside(table, "md", "tex") for table in exhibits.SELECTOR_TABLES],
    log:
        RULES.log("selector_tables/{selector}"),
    shell:
        command("selector-tables")


rule controls:
    input:
        lambda wildcards: RULES.sweep_table(wildcards.sweep),
        lambda wildcards: RULES.sweep_table(wildcards.sweep, paths.GRADED),
        lambda wildcards: RULES.sweep_table(wildcards.sweep, paths.ACTIVATIONS),
    output:
        [of_run(paths.CONTROLS, table=t, suffix="csv") for t in exhibits.CONTROL_TABLES],
        RULES.beside(of_run(paths.CONTROLS, table="placebos"), "csv", "md", "tex"),
        of_run(paths.CONTROLS, table="gains", suffix="tex"),
        markdown=exhibits.shown(
            of_run(paths.CONTROLS, table="gains", suffix="md"),
            "controls",
            "Tables",
            sweep="{sweep}, controls",
        ),
    log:
        RULES.log("controls/{sweep}"),
    params:
        settings=lambda wildcards: RULES.settings("sweeps", wildcards.sweep),
    shell:
        command("controls")


rule compression_tables:
    input:
        RULES.studied(),
        published=PUBLISHED_CUTS + PUBLISHED_TRIALS,
    output:
        [
            RULES.beside(
                of_run(paths.COMPRESSION_TABLE, exhibit=exhibit), "csv", "tex"
            )
            for exhibit in exhibits.COMPRESSION_TABLES
        ],
        [
            exhibits.shown(
                of_run(paths.COMPRESSION_TABLE, exhibit=exhibit, suffix="md"),
                "compression",
                "Tables",
                table=f"compression, {exhibit}",
            )
            for exhibit in exhibits.COMPRESSION_TABLES
        ],
    log:
        RULES.log("compression_tables"),
    params:
        settings=RULES.settings("compressions"),
        folder=PUBLISHED,
        seed=CONFIG.seed,
    shell:
        command("compression-tables")


rule draw_compression:
    input:
        lambda wildcards: RULES.drawn_from(wildcards.compression, "compression"),
    output:
        RULES.drawn("compression"),
    log:
        RULES.log("draw_compression/{compression}"),
    params:
        settings=lambda wildcards: RULES.settings("compressions", wildcards.compression),
        seed=CONFIG.seed,
    shell:
        command("draw-compression")


rule audit:
    input:
        published=PUBLISHED_HEADS + PUBLISHED_CUTS,
    output:
        RULES.drawn("audit"),
        [
            RULES.beside(of_run(paths.AUDIT_TABLE, paper=paper), "csv", "md", "tex")
            for paper in exhibits.PAPERS
        ],
    log:
        RULES.log("audit"),
    params:
        folder=PUBLISHED,
        seed=CONFIG.seed,
    shell:
        command("audit")


rule claims:
    input:
        RULES.judged(),
        published=PUBLISHED_HEADS + PUBLISHED_CUTS + PUBLISHED_CLAIMS + PUBLISHED_TRIALS,
    output:
        csv=of_run(paths.CLAIMS, suffix="csv"),
        tex=of_run(paths.CLAIMS, suffix="tex"),
        markdown=exhibits.shown(
            of_run(paths.CLAIMS, suffix="md"),
            "claims",
            "Tables",
            table="claims of the papers",
        ),
    log:
        RULES.log("claims"),
    params:
        settings=RULES.settings(),
        folder=PUBLISHED,
    shell:
        command("claims")


rule comparison_table:
    input:
        of_run(paths.COMPARISON, suffix="csv"),
    output:
        tex=of_run(paths.COMPARISON, suffix="tex"),
        markdown=of_run(paths.COMPARISON, suffix="md"),
    log:
        RULES.log("comparison_table/{comparison}"),
    shell:
        command("comparison-table")


rule report_page:
    input:
        RULES.reported(),
    output:
        of_run(paths.FINDINGS),
        exhibits.shown(
            of_run(paths.REPORT),
            "report",
            "Report",
            page="the whole report, self-contained",
        ),
    log:
        RULES.log("report"),
    params:
        settings=RULES.settings(),
    shell:
        command("report")
