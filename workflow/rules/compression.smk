# Compression: a solver is trained, pruned and tested in each arm; then the results are gathered.


localrules:
    problems,
    encoder,


rule problems:
    output:
        tables.PROBLEMS.path,
    log:
        RULES.log("problems/{data}"),
    shell:
        "headsweep job problems --log {log:q} --data {wildcards.data:q}"


rule encoder:
    output:
        paths.ENCODER,
    log:
        RULES.log("encoder/{encoder}"),
    shell:
        "headsweep job encoder --log {log:q} --encoder {wildcards.encoder:q}"


rule teacher:
    input:
        problems=ancient(tables.PROBLEMS.path),
        encoder=ancient(RULES.encoder_of_solver),
    output:
        paths.TEACHER,
    log:
        RULES.log("teacher/{solver}/{data}/{seed}"),
    priority: PRIORITY["teachers"]
    threads: 1
    resources:
        **RULES.resources.training,
    shell:
        "headsweep job teacher --log {log:q} --solver {wildcards.solver:q}"
        " --data {wildcards.data:q} --seed {wildcards.seed:q}"


rule compress:
    input:
        data=ancient(RULES.data_of_arm),
        answers=ancient(RULES.answers_of_arm),
        teacher=ancient(RULES.teacher_of_arm),
        layout=ancient(RULES.layout_of_arm),
    output:
        outcomes=tables.OUTCOMES.path,
        history=paths.HISTORY,
    log:
        RULES.log("compress/{subject}/{data}/{arm}/{seed}"),
    threads: 1
    resources:
        **RULES.resources.training,
    shell:
        "headsweep job compress --log {log:q} --subject {wildcards.subject:q}"
        " --data {wildcards.data:q} --arm {wildcards.arm:q}"
        " --seed {wildcards.seed:q}"


rule quantise:
    input:
        data=ancient(RULES.data_of_arm),
        history=ancient(paths.HISTORY),
    output:
        tables.INT8_OUTCOMES.path,
    log:
        RULES.log("quantise/{subject}/{data}/{arm}/{seed}"),
    threads: 1
    resources:
        **RULES.resources.quantisation,
    shell:
        "headsweep job quantise --log {log:q} --subject {wildcards.subject:q}"
        " --data {wildcards.data:q} --arm {wildcards.arm:q}"
        " --seed {wildcards.seed:q}"


rule gather_compression:
    input:
        outcomes=RULES.files_of_arms(tables.OUTCOMES.path),
        histories=RULES.files_of_arms(paths.HISTORY),
        int8_outcomes=RULES.files_of_arms(tables.INT8_OUTCOMES.path),
    output:
        outcomes=of_run(tables.STUDY_OUTCOMES),
        histories=of_run(paths.HISTORIES),
    log:
        RULES.log("gather_compression/{compression}"),
    params:
        settings=lambda wildcards: RULES.settings("compressions", wildcards.compression),
    shell:
        "headsweep job gather-compression --log {log:q}"
        " --compression {wildcards.compression:q}"


rule measure_compression:
    input:
        histories=ancient(RULES.measured_arms),
    output:
        of_run(paths.MEASUREMENTS),
    log:
        RULES.log("measure_compression/{compression}"),
    threads: CORES or 1  # alone, so that other jobs do not disturb the timing
    resources:
        **RULES.resources.training,
    params:
        settings=lambda wildcards: RULES.settings("compressions", wildcards.compression),
    shell:
        "headsweep job measure-compression --log {log:q}"
        " --compression {wildcards.compression:q}"
