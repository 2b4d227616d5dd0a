"""Which gains of heads exceed those of placebos or, without placebos, those by chance.

Every change of a model helps on some questions, so many heads "gain" even if pruning has no effect
at all. Each count of heads (`Statistic`) is therefore compared with the same count of as many
noise placebos. A sweep without placebos is compared with two models of chance, of which either may
be true. One flips all differences of a question together: a gain is as likely as a loss. In the
other, changes meet right and wrong answers at random, as a perturbation does that knows nothing of
the answer: it gains where the base model is mostly wrong.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

import numpy as np
import pandas as pd
from jaxtyping import Float, Int

from headsweep.statistics import TAILS
from headsweep.statistics.intervals import Estimate
from headsweep.statistics.published_luck import heads_by_chance
from headsweep.statistics.selection import fair_signs
from headsweep.variants import BASE

RESAMPLES = 2000

Gains = Mapping[str, Sequence[Float[np.ndarray, "*draws heads"]]]
"""Gains of the heads of each layer, as fractions of the questions, by group of questions."""

_Draws = Float[np.ndarray, " resamples"]
_DrawnGains = dict[str, Float[np.ndarray, "resamples heads"]]

EASY, HARD = "easy", "hard"
"""MATH levels 1 and 2, and levels 4 and 5."""


PARTICULAR = ("Counting & Probability", "Geometry")
"""Subjects of which the SPRINT paper says that they gain in particular."""


class Excess(NamedTuple):
    """A statistic of heads, and by how much it exceeds that of placebos or of chance."""

    of_heads: float
    value: float
    low: float
    high: float
    """Ends of the 95% interval: what placebos or chance leave open."""
    against: str
    highest: _Draws
    """The excess in draws without an effect of pruning, by the model of chance that reaches
    highest."""
    lowest: _Draws
    """Likewise, by the one that reaches lowest; the same, where there is only one."""

    @property
    def estimate(self) -> Estimate:
        """The excess with its interval."""
        return Estimate(self.value, self.low, self.high)


def interval_around(value: float, highest: _Draws, lowest: _Draws) -> tuple[float, float]:
    """Return the 95% interval around an excess, given its draws without an effect.

    The lower end leaves room for the chance that reaches highest, the upper one for that which
    reaches lowest: where both are possible, neither end may count on one of them. Draws are 39 or
    more: fewer hold no 95%.
    """
    place = int(np.floor((len(highest) + 1) * TAILS[0]))  # so that the test is exact
    low = value - np.sort(highest)[-place]
    return float(low), float(value - np.sort(lowest)[place - 1])


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


def particular(gains: Gains) -> np.ndarray:
    """Return by how much more the best head gains on `PARTICULAR` subjects than on the others."""
    others = {subject: layers for subject, layers in gains.items() if subject not in PARTICULAR}
    return best({subject: gains[subject] for subject in PARTICULAR}) - best(others)


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
        z: the accuracy matrix, `headsweep.files.tables.ACCURACY`.
        heads: columns of Z, the heads of each layer.
        placebos: those of noise placebos, as many in each layer; or none.
        groups: rows of Z by the name of a group.
        statistics: what is counted.
        resamples: draws without an effect of pruning.
        seed: of these draws.
    """
    base = z[[str(BASE)]].to_numpy(np.float32)
    cuts = np.cumsum([len(layer) for layer in heads])[:-1]

    def differences(names: Sequence[Sequence[str]]) -> np.ndarray:
        return z[[name for layer in names for name in layer]].to_numpy(np.float32) - base

    def by_layer(gains: Mapping[str, np.ndarray]) -> Gains:
        return {name: np.split(values, cuts, axis=-1) for name, values in gains.items()}

    def observed(paired: np.ndarray) -> Gains:
        return by_layer({name: paired[rows].mean(axis=0) for name, rows in groups.items()})

    draw = np.random.default_rng(seed)
    of_heads = differences(heads)
    gains = observed(of_heads)
    if not placebos:
        flipped = by_layer(_flipped(of_heads, groups, resamples, draw))
        blind = by_layer(_blind(of_heads, base, groups, resamples, draw))
        return [
            _by_chance(float(statistic(gains)), [statistic(flipped), statistic(blind)])
            for statistic in statistics
        ]
    of_placebos = differences(placebos)
    placebo_gains = observed(of_placebos)
    swapped, reverse = map(by_layer, _swapped(of_heads, of_placebos, groups, resamples, draw))
    return [
        _excess(
            float(statistic(gains)),
            float(statistic(placebo_gains)),
            [statistic(swapped) - statistic(reverse)],
            "placebos",
        )
        for statistic in statistics
    ]


def _swapped(
    heads: np.ndarray,
    placebos: np.ndarray,
    groups: Mapping[str, np.ndarray],
    resamples: int,
    draw: np.random.Generator,
) -> tuple[_DrawnGains, _DrawnGains]:
    """Return gains where heads and placebos change places on random questions, and the reverse."""
    swapped = {}
    reverse = {}
    for name, rows in groups.items():
        shared = (heads[rows] + placebos[rows]).sum(axis=0) / 2
        apart = (heads[rows] - placebos[rows]) / 2
        moved = fair_signs(draw, resamples, len(rows)) @ apart
        swapped[name] = (shared + moved) / len(rows)
        reverse[name] = (shared - moved) / len(rows)
    return swapped, reverse


def _flipped(
    paired: np.ndarray, groups: Mapping[str, np.ndarray], resamples: int, draw: np.random.Generator
) -> _DrawnGains:
    """Return gains where each question is gained as likely as lost, by all heads together."""
    return {
        name: fair_signs(draw, resamples, len(rows)) @ paired[rows] / len(rows)
        for name, rows in groups.items()
    }


def _blind(
    paired: np.ndarray,
    base: Float[np.ndarray, "questions 1"],
    groups: Mapping[str, np.ndarray],
    resamples: int,
    draw: np.random.Generator,
) -> _DrawnGains:
    """Return gains where the same changes meet the base model's answers in a random order."""
    gains = {}
    for name, rows in groups.items():
        by_change = np.broadcast_to(1 - 2 * base[rows, 0], (resamples, len(rows)))
        gains[name] = draw.permuted(by_change, axis=1) @ np.abs(paired[rows]) / len(rows)
    return gains


def printed(
    pairs: pd.DataFrame, gains: Gains, statistics: Sequence[Statistic], resamples: int, seed: int
) -> list[Excess]:
    """Return the excess of each statistic of printed ``gains`` over chance.

    The `pairs` say what is contested of them, as `headsweep.results.published` finds it; chance is
    that of `headsweep.statistics.published_luck.heads_by_chance`.
    """
    drawn: dict[str, list[np.ndarray]] = {}
    for pair, of_heads in heads_by_chance(pairs, resamples, seed):
        drawn.setdefault(str(pairs["subject"].iloc[pair]), []).append(of_heads.T)
    return [_by_chance(float(statistic(gains)), [statistic(drawn)]) for statistic in statistics]


def _by_chance(of_heads: float, nulls: Sequence[np.ndarray]) -> Excess:
    """Return the excess over chance, by models of it of which any may be true."""
    expected = float(_reaching_highest(nulls).mean())
    return _excess(of_heads, expected, [null - expected for null in nulls], "chance")


def _reaching_highest(nulls: Sequence[np.ndarray]) -> np.ndarray:
    return max(nulls, key=lambda null: np.quantile(null, TAILS[1]))


def _excess(of_heads: float, other: float, nulls: Sequence[np.ndarray], against: str) -> Excess:
    value = of_heads - other
    highest = _reaching_highest(nulls)
    lowest = min(nulls, key=lambda null: np.quantile(null, TAILS[0]))
    low, high = interval_around(value, highest, lowest)
    return Excess(of_heads, value, low, high, against, highest, lowest)
