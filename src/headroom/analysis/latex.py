r"""Tables 1-4 of both papers as LaTeX, by pandas.

A file needs ``\usepackage{array,booktabs,longtable,lscape}``.
"""

from collections.abc import Sequence

import numpy as np
import pandas as pd

from headroom.analysis.facts import Columns, Source, cells_of, columns
from headroom.analysis.gains import OVERALL
from headroom.analysis.text import latex, percent, settable, short, wrapped

_LINE, _TURNED = 118, 176
"""Letters that fit on a line of A4 with 2 cm margins in scriptsize type, and in landscape."""

_CELL = (
    "Rows are heads; No Prune is the base model. Brackets: 95% intervals (Wilson); n: questions. "
    "The best of each column is bold, ties included; it is a maximum, raised by selection."
)
PRINTED = columns(
    "setting=arm, questions=stratum, ratio (%)=ratio part, alpha=alpha plain, "
    "taught=distilled, eight bits=quantised, heads gone=heads_removed count, "
    "right (%)=accuracy part low high, change=change points change_low change_high, "
    "differs in=changed, tokens=tokens count, texts at once=batch count, "
    "against the method=gap points gap_low gap_high, faster (%)=faster part, "
    "new tokens a second=tokens_per_second count, bytes of a token's keys and values=cache_bytes "
    "count, "
    "parameters (%)=parameters_removed part, FLOPs (%)=flops_removed part, "
    "time of the whole test (%)=test_time part, speed-up at most (%)=speedup_at_most part, "
    "bytes (%)=weight_removed part, largest ratio (%)=knee part, "
    "published (%)=published_accuracy part, published change=published_change points, "
    "published parameters (%)=published_parameters part, "
    "published speed (%)=published_speedup part"
)
"""Columns of the second paper's tables; a table has only some of them."""

_STUDY = (
    "Right: mean over seeds, change: against the unpruned model, both with 95% bootstrap intervals "
    "over seeds and examples. Parameters, FLOPs and bytes: removed. Published: arXiv 2511.17577, "
    "with solvers and divisions of its own."
)


def longtable(
    titles: Sequence[str],
    rows: Sequence[Sequence[object]],
    caption: str,
    notes: str = "",
    bold: np.ndarray | None = None,
) -> str:
    """Return a table as a ``longtable``, turned if it is wide and in parts if it is still wider.

    Args:
        titles: titles of the columns; the first column names the rows, in each part.
        rows: their cells.
        caption: stands above every page.
        notes: stand once, below.
        bold: which cells are bold, [rows, columns].
    """
    if not rows:
        return f"{latex(f'{caption}: no rows.')}\n"
    heads = [_lines(title) for title in titles]
    stacked: dict[object, str] = {place: _stacked(head) for place, head in enumerate(heads)}
    texts = pd.DataFrame([[str(cell) for cell in row] for row in rows])
    letters = [
        2 + max(len(line) for line in (*head, *texts[place])) for place, head in enumerate(heads)
    ]
    parts: list[list[int]] = [[0]]
    for column in range(1, len(titles)):
        if sum(letters[other] for other in (*parts[-1], column)) > _TURNED:
            parts.append([0])
        parts[-1].append(column)
    made = []
    for number, part in enumerate(parts, start=1):
        style = texts[part].style.hide(axis="index").format(lambda text: latex(str(text)))
        style = style.format_index(lambda place: stacked[place], axis="columns")
        if bold is not None:
            marks = np.where(bold[:, part], "textbf: --rwrap;", "")
            style = style.apply(lambda _, marks=marks: marks, axis=None)
        of = f", part {number} of {len(parts)}" if len(parts) > 1 else ""
        table = style.to_latex(
            environment="longtable",
            hrules=True,
            caption=latex(f"{caption}{of}."),
            column_format="l" + "r" * (len(part) - 1),
        )
        group = r"\begingroup\scriptsize\setlength{\tabcolsep}{3pt}\setlength{\LTcapwidth}"
        lines = [rf"{group}{{\linewidth}}", table, r"\endgroup"]
        wide = sum(letters[column] for column in part) > _LINE
        made += [r"\begin{landscape}", *lines, r"\end{landscape}"] if wide else lines
    return "\n".join([*made, rf"{{\small\noindent {latex(notes)}\par}}"]) + "\n"


def _lines(title: str) -> list[str]:
    """Break a title into lines; a unit in brackets gets its own line."""
    parts = settable(title).replace(" (", "\n(").split("\n")
    return [line for part in parts for line in wrapped(part, 14, 4).splitlines()]


def _stacked(lines: Sequence[str]) -> str:
    return r"\shortstack{" + r"\\".join(map(latex, lines)) + "}"


def of_sweep(cells: pd.DataFrame, sweep: str, prompt: str, grading: str) -> str:
    """Return Tables 1-4 of a sweep: Pass@1 of every pruned head, No Prune first.

    One table per layer: rows are heads, columns are all questions and subjects, or MATH levels.

    Args:
        cells: as returned by `headroom.analysis.gains.cells`.
        sweep: name of the sweep.
        prompt: the prompt of its answers.
        grading: the rules that graded them.
    """
    made = []
    for layer in sorted(cells["layer"].dropna().unique()):
        own = cells[cells["layer"].isna() | (cells["layer"] == layer)]
        best = own["correct"] == own.groupby("group")["correct"].transform("max")
        own = own.assign(
            bold=best,
            cell=[
                "{} ({}–{})".format(*(percent(share).rstrip("%") for share in shares))
                for shares in own[["accuracy", "low", "high"]].to_numpy()
            ],
        )
        for kind, levels in (("subject", False), ("MATH level", True)):
            title = f"Pass@1 (%) without one head of layer {layer}, by {kind}: {sweep}"
            block = own[(own["by"] == "level") == levels]
            if len(block):
                made.append(_grid(block, title, f"Prompt: {prompt}; grading: {grading}. {_CELL}"))
    return "\n".join(made)


def _grid(block: pd.DataFrame, caption: str, notes: str) -> str:
    """Return a table of heads by groups of questions, all questions first."""
    sizes = block.drop_duplicates("group").set_index("group")["n"]
    groups = sorted(sizes.index, key=lambda group: group != OVERALL)
    wide = block.assign(head=block["head"].fillna(-1)).pivot(
        index="head", columns="group", values=["cell", "bold"]
    )
    heads = ["No Prune" if head < 0 else str(head) for head in wide.index]
    bold = np.column_stack([np.zeros(len(heads), bool), wide["bold"][groups].astype(bool)])
    titles = ["head", *(f"{group} (n = {sizes[group]})" for group in groups)]
    rows = [[head, *row] for head, row in zip(heads, wide["cell"][groups].to_numpy(), strict=True)]
    return longtable(titles, rows, caption, notes, bold)


def of_study(name: str, table: pd.DataFrame) -> str:
    """Return a table of the second paper, of all compressions of a run.

    Args:
        name: its name in `headroom.analysis.compression.tables.COLUMNS`.
        table: its numbers.
    """
    named: Columns = {"compression": lambda row: short(row.first["compression"], 24), **PRINTED}
    titles, rows = cells_of(Source("", table), named)
    return longtable(titles, rows, f"Second paper, {name.replace('table', 'Table ')}", _STUDY)
