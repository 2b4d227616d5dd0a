"""SPRINT: choose, for each question, the attention heads whose removal helps to solve it.

Source: Structured Pruning for Diverse Best-of-N Reasoning Optimization, arXiv 2506.03978,
section 4. `frontier` compares families of variants, heads among them, by the same scores.
"""
