"""A comparison of two runs as text: short for the terminal, complete as Markdown."""

import textwrap
from collections.abc import Sequence
from pathlib import Path

import pandas as pd

from headroom import paths
from headroom.analysis.compare import BATCH, BEST, Comparison, Pair
from headroom.analysis.controls import LEVEL
from headroom.analysis.sheet import NONE, Columns, Sheet, sheet, write_csv
from headroom.analysis.text import markdown, short
from headroom.errors import ConfigError
from headroom.tables import write_text
from headroom.variants import BASE

_SHOWN = 8  # rows of each part shown in the terminal
_SHOWN_N = (1, 4, 16)
_DIFFERENCE: Columns = {"second − first": "{difference:pts} ({low:pts} to {high:pts})"}
_BOTH: Columns = {"first (%)": "{first:%}", "second (%)": "{second:%}", **_DIFFERENCE}
_CHANGED: Columns = {"answers changed (%)": "{changed:%}"}

_PARTS: dict[str, tuple[Columns, str, int]] = {
    "Settings that differ": (
        {name: f"{{{name}}}" for name in ("setting", "first", "second")},
        "Versions and commit are those that graded.",
        3,
    ),
    "Right answers": (
        {
            "questions": "{of}",
            "n": "{n:int}",
            "base, first (%)": "{first:%}",
            "base, second (%)": "{second:%}",
            **_DIFFERENCE,
            **{name: f"{{{name}:int}}" for name in ("heads", "better", "worse")},
            **_CHANGED,
        },
        "On common questions. Intervals are 95%, paired by question (Bonett and Price). Better, "
        "worse: heads with more or fewer right answers in the second run (exact McNemar test, "
        f"Benjamini-Hochberg over the variants, q < {LEVEL}). Answers changed: share of the final "
        "answers of base and heads that differ.",
        1,
    ),
    "Heads": (
        {
            "questions": "{of}",
            "without": "{variant}",
            **_BOTH,
            "gained": "{gained:int}",
            "lost": "{lost:int}",
            "p": "{p:.3f}",
            "q": "{q:.3f}",
            **_CHANGED,
        },
        "Gained, lost: questions that only the second, only the first run has right.",
        2,
    ),
    "Gain of a pruned head": (
        {
            "questions": "{label}",
            "gain of the": "{of}",
            "layer": "{layer:int}",
            "heads": "{heads:int}",
            "first": "{first:pts}",
            "second": "{second:pts}",
            **_DIFFERENCE,
        },
        f"In percentage points over base. The {BEST} is a maximum over the layer, raised by "
        "selection in both runs. Intervals are 95%, bootstrap over the common questions.",
        2,
    ),
    "Pass@N": (
        {"selector": "{selector}", "method": "{method}", "N": "{n:int}", **_BOTH},
        "Intervals are 95%, from those of both curves as if they were independent: on common "
        "questions they are too wide.",
        2,
    ),
}
"""The columns of each part, its note, and how many columns hold text."""


def summary(found: Comparison, pair: Pair) -> str:
    """Return the comparison for a terminal: findings and the first rows of each table."""
    lines = []
    for name, run in (("first: ", pair.first), ("second:", pair.second)):
        lines.append(f"{name} {run.folder}")
        findings = run.file(paths.FINDINGS)
        if findings.exists():
            lines += [f"  {line}" for line in findings.read_text(encoding="utf-8").splitlines()]
    for title, part in _sheets(found, whole=False).items():
        shown = part.rows[:_SHOWN]
        lines += ["", title]
        lines += _aligned([part.titles, *shown], part.texts) if shown else ["  no difference"]
        if len(part.rows) > len(shown):
            lines.append(f"  ... and {len(part.rows) - len(shown)} more with a difference")
        if shown:
            lines += textwrap.wrap(part.caption, 96, initial_indent="  ", subsequent_indent="  ")
    lines += ["", *(f"Left out: {text}" for text in found.left_out)] if found.left_out else []
    return "\n".join("".join(c if c.isprintable() else " " for c in line) for line in lines)


def write(found: Comparison, pair: Pair, folder: Path) -> list[Path]:
    """Write the tables as CSV, and all of them as one Markdown page; return the files.

    Raises:
        ConfigError: the folder cannot be written.
    """
    first, second = (markdown(str(run.folder)) for run in (pair.first, pair.second))
    lines = [f"# {first} and {second}", "", f"First: {first}; second: {second}.", ""]
    for title, part in _sheets(found, whole=True).items():
        lines += [f"## {markdown(title)}", "", part.markdown()]
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
    """Return the tables; unless `whole`, without rows that do not differ."""
    settings = found.settings.assign(
        **{
            run: [NONE if value is None else short(value, 44) for value in found.settings[run]]
            for run in ("first", "second")
        }
    )
    parts = {"Settings that differ": settings}
    if len(found.variants):
        # A batch is named by its question set, and by its model and decoding where they differ.
        names = found.variants[BATCH].drop_duplicates()
        telling = [name for name in BATCH if names[name].nunique() > 1] or ["questions"]
        variants, gains = (
            table.assign(**{column: table[telling].agg(" / ".join, axis=1)})
            for table, column in ((found.variants, "of"), (found.gains, "label"))
        )
        parts["Right answers"] = _answers(variants)
        parts["Heads"] = _heads(variants, whole)
        parts["Gain of a pruned head"] = _differing(gains, whole)
    if len(found.pass_at_n):
        curves = found.pass_at_n[found.pass_at_n["n"].isin(_SHOWN_N)]
        parts["Pass@N"] = _differing(curves, whole)
    return {
        title: sheet(table, columns, note, texts)
        for title, table in parts.items()
        for columns, note, texts in [_PARTS[title]]
    }


def _differing(table: pd.DataFrame, whole: bool) -> pd.DataFrame:
    return table if whole else table[table["difference"] != 0]


def _answers(variants: pd.DataFrame) -> pd.DataFrame:
    """Return each batch's base model with the number of heads that got better or worse."""
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
        # Another grader may give the same answer another verdict.
        heads = heads[heads[["changed", "gained", "lost"]].any(axis=1)]
    return heads.sort_values("difference", key=abs, ascending=False, kind="stable")


def _aligned(rows: Sequence[Sequence[str]], texts: int) -> list[str]:
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return [
        "  "
        + "  ".join(
            text.ljust(width) if index < texts else text.rjust(width)
            for index, (text, width) in enumerate(zip(row, widths, strict=True))
        ).rstrip()
        for row in rows
    ]
