"""Sweep cost: how many tokens of the pruned models' answers are the base model's own.

Up to the first difference a pruned model's answer is known from the base model's: an engine can
check all of it at once in place of decoding it token by token. Counts are of the answers
themselves, so they are the same for every machine; times stand in the records and in the report.
"""

from collections.abc import Iterable

import numpy as np
import pandas as pd
import pyarrow as pa
from matplotlib.figure import Figure as Image

from headroom.analysis.text import percent, short
from headroom.figures.drawing import Figure
from headroom.figures.style import TWO_COLUMNS, Theme
from headroom.planning.exhibits import words

COST = ["layer", "answers", "tokens", "kept", "identical"]
"""Columns of the cost: answers of a layer's pruned heads, their tokens, how many of these are the
base answer's from its start, and how many answers are the base answer, whole."""


def cost(base: pa.Table, pruned: Iterable[tuple[int, pa.Table]]) -> pd.DataFrame:
    """Count the tokens of a sweep's answers.

    Args:
        base: answers of the base model (`headroom.tables.ANSWERS`).
        pruned: the layer of each pruned variant, and its answers to the same questions.

    Returns:
        Columns `COST`, a row a layer.
    """
    known = _answers(base)
    rows = []
    for layer, table in pruned:
        answers = _answers(table)
        kept = [_shared(one, other) for one, other in zip(known, answers, strict=True)]
        sizes = [len(answer) for answer in answers]
        identical = sum(
            np.array_equal(one, other) for one, other in zip(known, answers, strict=True)
        )
        rows.append((layer, len(answers), sum(sizes), sum(kept), identical))
    return pd.DataFrame(rows, columns=COST).groupby("layer", as_index=False)[COST[1:]].sum()


def cost_figure(table: pd.DataFrame, sweep: str, colors: Theme) -> Figure:
    """Draw tokens an answer by layer, kept and decoded anew, and how many answers are identical.

    Args:
        table: as `cost` returns it.
        sweep: its name.
        colors: the theme to draw in.
    """
    image = Image(figsize=(TWO_COLUMNS, 2.5))
    left, right = image.subplots(1, 2)
    places = range(len(table))
    kept = table["kept"] / table["answers"]
    anew = (table["tokens"] - table["kept"]) / table["answers"]
    left.bar(places, kept, 0.7, color=colors.blue, label="as in the base answer, from its start")
    left.bar(
        places, anew, 0.7, bottom=kept, color=colors.orange[0], hatch="////",
        edgecolor=colors.surface, linewidth=0, label="after the first difference: decoded anew",
    )  # fmt: skip
    left.set_ylabel("tokens an answer")
    same = 100 * table["identical"] / table["answers"]
    right.bar(places, same, 0.7, color=colors.blue)
    right.set_ylabel("answers identical to base (%)")
    right.set_ylim(0, 100)
    for axes in (left, right):
        step = max(1, len(table) // 14)
        axes.set_xticks(list(places)[::step], table["layer"].tolist()[::step])
        axes.tick_params(axis="x", length=0)
        axes.set_xlabel("layer of the head pruned")
    image.legend(*left.get_legend_handles_labels(), loc="outside upper left", ncols=2)
    data = table.assign(saved=table["kept"] / table["tokens"])
    n, share = f"{table['answers'].sum():,}", percent(saved(table))
    told = words("cost", of=short(sweep), n=n, saved=share)
    return Figure(image, *told, _alt(table, sweep), data)


def saved(table: pd.DataFrame) -> float:
    """Return the share of all tokens that are the base answers' own."""
    return float(table["kept"].sum() / max(1, table["tokens"].sum()))


def _answers(table: pa.Table) -> list[np.ndarray]:
    """Return token ids, an array an answer, in the order of question and sample."""
    ordered = table.sort_by([("question_id", "ascending"), ("sample", "ascending")])
    column = ordered["token_ids"].combine_chunks()
    values = column.flatten().to_numpy()
    return np.split(values, np.cumsum(column.value_lengths().to_numpy())[:-1])


def _shared(first: np.ndarray, second: np.ndarray) -> int:
    """Return how many tokens two answers share from their start."""
    size = min(len(first), len(second))
    differs = np.flatnonzero(first[:size] != second[:size])
    return int(differs[0]) if len(differs) else size


def _alt(table: pd.DataFrame, sweep: str) -> str:
    same = table["identical"].sum() / table["answers"].sum()
    parts = [
        f"layer {int(layer)} {percent(kept / max(1, tokens))}"
        for layer, kept, tokens in zip(table["layer"], table["kept"], table["tokens"], strict=True)
    ]
    return (
        f"Bar charts by layer for {short(sweep)}. {percent(same)} of the answers are identical to "
        f"the base model's. Tokens shared with the base answer from its start: {', '.join(parts)}."
    )
