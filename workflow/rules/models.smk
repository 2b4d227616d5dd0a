# Models: fetched where there is network, or trained here. Every later step works offline.


localrules:
    fetch_model,


rule fetch_model:
    output:
        paths.MODEL,
    log:
        RULES.log("model/{model}"),
    wildcard_constraints:
        model=RULES.models(trained=False),
    shell:
        command("model")


rule train_reasoner:
    output:
        paths.MODEL,
    log:
        RULES.log("model/{model}"),
    wildcard_constraints:
        model=RULES.models(trained=True),
    priority: PRIORITY["models"]
    threads: CORES or 1
    shell:
        command("model")
