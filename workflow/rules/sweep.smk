# The sweep: one job for each (model, layer, head) and one for the base model, then grading.


rule generate:
    input:
        model=paths.MODEL,
        questions=paths.QUESTIONS,
    output:
        paths.ANSWERS,
    log:
        log_of("generate/{model}/{decoding}/{questions}/{variant}"),
    priority: PRIORITY["answers"]
    group:
        layer
    resources:
        # How many cores the engine may use that answers for all jobs; a resource, not a param, so
        # that another number of cores reruns nothing.
        engine_cores=CORES or 1,
        gpu=gpus,
        mem_mb=megabytes,
        runtime=minutes,
    shell:
        command("generate", "model", "decoding", "questions", "variant")
        + " --cores {resources.engine_cores}"


rule activations:
    input:
        model=paths.MODEL,
        questions=paths.QUESTIONS,
        base=paths.ANSWERS.replace("{variant}", "base"),
    output:
        paths.ACTIVATIONS,
    log:
        log_of("activations/{model}/{decoding}/{questions}"),
    resources:
        gpu=gpus,
        mem_mb=megabytes,
        runtime=minutes,
    shell:
        command("activations", "model", "decoding", "questions")


rule grade:
    input:
        answers=answers,
        questions=paths.QUESTIONS,
    output:
        graded=of_run(paths.GRADED),
        accuracy=of_run(paths.ACCURACY),
    log:
        log_of("grade/{model}/{decoding}/{questions}"),
    priority: PRIORITY["answers"]
    threads: judges
    params:
        grading=CONFIG.grading,
    shell:
        command("grade", "model", "decoding", "questions")


rule compare_prompts:
    input:
        compared,
    output:
        of_run(paths.COMPARISON).replace("{suffix}", "csv"),
    log:
        log_of("compare_prompts/{comparison}"),
    params:
        settings=lambda wildcards: digest(
            CONFIG.comparisons[wildcards.comparison].model_dump(mode="json")
        ),
    shell:
        command("compare-prompts", "comparison")
