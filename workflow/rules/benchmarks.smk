# Question sets: a split is read whole, then a set is drawn from it, then its questions embedded.


localrules:
    source,
    embedder,


rule source:
    output:
        paths.SOURCE,
    log:
        log_of("source/{source}"),
    priority: PRIORITY["inputs"]
    shell:
        command("source", "source")


rule questions:
    input:
        unpack(drawn_from),
    output:
        paths.QUESTIONS,
    log:
        log_of("questions/{questions}"),
    priority: PRIORITY["inputs"]
    shell:
        command("questions", "questions")


rule embedder:
    input:
        embedded_model,
    output:
        paths.EMBEDDER,
    log:
        log_of("embedder/{embedder}"),
    priority: PRIORITY["inputs"]
    shell:
        command("embedder", "embedder")


rule embed:
    input:
        embedder=paths.EMBEDDER,
        questions=paths.QUESTIONS,
    output:
        paths.EMBEDDINGS,
    log:
        log_of("embed/{embedder}/{questions}"),
    priority: PRIORITY["answers"]
    shell:
        command("embed", "embedder", "questions")
