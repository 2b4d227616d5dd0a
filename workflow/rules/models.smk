# Models: fetched where there is network, or trained here. Every later step works offline.


localrules:
    fetch_model,


rule fetch_model:
    output:
        paths.MODEL,
    log:
        log_of("model/{model}"),
    wildcard_constraints:
        model="|".join(set(KEYS["models"]) - set(TRAINED)) or "none",
    shell:
        command("model", "model")


rule train_reasoner:
    output:
        paths.MODEL,
    log:
        log_of("model/{model}"),
    wildcard_constraints:
        model="|".join(TRAINED) or "none",
    priority: PRIORITY["models"]
    threads: CORES or 1
    shell:
        command("model", "model")
