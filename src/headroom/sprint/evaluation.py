"""Pass@N of SPRINT beside its baselines, with diversity and cost at the same N.

All methods read answers that exist; nothing is generated. A method either orders answers (the
first N count) or draws them (exact expectation). One that orders fewer than N, such as a single
answer, stays at its last value; one that draws ends where its answers end.
"""

import math
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np
import pandas as pd
from jaxtyping import Bool, Float, Int
from scipy.special import ndtri

from headroom.sprint import methods
from headroom.sprint.validation import REDRAWN
from headroom.statistics import LEVEL
from headroom.statistics import answers as together
from headroom.statistics.answers import extend, pass_at_n_drawn, pass_at_n_ordered
from headroom.statistics.bootstrap import Bootstrap
from headroom.statistics.paired import Component, paired_interval
from headroom.tables import CURVES

POINTS = (1, 2, 4, 8, 16)
"""The N that tables show."""

DIVERSITY = ["method", "n", "pass_at_n", "distinct_answers", "distinct_low", "distinct_high"]
DIVERSITY += ["agreement", "agreement_low", "agreement_high", "tokens", "longest", "prompts"]
DIVERSITY += ["computed"]
"""Columns of the table of diversity and cost at equal N, means over questions: distinct final
answers by value and the share of pairs that agree, with 95% bootstrap intervals; generated tokens
of all N answers and of the longest; how often the question passes the model; tokens computed."""

OVERHEAD = ("embedding_seconds", "embedding_bytes", "selection_seconds", "selection_bytes")
"""What the record of that table holds, where it was measured: wall time and memory that embedding
the test questions and ranking the heads for them took."""

APART = ["difference_apart", "low_apart", "high_apart"]
PAIRED = ["method", "n", "difference", "low", "high", "by_questions", "by_draw", "by_seed"]
PAIRED += ["band_low", "band_high", "peak", "peak_low", "peak_high", "resembling", *APART]
"""Columns of the paired table: SPRINT minus method at every N, with a 95% interval, and the
standard errors that the choice of test questions, the draw of training questions and the seeds give
to the difference; empty where they were not varied. The interval covers those that are there; the
band holds at all N of a method at once. The peak is the N of a method's largest difference, with a
95% interval over questions. Then how many test questions resemble a training question, and the
difference on the others. The table of votes has the same columns: the accuracy of the majority of
SPRINT's N answers minus one greedy answer of the base model, and minus the majority of N samples.
"""

Values = Float[np.ndarray, "questions max_n"]
"""What a method reaches on each question with N = 1..max_n answers; NaN where undefined."""

Scores = dict[str, Values]
"""By measure: ``pass_at_n``; accuracy of the ``majority``; ``distinct_answers``; ``agreement`` of
pairs; ``tokens`` of all answers; those of the ``longest``, which are the steps that N answers take
side by side; ``prompts``, how often the question passes the model: what answers share is computed
once."""


class Answers(NamedTuple):
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
        return Answers(*(np.take_along_axis(part, rows, 1) for part in self))

    def of(self, questions: Int[np.ndarray, " chosen"]) -> "Answers":
        """Return the answers to some questions, by row number."""
        return Answers(*(part[questions] for part in self))


def ordered(answers: Answers, max_n: int) -> Scores:
    """Score a method that takes answers in the order of their columns."""
    correct, group, tokens, shared = answers
    own = (1 - shared).cumsum(axis=1)
    return {
        "pass_at_n": pass_at_n_ordered(correct, max_n),
        "majority": together.majority_ordered(group, correct, max_n),
        "distinct_answers": together.distinct_ordered(group, max_n),
        "agreement": together.agreement_ordered(group, max_n),
        "tokens": extend(tokens.cumsum(axis=1).astype(float), max_n),
        "longest": together.largest_ordered(tokens, max_n),
        "prompts": extend(np.maximum.accumulate(shared, axis=1) + own, max_n),
    }


def drawn(answers: Answers, max_n: int) -> Scores:
    """Score a method that draws answers at random, without replacement: NaN beyond their number."""
    correct, group, tokens, shared = answers
    count = np.arange(1, tokens.shape[1] + 1)

    def each(values: np.ndarray) -> Values:
        return extend(values.mean(axis=1, keepdims=True) * count, max_n)

    scores = {
        "pass_at_n": pass_at_n_drawn(correct, max_n),
        "majority": together.majority_drawn(group, correct, max_n),
        "distinct_answers": together.distinct_drawn(group, max_n),
        "agreement": together.agreement_drawn(group, max_n),
        "tokens": each(tokens),
        "longest": together.largest_drawn(tokens, max_n),
        "prompts": together.largest_drawn(shared, max_n) + each(1 - shared),
    }
    for values in scores.values():
        values[:, len(count) :] = np.nan
    return scores


def oracle(answers: Answers, max_n: int) -> Scores:
    """Score the ceiling: a question is solved if any head of the pool solves it.

    An oracle that knows the answers needs one head a question, so the ceiling does not depend on N.
    """
    solved = answers.correct.any(axis=1, keepdims=True).astype(float)
    return {"pass_at_n": extend(solved, max_n)}


def mean_over(scores: Sequence[Scores]) -> Scores:
    """Return a selector's scores in expectation over its seed: question by question, the mean."""
    return {name: np.mean([one[name] for one in scores], axis=0) for name in scores[0]}


def estimated(
    values: Float[np.ndarray, "questions columns"], bootstrap: Bootstrap, *names: str
) -> dict[str, Float[np.ndarray, " columns"]]:
    """Return means over questions and the ends of their 95% intervals, under three names."""
    return dict(zip(names, (values.mean(axis=0), *bootstrap.interval(values)), strict=True))


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
        known = {name: values.mean(axis=0) for name, values in score.items()}
        known |= estimated(score["pass_at_n"], bootstrap, "pass_at_n", "low", "high")
        part = pd.DataFrame(known).reindex(columns=CURVES.names)
        parts.append(part.assign(method=method, n=np.arange(1, len(part) + 1)))
    return pd.concat(parts, ignore_index=True).dropna(subset="pass_at_n")


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
        points = np.array([n for n in POINTS if n <= scores[method]["tokens"].shape[1]])
        at = {name: values[:, points - 1] for name, values in scores[method].items()}
        known = {name: values.mean(axis=0) for name, values in at.items()}
        for name, short in (("distinct_answers", "distinct"), ("agreement", "agreement")):
            known |= estimated(at[name], bootstrap, name, f"{short}_low", f"{short}_high")
        part = pd.DataFrame(known).assign(method=method, n=points)
        part["computed"] = part["tokens"] + part["prompts"] * prompt_tokens
        parts.append(part)
    return pd.concat(parts, ignore_index=True)[DIVERSITY].dropna(subset="pass_at_n")


def ablation(passes: Mapping[str, Values], bootstrap: Bootstrap) -> pd.DataFrame:
    """Return Pass@N of every reading of the loss and every λ, all else as chosen.

    No setting is chosen from it.

    Args:
        passes: Pass@1..max_n on the test questions of each reading.
        bootstrap: resamples of these questions.

    Returns:
        Columns reading, n, pass_at_n, and low and high, a 95% interval over questions; `n` is 1,
        2, 4, ... or the mean over all N.
    """
    parts = []
    for reading, passed in passes.items():
        points = [n for n in POINTS if n <= passed.shape[1]]
        values = np.column_stack([passed[:, np.array(points) - 1], passed.mean(axis=1)])
        part = pd.DataFrame({"reading": reading, "n": [*map(str, points), "mean"]})
        parts.append(part.assign(**estimated(values, bootstrap, "pass_at_n", "low", "high")))
    return pd.concat(parts, ignore_index=True)


def paired(
    scores: Mapping[str, Scores],
    learnt: Sequence[Mapping[str, Sequence[Scores]]],
    apart: Bool[np.ndarray, " questions"],
    bootstrap: Bootstrap,
    measure: str = "pass_at_n",
) -> pd.DataFrame:
    """Return what SPRINT reaches minus what every other method does, columns `PAIRED`.

    Args:
        scores: by method, all on the same questions.
        learnt: scores of SPRINT and of the others that learn from training questions, one a seed:
            learnt from all of them, then from each redraw.
        apart: which questions resemble no training question.
        bootstrap: resamples of the questions, for the band and the peak.
        measure: what is compared, Pass@N or the majority's accuracy.
    """
    of = {method: score[measure] for method, score in scores.items()}

    def by_seed(training: Mapping[str, Sequence[Scores]], method: str) -> list[Values]:
        other = training[method][0][measure] if method in training else of[method]
        return [one[measure] - other for one in training[methods.SPRINT]]

    parts = []
    for method in methods.in_display_order([name for name in of if name != methods.SPRINT]):
        lead = of[methods.SPRINT] - of[method]
        whole, *redrawn = [by_seed(training, method) for training in learnt]
        part = _differences(lead, whole, redrawn)
        half = (part["high"] - part["low"]) / 2 * simultaneous(lead, bootstrap)
        middle = (part["high"] + part["low"]) / 2
        part["band_low"], part["band_high"] = middle - half, middle + half
        part[["peak", "peak_low", "peak_high"]] = peak(lead, bootstrap)
        part["resembling"] = int((~apart).sum())
        part[APART] = np.nan
        if apart.sum() > 1:
            cut = [[one[apart] for one in seeds] for seeds in (whole, *redrawn)]
            beside = _differences(lead[apart], cut[0], cut[1:])
            part[APART] = beside[["difference", "low", "high"]]
        parts.append(part.assign(method=method, n=np.arange(1, len(part) + 1)))
    return pd.concat(parts, ignore_index=True)[PAIRED].dropna(subset="difference")


def _differences(
    lead: Values, whole: Sequence[Values], redrawn: Sequence[Sequence[Values]]
) -> pd.DataFrame:
    """Return mean differences with intervals, and the standard errors of their sources."""

    def means(seeds: Sequence[Values]) -> Float[np.ndarray, "seeds max_n"]:
        return np.stack([one.mean(axis=0) for one in seeds])

    draw, seed = components(means(whole), [means(part) for part in redrawn])
    low, high = paired_interval(lead, components=[part for part in (draw, seed) if part])
    return pd.DataFrame(
        {
            "difference": lead.mean(axis=0),
            "low": low,
            "high": high,
            "by_questions": lead.std(axis=0) / math.sqrt(len(lead)),
            "by_draw": np.sqrt(draw.variance) if draw else np.nan,
            "by_seed": np.sqrt(seed.variance) if seed else np.nan,
        }
    )


def peak(differences: Values, bootstrap: Bootstrap) -> tuple[int, int, int]:
    """Return the N of the largest mean difference, and the ends of its 95% interval.

    The first of equals. The interval is the percentile interval of the same N in the resamples; N
    at which the other method is not defined are left out.
    """
    known = differences[:, ~np.isnan(differences).any(axis=0)]
    found = bootstrap.means(known).argmax(axis=1) + 1
    ends = [(1 - LEVEL) / 2, (1 + LEVEL) / 2]
    low, high = np.quantile(found, ends, method="inverted_cdf")
    return int(known.mean(axis=0).argmax()) + 1, int(low), int(high)


def simultaneous(differences: Values, bootstrap: Bootstrap) -> float:
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
