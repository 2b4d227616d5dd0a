# Question sets: a whole split is read, a set is drawn from it, and its questions are embedded.


localrules:
    source,
    embedder,


rule source:
    output:
        tables.SOURCE.path,
    log:
        RULES.log("source/{source}"),
    priority: PRIORITY["inputs"]
    shell:
        "headsweep job source --log {log:q} --source {wildcards.source:q}"


rule questions:
    input:
        source=RULES.source_of_questions,
        embedder=RULES.embedder_of_questions,
    output:
        tables.QUESTIONS.path,
    log:
        RULES.log("questions/{questions}"),
    priority: PRIORITY["inputs"]
    threads: RULES.resources.drawing_threads
    resources:
        **RULES.resources.drawing,
    shell:
        "headsweep job questions --log {log:q} --questions {wildcards.questions:q}"


rule embedder:
    input:
        model=RULES.model_of_embedder,
    output:
        paths.EMBEDDER,
    log:
        RULES.log("embedder/{embedder}"),
    priority: PRIORITY["inputs"]
    shell:
        "headsweep job embedder --log {log:q} --embedder {wildcards.embedder:q}"


rule embed:
    input:
        embedder=ancient(paths.EMBEDDER),
        questions=ancient(tables.QUESTIONS.path),
    output:
        tables.EMBEDDINGS.path,
    log:
        RULES.log("embed/{embedder}/{questions}"),
    priority: PRIORITY["answers"]
    threads: RULES.resources.embedding_threads
    resources:
        **RULES.resources.embedding,
    shell:
        "headsweep job embed --log {log:q} --embedder {wildcards.embedder:q}"
        " --questions {wildcards.questions:q}"
