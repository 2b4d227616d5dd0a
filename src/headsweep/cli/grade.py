"""`headsweep grade`: grades a file of anyone's answers."""

import logging
import time
from pathlib import Path

import pandas as pd

from headsweep.benchmarks.golds import should_be
from headsweep.choices import GraderName
from headsweep.errors import ConfigError, TableError, quoted
from headsweep.files.safe_files import check_writable, write_csv, written_to
from headsweep.grading.foreign_answers import column, read_file, texts
from headsweep.grading.verdicts import Verdict
from headsweep.grading.verdicts import grade as verdicts_of
from headsweep.text import percent, plain

_LOG = logging.getLogger(__name__)
_SILENCE = 10.0  # seconds between two lines of progress


def grade(
    file: Path,
    grader: GraderName,
    answer_column: str,
    gold_column: str,
    final: bool,
    workers: int | None,
    out: Path | None,
) -> None:
    """Grade the answers of a file; the arguments are those of the command.

    Print how many answers are right, and how the others fail; then write, if `out` is given.

    Raises:
        TableError: the file cannot be read, lacks a column or a gold answer.
        ConfigError: `out` is no CSV, or cannot be written.
    """
    if out is not None:
        if out.suffix != ".csv":
            raise ConfigError(f"--out {out} is no CSV; give a file that ends in .csv")
        check_writable("--out", out)
    table = read_file(file)
    answers = texts(column(table, file, answer_column, "--answer-column"), file)
    golds = texts(column(table, file, gold_column, "--gold-column"), file)
    begin = time.monotonic()
    verdicts = judged(file, answers, golds, grader, final=final, workers=workers)
    seconds = time.monotonic() - begin
    counts = pd.Series([verdict.cause for verdict in verdicts]).value_counts()
    causes = ", ".join(f"{count:,} {cause}" for cause, count in counts.items())
    right = percent(counts.get("right", 0) / len(verdicts))
    print(f"{plain(str(file))}: {right} of {len(verdicts):,} answers are right ({causes})")
    pace = len(verdicts) / seconds
    print(f"{grader} grader, {seconds:.1f} s, {pace:,.0f} answers a second", flush=True)
    if out is not None:
        columns = pd.DataFrame(verdicts)[["correct", "cause", "answer", "form"]]
        columns = columns.rename(columns={"answer": "final_answer"})
        kept = table.drop(columns=columns, errors="ignore")
        with written_to("--out", out):
            write_csv(out, kept.join(columns), verbatim=True)


def judged(
    origin: object,
    answers: list[str | None],
    golds: list[str | None],
    grader: GraderName,
    *,
    final: bool = False,
    workers: int | None = None,
) -> list[Verdict]:
    """Grade the answers of a table, and log progress.

    Raises:
        TableError: a gold answer is missing, or no answer can match it.
    """
    present_golds = [gold for gold in golds if gold and gold.strip()]
    if len(present_golds) < len(golds):
        row = next(place for place, gold in enumerate(golds, 1) if not (gold and gold.strip()))
        raise TableError(f"{origin} has no gold answer in row {row}; give one for each answer")
    for row, gold in enumerate(present_golds, 1):
        if allowed := should_be(gold, grader):
            raise TableError(
                f"{origin} row {row}: gold is {quoted(gold)}, not {allowed}; correct the "
                f"row, or take another --grader"
            )
    last = time.monotonic()

    def told(done: int, count: int) -> None:
        nonlocal last
        if time.monotonic() - last > _SILENCE:
            last = time.monotonic()
            _LOG.info("%s: %d of %d distinct pairs are judged", origin, done, count)

    return verdicts_of(answers, present_golds, grader, final=final, workers=workers, progress=told)
