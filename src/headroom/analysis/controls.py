"""The controls of a sweep, as tables: is the gain real?

*Gains*: the best head of each layer on each group of questions, compared with chance and measured
on held-out questions. *Heads*: each head against base, with interval and test, and how it fails.
*Spread*: how much of the variance between heads exceeds noise.
"""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import groupby

import numpy as np
import pandas as pd

from headroom.analysis.gains import groups_of
from headroom.analysis.sheet import Columns, Sheet, interval, sheet
from headroom.analysis.text import short
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

GAINS = ["by", "group", "layer", "n", "heads", "gain", "median", "by_chance", "by_chance_error"]
GAINS += ["p", "q", "placebo", "placebo_p", "placebo_q", "numeric", "numeric_p", "numeric_q"]
GAINS += ["held_out", "low", "high", "curse", "of_errors", "of_errors_low", "of_errors_high"]
"""Columns of the table of gains, as fractions of the questions and of the best head unless named
otherwise. `placebo`: noise placebos; `numeric`: the base model decoded again; each as many as
heads, empty if the sweep has none. `of_errors`: the held-out gain as a share of the base model's
errors, which bound every gain and are few on an easy level."""

HEADS = ["variant", "layer", "head", "n", "accuracy", "gained", "lost", "gain", "low", "high"]
HEADS += ["p", "q", "no_answer", "truncated", "fragile", "fragile_changed", "tokens"]
"""Columns of the table of heads; base comes first, without a test."""

SPREAD = ["of", "heads", "spread", "noise", "component", "share", "p"]
"""Columns of the table of spread; rows are each layer, `ALL` heads and the `HARMLESS` ones."""

ALL = "all heads"
HARMLESS = "heads that do not clearly hurt"

_FEWEST = 4  # smallest number of questions to split into halves


@dataclass(frozen=True)
class Controls:
    """The three tables."""

    gains: pd.DataFrame
    heads: pd.DataFrame
    spread: pd.DataFrame


def controls(
    z: pd.DataFrame,
    graded: pd.DataFrame,
    variants: Sequence[Variant],
    placebos: Sequence[Variant],
    noise: float,
    seed: int,
) -> Controls:
    """Compute the controls of a sweep.

    Args:
        z: accuracy matrix, one row per question (see `headroom.tables.ACCURACY`).
        graded: graded answers of the same questions and variants (`headroom.tables.GRADED`).
        variants: base first, then the pruned variants, sorted.
        placebos: compared with the heads: a layer's noise placebos with its heads, numeric ones
            with the heads of every layer.
        noise: logit gap below which rounding can change the order.
        seed: decides sign patterns and splits.
    """
    layers = _by_layer(variants)
    noises = _by_layer([each for each in placebos if each.kind == "noise"])
    numeric = [str(each) for each in placebos if each.kind == "numeric"]
    others = {
        "placebo": noises,
        "numeric": dict.fromkeys(layers, numeric) if numeric else {},
    }
    return Controls(
        gains=_gains(z, layers, others, seed),
        heads=_heads(z, graded, variants, noise),
        spread=_spread(z, layers),
    )


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
    hurts = {layer: surely_hurts(_differences(z, names)) for layer, names in layers.items()}
    rows = []
    for by, group, part in groups_of(z):
        strata = part.groupby(["subject", "level"], dropna=False, sort=True).ngroup().to_numpy()
        for layer, names in layers.items():
            differences = _differences(part, names)
            best = best_gain(differences, ~hurts[layer], RESAMPLES, seed)
            row = {
                "by": by,
                "group": group,
                "layer": layer,
                "n": len(part),
                "heads": len(names),
                "gain": best.gain,
                "median": float(np.median(differences.mean(axis=0))),
                "by_chance": best.expected,
                "by_chance_error": best.expected_error,
                "p": best.p,
            }
            for kind, of_layer in others.items():
                if len(of_layer.get(layer, ())) == len(names):  # fair: as many as heads
                    placebo = against_placebos(
                        differences, _differences(part, of_layer[layer]), RESAMPLES, seed
                    )
                    row |= {kind: placebo.gain, f"{kind}_p": placebo.p}
            if len(part) >= _FEWEST:
                held_out = held_out_gain(differences, strata, SPLITS, seed)
                row |= {"held_out": held_out.gain, "low": held_out.low, "high": held_out.high}
                row["curse"] = held_out.curse
                row |= _of_errors(held_out, int((part[str(BASE)] == 0).sum()), len(part))
            rows.append(row)
    table = pd.DataFrame(rows).reindex(columns=GAINS)
    for p in ("p", "placebo_p", "numeric_p"):
        q = p[:-1] + "q"
        tested = table[table[p].notna()]
        table[q] = tested.groupby("by")[p].transform(lambda p: false_discovery(p.to_numpy()))
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
    names = [str(variant) for variant in variants]
    differences = _differences(z, names)
    low, high = paired_interval(differences)
    p = mcnemar(differences)
    table = pd.DataFrame(
        {
            "variant": names,
            "layer": pd.array([variant.layer for variant in variants], dtype="Int64"),
            "head": pd.array([variant.head for variant in variants], dtype="Int64"),
            "n": len(z),
            "accuracy": z[names].mean().to_numpy(),
            "gained": (differences > 0).sum(axis=0),
            "lost": (differences < 0).sum(axis=0),
            "gain": differences.mean(axis=0),
            "low": low,
            "high": high,
            "p": p,
            "q": np.concatenate([[np.nan], false_discovery(p[1:])]),
        }
    )
    table.loc[0, ["low", "high", "p"]] = np.nan
    return table.merge(_failures(z, graded, names, noise), on="variant")[HEADS]


def _failures(
    z: pd.DataFrame, graded: pd.DataFrame, names: Sequence[str], noise: float
) -> pd.DataFrame:
    """Return how each variant fails: no answer, truncated, dependent on numerical noise."""
    answers = graded[graded["variant"].isin(names)]
    wide = answers.pivot(index="question_id", columns="variant", values="margin")
    margin: np.ndarray = wide.loc[z["question_id"], list(names)].to_numpy()
    changed = _differences(z, names) != 0
    fragile = [
        fragility(margin[:, [index]], changed[:, [index]], noise) for index in range(len(names))
    ]
    by_variant = answers.groupby("variant")
    table = pd.DataFrame(
        {
            "no_answer": by_variant["answer"].agg(lambda answer: answer.isna().mean()),
            "truncated": by_variant["stop_reason"].agg(lambda reason: (reason == "length").mean()),
            "tokens": by_variant["tokens"].mean(),
        }
    ).loc[list(names)]
    table["fragile"] = [share for share, _ in fragile]
    table["fragile_changed"] = [share for _, share in fragile]
    return table.rename_axis("variant").reset_index()


def _spread(z: pd.DataFrame, layers: Mapping[int, list[str]]) -> pd.DataFrame:
    every = [name for names in layers.values() for name in names]
    hurts = [surely_hurts(_differences(z, names)) for names in layers.values()]
    others = [name for name, bad in zip(every, np.concatenate(hurts), strict=True) if not bad]
    wanted = {f"layer {layer}": names for layer, names in layers.items()}
    rows = []
    for of, names in (wanted | {ALL: every, HARMLESS: others}).items():
        if len(names) > 1 and len(z) > 1:
            found = head_variance(z[names].to_numpy())
            rows.append({"of": of, "heads": len(names), **asdict(found)})
    return pd.DataFrame(rows, columns=SPREAD)


def _differences(z: pd.DataFrame, names: Sequence[str]) -> np.ndarray:
    return z[list(names)].to_numpy() - z[[str(BASE)]].to_numpy()


def gains_sheet(gains: pd.DataFrame, sweep: str) -> Sheet:
    """Return the table of gains as text."""
    groups = gains["group"].map(lambda group: short(group, 24))
    return sheet(gains.assign(group=groups), _SHOWN, f"{sweep}: {_CAPTION}")


_SHOWN: Columns = {
    "questions": "{group}",
    "layer": "{layer:int}",
    "n": "{n:int}",
    "best head": "{gain:pts}",
    "median head": "{median:pts}",
    "by chance": "{by_chance:pts}",
    "p": "{p:.3f}",
    "q": "{q:.3f}",
    "placebo": "{placebo:pts}",
    "placebo p": "{placebo_p:.3f}",
    "placebo q": "{placebo_q:.3f}",
    "numerics": "{numeric:pts}",
    "numerics p": "{numeric_p:.3f}",
    "numerics q": "{numeric_q:.3f}",
    "held out": "{held_out:pts} ({low:pts} to {high:pts})",
    "curse": "{curse:pts}",
    "of errors (%)": interval("of_errors", "%"),
}
_CAPTION = (
    "The best head of each layer on each group of questions, in percentage points. By chance: its "
    "expected gain where pruning does nothing, from joint sign flips of all heads on a question; "
    "p: of the largest studentised gain over heads (10,000 flips, standard error at most .005); "
    "q: after Benjamini and Hochberg over groups of a kind. Placebo: the best of as many variants "
    "with noise of a head's norm and no head pruned; numerics: the best of as many base models "
    "decoded again in other batches; their p and q: heads and placebos swapped question by "
    "question (10,000 times). Held out: chosen on one half of the questions, measured on the "
    "other, over 100 stratified splits; curse: best head in sample minus held out. Of errors: held "
    "out, as a share of the base model's errors, which no gain can pass; both intervals as if "
    "independent."
)
