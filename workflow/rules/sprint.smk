# SPRINT: a selector matches questions with heads; Pass@N compares it with its baselines.
# A selector's entry in the config names the questions that it is trained and tested on.


rule train_selector:
    input:
        z=RULES.learnt_from(tables.ACCURACY),
        embeddings=RULES.learnt_from(tables.EMBEDDINGS),
    output:
        selector=of_run(paths.SELECTOR),
        choice=shown(of_run(paths.CHOICE), "choice", "SPRINT", selector="{selector}"),
    log:
        RULES.log("train_selector/{selector}"),
    priority: PRIORITY["answers"]
    params:
        settings=lambda wildcards: RULES.settings("selectors", wildcards.selector),
    shell:
        "headsweep job train-selector --log {log:q}"
        " --selector {wildcards.selector:q}"


rule rank_heads:
    input:
        z=RULES.learnt_from(tables.ACCURACY),
        train_questions=RULES.learnt_from(tables.QUESTIONS),
        test_questions=RULES.tested_on(tables.QUESTIONS),
        train_embeddings=RULES.learnt_from(tables.EMBEDDINGS),
        test_embeddings=RULES.tested_on(tables.EMBEDDINGS),
        selector=of_run(paths.SELECTOR),
    output:
        ranking=of_run(tables.RANKING),
        points=of_run(tables.POSITIONS),
        trainings=of_run(tables.TRAININGS),
    log:
        RULES.log("rank_heads/{selector}"),
    params:
        settings=lambda wildcards: RULES.settings("selectors", wildcards.selector),
    shell:
        "headsweep job rank-heads --log {log:q} --selector {wildcards.selector:q}"


rule evaluate:
    input:
        z=RULES.learnt_from(tables.ACCURACY),
        train_questions=RULES.learnt_from(tables.QUESTIONS),
        test_questions=RULES.tested_on(tables.QUESTIONS),
        test_answers=RULES.tested_on(tables.GRADED),
        samples=RULES.sampled,
        at_home=RULES.rankings_at_home,
        ranking=of_run(tables.RANKING),
        trainings=of_run(tables.TRAININGS),
    output:
        curves=of_run(tables.CURVES),
        paired=of_run(paths.PAIRED),
        votes=of_run(paths.VOTES),
        sensitivity=of_run(paths.SENSITIVITY),
        overlap=of_run(paths.OVERLAP),
        ablation=of_run(paths.ABLATION),
        card=of_run(paths.SELECTOR_CARD),
        diversity=of_run(paths.DIVERSITY),
        embedding=of_run(paths.EMBEDDING_VALUE),
        transfer=of_run(paths.TRANSFER),
    log:
        RULES.log("evaluate/{selector}"),
    params:
        settings=lambda wildcards: RULES.settings("selectors", wildcards.selector),
        titles=RULES.titles_at_home,
        seed=CONFIG.seed,
    shell:
        "headsweep job evaluate --log {log:q} --selector {wildcards.selector:q}"
