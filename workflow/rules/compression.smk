# Compression: a solver is trained, pruned and tested in each arm; then the results are gathered.


localrules:
    problems,
    encoder,


rule problems:
    output:
        paths.PROBLEMS,
    log:
        RULES.log("problems/{data}"),
    shell:
        command("problems")


rule encoder:
    output:
        paths.ENCODER,
    log:
        RULES.log("encoder/{encoder}"),
    shell:
        command("encoder")


rule teacher:
    input:
        session.of_any_age(RULES.taught),
    output:
        paths.TEACHER,
    log:
        RULES.log("teacher/{solver}/{data}/{seed}"),
    priority: PRIORITY["teachers"]
    threads: 1
    resources:
        **RULES.training_resources,
    shell:
        command("teacher")


rule compress:
    input:
        session.of_any_age(RULES.compressed),
    output:
        paths.OUTCOMES,
        paths.HISTORY,
    log:
        RULES.log("compress/{subject}/{data}/{arm}/{seed}"),
    threads: 1
    resources:
        **RULES.training_resources,
    shell:
        command("compress")


rule quantise:
    input:
        session.of_any_age(RULES.quantised),
    output:
        paths.INT8_OUTCOMES,
    log:
        RULES.log("quantise/{subject}/{data}/{arm}/{seed}"),
    threads: 1
    resources:
        mem_mb=RULES.training_resources["mem_mb"],
        runtime=RULES.training_resources["runtime"],
    shell:
        command("quantise")


rule gather_compression:
    input:
        RULES.gathered,
    output:
        of_run(paths.STUDY_OUTCOMES),
        of_run(paths.HISTORIES),
    log:
        RULES.log("gather_compression/{compression}"),
    params:
        settings=lambda wildcards: RULES.settings("compressions", wildcards.compression),
    shell:
        command("gather-compression")


rule measure_compression:
    input:
        ancient(RULES.measured),
    output:
        of_run(paths.MEASUREMENTS),
    log:
        RULES.log("measure_compression/{compression}"),
    threads: CORES or 1  # alone, so that other jobs do not disturb the timing
    resources:
        **RULES.training_resources,
    params:
        settings=lambda wildcards: RULES.settings("compressions", wildcards.compression),
    shell:
        command("measure-compression")
