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
_DIFFERENCE = joined(
    in_points("difference"), " (", joined(in_points("low"), " to ", in_points("high")), ")"
)
_BOTH = (
    ("first (%)", in_percent("first")),
    ("second (%)", in_percent("second")),
    ("second − first", _DIFFERENCE),
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
        label = _label(found.variants)
        sheets["Right answers"] = _answers(found.variants, label)
        sheets["Heads"] = _heads(found.variants, label, whole)
        sheets["Gain of a pruned head"] = _gains(found.gains, label, whole)
    if len(found.pass_at_n):
        sheets["Pass@N"] = _pass_at_n(found.pass_at_n, whole)
    return sheets


def _label(variants: pd.DataFrame) -> Cell:
    """Name a batch by its question set, and by its model and decoding where they differ."""
    names = variants[BATCH].drop_duplicates()
    telling = [column for column in BATCH if names[column].nunique() > 1] or ["questions"]
    return lambda row: " / ".join(getattr(row, column) for column in telling)


def _answers(variants: pd.DataFrame, label: Cell) -> Sheet:
    rows = []
    for _, part in variants.groupby(BATCH, sort=False):
        base, heads = (part[(part["variant"] == str(BASE)) == own] for own in (True, False))
        apart = heads.loc[heads["q"] < LEVEL, "difference"]
        counts = {"heads": len(heads), "better": (apart > 0).sum(), "worse": (apart < 0).sum()}
        rows.append(base.head(1).assign(**counts, changed=part["changed"].mean()))
    columns = (
        ("questions", label),
        ("n", number("n")),
        ("base, first (%)", in_percent("first")),
        ("base, second (%)", in_percent("second")),
        ("second − first", _DIFFERENCE),
        ("heads", number("heads")),
        ("better", number("better")),
        ("worse", number("worse")),
        ("answers changed (%)", in_percent("changed")),
    )
    note = (
        "On common questions. Intervals are 95%, paired by question (Bonett and Price). Better, "
        f"worse: heads with more or fewer right answers in the second run (exact McNemar test, "
        f"Benjamini-Hochberg over the variants, q < {LEVEL}). Answers changed: share of the final "
        "answers of base and heads that differ."
    )
    return Sheet.of(pd.concat(rows), columns, note)


def _heads(variants: pd.DataFrame, label: Cell, whole: bool) -> Sheet:
    """List the heads, those that changed most first."""
    heads = variants[variants["variant"] != str(BASE)]
    if not whole:
        # A grader may change a verdict without a change of the answer.
        heads = heads[heads[["changed", "gained", "lost"]].any(axis=1)]
    order = heads["difference"].abs().sort_values(ascending=False, kind="stable").index
    columns = (
        ("questions", label),
        ("without", name("variant")),
        *_BOTH,
        ("gained", number("gained")),
        ("lost", number("lost")),
        ("p", number("p", ".3f")),
        ("q", number("q", ".3f")),
        ("answers changed (%)", in_percent("changed")),
    )
    note = "Gained, lost: questions that only the second, only the first run has right."
    return Sheet.of(heads.loc[order], columns, note, texts=2)


def _gains(gains: pd.DataFrame, label: Cell, whole: bool) -> Sheet:
    columns = (
        ("questions", label),
        ("gain of the", name("of")),
        ("layer", number("layer")),
        ("heads", number("heads")),
        ("first", in_points("first")),
        ("second", in_points("second")),
        ("second − first", _DIFFERENCE),
    )
    note = (
        f"In percentage points over base. The {BEST} is a maximum over the layer, raised by "
        "selection in both runs. Intervals are 95%, bootstrap over the common questions."
    )
    shown = gains if whole else gains[gains["difference"] != 0]
    return Sheet.of(shown, columns, note, texts=2)


def _pass_at_n(curves: pd.DataFrame, whole: bool) -> Sheet:
    shown = curves[curves["n"].isin(_SHOWN_N)]
    columns = (
        ("selector", name("selector")),
        ("method", name("method")),
        ("N", number("n")),
        *_BOTH,
    )
    note = (
        "Intervals are 95%, from those of both curves as if they were independent: on common "
        "questions they are too wide."
    )
    return Sheet.of(shown if whole else shown[shown["difference"] != 0], columns, note, texts=2)


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
