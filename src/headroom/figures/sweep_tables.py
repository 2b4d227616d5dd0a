"""Tables 1-4 of the SPRINT paper: Pass@1 of every pruned head, the base model (No Prune) first.

A table a layer: rows are heads, columns are all questions, subjects, then MATH levels. The best of
each column is bold, ties included, the base model among them. Accuracy is in percent with one
decimal, so that different counts never look equal below 1,000 questions, beside it Wilson's 95%
interval. What the paper has of a layer follows, beside the reproduced numbers.
"""

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import pandas as pd

from headroom.figures.beside import METHOD
from headroom.figures.gains import OVERALL
from headroom.figures.latex_table import NEEDS, latex_table
from headroom.figures.listing import markdown_row, rows_of
from headroom.figures.text import latex, markdown, points, settable, wrapped
from headroom.statistics.proportion import wilson

_KINDS = (("subject", ("overall", "subject")), ("MATH level", ("level",)))
_GROUPS, _GROUPS_BESIDE = 8, 3  # on a page's width
_INTERVAL = (
    "Beside each accuracy is its 95% interval (Wilson); n is the number of questions. The best of "
    "each column is bold, ties included; it is a maximum, raised by selection."
)


def sweep_tables(cells: pd.DataFrame, beside: pd.DataFrame, sweep: str, how: str) -> dict[str, str]:
    """Return the tables of a sweep as text, by suffix: md, tex, csv.

    Args:
        cells: as `headroom.figures.gains.cells` returns them.
        beside: published numbers, as `headroom.figures.beside.beside` returns them.
        sweep: its name.
        how: under which prompt and grading rules it was made.
    """
    low, high = wilson(cells["correct"].to_numpy(), cells["n"].to_numpy())
    cells = cells.assign(low=low, high=high)
    return {
        "md": _markdown(cells, beside, sweep, how),
        "tex": _latex(cells, beside, sweep, how),
        "csv": _csv(cells, beside),
    }


def _csv(cells: pd.DataFrame, beside: pd.DataFrame) -> str:
    """Add what is published to the cells; No Prune, which is so for each layer, where all agree."""
    keys = ["layer", "head", "by", "group"]
    right = beside.drop(columns=["n", "correct", "accuracy"])
    base = right[right["head"].isna()].assign(layer=None)
    several = base.groupby("group")["published"].transform("nunique") > 1
    base.loc[several, [name for name in base.columns if name not in keys]] = None
    base.loc[several, "note"] = "the paper prints several values"
    right = pd.concat([right[right["head"].notna()], base.drop_duplicates("group")])
    right = right.astype({"layer": "Int64", "head": "Int64"})
    table = cells.merge(right, on=keys, how="left", validate="one_to_one")
    return table.to_csv(index=False, lineterminator="\n", float_format="%.6g")


def _blocks(cells: pd.DataFrame) -> Iterator[tuple[int, str, pd.DataFrame]]:
    """Yield each layer's cells by kind of group, No Prune among them, all questions first."""
    for layer in sorted(cells["layer"].dropna().unique()):
        own = cells[cells["layer"].isna() | (cells["layer"] == layer)]
        for kind, by in _KINDS:
            block = own[own["by"].isin(by)]
            if len(block):
                yield int(layer), kind, block


def _sizes(block: pd.DataFrame) -> dict[str, int]:
    groups = block.drop_duplicates("group")
    sizes = dict(zip(groups["group"].tolist(), groups["n"].tolist(), strict=True))
    return {OVERALL: sizes[OVERALL], **sizes} if OVERALL in sizes else sizes


def _rows(block: pd.DataFrame, groups: Sequence[str]) -> Iterator[tuple[str, list[Any]]]:
    """Yield the label and the cells of No Prune, then of each head; `best` marks a column's."""
    best = block["correct"] == block.groupby("group")["correct"].transform("max")
    heads = block["head"].fillna(-1)
    for head, part in block.assign(best=best).groupby(heads, sort=True):
        by_group = {row.group: row for row in rows_of(part)}
        yield "No Prune" if head < 0 else str(head), [by_group[group] for group in groups]


def _markdown(cells: pd.DataFrame, beside: pd.DataFrame, sweep: str, how: str) -> str:
    lines = [
        f"# Pass@1 (%) without one attention head: {markdown(sweep)}",
        "",
        f"Rows are heads; No Prune is the base model. {markdown(how)} {markdown(_INTERVAL)}",
    ]
    for layer, kind, block in _blocks(cells):
        sizes = _sizes(block)
        lines += ["", f"## Layer {layer}, by {kind}", "", *_markdown_header(sizes)]
        for label, row in _rows(block, list(sizes)):
            lines.append(markdown_row([label, *(_markdown_cell(cell) for cell in row)]))
        own = beside[beside["layer"] == layer]
        if kind == "subject" and len(own):
            lines += ["", f"## Layer {layer}, reproduced − published", ""]
            lines += [markdown(_beside_caption(own)), "", *_markdown_header(sizes)]
            for label, row in _rows(own, list(sizes)):
                lines.append(markdown_row([label, *(_markdown_beside(cell) for cell in row)]))
    return "\n".join(lines) + "\n"


def _markdown_header(sizes: dict[str, int]) -> list[str]:
    titles = [f"{markdown(group)} (n = {n})" for group, n in sizes.items()]
    return [markdown_row(["head", *titles]), "|---|" + "--:|" * len(titles)]


def _markdown_cell(cell: Any) -> str:
    text = _percent(cell.accuracy)
    return f"{f'**{text}**' if cell.best else text} ({_percent(cell.low)}–{_percent(cell.high)})"


def _markdown_beside(cell: Any) -> str:
    if pd.isna(cell.published):
        return "–"
    difference = points(cell.difference)
    if _apart(cell):
        difference = f"**{difference}**"
    return (
        f"{_percent(cell.accuracy)} − {_percent(cell.published)} = {difference} "
        f"({points(cell.difference_low)} to {points(cell.difference_high)})"
    )


def _latex(cells: pd.DataFrame, beside: pd.DataFrame, sweep: str, how: str) -> str:
    lines = [NEEDS]
    for layer, kind, block in _blocks(cells):
        title = f"Pass@1 (%) without one head of layer {layer}, by {kind}: {sweep}."
        lines += _latex_parts(block, _GROUPS, (title, f"{how} {_INTERVAL}"), _latex_cell, [])
        own = beside[beside["layer"] == layer]
        if kind == "subject" and len(own):
            title = f"Layer {layer}, reproduced beside published Pass@1 (%): {sweep}."
            caption = (title, f"{how} {_beside_caption(own)}")
            columns = ["ours", "paper", r"\multicolumn{2}{c}{difference}"]
            lines += _latex_parts(own, _GROUPS_BESIDE, caption, _latex_beside, columns)
    return "\n".join(lines) + "\n"


def _latex_parts(
    block: pd.DataFrame,
    width: int,
    caption: tuple[str, str],
    cell: Callable[[Any], str],
    subtitles: Sequence[str],
) -> Iterator[str]:
    """Yield tables of at most `width` groups; a cell is a column for each subtitle, or two.

    The caption is a title and the notes, which the first part has.
    """
    sizes = _sizes(block)
    groups = list(sizes)
    parts = [groups[start : start + width] for start in range(0, len(groups), width)]
    columns = r"r@{\,}l" if not subtitles else r"rrr@{\,}l"
    span = columns.count("r") + columns.count("l")
    for number, chosen in enumerate(parts, start=1):
        of = f" Part {number} of {len(parts)}." if len(parts) > 1 else ""
        title, notes = caption
        words = f"{title}{of} {notes}" if number == 1 else f"{title}{of}"
        titles = [
            rf"\multicolumn{{{span}}}{{c}}{{{_title(group, sizes[group], 13 * span // 2)}}}"
            for group in chosen
        ]
        rules = [
            rf"\cmidrule(lr){{{2 + span * index}-{1 + span * (index + 1)}}}"
            for index in range(len(chosen))
        ]
        header = [" & ".join(["head", *titles]) + r" \\", "".join(rules)]
        if subtitles:
            header.append(" & ".join(["", *(list(subtitles) * len(chosen))]) + r" \\")
        body = [
            " & ".join([label, *(cell(each) for each in row)]) + r" \\"
            for label, row in _rows(block, chosen)
        ]
        body.insert(1, r"\midrule")
        yield ""
        yield from latex_table(
            "l" + columns * len(chosen),
            header,
            body,
            latex(words),
            size="scriptsize",
            separation=2.5,
            breaks=True,
        )


def _title(group: str, n: int, width: int) -> str:
    lines = [*(latex(line) for line in wrapped(settable(group), width).splitlines()), f"$n={n}$"]
    return r"\shortstack{" + r"\\".join(lines) + "}"


def _latex_cell(cell: Any) -> str:
    text = _percent(cell.accuracy)
    bold = rf"\textbf{{{text}}}" if cell.best else text
    return rf"{bold} & {{\tiny {_percent(cell.low)}--{_percent(cell.high)}}}"


def _latex_beside(cell: Any) -> str:
    if pd.isna(cell.published):
        return f"{_percent(cell.accuracy)} & -- & & "
    difference = latex(points(cell.difference))
    if _apart(cell):
        difference = rf"\textbf{{{difference}}}"
    ends = f"{points(cell.difference_low)} to {points(cell.difference_high)}"
    return (
        f"{_percent(cell.accuracy)} & {_percent(cell.published)} & {difference} & "
        rf"{{\tiny {latex(ends)}}}"
    )


def _beside_caption(own: pd.DataFrame) -> str:
    known = own[own["published"].notna()]
    apart = sum(_apart(cell) for cell in rows_of(known))
    blank = own.loc[own["published"].isna(), "note"].value_counts()
    reasons = "; ".join(f"{reason} ({count})" for reason, count in blank.items())
    missing = (
        f" Without a published number are {blank.sum()} cells: {reasons}." if len(blank) else ""
    )
    source = ", ".join(sorted(known["exhibit"].unique()))
    return (
        f"Published: {source} of arXiv 2506.03978. {METHOD} {apart} of {len(known)} differences "
        f"(bold) are beyond their interval.{missing}"
    )


def _apart(cell: Any) -> bool:
    return bool(cell.difference_low > 0 or cell.difference_high < 0)


def _percent(fraction: float) -> str:
    return f"{100 * fraction:.1f}"
