# SPRINT: a selector matches questions with heads; Pass@N holds it against its baselines.


rule train_selector:
    input:
        accuracy=lambda w: accuracy(
            selector(w).model, selector(w).decoding, selector(w).train
        ),
        embeddings=lambda w: embeddings(selector(w).embedder, selector(w).train),
    output:
        selector=of_run(paths.SELECTOR),
        choice=report(
            of_run(paths.CHOICE),
            caption="../report/choice.rst",
            category="SPRINT",
            labels={"selector": "{selector}"},
        ),
    log:
        log_of("train_selector/{selector}"),
    priority: PRIORITY["answers"]
    params:
        settings=selector_settings,
    shell:
        command("train-selector", "selector")


rule rank_heads:
    input:
        selector=of_run(paths.SELECTOR),
        embeddings=lambda w: embeddings(selector(w).embedder, selector(w).test),
        accuracy=lambda w: accuracy(
            selector(w).model, selector(w).decoding, selector(w).train
        ),
        learnt=lambda w: embeddings(selector(w).embedder, selector(w).train),
    output:
        ranking=of_run(paths.RANKING),
        points=of_run(paths.POINTS),
        trainings=of_run(paths.TRAININGS),
    log:
        log_of("rank_heads/{selector}"),
    params:
        settings=selector_settings,
    shell:
        command("rank-heads", "selector")


rule evaluate:
    input:
        unpack(evaluated),
        ranking=of_run(paths.RANKING),
        trainings=of_run(paths.TRAININGS),
    output:
        curves=of_run(paths.CURVES),
        paired=of_run(paths.PAIRED),
        sensitivity=of_run(paths.SENSITIVITY),
        overlap=of_run(paths.OVERLAP),
        ablation=of_run(paths.ABLATION),
        card=of_run(paths.SELECTOR_CARD),
        diversity=of_run(paths.DIVERSITY).replace("{suffix}", "csv"),
    log:
        log_of("evaluate/{selector}"),
    params:
        settings=selector_settings,
        seed=CONFIG.seed,
    shell:
        command("evaluate", "selector")


rule weigh_embedding:
    input:
        unpack(weighed),
        trainings=of_run(paths.TRAININGS),
        ranking=of_run(paths.RANKING),
    output:
        of_run(paths.EMBEDDING_VALUE).replace("{suffix}", "csv"),
    log:
        log_of("weigh_embedding/{selector}"),
    params:
        settings=selector_settings,
        seed=CONFIG.seed,
    shell:
        command("weigh-embedding", "selector")


rule choose:
    input:
        voted,
        unpack(weighed),
        trainings=of_run(paths.TRAININGS),
        ranking=of_run(paths.RANKING),
    output:
        of_run(paths.CHOOSING).replace("{suffix}", "csv"),
    log:
        log_of("choose/{selector}"),
    params:
        settings=selector_settings,
        seed=CONFIG.seed,
    shell:
        command("choose", "selector")
