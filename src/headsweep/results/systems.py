"""Compares systems, whoever made them, that answered the same questions.

Differences are those of the second of a pair minus the first. With one answer a question, the test
is McNemar's exact one; with several, a system's outcome on a question is the share of right ones,
and the test is the one that belongs to the interval. A difference is shown where the corrected test
and the interval both say so. Where more than two are compared, the first is the baseline: the best
of the others is judged against the luck of so many tries, and on questions that did not choose it.
"""

from collections.abc import Mapping, Sequence
from itertools import combinations
from typing import NamedTuple

import numpy as np
import pandas as pd
from jaxtyping import Bool, Int, Real

from headsweep.statistics import differences as paired
from headsweep.statistics.answers import majority_drawn, pass_at_n_drawn
from headsweep.statistics.budget import at_budgets
from headsweep.statistics.intervals import (
    Bootstrap,
    holm,
    mcnemar,
    paired_interval,
    paired_test,
    share_interval,
    wilson,
)
from headsweep.statistics.selection import (
    FEWEST,
    RESAMPLES,
    SPLITS,
    best_gain,
    held_out_gain,
    surely_hurts,
)

_BOOTSTRAP = 4000  # resamples of questions
_SEED = 0  # of resamples, sign patterns and halves: equal answers give equal tables

_PAIRS = [
    "first",
    "second",
    "n",
    "gained",
    "lost",
    "difference",
    "low",
    "high",
    "p",
    "holm",
    "test",
]

EXACT, OF_INTERVAL = "McNemar", "paired"
"""Names of the tests."""


class Answered(NamedTuple):
    """What a system answered; all of a comparison have the same questions in the same order."""

    correct: Bool[np.ndarray, "questions answers"]
    group: Int[np.ndarray, "questions answers"] | None
    """Labels of equal answers to a question, as `headsweep.statistics.answers`; None: unknown."""
    tokens: Real[np.ndarray, "questions answers"] | None = None
    """What each answer took; None: unknown."""

    @property
    def samples(self) -> int:
        """The number of answers to each question."""
        return self.correct.shape[1]


def compared(systems: Mapping[str, Answered]) -> dict[str, pd.DataFrame]:
    """Compare two systems or more; the first is the baseline.

    Returns:
        Tables by name. ``systems``: accuracy of each, and the mean tokens of an answer, if known.
        ``pairs``: `of_pairs` of every pair, `first` and `second`. ``best``, of more than two: the
        largest gain over the baseline, what luck alone would give `by_chance`, its p-value, and the
        gain `held_out`, of whatever one half of the questions chose, on the other. Where systems
        have several answers, ``samples``: the probability that one of k is right (`pass_at_k`), and
        that their vote is (`vote_at_k`, where it is known which answers are equal); and
        ``samples_pairs``: their paired differences, with Holm's correction for each k. Where a
        system has several answers and the tokens of all are known, ``equal_tokens``: paired
        differences at the tokens of so many answers (``answers``) of the baseline, with Holm's
        correction for each number. All intervals are 95%, numbers are fractions.
    """
    tables = {"systems": _systems(systems), "pairs": _pairs(systems)}
    if len(systems) > 2:
        tables["best"] = _best(systems)
    sampled = {name: answers for name, answers in systems.items() if answers.samples > 1}
    if sampled:
        tables["samples"] = _samples(sampled)
    if len(sampled) > 1:
        tables["samples_pairs"] = _samples_pairs(sampled)
    if sampled and all(answers.tokens is not None for answers in systems.values()):
        tables |= _equal_tokens(systems)
    return tables


def of_pairs(
    differences: Real[np.ndarray, "questions pairs"], exact: Sequence[bool]
) -> pd.DataFrame:
    """Return a row for each pair: its mean difference, what it gained and lost, interval, test.

    Args:
        differences: on each question, from −1 to 1.
        exact: whether a pair has one answer a question, so that McNemar's test applies.

    Returns:
        Columns n, gained, lost (questions), difference, low, high, p, test.
    """
    low, high = paired_interval(differences)
    gained, lost = (differences > 0).sum(axis=0), (differences < 0).sum(axis=0)
    p = np.where(exact, mcnemar(differences), paired_test(differences).p)
    columns = {
        "n": len(differences),
        "gained": gained,
        "lost": lost,
        "difference": differences.mean(axis=0),
    }
    table = pd.DataFrame(columns).assign(low=low, high=high, p=p)
    return table.assign(test=np.where(exact, EXACT, OF_INTERVAL))


def _systems(systems: Mapping[str, Answered]) -> pd.DataFrame:
    rows = []
    for name, answers in systems.items():
        right = answers.correct.mean(axis=1)
        if answers.samples == 1:
            low, high = wilson(answers.correct.sum(), np.array(len(right)))
        else:
            low, high = share_interval(right, Bootstrap(len(right), _BOOTSTRAP, _SEED))
        tokens = np.nan if answers.tokens is None else answers.tokens.mean()
        row = (name, len(right), answers.samples, right.mean(), float(low), float(high), tokens)
        rows.append(row)
    columns = ["system", "n", "samples", "accuracy", "low", "high", "tokens"]
    return pd.DataFrame(rows, columns=columns).dropna(axis="columns", how="all")


def _pairs(systems: Mapping[str, Answered]) -> pd.DataFrame:
    pairs = list(combinations(systems, 2))
    right = {name: answers.correct.mean(axis=1) for name, answers in systems.items()}
    leads = np.stack([right[second] - right[first] for first, second in pairs], axis=1)
    exact = [systems[first].samples == systems[second].samples == 1 for first, second in pairs]
    table = pd.DataFrame(pairs, columns=["first", "second"])
    table = table.join(of_pairs(leads, exact))
    return table.assign(holm=holm(table["p"].to_numpy()))[_PAIRS]


def _best(systems: Mapping[str, Answered]) -> pd.DataFrame:
    baseline, *others = systems
    right = {name: answers.correct.mean(axis=1) for name, answers in systems.items()}
    leads = np.stack([right[name] - right[baseline] for name in others], axis=1)
    luck = best_gain(leads, ~surely_hurts(leads), RESAMPLES, _SEED)
    row = {
        "baseline": baseline,
        "others": len(others),
        "best": others[leads.mean(axis=0).argmax()],
        "gain": luck.gain,
        "by_chance": luck.expected,
        "p": luck.p,
        "held_out": np.nan,
        "low": np.nan,
        "high": np.nan,
    }
    if len(leads) >= FEWEST:
        held = held_out_gain(leads, np.zeros(len(leads), dtype=int), SPLITS, _SEED)
        row |= {"held_out": held.gain, "low": held.low, "high": held.high}
    return pd.DataFrame([row])


def _outcomes(answers: Answered, most: int) -> dict[str, np.ndarray]:
    """Return what k = 1..most answers reach on each question, by the way they are used."""
    outcomes = {"pass": pass_at_n_drawn(answers.correct, most)}
    if answers.group is not None:
        outcomes["vote"] = majority_drawn(answers.group, answers.correct, most)
    return outcomes


def _samples(systems: Mapping[str, Answered]) -> pd.DataFrame:
    parts = []
    for name, answers in systems.items():
        part = pd.DataFrame({"system": name, "k": np.arange(1, answers.samples + 1)})
        bootstrap = Bootstrap(len(answers.correct), _BOOTSTRAP, _SEED)
        for way, values in _outcomes(answers, answers.samples).items():
            low, high = share_interval(values, bootstrap)
            part[f"{way}_at_k"] = values.mean(axis=0)
            part[f"{way}_low"], part[f"{way}_high"] = low, high
        parts.append(part)
    return pd.concat(parts, ignore_index=True)


def _equal_tokens(systems: Mapping[str, Answered]) -> dict[str, pd.DataFrame]:
    """Return the differences of systems that spend as many tokens, if any two can.

    Answers are drawn at random, so that k of them take k times the mean of their question. None can
    where the baseline's answers have no tokens.
    """
    spent = {
        name: np.outer(answers.tokens.mean(axis=1), np.arange(1, answers.samples + 1))
        for name, answers in systems.items()
        if answers.tokens is not None
    }
    answer = next(iter(spent.values()))[:, 0]  # of the baseline
    if not answer.any():
        return {}
    most = max(tokens[:, -1].mean() for tokens in spent.values()) / answer.mean()
    budgets = [2**power for power in range(int(np.log2(most)) + 1)]
    reached = {
        name: {
            way: at_budgets(values, spent[name], answer, budgets)
            for way, values in _outcomes(answers, answers.samples).items()
        }
        for name, answers in systems.items()
    }
    differences = _differences(reached, budgets)
    if differences.empty:
        return {}
    differences.insert(2, "tokens", differences["k"] * answer.mean())
    return {"equal_tokens": differences.rename(columns={"k": "answers"})}


def _samples_pairs(systems: Mapping[str, Answered]) -> pd.DataFrame:
    most = min(answers.samples for answers in systems.values())
    outcomes = {name: _outcomes(answers, most) for name, answers in systems.items()}
    return _differences(outcomes, range(1, most + 1))


def _differences(
    outcomes: Mapping[str, Mapping[str, np.ndarray]], numbers: Sequence[int]
) -> pd.DataFrame:
    """Return the paired differences of all pairs of systems, by the way that answers are used.

    Outcomes have a row for each question and a column for each number of answers, `numbers`.
    """
    parts = []
    for way in ("pass", "vote"):
        outcome_of_system = {
            name: [[by_way[way]]] for name, by_way in outcomes.items() if way in by_way
        }
        pairs = [(second, first) for first, second in combinations(outcome_of_system, 2)]
        part = paired.compare(outcome_of_system, pairs, numbers)
        part = part.rename(columns={"method": "second", "against": "first", "n": "k"})
        part["of"] = f"{way}@k"
        parts.append(part.rename(columns={"adjusted": "holm"}))
    wanted = ["of", "k", "first", "second", "difference", "low", "high", "p", "holm"]
    return pd.concat([part for part in parts if len(part)] or parts[:1], ignore_index=True)[wanted]
