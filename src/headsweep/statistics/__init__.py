"""Statistics over questions, as functions of arrays: Pass@N, votes, intervals, tests of gains."""

SIGNIFICANCE = 0.05
"""Level of tests against chance."""

LEVEL = 1 - SIGNIFICANCE
"""Confidence level of all intervals."""

TAILS = (1 - LEVEL) / 2, (1 + LEVEL) / 2
"""Probabilities at the ends of an interval."""
