"""The Snakefile's side of the project: what its rules need (`rules`), what a run does before and
after its jobs (`session`), and the jobs' commands (`jobs`).

Only this room and the logger plugin know Snakemake.
"""
