# Question sets: a split is read whole, then a set is drawn from it, then its questions embedded.


localrules:
    source,
    embedder,


rule source:
    output:
        paths.SOURCE,
    log:
        log_of("source/{source}"),
    shell:
        command("source", "source")


def drawn_from(wildcards):
    name = KEYS["questions"][wildcards.questions]
    embedder = CONFIG.questions[name].embedder
    inputs = {"source": paths.SOURCE.format(source=source_key(CONFIG, name))}
    if embedder:
        inputs["embedder"] = paths.EMBEDDER.format(
            embedder=key(CONFIG, "embedders", embedder)
        )
    return inputs


rule questions:
    input:
        unpack(drawn_from),
    output:
        paths.QUESTIONS,
    log:
        log_of("questions/{questions}"),
    shell:
        command("questions", "questions")


def embedded_model(wildcards):
    model = CONFIG.embedders[KEYS["embedders"][wildcards.embedder]].model
    return [paths.MODEL.format(model=key(CONFIG, "models", model))] if model else []


rule embedder:
    input:
        embedded_model,
    output:
        paths.EMBEDDER,
    log:
        log_of("embedder/{embedder}"),
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
    shell:
        command("embed", "embedder", "questions")
