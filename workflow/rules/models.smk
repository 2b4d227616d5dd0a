# Models are fetched where there is network. Every later step works offline.


localrules:
    fetch_model,


rule fetch_model:
    output:
        paths.MODEL,
    log:
        RULES.log("model/{model}"),
    shell:
        "headsweep job model --log {log:q} --model {wildcards.model:q}"
