"""Figures of compression."""
