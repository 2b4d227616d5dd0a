"""Benchmarks of this tool against its rivals, on work that anyone can repeat."""
