"""Figures: each drawn from a table, saved for print and for the page."""
