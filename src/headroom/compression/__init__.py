"""Compression: attention heads are removed for good, and the rest learns to do without them.

Sources: arXiv 2511.17577 (dynamic attention-head pruning with recursive distillation) and
ATHENA, arXiv 2311.01036, the solver of word problems that it compresses.
"""
