"""Pass@N of SPRINT and its baselines, with diversity and cost at the same N.

All methods use existing answers; nothing is generated. A method either orders answers (the first N
count) or draws them (exact expectation). The curve of a method that orders fewer than N answers
stays at its last value; the curve of a method that draws ends where its answers end.
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

import numpy as np
import pandas as pd
from jaxtyping import Bool, Float, Int
from scipy.special import ndtri

from headsweep.sprint import methods
from headsweep.sprint.rankers import greedy_cover
from headsweep.sprint.validation import REDRAWN, Order, Z
from headsweep.statistics import LEVEL
from headsweep.statistics import answers as together
from headsweep.statistics.intervals import Bootstrap, paired_interval
from headsweep.tables import CURVES

POINTS = (1, 2, 4, 8, 16)
"""The values of N that tables show."""

MEAN = "mean"
"""In their place, the mean of Pass@1..max_n, the area under the curve."""

DIVERSITY = ["method", "n", "pass_at_n", "distinct_answers", "distinct_low", "distinct_high"]
DIVERSITY += ["agreement", "agreement_low", "agreement_high", "tokens", "longest", "prompts"]
DIVERSITY += ["computed"]
"""Columns of the table of diversity and cost at equal N, means over questions: the number of
distinct final answers and the share of pairs that agree, with 95% bootstrap intervals; generated
tokens of all N answers and of the longest; passes of the prompt through the model; tokens computed.
"""

WORTH = ["method", "questions", "pool", "heads", "against", "n", "sprint", "other"]
WORTH += ["difference", "low", "high", "p"]
"""Columns of the table of what the question's embedding is worth: Pass@N of the method and of the
other, their paired difference with its 95% interval, and, against shuffled questions, the p-value.
`n` is one of `POINTS` or `MEAN`."""

SHUFFLED, DRAWN = "shuffled questions", "heads drawn from the pool"
WHOLE_POOL = "all heads"

_PERMUTATIONS = 10_000
_BLOCK = 500  # permutations at once; bounds memory

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
pairs; ``tokens`` of all answers, and weighted by their work, ``computed``; tokens of the
``longest``, the number of steps in which N answers are generated in one batch; ``prompts``, passes
of the prompt through the model, where layers that answers share are computed once."""


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
    own: Float[np.ndarray, "questions answers"]
    """Share of the layers that process the prompt for this answer alone."""

    @property
    def work(self) -> Float[np.ndarray, "questions answers"]:
        """The work of a token as a share of the base model's."""
        return self.shared + self.own

    def select(self, order: Int[np.ndarray, "*questions chosen"]) -> "Answers":
        """Return the answers in the columns `order`, the same for all questions or one row each."""
        rows = np.broadcast_to(order, (len(self.correct), np.shape(order)[-1]))
        return Answers(*(np.take_along_axis(part, rows, 1) for part in self))

    def of(self, questions: Int[np.ndarray, " chosen"]) -> "Answers":
        """Return the answers to the questions with these row numbers."""
        return Answers(*(part[questions] for part in self))


def ordered(answers: Answers, max_n: int) -> Scores:
    """Score a method that takes answers in the order of their columns."""
    correct, group, tokens, shared, own = answers
    passes = np.maximum.accumulate(shared, axis=1) + own.cumsum(axis=1)
    return {
        "pass_at_n": together.pass_at_n_ordered(correct, max_n),
        "majority": together.majority_ordered(group, correct, max_n),
        "distinct_answers": together.distinct_ordered(group, max_n),
        "agreement": together.agreement_ordered(group, max_n),
        "tokens": together.extend(tokens.cumsum(axis=1).astype(float), max_n),
        "computed": together.extend((tokens * answers.work).cumsum(axis=1), max_n),
        "longest": together.largest_ordered(tokens, max_n),
        "prompts": together.extend(passes, max_n),
    }


def drawn(answers: Answers, max_n: int) -> Scores:
    """Score a method that draws answers without replacement; NaN where N exceeds their number."""
    correct, group, tokens, shared, own = answers
    count = np.arange(1, tokens.shape[1] + 1)

    def each(values: np.ndarray) -> Values:
        return together.extend(values.mean(axis=1, keepdims=True) * count, max_n)

    scores = {
        "pass_at_n": together.pass_at_n_drawn(correct, max_n),
        "majority": together.majority_drawn(group, correct, max_n),
        "distinct_answers": together.distinct_drawn(group, max_n),
        "agreement": together.agreement_drawn(group, max_n),
        "tokens": each(tokens),
        "computed": each(tokens * answers.work),
        "longest": together.largest_drawn(tokens, max_n),
        "prompts": together.largest_drawn(shared, max_n) + each(own),
    }
    for values in scores.values():
        values[:, len(count) :] = np.nan
    return scores


def mean_over(scores: Sequence[Scores]) -> Scores:
    """Return the mean of a method's scores over its seeds, question by question."""
    return {name: np.mean([one[name] for one in scores], axis=0) for name in scores[0]}


def estimated(
    values: Float[np.ndarray, "questions columns"], bootstrap: Bootstrap, *names: str
) -> dict[str, Float[np.ndarray, " columns"]]:
    """Return means over questions and the ends of their 95% intervals, under three names."""
    return dict(zip(names, (values.mean(axis=0), *bootstrap.interval(values)), strict=True))


def points(
    passed: Float[np.ndarray, "*rows max_n"],
) -> tuple[list[str], Float[np.ndarray, "*rows points"]]:
    """Return what tables show of Pass@1..max_n, at `POINTS` and `MEAN`: labels and values."""
    shown = [n for n in POINTS if n <= passed.shape[-1]]
    mean = passed.mean(axis=-1, keepdims=True)
    return [*map(str, shown), MEAN], np.append(passed[..., np.array(shown) - 1], mean, axis=-1)


def curves(
    scores: Mapping[str, Scores], bootstrap: Bootstrap, prompt_tokens: float
) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Return Pass@N with diversity and cost: columns `headsweep.tables.CURVES`, then `DIVERSITY`.

    The intervals cover the choice of test questions; a trained selector is taken as fixed. The
    second table leaves out the oracle, which has no answers of its own; the cost of embedding is
    not counted.
    """
    parts = []
    for method, score in scores.items():
        known = {name: values.mean(axis=0) for name, values in score.items()}
        known |= estimated(score["pass_at_n"], bootstrap, "pass_at_n", "low", "high")
        for name, short in (("distinct_answers", "distinct"), ("agreement", "agreement")):
            if name in score:
                known |= estimated(score[name], bootstrap, name, f"{short}_low", f"{short}_high")
        part = pd.DataFrame(known).assign(method=method)
        parts.append(part.assign(n=np.arange(1, len(part) + 1)))
    table = pd.concat(parts, ignore_index=True).dropna(subset="pass_at_n")
    table["computed"] += table["prompts"] * prompt_tokens
    shown = table["n"].isin(POINTS) & (table["method"] != methods.ORACLE)
    return table[CURVES.names], table.loc[shown, DIVERSITY]


def ablation(passes: Mapping[str, Values], bootstrap: Bootstrap) -> pd.DataFrame:
    """Return Pass@N of every reading of the loss (geometry and λ), all other settings as chosen.

    It is for display only: no setting is chosen by it. Columns reading, n, pass_at_n, and low and
    high, a 95% interval over questions; `n` is one of `POINTS` or `MEAN`.
    """
    parts = []
    for reading, passed in passes.items():
        labels, values = points(passed)
        part = pd.DataFrame({"reading": reading, "n": labels})
        parts.append(part.assign(**estimated(values, bootstrap, "pass_at_n", "low", "high")))
    return pd.concat(parts, ignore_index=True)


def paired(
    others: Iterable[str],
    learnt: Sequence[Mapping[str, Sequence[Scores]]],
    apart: Bool[np.ndarray, " questions"],
    bootstrap: Bootstrap,
    measure: str = "pass_at_n",
) -> pd.DataFrame:
    """Return SPRINT's value minus that of each of the `others`, columns `PAIRED`.

    Args:
        others: names of methods.
        learnt: for each of `headsweep.sprint.validation.redraws` the scores of every method, one
            for each seed.
        apart: which questions resemble no training question.
        bootstrap: resamples of the questions, for the band and the peak.
        measure: which measure is compared, ``pass_at_n`` or ``majority``.
    """
    whole, parts = mean_over(learnt[0][methods.SPRINT])[measure], []
    for method in others:
        lead = whole - learnt[0][method][0][measure]
        leads = [
            [one[measure] - training[method][0][measure] for one in training[methods.SPRINT]]
            for training in learnt
        ]
        part = _differences(lead, leads)
        half = (part["high"] - part["low"]) / 2 * simultaneous(lead, bootstrap)
        middle = (part["high"] + part["low"]) / 2
        part["band_low"], part["band_high"] = middle - half, middle + half
        part[["peak", "peak_low", "peak_high"]] = peak(lead, bootstrap)
        part["resembling"] = int((~apart).sum())
        part[APART] = np.nan
        if apart.sum() > 1:
            cut = _differences(lead[apart], [[one[apart] for one in each] for each in leads])
            part[APART] = cut[["difference", "low", "high"]]
        parts.append(part.assign(method=method, n=np.arange(1, len(part) + 1)))
    return pd.concat(parts, ignore_index=True)[PAIRED].dropna(subset="difference")


_OF_DRAWS = REDRAWN / (1 - REDRAWN)
"""Shao and Wu 1989 (A general theory for jackknife variance estimation): results on subsamples of
m of n questions vary (n − m) / m times as much as results on fresh draws of n questions."""


def _differences(lead: Values, leads: Sequence[Sequence[Values]]) -> pd.DataFrame:
    """Return mean differences with intervals, and the standard error from each source.

    Args:
        lead: the difference on each question.
        leads: the same of each of `headsweep.sprint.validation.redraws`, for each seed.
    """
    means = [np.stack([one.mean(axis=0) for one in seeds]) for seeds in leads]
    seeds, redraws = len(means[0]), len(means) - 1
    noise, sources = np.zeros(lead.shape[1]), {}
    if seeds > 1:
        noise = np.mean([part.var(axis=0, ddof=1) for part in means], axis=0) / seeds
        sources["by_seed"] = noise, len(means) * (seeds - 1)
    if redraws > 1:  # the variance between draws, less the part that the seeds explain
        between = np.var([part.mean(axis=0) for part in means[1:]], axis=0, ddof=1)
        sources["by_draw"] = _OF_DRAWS * np.maximum(between - noise, 0.0), redraws - 1
    low, high = paired_interval(lead, components=list(sources.values()))
    found = pd.DataFrame({"difference": lead.mean(axis=0), "low": low, "high": high})
    found["by_questions"] = lead.std(axis=0) / math.sqrt(len(lead))
    for name in ("by_draw", "by_seed"):
        found[name] = np.sqrt(sources[name][0]) if name in sources else np.nan
    return found


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


def embedding_worth(
    method: str,
    correct: Z,
    order: Order,
    train: Z,
    max_n: int,
    bootstrap: Bootstrap,
    seed: int,
) -> pd.DataFrame:
    """Compare a method with three that do not use the question: columns `WORTH`.

    They are: itself with the questions' embeddings shuffled and all else equal; the greedy cover,
    which takes the same heads for every question; and heads drawn from the pool.

    `correct` is Z of the test questions, `order` the method's ranking for each of them; the greedy
    cover is that of Z of the training questions. The seed decides the permutations.
    """
    # Position of the first right head of each question (row) under the ranking of each (column);
    # all from max_n on count the same.
    place = np.argsort(order, axis=1).astype(np.int16)
    first = np.full((len(correct), len(order)), max_n, np.int16)
    for head, solved in enumerate(correct.T):
        first[solved] = np.minimum(first[solved], place[:, head])
    # Row: position of a ranking's first right head. Column: Pass@N of that ranking.
    labels, value = points(np.triu(np.ones((max_n + 1, max_n))))
    own, covering = value[np.diagonal(first)], correct[:, greedy_cover(train)]
    others = {
        # The mean over all rankings is the exact expectation over permutations.
        SHUFFLED: value[first].mean(axis=1),
        methods.COVER: points(together.pass_at_n_ordered(covering, max_n))[1],
        DRAWN: points(together.pass_at_n_drawn(correct, max_n))[1],
    }
    # A one-sided test: the share of permutations of the questions that score as well.
    draw, rows = np.random.default_rng(seed), np.arange(len(first))
    beyond = np.ones(own.shape[1], int)
    for _ in range(_PERMUTATIONS // _BLOCK):
        shuffled = draw.permuted(np.broadcast_to(rows, (_BLOCK, len(rows))), axis=1)
        scored = value[first[rows, shuffled]].sum(axis=1)
        beyond = beyond + (scored >= own.sum(axis=0) - 1e-9).sum(axis=0)
    tables = []
    for against, other in others.items():
        table = pd.DataFrame({"n": labels, "against": against, "method": method})
        table = table.assign(**estimated(own - other, bootstrap, "difference", "low", "high"))
        table["sprint"], table["other"] = own.mean(axis=0), other.mean(axis=0)
        table["p"] = beyond / (1 + _PERMUTATIONS) if against == SHUFFLED else np.nan
        tables.append(table.assign(questions="test", pool=WHOLE_POOL, heads=correct.shape[1]))
    return pd.concat(tables, ignore_index=True)[WORTH]
