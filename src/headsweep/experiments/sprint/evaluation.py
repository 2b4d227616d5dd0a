"""The tables that compare SPRINT with its baselines: Pass@N, differences, diversity and cost.

All methods use existing answers; nothing is generated. Every difference between two methods comes
from `headsweep.statistics.differences.compare`, over all seeds and redraws, so that it has one
value and one interval in whatever table it stands.
"""

from collections.abc import Mapping, Sequence

import numpy as np
import pandas as pd
from jaxtyping import Float

from headsweep.experiments.sprint import methods
from headsweep.experiments.sprint.pass_at_n import Scores, Trained, Values, estimated, outcomes
from headsweep.experiments.sprint.rankers import Shortlist
from headsweep.experiments.sprint.validation import APART_FROM_ALL, LossReading, Order, Z
from headsweep.files.tables import CURVES
from headsweep.statistics.differences import Outcomes, compare, largest_n, of_questions
from headsweep.statistics.intervals import Bootstrap, simultaneous

SHOWN_N = (1, 2, 4, 8, 16)
"""The values of N that tables show."""

MEAN = "mean"
"""In their place, the mean of Pass@1..max_n, the area under the curve."""

DIVERSITY_COLUMNS = [
    "method",
    "n",
    "pass_at_n",
    "distinct_answers",
    "distinct_low",
    "distinct_high",
    "agreement",
    "tokens",
    "longest",
    "prompts",
    "computed",
]
"""Columns of the table of diversity and cost at equal N, means over questions: the number of
distinct final answers, with a 95% bootstrap interval, and the share of pairs that agree; generated
tokens of all N answers and of the longest; passes of the prompt through the model; tokens computed.
"""

TESTED = ["difference", "low", "high", "p", "adjusted"]
"""Columns of a difference: its 95% interval over questions, seeds and draws of training questions,
the p-value, and that after Holm's correction over all with which a method is compared at this N."""

WORTH_COLUMNS = ["method", "against", "n", *TESTED, "freedom"]
"""Columns of the table of what the question's embedding is worth: Pass@N of the method minus that
of another that ignores the question, with its degrees of freedom
(`headsweep.statistics.differences.MEASURES`). `n` is one of `SHOWN_N` or `MEAN`."""

SHUFFLED = "shuffled questions"
"""A method with the questions' embeddings shuffled and all else equal."""
IGNORING = (SHUFFLED, methods.COVER, methods.POOL)
"""What does not use the question: itself shuffled, the same heads for all, heads at random."""

APART = ["difference_apart", "low_apart", "high_apart"]
PAIRED_COLUMNS = [
    "method",
    "n",
    *TESTED,
    "by_questions",
    "by_draw",
    "by_seed",
    "freedom",
    "band_low",
    "band_high",
    "peak",
    *APART,
]
"""Columns of the paired table: SPRINT minus method at every N, and the standard errors of the
difference that come from the choice of test questions, the draw of training questions and the
seeds; empty where these were not varied; and its degrees of freedom. The band holds at all N of a
method at once. The peak is the N of a method's largest difference. Last comes, where some test
questions resemble a training question or may do so, the difference on the others. The table of
votes has the same columns: the accuracy of the majority of SPRINT's N answers minus that of one
greedy answer of the base model, and minus that of the majority of N samples.
"""

ABLATION_COLUMNS = [
    "reading",
    "geometry",
    "diversity",
    "embedder",
    "n",
    "pass_at_n",
    "against",
    *TESTED,
]
"""Columns of the table of readings: Pass@N with this geometry, λ and embedder, all else as chosen,
minus that of the reading `against`. `n` is one of `SHOWN_N` or `MEAN`."""

SENSITIVITY_COLUMNS = ["criterion", "k", "n", "held_out", "test", "chosen", *TESTED]
"""Columns of the table of shortlists: Pass@N of N heads drawn from it, on held-out training
questions and on test questions, and the difference of the latter from the chosen shortlist."""


TRANSFER_COLUMNS = ["against", "title", "n", "elsewhere", "at_home", *TESTED]
"""Columns of the table of a selector that learnt from another benchmark: its Pass@N, that of one
that learnt from the benchmark it is tested on, and the difference. `n` is one of `SHOWN_N` or
`MEAN`."""

_FROM_ELSEWHERE = ""
"""Stands for the name of that selector: no selector at home has it."""


def curves(
    scores: Mapping[str, Scores], bootstrap: Bootstrap, prompt_tokens: float
) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Return Pass@N, then diversity and cost: `headsweep.files.tables.CURVES` and
    `DIVERSITY_COLUMNS`.

    The intervals cover the choice of test questions; a trained selector is taken as fixed. The
    second table leaves out the oracle, which has no answers of its own; the cost of embedding is
    not counted.
    """
    parts = []
    for method, score in scores.items():
        columns = {name: values.mean(axis=0) for name, values in score.items()}
        columns |= estimated(score["pass_at_n"], bootstrap, "pass_at_n", "low", "high")
        if "distinct_answers" in score:
            low, high = bootstrap.interval(score["distinct_answers"])
            columns |= {"distinct_low": low, "distinct_high": high}
        part = pd.DataFrame(columns).assign(method=method)
        parts.append(part.assign(n=np.arange(1, len(part) + 1)))
    table = pd.concat(parts, ignore_index=True).dropna(subset="pass_at_n")
    table["computed"] += table["prompts"] * prompt_tokens
    shown = table["n"].isin(SHOWN_N) & (table["method"] != methods.ORACLE)
    return table[CURVES.columns], table.loc[shown, DIVERSITY_COLUMNS]


def with_mean(passed: Outcomes) -> Outcomes:
    """Append the mean of Pass@1..max_n to the columns of outcomes."""
    return [
        [np.append(values, values.mean(axis=1, keepdims=True), axis=1) for values in seeds]
        for seeds in passed
    ]


def families(
    scores: Mapping[str, Trained], shuffled: Mapping[str, Outcomes]
) -> dict[str, dict[str, Outcomes]]:
    """Return what is compared, by method: its own Pass@1..max_n, and by name those of others.

    SPRINT is held against every method but the oracle, and against itself with shuffled questions;
    each simpler way to match questions with heads against what ignores the question.

    Args:
        scores: by method.
        shuffled: Pass@N with `shuffle`d questions, of each method that uses them.
    """
    passed = outcomes(scores, "pass_at_n")
    compared_with = {}
    for method, its_shuffled in shuffled.items():
        rivals = passed | {SHUFFLED: its_shuffled}
        others = [*passed, SHUFFLED] if method == methods.SPRINT else IGNORING
        against = [name for name in others if name not in (method, methods.ORACLE)]
        compared_with[method] = {method: passed[method]}
        compared_with[method] |= {name: rivals[name] for name in against}
    return compared_with


def shuffle(correct: Z, order: Order, max_n: int) -> Values:
    """Return Pass@N of rankings of which each question gets a random one: its own or another's.

    Let v_ij be the outcome of question i under the ranking of question j. The mean over all
    permutations is that of v over all pairs. For the interval, question i has the value
    v_i. + v_.i − v_.. (Hoeffding's projection): its mean is the same, and unlike v_i. alone it also
    counts that a question's ranking serves the others.
    """
    solved = np.zeros((len(correct), len(order)), dtype=bool)
    columns = []
    for n in range(min(max_n, correct.shape[1])):
        solved |= correct[:, order[:, n]]  # row: question; column: whose ranking
        by_question, by_ranking = solved.mean(axis=1), solved.mean(axis=0)
        columns.append(by_question + by_ranking - solved.mean())
    return np.stack(columns, axis=1)


def compared(compared_with: Mapping[str, Mapping[str, Outcomes]]) -> pd.DataFrame:
    """Return all differences of `families`, as `compare` does; n is 1..max_n and `MEAN`."""
    parts = []
    for method, passed_by_method in compared_with.items():
        pairs = [(method, other) for other in passed_by_method if other != method]
        appended = {name: with_mean(passed) for name, passed in passed_by_method.items()}
        labels = [*range(1, largest_n(passed_by_method[method]) + 1), MEAN]
        parts.append(compare(appended, pairs, labels))
    return pd.concat(parts, ignore_index=True)


def embedding_worth(table: pd.DataFrame) -> pd.DataFrame:
    """Return what the question is worth to each method, of the table of `compared`: columns
    `WORTH_COLUMNS`.
    """
    shown = table["against"].isin(IGNORING) & table["n"].isin([*SHOWN_N, MEAN])
    return table.loc[shown, WORTH_COLUMNS]


def _means(passed: Outcomes) -> dict[int | str, float]:
    """Return the mean over questions and seeds by N, and `MEAN`, trained on all questions."""
    means = np.mean(with_mean(passed)[0], axis=(0, 1))
    return dict(zip([*range(1, len(means)), MEAN], means.tolist(), strict=True))


def paired(
    table: pd.DataFrame,
    passed_by_method: Mapping[str, Outcomes],
    likeness: Sequence[str],
    bootstrap: Bootstrap,
) -> pd.DataFrame:
    """Return SPRINT's value minus that of other methods, columns `PAIRED_COLUMNS`.

    Args:
        table: the differences, as `compare` returns them; those at `MEAN` and from shuffled
            questions stand in another table.
        passed_by_method: the outcomes of the methods.
        likeness: of each question, its degree in `headsweep.experiments.sprint.validation.overlap`.
        bootstrap: resamples of the questions, for the band.
    """
    elsewhere = (table["n"] == MEAN) | (table["against"] == SHUFFLED)
    table = table[(table["method"] == methods.SPRINT) & ~elsewhere]
    degree = pd.Series(likeness)
    apart = (degree == APART_FROM_ALL).to_numpy()
    parts = []
    for against, rows in table.groupby("against", sort=False):
        sprint = np.mean(passed_by_method[methods.SPRINT][0], axis=0)
        lead = sprint - np.mean(passed_by_method[str(against)][0], axis=0)
        half = (rows["high"] - rows["low"]) / 2 * simultaneous(lead, bootstrap)
        middle = (rows["high"] + rows["low"]) / 2
        part = rows.assign(band_low=middle - half, band_high=middle + half)
        # Ties go to the smallest N; where the other method is undefined, N is left out.
        part["peak"] = np.nanargmax(lead.mean(axis=0)) + 1
        parts.append(part)
    whole = pd.concat(parts, ignore_index=True).drop(columns="method")
    whole = whole.rename(columns={"against": "method"}).astype({"n": int})
    if 1 < apart.sum() < len(apart):
        others = {name: of_questions(passed, apart) for name, passed in passed_by_method.items()}
        pairs = [(methods.SPRINT, name) for name in whole["method"].unique()]
        labels = range(1, largest_n(passed_by_method[methods.SPRINT]) + 1)
        cut = compare(others, pairs, labels)[["against", "n", *TESTED[:3]]]
        cut = cut.set_axis(["method", "n", *APART], axis=1)
        whole = whole.merge(cut, on=["method", "n"], how="left")
    return whole.reindex(columns=PAIRED_COLUMNS)


def ablation(passed: Mapping[str, Outcomes], readings: Mapping[str, LossReading]) -> pd.DataFrame:
    """Return Pass@N of every reading of the loss and every embedder, columns `ABLATION_COLUMNS`.

    It is for display only: no setting is chosen by it.

    Args:
        passed: Pass@N by name of a reading.
        readings: geometry, λ and embedder by that name, and what each is held against.
    """
    appended = {name: with_mean(values) for name, values in passed.items()}
    pairs = [(name, reading.against) for name, reading in readings.items() if reading.against]
    max_n = largest_n(next(iter(passed.values())))
    labels = [*range(1, max_n + 1), MEAN]
    tested = compare(appended, pairs, labels)[["method", "n", *TESTED]]
    rows = [
        {"reading": name, **readings[name]._asdict(), "n": n, "pass_at_n": value}
        for name, values in passed.items()
        for n, value in _means(values).items()
        if n in (*SHOWN_N, MEAN)
    ]
    tested = tested.rename(columns={"method": "reading"})
    return pd.DataFrame(rows).merge(tested, on=["reading", "n"], how="left")[ABLATION_COLUMNS]


def sensitivity(
    passed: Mapping[Shortlist, Outcomes],
    held_out: Mapping[Shortlist, Float[np.ndarray, " max_n"]],
    chosen: Shortlist,
) -> pd.DataFrame:
    """Return Pass@N of heads drawn from every shortlist, columns `SENSITIVITY_COLUMNS`.

    It is for display only: no shortlist is chosen by the test questions.

    Args:
        passed: on test questions.
        held_out: means on held-out training questions.
        chosen: the shortlist that is best there.
    """
    labels = range(1, len(held_out[chosen]) + 1)
    pairs = [(shortlist, chosen) for shortlist in passed if shortlist != chosen]
    tested = compare(passed, pairs, labels)
    tested[["criterion", "k"]] = tested["method"].tolist()
    rows = []
    for shortlist, held_out_means in held_out.items():
        of_draw = passed[shortlist][0]
        test_means = of_draw[0].mean(axis=0)
        for n in labels:
            row = {
                "criterion": shortlist.criterion,
                "k": shortlist.k,
                "chosen": shortlist == chosen,
                "n": n,
                "held_out": held_out_means[n - 1],
                "test": test_means[n - 1],
            }
            rows.append(row)
    keys = ["criterion", "k", "n"]
    return pd.DataFrame(rows).merge(tested[[*keys, *TESTED]], on=keys, how="left")[
        SENSITIVITY_COLUMNS
    ]


def transfer(
    passed: Outcomes, at_home: Mapping[str, Outcomes], titles: Mapping[str, str]
) -> pd.DataFrame:
    """Return what a selector from elsewhere reaches less than those at home: `TRANSFER_COLUMNS`.

    Args:
        passed: its Pass@N.
        at_home: those of selectors at home, by name. Where one of all has fewer answers, seeds or
            draws, the others count no more.
        titles: what the page calls them.
    """
    by_name = {_FROM_ELSEWHERE: passed, **at_home}
    draws = min(len(by_draw) for by_draw in by_name.values())
    seeds = min(len(by_draw[0]) for by_draw in by_name.values())
    most = min(map(largest_n, by_name.values()))
    cut = {name: with_mean(_cut(by_draw, draws, seeds, most)) for name, by_draw in by_name.items()}
    labels = [*range(1, most + 1), MEAN]
    table = compare(cut, [(_FROM_ELSEWHERE, name) for name in at_home], labels)
    table = table[table["n"].isin([*SHOWN_N, MEAN])].copy()
    for column, side in (("elsewhere", "method"), ("at_home", "against")):
        table[column] = [
            np.mean(cut[name][0], axis=(0, 1))[labels.index(n)]
            for name, n in zip(table[side], table["n"], strict=True)
        ]
    table["title"] = table["against"].map(titles)
    return table[TRANSFER_COLUMNS]


def _cut(outcomes: Outcomes, draws: int, seeds: int, most: int) -> Outcomes:
    """Return the outcomes of the first draws and seeds, up to `most` answers."""
    return [[values[:, :most] for values in by_seed[:seeds]] for by_seed in outcomes[:draws]]
