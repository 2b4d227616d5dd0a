"""Cells of tables: numbers of a row written one way, a dash where there is none."""

from collections.abc import Callable
from typing import Any

import pandas as pd

from headroom.figures.text import points

Cell = Callable[[Any], str]
"""Writes a cell from a row."""

NONE = "–"


def label(arm: str) -> str:
    """Return an arm's name as it is shown."""
    return arm.replace("_", " ")


def text(column: str) -> Cell:
    """Return the cell of a name."""
    return lambda row: str(getattr(row, column))


def arm(row: Any) -> str:
    """Write an arm's name."""
    return label(row.arm)


def percent(column: str) -> Cell:
    """Return the cell of a part of 1 in percent."""
    return lambda row: in_percent(getattr(row, column))


def in_percent(value: float) -> str:
    """Write a part of 1 in percent, without the sign."""
    if pd.isna(value):
        return NONE
    written = f"{100 * value:.1f}".replace("-", "−")
    return "0.0" if written == "−0.0" else written


def mean(column: str, sd: str) -> Cell:
    """Return the cell of an accuracy in percent, with its spread over seeds if there are some."""

    def cell(row: Any) -> str:
        value, spread = getattr(row, column), getattr(row, sd)
        return (
            in_percent(value) if pd.isna(spread) else f"{in_percent(value)} ± {in_percent(spread)}"
        )

    return cell


def change(column: str) -> Cell:
    """Return the cell of a difference in points, with its interval."""

    def cell(row: Any) -> str:
        value, low, high = (getattr(row, f"{column}{end}") for end in ("", "_low", "_high"))
        if pd.isna(value):
            return NONE
        return f"{points(value)} ({points(low)} to {points(high)})"

    return cell


def both_ways(first: str, second: str) -> Cell:
    """Return the cell of two numbers in percent, with a comma between."""

    def cell(row: Any) -> str:
        values = [getattr(row, name) for name in (first, second)]
        return NONE if pd.isna(values).all() else ", ".join(map(in_percent, values))

    return cell


def amount(column: str, form: str, unit: float = 1) -> Cell:
    """Return the cell of a number in some unit, in Python's format."""

    def cell(row: Any) -> str:
        value = getattr(row, column)
        if pd.isna(value):
            return NONE
        return format(int(value) if form == "d" else value / unit, form)

    return cell


def heads_cut(row: Any) -> str:
    """Write how many heads are gone."""
    return f"{row.heads_removed} of {row.heads}"
