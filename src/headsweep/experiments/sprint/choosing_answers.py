"""Choosing one of N answers without knowing the right one: how much of Pass@N is left.

Pass@N counts a question as solved if any of N answers is right; a user who wants one answer has to
choose. These rules work without the oracle and are compared with it:

- ``first``: the nearest head's answer, or a single sample.
- ``majority``: the answer with the most votes; ties are broken at random, in expectation.
- ``agreement``: the same with weighted votes. A head's weight is the share of other heads whose
  answers to the training questions equal its own; no right answers are needed.
- ``verifier``: the answer that a logistic regression on votes, rank and length rates most likely to
  be right. It is trained on training questions that the selector had not seen.

Answers are equal if the grader's form of them is (`headsweep.grading.graders`): no gold answer
merges the right ones, and `headsweep solve` counts votes alike.
"""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import pandas as pd
from jaxtyping import Bool, Float

from headsweep.experiments.sprint.evaluation import SHOWN_N, TESTED
from headsweep.experiments.sprint.pass_at_n import Answers, Trained, Values, estimated, outcomes
from headsweep.experiments.sprint.validation import Order
from headsweep.statistics import answers as several
from headsweep.statistics.differences import Outcomes, largest_n
from headsweep.statistics.differences import compare as compare_all
from headsweep.statistics.intervals import Bootstrap, interval_of

if TYPE_CHECKING:
    from sklearn.pipeline import Pipeline

ORACLE, FIRST, MAJORITY = "oracle", "first", "majority"
AGREEMENT, VERIFIER = "agreement", "verifier"

_LEAD = ["over_majority", "over_low", "over_high", "over_p", "over_adjusted"]
COLUMNS = [
    "method",
    "rule",
    "n",
    "accuracy",
    "low",
    "high",
    "recovered",
    "recovered_low",
    "recovered_high",
    *_LEAD,
]
"""Columns of the table: the share of questions that a rule answers correctly, and that share
divided by Pass@N, each with a 95% bootstrap interval over questions; its lead over the majority of
the same answers, with an interval that also covers seeds and draws of training questions, p, and p
after Holm's correction over all rules and methods at this N. The majority and the oracle have no
lead."""

Rules = dict[str, Values]
"""By rule, for N = 1..max_n: the probability that the chosen answer is right, often 0 or 1."""


def agreement_with_others(answers: Answers) -> Float[np.ndarray, " answers"]:
    """Return, for each column, the share of (question, other column) pairs with an equal answer."""
    questions, columns = answers.group.shape
    equal_answers = []
    for own in answers.group.T:
        answered = own != several.NO_ANSWER
        equal = answers.group[answered] == own[answered, np.newaxis]
        equal_answers.append(equal.sum() - answered.sum())  # but for those to itself
    return np.array(equal_answers) / (questions * max(1, columns - 1))


class Learnt(NamedTuple):
    """What the rules that learn know of the pool's heads."""

    weight: Float[np.ndarray, " answers"]
    """Of each head's vote, for ``agreement``."""
    verifiers: "Sequence[Pipeline | None]"
    """The verifier of the first N answers, for N = 1..max_n; None: there is nothing to learn."""

    def choose(self, answers: Answers, order: Order) -> Rules:
        """Score the rules on answers in each question's order, nearest head first."""
        nearest = answers.select(order)
        max_n = len(self.verifiers)
        voted = several.majority_ordered(nearest.group, nearest.correct, max_n, self.weight[order])
        verified = [
            _verified(verifier, nearest, n) for n, verifier in enumerate(self.verifiers, start=1)
        ]
        return {AGREEMENT: voted, VERIFIER: np.stack(verified, axis=1)}


def learn(training: Answers, held_out: Answers, max_n: int) -> Learnt:
    """Learn from answers to training questions.

    Args:
        training: of the whole pool.
        held_out: nearest head first, ranked by a selector that did not know the question.
        max_n: largest N.
    """
    verifiers = [_fitted(held_out, n) for n in range(1, max_n + 1)]
    return Learnt(agreement_with_others(training), verifiers)


def compare(
    scores: Mapping[str, Trained],
    learning: Mapping[str, Mapping[str, Outcomes]],
    bootstrap: Bootstrap,
) -> pd.DataFrame:
    """Compare the rules of some methods with the oracle and with the majority: columns `COLUMNS`.

    Args:
        scores: by method, from which the rules follow that do not learn.
        learning: by method and rule, what those reach that learn (`Learnt.choose`).
        bootstrap: resamples of the questions; they take trained models as fixed.
    """
    voted = outcomes(scores, "majority")
    rules: dict[tuple[str, str], Outcomes] = {}
    for method, passed in outcomes(scores, "pass_at_n").items():
        rules[method, ORACLE] = passed
        rules[method, FIRST] = [
            [several.extend(values[:, :1], values.shape[1]) for values in seeds]
            for seeds in voted[method]
        ]
        rules[method, MAJORITY] = voted[method]
        rules |= {(method, rule): chosen for rule, chosen in learning.get(method, {}).items()}
    max_n = largest_n(next(iter(rules.values())))
    led = [(key, (key[0], MAJORITY)) for key in rules if key[1] not in (ORACLE, MAJORITY)]
    leads = compare_all(rules, led, range(1, max_n + 1))
    leads[["method", "rule"]] = leads["method"].tolist()
    leads = leads[["method", "rule", "n", *TESTED]].set_axis(
        ["method", "rule", "n", *_LEAD], axis=1
    )
    shown = np.array([n for n in SHOWN_N if n <= max_n])
    parts = []
    for (method, rule), chosen in rules.items():
        values = np.mean(chosen[0], axis=0)[:, shown - 1]
        best = np.mean(rules[method, ORACLE][0], axis=0)[:, shown - 1]
        part = pd.DataFrame({"method": method, "rule": rule, "n": shown})
        part = part.assign(**estimated(values, bootstrap, "accuracy", "low", "high"))
        part["recovered"] = _ratio(values.mean(axis=0), best.mean(axis=0))
        resampled = _ratio(bootstrap.means(values), bootstrap.means(best))
        part["recovered_low"], part["recovered_high"] = interval_of(resampled)
        parts.append(part)
    table = pd.concat(parts, ignore_index=True)
    return table.merge(leads, on=["method", "rule", "n"], how="left")[COLUMNS]


def _ratio(value: np.ndarray, ceiling: np.ndarray) -> np.ndarray:
    """Return the share of the ceiling that a rule reaches; 1 where the ceiling is 0."""
    return np.divide(value, ceiling, out=np.ones_like(value), where=ceiling > 0)


def _fitted(held_out: Answers, n: int) -> "Pipeline | None":
    """Return a regression that tells right answers among the first N from wrong ones."""
    # Imported here because it is slow and most of a selector's jobs do not need it.
    from sklearn.linear_model import LogisticRegression
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler

    facts, first = _candidates(held_out, n)
    right = held_out.correct[:, :n][first]
    if not 0 < right.sum() < len(right):
        return None
    return make_pipeline(StandardScaler(), LogisticRegression()).fit(facts[first], right)


def _verified(
    verifier: "Pipeline | None", answers: Answers, n: int
) -> Float[np.ndarray, " questions"]:
    """Return 1 where the verifier's choice among the first N answers is right, else 0.

    Without a verifier the choice goes by votes.
    """
    facts, first = _candidates(answers, n)
    scores = np.full(first.shape, -np.inf)
    if verifier is None:
        scores[first] = facts[first][:, 0]
    elif first.any():
        scores[first] = verifier.decision_function(facts[first])
    chosen = scores.argmax(axis=1)  # ties go to the nearest
    return answers.correct[np.arange(len(chosen)), chosen].astype(float)


def _candidates(
    answers: Answers, n: int
) -> tuple[Float[np.ndarray, "questions n 3"], Bool[np.ndarray, "questions n"]]:
    """Return features of each of the first N answers, and which are the first of their group.

    The features are those of its group of equal answers: share of votes, mean rank, and mean
    number of tokens relative to the question's mean. The first answer of a group is its candidate.
    """
    members = several.same_answers(answers.group[:, :n])
    votes = np.maximum(members.sum(axis=2), 1)
    mean_rank = (members * np.arange(n)).sum(axis=2) / votes
    tokens = answers.tokens[:, np.newaxis, :n]
    length = (members * tokens).sum(axis=2) / votes / np.maximum(tokens.mean(axis=2), 1)
    is_answered = members[:, range(n), range(n)]
    equals_an_earlier_one = np.tril(members, k=-1).any(axis=2)
    is_candidate = is_answered & ~equals_an_earlier_one
    return np.stack([votes / n, mean_rank / n, length], axis=2), is_candidate
