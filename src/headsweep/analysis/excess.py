"""Which gains of heads exceed those of placebos or, without placebos, those by chance.

Every change of a model helps on some questions, so many heads "gain" even if pruning has no effect
at all. Each count of heads (`Statistic`) is therefore compared with the same count of as many
noise placebos. A sweep without placebos is compared with the more generous of two models of chance.
One flips all differences of a question together: a gain is as likely as a loss. In the other,
changes meet right and wrong answers at random, as a perturbation does that knows nothing of the
answer: it gains where the base model is mostly wrong.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

import numpy as np
import pandas as pd
from jaxtyping import Float, Int

from headsweep.statistics import LEVEL
from headsweep.statistics.selection import heads_by_chance
from headsweep.variants import BASE

RESAMPLES = 2000

Gains = Mapping[str, Sequence[Float[np.ndarray, "*draws heads"]]]
"""Gains of the heads of each layer, as fractions of the questions, by group of questions."""

EASY, HARD = "easy", "hard"
"""MATH levels 1 and 2, and levels 4 and 5."""


class Excess(NamedTuple):
    """A statistic of heads, and by how much it exceeds that of placebos or of chance."""

    of_heads: float
    value: float
    low: float
    high: float
    """Ends of the 95% interval: what placebos or chance leave open."""
    against: str
    null: Float[np.ndarray, " resamples"]
    """The excess in draws without an effect of pruning."""


def interval_around(value: float, null: Float[np.ndarray, " resamples"]) -> tuple[float, float]:
    """Return the 95% interval around an excess, given its draws without an effect."""
    tail = (1 - LEVEL) / 2
    place = int(np.floor((len(null) + 1) * tail))  # so that the test is exact
    ordered = np.sort(null)
    return float(value - ordered[-place]), float(value - ordered[place - 1])


def harmless(gains: Gains) -> np.ndarray:
    """Return the share of heads without which a group is answered no worse."""
    return _share(gains, lambda gain: gain >= 0)


def increased(gains: Gains) -> np.ndarray:
    """Return the share of heads without which a group is answered better."""
    return _share(gains, lambda gain: gain > 0)


def best(gains: Gains) -> np.ndarray:
    """Return the gain of the best head of a layer, the mean over groups and layers."""
    return _best(gains).mean(axis=0)


def median(gains: Gains) -> np.ndarray:
    """Return the median of the best heads' gains over groups and layers."""
    return np.median(_best(gains), axis=0)


def contrast(gains: Gains) -> np.ndarray:
    """Return by how much more the best head of a layer gains on hard than on easy questions."""
    return best({HARD: gains[HARD]}) - best({EASY: gains[EASY]})


def _share(gains: Gains, counted: Callable[[np.ndarray], np.ndarray]) -> np.ndarray:
    parts = [part for layers in gains.values() for part in layers]
    return sum(counted(part).sum(axis=-1) for part in parts) / sum(p.shape[-1] for p in parts)


def _best(gains: Gains) -> np.ndarray:
    """Return the best gain of each group and layer, [pairs, *draws]."""
    return np.stack([part.max(axis=-1) for layers in gains.values() for part in layers])


Statistic = Callable[[Gains], np.ndarray]


def measured(
    z: pd.DataFrame,
    heads: Sequence[Sequence[str]],
    placebos: Sequence[Sequence[str]],
    groups: Mapping[str, Int[np.ndarray, " questions"]],
    statistics: Sequence[Statistic],
    resamples: int = RESAMPLES,
    seed: int = 0,
) -> list[Excess]:
    """Return the excess of each statistic of a sweep.

    Args:
        z: the accuracy matrix, `headsweep.tables.ACCURACY`.
        heads: columns of Z, the heads of each layer.
        placebos: those of noise placebos, as many in each layer; or none.
        groups: rows of Z by the name of a group.
        statistics: what is counted.
        resamples: draws without an effect of pruning.
        seed: of these draws.
    """
    base = z[str(BASE)].to_numpy(np.float32)[:, None]
    paired, others = (
        z[[name for layer in names for name in layer]].to_numpy(np.float32) - base
        for names in (heads, placebos)
    )
    cuts = np.cumsum([len(layer) for layer in heads])[:-1]

    def layers(values: np.ndarray) -> list[np.ndarray]:
        return np.split(values, cuts, axis=-1)

    def observed(differences: np.ndarray) -> Gains:
        return {name: layers(differences[rows].mean(axis=0)) for name, rows in groups.items()}

    draw = np.random.default_rng(seed)
    gains = observed(paired)
    if placebos:
        swapped = _swapped(paired, others, groups, resamples, draw)
        one, two = ({name: layers(part[at]) for name, part in swapped.items()} for at in (0, 1))
        of_placebos = observed(others)
        return [
            _excess(
                float(statistic(gains)),
                float(statistic(of_placebos)),
                statistic(one) - statistic(two),
                "placebos",
            )
            for statistic in statistics
        ]
    nulls = [
        {name: layers(part) for name, part in drawn.items()}
        for drawn in (
            _flipped(paired, groups, resamples, draw),
            _blind(paired, base, groups, resamples, draw),
        )
    ]
    return [
        _by_chance(float(statistic(gains)), [statistic(null) for null in nulls])
        for statistic in statistics
    ]


def _swapped(
    heads: np.ndarray,
    placebos: np.ndarray,
    groups: Mapping[str, np.ndarray],
    resamples: int,
    draw: np.random.Generator,
) -> dict[str, Float[np.ndarray, "2 resamples heads"]]:
    """Return gains where heads and placebos change places on random questions, and the reverse."""
    swapped_gains = {}
    for name, rows in groups.items():
        shared = (heads[rows] + placebos[rows]).sum(axis=0) / 2
        apart = (heads[rows] - placebos[rows]) / 2
        moved = _signs(draw, resamples, len(rows)) @ apart
        swapped_gains[name] = np.stack([shared + moved, shared - moved]) / len(rows)
    return swapped_gains


def _flipped(
    paired: np.ndarray, groups: Mapping[str, np.ndarray], resamples: int, draw: np.random.Generator
) -> dict[str, Float[np.ndarray, "resamples heads"]]:
    """Return gains where each question is gained as likely as lost, by all heads together."""
    return {
        name: _signs(draw, resamples, len(rows)) @ paired[rows] / len(rows)
        for name, rows in groups.items()
    }


def _blind(
    paired: np.ndarray,
    base: Float[np.ndarray, "questions 1"],
    groups: Mapping[str, np.ndarray],
    resamples: int,
    draw: np.random.Generator,
) -> dict[str, Float[np.ndarray, "resamples heads"]]:
    """Return gains where the same changes meet the base model's answers in a random order."""
    gains = {}
    for name, rows in groups.items():
        by_change = np.broadcast_to(1 - 2 * base[rows, 0], (resamples, len(rows)))
        gains[name] = draw.permuted(by_change, axis=1) @ np.abs(paired[rows]) / len(rows)
    return gains


def _signs(draw: np.random.Generator, resamples: int, questions: int) -> np.ndarray:
    """Return fair signs, 1 or -1; half integers and their sums are exact in float32."""
    return draw.integers(0, 2, (resamples, questions), dtype=np.int8).astype(np.float32) * 2 - 1


def printed(
    pairs: pd.DataFrame, gains: Gains, statistics: Sequence[Statistic], resamples: int, seed: int
) -> list[Excess]:
    """Return the excess of each statistic of printed ``gains`` over chance.

    The `pairs` say what is contested of them, as `headsweep.analysis.published` finds it; chance is
    that of `headsweep.statistics.selection.heads_by_chance`.
    """
    drawn: dict[str, list[np.ndarray]] = {}
    for pair, of_heads in heads_by_chance(pairs, resamples, seed):
        drawn.setdefault(str(pairs["subject"].iloc[pair]), []).append(of_heads.T)
    return [_by_chance(float(statistic(gains)), [statistic(drawn)]) for statistic in statistics]


def _by_chance(of_heads: float, nulls: Sequence[np.ndarray]) -> Excess:
    """Return the excess over the chance that reaches highest."""
    highest = max(nulls, key=lambda null: np.quantile(null, (1 + LEVEL) / 2))
    expected = float(highest.mean())
    return _excess(of_heads, expected, highest - expected, "chance")


def _excess(of_heads: float, other: float, null: np.ndarray, against: str) -> Excess:
    value = of_heads - other
    low, high = interval_around(value, null)
    return Excess(of_heads, value, low, high, against, null)
