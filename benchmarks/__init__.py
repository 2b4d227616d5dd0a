"""Measurements of developers: speed beside rivals, and how often intervals hold."""
