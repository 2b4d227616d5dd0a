"""CSV files of a run read back, and the table of a comparison of prompts and grading rules."""

from collections.abc import Sequence
from pathlib import Path

import pandas as pd

from headroom.errors import TableError
from headroom.figures.listing import listing
from headroom.record import intact

COMPARISON_COLUMNS = {
    "decoding": "prompt",
    "grading": "grading",
    "n": "n",
    "correct": "correct",
    "accuracy": "accuracy (%)",
    "no_answer": "no answer",
    "truncated": "truncated",
    "differ_from_default": "differ from default",
}
"""Columns of a comparison, and how they are shown."""


def read_comparison(path: Path) -> pd.DataFrame:
    """Read a comparison of prompts and grading rules.

    Raises:
        TableError: the file is missing or has other columns.
    """
    return read_csv(path, list(COMPARISON_COLUMNS))


def read_csv(path: Path, columns: Sequence[str]) -> pd.DataFrame:
    """Read a CSV file that must have some columns.

    Raises:
        TableError: the file is missing, empty, or lacks a column.
    """
    try:
        table = pd.read_csv(intact(path))
    except FileNotFoundError:
        raise TableError(f"{path} is missing; the rule that makes it has not run") from None
    except (pd.errors.ParserError, pd.errors.EmptyDataError, UnicodeDecodeError) as error:
        raise TableError(f"{path} cannot be read ({error}); remove it and run again") from error
    missing = [column for column in columns if column not in table.columns]
    if missing:
        raise TableError(f"{path}: columns {missing} are missing; remove the file and rerun")
    return table


def comparison_tables(comparison: pd.DataFrame, name: str) -> dict[str, str]:
    """Return a comparison of prompts and grading rules as text, by suffix: md, tex."""
    header = list(COMPARISON_COLUMNS.values())
    shown = comparison[list(COMPARISON_COLUMNS)].copy()
    shown["accuracy"] = [f"{100 * value:.1f}" for value in shown["accuracy"]]
    rows = [[str(value) for value in row] for row in shown.itertuples(index=False)]
    return listing(header, rows, f"Prompt and grading rules, base model: {name}.", texts=2)
