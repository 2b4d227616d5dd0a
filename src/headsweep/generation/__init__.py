"""Generation: prompts, the choice of the next token, the engine, and the job that answers."""
