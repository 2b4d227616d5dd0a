"""Measurements of developers: speed beside rivals, and what is foretold beside what is found."""
