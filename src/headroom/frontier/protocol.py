"""How families are compared: everything is chosen on training questions, then tested once.

A family offers M members, such as models without one head, or samples; its scale (the temperature
of samples) and the order of its members are chosen on training questions. Two curves follow over
N = 1, 2, ...: *drawn* takes N members at random (the exact expectation), *ordered* takes the first
N of the order, a greedy cover of the training questions. Samples have no order: their ordered curve
is the drawn one.

Families are compared at equal numbers of generated tokens, b times the mean of the base model's
answer. Between N and N + 1 a curve is linear, which mixing the two achieves; it is not continued
beyond its ends.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import combinations
from typing import NamedTuple

import numpy as np
import pandas as pd
from jaxtyping import Bool, Float, Int
from scipy.special import ndtr

from headroom.sprint.rankers import greedy_cover
from headroom.statistics import answers as together
from headroom.statistics.bootstrap import Bootstrap, interval_of
from headroom.statistics.paired import holm

BUDGETS = (1, 2, 4, 8, 16)
"""Tokens of all answers, as multiples of the mean of the base model's answer."""

OUTCOMES = ("pass", "majority")

SAMPLING = "sampling"
"""The family that all others are held against: samples of the base model."""

PerN = Float[np.ndarray, "questions n"]


class Answers(NamedTuple):
    """Graded answers of a family's members to some questions."""

    correct: Bool[np.ndarray, "questions members"]
    group: Int[np.ndarray, "questions members"]
    """Equal answers to a question share a label; -1 where there is no answer."""
    tokens: Int[np.ndarray, "questions members"]

    def take(self, order: Sequence[int]) -> "Answers":
        """Return the answers of some members, in this order."""
        return Answers(*(part[:, list(order)] for part in self))


@dataclass(frozen=True)
class Member:
    """One member, and what its tokens cost."""

    name: str
    """Of the variant, or of the sample."""
    work: float = 1.0
    """Work of a generated token, as a share of the base model's."""
    shared: float = 1.0
    """Share of the layers that process the prompt as in the base model."""
    own: float = 0.0
    """Share of the layers that process the prompt for this member alone."""


@dataclass(frozen=True)
class Candidate:
    """A family at one scale: its members, and their answers to both question sets."""

    scale: str
    members: list[Member]
    train: Answers
    test: Answers


@dataclass
class Chosen:
    """A family at the scale that training questions chose, its members in their order."""

    family: str
    title: str
    candidate: Candidate
    exchangeable: bool
    """Whether members have no order: samples."""
    order: list[int] = field(default_factory=list)

    @property
    def test(self) -> Answers:
        """The answers to the test questions, members in their order."""
        return self.candidate.test.take(self.order)

    @property
    def members(self) -> list[Member]:
        """The members, in their order."""
        return [self.candidate.members[place] for place in self.order]


class Curve(NamedTuple):
    """A family's values over N, for each test question."""

    values: dict[str, PerN]
    """By outcome: whether one of N answers is right; whether their majority is."""
    tokens: PerN
    """Generated tokens of N answers."""
    computed: PerN
    """Tokens computed: work of generated tokens, and of the prompt where it is not shared."""


def worth(train: Answers, max_n: int) -> float:
    """Return what a candidate is chosen by: Pass@N on training questions, mean over N.

    Members are drawn, so that no order is chosen with it.
    """
    return float(together.pass_at_n_drawn(train.correct, max_n).mean())


def choose(
    family: str, title: str, candidates: Sequence[Candidate], max_n: int, *, exchangeable: bool
) -> Chosen:
    """Choose scale and order on training questions; ties go to the first scale."""
    best = max(candidates, key=lambda each: worth(each.train, max_n))
    places = range(best.train.correct.shape[1])
    order = places if exchangeable else greedy_cover(best.train.correct)
    return Chosen(family, title, best, exchangeable, [int(place) for place in order])


def curve(chosen: Chosen, prompts: float, max_n: int, *, ordered: bool) -> Curve:
    """Return a family's values on the test questions for N = 1 to `max_n`.

    Args:
        chosen: the family.
        prompts: mean length of a prompt in tokens.
        max_n: largest N, at most the number of members.
        ordered: whether members come in their order; else they are drawn.
    """
    test, members = chosen.test, chosen.members
    max_n = min(max_n, len(members))
    work = np.array([member.work for member in members])
    shared, own = (
        np.tile([getattr(member, name) for member in members], (len(test.tokens), 1))
        for name in ("shared", "own")
    )
    if ordered and not chosen.exchangeable:
        values = {
            "pass": together.pass_at_n_ordered(test.correct, max_n),
            "majority": together.majority_ordered(test.group, test.correct, max_n),
        }
        tokens, computed, alone = (
            part.cumsum(axis=1)[:, :max_n].astype(float)
            for part in (test.tokens, test.tokens * work, own)
        )
        once = together.largest_ordered(shared, max_n)
    else:
        values = {
            "pass": together.pass_at_n_drawn(test.correct, max_n),
            "majority": together.majority_drawn(test.group, test.correct, max_n),
        }
        count = np.arange(1, max_n + 1)
        tokens, computed, alone = (
            part.mean(axis=1, keepdims=True) * count
            for part in (test.tokens, test.tokens * work, own)
        )
        once = together.largest_drawn(shared, max_n)
    return Curve(values, tokens, computed + prompts * (once + alone))


def at_budget(
    values: Float[np.ndarray, "*resamples n"],
    tokens: Float[np.ndarray, "*resamples n"],
    budget: Float[np.ndarray, "*resamples"],
) -> Float[np.ndarray, "*resamples"]:
    """Return mean values at a number of tokens, linear between N and N + 1, NaN beyond the ends."""
    last = tokens.shape[-1] - 1
    after = (tokens < budget[..., None]).sum(axis=-1).clip(1, max(last, 1))
    if last == 0:
        return np.where(tokens[..., 0] == budget, values[..., 0], np.nan)

    def at(array: np.ndarray, place: np.ndarray) -> np.ndarray:
        return np.take_along_axis(array, place[..., None], axis=-1)[..., 0]

    low, high = at(tokens, after - 1), at(tokens, after)
    share = (budget - low) / (high - low)
    found = (1 - share) * at(values, after - 1) + share * at(values, after)
    return np.where((share >= 0) & (share <= 1), found, np.nan)


def primary_budget(curves: Mapping[str, Curve], base_tokens: float) -> int | None:
    """Return the largest of `BUDGETS` up to 8 that all families reach; None if there is none."""
    reached = [
        b
        for b in BUDGETS[:4]
        if all(
            each.tokens[:, 0].mean() <= b * base_tokens <= each.tokens[:, -1].mean()
            for each in curves.values()
        )
    ]
    return max(reached, default=None)


def compare(
    curves: Mapping[str, Curve],
    base: Float[np.ndarray, " questions"],
    bootstrap: Bootstrap,
    pairs: Sequence[tuple[str, str]],
    primary: int | None,
) -> pd.DataFrame:
    """Return paired differences at equal tokens: one family minus another.

    Questions are resampled, and with them tokens, the base model's mean, and so the places on the
    curves. Members, scales and orders stay.

    Args:
        curves: by family.
        base: tokens of the base model's answer to each question.
        bootstrap: resamples of the questions.
        pairs: which family minus which.
        primary: the budget at which tests count; those against sampling share Holm's correction
            over families and outcomes, as do all others.

    Returns:
        Columns family, versus, outcome, budget, value, other, difference, low, high, p, adjusted;
        p is two-sided, from the normal approximation with the bootstrap's standard error; adjusted
        is empty but at the primary budget. Budgets that a family does not reach have no row.
    """
    resampled = {
        name: {key: bootstrap.means(of) for key, of in {**each.values, "": each.tokens}.items()}
        for name, each in curves.items()
    }
    of_base = bootstrap.means(base)
    rows = []
    for (name, other), outcome, budget in (
        (pair, outcome, budget) for pair in pairs for outcome in OUTCOMES for budget in BUDGETS
    ):
        found, again = [], []
        for each in (name, other):
            mean = curves[each].values[outcome].mean(axis=0)
            at = np.array(budget * base.mean())
            found.append(float(at_budget(mean, curves[each].tokens.mean(axis=0), at)))
            means = resampled[each]
            again.append(at_budget(means[outcome], means[""], budget * of_base))
        difference, draws = found[0] - found[1], again[0] - again[1]
        if np.isnan(difference):
            continue
        draws = draws[~np.isnan(draws)]  # resamples in which the curves end before the budget
        error = float(draws.std(ddof=1)) if len(draws) > 1 else 0.0
        low, high = interval_of(draws) if len(draws) else (np.nan, np.nan)
        p = 2 * float(ndtr(-abs(difference) / error)) if error else 1.0
        row = (name, other, outcome, budget, *found, difference, float(low), float(high), p)
        rows.append(row)
    columns = ["family", "versus", "outcome", "budget", "value", "other", "difference"]
    table = pd.DataFrame(rows, columns=[*columns, "low", "high", "p"])
    table["adjusted"] = np.nan
    tested = table[table["budget"] == primary]
    for _, part in tested.groupby(tested["versus"] == SAMPLING):
        table.loc[part.index, "adjusted"] = holm(part["p"].to_numpy())
    return table


def complement(
    chosen: Sequence[Chosen], ordered: Mapping[str, Curve], n: int, bootstrap: Bootstrap
) -> pd.DataFrame:
    """Return what two families at half of N answers each solve beyond N of the better.

    Which is better is decided on training questions. Columns family, other, n, better, both (their
    Pass@N with half of the answers each), alone (of the better), difference, low, high, and the
    correlation between questions of the share of members that are right.
    """
    half = n // 2
    rows = []
    for one, two in combinations(chosen, 2):
        missed = [1 - ordered[each.family].values["pass"][:, half - 1] for each in (one, two)]
        better = max((one, two), key=lambda each: worth(each.candidate.train, n))
        alone = ordered[better.family].values["pass"][:, n - 1]
        both = 1 - missed[0] * missed[1]
        low, high = bootstrap.interval(both - alone)
        right = [each.test.correct.mean(axis=1) for each in (one, two)]
        varied = all(each.std() > 0 for each in right)
        rows.append(
            {
                "family": one.family,
                "other": two.family,
                "n": n,
                "better": better.family,
                "both": both.mean(),
                "alone": alone.mean(),
                "difference": (both - alone).mean(),
                "low": float(low),
                "high": float(high),
                "correlation": np.corrcoef(*right)[0, 1] if varied else np.nan,
            }
        )
    return pd.DataFrame(rows)
