"""ATHENA, a word-problem solver: data, networks, inference.

Source: arXiv 2311.01036. Instead of writing an equation from left to right, it builds expressions
over the numbers of the text ("thoughts") step by step and judges each of them.
"""
