# Tables, figures and the report.

PUBLISHED = Path(workflow.basedir) / "config" / "published"
if not PUBLISHED.exists():  # called as workflow/Snakefile: of snakedeploy, or this one
    PUBLISHED = Path(workflow.basedir).parent / "config" / "published"
# No inputs: a clone or a copy may date them later than what is made from them.
PUBLISHED_CONTENT = published.content(PUBLISHED)


rule table:
    input:
        RULES.sweep_file(tables.ACCURACY),
    output:
        shown(of_run(paths.TABLE, suffix="csv"), "table", "Tables", sweep="{sweep}"),
    log:
        RULES.log("table/{sweep}"),
    params:
        settings=lambda wildcards: RULES.settings("sweeps", wildcards.sweep),
        title=lambda wildcards: title(CONFIG, "sweeps", wildcards.sweep),
        unlike=lambda wildcards: paper_differences.of_sweep(CONFIG, wildcards.sweep),
        folder=PUBLISHED,
        published=PUBLISHED_CONTENT,
    shell:
        "headsweep job table --log {log:q} --sweep {wildcards.sweep:q}"
        " --published {params.folder:q}"


rule controls:
    input:
        z=RULES.sweep_file(tables.ACCURACY),
        answers=RULES.sweep_file(tables.GRADED),
        activations=RULES.sweep_file(tables.ACTIVATIONS),
    output:
        [of_run(paths.CONTROLS, table=table) for table in exhibits.CONTROL_TABLES],
    log:
        RULES.log("controls/{sweep}"),
    params:
        settings=lambda wildcards: RULES.settings("sweeps", wildcards.sweep),
        basis=lambda wildcards: basis(CONFIG, "sweeps", wildcards.sweep),
        seed=CONFIG.seed,
    shell:
        "headsweep job controls --log {log:q} --sweep {wildcards.sweep:q}"


rule compression_tables:
    input:
        RULES.files.studied(),
    output:
        [
            shown(
                of_run(paths.COMPRESSION_TABLE, exhibit=exhibit, suffix="csv"),
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
        titles=titles(CONFIG, "compressions"),
        folder=PUBLISHED,
        published=PUBLISHED_CONTENT,
        seed=CONFIG.seed,
    shell:
        "headsweep job compression-tables --log {log:q}"
        " --published {params.folder:q}"


rule audit:
    output:
        [of_run(paths.AUDIT_TABLE, paper=name) for name in exhibits.AUDIT_TABLES],
    log:
        RULES.log("audit"),
    params:
        folder=PUBLISHED,
        published=PUBLISHED_CONTENT,
        seed=CONFIG.seed,
    shell:
        "headsweep job audit --log {log:q} --published {params.folder:q}"


rule claims:
    input:
        RULES.files.judged(),
    output:
        of_run(paths.CLAIMS),
    log:
        RULES.log("claims"),
    params:
        settings=RULES.settings(),
        folder=PUBLISHED,
        published=PUBLISHED_CONTENT,
    shell:
        "headsweep job claims --log {log:q} --published {params.folder:q}"


# Drawing is quick, starting a job is not: one job draws all figures of a subject. The number of
# heatmaps depends on the sweep's layers, so every sweep has its own rule.
for SWEEP in CONFIG.sweeps:

    rule:
        name:
            f"draw_sweep_{SWEEP}"
        input:
            RULES.figure_data(SWEEP, "sweep", "layer"),
        output:
            RULES.pictures("sweep", "layer", sweep=SWEEP),
        log:
            RULES.log(f"draw_sweep/{SWEEP}"),
        params:
            settings=RULES.settings("sweeps", SWEEP),
            title=title(CONFIG, "sweeps", SWEEP),
            sweep=SWEEP,
        shell:
            "headsweep job draw --log {log:q} --subject sweep --of {params.sweep:q}"


rule draw_map:
    input:
        lambda wildcards: RULES.figure_data(wildcards.map, "map"),
    output:
        RULES.pictures("map"),
    log:
        RULES.log("draw_map/{map}"),
    params:
        settings=lambda wildcards: RULES.settings("maps", wildcards.map),
        title=lambda wildcards: title(CONFIG, "maps", wildcards.map),
    shell:
        "headsweep job draw --log {log:q} --subject map --of {wildcards.map:q}"


rule draw_selector:
    input:
        lambda wildcards: RULES.figure_data(wildcards.selector, "selector"),
    output:
        RULES.pictures("selector"),
    log:
        RULES.log("draw_selector/{selector}"),
    params:
        settings=lambda wildcards: RULES.settings("selectors", wildcards.selector),
        title=lambda wildcards: title(CONFIG, "selectors", wildcards.selector),
    shell:
        "headsweep job draw --log {log:q} --subject selector --of {wildcards.selector:q}"


rule draw_compression:
    input:
        lambda wildcards: RULES.figure_data(wildcards.compression, "compression"),
    output:
        RULES.pictures("compression"),
    log:
        RULES.log("draw_compression/{compression}"),
    params:
        settings=lambda wildcards: RULES.settings("compressions", wildcards.compression),
        title=lambda wildcards: title(CONFIG, "compressions", wildcards.compression),
    shell:
        "headsweep job draw --log {log:q} --subject compression --of {wildcards.compression:q}"


rule draw_frontier:
    input:
        lambda wildcards: RULES.figure_data(wildcards.frontier, "frontier"),
    output:
        RULES.pictures("frontier"),
    log:
        RULES.log("draw_frontier/{frontier}"),
    params:
        settings=lambda wildcards: RULES.settings("frontiers", wildcards.frontier),
        title=lambda wildcards: title(CONFIG, "frontiers", wildcards.frontier),
    shell:
        "headsweep job draw --log {log:q} --subject frontier --of {wildcards.frontier:q}"


rule draw_run:
    input:
        RULES.figure_data("", "run"),
    output:
        RULES.pictures("run"),
    log:
        RULES.log("draw_run"),
    params:
        settings=RULES.settings("sweeps"),
        titles=titles(CONFIG, "sweeps"),
    shell:
        "headsweep job draw --log {log:q} --subject run --of ''"


# Not shown on the page: `snakemake printed` makes them.
rule draw_printed:
    input:
        RULES.files_printed,
    output:
        RULES.printed,
    log:
        RULES.log("draw_printed"),
    params:
        settings=RULES.settings(),
        folder=PUBLISHED,
        published=PUBLISHED_CONTENT,
    shell:
        "headsweep job printed --log {log:q} --published {params.folder:q}"


rule report_page:
    input:
        RULES.files.reported(),
    output:
        of_run(paths.FINDINGS),
        shown(
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
        "headsweep job report --log {log:q}"
