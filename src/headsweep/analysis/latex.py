r"""Tables 1-4 of both papers as LaTeX, by pandas.

A file needs ``\usepackage{array,booktabs,longtable,lscape}``.
"""

import unicodedata
from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd

from headsweep.analysis import truncation
from headsweep.analysis.facts import Cell, Source, cells_of, rows_of
from headsweep.text import percentage, plain, wrapped

_LATEX = {
    **{character: f"\\{character}" for character in "{}$&#%_"},
    **{character: rf"\ensuremath{{{character}}}" for character in "<>|"},
    "\\": r"\textbackslash{}",
    "^": r"\textasciicircum{}",
    "~": r"\textasciitilde{}",
    '"': r"\textquotedblright{}",
    "-": "{-}",  # no ligature
    "[": "{[}",  # no option of a line break before it
    "−": r"\ensuremath{-}",
    "λ": r"\ensuremath{\lambda}",
    "…": r"\ldots{}",
    "–": "--",
}
_ACCENTED = filter(unicodedata.decomposition, map(chr, range(0xC0, 0x100)))
_SETTABLE = {*map(chr, range(0x7F)), *_ACCENTED, *_LATEX}

_LINE = 176  # letters on a line of A4 landscape with 2 cm margins in scriptsize type

_CELL = (
    "Rows are heads; No Prune is the base model. Brackets: 95% intervals (Wilson); n: questions. "
    "The best of each column is bold, ties included; it is a maximum, raised by selection."
)
PRINTED: dict[str, Cell] = {
    "setting": Cell("arm"),
    "questions": Cell("stratum"),
    "ratio (%)": Cell("ratio", "part"),
    "alpha": Cell("alpha", "plain"),
    "taught": Cell("distilled"),
    "eight bits": Cell("quantised"),
    "heads gone": Cell("heads_removed", "count"),
    "right (%)": Cell("accuracy", "part", "low", "high"),
    "change": Cell("change", "points", "change_low", "change_high"),
    "against training as long": Cell(
        "change_trained", "points", "change_trained_low", "change_trained_high"
    ),
    "differs in": Cell("changed"),
    "tokens": Cell("tokens", "count"),
    "texts at once": Cell("batch", "count"),
    "against the method": Cell("gap", "points", "gap_low", "gap_high"),
    "faster (%)": Cell("faster", "part"),
    "new tokens a second": Cell("tokens_per_second", "count"),
    "bytes of a token's keys and values": Cell("cache_bytes", "count"),
    "parameters (%)": Cell("parameters_removed", "part"),
    "FLOPs (%)": Cell("flops_removed", "part"),
    "time of the whole test (%)": Cell("test_time", "part"),
    "speed-up at most (%)": Cell("speedup_at_most", "part"),
    "bytes (%)": Cell("weight_removed", "part"),
    "largest ratio (%)": Cell("knee", "part", "knee_low", "knee_high"),
    "published (%)": Cell("published_accuracy", "part"),
    "published change": Cell("published_change", "points"),
    "published parameters (%)": Cell("published_parameters", "part"),
    "published speed (%)": Cell("published_speedup", "part"),
}
"""Columns of the second paper's tables; a table has only some of them."""

_STUDY = (
    "Right: mean over seeds, change: against the unpruned model, both with 95% bootstrap intervals "
    "over seeds and examples, from 20 examples on; against training as long: all heads kept, as "
    "many steps. Parameters, FLOPs and bytes: removed. Published: arXiv 2511.17577."
)


def settable(text: str) -> str:
    """Replace each character that pdfLaTeX cannot set by its code point, as in [U+6570]."""
    return "".join(c if c in _SETTABLE else f"[U+{ord(c):04X}]" for c in plain(text))


def latex(text: str) -> str:
    """Escape text for LaTeX."""
    return "".join(_LATEX.get(c, c) for c in settable(text))


def longtable(
    titles: Sequence[str],
    rows: Sequence[Sequence[object]],
    caption: str,
    notes: str,
    bold: np.ndarray | None = None,
) -> str:
    """Return a table as a ``longtable`` on landscape pages, in parts if it is wider than a page.

    The first column names the rows, in each part. Notes stand once, below. `bold` says which cells
    are bold, [rows, columns].
    """
    if not rows:
        return f"{latex(f'{caption}: no rows.')}\n"
    heads = [wrapped(settable(title), 14, 4).split("\n") for title in titles]
    texts = pd.DataFrame([[str(cell) for cell in row] for row in rows])
    widths = [2 + max(map(len, (*head, *texts[place]))) for place, head in enumerate(heads)]
    parts: list[list[int]] = [[0]]
    for column in range(1, len(titles)):
        if sum(widths[other] for other in (*parts[-1], column)) > _LINE:
            parts.append([0])
        parts[-1].append(column)
    stacked: Any = [r"\shortstack{" + r"\\".join(map(latex, head)) + "}" for head in heads]
    made = []
    for number, chosen in enumerate(parts, start=1):
        style = texts[chosen].style.hide(axis="index").format(lambda text: latex(str(text)))
        style = style.format_index(lambda place: stacked[place], axis="columns")
        if bold is not None:
            marks = np.where(bold[:, chosen], "textbf: --rwrap;", "")
            style = style.apply(lambda _, marks=marks: marks, axis=None)
        part_of = f", part {number} of {len(parts)}" if len(parts) > 1 else ""
        table = style.to_latex(
            environment="longtable",
            hrules=True,
            caption=latex(f"{caption}{part_of}."),
            column_format="l" + "r" * (len(chosen) - 1),
        )
        look = r"\scriptsize\setlength{\tabcolsep}{3pt}\setlength{\LTcapwidth}{\linewidth}"
        made.append(f"\\begin{{landscape}}{look}\n{table}\\end{{landscape}}\n")
    return "".join([*made, rf"{{\small\noindent {latex(notes)}\par}}", "\n"])


def of_sweep(cells: pd.DataFrame, sweep: str, prompt: str, grading: str) -> str:
    """Return Tables 1-4 of a sweep's `headsweep.analysis.gains.cells`: Pass@1, No Prune first.

    The cells have how many of their answers were ``cut``, too.

    Two tables per layer: rows are heads, columns are all questions and subjects, or MATH levels.
    Prompt and grading rules of the sweep are named below.
    """
    notes = f"Prompt: {prompt}; grading: {grading}. {_CELL} {truncation.note(cells)}".rstrip()
    cells = cells.assign(
        head=cells["head"].fillna(-1),  # No Prune comes first
        kind=np.where(cells["by"] == "level", "MATH level", "subject"),
        group=[f"{row.group} (n = {row.n})" for row in rows_of(cells)],
        text=[
            f"{percentage(r.accuracy)} ({percentage(r.low)}–{percentage(r.high)})"
            for r in rows_of(cells)
        ],
    )
    made = []
    for layer in sorted(cells["layer"].dropna().unique()):
        of_layer = cells[cells["layer"].isna() | (cells["layer"] == layer)]
        for kind, block in of_layer.sort_values("kind", ascending=False).groupby(
            "kind", sort=False
        ):
            wide = block.pivot(index="head", columns="group", values=["text", "accuracy"])
            wide = wide.reindex(columns=block.sort_index()["group"].unique(), level=1)
            heads = ["No Prune" if head < 0 else head for head in wide.index]
            rows = [
                [head, *texts] for head, texts in zip(heads, wide["text"].to_numpy(), strict=True)
            ]
            best = (wide["accuracy"] == wide["accuracy"].max()).to_numpy(bool)
            bold = np.column_stack([np.zeros(len(rows), bool), best])
            caption = f"Pass@1 (%) without one head of layer {layer}, by {kind}: {sweep}"
            made.append(longtable(["head", *wide["text"]], rows, caption, notes, bold))
    return "\n".join(made)


def of_study(name: str, table: pd.DataFrame, unlike: str = "") -> str:
    """Return a table of the second paper, named as in `headsweep.analysis.compressions.COLUMNS`,
    with the `title` of each row's compression. The notes say what is `unlike` the paper.
    """
    titles, rows = cells_of(Source("", table), {"compression": Cell("title"), **PRINTED})
    return longtable(
        titles,
        rows,
        f"Second paper, {name.replace('table', 'Table ')}",
        f"{_STUDY} {unlike}".rstrip(),
    )
