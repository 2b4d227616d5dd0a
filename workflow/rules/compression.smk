# Compression: a solver is trained, loses heads arm by arm, and is tested; then all is gathered.


localrules:
    problems,
    encoder,


rule problems:
    output:
        paths.PROBLEMS,
        paths.DROPPED,
    log:
        log_of("problems/{data}"),
    shell:
        command("problems", "data")


rule encoder:
    output:
        paths.ENCODER,
    log:
        log_of("encoder/{encoder}"),
    shell:
        command("encoder", "encoder")


rule teacher:
    input:
        unpack(taught),
    output:
        paths.TEACHER,
    log:
        log_of("teacher/{solver}/{data}/{seed}"),
    priority: PRIORITY["teachers"]
    threads: 1
    resources:
        gpu=training_gpus,
        mem_mb=training_megabytes,
        runtime=training_minutes,
    shell:
        command("teacher", "solver", "data", "seed")


rule compress:
    input:
        unpack(compressed),
    output:
        paths.OUTCOMES,
        paths.HISTORY,
    log:
        log_of("compress/{subject}/{data}/{arm}/{seed}"),
    threads: 1
    resources:
        gpu=training_gpus,
        mem_mb=training_megabytes,
        runtime=training_minutes,
    shell:
        command("compress", "subject", "data", "arm", "seed")


rule quantise:
    input:
        unpack(quantised),
    output:
        paths.INT8_OUTCOMES,
    log:
        log_of("quantise/{subject}/{data}/{arm}/{seed}"),
    threads: 1
    resources:
        mem_mb=training_megabytes,
        runtime=training_minutes,
    shell:
        command("quantise", "subject", "data", "arm", "seed")


rule gather_compression:
    input:
        unpack(gathered),
    output:
        of_run(paths.STUDY_OUTCOMES),
        of_run(paths.HISTORIES),
    log:
        log_of("gather_compression/{compression}"),
    params:
        settings=study_settings,
    shell:
        command("gather-compression", "compression")


rule measure_compression:
    input:
        measured,
    output:
        of_run(paths.MEASUREMENTS),
    log:
        log_of("measure_compression/{compression}"),
    threads: CORES or 1  # alone, or others' jobs would be timed too
    resources:
        gpu=training_gpus,
        mem_mb=training_megabytes,
        runtime=training_minutes,
    params:
        settings=study_settings,
    shell:
        command("measure-compression", "compression")
