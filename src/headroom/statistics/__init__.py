"""Statistics over questions: Pass@N, votes, diversity, intervals, controls of gains. No tables."""

LEVEL = 0.95
"""The probability that an interval is to hold."""
