"""The table of a comparison of prompts and grading rules."""

from pathlib import Path

import pandas as pd

from headroom.analysis.sheet import Sheet, in_percent, name, number, read_csv

_COLUMNS = {
    "decoding": ("prompt", name),
    "grading": ("grading", name),
    "n": ("n", number),
    "correct": ("correct", number),
    "accuracy": ("accuracy (%)", in_percent),
    "no_answer": ("no answer", number),
    "truncated": ("truncated", number),
    "differ_from_default": ("differ from default", number),
}
"""Columns of a comparison, and how they are shown."""


def read_comparison(path: Path) -> pd.DataFrame:
    """Read a comparison of prompts and grading rules.

    Raises:
        TableError: the file is missing or has other columns.
    """
    return read_csv(path, list(_COLUMNS))


def comparison_sheet(comparison: pd.DataFrame, of: str) -> Sheet:
    """Return a comparison of prompts and grading rules as text."""
    columns = [(title, cell(column)) for column, (title, cell) in _COLUMNS.items()]
    caption = f"Prompt and grading rules, base model: {of}."
    return Sheet.of(comparison, columns, caption, texts=2)
