"""What a method that asks several answers reaches on each question, for N = 1, 2, ... of them.

A method either orders its answers (the first N count) or draws them (exact expectation). A method
that orders fewer than N answers stays at its last value; one that draws ends where they end.
"""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np
from jaxtyping import Bool, Float, Int

from headsweep.statistics import answers as several
from headsweep.statistics.differences import Outcomes
from headsweep.statistics.intervals import Bootstrap, share_interval

Values = Float[np.ndarray, "questions max_n"]
"""A method's value on each question with N = 1..max_n answers; NaN where undefined."""

Scores = dict[str, Values]
"""By measure: ``pass_at_n``; accuracy of the ``majority``; ``distinct_answers``; ``agreement`` of
pairs; ``tokens`` of all answers, and weighted by their work, ``computed``; tokens of the
``longest``, the number of steps in which N answers are generated in one batch; ``prompts``, passes
of the prompt through the model, where layers that answers share are computed once."""

Trained = Sequence[Sequence[Scores]]
"""Scores by draw of the training questions and by seed, as `Outcomes` are."""


class Answers(NamedTuple):
    """Some graded answers to each question."""

    correct: Bool[np.ndarray, "questions answers"]
    group: Int[np.ndarray, "questions answers"]
    """Equal answers to a question share a label; -1 where there is no answer."""
    tokens: Int[np.ndarray, "questions answers"]
    """Generated tokens."""
    shared: Float[np.ndarray, "questions answers"]
    """Share of the model's layers that process the prompt as in the base model: all for the base
    model and its samples, those below the head's own layer for a pruned head."""
    alone: Float[np.ndarray, "questions answers"]
    """Share of the layers that process the prompt for this answer alone."""

    @property
    def work(self) -> Float[np.ndarray, "questions answers"]:
        """The work of a token as a share of the base model's."""
        return self.shared + self.alone

    def select(self, order: Int[np.ndarray, "*questions chosen"]) -> "Answers":
        """Return the answers in the columns `order`, the same for all questions or one row each."""
        rows = np.broadcast_to(order, (len(self.correct), np.shape(order)[-1]))
        return Answers(*(np.take_along_axis(part, rows, 1) for part in self))


def ordered(answers: Answers, max_n: int) -> Scores:
    """Score a method that takes answers in the order of their columns."""
    correct, group, tokens, shared, alone = answers
    passes = np.maximum.accumulate(shared, axis=1) + alone.cumsum(axis=1)
    return {
        "pass_at_n": several.pass_at_n_ordered(correct, max_n),
        "majority": several.majority_ordered(group, correct, max_n),
        "distinct_answers": several.distinct_ordered(group, max_n),
        "agreement": several.agreement_ordered(group, max_n),
        "tokens": several.extend(tokens.cumsum(axis=1).astype(float), max_n),
        "computed": several.extend((tokens * answers.work).cumsum(axis=1), max_n),
        "longest": several.largest_ordered(tokens, max_n),
        "prompts": several.extend(passes, max_n),
    }


def drawn(answers: Answers, max_n: int) -> Scores:
    """Score a method that draws answers without replacement; NaN where N exceeds their number."""
    correct, group, tokens, shared, alone = answers
    count = np.arange(1, tokens.shape[1] + 1)

    def expected_sums(values: np.ndarray) -> Values:
        """Return expected sums over N drawn answers: N times the mean."""
        return several.extend(values.mean(axis=1, keepdims=True) * count, max_n)

    scores = {
        "pass_at_n": several.pass_at_n_drawn(correct, max_n),
        "majority": several.majority_drawn(group, correct, max_n),
        "distinct_answers": several.distinct_drawn(group, max_n),
        "agreement": several.agreement_drawn(group, max_n),
        "tokens": expected_sums(tokens),
        "computed": expected_sums(tokens * answers.work),
        "longest": several.largest_drawn(tokens, max_n),
        "prompts": several.largest_drawn(shared, max_n) + expected_sums(alone),
    }
    for values in scores.values():
        values[:, len(count) :] = np.nan
    return scores


def mean_over(scores: Sequence[Scores]) -> Scores:
    """Return the mean of a method's scores over its seeds, question by question."""
    return {name: np.mean([seed[name] for seed in scores], axis=0) for name in scores[0]}


def estimated(
    values: Float[np.ndarray, "questions columns"],
    bootstrap: Bootstrap,
    mean: str,
    low: str,
    high: str,
) -> dict[str, Float[np.ndarray, " columns"]]:
    """Return means over questions and the ends of their 95% intervals, under the names given.

    Values are shares, from 0 to 1.
    """
    lowest, highest = share_interval(values, bootstrap)
    return {mean: values.mean(axis=0), low: lowest, high: highest}


def outcomes(methods: Mapping[str, Trained], measure: str) -> dict[str, Outcomes]:
    """Return one measure of each method that has it."""
    return {
        method: [[scores[measure] for scores in seeds] for seeds in draws]
        for method, draws in methods.items()
        if measure in draws[0][0]
    }
