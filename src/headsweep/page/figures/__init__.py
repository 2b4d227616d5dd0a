"""Figures, drawn from tables and saved for print and for the page."""
