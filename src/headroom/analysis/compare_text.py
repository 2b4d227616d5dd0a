"""A comparison of two runs in words: short for the terminal, whole as Markdown."""

import textwrap
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pandas as pd

from headroom.analysis.compare import BATCH, BEST, Comparison
from headroom.analysis.controls import LEVEL
from headroom.analysis.runs import Pair
from headroom.analysis.sheet import (
    NONE,
    Cell,
    Sheet,
    in_percent,
    in_points,
    joined,
    name,
    number,
    write_csv,
    written,
)
from headroom.analysis.text import markdown, short
from headroom.errors import ConfigError
from headroom.tables import write_text
from headroom.variants import BASE

_SHOWN = 8  # rows of a part in the terminal
_SHOWN_N = (1, 4, 16)
_DIFFERENCE = (
    "second − first",
    joined(in_points("difference"), " (", joined(in_points("low"), " to ", in_points("high")), ")"),
)
_BOTH = (("first (%)", in_percent("first")), ("second (%)", in_percent("second")), _DIFFERENCE)
_CHANGED = ("answers changed (%)", in_percent("changed"))

_ANSWERS = (
    ("n", number("n")),
    ("base, first (%)", in_percent("first")),
    ("base, second (%)", in_percent("second")),
    _DIFFERENCE,
    *((column, number(column)) for column in ("heads", "better", "worse")),
    _CHANGED,
)
_ANSWERS_NOTE = (
    "On common questions. Intervals are 95%, paired by question (Bonett and Price). Better, "
    "worse: heads with more or fewer right answers in the second run (exact McNemar test, "
    f"Benjamini-Hochberg over the variants, q < {LEVEL}). Answers changed: share of the final "
    "answers of base and heads that differ."
)
_HEADS = (
    ("without", name("variant")),
    *_BOTH,
    *((column, number(column)) for column in ("gained", "lost")),
    *((column, number(column, ".3f")) for column in ("p", "q")),
    _CHANGED,
)
_HEADS_NOTE = "Gained, lost: questions that only the second, only the first run has right."
_GAINS = (
    ("gain of the", name("of")),
    *((column, number(column)) for column in ("layer", "heads")),
    *((column, in_points(column)) for column in ("first", "second")),
    _DIFFERENCE,
)
_GAINS_NOTE = (
    f"In percentage points over base. The {BEST} is a maximum over the layer, raised by "
    "selection in both runs. Intervals are 95%, bootstrap over the common questions."
)
_CURVES = (
    ("selector", name("selector")),
    ("method", name("method")),
    ("N", number("n")),
    *_BOTH,
)
_CURVES_NOTE = (
    "Intervals are 95%, from those of both curves as if they were independent: on common "
    "questions they are too wide."
)


def summary(found: Comparison, pair: Pair) -> str:
    """Return the comparison for a terminal: the first rows of each table."""
    lines = [f"first:  {pair.first.folder}", f"second: {pair.second.folder}"]
    for title, sheet in _sheets(found, whole=False).items():
        shown = sheet.rows[:_SHOWN]
        lines += ["", title]
        lines += _aligned([sheet.titles, *shown], sheet.texts) if shown else ["  no difference"]
        if len(sheet.rows) > len(shown):
            lines.append(f"  ... and {len(sheet.rows) - len(shown)} more with a difference")
        if shown:
            lines += textwrap.wrap(sheet.caption, 96, initial_indent="  ", subsequent_indent="  ")
    lines += ["", *(f"Left out: {text}" for text in found.left_out)] if found.left_out else []
    return "\n".join("".join(c if c.isprintable() else " " for c in line) for line in lines)


def write(found: Comparison, pair: Pair, folder: Path) -> list[Path]:
    """Write the tables as CSV, and all of them as one Markdown page; return the files.

    Raises:
        ConfigError: the folder cannot be written.
    """
    first, second = (markdown(str(run.folder)) for run in (pair.first, pair.second))
    lines = [f"# {first} and {second}", "", f"First: {first}; second: {second}.", ""]
    lines += [written(_sheets(found, whole=True))["md"]]
    lines += [f"Left out: {markdown(text)}." for text in found.left_out]
    tables = ("settings", "variants", "gains", "pass_at_n")
    files = [folder / f"{table}.csv" for table in tables] + [folder / "comparison.md"]
    try:
        for table, file in zip(tables, files, strict=False):
            write_csv(file, getattr(found, table))
        write_text(files[-1], "\n".join(lines).rstrip() + "\n")
    except OSError as error:
        raise ConfigError(
            f"--out {folder} cannot be written ({error.strerror}); name another folder"
        ) from None
    return files


def _sheets(found: Comparison, whole: bool) -> dict[str, Sheet]:
    """Return the tables; if not `whole`, without heads, layers and curves that are the same."""
    columns = (
        ("setting", name("setting")),
        ("first", _setting("first")),
        ("second", _setting("second")),
    )
    note = "Versions and commit are those that graded."
    sheets = {"Settings that differ": Sheet.of(found.settings, columns, note, texts=3)}
    if len(found.variants):
        label = ("questions", _label(found.variants))
        answers, heads = _answers(found.variants), _heads(found.variants, whole)
        gains = _told(found.gains, whole)
        sheets["Right answers"] = Sheet.of(answers, (label, *_ANSWERS), _ANSWERS_NOTE)
        sheets["Heads"] = Sheet.of(heads, (label, *_HEADS), _HEADS_NOTE, texts=2)
        sheets["Gain of a pruned head"] = Sheet.of(gains, (label, *_GAINS), _GAINS_NOTE, texts=2)
    if len(found.pass_at_n):
        curves = found.pass_at_n[found.pass_at_n["n"].isin(_SHOWN_N)]
        sheets["Pass@N"] = Sheet.of(_told(curves, whole), _CURVES, _CURVES_NOTE, texts=2)
    return sheets


def _told(table: pd.DataFrame, whole: bool) -> pd.DataFrame:
    return table if whole else table[table["difference"] != 0]


def _label(variants: pd.DataFrame) -> Cell:
    """Name a batch by its question set, and by its model and decoding where they differ."""
    names = variants[BATCH].drop_duplicates()
    telling = [column for column in BATCH if names[column].nunique() > 1] or ["questions"]
    return lambda row: " / ".join(getattr(row, column) for column in telling)


def _answers(variants: pd.DataFrame) -> pd.DataFrame:
    """Return the base model of each batch, and how many of its heads got better or worse."""
    rows = []
    for _, part in variants.groupby(BATCH, sort=False):
        base, heads = (part[(part["variant"] == str(BASE)) == own] for own in (True, False))
        apart = heads.loc[heads["q"] < LEVEL, "difference"]
        counts = {"heads": len(heads), "better": (apart > 0).sum(), "worse": (apart < 0).sum()}
        rows.append(base.head(1).assign(**counts, changed=part["changed"].mean()))
    return pd.concat(rows)


def _heads(variants: pd.DataFrame, whole: bool) -> pd.DataFrame:
    """Return the heads, those that changed most first."""
    heads = variants[variants["variant"] != str(BASE)]
    if not whole:
        # A grader may change a verdict without a change of the answer.
        heads = heads[heads[["changed", "gained", "lost"]].any(axis=1)]
    return heads.loc[heads["difference"].abs().sort_values(ascending=False, kind="stable").index]


def _setting(column: str) -> Cell:
    def cell(row: Any) -> str:
        value = getattr(row, column)
        return NONE if value is None else short(value, 44)

    return cell


def _aligned(rows: Sequence[Sequence[str]], texts: int) -> list[str]:
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return [
        "  "
        + "  ".join(
            cell.ljust(width) if index < texts else cell.rjust(width)
            for index, (cell, width) in enumerate(zip(row, widths, strict=True))
        ).rstrip()
        for row in rows
    ]
