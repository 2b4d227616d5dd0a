"""How families of variants compare: all is chosen on training questions, then tested once.

A family offers M members, such as models without one head, or samples; its scale (the temperature
of samples) and the order of its members are chosen on training questions. Two curves follow over
N = 1, 2, ...: *drawn* takes N members at random (the exact expectation), *ordered* takes the first
N of the order, a greedy cover of the training questions. Samples have no order: their ordered curve
is the drawn one.

Families are compared at equal numbers of generated tokens, b times the mean of the base model's
answer, where their curves are linear between N and N + 1 (`headsweep.statistics.budget`).
"""

from collections.abc import Mapping, Sequence
from itertools import combinations, product
from typing import NamedTuple

import numpy as np
import pandas as pd
from jaxtyping import Bool, Float

from headsweep.experiments.sprint.pass_at_n import Answers, Scores, drawn, ordered
from headsweep.experiments.sprint.rankers import greedy_cover
from headsweep.statistics.answers import pass_at_n_drawn
from headsweep.statistics.budget import at_budgets, misses, reaches
from headsweep.statistics.differences import Outcomes
from headsweep.statistics.differences import compare as paired
from headsweep.statistics.intervals import Bootstrap

BUDGETS = (1, 2, 4, 8, 16)
"""Tokens of all answers, as multiples of the mean of the base model's answer."""

SCORE_OF_OUTCOME = {"pass": "pass_at_n", "majority": "majority"}
"""Score by outcome: whether one of N answers is right; whether their majority is."""

UNREACHED = 0.05
"""A difference is left out where a curve misses its budget in a larger share of the resamples."""

COMPLEMENT = [
    "family",
    "other",
    "n",
    "better",
    "both",
    "alone",
    "difference",
    "low",
    "high",
    "correlation",
]
"""Columns of `complement`: two families, N, which of the two is better; Pass@N of both with half of
the answers each, and of the better alone; the difference with its interval; and the correlation
between questions of the share of members that are right."""

DIFFERENCES = [
    "family",
    "versus",
    "outcome",
    "budget",
    "value",
    "other",
    "difference",
    "low",
    "high",
    "p",
    "adjusted",
    "unreached",
]
"""Columns of the table of paired differences; `unreached` is the share of resamples of the
questions in which one of the two curves does not reach the budget."""

SAMPLING = "sampling"
"""The family that all others are held against: samples of the base model. They have no order."""


class AnsweredFamily(NamedTuple):
    """A family at one scale, with a column of answers for each member."""

    name: str
    scale: str
    members: Sequence[str]
    """Names of variants, or of samples."""
    train: Answers
    test: Answers


def worth(family: AnsweredFamily, max_n: int) -> float:
    """Return what a scale is chosen by: Pass@N on training questions, mean over N.

    Members are drawn, so that no order is chosen with it.
    """
    return float(pass_at_n_drawn(family.train.correct, max_n).mean())


def choose(scales: Sequence[AnsweredFamily], max_n: int) -> AnsweredFamily:
    """Choose a family's scale on training questions, and order its members by their greedy cover.

    Ties go to the first scale.
    """
    best = max(scales, key=lambda family: worth(family, max_n))
    if best.name == SAMPLING:
        return best
    order = greedy_cover(best.train.correct)
    members = [best.members[place] for place in order]
    train, test = best.train.select(order), best.test.select(order)
    return best._replace(members=members, train=train, test=test)


def curve(family: AnsweredFamily, prompts: float, max_n: int, *, by_order: bool) -> Scores:
    """Return a family's scores on the test questions for N = 1 to `max_n`, or all members.

    Members come in their order, or are drawn. The tokens of a prompt, in the mean `prompts`, are
    ``computed``, too.
    """
    score = ordered if by_order and family.name != SAMPLING else drawn
    scores = score(family.test, min(max_n, len(family.members)))
    return scores | {"computed": scores["computed"] + prompts * scores["prompts"]}


def primary_budget(
    curves: Mapping[str, Scores], base: Float[np.ndarray, " questions"], bootstrap: Bootstrap
) -> int | None:
    """Return the largest of `BUDGETS` up to 8 that all families reach; None if there is none.

    They reach it on all questions, and miss it together in at most `UNREACHED` of the resamples.
    """
    tokens = [scores["tokens"] for scores in curves.values()]
    missed = np.any([misses(spent, base, BUDGETS, bootstrap) for spent in tokens], axis=0)
    return max(
        (
            budget
            for budget, share in zip(BUDGETS, missed.mean(axis=0), strict=True)
            if budget <= 8
            and share <= UNREACHED
            and all(reaches(spent, base, budget) for spent in tokens)
        ),
        default=None,
    )


class _AtBudgets(NamedTuple):
    """A family's curve, read off at `BUDGETS`."""

    values: dict[str, Float[np.ndarray, "questions budgets"]]
    """By outcome."""
    missed: Bool[np.ndarray, "resamples budgets"]
    """Whether the curve of a resample of the questions does not reach a budget."""


def differences(
    curves: Mapping[str, Scores],
    base: Float[np.ndarray, " questions"],
    bootstrap: Bootstrap,
    together: Sequence[Sequence[tuple[str, str]]],
    primary: int | None,
) -> pd.DataFrame:
    """Return paired differences at equal tokens: one family minus another.

    Members, scales and orders stay; the intervals cover the choice of questions, and with them
    tokens, the base model's mean, and so the places on the curves.

    Args:
        curves: by family.
        base: tokens of the base model's answer to each question.
        bootstrap: resamples of the questions, which say how surely a curve reaches a budget.
        together: which family minus which, in lists that are corrected together.
        primary: the budget of the tests, at which p-values are ``adjusted`` by Holm's correction
            over the pairs of a list and the outcomes.

    Returns:
        Columns `DIFFERENCES`. A budget has no row where a curve of the pair does not reach it, or
        misses it in more than `UNREACHED` of the resamples.
    """
    at_equal_tokens: dict[str, _AtBudgets] = {}
    reached: dict[tuple[str, str], Outcomes] = {}
    for name, scores in curves.items():
        tokens = scores["tokens"]
        values = {
            outcome: at_budgets(scores[score], tokens, base, BUDGETS)
            for outcome, score in SCORE_OF_OUTCOME.items()
        }
        at_equal_tokens[name] = _AtBudgets(values, misses(tokens, base, BUDGETS, bootstrap))
        reached |= {(name, outcome): [[value]] for outcome, value in values.items()}
    parts = []
    for pairs in together:
        named = [
            ((family, outcome), (versus, outcome))
            for (family, versus), outcome in product(pairs, SCORE_OF_OUTCOME)
        ]
        parts.append(paired(reached, named, BUDGETS))
    table = pd.concat(parts, ignore_index=True).rename(columns={"n": "budget"})
    if table.empty:
        return pd.DataFrame(columns=DIFFERENCES)
    table[["family", "outcome"]] = table["method"].tolist()
    table["versus"] = [versus for versus, _ in table["against"]]
    table["adjusted"] = table["adjusted"].where(table["budget"] == primary)
    places = [BUDGETS.index(budget) for budget in table["budget"]]
    for column, side in (("value", "method"), ("other", "against")):
        table[column] = [
            at_equal_tokens[name].values[outcome].mean(axis=0)[place]
            for (name, outcome), place in zip(table[side], places, strict=True)
        ]
    table["unreached"] = [
        (at_equal_tokens[family].missed | at_equal_tokens[versus].missed)[:, place].mean()
        for family, versus, place in zip(table["family"], table["versus"], places, strict=True)
    ]
    return table.loc[table["unreached"] <= UNREACHED, DIFFERENCES].reset_index(drop=True)


def complement(
    families: Sequence[AnsweredFamily], curves: Mapping[str, Scores], n: int
) -> pd.DataFrame:
    """Return what two families at half of N answers each solve beyond N of the better.

    An odd N is rounded down; with one answer there are no halves, and no rows. Training questions
    decide which is better; `curves` are ordered. Columns `COMPLEMENT`.
    """
    n -= n % 2
    if not n:
        return pd.DataFrame(columns=COMPLEMENT)
    rows = []
    for pair in combinations(families, 2):
        missed = [1 - curves[family.name]["pass_at_n"][:, n // 2 - 1] for family in pair]
        both = 1 - missed[0] * missed[1]
        better = max(pair, key=lambda family: worth(family, n)).name
        alone = curves[better]["pass_at_n"][:, n - 1]
        right = [family.test.correct.mean(axis=1) for family in pair]
        varied = all(family.std() > 0 for family in right)
        passed = {"both": [[both[:, np.newaxis]]], "alone": [[alone[:, np.newaxis]]]}
        tested = paired(passed, [("both", "alone")], [n]).iloc[0]
        row = {
            "family": pair[0].name,
            "other": pair[1].name,
            "n": n,
            "better": better,
            "both": both.mean(),
            "alone": alone.mean(),
            "difference": tested["difference"],
            "low": tested["low"],
            "high": tested["high"],
            "correlation": np.corrcoef(right[0], right[1])[0, 1] if varied else np.nan,
        }
        rows.append(row)
    return pd.DataFrame(rows, columns=COMPLEMENT)
