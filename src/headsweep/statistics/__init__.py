"""Statistics over questions, as functions of arrays: Pass@N, votes, intervals, tests of gains."""

SIGNIFICANCE = 0.05
"""Level of tests against chance."""

LEVEL = 1 - SIGNIFICANCE
"""Confidence level of all intervals."""
