# SPRINT: a selector matches questions with heads; Pass@N holds it against its baselines.


rule train_selector:
    input:
        unpack(RULES.training),
    output:
        selector=of_run(paths.SELECTOR),
        choice=planning.shown(
            of_run(paths.CHOICE), "choice", "SPRINT", selector="{selector}"
        ),
    log:
        RULES.log("train_selector/{selector}"),
    priority: PRIORITY["answers"]
    params:
        settings=lambda wildcards: RULES.settings("selectors", wildcards.selector),
    shell:
        command("train-selector")


rule rank_heads:
    input:
        selector=of_run(paths.SELECTOR),
        embeddings=RULES.ranked,
    output:
        ranking=of_run(paths.RANKING),
        points=of_run(paths.POINTS),
    log:
        RULES.log("rank_heads/{selector}"),
    shell:
        command("rank-heads")


rule evaluate:
    input:
        unpack(RULES.evaluated),
        ranking=of_run(paths.RANKING),
    output:
        curves=of_run(paths.CURVES),
        paired=of_run(paths.PAIRED),
        sensitivity=of_run(paths.SENSITIVITY),
        card=of_run(paths.SELECTOR_CARD),
        diversity=of_run(paths.DIVERSITY, suffix="csv"),
    log:
        RULES.log("evaluate/{selector}"),
    params:
        settings=lambda wildcards: RULES.settings("selectors", wildcards.selector),
        seed=CONFIG.seed,
    shell:
        command("evaluate")


rule weigh_embedding:
    input:
        unpack(RULES.weighed),
        selector=of_run(paths.SELECTOR),
        ranking=of_run(paths.RANKING),
    output:
        of_run(paths.EMBEDDING_VALUE, suffix="csv"),
    log:
        RULES.log("weigh_embedding/{selector}"),
    params:
        settings=lambda wildcards: RULES.settings("selectors", wildcards.selector),
        seed=CONFIG.seed,
    shell:
        command("weigh-embedding")


rule choose:
    input:
        RULES.voted,
        unpack(RULES.weighed),
        selector=of_run(paths.SELECTOR),
        ranking=of_run(paths.RANKING),
    output:
        of_run(paths.CHOOSING, suffix="csv"),
    log:
        RULES.log("choose/{selector}"),
    params:
        settings=lambda wildcards: RULES.settings("selectors", wildcards.selector),
        seed=CONFIG.seed,
    shell:
        command("choose")
