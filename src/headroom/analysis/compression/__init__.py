"""Analysis of a run's compressions: the paper's tables, findings."""
