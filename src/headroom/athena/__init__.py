"""ATHENA, a solver of word problems: data, networks, inference.

Source: arXiv 2311.01036. It judges thoughts, expressions over the numbers of a text, while they are
made, instead of writing an equation from left to right.
"""
