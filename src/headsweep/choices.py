"""Words that configs, the command line and Python offer to choose from."""

from typing import Literal

BenchmarkGrader = Literal["math", "numeric", "choice", "exact"]
"""Graders that a benchmark of one's own may name; see `headsweep.grading.graders`."""
COMPARED: dict[BenchmarkGrader, str] = {
    "numeric": "numbers",
    "choice": "letters of a choice",
    "math": "mathematical expressions",
    "exact": "texts",
}
"""What each compares, for every help text. `headsweep try` takes the first that all gold answers
fit; every text fits ``exact``."""
GraderName = Literal[BenchmarkGrader, "gsm8k"]
"""All graders: GSM8K's own questions have one more."""
GRADERS_VERSION = 8
"""Of the graders' rules. It is raised where an answer may get another verdict or another form.

It is a param of the workflow's rules `grade`, `regrade` and `compare_prompts`, so that finished
sweeps grade again. What is in the store stays: a map's texts and a compression's training and
outcomes keep the verdicts they were made with.
"""


def described_graders() -> str:
    """Return what the graders of `COMPARED` compare, each with its name, for a help text."""
    return ", ".join(f"{what} ({name})" for name, what in COMPARED.items())
