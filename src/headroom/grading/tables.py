"""Grading as jobs: all answers of a batch are judged, and prompts are compared."""

import logging
import os
from pathlib import Path

import pandas as pd
import pyarrow as pa

from headroom import paths
from headroom.config import Config, Preset
from headroom.grading.matrix import accuracy_matrix, grade_answers
from headroom.planning.batches import Batch, find_batch
from headroom.planning.store import Store
from headroom.record import Stopwatch, write_record
from headroom.saying import RESULT
from headroom.tables import (
    ACCURACY,
    ANSWERS,
    GRADED,
    QUESTIONS,
    atomic,
    read_table,
    write_table,
)
from headroom.variants import BASE

_LOG = logging.getLogger(__name__)


def grade(
    config: Config, model: str, decoding: str, questions: str, grading: Preset | None = None
) -> None:
    """Judge all answers of a batch; write them graded, and the accuracy matrix Z.

    Grading rules that are not the run's own have tables in a folder of their name.
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
    graded_file = store.path(paths.REGRADED if grading else paths.GRADED, **names)
    write_table(graded_file, graded, GRADED, facts)
    matrix = accuracy_matrix(graded, rows)
    variants = [name for name in matrix.columns if name not in ACCURACY.names]
    schema = pa.schema([*ACCURACY, *(pa.field(name, pa.int8(), False) for name in variants)])
    output = store.path(paths.REGRADED_ACCURACY if grading else paths.ACCURACY, **names)
    write_table(output, matrix, schema, facts)
    verdicts = graded["verdict"].value_counts().sort_index().to_dict()
    for file in (graded_file, output):
        write_record(file, stopwatch, {**facts, "verdicts": verdicts})
    shown = RESULT if len(batch.variants) > 1 else logging.INFO
    _LOG.log(shown, "%s", _right(config, batch, graded, rules))


def _right(config: Config, batch: Batch, graded: pd.DataFrame, rules: Preset) -> str:
    """Say whose answers are right how often: the base model's and its pruned heads'."""
    right = 100 * graded.groupby("variant")["correct"].mean()
    pruned = [right[str(variant)] for variant in batch.variants if variant.kind == "head"]
    names = (batch.model, batch.decoding, batch.questions)
    sweeps = [
        f"sweep {name}, "
        for name, sweep in config.sweeps.items()
        if (sweep.model, sweep.decoding, sweep.questions) == names
        and config.grading_of(name) == rules
    ]
    heads = f", without one of {len(pruned)} heads {min(pruned):.1f} to " if pruned else ""
    return (
        f"{''.join(sweeps)}{batch.model} on {graded['question_id'].nunique()} questions of "
        f"{batch.questions}, {batch.decoding}: {right[str(BASE)]:.1f}% right"
        + (f"{heads}{max(pruned):.1f}%" if pruned else "")
    )


def compare_prompts(config: Config, comparison: str) -> None:
    """Grade the base model's answers under two prompts, each under both sets of rules."""
    stopwatch = Stopwatch()
    section, store = config.comparisons[comparison], Store(config)
    names = {"model": section.model, "questions": section.questions, "variant": BASE}
    rows = read_table(store.path(paths.QUESTIONS, **names), QUESTIONS)
    family = config.questions[section.questions].family
    graded: dict[tuple[str, Preset], pd.DataFrame] = {}
    for decoding in section.decodings:
        file = store.path(paths.ANSWERS, decoding=decoding, **names)
        answers = {str(BASE): read_table(file, ANSWERS)}
        for preset in ("default", "authors"):
            graded[decoding, preset] = grade_answers(
                rows, answers, family=family, preset=preset, workers=_cores()
            )
    reference = graded[section.decodings[0], "default"]["correct"]
    table = pd.DataFrame(
        [
            {
                "decoding": decoding,
                "grading": preset,
                "n": len(result),
                "correct": int(result["correct"].sum()),
                "accuracy": result["correct"].mean(),
                "no_answer": int(result["answer"].isna().sum()),
                "truncated": int((result["stop_reason"] == "length").sum()),
                "differ_from_default": int((result["correct"] != reference).sum()),
            }
            for (decoding, preset), result in graded.items()
        ]
    )
    output = store.path(paths.COMPARISON, comparison=comparison, suffix="csv")
    with atomic(output) as temporary:
        table.to_csv(temporary, index=False)
    write_record(output, stopwatch, {"comparison": section.model_dump(mode="json")})


def _cores() -> int:
    return len(os.sched_getaffinity(0))
