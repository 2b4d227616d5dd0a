"""Words that configs, the command line and Python offer to choose from."""

from typing import Literal

BenchmarkGrader = Literal["math", "numeric", "choice", "exact"]
"""Graders that a benchmark of one's own may name; see `headsweep.grading.graders`."""
GraderName = Literal[BenchmarkGrader, "gsm8k"]
"""All graders: GSM8K's own questions have one more."""
