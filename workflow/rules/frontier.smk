# Are heads special? Families of variants, compared at equal tokens.


rule compare_families:
    input:
        RULES.families,
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
