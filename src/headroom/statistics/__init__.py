"""Statistics over questions: Pass@N, votes, diversity, intervals, controls of gains. No tables."""
