"""Statistics over questions, as functions of arrays: Pass@N, votes, intervals, tests of gains."""

LEVEL = 0.95
"""Confidence level of all intervals."""
