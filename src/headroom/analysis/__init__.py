"""What a run shows, in numbers and words: tables, tests, claims, sentences."""
