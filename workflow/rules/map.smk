# A map of every head: texts that are known are scored without each head, none is generated.


rule texts:
    input:
        model=ancient(RULES.model_of_texts),
        questions=ancient(RULES.questions_of_texts),
        samples=ancient(RULES.samples_of_texts),
    output:
        tables.TEXTS.path,
    log:
        RULES.log("texts/{texts}"),
    priority: PRIORITY["answers"]
    threads: 1
    shell:
        "headsweep job texts --log {log:q} --texts {wildcards.texts:q}"


rule score:
    input:
        model=ancient(RULES.model_of_texts),
        texts=ancient(tables.TEXTS.path),
    output:
        tables.SCORES.path,
    log:
        RULES.log("score/{texts}/{layer}"),
    priority: PRIORITY["answers"]
    threads: RULES.resources.scoring_threads
    resources:
        **RULES.resources.scoring,
    shell:
        "headsweep job score --log {log:q} --texts {wildcards.texts:q}"
        " --layer {wildcards.layer:q}"


rule map:
    input:
        scores=RULES.scores_of_map,
        gains=RULES.gains_beside_map,
    output:
        expand(of_run(paths.MAP), table=paths.MAP_TABLES, allow_missing=True),
    log:
        RULES.log("map/{map}"),
    params:
        settings=lambda wildcards: RULES.settings("maps", wildcards.map),
        basis=lambda wildcards: basis(CONFIG, "maps", wildcards.map),
        titles=RULES.titles_beside_map,
        seed=CONFIG.seed,
    shell:
        "headsweep job map --log {log:q} --map {wildcards.map:q}"
