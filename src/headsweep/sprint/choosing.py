"""Choosing one of N answers without knowing the right one: how much of Pass@N is left.

Pass@N counts a question as solved if any of N answers is right; a user who wants one answer has to
choose. These rules work without the oracle and are compared with it:

- ``first``: the nearest head's answer, or a single sample.
- ``majority``: the answer with the most votes; ties are broken at random, in expectation.
- ``agreement``: the same with weighted votes. A head's weight is the share of other heads whose
  answers to the training questions equal its own; no right answers are needed.
- ``verifier``: the answer that a logistic regression on votes, rank and length rates most likely to
  be right. It is trained on training questions that the selector had not seen.

Grading decides which answers are equal: all right answers to a question count as one, however they
are written, which slightly favours every rule that counts votes.
"""

from collections.abc import Mapping

import numpy as np
import pandas as pd
from jaxtyping import Bool, Float

from headsweep.sprint.evaluation import POINTS, Answers, Scores, Values, estimated
from headsweep.statistics import answers as together
from headsweep.statistics.intervals import Bootstrap, interval_of

ORACLE, FIRST, MAJORITY = "oracle", "first", "majority"
AGREEMENT, VERIFIER = "agreement", "verifier"

COLUMNS = ["method", "rule", "n", "accuracy", "low", "high"]
COLUMNS += ["recovered", "recovered_low", "recovered_high"]
COLUMNS += ["over_majority", "over_low", "over_high"]
"""Columns of the table: the share of questions that a rule answers correctly, that share divided by
Pass@N, and its lead over the majority, each with a 95% bootstrap interval over questions."""

Rules = dict[str, Values]
"""By rule, for N = 1..max_n: the probability that the chosen answer is right, often 0 or 1."""


def agreement_with_others(answers: Answers) -> Float[np.ndarray, " answers"]:
    """Return, for each column, the share of (question, other column) pairs with an equal answer."""
    group, answered = answers.group, answers.group != together.NO_ANSWER
    pairs = len(group) * max(1, group.shape[1] - 1)
    same = [
        (group == column[:, np.newaxis])[given].sum() - given.sum()
        for column, given in zip(group.T, answered.T, strict=True)
    ]
    return np.array(same) / pairs


def learnt(
    answers: Answers,
    weight: Float[np.ndarray, "questions answers"],
    held_out: Answers,
    max_n: int,
) -> Rules:
    """Score the rules that learn, on answers in the order of their columns, nearest head first.

    The weight of each vote is for ``agreement``; ``verifier`` is trained on the held-out answers.
    """
    voted = together.majority_ordered(answers.group, answers.correct, max_n, weight)
    verified = [_verified(held_out, answers, n + 1) for n in range(max_n)]
    return {AGREEMENT: voted, VERIFIER: np.stack(verified, axis=1)}


def compare(
    scores: Mapping[str, Scores], learning: Mapping[str, Rules], bootstrap: Bootstrap
) -> pd.DataFrame:
    """Compare the rules of some methods with the oracle and with the majority: columns `COLUMNS`.

    Intervals take trained models as fixed.

    Args:
        scores: by method, from which the rules follow that do not learn.
        learning: `learnt`, of the methods that have it.
        bootstrap: resamples of the questions.
    """
    parts = []
    for method, score in scores.items():
        voted, max_n = score["majority"], score["majority"].shape[1]
        first = together.extend(voted[:, :1], max_n)
        rules = {ORACLE: score["pass_at_n"], FIRST: first, MAJORITY: voted}
        rules |= learning.get(method, {})
        shown = np.array([n for n in POINTS if n <= max_n])
        at = {rule: values[:, shown - 1] for rule, values in rules.items()}
        for rule, values in at.items():
            part = pd.DataFrame({"method": method, "rule": rule, "n": shown})
            lead, ends = values - at[MAJORITY], ("over_majority", "over_low", "over_high")
            part = part.assign(**estimated(values, bootstrap, "accuracy", "low", "high"))
            part = part.assign(**estimated(lead, bootstrap, *ends))
            part["recovered"] = _ratio(values.mean(axis=0), at[ORACLE].mean(axis=0))
            resampled = _ratio(bootstrap.means(values), bootstrap.means(at[ORACLE]))
            part["recovered_low"], part["recovered_high"] = interval_of(resampled)
            parts.append(part)
    return pd.concat(parts, ignore_index=True)[COLUMNS]


def _ratio(value: np.ndarray, ceiling: np.ndarray) -> np.ndarray:
    """Return the share of the ceiling that a rule reaches; 1 where the ceiling is 0."""
    return np.divide(value, ceiling, out=np.ones_like(value), where=ceiling > 0)


def _verified(held_out: Answers, answers: Answers, n: int) -> Float[np.ndarray, " questions"]:
    """Return 1 where the verifier's choice among the first N answers is right, else 0."""
    # Imported here because it is slow and most of a selector's jobs do not need it.
    from sklearn.linear_model import LogisticRegression
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler

    facts, first = _candidates(held_out, n)
    features, right = facts[first], held_out.correct[:, :n][first]
    facts, first = _candidates(answers, n)
    scores = np.full(first.shape, -np.inf)
    if 0 < right.sum() < len(right) and first.any():
        verifier = make_pipeline(StandardScaler(), LogisticRegression()).fit(features, right)
        scores[first] = verifier.decision_function(facts[first])
    else:  # nothing to learn from: go by votes
        scores[first] = facts[first][:, 0]
    chosen = scores.argmax(axis=1)  # ties go to the nearest
    return answers.correct[np.arange(len(chosen)), chosen].astype(float)


def _candidates(
    answers: Answers, n: int
) -> tuple[Float[np.ndarray, "questions n 3"], Bool[np.ndarray, "questions n"]]:
    """Return features of each of the first N answers, and which are the first of their group.

    The features are those of its group of equal answers: share of votes, mean rank, and mean
    number of tokens relative to the question's mean. The first answer of a group is its candidate.
    """
    same = together.same_answers(answers.group[:, :n])
    votes = np.maximum(same.sum(axis=2), 1)
    rank = (same * np.arange(n)).sum(axis=2) / votes
    tokens = answers.tokens[:, np.newaxis, :n]
    length = (same * tokens).sum(axis=2) / votes / np.maximum(tokens.mean(axis=2), 1)
    first = same[:, range(n), range(n)] & ~np.tril(same, k=-1).any(axis=2)
    return np.stack([votes / n, rank / n, length], axis=2), first
