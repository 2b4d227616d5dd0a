"""The accounts in docs/ recomputed with pandas, scipy and numpy, without headsweep.

Each module gives `Fact`s by topic and name, of which an account states some (`recompute.py`).
"""
