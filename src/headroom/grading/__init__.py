"""Grading: from the text of an answer to a cell of the accuracy matrix.

`graders` finds the final answer in a text, `judge` compares it with the gold answer, `pool` runs
the judge in processes that can be killed, `matrix` makes the tables. Model output is untrusted:
nothing here evaluates it, and only `pool`'s workers parse it.
"""
