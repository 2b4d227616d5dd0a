"""The tool: sweeps, solving and finished runs, for terminals and notebooks, without Snakemake."""
