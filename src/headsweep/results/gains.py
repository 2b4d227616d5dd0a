"""Pass@1 of every variant and gains over base, from the accuracy matrix Z; is the gain real?

Pass@1 under greedy decoding is plain accuracy. A *cell* is one variant on one group of questions:
all of them, a subject, or a MATH level.

The controls of a sweep are tables. *Gains*: the best head of each layer on each group of questions,
against chance and on held-out questions. *Heads*: each head against base, and how it fails.
*Spread*: how much of the variance between heads exceeds noise. Two more are in `changes`.
"""

from collections.abc import Iterator, Mapping, Sequence
from itertools import groupby

import numpy as np
import pandas as pd

from headsweep.errors import TableError
from headsweep.files.safe_files import read_table
from headsweep.files.tables import ACCURACY
from headsweep.results import joint_tests
from headsweep.results.truncation import UNCUT, truncated_answers, without_truncated
from headsweep.statistics.intervals import (
    Bootstrap,
    false_discovery,
    mcnemar,
    paired_interval,
    simultaneous,
    wilson,
)
from headsweep.statistics.selection import (
    FEWEST,
    RESAMPLES,
    SPLITS,
    HeadVariance,
    against_placebos,
    best_gain,
    head_variance,
    held_out_gain,
    surely_hurts,
)
from headsweep.store.batches import placebos, pool
from headsweep.store.layout import Store
from headsweep.variants import BASE, Variant

OVERALL = "Overall"
"""Name of the group of all questions."""

GAINS = [
    "by",
    "group",
    "layer",
    "n",
    "heads",
    "base",  # accuracy of the base model
    "best",  # name of the best head, the first of equals
    "gain",
    "median",  # gain of the median head
    "by_chance",
    "p",
    "q",
    "placebo",  # noise placebos
    "placebo_p",
    "placebo_q",
    "best_noise",  # of noise placebos, however few
    "numeric",  # the base model decoded again
    "numeric_p",
    "numeric_q",
    "held_out",
    "low",  # of `held_out`
    "high",
]
"""Columns of the table of gains, as fractions of the questions and of the best head unless named
otherwise. Of noise placebos and of the base model decoded again there are as many as heads, but for
`best_noise`; columns are empty if the sweep has none."""

HEADS = [
    "variant",
    "layer",
    "head",
    "n",
    "accuracy",
    "gained",
    "lost",
    "gain",
    "low",  # of the interval of this head alone
    "high",
    "p",
    "adjusted",  # p after Holm's correction over all heads
    "q",  # the false discovery rate, for exploring
    "band_low",  # of the interval for all heads at once (`headsweep.results.joint_tests`)
    "band_high",
    *UNCUT,
    "no_answer",
    "truncated",  # share of answers cut at the limit of tokens
    "fragile",  # share of answers with a margin that rounding can reverse
    "tokens",  # mean length of its answers, without the end of sequence
]
"""Columns of the table of heads; base comes first, without a test."""

_BOOTSTRAP = 4000  # resamples of questions for the intervals that hold for all heads at once


def read_z(store: Store, sweep: str) -> tuple[pd.DataFrame, list[Variant]]:
    """Return the accuracy matrix of a sweep, and its variants, base first, without placebos.

    Raises:
        TableError: the accuracy matrix is missing, damaged, empty, or lacks a variant.
    """
    config = store.config
    path = store.of_sweep(sweep)
    z = read_table(path, ACCURACY)
    variants = [BASE, *pool(config, config.sweeps[sweep])]
    wanted = map(str, [*variants, *placebos(config, config.sweeps[sweep])])
    missing = [name for name in wanted if name not in z.columns]
    if missing:
        raise TableError(f"{path}: variants {missing[:5]} are missing; remove the file and rerun")
    if z.empty:
        raise TableError(f"{path} has no questions; remove the file and rerun")
    return z, variants


def over_base(z: pd.DataFrame, names: Sequence[object]) -> np.ndarray:
    """Return the paired differences of variants to base, [questions, variants]."""
    return z[list(map(str, names))].to_numpy() - z[[str(BASE)]].to_numpy()


def cells(z: pd.DataFrame, variants: Sequence[Variant]) -> pd.DataFrame:
    """Count right answers of every variant, base first, in every group of questions, from Z.

    Returns:
        One row per cell: ``by`` (overall, subject or level), ``group``, ``variant``, ``layer`` and
        ``head`` (null for base), ``n``, ``correct``, ``accuracy`` with Wilson's interval ``low`` to
        ``high``; ``base`` (the base model's accuracy on the group), the questions ``gained`` and
        ``lost``, the ``gain``; and of pruned heads its paired interval ``gain_low`` to
        ``gain_high``, the exact McNemar ``p``, and ``q``, adjusted for all heads and groups of a
        kind (Benjamini-Hochberg).
    """
    names = list(map(str, variants))
    places = [(str(variant), variant.layer, variant.head) for variant in variants]
    frame = pd.DataFrame(places, columns=["variant", "layer", "head"])
    frame = frame.astype({"layer": "Int64", "head": "Int64"})
    tables = []
    for by, group, part in groups_of(z):
        paired = over_base(part, names)
        gain_low, gain_high = paired_interval(paired)
        tables.append(
            frame.assign(
                by=by,
                group=group,
                n=len(part),
                correct=part[names].sum().to_numpy(),
                gained=(paired > 0).sum(axis=0),
                lost=(paired < 0).sum(axis=0),
                gain_low=gain_low,
                gain_high=gain_high,
                p=mcnemar(paired),
            )
        )
    table = pd.concat(tables, ignore_index=True)
    base = table["variant"] == str(BASE)
    table.loc[base, ["gain_low", "gain_high", "p"]] = np.nan
    accuracy = table["correct"] / table["n"]
    right = accuracy.where(base).ffill()
    low, high = wilson(table["correct"].to_numpy(), table["n"].to_numpy())
    table = table.assign(accuracy=accuracy, base=right, gain=accuracy - right, low=low, high=high)
    return table.assign(q=discovery_rates(table))


def discovery_rates(table: pd.DataFrame, p: str = "p") -> pd.Series:
    """Return the p-values of a column, adjusted for all of a kind of group (Benjamini-Hochberg)."""
    tested = table[table[p].notna()].groupby("by")[p]
    return tested.transform(lambda p: false_discovery(p.to_numpy()))


def groups_of(z: pd.DataFrame) -> Iterator[tuple[str, str, pd.DataFrame]]:
    """Yield each group of questions: its kind, its name, its rows of Z."""
    yield "overall", OVERALL, z
    for subject, part in z.groupby("subject"):
        yield "subject", str(subject), part
    for level in sorted(z["level"].dropna().unique()):
        yield "level", f"Level {int(level)}", z[z["level"] == level]


def controls(
    z: pd.DataFrame,
    graded: pd.DataFrame,
    variants: Sequence[Variant],
    placebos: Sequence[Variant],
    noise: float,
    seed: int,
) -> dict[str, pd.DataFrame]:
    """Return the tables ``gains``, ``heads`` and ``spread`` of a sweep.

    Z (`headsweep.files.tables.ACCURACY`) and graded answers (`headsweep.files.tables.GRADED`) have
    the same questions and variants. Base comes first, then the pruned variants, sorted. A layer's
    noise placebos are compared with its heads, numeric ones with all. `noise` is the logit gap
    below which rounding can change the order; the seed decides sign patterns and splits.
    """
    layers = by_layer(variants)
    numeric = [str(placebo) for placebo in placebos if placebo.kind == "numeric"]
    others = {
        "placebo": by_layer([placebo for placebo in placebos if placebo.kind == "noise"]),
        "numeric": dict.fromkeys(layers, numeric),
    }
    tested = head_tests(z, graded, variants, seed)
    answers = graded.assign(
        no_answer=graded["answer"].isna(),
        truncated=graded["stop_reason"] == "length",
        fragile=graded["margin"] < noise,
    ).groupby("variant")[["no_answer", "truncated", "fragile", "tokens"]]
    return {
        "gains": _gains(z, layers, others, seed),
        "heads": tested.join(answers.mean(), on="variant")[HEADS],
        "spread": _spread(z, layers),
    }


def head_tests(
    z: pd.DataFrame, graded: pd.DataFrame, variants: Sequence[Variant], seed: int
) -> pd.DataFrame:
    """Return the tests of each head on all questions; arguments are those of `controls`."""
    tested = cells(z, variants).query("by == 'overall'").drop(columns=["low", "high"])
    tested = tested.rename(columns={"gain_low": "low", "gain_high": "high"})
    of_all = _of_all_heads(z, graded, variants[1:], seed)
    return tested.join(of_all.set_index("variant"), "variant")


def _of_all_heads(
    z: pd.DataFrame, graded: pd.DataFrame, pruned: Sequence[Variant], seed: int
) -> pd.DataFrame:
    """Return what holds for all heads at once (`headsweep.results.joint_tests.tested`), and what
    cut answers could decide.
    """
    names = list(map(str, pruned))
    paired = over_base(z, names)
    wider = simultaneous(paired, Bootstrap(len(z), _BOOTSTRAP, seed))
    of_base, of_heads = (truncated_answers(z, graded, chosen) for chosen in ([str(BASE)], names))
    uncut = without_truncated(paired, of_base, of_heads, wider)
    return joint_tests.tested(paired, wider).assign(variant=names).join(uncut)


def shown(heads: pd.DataFrame, sign: int) -> pd.DataFrame:
    """Return the heads whose removal is shown to help (1) or to hurt (-1), the strongest first.

    The test and the band over all heads must both say so (`headsweep.results.joint_tests.passes`).
    A gain or a loss that answers cut at the limit of tokens could decide is not shown.
    """
    decided = heads["cut_decides"].eq(True)  # empty for the base model
    shown_heads = heads[joint_tests.passes(heads, sign) & ~decided]
    return shown_heads.sort_values("gain", ascending=sign < 0, kind="stable")


def shown_by_cut_answers(heads: pd.DataFrame, sign: int) -> pd.DataFrame:
    """Return the heads that would be `shown` if answers cut at the limit of tokens could not decide
    it.
    """
    cut = heads[heads["cut_decides"].eq(True)]
    return shown(cut.assign(cut_decides=False), sign)


def by_layer(variants: Sequence[Variant]) -> dict[int, list[str]]:
    """Return the names of the variants by layer; those without a layer are left out."""
    layers = groupby(variants, key=lambda variant: variant.layer)
    return {layer: list(map(str, members)) for layer, members in layers if layer is not None}


def _gains(
    z: pd.DataFrame,
    layers: Mapping[int, list[str]],
    others: Mapping[str, Mapping[int, list[str]]],
    seed: int,
) -> pd.DataFrame:
    hurts = {layer: surely_hurts(over_base(z, names)) for layer, names in layers.items()}
    rows = []
    for by, group, part in groups_of(z):
        strata = part.groupby(["subject", "level"], dropna=False, sort=True).ngroup().to_numpy()
        for layer, names in layers.items():
            paired = over_base(part, names)
            best = best_gain(paired, ~hurts[layer], RESAMPLES, seed)
            row = {
                "by": by,
                "group": group,
                "layer": layer,
                "n": len(part),
                "heads": len(names),
                "base": part[str(BASE)].mean(),
                "best": names[int(paired.mean(axis=0).argmax())],
                "median": np.median(paired.mean(axis=0)),
                "gain": best.gain,
                "by_chance": best.expected,
                "p": best.p,
            }
            if noise := others["placebo"].get(layer):
                row["best_noise"] = over_base(part, noise).mean(axis=0).max()
            for kind, of_layer in others.items():
                if len(of_layer.get(layer, ())) == len(names):  # fair: as many as heads
                    other = over_base(part, of_layer[layer])
                    tested = against_placebos(paired, other, RESAMPLES, seed)
                    row |= dict(zip((kind, f"{kind}_p"), tested, strict=True))
            if len(part) >= FEWEST:
                held_out = held_out_gain(paired, strata, SPLITS, seed)
                row |= dict(zip(("held_out", "low", "high"), held_out, strict=False))
            rows.append(row)
    table = pd.DataFrame(rows).reindex(columns=GAINS)
    return table.assign(
        **{
            f"{prefix}q": discovery_rates(table, f"{prefix}p")
            for prefix in ("", "placebo_", "numeric_")
        }
    )


def _spread(z: pd.DataFrame, layers: Mapping[int, list[str]]) -> pd.DataFrame:
    """Return the spread between the heads of each layer, all, and those that do no clear harm."""
    every = [name for names in layers.values() for name in names]
    hurts = np.concatenate([surely_hurts(over_base(z, names)) for names in layers.values()])
    wanted = {f"layer {layer}": names for layer, names in layers.items()}
    wanted["all heads"] = every
    wanted["heads that do not clearly hurt"] = list(np.array(every)[~hurts])
    names_of_group = {
        group: names for group, names in wanted.items() if len(names) > 1 and len(z) > 1
    }
    rows = [
        (group, len(names), *head_variance(z[names].to_numpy()))
        for group, names in names_of_group.items()
    ]
    return pd.DataFrame(rows, columns=["of", "heads", *HeadVariance._fields])
