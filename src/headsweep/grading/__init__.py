"""Grading: from the text of an answer to a cell of the accuracy matrix.

`graders` extracts the final answer from a text and compares it with the gold answer, `pool` does so
in processes that can be killed, and `matrix` writes the tables. Model output is untrusted: no code
evaluates it, and only `pool`'s workers parse it.
"""
