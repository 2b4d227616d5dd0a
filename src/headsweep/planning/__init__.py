"""The work of a config before anything runs: keys and paths, batches and arms, checks, cost."""
