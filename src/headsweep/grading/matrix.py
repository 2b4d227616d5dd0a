"""Graded answers and the accuracy matrix Z, and the jobs that write them."""

import logging
from collections import defaultdict
from collections.abc import Iterable, Mapping
from itertools import product
from pathlib import Path

import numpy as np
import pandas as pd

from headsweep.choices import GRADERS_VERSION
from headsweep.config import Preset
from headsweep.errors import RESULT, TableError
from headsweep.files import paths, safe_files, tables
from headsweep.files.record import Stopwatch, write_record
from headsweep.grading.distinct import grade_texts
from headsweep.grading.extraction import gradable
from headsweep.statistics.answers import NO_ANSWER
from headsweep.store.batches import Batch
from headsweep.store.hard_links import unlink_finished
from headsweep.store.layout import Store
from headsweep.text import counted
from headsweep.variants import BASE, Variant

_LOG = logging.getLogger(__name__)


def grade_answers(
    questions: pd.DataFrame, answers: Mapping[str, pd.DataFrame], grader_name: str, preset: str
) -> pd.DataFrame:
    """Extract and judge the answers of several variants to one question set.

    Each distinct pair of answer and gold answer is judged once. Answers to a question, right or
    wrong, are in one group if the grader's form of them is equal (groups 0, 1, ... by first
    appearance), as `headsweep solve` merges them; without an answer the group is -1. An answer
    that was cut before it gave a final one has none: see `extraction.gradable`.

    Args:
        questions: the question set, as `tables.QUESTIONS`.
        answers: by variant, as `tables.ANSWERS`.
        grader_name: ``math`` or ``gsm8k``, or a custom benchmark's grader.
        preset: ``default`` or ``authors``: rules of extraction and judging.

    Returns:
        Columns of `tables.GRADED`; rows by variant, then in question order, then by sample.

    Raises:
        TableError: a variant's answers are not those of the question set.
        GradingError: no worker can be started.
    """
    names = sorted(answers, key=Variant.parse)
    parts = [_ordered(name, answers[name], questions).assign(variant=name) for name in names]
    table = pd.concat(parts, ignore_index=True)
    golds = questions.set_index("question_id")["answer"][table["question_id"]].tolist()
    texts = [
        gradable(text, stop_reason, preset)
        for text, stop_reason in zip(table["text"], table["stop_reason"], strict=True)
    ]
    readings, judgements = grade_texts(texts, golds, grader_name, preset)
    table = table.join(pd.DataFrame(judgements))  # verdict and correct
    table["answer"] = pd.Series([reading.answer for reading in readings], dtype="str")
    table["tokens"] = table["token_ids"].map(len).astype(np.int32)
    groups = _groups(table["question_id"], [reading.form for reading in readings])
    table["group"] = pd.Series(groups, dtype=np.int32)
    counts = table["verdict"].value_counts().sort_index()
    shown = ", ".join(f"{count} {name}" for name, count in counts.items()).replace("_", " ")
    _LOG.info("graded %d answers: %s", len(table), shown)
    return table[tables.GRADED.columns]


def _groups(questions: Iterable[str], forms: Iterable[str | None]) -> list[int]:
    """Number the distinct forms of each question by first appearance; -1 is no form."""
    numbers_of_question = defaultdict[str, dict[str, int]](dict)
    groups = []
    for question, form in zip(questions, forms, strict=True):
        if form is None:
            groups.append(NO_ANSWER)
            continue
        numbers = numbers_of_question[question]
        groups.append(numbers.setdefault(form, len(numbers)))
    return groups


def accuracy_matrix(graded: pd.DataFrame, questions: pd.DataFrame) -> pd.DataFrame:
    """Return the accuracy matrix Z of `grade_answers`: a row for each question, in their order.

    Columns are those of `tables.ACCURACY`, then one of 0 and 1 for each variant (base first, then
    by layer and query head), or for each of several samples of the base model: ``S00``, ``S01``.
    """
    sampled = graded["sample"].nunique() > 1
    labels = graded["sample"].map("S{:02d}".format) if sampled else graded["variant"]
    cells = graded.assign(label=labels).pivot(
        index="question_id", columns="label", values="correct"
    )
    cells = cells.loc[questions["question_id"], labels.unique()].astype(np.int8)
    return questions[tables.ACCURACY.columns].join(cells, on="question_id")


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


def grade_batch(
    batch: Batch, preset: str
) -> tuple[pd.DataFrame, dict[str, pd.DataFrame], pd.DataFrame]:
    """Return the question set of a batch, its answers by variant, and these graded."""
    grader_name = batch.store.config.questions[batch.questions].grader_name
    rows = safe_files.read_table(batch.path(tables.QUESTIONS), tables.QUESTIONS)
    answers = {
        str(variant): safe_files.read_table(Path(file), tables.ANSWERS)
        for variant, file in zip(batch.variants, batch.answers, strict=True)
    }
    return rows, answers, grade_answers(rows, answers, grader_name, preset)


def grade(batch: Batch, grading: Preset | None = None) -> None:
    """Grade all answers of a batch; write the graded answers and the accuracy matrix Z.

    If `grading` is given, the tables go to a folder of that name.
    """
    stopwatch = Stopwatch()
    rules = grading or batch.store.config.grading
    rows, _, graded = grade_batch(batch, rules)
    facts = {**batch.keys._asdict(), "grading": rules, "graders": GRADERS_VERSION}
    noted = facts | {"verdicts": graded["verdict"].value_counts().sort_index().to_dict()}
    matrix = accuracy_matrix(graded, rows)
    for table, regraded, content in (
        (tables.GRADED, tables.REGRADED, graded),
        (tables.ACCURACY, tables.REGRADED_ACCURACY, matrix),
    ):
        file = batch.path(regraded if grading else table, grading=rules)
        safe_files.write_table(file, content, table, facts)
        write_record(file, stopwatch, noted)
    unlink_finished(batch)
    shown = RESULT if len(batch.variants) > 1 else logging.INFO
    _LOG.log(shown, "%s", _right(batch, graded))


def _right(batch: Batch, graded: pd.DataFrame) -> str:
    """Return the result line: accuracy of the base model, and its range over pruned heads."""
    right = 100 * graded.groupby("variant")["correct"].mean()
    pruned = [right[str(variant)] for variant in batch.variants if variant.kind == "head"]
    questions = counted(graded["question_id"].nunique(), "question")
    line = f"{batch.model} on {questions} of {batch.questions}, {batch.decoding}: "
    line += f"{right[str(BASE)]:.1f}% right"
    if len(pruned) == 1:
        line += f", without one head {pruned[0]:.1f}%"
    elif pruned:
        line += f", without one of {len(pruned)} heads {min(pruned):.1f} to {max(pruned):.1f}%"
    return line


def compare_prompts(store: Store, comparison: str) -> None:
    """Grade the base model's answers under two prompts, each under both sets of rules."""
    stopwatch = Stopwatch()
    section = store.config.comparisons[comparison]
    reference = None
    counts = []
    for decoding, preset in product(section.decodings, ("default", "authors")):
        batch = Batch(store, section.model, decoding, section.questions)
        _, _, graded = grade_batch(batch, preset)
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
                "differ_from_first": (correct != reference).sum(),
            }
        )
    output = store.path(paths.COMPARISON, comparison=comparison)
    safe_files.write_csv(output, pd.DataFrame(counts))
    write_record(output, stopwatch, {"comparison": section.model_dump(mode="json")})
