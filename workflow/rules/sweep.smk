# The sweep: one job for each (model, layer, head) and one for the base model, then grading.


rule generate:
    input:
        model=ancient(paths.MODEL),
        questions=ancient(paths.QUESTIONS),
    output:
        paths.ANSWERS,
    log:
        RULES.log("generate/{model}/{decoding}/{questions}/{variant}"),
    priority: PRIORITY["answers"]
    group:
        RULES.layer
    resources:
        **RULES.generation_resources,
        # Cores of the engine that answers for all jobs; a resource, not a param, so that another
        # number of cores reruns nothing.
        engine_cores=CORES or 1,
    shell:
        command("generate")


rule activations:
    input:
        model=ancient(paths.MODEL),
        questions=ancient(paths.QUESTIONS),
        base=ancient(paths.ANSWERS.replace("{variant}", "base")),
    output:
        paths.ACTIVATIONS,
    log:
        RULES.log("activations/{model}/{decoding}/{questions}"),
    resources:
        **RULES.generation_resources,
    shell:
        command("activations")


rule grade:
    input:
        answers=RULES.answers,
        questions=ancient(paths.QUESTIONS),
    output:
        graded=of_run(paths.GRADED),
        accuracy=of_run(paths.ACCURACY),
    log:
        RULES.log("grade/{model}/{decoding}/{questions}"),
    priority: PRIORITY["answers"]
    threads: RULES.judges
    params:
        grading=CONFIG.grading,
    shell:
        command("grade")


# A sweep may have grading rules other than the run's.
rule regrade:
    input:
        answers=RULES.answers,
        questions=ancient(paths.QUESTIONS),
    output:
        graded=of_run(paths.REGRADED),
        accuracy=of_run(paths.REGRADED_ACCURACY),
    log:
        RULES.log("regrade/{grading}/{model}/{decoding}/{questions}"),
    priority: PRIORITY["answers"]
    threads: RULES.judges
    shell:
        command("regrade")


rule compare_prompts:
    input:
        RULES.compared,
    output:
        of_run(paths.COMPARISON),
    log:
        RULES.log("compare_prompts/{comparison}"),
    params:
        settings=lambda wildcards: RULES.settings("comparisons", wildcards.comparison),
    shell:
        command("compare-prompts")
