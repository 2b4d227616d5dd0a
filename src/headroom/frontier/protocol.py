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
from dataclasses import dataclass, replace
from itertools import combinations

import numpy as np
import pandas as pd
from jaxtyping import Float
from scipy.special import ndtr

from headroom.sprint.evaluation import Answers, Scores, drawn, ordered
from headroom.sprint.rankers import greedy_cover
from headroom.statistics.answers import pass_at_n_drawn
from headroom.statistics.bootstrap import Bootstrap, interval_of
from headroom.statistics.paired import holm

BUDGETS = (1, 2, 4, 8, 16)
"""Tokens of all answers, as multiples of the mean of the base model's answer."""

OUTCOMES = {"pass": "pass_at_n", "majority": "majority"}
"""Score by outcome: whether one of N answers is right; whether their majority is."""

SAMPLING = "sampling"
"""The family that all others are held against: samples of the base model. They have no order."""


@dataclass(frozen=True)
class Family:
    """A family at one scale."""

    name: str
    title: str
    scale: str
    members: Sequence[str]
    """Names of variants, or of samples."""
    work: Sequence[float]
    """Work of each member's token as a share of the base model's."""
    train: Answers
    """A column for each member, of training questions."""
    test: Answers


def worth(family: Family, max_n: int) -> float:
    """Return what a scale is chosen by: Pass@N on training questions, mean over N.

    Members are drawn, so that no order is chosen with it.
    """
    return float(pass_at_n_drawn(family.train.correct, max_n).mean())


def choose(scales: Sequence[Family], max_n: int) -> Family:
    """Choose a family's scale on training questions, and order its members by their greedy cover.

    Ties go to the first scale.
    """
    best = max(scales, key=lambda each: worth(each, max_n))
    if best.name == SAMPLING:
        return best
    order = greedy_cover(best.train.correct)
    members, work = ([part[place] for place in order] for part in (best.members, best.work))
    train, test = best.train.select(order), best.test.select(order)
    return replace(best, members=members, work=work, train=train, test=test)


def curve(family: Family, prompts: float, max_n: int, *, by_order: bool) -> Scores:
    """Return a family's scores on the test questions for N = 1 to `max_n`, or all members.

    Args:
        family: the family.
        prompts: mean length of a prompt in tokens, which are ``computed``, too.
        max_n: largest N.
        by_order: whether members come in their order; else they are drawn.
    """
    score = ordered if by_order and family.name != SAMPLING else drawn
    scores = score(family.test, min(max_n, len(family.members)))
    return scores | {"computed": scores["computed"] + prompts * scores["prompts"]}


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


def primary_budget(curves: Mapping[str, Scores], base_tokens: float) -> int | None:
    """Return the largest of `BUDGETS` up to 8 that all families reach; None if there is none."""
    reached = [
        b
        for b in BUDGETS[:4]
        if all(
            each["tokens"][:, 0].mean() <= b * base_tokens <= each["tokens"][:, -1].mean()
            for each in curves.values()
        )
    ]
    return max(reached, default=None)


def compare(
    curves: Mapping[str, Scores],
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
        name: {of: bootstrap.means(each[of]) for of in ("tokens", *OUTCOMES.values())}
        for name, each in curves.items()
    }
    of_base = bootstrap.means(base)
    rows = []
    for (name, other), outcome, budget in (
        (pair, outcome, budget) for pair in pairs for outcome in OUTCOMES for budget in BUDGETS
    ):
        found, again = [], []
        for each in (name, other):
            mean, tokens = (curves[each][of].mean(axis=0) for of in (OUTCOMES[outcome], "tokens"))
            found.append(float(at_budget(mean, tokens, np.array(budget * base.mean()))))
            means = resampled[each]
            again.append(at_budget(means[OUTCOMES[outcome]], means["tokens"], budget * of_base))
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
    families: Sequence[Family], curves: Mapping[str, Scores], n: int, bootstrap: Bootstrap
) -> pd.DataFrame:
    """Return what two families at half of N answers each solve beyond N of the better.

    Which is better is decided on training questions; `curves` are ordered. Columns family, other,
    n, better, both (their Pass@N with half of the answers each), alone (of the better), difference,
    low, high, and the correlation between questions of the share of members that are right.
    """
    half = n // 2
    rows = []
    for pair in combinations(families, 2):
        missed = [1 - curves[each.name]["pass_at_n"][:, half - 1] for each in pair]
        better = max(pair, key=lambda each: worth(each, n)).name
        alone = curves[better]["pass_at_n"][:, n - 1]
        both = 1 - missed[0] * missed[1]
        low, high = bootstrap.interval(both - alone)
        right = [each.test.correct.mean(axis=1) for each in pair]
        varied = all(each.std() > 0 for each in right)
        rows.append(
            {
                "family": pair[0].name,
                "other": pair[1].name,
                "n": n,
                "better": better,
                "both": both.mean(),
                "alone": alone.mean(),
                "difference": (both - alone).mean(),
                "low": float(low),
                "high": float(high),
                "correlation": np.corrcoef(*right)[0, 1] if varied else np.nan,
            }
        )
    return pd.DataFrame(rows)
