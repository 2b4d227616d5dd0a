"""Pass@N of SPRINT and its baselines, with diversity and cost at the same N.

All methods use existing answers; nothing is generated. A method either orders answers (the first N
count) or draws them (exact expectation). The curve of a method that orders fewer than N answers
stays at its last value; the curve of a method that draws ends where its answers end.
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
"""The values of N that tables show."""


def points(max_n: int) -> np.ndarray:
    """Return the values of N that tables show, up to the largest N."""
    return np.array([n for n in POINTS if n <= max_n])


DIVERSITY = ["method", "n", "pass_at_n", "distinct_answers", "distinct_low", "distinct_high"]
DIVERSITY += ["agreement", "agreement_low", "agreement_high", "tokens", "longest", "prompts"]
DIVERSITY += ["computed"]
"""Columns of the table of diversity and cost at equal N, means over questions: the number of
distinct final answers and the share of pairs that agree, with 95% bootstrap intervals; generated
tokens of all N answers and of the longest; passes of the prompt through the model; tokens computed.
"""

OVERHEAD = ("embedding_seconds", "embedding_bytes", "selection_seconds", "selection_bytes")
"""Facts in that table's record, where measured: wall time and memory of embedding the test
questions and of ranking the heads for them."""

APART = ["difference_apart", "low_apart", "high_apart"]
PAIRED = ["method", "n", "difference", "low", "high", "by_questions", "by_draw", "by_seed"]
PAIRED += ["band_low", "band_high", "peak", "peak_low", "peak_high", "resembling", *APART]
"""Columns of the paired table: SPRINT minus method at every N, with a 95% interval, and the
standard errors of the difference that come from the choice of test questions, the draw of training
questions and the seeds; empty where these were not varied. The interval covers all that are given;
the band holds at all N of a method at once. The peak is the N of a method's largest difference,
with a 95% interval over questions. Last come the number of test questions that resemble a training
question, and the difference on the others. The table of votes has the same columns: the accuracy of
the majority of SPRINT's N answers minus that of one greedy answer of the base model, and minus that
of the majority of N samples.
"""

Values = Float[np.ndarray, "questions max_n"]
"""A method's value on each question with N = 1..max_n answers; NaN where undefined."""

Scores = dict[str, Values]
"""By measure: ``pass_at_n``; accuracy of the ``majority``; ``distinct_answers``; ``agreement`` of
pairs; ``tokens`` of all answers, and as ``computed``; tokens of the ``longest``, the number of
steps in which N answers are generated in one batch; ``prompts``, passes of the prompt through the
model, where layers that answers share are computed once."""


class Answers(NamedTuple):
    """Some graded answers to each question."""

    correct: Bool[np.ndarray, "questions answers"]
    group: Int[np.ndarray, "questions answers"]
    """Equal answers to a question share a label; -1 where there is no answer."""
    tokens: Int[np.ndarray, "questions answers"]
    """Generated tokens."""
    computed: Float[np.ndarray, "questions answers"]
    """The same, each weighted by its work as a share of the base model's."""
    shared: Float[np.ndarray, "questions answers"]
    """Share of the model's layers that process the prompt as in the base model: all for the base
    model and its samples, those below the head's own layer for a pruned head."""
    own: Float[np.ndarray, "questions answers"]
    """Share of the layers that process the prompt for this answer alone."""

    def select(self, order: Int[np.ndarray, "*questions chosen"]) -> "Answers":
        """Return the answers in the columns `order`, the same for all questions or one row each."""
        rows = np.broadcast_to(order, (len(self.correct), np.shape(order)[-1]))
        return Answers(*(np.take_along_axis(part, rows, 1) for part in self))

    def of(self, questions: Int[np.ndarray, " chosen"]) -> "Answers":
        """Return the answers to the questions with these row numbers."""
        return Answers(*(part[questions] for part in self))


def ordered(answers: Answers, max_n: int) -> Scores:
    """Score a method that takes answers in the order of their columns."""
    correct, group, tokens, computed, shared, own = answers
    passes = np.maximum.accumulate(shared, axis=1) + own.cumsum(axis=1)
    return {
        "pass_at_n": pass_at_n_ordered(correct, max_n),
        "majority": together.majority_ordered(group, correct, max_n),
        "distinct_answers": together.distinct_ordered(group, max_n),
        "agreement": together.agreement_ordered(group, max_n),
        "tokens": extend(tokens.cumsum(axis=1).astype(float), max_n),
        "computed": extend(computed.cumsum(axis=1).astype(float), max_n),
        "longest": together.largest_ordered(tokens, max_n),
        "prompts": extend(passes, max_n),
    }


def drawn(answers: Answers, max_n: int) -> Scores:
    """Score a method that draws answers without replacement; NaN where N exceeds their number."""
    correct, group, tokens, computed, shared, own = answers
    count = np.arange(1, tokens.shape[1] + 1)

    def each(values: np.ndarray) -> Values:
        return extend(values.mean(axis=1, keepdims=True) * count, max_n)

    scores = {
        "pass_at_n": pass_at_n_drawn(correct, max_n),
        "majority": together.majority_drawn(group, correct, max_n),
        "distinct_answers": together.distinct_drawn(group, max_n),
        "agreement": together.agreement_drawn(group, max_n),
        "tokens": each(tokens),
        "computed": each(computed),
        "longest": together.largest_drawn(tokens, max_n),
        "prompts": together.largest_drawn(shared, max_n) + each(own),
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
    """Return the mean of a method's scores over its seeds, question by question."""
    return {name: np.mean([one[name] for one in scores], axis=0) for name in scores[0]}


def estimated(
    values: Float[np.ndarray, "questions columns"], bootstrap: Bootstrap, *names: str
) -> dict[str, Float[np.ndarray, " columns"]]:
    """Return means over questions and the ends of their 95% intervals, under three names."""
    return dict(zip(names, (values.mean(axis=0), *bootstrap.interval(values)), strict=True))


def curves(scores: Mapping[str, Scores], bootstrap: Bootstrap) -> pd.DataFrame:
    """Return Pass@N with 95% intervals, diversity and cost: columns of `headroom.tables.CURVES`.

    The intervals cover the choice of test questions; a trained selector is taken as fixed.
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
    scores: Mapping[str, Scores], bootstrap: Bootstrap, prompt_tokens: float
) -> pd.DataFrame:
    """Return how much a method's N answers differ and what they cost: columns `DIVERSITY`.

    The oracle has no answers of its own and is left out. The cost of embedding is not counted.
    """
    parts = []
    for method in methods.in_display_order([name for name in scores if name != methods.ORACLE]):
        shown = points(scores[method]["tokens"].shape[1])
        at = {name: values[:, shown - 1] for name, values in scores[method].items()}
        known = {name: values.mean(axis=0) for name, values in at.items()}
        for name, short in (("distinct_answers", "distinct"), ("agreement", "agreement")):
            known |= estimated(at[name], bootstrap, name, f"{short}_low", f"{short}_high")
        part = pd.DataFrame(known).assign(method=method, n=shown)
        part["computed"] += part["prompts"] * prompt_tokens
        parts.append(part)
    return pd.concat(parts, ignore_index=True)[DIVERSITY].dropna(subset="pass_at_n")


def ablation(passes: Mapping[str, Values], bootstrap: Bootstrap) -> pd.DataFrame:
    """Return Pass@N of every reading of the loss (geometry and λ), all other settings as chosen.

    It is for display only: no setting is chosen by it. Columns reading, n, pass_at_n, and low and
    high, a 95% interval over questions; `n` is 1, 2, 4, ... or the mean over all N.
    """
    parts = []
    for reading, passed in passes.items():
        shown = points(passed.shape[1])
        values = np.column_stack([passed[:, shown - 1], passed.mean(axis=1)])
        part = pd.DataFrame({"reading": reading, "n": [*map(str, shown), "mean"]})
        parts.append(part.assign(**estimated(values, bootstrap, "pass_at_n", "low", "high")))
    return pd.concat(parts, ignore_index=True)


def paired(
    scores: Mapping[str, Scores],
    learnt: Sequence[Mapping[str, Sequence[Scores]]],
    apart: Bool[np.ndarray, " questions"],
    bootstrap: Bootstrap,
    measure: str = "pass_at_n",
) -> pd.DataFrame:
    """Return SPRINT's value minus every other method's, columns `PAIRED`.

    Args:
        scores: by method, all on the same questions.
        learnt: for each training (on all training questions, then on each redraw) the scores of
            SPRINT and of every other method that is trained, one for each seed.
        apart: which questions resemble no training question.
        bootstrap: resamples of the questions, for the band and the peak.
        measure: which measure is compared, ``pass_at_n`` or ``majority``.
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
    """Return mean differences with intervals and the standard error from each source."""

    def means(seeds: Sequence[Values]) -> Float[np.ndarray, "seeds max_n"]:
        return np.stack([one.mean(axis=0) for one in seeds])

    draw, seed = components(means(whole), [means(part) for part in redrawn])
    low, high = paired_interval(lead, components=[part for part in (draw, seed) if part])
    found = {"difference": lead.mean(axis=0), "low": low, "high": high}
    found["by_questions"] = lead.std(axis=0) / math.sqrt(len(lead))
    for name, source in (("by_draw", draw), ("by_seed", seed)):
        found[name] = np.sqrt(source.variance) if source else np.nan
    return pd.DataFrame(found)


def peak(differences: Values, bootstrap: Bootstrap) -> tuple[int, int, int]:
    """Return the N of the largest mean difference, and the ends of its 95% interval.

    Ties go to the smallest N. The interval is the percentile interval of the peak over resamples;
    values of N at which the other method is undefined are left out.
    """
    known = differences[:, ~np.isnan(differences).any(axis=0)]
    found = bootstrap.means(known).argmax(axis=1) + 1
    ends = [(1 - LEVEL) / 2, (1 + LEVEL) / 2]
    low, high = np.quantile(found, ends, method="inverted_cdf")
    return int(known.mean(axis=0).argmax()) + 1, int(low), int(high)


def simultaneous(differences: Values, bootstrap: Bootstrap) -> float:
    """Return the factor by which intervals must widen to hold at all N at once.

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
    """Return the variances that the draw of training questions and the seeds add to a mean.

    Args:
        whole: values of selectors trained on all training questions, one row for each seed.
        redrawn: the same for each redraw.

    Returns:
        The variance of the draw, less the part that the seeds explain, and that of the seeds. None
        where there are fewer than two redraws, or fewer than two seeds.
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
