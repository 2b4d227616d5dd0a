"""What the SPRINT paper says of its own experiment, held against its own tables."""

import re
from collections.abc import Callable

import numpy as np
import pandas as pd

from headroom.figures.claims_heads import MATH_1B
from headroom.figures.judgement import Judgement, holds_if, unjudged
from headroom.figures.published import EXHIBITS, SIZES

Judge = Callable[[pd.DataFrame, str], Judgement]
"""Judges printed cells (`headroom.figures.published.head_pruning`) and the claim's stated value."""


def layers_per_model(cells: pd.DataFrame, value: str) -> Judgement:
    """Judge: so many layers of each model are pruned."""
    counts = _tables(cells).groupby("model")["layer"].nunique()
    return holds_if(set(counts) == {_numbers(value)[-1]}, _listed(counts))


def which_layers(cells: pd.DataFrame, value: str) -> Judgement:
    """Judge: the layers are the first, 5, 15 and the last."""
    layers = _tables(cells).groupby("model")["layer"].unique().map(sorted)
    right = layers.map(lambda own: own[:3] == [0, 5, 15] and len(own) == 4)
    return holds_if(bool(right.all()), _listed(layers))


def variants_per_model(cells: pd.DataFrame, value: str) -> Judgement:
    """Judge: every head of every pruned layer is a variant."""
    heads = _tables(cells).dropna(subset="head").drop_duplicates(["model", "layer", "head"])
    counts = heads.groupby("model").size()
    shape = heads.groupby("model").agg(layers=("layer", "nunique"), last=("head", "max"))
    return holds_if(bool((counts == shape["layers"] * (shape["last"] + 1)).all()), _listed(counts))


def questions(cells: pd.DataFrame, value: str) -> Judgement:
    """Judge: every accuracy is a count over MATH-500's subjects."""
    apart = float(np.abs(cells["accuracy"] - cells["printed"]).max())
    total = sum(SIZES.values())
    why = f"{len(cells)} cells are k/n to {apart:.4f}, n summing to {total}"
    return holds_if(total in _numbers(value) and apart < 0.00501, why)


def models(cells: pd.DataFrame, value: str) -> Judgement:
    """Judge: so many models are studied."""
    names = sorted(set(cells["model"]))
    return holds_if(len(names) == _numbers(value)[0], ", ".join(names))


def figure_5_layer(cells: pd.DataFrame, value: str) -> Judgement:
    """Judge: Figure 5 shows this layer."""
    layers = sorted(set(cells.loc[cells["exhibit"] == "Figure 5", "layer"]))
    return holds_if(layers == _numbers(value), f"layer {', '.join(map(str, layers))}")


def example(cells: pd.DataFrame, value: str) -> Judgement:
    """Judge: pruning head 0 of layer 15 gains 16% on Counting & Probability."""
    own = cells[(cells["model"] == MATH_1B) & (cells["layer"] == 15)]
    own = own[own["subject"] == "Counting & Probability"].set_index("head")
    if 0 not in own.index or not own.index.isna().any():
        return unjudged(f"no head 0 of layer 15 of {MATH_1B}")
    pruned, base = own.loc[0], own[own.index.isna()].iloc[0]
    gain = pruned["printed"] - base["printed"]
    count = f"{pruned['correct'] - base['correct']} of {base['n']} questions"
    why = f"{base['printed']:.2f} to {pruned['printed']:.2f}: {100 * gain:+.0f} points, {count}"
    return holds_if(round(100 * gain) == _numbers(value)[0], why)


def sums_up(cells: pd.DataFrame, value: str) -> Judgement:
    """Judge: the parts of a total add up to it."""
    total, *parts = _numbers(value)
    return holds_if(total == sum(parts), f"{' + '.join(map(str, parts))} = {sum(parts)}")


def _tables(cells: pd.DataFrame) -> pd.DataFrame:
    return cells[cells["exhibit"].isin(EXHIBITS.values())]


def _numbers(text: str) -> list[int]:
    return [int(number.replace(",", "")) for number in re.findall(r"\d[\d,]*", text)]


def _listed(values: pd.Series) -> str:
    return "; ".join(
        f"{name} {', '.join(map(str, value)) if isinstance(value, list) else value}"
        for name, value in values.items()
    )
