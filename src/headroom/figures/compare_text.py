"""A comparison of two runs in words: short for the terminal, whole as Markdown."""

import textwrap
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd

from headroom.errors import ConfigError
from headroom.figures.compare import BATCH, BEST, Comparison
from headroom.figures.controls import LEVEL
from headroom.figures.drawing import write_csv
from headroom.figures.listing import listing, rows_of
from headroom.figures.runs import Pair
from headroom.figures.text import markdown, percent, points, short
from headroom.tables import write_text
from headroom.variants import BASE

_SHOWN = 8  # rows of a part in the terminal
_SHOWN_N = (1, 4, 16)


@dataclass(frozen=True)
class _Part:
    """A titled table; the first `texts` columns hold text."""

    title: str
    note: str
    header: Sequence[str]
    rows: list[list[str]]
    texts: int


def summary(found: Comparison, pair: Pair) -> str:
    """Return the comparison for a terminal: the first rows of each table."""
    lines = [f"first:  {pair.first.folder}", f"second: {pair.second.folder}"]
    for part in _parts(found, whole=False):
        shown = part.rows[:_SHOWN]
        lines += ["", part.title]
        lines += _aligned([part.header, *shown], part.texts) if shown else ["  no difference"]
        if len(part.rows) > len(shown):
            lines.append(f"  ... and {len(part.rows) - len(shown)} more with a difference")
        if shown:
            lines += textwrap.wrap(part.note, 96, initial_indent="  ", subsequent_indent="  ")
    lines += ["", *(f"Left out: {text}" for text in found.left_out)] if found.left_out else []
    return "\n".join("".join(c if c.isprintable() else " " for c in line) for line in lines)


def write(found: Comparison, pair: Pair, folder: Path) -> list[Path]:
    """Write the tables as CSV, and all of them as one Markdown page; return the files.

    Raises:
        ConfigError: the folder cannot be written.
    """
    names = (str(pair.first.folder), str(pair.second.folder))
    lines = [f"# {markdown(names[0])} and {markdown(names[1])}", ""]
    lines += [f"First: {markdown(names[0])}; second: {markdown(names[1])}.", ""]
    for part in _parts(found, whole=True):
        lines += [f"## {markdown(part.title)}", ""]
        lines += [listing(part.header, part.rows, part.note, part.texts)["md"]]
    lines += [f"Left out: {markdown(text)}." for text in found.left_out]
    tables = ("settings", "variants", "gains", "pass_at_n")
    files = [folder / f"{name}.csv" for name in tables] + [folder / "comparison.md"]
    try:
        for name, file in zip(tables, files, strict=False):
            write_csv(file, getattr(found, name))
        write_text(files[-1], "\n".join(lines).rstrip() + "\n")
    except OSError as error:
        raise ConfigError(
            f"--out {folder} cannot be written ({error.strerror}); name another folder"
        ) from None
    return files


def _parts(found: Comparison, whole: bool) -> Iterator[_Part]:
    """Yield the tables; if not `whole`, without heads, layers and curves that are the same."""
    settings = [
        [row.setting, *map(_setting, (row.first, row.second))] for row in rows_of(found.settings)
    ]
    note = "Versions and commit are those that graded."
    yield _Part("Settings that differ", note, ("setting", "first", "second"), settings, 3)
    labels = _labels(found.variants)
    if len(found.variants):
        yield _answers_part(found.variants, labels)
        yield _heads_part(found.variants, labels, whole)
        yield _gains_part(found.gains, labels, whole)
    if len(found.pass_at_n):
        yield _pass_at_n_part(found.pass_at_n, whole)


def _labels(variants: pd.DataFrame) -> dict[tuple[str, ...], str]:
    """Name each batch by its question set, and by its model and decoding where they differ."""
    names = variants[BATCH].drop_duplicates()
    telling = [column for column in BATCH if names[column].nunique() > 1] or ["questions"]
    return {
        (row.model, row.decoding, row.questions): " / ".join(getattr(row, c) for c in telling)
        for row in rows_of(names)
    }


def _answers_part(variants: pd.DataFrame, labels: Mapping[tuple[str, ...], str]) -> _Part:
    rows = []
    for _, part in variants.groupby(BATCH, sort=False):
        base, heads = (part[(part["variant"] == str(BASE)) == own] for own in (True, False))
        apart = heads["q"] < LEVEL
        row = next(rows_of(base))
        rows.append(
            [
                labels[row.model, row.decoding, row.questions],
                str(row.n),
                percent(row.first),
                percent(row.second),
                _difference(row),
                str(len(heads)),
                str(int((apart & (heads["difference"] > 0)).sum())),
                str(int((apart & (heads["difference"] < 0)).sum())),
                percent(float(part["changed"].mean())),
            ]
        )
    header = ["questions", "n", "base, first", "base, second", "second − first"]
    header += ["heads", "better", "worse", "answers changed"]
    note = (
        "On common questions. Intervals are 95%, paired by question (Bonett and Price). Better, "
        f"worse: heads with more or fewer right answers in the second run (exact McNemar test, "
        f"Benjamini-Hochberg over the variants, q < {LEVEL}). Answers changed: share of the final "
        "answers of base and heads that differ."
    )
    return _Part("Right answers", note, header, rows, 1)


def _heads_part(
    variants: pd.DataFrame, labels: Mapping[tuple[str, ...], str], whole: bool
) -> _Part:
    """List the heads, those that changed most first."""
    heads = variants[variants["variant"] != str(BASE)]
    if not whole:
        # A grader may change a verdict without a change of the answer.
        heads = heads[heads[["changed", "gained", "lost"]].any(axis=1)]
    order = heads["difference"].abs().sort_values(ascending=False, kind="stable").index
    rows = [
        [
            labels[row.model, row.decoding, row.questions],
            row.variant,
            percent(row.first),
            percent(row.second),
            _difference(row),
            str(row.gained),
            str(row.lost),
            f"{row.p:.3f}",
            f"{row.q:.3f}",
            percent(row.changed),
        ]
        for row in rows_of(heads.loc[order])
    ]
    header = ("questions", "without", "first", "second", "second − first", "gained", "lost")
    note = "Gained, lost: questions that only the second, only the first run has right."
    return _Part("Heads", note, (*header, "p", "q", "answers changed"), rows, 2)


def _gains_part(gains: pd.DataFrame, labels: Mapping[tuple[str, ...], str], whole: bool) -> _Part:
    if not whole:
        gains = gains[gains["difference"] != 0]
    rows = [
        [
            labels[row.model, row.decoding, row.questions],
            row.of,
            str(row.layer),
            str(row.heads),
            *map(points, (row.first, row.second)),
            _difference(row),
        ]
        for row in rows_of(gains)
    ]
    header = ("questions", "gain of the", "layer", "heads", "first", "second", "second − first")
    note = (
        f"In percentage points over base. The {BEST} is a maximum over the layer, raised by "
        "selection in both runs. Intervals are 95%, bootstrap over the common questions."
    )
    return _Part("Gain of a pruned head", note, header, rows, 2)


def _pass_at_n_part(curves: pd.DataFrame, whole: bool) -> _Part:
    shown = curves[curves["n"].isin(_SHOWN_N)]
    if not whole:
        shown = shown[shown["difference"] != 0]
    rows = [
        [
            row.selector,
            row.method,
            str(row.n),
            percent(row.first),
            percent(row.second),
            _difference(row),
        ]
        for row in rows_of(shown)
    ]
    header = ("selector", "method", "N", "first", "second", "second − first")
    note = (
        "Intervals are 95%, from those of both curves as if they were independent: on common "
        "questions they are too wide."
    )
    return _Part("Pass@N", note, header, rows, 2)


def _difference(row: Any) -> str:
    return f"{points(row.difference)} ({points(row.low)} to {points(row.high)})"


def _setting(value: str | None) -> str:
    return "–" if value is None else short(value, 44)


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
