"""The controls of a sweep, as tables: is the gain real?

*Gains*: the best head of each layer on each group of questions, compared with chance and measured
on held-out questions. *Heads*: each head against base, with interval and test, and how it fails.
*Spread*: how much of the variance between heads exceeds noise.
"""

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from itertools import groupby

import numpy as np
import pandas as pd

from headroom.analysis.gains import differences, groups_of
from headroom.statistics.paired import false_discovery, fragility, mcnemar, paired_interval
from headroom.statistics.proportion import unpaired_ratio, wilson
from headroom.statistics.selection import (
    HeldOutGain,
    against_placebos,
    best_gain,
    head_variance,
    held_out_gain,
    surely_hurts,
)
from headroom.variants import BASE, Variant

RESAMPLES = 10_000
"""Sign patterns for each expectation and p-value by chance."""

SPLITS = 100
"""Random splits into halves for each held-out gain."""

LEVEL = 0.05
"""False discovery rate among heads called different from base."""

NOISE = {"float32": 1e-3, "float16": 0.03, "bfloat16": 0.25}
"""Logit gaps below which rounding can change the order, by dtype: measured for float32 and
bfloat16; float16 has three more mantissa bits than bfloat16."""

GAINS = ["by", "group", "layer", "n", "heads", "base", "gain", "median", "by_chance"]
GAINS += ["by_chance_error", "p", "q", "placebo", "placebo_p", "placebo_q"]
GAINS += ["numeric", "numeric_p", "numeric_q", "held_out", "low", "high", "curse"]
GAINS += ["of_errors", "of_errors_low", "of_errors_high"]
"""Columns of the table of gains, as fractions of the questions and of the best head unless named
otherwise. `base`: accuracy of the base model. `placebo`: noise placebos; `numeric`: the base model
decoded again; each as many as heads, empty if the sweep has none. `of_errors`: the held-out gain as
a share of the base model's errors, which bound every gain and are few on an easy level."""

HEADS = ["variant", "layer", "head", "n", "accuracy", "gained", "lost", "gain", "low", "high"]
HEADS += ["p", "q", "no_answer", "truncated", "fragile", "fragile_changed", "tokens"]
"""Columns of the table of heads; base comes first, without a test."""

SPREAD = ["of", "heads", "spread", "noise", "component", "share", "p"]
"""Columns of the table of spread; rows are each layer, `ALL` heads and the `HARMLESS` ones."""

ALL = "all heads"
HARMLESS = "heads that do not clearly hurt"

_FEWEST = 4  # smallest number of questions to split into halves


def controls(
    z: pd.DataFrame,
    graded: pd.DataFrame,
    variants: Sequence[Variant],
    placebos: Sequence[Variant],
    noise: float,
    seed: int,
) -> dict[str, pd.DataFrame]:
    """Compute the controls of a sweep.

    Args:
        z: accuracy matrix, one row per question (see `headroom.tables.ACCURACY`).
        graded: graded answers of the same questions and variants (`headroom.tables.GRADED`).
        variants: base first, then the pruned variants, sorted.
        placebos: compared with the heads: a layer's noise placebos with its heads, numeric ones
            with the heads of every layer.
        noise: logit gap below which rounding can change the order.
        seed: decides sign patterns and splits.

    Returns:
        The tables ``gains``, ``heads`` and ``spread``.
    """
    layers = _by_layer(variants)
    numeric = [str(each) for each in placebos if each.kind == "numeric"]
    others = {
        "placebo": _by_layer([each for each in placebos if each.kind == "noise"]),
        "numeric": dict.fromkeys(layers, numeric),
    }
    return {
        "gains": _gains(z, layers, others, seed),
        "heads": _heads(z, graded, variants, noise),
        "spread": _spread(z, layers),
    }


def hurting(heads: pd.DataFrame) -> pd.DataFrame:
    """Return the heads whose removal hurts at the false discovery rate `LEVEL`, worst first."""
    return heads[(heads["q"] < LEVEL) & (heads["gain"] < 0)].sort_values("gain", kind="stable")


def helping(heads: pd.DataFrame) -> pd.DataFrame:
    """Return the heads whose removal helps at the false discovery rate `LEVEL`, best first."""
    found = heads[(heads["q"] < LEVEL) & (heads["gain"] > 0)]
    return found.sort_values("gain", ascending=False, kind="stable")


def _by_layer(variants: Sequence[Variant]) -> dict[int, list[str]]:
    """Return the names of the variants by layer; those without a layer are left out."""
    return {
        layer: [str(variant) for variant in members]
        for layer, members in groupby(variants, key=lambda variant: variant.layer)
        if layer is not None
    }


def _gains(
    z: pd.DataFrame,
    layers: Mapping[int, list[str]],
    others: Mapping[str, Mapping[int, list[str]]],
    seed: int,
) -> pd.DataFrame:
    hurts = {layer: surely_hurts(differences(z, names)) for layer, names in layers.items()}
    rows = []
    for by, group, part in groups_of(z):
        strata = part.groupby(["subject", "level"], dropna=False, sort=True).ngroup().to_numpy()
        for layer, names in layers.items():
            paired = differences(part, names)
            best = best_gain(paired, ~hurts[layer], RESAMPLES, seed)
            row = {
                "by": by,
                "group": group,
                "layer": layer,
                "n": len(part),
                "heads": len(names),
                "base": part[str(BASE)].mean(),
                "gain": best.gain,
                "median": float(np.median(paired.mean(axis=0))),
                "by_chance": best.expected,
                "by_chance_error": best.expected_error,
                "p": best.p,
            }
            for kind, of_layer in others.items():
                if len(of_layer.get(layer, ())) == len(names):  # fair: as many as heads
                    other = differences(part, of_layer[layer])
                    placebo = against_placebos(paired, other, RESAMPLES, seed)
                    row |= {kind: placebo.gain, f"{kind}_p": placebo.p}
            if len(part) >= _FEWEST:
                held_out = held_out_gain(paired, strata, SPLITS, seed)
                row |= {"held_out": held_out.gain, "low": held_out.low, "high": held_out.high}
                row["curse"] = held_out.curse
                row |= _of_errors(held_out, int((part[str(BASE)] == 0).sum()), len(part))
            rows.append(row)
    table = pd.DataFrame(rows).reindex(columns=GAINS)
    for p in ("p", "placebo_p", "numeric_p"):
        tested = table[table[p].notna()].groupby("by")[p]
        table[p[:-1] + "q"] = tested.transform(lambda p: false_discovery(p.to_numpy()))
    return table


def _of_errors(gain: HeldOutGain, errors: int, n: int) -> dict[str, float]:
    """Return a gain as a share of the base model's errors, with its interval; none of no errors."""
    if not errors:
        return {}
    share, bounds = np.array(errors / n), wilson(np.array(errors), np.array(n))
    ends = np.array(gain.low), np.array(gain.high)
    low, high = unpaired_ratio(np.array(gain.gain), ends, share, bounds)
    found = {"": gain.gain * n / errors, "_low": float(low), "_high": float(high)}
    return {f"of_errors{end}": value for end, value in found.items()}


def _heads(
    z: pd.DataFrame, graded: pd.DataFrame, variants: Sequence[Variant], noise: float
) -> pd.DataFrame:
    """Return each head's test, and how it fails: no answer, truncated, dependent on rounding."""
    names = [str(variant) for variant in variants]
    paired = differences(z, names)
    low, high = paired_interval(paired)
    p = mcnemar(paired)
    answers = graded[graded["variant"].isin(names)]
    margin = answers.pivot(index="question_id", columns="variant", values="margin")
    margins: np.ndarray = margin.loc[z["question_id"], names].to_numpy()
    fragile = [
        fragility(margins[:, [index]], paired[:, [index]] != 0, noise)
        for index in range(len(names))
    ]
    of = answers.assign(
        no_answer=answers["answer"].isna(), truncated=answers["stop_reason"] == "length"
    ).groupby("variant")[["no_answer", "truncated", "tokens"]]
    table = pd.DataFrame(
        {
            "layer": pd.array([variant.layer for variant in variants], dtype="Int64"),
            "head": pd.array([variant.head for variant in variants], dtype="Int64"),
            "n": len(z),
            "accuracy": z[names].mean().to_numpy(),
            "gained": (paired > 0).sum(axis=0),
            "lost": (paired < 0).sum(axis=0),
            "gain": paired.mean(axis=0),
            "low": low,
            "high": high,
            "p": p,
            "q": np.concatenate([[np.nan], false_discovery(p[1:])]),
            "fragile": [share for share, _ in fragile],
            "fragile_changed": [share for _, share in fragile],
        },
        index=pd.Index(names, name="variant"),
    ).join(of.mean())
    table.loc[str(BASE), ["low", "high", "p"]] = np.nan
    return table.reset_index()[HEADS]


def _spread(z: pd.DataFrame, layers: Mapping[int, list[str]]) -> pd.DataFrame:
    every = [name for names in layers.values() for name in names]
    hurts = [surely_hurts(differences(z, names)) for names in layers.values()]
    others = [name for name, bad in zip(every, np.concatenate(hurts), strict=True) if not bad]
    wanted = {f"layer {layer}": names for layer, names in layers.items()}
    rows = [
        {"of": of, "heads": len(names), **asdict(head_variance(z[names].to_numpy()))}
        for of, names in (wanted | {ALL: every, HARMLESS: others}).items()
        if len(names) > 1 and len(z) > 1
    ]
    return pd.DataFrame(rows, columns=SPREAD)
