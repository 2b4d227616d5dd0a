"""Pass@N of SPRINT beside its baselines, with diversity and cost at the same N.

All methods read answers that exist; nothing is generated. A method either orders answers (the
first N count) or draws them (exact expectation). A method with a single answer, or with fewer than
N, stays at its last value.
"""

from collections.abc import Mapping
from dataclasses import dataclass, fields

import numpy as np
import pandas as pd
from jaxtyping import Bool, Float, Int

from headroom.sprint import methods
from headroom.statistics import answers as together
from headroom.statistics.bootstrap import Bootstrap
from headroom.statistics.pass_at_n import extend, pass_at_n_drawn, pass_at_n_ordered
from headroom.tables import CURVES

PAIRED_N = (1, 2, 4, 8, 16)
"""Where SPRINT is compared with each other method, question by question."""

DIVERSITY = ["method", "n", "pass_at_n", "distinct_answers", "distinct_low", "distinct_high"]
DIVERSITY += ["agreement", "agreement_low", "agreement_high", "tokens", "longest"]
"""Columns of the table of diversity and cost at equal N, means over questions: distinct final
answers by value and the share of pairs that agree, with 95% bootstrap intervals; generated tokens
of all N answers and of the longest."""


PAIRED = ["method", "n", "difference", "low", "high"]
"""Columns of the paired table: SPRINT minus a method at N, with its 95% interval."""


@dataclass(frozen=True)
class Answers:
    """What is known of some answers to each question."""

    correct: Bool[np.ndarray, "questions answers"]
    group: Int[np.ndarray, "questions answers"]
    """Equal answers to a question share a label; -1 for none."""
    tokens: Int[np.ndarray, "questions answers"]

    def select(self, order: Int[np.ndarray, "*questions chosen"]) -> "Answers":
        """Return the answers of some columns, in their order: one order for all questions or each.

        Args:
            order: column numbers.
        """
        rows = np.broadcast_to(order, (len(self.correct), np.shape(order)[-1]))
        return Answers(
            *(np.take_along_axis(getattr(self, field.name), rows, 1) for field in fields(self))
        )

    def of(self, questions: Int[np.ndarray, " chosen"]) -> "Answers":
        """Return the answers to some questions, by row number."""
        return Answers(*(getattr(self, field.name)[questions] for field in fields(self)))


@dataclass(frozen=True)
class Scores:
    """What a method reaches on each question with N = 1..max_n answers; NaN where undefined."""

    pass_at_n: Float[np.ndarray, "questions max_n"]
    majority: Float[np.ndarray, "questions max_n"]
    distinct_answers: Float[np.ndarray, "questions max_n"]
    agreement: Float[np.ndarray, "questions max_n"]
    tokens: Float[np.ndarray, "questions max_n"]
    longest: Float[np.ndarray, "questions max_n"]
    """Tokens of the longest answer: the steps that N answers take side by side."""


def ordered(answers: Answers, max_n: int) -> Scores:
    """Score a method that takes answers in the order of their columns."""
    return Scores(
        pass_at_n=pass_at_n_ordered(answers.correct, max_n),
        majority=together.majority_ordered(answers.group, answers.correct, max_n),
        distinct_answers=together.distinct_ordered(answers.group, max_n),
        agreement=together.agreement_ordered(answers.group, max_n),
        tokens=extend(answers.tokens.cumsum(axis=1).astype(float), max_n),
        longest=together.largest_ordered(answers.tokens, max_n),
    )


def drawn(answers: Answers, max_n: int) -> Scores:
    """Score a method that draws answers at random, without replacement."""
    count = np.arange(1, answers.tokens.shape[1] + 1)
    return Scores(
        pass_at_n=pass_at_n_drawn(answers.correct, max_n),
        majority=together.majority_drawn(answers.group, answers.correct, max_n),
        distinct_answers=together.distinct_drawn(answers.group, max_n),
        agreement=together.agreement_drawn(answers.group, max_n),
        tokens=extend(answers.tokens.mean(axis=1, keepdims=True) * count, max_n),
        longest=together.largest_drawn(answers.tokens, max_n),
    )


def oracle(answers: Answers, max_n: int) -> Scores:
    """Score the ceiling: a question is solved if any head of the pool solves it.

    An oracle that knows the answers needs one head a question, so the ceiling does not depend on N.
    """
    undefined = np.full((len(answers.correct), max_n), np.nan)
    solved = answers.correct.any(axis=1, keepdims=True).astype(float)
    return Scores(extend(solved, max_n), *[undefined] * (len(fields(Scores)) - 1))


def curves(scores: Mapping[str, Scores], bootstrap: Bootstrap) -> pd.DataFrame:
    """Return Pass@N with 95% intervals, diversity and cost: columns of `headroom.tables.CURVES`.

    Args:
        scores: by method, all on the same questions.
        bootstrap: resamples of these questions. Its intervals are about the choice of test
            questions; a trained selector counts as given.
    """
    parts = []
    for method in methods.in_display_order(list(scores)):
        score = scores[method]
        low, high = bootstrap.interval(score.pass_at_n)
        names = [field.name for field in fields(score) if field.name in CURVES.names]
        means = {name: getattr(score, name).mean(axis=0) for name in names}
        n = np.arange(1, len(low) + 1)
        parts.append(pd.DataFrame({"method": method, "n": n, "low": low, "high": high, **means}))
    return pd.concat(parts, ignore_index=True)


def diversity(scores: Mapping[str, Scores], bootstrap: Bootstrap) -> pd.DataFrame:
    """Return how different a method's N answers are and what they cost: columns `DIVERSITY`.

    The oracle, which has no answers of its own, is left out. Tokens of SPRINT do not count the
    question, which is embedded once.
    """
    parts = []
    for method in methods.in_display_order([name for name in scores if name != methods.ORACLE]):
        score = scores[method]
        points = np.array([n for n in PAIRED_N if n <= score.tokens.shape[1]])
        part = pd.DataFrame({"method": method, "n": points})
        for name, short in (("distinct_answers", "distinct"), ("agreement", "agreement")):
            values = getattr(score, name)[:, points - 1]
            low, high = bootstrap.interval(values)
            part[[name, f"{short}_low", f"{short}_high"]] = np.array(
                [values.mean(axis=0), low, high]
            ).T
        for name in ("pass_at_n", "tokens", "longest"):
            part[name] = getattr(score, name)[:, points - 1].mean(axis=0)
        parts.append(part)
    return pd.concat(parts, ignore_index=True)[DIVERSITY]


def paired(scores: Mapping[str, Scores], bootstrap: Bootstrap) -> pd.DataFrame:
    """Return Pass@N of SPRINT minus that of every other method, with paired 95% intervals."""
    sprint = scores[methods.SPRINT].pass_at_n
    points = np.array([n for n in PAIRED_N if n <= sprint.shape[1]])
    parts = []
    for method in methods.in_display_order([name for name in scores if name != methods.SPRINT]):
        difference = (sprint - scores[method].pass_at_n)[:, points - 1]
        low, high = bootstrap.interval(difference)
        mean = difference.mean(axis=0)
        parts.append(
            pd.DataFrame(
                {"method": method, "n": points, "difference": mean, "low": low, "high": high}
            )
        )
    return pd.concat(parts, ignore_index=True)[PAIRED]
