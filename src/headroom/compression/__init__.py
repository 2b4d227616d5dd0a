"""Compression: remove attention heads for good and train the rest to do without them.

Sources: arXiv 2511.17577 (dynamic attention-head pruning with recursive distillation) and
arXiv 2311.01036 (ATHENA, the word-problem solver that it compresses).

For any decoder or encoder of transformers: `criteria.text_scores` scores its heads on a list of
texts, holding one layer's attention weights at a time; `choice.remove_lowest` cuts the lowest out
of its weights, as whole groups of a key/value head or as query heads of every group.
"""
