"""Pass@N of SPRINT beside its baselines, with diversity and cost at the same N.

All methods read answers that exist; nothing is generated. A method either orders answers (the
first N count) or draws them (exact expectation). One that orders fewer than N, such as a single
answer, stays at its last value; one that draws ends where its answers end.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields

import numpy as np
import pandas as pd
from jaxtyping import Bool, Float, Int
from scipy.special import ndtri

from headroom.sprint import methods
from headroom.sprint.validation import REDRAWN
from headroom.statistics import LEVEL
from headroom.statistics import answers as together
from headroom.statistics.bootstrap import Bootstrap
from headroom.statistics.paired import Component, paired_interval
from headroom.statistics.pass_at_n import extend, pass_at_n_drawn, pass_at_n_ordered
from headroom.tables import CURVES

PAIRED_N = (1, 2, 4, 8, 16)
"""Where SPRINT is compared with each other method, question by question."""

DIVERSITY = ["method", "n", "pass_at_n", "distinct_answers", "distinct_low", "distinct_high"]
DIVERSITY += ["agreement", "agreement_low", "agreement_high", "tokens", "longest", "prompts"]
DIVERSITY += ["computed"]
"""Columns of the table of diversity and cost at equal N, means over questions: distinct final
answers by value and the share of pairs that agree, with 95% bootstrap intervals; generated tokens
of all N answers and of the longest; how often the question passes the model."""


@dataclass(frozen=True)
class Answers:
    """What is known of some answers to each question."""

    correct: Bool[np.ndarray, "questions answers"]
    group: Int[np.ndarray, "questions answers"]
    """Equal answers to a question share a label; -1 for none."""
    tokens: Int[np.ndarray, "questions answers"]
    shared: Float[np.ndarray, "questions answers"]
    """Part of the question's passage through the model that is as in the base model: all layers
    for a sample or the base model itself, those below its own for a pruned head."""

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
    prompts: Float[np.ndarray, "questions max_n"]
    """How often the question passes the model: what answers share is computed once."""


def ordered(answers: Answers, max_n: int) -> Scores:
    """Score a method that takes answers in the order of their columns."""
    return Scores(
        pass_at_n=pass_at_n_ordered(answers.correct, max_n),
        majority=together.majority_ordered(answers.group, answers.correct, max_n),
        distinct_answers=together.distinct_ordered(answers.group, max_n),
        agreement=together.agreement_ordered(answers.group, max_n),
        tokens=extend(answers.tokens.cumsum(axis=1).astype(float), max_n),
        longest=together.largest_ordered(answers.tokens, max_n),
        prompts=extend(
            np.maximum.accumulate(answers.shared, axis=1) + (1 - answers.shared).cumsum(axis=1),
            max_n,
        ),
    )


def drawn(answers: Answers, max_n: int) -> Scores:
    """Score a method that draws answers at random, without replacement: NaN beyond their number."""
    count = np.arange(1, answers.tokens.shape[1] + 1)
    scores = Scores(
        pass_at_n=pass_at_n_drawn(answers.correct, max_n),
        majority=together.majority_drawn(answers.group, answers.correct, max_n),
        distinct_answers=together.distinct_drawn(answers.group, max_n),
        agreement=together.agreement_drawn(answers.group, max_n),
        tokens=extend(answers.tokens.mean(axis=1, keepdims=True) * count, max_n),
        longest=together.largest_drawn(answers.tokens, max_n),
        prompts=together.largest_drawn(answers.shared, max_n)
        + extend((1 - answers.shared).mean(axis=1, keepdims=True) * count, max_n),
    )
    for field in fields(scores):
        getattr(scores, field.name)[:, len(count) :] = np.nan
    return scores


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
        part = pd.DataFrame({"method": method, "n": n, "low": low, "high": high, **means})
        parts.append(part.dropna(subset="pass_at_n"))
    return pd.concat(parts, ignore_index=True)


def diversity(
    scores: Mapping[str, Scores], bootstrap: Bootstrap, prompt_tokens: float = math.nan
) -> pd.DataFrame:
    """Return how different a method's N answers are and what they cost: columns `DIVERSITY`.

    The oracle, which has no answers of its own, is left out. Embedding a question is not counted.

    Args:
        scores: by method, all on the same questions.
        bootstrap: resamples of these questions.
        prompt_tokens: mean length of a prompt; where it is not known, tokens computed are not.
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
        for name in ("pass_at_n", "tokens", "longest", "prompts"):
            part[name] = getattr(score, name)[:, points - 1].mean(axis=0)
        part["computed"] = part["tokens"] + part["prompts"] * prompt_tokens
        parts.append(part.dropna(subset="pass_at_n"))
    return pd.concat(parts, ignore_index=True)[DIVERSITY]


OVERHEAD = ("embedding_seconds", "embedding_bytes", "selection_seconds", "selection_bytes")
"""What the record of that table holds, where it was measured: wall time and memory that embedding
the test questions and ranking the heads for them took."""

Passes = Float[np.ndarray, "questions max_n"]

ABLATION = ["reading", "n", "pass_at_n", "low", "high"]
"""Columns of the ablation: Pass@N on the test questions of every reading of the loss and every λ,
all else as chosen, with 95% intervals over questions. No setting is chosen from it."""


def ablation(passes: Mapping[str, Passes], bootstrap: Bootstrap) -> pd.DataFrame:
    """Return columns `ABLATION`; `n` is 1, 2, 4, ... or the mean over all N.

    Args:
        passes: Pass@1..max_n of each reading.
        bootstrap: resamples of the test questions.
    """
    parts = []
    for reading, passed in passes.items():
        points = [n for n in PAIRED_N if n <= passed.shape[1]]
        values = np.column_stack([passed[:, np.array(points) - 1], passed.mean(axis=1)])
        low, high = bootstrap.interval(values)
        part = pd.DataFrame({"n": [*map(str, points), "mean"], "pass_at_n": values.mean(axis=0)})
        parts.append(part.assign(reading=reading, low=low, high=high))
    return pd.concat(parts, ignore_index=True)[ABLATION]


APART = ["difference_apart", "low_apart", "high_apart"]
"""Columns: the same on test questions that resemble no training question."""

PAIRED = ["method", "n", "difference", "low", "high", "by_questions", "by_draw", "by_seed"]
PAIRED += ["band_low", "band_high", "peak", "peak_low", "peak_high", "resembling", *APART]
"""Columns of the paired table: SPRINT minus method at every N, with a 95% interval, and the
standard errors that the choice of test questions, the draw of training questions and the seeds give
to the difference; empty where they were not varied. The interval covers those that are there; the
band holds at all N of a method at once. The peak is the N of a method's largest difference, with a
95% interval over questions. Then how many test questions resemble a training question, and the
difference on the others (`APART`). The table of votes has the same columns: the accuracy of the
majority of SPRINT's N answers minus one greedy answer of the base model, and minus the majority of
N samples."""


@dataclass(frozen=True)
class Retrained:
    """What methods that learnt from some training questions reach with N = 1..max_n answers."""

    sprint: Sequence[Passes]
    """Of selectors from each seed."""
    others: Mapping[str, Passes]
    """Of the methods beside SPRINT that learn from training questions."""


def mean_over(scores: Sequence[Scores]) -> Scores:
    """Return a selector's scores in expectation over its seed: question by question, the mean."""
    return Scores(
        *(np.mean([getattr(one, field.name) for one in scores], axis=0) for field in fields(Scores))
    )


def paired(
    reached: Mapping[str, Passes],
    whole: Retrained,
    redrawn: Sequence[Retrained],
    apart: Bool[np.ndarray, " questions"],
    bootstrap: Bootstrap,
) -> pd.DataFrame:
    """Return what SPRINT reaches minus what every other method does, columns `PAIRED`.

    Args:
        reached: Pass@N or the majority's accuracy, by method, all on the same questions; NaN at an
            N that a method does not have.
        whole: learnt from all training questions.
        redrawn: learnt from redraws of them.
        apart: which questions resemble no training question.
        bootstrap: resamples of the questions, for the band and the peak.
    """
    table = _paired(reached, whole, redrawn, np.ones_like(apart))
    leads = {
        method: reached[methods.SPRINT] - values
        for method, values in reached.items()
        if method != methods.SPRINT
    }
    ratio = {method: simultaneous(lead, bootstrap) for method, lead in leads.items()}
    peaks = {method: peak(lead, bootstrap) for method, lead in leads.items()}
    table[["peak", "peak_low", "peak_high"]] = [peaks[method] for method in table["method"]]
    half = (table["high"] - table["low"]) / 2 * table["method"].map(ratio)
    middle = (table["high"] + table["low"]) / 2
    table["band_low"], table["band_high"] = middle - half, middle + half
    table["resembling"] = int((~apart).sum())
    table[APART] = np.nan
    if apart.sum() > 1:
        table[APART] = _paired(reached, whole, redrawn, apart)[["difference", "low", "high"]]
    return table[PAIRED].dropna(subset="difference")


def _paired(
    reached: Mapping[str, Passes],
    whole: Retrained,
    redrawn: Sequence[Retrained],
    rows: Bool[np.ndarray, " questions"],
) -> pd.DataFrame:
    def by_seed(learnt: Retrained, method: str) -> Float[np.ndarray, "seeds max_n"]:
        other = learnt.others.get(method, reached[method])
        return np.stack([(one - other)[rows].mean(axis=0) for one in learnt.sprint])

    parts = []
    for method in methods.in_display_order([name for name in reached if name != methods.SPRINT]):
        differences = (reached[methods.SPRINT] - reached[method])[rows]
        draw, seed = components(
            by_seed(whole, method), [by_seed(learnt, method) for learnt in redrawn]
        )
        known = [part for part in (draw, seed) if part]
        low, high = paired_interval(differences, components=known)
        errors = {
            "by_questions": differences.std(axis=0) / math.sqrt(len(differences)),
            "by_draw": np.sqrt(draw.variance) if draw else np.nan,
            "by_seed": np.sqrt(seed.variance) if seed else np.nan,
        }
        mean = differences.mean(axis=0)
        n = np.arange(1, len(mean) + 1)
        columns = {"method": method, "n": n, "difference": mean, "low": low, "high": high}
        parts.append(pd.DataFrame({**columns, **errors}))
    return pd.concat(parts, ignore_index=True)


def peak(
    differences: Float[np.ndarray, "questions max_n"], bootstrap: Bootstrap
) -> tuple[int, int, int]:
    """Return the N of the largest mean difference, and the ends of its 95% interval.

    The first of equals. The interval is the percentile interval of the same N in the resamples; N
    at which the other method is not defined are left out.
    """
    known = differences[:, ~np.isnan(differences).any(axis=0)]
    found = bootstrap.means(known).argmax(axis=1) + 1
    ends = [(1 - LEVEL) / 2, (1 + LEVEL) / 2]
    low, high = np.quantile(found, ends, method="inverted_cdf")
    return int(known.mean(axis=0).argmax()) + 1, int(low), int(high)


def simultaneous(differences: Float[np.ndarray, "questions max_n"], bootstrap: Bootstrap) -> float:
    """Return how much wider intervals have to be to hold at all N at once.

    The 95% quantile of the largest studentised deviation over N in the resamples (the sup-t band of
    Montiel Olea and Plagborg-Møller 2019), divided by the normal quantile of a single interval.
    """
    centre = differences.mean(axis=0)
    error = differences.std(axis=0) / math.sqrt(len(differences))
    varies = error > 0
    if not varies.any():
        return 1.0
    deviation = np.abs(bootstrap.means(differences[:, varies]) - centre[varies]) / error[varies]
    return max(1.0, float(np.quantile(deviation.max(axis=1), LEVEL) / ndtri((1 + LEVEL) / 2)))


_OF_DRAWS = REDRAWN / (1 - REDRAWN)
"""Shao and Wu 1989 (A general theory for jackknife variance estimation): results on subsamples of
m of n questions vary (n − m) / m times as much as results on fresh draws of n questions."""


def components(
    whole: Float[np.ndarray, "seeds columns"], redrawn: Sequence[Float[np.ndarray, "seeds columns"]]
) -> tuple[Component | None, Component | None]:
    """Return the variance that the draw and the seeds add to a mean over seeds.

    Args:
        whole: what selectors trained on all training questions reach, one a seed.
        redrawn: the same on each redraw.

    Returns:
        Of the draw, without what the seeds explain, and of the seeds; None where there are fewer
        than two redraws, or than two seeds.
    """
    seeds, columns = whole.shape
    of_seeds, of_draws = None, None
    noise = np.zeros(columns)
    if seeds > 1:
        within = np.mean([part.var(axis=0, ddof=1) for part in (whole, *redrawn)], axis=0)
        noise = within / seeds
        of_seeds = Component(noise, (1 + len(redrawn)) * (seeds - 1))
    if len(redrawn) > 1:
        between = np.var([part.mean(axis=0) for part in redrawn], axis=0, ddof=1)
        of_draws = Component(_OF_DRAWS * np.maximum(between - noise, 0.0), len(redrawn) - 1)
    return of_draws, of_seeds
