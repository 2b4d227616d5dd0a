"""Graded answers and the accuracy matrix Z."""

import logging
from collections import Counter
from collections.abc import Mapping, Sequence

import numpy as np
import pandas as pd

from headroom.errors import TableError
from headroom.grading.graders import find_grader
from headroom.grading.judge import canonical, shortcut
from headroom.grading.normalisation import hendrycks
from headroom.grading.pool import Judgement, Pair, judge_pairs
from headroom.tables import ACCURACY, GRADED
from headroom.variants import Variant

log = logging.getLogger(__name__)

_NO_ANSWER = Judgement("no_answer", False)


def grade_answers(
    questions: pd.DataFrame,
    answers: Mapping[str, pd.DataFrame],
    *,
    family: str,
    preset: str,
    workers: int = 1,
) -> pd.DataFrame:
    """Extract and judge the answers of several variants to one question set.

    Each distinct pair of answer and gold answer is judged once. Answers to a question are in the
    same group if they are correct (group 0), or wrong and equal after Hendrycks' normalisation
    (groups 1, 2, ... by first appearance); without an answer the group is -1.

    Args:
        questions: the question set, as `tables.QUESTIONS`.
        answers: for each variant its answers, as `tables.ANSWERS`.
        family: ``math`` or ``gsm8k``, the rules of extraction; or a custom benchmark's grader.
        preset: ``default`` or ``authors``, the rules of extraction and judging.
        workers: how many processes judge.

    Returns:
        Columns of `tables.GRADED`; rows by variant, then in question order, then by sample.

    Raises:
        TableError: a variant's answers are not those of the question set.
        GradingError: family or preset is not known, or no worker can be started.
    """
    grader = find_grader(family, preset)
    names = sorted(answers, key=Variant.parse)
    parts = [_ordered(name, answers[name], questions) for name in names]
    table = pd.concat(parts, ignore_index=True).assign(
        variant=np.repeat(names, [len(part) for part in parts])
    )
    found = [grader.extract(text) for text in table["text"]]
    gold = dict(zip(questions["question_id"], map(canonical, questions["answer"]), strict=True))
    pairs = [
        None if answer is None else (canonical(answer), gold[question_id])
        for answer, question_id in zip(found, table["question_id"], strict=True)
    ]
    distinct = list({pair for pair in pairs if pair})
    judged = (
        [Judgement("judged", grader.equal(*pair)) for pair in distinct]
        if grader.equal
        else judge(distinct, preset, workers)
    )
    judgements = dict(zip(distinct, judged, strict=True))
    outcomes = [judgements[pair] if pair else _NO_ANSWER for pair in pairs]
    table = table.assign(
        answer=pd.Series(found, dtype="str"),
        correct=[outcome.correct for outcome in outcomes],
        verdict=[outcome.verdict for outcome in outcomes],
        tokens=table["token_ids"].map(len).astype(np.int32),
    )
    table["group"] = _groups(table["question_id"], found, outcomes)
    counts = sorted(Counter(outcome.verdict for outcome in outcomes).items())
    told = ", ".join(f"{count} {verdict.replace('_', ' ')}" for verdict, count in counts)
    log.info("graded %d answers: %s", len(table), told)
    return table[GRADED.names]


def accuracy_matrix(graded: pd.DataFrame, questions: pd.DataFrame) -> pd.DataFrame:
    """Return the accuracy matrix Z: one row a question, one 0/1 column a variant.

    Several samples of one variant have a column each: ``S00``, ``S01``, ...

    Args:
        graded: graded answers, as `tables.GRADED`.
        questions: the question set, as `tables.QUESTIONS`; gives order, subject and level.

    Returns:
        Columns of `tables.ACCURACY`, then one int8 column for each variant (base first, then by
        layer and query head) or sample.

    Raises:
        TableError: several variants have several samples, or the questions differ.
    """
    variants = sorted(graded["variant"].unique(), key=Variant.parse)
    samples = sorted(graded["sample"].unique())
    if len(samples) == 1:
        labels = graded["variant"]
        columns = variants
    elif len(variants) == 1:
        labels = graded["sample"].map("S{:02d}".format)
        columns = [f"S{sample:02d}" for sample in samples]
    else:
        raise TableError(
            f"{len(variants)} variants have {len(samples)} samples each; "
            "a matrix holds one variant's samples or one sample of each variant"
        )
    cells = graded.assign(label=labels).pivot(
        index="question_id", columns="label", values="correct"
    )
    if set(cells.index) != set(questions["question_id"]) or cells.isna().any(axis=None):
        raise TableError(
            f"graded answers to {len(cells)} questions do not fit the question set of "
            f"{len(questions)}; grade again with the same question set"
        )
    cells = cells.loc[questions["question_id"], columns].astype(np.int8).reset_index(drop=True)
    facts = questions[ACCURACY.names].reset_index(drop=True)
    return pd.concat([facts, cells.rename_axis(columns=None)], axis=1)


def _ordered(name: str, answers: pd.DataFrame, questions: pd.DataFrame) -> pd.DataFrame:
    """Return a variant's answers in question order, after checking that none is missing."""
    order = {question_id: row for row, question_id in enumerate(questions["question_id"])}
    samples = sorted(answers["sample"].unique())
    expected = {(question_id, sample) for question_id in order for sample in samples}
    given = list(zip(answers["question_id"], answers["sample"], strict=True))
    if not given or len(given) != len(expected) or set(given) != expected:
        raise TableError(
            f"variant {name} has {len(given)} answers that are not those of the question set "
            f"({len(order)} questions, {len(samples)} samples); remove its file and rerun"
        )
    rows = sorted(range(len(given)), key=lambda row: (order[given[row][0]], given[row][1]))
    return answers.iloc[rows]


def judge(pairs: Sequence[Pair], preset: str, workers: int) -> list[Judgement]:
    """Judge pairs in canonical form, in order, those in processes that need it."""
    known = [shortcut(*pair) for pair in pairs]
    # By gold answer, so that a worker reads each gold answer once.
    hard = [index for index, verdict in enumerate(known) if verdict is None]
    hard.sort(key=lambda index: (pairs[index][1], pairs[index][0]))
    judged = judge_pairs([pairs[index] for index in hard], preset, workers=workers)
    found = dict(zip(hard, judged, strict=True))
    return [
        found[index] if verdict is None else Judgement("judged", verdict)
        for index, verdict in enumerate(known)
    ]


def _groups(
    question_ids: pd.Series, found: list[str | None], outcomes: list[Judgement]
) -> np.ndarray:
    seen: dict[tuple[str, str], int] = {}
    counts: Counter[str] = Counter()
    groups = np.empty(len(found), np.int32)
    for row, question_id in enumerate(question_ids):
        answer = found[row]
        if answer is None:
            groups[row] = -1
        elif outcomes[row].correct:
            groups[row] = 0
        else:
            key = (question_id, hendrycks(answer))
            if key not in seen:
                counts[question_id] += 1
                seen[key] = counts[question_id]
            groups[row] = seen[key]
    return groups
