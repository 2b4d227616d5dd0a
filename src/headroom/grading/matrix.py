"""Graded answers and the accuracy matrix Z, and the jobs that write them."""

import logging
import os
from collections import Counter, defaultdict
from collections.abc import Mapping, Set
from itertools import product
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa

from headroom import paths
from headroom.config import Config, Preset
from headroom.errors import RESULT, TableError
from headroom.grading.graders import canonical, find_grader, hendrycks, shortcut
from headroom.grading.pool import Judgement, Pair, judge_pairs
from headroom.planning.batches import Batch, find_batch
from headroom.planning.store import Store
from headroom.record import Stopwatch, write_record
from headroom.tables import (
    ACCURACY,
    ANSWERS,
    GRADED,
    QUESTIONS,
    read_table,
    write_csv,
    write_table,
)
from headroom.variants import BASE, Variant

log = logging.getLogger(__name__)


def grade_answers(
    questions: pd.DataFrame,
    answers: Mapping[str, pd.DataFrame],
    *,
    family: str,
    preset: str,
    workers: int = 1,
) -> pd.DataFrame:
    """Extract and judge the answers of several variants to one question set.

    Each distinct pair of answer and gold answer is judged once. Right answers to a question are
    group 0; wrong ones are in the same group if they are equal after Hendrycks' normalisation
    (groups 1, 2, ... by first appearance); without an answer the group is -1.

    Args:
        questions: the question set, as `tables.QUESTIONS`.
        answers: by variant, as `tables.ANSWERS`.
        family: ``math`` or ``gsm8k``, or a custom benchmark's grader.
        preset: ``default`` or ``authors``: rules of extraction and judging.
        workers: number of judging processes.

    Returns:
        Columns of `tables.GRADED`; rows by variant, then in question order, then by sample.

    Raises:
        TableError: a variant's answers are not those of the question set.
        GradingError: no worker can be started.
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
    distinct = {pair for pair in pairs if pair}
    judgements = (
        {pair: Judgement("judged", grader.equal(*pair)) for pair in distinct}
        if grader.equal
        else judge(distinct, preset, workers)
    )
    outcomes = [judgements[pair] if pair else Judgement("no_answer", False) for pair in pairs]
    groups, wrong = [], defaultdict[str, dict[str, int]](dict)
    for answer, question_id, outcome in zip(found, table["question_id"], outcomes, strict=True):
        if answer is None or outcome.correct:
            groups.append(-1 if answer is None else 0)
        else:
            known = wrong[question_id]
            groups.append(known.setdefault(hendrycks(answer), len(known) + 1))
    table = table.assign(
        answer=pd.Series(found, dtype="str"),
        correct=[outcome.correct for outcome in outcomes],
        verdict=[outcome.verdict for outcome in outcomes],
        tokens=table["token_ids"].map(len).astype(np.int32),
        group=np.array(groups, np.int32),
    )
    counts = sorted(Counter(outcome.verdict for outcome in outcomes).items())
    shown = ", ".join(f"{count} {verdict.replace('_', ' ')}" for verdict, count in counts)
    log.info("graded %d answers: %s", len(table), shown)
    return table[GRADED.names]


def accuracy_matrix(graded: pd.DataFrame, questions: pd.DataFrame) -> pd.DataFrame:
    """Return the accuracy matrix Z: a row for each question, a 0/1 column for each variant.

    If a single variant has several samples, each has a column: ``S00``, ``S01``, ...

    Args:
        graded: graded answers, as `tables.GRADED`.
        questions: the question set, as `tables.QUESTIONS`, which decides the order of rows.

    Returns:
        Columns of `tables.ACCURACY`, then one int8 column for each variant (base first, then by
        layer and query head) or sample.

    Raises:
        TableError: several variants have several samples, or the questions differ.
    """
    columns = sorted(graded["variant"].unique(), key=Variant.parse)
    samples = sorted(graded["sample"].unique())
    labels = graded["variant"]
    if len(columns) == 1 < len(samples):
        labels = graded["sample"].map("S{:02d}".format)
        columns = [f"S{sample:02d}" for sample in samples]
    elif len(samples) > 1:
        raise TableError(
            f"{len(columns)} variants have {len(samples)} samples each; "
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
    """Return a variant's answers in question order after checking that none is missing."""
    samples = sorted(answers["sample"].unique())
    wanted = pd.MultiIndex.from_product([questions["question_id"], samples])
    given = pd.MultiIndex.from_frame(answers[["question_id", "sample"]])
    if not samples or not given.is_unique or set(given) != set(wanted):
        raise TableError(
            f"variant {name} has {len(given)} answers that are not those of the question set "
            f"({len(questions)} questions, {len(samples)} samples); remove its file and rerun"
        )
    return answers.iloc[given.get_indexer(wanted)]


def judge(pairs: Set[Pair], preset: str, workers: int) -> dict[Pair, Judgement]:
    """Judge pairs in canonical form; workers judge those that have no shortcut."""
    known = {pair: shortcut(*pair) for pair in pairs}
    # Sorted by gold answer, so that a worker parses each gold answer once.
    hard = sorted((pair for pair in pairs if known[pair] is None), key=lambda pair: pair[::-1])
    easy = {pair: Judgement("judged", right) for pair, right in known.items() if right is not None}
    return easy | dict(zip(hard, judge_pairs(hard, preset, workers=workers), strict=True))


def grade(
    config: Config, model: str, decoding: str, questions: str, grading: Preset | None = None
) -> None:
    """Grade all answers of a batch; write the graded answers and the accuracy matrix Z.

    If `grading` is given, the tables go to a folder of that name.
    """
    stopwatch = Stopwatch()
    batch, store = find_batch(config, model, decoding, questions), Store(config)
    rows = read_table(store.path(paths.QUESTIONS, questions=questions), QUESTIONS)
    answers = {
        str(variant): read_table(Path(file), ANSWERS)
        for variant, file in zip(batch.variants, store.answers(batch), strict=True)
    }
    family = config.questions[questions].family
    rules = grading or config.grading
    graded = grade_answers(rows, answers, family=family, preset=rules, workers=_cores())
    facts = {**store.keys(**batch.names), "grading": rules}
    names = {**batch.names, "grading": rules}
    matrix = accuracy_matrix(graded, rows)
    variants = matrix.columns.difference(ACCURACY.names, sort=False)
    schema = pa.schema([*ACCURACY, *(pa.field(name, pa.int8(), False) for name in variants)])
    files = [
        store.path(paths.REGRADED if grading else paths.GRADED, **names),
        store.path(paths.REGRADED_ACCURACY if grading else paths.ACCURACY, **names),
    ]
    for file, table, columns in zip(files, (graded, matrix), (GRADED, schema), strict=True):
        write_table(file, table, columns, facts)
    verdicts = graded["verdict"].value_counts().sort_index().to_dict()
    for file in files:
        write_record(file, stopwatch, {**facts, "verdicts": verdicts})
    shown = RESULT if len(batch.variants) > 1 else logging.INFO
    log.log(shown, "%s", _right(batch, graded))


def _right(batch: Batch, graded: pd.DataFrame) -> str:
    """Return the result line: accuracy of the base model, and its range over pruned heads."""
    right = 100 * graded.groupby("variant")["correct"].mean()
    pruned = [right[str(variant)] for variant in batch.variants if variant.kind == "head"]
    questions = graded["question_id"].nunique()
    line = f"{batch.model} on {questions} questions of {batch.questions}, {batch.decoding}: "
    line += f"{right[str(BASE)]:.1f}% right"
    if pruned:
        line += f", without one of {len(pruned)} heads {min(pruned):.1f} to {max(pruned):.1f}%"
    return line


def compare_prompts(config: Config, comparison: str) -> None:
    """Grade the base model's answers under two prompts, each under both sets of rules."""
    stopwatch = Stopwatch()
    section, store = config.comparisons[comparison], Store(config)
    names = {"model": section.model, "questions": section.questions, "variant": BASE}
    rows = read_table(store.path(paths.QUESTIONS, **names), QUESTIONS)
    family = config.questions[section.questions].family
    reference, counts = None, []
    for decoding, preset in product(section.decodings, ("default", "authors")):
        file = store.path(paths.ANSWERS, decoding=decoding, **names)
        answers = {str(BASE): read_table(file, ANSWERS)}
        graded = grade_answers(rows, answers, family=family, preset=preset, workers=_cores())
        correct = graded["correct"]
        reference = correct if reference is None else reference
        counts.append(
            {
                "decoding": decoding,
                "grading": preset,
                "n": len(graded),
                "correct": correct.sum(),
                "accuracy": correct.mean(),
                "no_answer": graded["answer"].isna().sum(),
                "truncated": (graded["stop_reason"] == "length").sum(),
                "differ_from_default": (correct != reference).sum(),
            }
        )
    output = store.path(paths.COMPARISON, comparison=comparison)
    write_csv(output, pd.DataFrame(counts))
    write_record(output, stopwatch, {"comparison": section.model_dump(mode="json")})


def _cores() -> int:
    return len(os.sched_getaffinity(0))
