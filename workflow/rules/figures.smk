# Tables, figures and the report.


def sweep_table(wildcards):
    sweep = CONFIG.sweeps[wildcards.sweep]
    return accuracy(sweep.model, sweep.decoding, sweep.questions)


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


def figure(template):
    """Return the two files of a figure's template: vector and pixels."""
    return {
        suffix: of_run(template).replace("{suffix}", suffix)
        for suffix in ("pdf", "png")
    }


rule violins:
    input:
        sweep_tables,
    output:
        pdf=figure(paths.VIOLINS)["pdf"],
        png=report(
            figure(paths.VIOLINS)["png"],
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
        pdf=figure(paths.LEVELS)["pdf"],
        png=report(
            figure(paths.LEVELS)["png"],
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
        pdf=figure(paths.HEATMAP)["pdf"],
        png=report(
            figure(paths.HEATMAP)["png"],
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
        pdf=figure(paths.PASS_AT_N)["pdf"],
        png=report(
            figure(paths.PASS_AT_N)["png"],
            caption="../report/pass_at_n.rst",
            category="Figures",
            labels={"figure": "Pass@N, {selector}"},
        ),
    log:
        log_of("curves/{selector}"),
    shell:
        command("curves", "selector")


def reported(wildcards):
    """Return everything that the report of this run shows."""
    files = (
        [figure(paths.VIOLINS)["png"], figure(paths.LEVELS)["png"]]
        if CONFIG.sweeps
        else []
    )
    for name, sweep in CONFIG.sweeps.items():
        files.append(of_run(paths.TABLE).format(sweep=name, suffix="md"))
        files += [
            figure(paths.HEATMAP)["png"].format(sweep=name, layer=f"{layer:02d}")
            for layer in sorted({variant.layer for variant in pool(CONFIG, sweep)})
        ]
    for name in CONFIG.selectors:
        files.append(figure(paths.PASS_AT_N)["png"].format(selector=name))
    files += [
        of_run(paths.COMPARISON).format(comparison=name) for name in CONFIG.comparisons
    ]
    return files


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
