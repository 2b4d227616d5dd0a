"""What a config asks for, before anything runs: keys and paths, batches and arms, checks, cost."""
