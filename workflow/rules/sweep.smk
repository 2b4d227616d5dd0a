# The sweep: one job for each (model, layer, head) and one for the base model, then grading.


rule generate:
    input:
        model=ancient(paths.MODEL),
        questions=ancient(tables.QUESTIONS.path),
    output:
        tables.ANSWERS.path,
    log:
        RULES.log("generate/{model}/{decoding}/{questions}/{variant}"),
    priority: PRIORITY["answers"]
    group:
        RULES.job_group
    resources:
        **RULES.resources.generation,
        # Cores of the engine that answers for all jobs; a resource, not a param, so that another
        # number of cores reruns nothing.
        engine_cores=CORES or 1,
    shell:
        "headsweep job generate --log {log:q} --model {wildcards.model:q}"
        " --decoding {wildcards.decoding:q} --questions {wildcards.questions:q}"
        " --variant {wildcards.variant:q} --cores {resources.engine_cores:q}"


rule activations:
    input:
        model=ancient(paths.MODEL),
        questions=ancient(tables.QUESTIONS.path),
        base=ancient(tables.BASE_ANSWERS.path),
    output:
        tables.ACTIVATIONS.path,
    log:
        RULES.log("activations/{model}/{decoding}/{questions}"),
    resources:
        **RULES.resources.generation,
    shell:
        "headsweep job activations --log {log:q} --model {wildcards.model:q}"
        " --decoding {wildcards.decoding:q} --questions {wildcards.questions:q}"


rule look:
    input:
        model=ancient(paths.MODEL),
        questions=ancient(tables.QUESTIONS.path),
        base=ancient(tables.BASE_ANSWERS.path),
        answers=ancient(RULES.answers_without_heads),
    output:
        tables.LOOKS.path,
    log:
        RULES.log("look/{model}/{decoding}/{questions}/{heads}"),
    resources:
        **RULES.resources.generation,
    shell:
        "headsweep job look --log {log:q} --model {wildcards.model:q}"
        " --decoding {wildcards.decoding:q} --questions {wildcards.questions:q}"
        " --heads {wildcards.heads:q}"


rule grade:
    input:
        answers=RULES.answers,
        questions=ancient(tables.QUESTIONS.path),
    output:
        graded=of_run(tables.GRADED),
        accuracy=of_run(tables.ACCURACY),
    log:
        RULES.log("grade/{model}/{decoding}/{questions}"),
    priority: PRIORITY["answers"]
    threads: RULES.judges
    params:
        grading=CONFIG.grading,
        graders=choices.GRADERS_VERSION,
    shell:
        "headsweep job grade --log {log:q} --model {wildcards.model:q}"
        " --decoding {wildcards.decoding:q} --questions {wildcards.questions:q}"


# A sweep may have grading rules other than the run's.
rule regrade:
    input:
        answers=RULES.answers,
        questions=ancient(tables.QUESTIONS.path),
    output:
        graded=of_run(tables.REGRADED),
        accuracy=of_run(tables.REGRADED_ACCURACY),
    log:
        RULES.log("regrade/{grading}/{model}/{decoding}/{questions}"),
    priority: PRIORITY["answers"]
    threads: RULES.judges
    params:
        graders=choices.GRADERS_VERSION,
    shell:
        "headsweep job regrade --log {log:q} --model {wildcards.model:q}"
        " --decoding {wildcards.decoding:q} --questions {wildcards.questions:q}"
        " --grading {wildcards.grading:q}"


rule compare_prompts:
    input:
        questions=RULES.compared_questions,
        answers=RULES.compared_answers,
    output:
        of_run(paths.COMPARISON),
    log:
        RULES.log("compare_prompts/{comparison}"),
    params:
        settings=lambda wildcards: RULES.settings("comparisons", wildcards.comparison),
        graders=choices.GRADERS_VERSION,
    shell:
        "headsweep job compare-prompts --log {log:q}"
        " --comparison {wildcards.comparison:q}"
