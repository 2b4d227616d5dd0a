"""What a config asks for: batches of answers and arms, their keys, and their files in the store."""
