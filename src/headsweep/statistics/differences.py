"""The paired difference between two methods: one function computes all that a selector's and a
frontier's tables print, so that none is printed with two values.

Both methods answered the same questions. What a method reached may depend on three kinds of chance:
which questions were asked; the seed of its training; and the draw of the questions that it learnt
from, known from trainings on subsamples of them. The interval and the test cover all three.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd
from jaxtyping import Bool, Float

from headsweep.statistics.intervals import holm, paired_test

SUBSAMPLE = 2 / 3
"""Share of the training questions in each subsample."""

_OF_DRAWS = SUBSAMPLE / (1 - SUBSAMPLE)
"""Shao and Wu 1989 (A general theory for jackknife variance estimation): results on subsamples of
m of n questions vary (n − m) / m times as much as results on fresh draws of n questions."""

Outcomes = Sequence[Sequence[Float[np.ndarray, "questions columns"]]]
"""What a method reached on each question, by draw of the training questions (first all of them,
then subsamples), and by seed. A method that no training question or seed changes has a single one,
which is held against each of the other method's."""

MEASURES = [
    "difference",  # mean
    "low",
    "high",
    "p",  # two-sided
    "by_questions",  # standard error that comes from the choice of questions
    "by_draw",  # from the draw of training questions; NaN where it was not varied
    "by_seed",  # from the seeds, likewise
    "freedom",  # degrees, of Student's quantile in interval and test; infinite for the normal one
]


def largest_n(outcomes: Outcomes) -> int:
    """Return the largest N of outcomes whose columns are N = 1, 2, ... answers."""
    first_draw = outcomes[0]
    first_seed = first_draw[0]
    return first_seed.shape[1]


def of_questions(outcomes: Outcomes, chosen: Bool[np.ndarray, " questions"]) -> Outcomes:
    """Return the outcomes on some of the questions."""
    return [[values[chosen] for values in seeds] for seeds in outcomes]


def compare(
    outcomes: Mapping[Any, Outcomes],
    pairs: Sequence[tuple[Any, Any]],
    labels: Sequence[Any],
) -> pd.DataFrame:
    """Return the paired differences of methods, each of which is one row.

    Args:
        outcomes: by method.
        pairs: which method minus which; together they are a family of tests.
        labels: of the outcomes' columns, such as numbers of answers.

    Returns:
        Columns method, against, n (the label), `MEASURES` and ``adjusted``: p after Holm's
        correction over the pairs with the same label. A difference that is not defined has no row.

    Raises:
        ValueError: two methods have unequal numbers, above one, of draws or seeds.
    """
    parts = []
    for method, against in pairs:
        part = _difference(outcomes[method], outcomes[against])
        # Lists, as pandas would spread a method that is a tuple over the rows.
        part["method"], part["against"] = [method] * len(part), [against] * len(part)
        part["n"] = list(labels)
        parts.append(part)
    columns = ["method", "against", "n", *MEASURES]
    if not parts:
        return pd.DataFrame(columns=[*columns, "adjusted"])
    table = pd.concat(parts, ignore_index=True)[columns].dropna(subset="difference")
    by_label = table.groupby("n", sort=False)["p"]
    table["adjusted"] = by_label.transform(lambda p: holm(p.to_numpy()))
    return table.reset_index(drop=True)


def _difference(first: Outcomes, second: Outcomes) -> pd.DataFrame:
    """Return `MEASURES` of one method minus another, a row for each column of their outcomes."""
    leads = _leads(first, second)
    lead = np.mean(leads[0], axis=0)
    means = [np.stack([values.mean(axis=0) for values in seeds]) for seeds in leads]
    seeds = len(means[0])
    subsamples = len(means) - 1
    noise = np.zeros(lead.shape[1])
    sources = {}
    if seeds > 1:
        noise = np.mean([draw.var(axis=0, ddof=1) for draw in means], axis=0) / seeds
        sources["by_seed"] = noise, len(means) * (seeds - 1)
    if subsamples > 1:  # the variance between draws, less the part that the seeds explain
        between = np.var([draw.mean(axis=0) for draw in means[1:]], axis=0, ddof=1)
        sources["by_draw"] = _OF_DRAWS * np.maximum(between - noise, 0.0), subsamples - 1
    low, high, p, freedom = paired_test(lead, list(sources.values()))
    table = pd.DataFrame({"difference": lead.mean(axis=0), "low": low, "high": high, "p": p})
    table["by_questions"] = lead.std(axis=0) / np.sqrt(len(lead))
    for name in ("by_draw", "by_seed"):
        table[name] = np.sqrt(sources[name][0]) if name in sources else np.nan
    table["freedom"] = freedom
    return table


def _leads(first: Outcomes, second: Outcomes) -> Outcomes:
    """Return the difference on each question, by draw and by seed."""
    leads = []
    for first_seeds, second_seeds in _matched(first, second):
        seeds = _matched(first_seeds, second_seeds)
        leads.append([first_values - second_values for first_values, second_values in seeds])
    return leads


def _matched(first: Sequence[Any], second: Sequence[Any]) -> list[tuple[Any, Any]]:
    """Pair two lists; one of a single entry is held against all of the other."""
    count = max(len(first), len(second))
    if not {len(first), len(second)} <= {1, count}:
        raise ValueError(f"{len(first)} and {len(second)} trainings cannot be paired")
    repeated = [list(trainings) * (count // len(trainings)) for trainings in (first, second)]
    return list(zip(*repeated, strict=True))
