"""Compression: remove attention heads for good and train the rest to do without them.

Sources: arXiv 2511.17577 (dynamic attention-head pruning with recursive distillation) and
arXiv 2311.01036 (ATHENA, the word-problem solver that it compresses).
"""
