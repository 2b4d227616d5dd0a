"""Statistics over questions: Pass@N, votes and diversity of answers, intervals. NumPy only."""
