"""A run's results in numbers and words: tables, tests, claims, verdicts."""
