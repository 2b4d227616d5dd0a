# Are heads special? Families of variants, compared at equal tokens.


rule compare_families:
    input:
        train=RULES.family_answers("train"),
        test=RULES.family_answers("test"),
    output:
        expand(of_run(paths.FRONTIER), table=paths.FRONTIER_TABLES, allow_missing=True),
    log:
        RULES.log("compare_families/{frontier}"),
    params:
        settings=lambda wildcards: RULES.settings("frontiers", wildcards.frontier),
        seed=CONFIG.seed,
    shell:
        "headsweep job compare-families --log {log:q}"
        " --frontier {wildcards.frontier:q}"
