# Tables, figures and the report.

PUBLISHED = Path(workflow.basedir) / "config" / "published"
if not PUBLISHED.exists():  # called as workflow/Snakefile: of snakedeploy, or this one
    PUBLISHED = Path(workflow.basedir).parent / "config" / "published"
# No inputs: a clone or a copy may date them later than what is made from them.
PUBLISHED_CONTENT = published.content(PUBLISHED)


rule table:
    input:
        lambda wildcards: RULES.sweep_table(wildcards.sweep),
        lambda wildcards: RULES.sweep_table(wildcards.sweep, paths.GRADED),
    output:
        tex=of_run(paths.TABLE, suffix="tex"),
        csv=exhibits.shown(
            of_run(paths.TABLE, suffix="csv"), "table", "Tables", sweep="{sweep}"
        ),
    log:
        RULES.log("table/{sweep}"),
    params:
        settings=lambda wildcards: RULES.settings("sweeps", wildcards.sweep),
        title=lambda wildcards: title(CONFIG, "sweeps", wildcards.sweep),
        folder=PUBLISHED,
        published=PUBLISHED_CONTENT,
    shell:
        "headsweep job table --log {log:q} --sweep {wildcards.sweep:q}"
        " --published {params.folder:q}"


rule controls:
    input:
        lambda wildcards: RULES.sweep_table(wildcards.sweep),
        lambda wildcards: RULES.sweep_table(wildcards.sweep, paths.GRADED),
        lambda wildcards: RULES.sweep_table(wildcards.sweep, paths.ACTIVATIONS),
    output:
        [of_run(paths.CONTROLS, table=table) for table in exhibits.CONTROL_TABLES],
    log:
        RULES.log("controls/{sweep}"),
    params:
        settings=lambda wildcards: RULES.settings("sweeps", wildcards.sweep),
    shell:
        "headsweep job controls --log {log:q} --sweep {wildcards.sweep:q}"


rule compression_tables:
    input:
        RULES.studied(),
    output:
        [
            of_run(paths.COMPRESSION_TABLE, exhibit=exhibit, suffix="tex")
            for exhibit in exhibits.PRINTED_TABLES
        ],
        [
            exhibits.shown(
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
        RULES.judged(),
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
            RULES.drawn_from(SWEEP, "sweep", "layer"),
        output:
            RULES.drawn("sweep", "layer", sweep=SWEEP),
        log:
            RULES.log(f"draw_sweep/{SWEEP}"),
        params:
            settings=RULES.settings("sweeps", SWEEP),
            title=title(CONFIG, "sweeps", SWEEP),
            sweep=SWEEP,
        shell:
            "headsweep job draw --log {log:q} --subject sweep --of {params.sweep:q}"


for SUBJECT in ("map", "selector", "compression", "frontier"):

    rule:
        name:
            f"draw_{SUBJECT}"
        input:
            lambda wildcards, of=SUBJECT: RULES.drawn_from(wildcards[0], of),
        output:
            RULES.drawn(SUBJECT),
        log:
            RULES.log(f"draw_{SUBJECT}/{{{SUBJECT}}}"),
        params:
            settings=lambda wildcards, of=SUBJECT: RULES.settings(
                f"{of}s", wildcards[0]
            ),
            title=lambda wildcards, of=SUBJECT: title(CONFIG, f"{of}s", wildcards[0]),
            subject=SUBJECT,
        shell:
            "headsweep job draw --log {log:q} --subject {params.subject:q}"
            " --of {wildcards[0]:q}"


rule draw_run:
    input:
        RULES.drawn_from("", "run"),
    output:
        RULES.drawn("run"),
    log:
        RULES.log("draw_run"),
    params:
        settings=RULES.settings("sweeps"),
        titles=titles(CONFIG, "sweeps"),
    shell:
        "headsweep job draw --log {log:q} --subject run --of ''"


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
        "headsweep job report --log {log:q}"
