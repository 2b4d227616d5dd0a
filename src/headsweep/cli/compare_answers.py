"""`headsweep.compare`: anyone's answers, read, graded if need be, and paired by question.

What is compared is a table with a row for each answer: an id of the question (`question_id`, `id`
or `doc_id`), and either `correct`, or `answer` and `gold`, which are graded here. A column `sample`
tells several answers to a question apart; a column `tokens` gives the length of each. Votes are
counted if answers are graded here, or if there is a column `final_answer`, as `headsweep grade
--out` writes it, with `form` beside it: final answers of equal form are one.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import pandas as pd

from headsweep.choices import GraderName
from headsweep.cli.grade import judged
from headsweep.errors import ConfigError, TableError, quoted
from headsweep.grading import lm_eval
from headsweep.grading.foreign_answers import SUFFIXES, read_file, texts
from headsweep.grading.graders import canonical
from headsweep.results.run import is_foreign
from headsweep.results.systems import Answered, compared
from headsweep.statistics.answers import NO_ANSWER
from headsweep.text import counted, plain, plural

_IDS = ("question_id", "id", "doc_id")
_WHOLE = re.compile(r"-?\d+\.0")
_TRUTH = {"true": True, "false": False, "1": True, "0": False, "1.0": True, "0.0": False}
_NAMED = 3  # ids that a message names
_MOST_SAMPLES = 1000  # of more the number of ways to draw a vote exceeds what a float can hold

Tables = dict[str, pd.DataFrame]


_MOST_TOKENS = 1e9  # of an answer


@dataclass(frozen=True)
class ReadingRules:
    """How tables are read: how answers are graded, and which of lm_eval's numbers counts."""

    grader: GraderName = "math"
    final: bool = False
    metric: str | None = None
    metric_filter: str | None = None


def compare(
    frames: Mapping[str, pd.DataFrame | str | Path],
    *,
    common: bool = False,
    grader: GraderName = "math",
    final: bool = False,
    metric: str | None = None,
    metric_filter: str | None = None,
) -> Tables:
    """Compare two systems or more on the same questions.

    Args:
        frames: by the name of a system its answers, a row each, or where they are: a file or an
            lm_eval folder. Columns as above. The first system is the baseline.
        common: compare on the questions that all have, if not all have the same.
        grader: how answers are found and compared where `correct` is not there.
        final: the answers are final ones: they need no box.
        metric: which of lm_eval's metrics says what is right, where there are several; ``resps``:
            none, all answers of a ``generate_until`` task are graded here.
        metric_filter: which of lm_eval's filters, likewise.

    Returns:
        The tables of `headsweep.results.systems.compared`.

    Raises:
        ConfigError: there are fewer than two systems, or their questions differ.
        TableError: a table cannot be read, or does not say what is right.
    """
    rules = ReadingRules(grader, final, metric, metric_filter)
    read = {
        name: answers_of(frame, name, rules)
        if isinstance(frame, pd.DataFrame)
        else read_answers(str(frame), rules).answers
        for name, frame in frames.items()
    }
    return compared(matched(read, common))


def named(given: list[str]) -> dict[str, str]:
    """Return what is given by short names: the file's own, or all of it where two are equal."""
    stems = [_stem(Path(path)) for path in given]
    files = {}
    for stem, path in zip(stems, given, strict=True):
        files[stem if stems.count(stem) == 1 else path] = path
    if len(files) < len(given):
        raise ConfigError(f"{given} names something twice; name each once")
    return files


def _stem(path: Path) -> str:
    """Return a file's name without its suffix; that of Qwen2.5-0.5B, a folder, is all of it."""
    return path.stem if path.suffix in SUFFIXES else path.name


class Read(NamedTuple):
    """The answers of a system."""

    answers: pd.DataFrame
    """Columns question_id, sample, correct; where known, tokens, gold, doc_hash, and label: equal
    for equal answers to a question, and None without an answer."""
    told: str
    """What was read, in a line."""
    graded: bool
    """Whether they were graded here."""


def is_lm_eval(given: str) -> bool:
    """Return whether a system is a folder of lm_eval's."""
    return is_foreign(given) and Path(given).is_dir()


def read_answers(given: str, rules: ReadingRules) -> Read:
    """Read the answers of a file, an lm_eval folder or a run of headsweep.

    Raises:
        TableError: it cannot be read.
    """
    place = Path(given)
    if not is_foreign(given):
        from headsweep.cli.compare import base_answers

        rows, what = base_answers(given)
    elif is_lm_eval(given):
        rows, what = lm_eval.read_folder(place, rules.metric, rules.metric_filter)
    else:
        rows = read_file(place)
        what = place.suffix.removeprefix(".")
    answers = answers_of(rows, place, rules)
    graded = "correct" not in rows
    how = f"graded here, {rules.grader}" if graded else "as given"
    questions = answers["question_id"].nunique()
    samples = len(answers) // questions
    many = f", {samples} answers each" if samples > 1 else ""
    many += f", {answers['tokens'].mean():,.0f} tokens an answer" if "tokens" in answers else ""
    asked = f"{questions:,} {plural('question', questions)}"
    said = f"{plain(given)}: {what}, {asked}{many}, right or wrong {how}"
    unfound = int(answers["label"].isna().sum()) if graded else 0
    if unfound > len(answers) / 2 and not rules.final:
        said += (
            f"; no answer is found in {unfound:,} of {len(answers):,}: if they are bare, --final"
        )
    return Read(answers, said, graded)


def answers_of(table: pd.DataFrame, origin: object, rules: ReadingRules) -> pd.DataFrame:
    """Return the answers of a table, graded if need be, as `read_answers`.

    Raises:
        TableError: a column is missing, a cell is no verdict, an answer stands twice, or questions
            have unequal numbers of answers.
    """
    ids = next((name for name in _IDS if name in table), None)
    if ids is None:
        there = ", ".join(map(str, table))
        raise TableError(
            f"{origin} has no column {' or '.join(_IDS)}, only {there}; rename the right one"
        )
    question_ids = texts(table[ids], origin)
    for row, question_id in enumerate(question_ids, 1):
        if not (question_id and question_id.strip()):
            raise TableError(f"{origin} row {row} has no {ids}; give each question an id")
    if all(_WHOLE.fullmatch(question_id or "") for question_id in question_ids):
        # A column of whole numbers with a gap, as pandas writes it.
        question_ids = [(question_id or "").removesuffix(".0") for question_id in question_ids]
    graded = pd.DataFrame({"question_id": question_ids})
    graded["sample"] = texts(table["sample"], origin) if "sample" in table else "0"
    labels: list[str | None] | None = None
    if "correct" in table:
        graded["correct"] = [_truth(cell, origin) for cell in table["correct"]]
        if "final_answer" in table:
            labels = _labels(table, origin)
    elif {"answer", "gold"} <= {*table}:
        answers, golds = texts(table["answer"], origin), texts(table["gold"], origin)
        verdicts = judged(origin, answers, golds, rules.grader, final=rules.final)
        graded["correct"] = [verdict.correct for verdict in verdicts]
        labels = [verdict.form for verdict in verdicts]
    else:
        there = ", ".join(map(str, table))
        raise TableError(
            f"{origin} has neither `correct` nor `answer` and `gold`, only {there}; add one"
        )
    for name in ("gold", "doc_hash"):
        if name in table:
            graded[name] = texts(table[name], origin)
    if "tokens" in table:
        graded["tokens"] = [_count(cell, origin) for cell in table["tokens"]]
    if labels is not None:
        graded["label"] = pd.Series(labels, dtype=object)
    _check_samples(graded, origin)
    return graded


def _labels(table: pd.DataFrame, origin: object) -> list[str | None]:
    """Return what is equal for equal final answers: their form, as given or made here."""
    final_answers = texts(table["final_answer"], origin)
    forms: list[str | None] = [None] * len(final_answers)
    if "form" in table:
        forms = texts(table["form"], origin)
    labels: list[str | None] = []
    for form, answer in zip(forms, final_answers, strict=True):
        if form:
            labels.append(form)
        else:
            labels.append(canonical(answer) if answer else None)
    return labels


def _check_samples(graded: pd.DataFrame, origin: object) -> None:
    """Refuse answers that stand twice, and unequal numbers of answers."""
    twice = graded[graded.duplicated(["question_id", "sample"])]
    if len(twice):
        raise TableError(
            f"{origin} has question {quoted(twice['question_id'].iloc[0])} twice; remove one, or "
            "tell samples apart by a column `sample`"
        )
    counts = graded["question_id"].value_counts()
    if counts.nunique() > 1:
        raise TableError(
            f"{origin} has {counts.max()} answers to question {quoted(counts.index[0])}, but "
            f"{counts.min()} to {quoted(counts.index[-1])}; give as many to each"
        )


def _truth(cell: Any, origin: object) -> bool:
    value = _TRUTH.get(str(cell).strip().lower())
    if value is None:
        raise TableError(
            f"{origin}: `correct` holds {quoted(cell)}; write true or false, or 1 or 0"
        )
    return value


def _count(cell: Any, origin: object) -> float:
    try:
        number = float(cell)
    except (TypeError, ValueError):
        number = -1.0
    if not 0 <= number <= _MOST_TOKENS:
        raise TableError(f"{origin}: `tokens` holds {quoted(cell)}; write a number from 0 to 1e9")
    return number


def matched(answers: Mapping[str, pd.DataFrame], common: bool) -> dict[str, Answered]:
    """Return the answers of systems to the same questions, sorted by id.

    Raises:
        ConfigError: there are fewer than two, questions are not those of all, unless `common`, or
            there are too many answers to each.
    """
    if len(answers) < 2:
        raise ConfigError(f"{counted(len(answers), 'system')} named; name two or more to compare")
    questions = {name: {*table["question_id"]} for name, table in answers.items()}
    shared = set.intersection(*questions.values())
    if not shared:
        raise ConfigError("no question is in all; give equal ids, letter by letter, to equal ones")
    for name, answered in questions.items():
        if not common and (alone := sorted(answered - shared)):
            raise ConfigError(
                f"{name} has {len(alone)} questions that not all have, as "
                f"{', '.join(alone[:_NAMED])}; give --common to compare on the {len(shared)} that "
                "all have"
            )
    _check_same(answers, "gold", "gold answers")
    _check_same(answers, "doc_hash", "hashes of lm_eval's (doc_hash)")
    for name, table in answers.items():
        if (samples := len(table) // len(questions[name])) > _MOST_SAMPLES:
            raise ConfigError(
                f"{name} has {samples:,} answers to each question; give {_MOST_SAMPLES:,} at most"
            )
    return {name: _arrays(table, shared) for name, table in answers.items()}


def _check_same(answers: Mapping[str, pd.DataFrame], column: str, called: str) -> None:
    """Refuse systems that were asked other questions under the same ids, by what a column has.

    Raises:
        ConfigError: two systems that have the column differ in a question.
    """
    having = {name: table for name, table in answers.items() if column in table}
    if len(having) < 2:
        return
    cells = pd.concat(having.values())[["question_id", column]].dropna()
    cells[column] = cells[column].str.strip()
    cells = cells.drop_duplicates()
    different = cells[cells.duplicated("question_id", keep=False)]
    if len(different):
        question = different["question_id"].iloc[0]
        first, second = different.loc[different["question_id"] == question, column].iloc[:2]
        raise ConfigError(
            f"question {quoted(question)} has the {called} {quoted(first)} and {quoted(second)}; "
            f"the same id must be the same question in {' and '.join(having)}: write both "
            f"alike, leave out the column `{column}` of a file where `correct` says what is right, "
            f"or let lm_eval answer the same questions in the same order"
        )


def _arrays(table: pd.DataFrame, shared: set[str]) -> Answered:
    rows = table[table["question_id"].isin(shared)].sort_values(["question_id", "sample"])
    shape = len(shared), len(rows) // len(shared)
    correct = rows["correct"].to_numpy(dtype=bool).reshape(shape)
    tokens = rows["tokens"].to_numpy(dtype=float).reshape(shape) if "tokens" in rows else None
    if "label" not in rows:
        return Answered(correct, None, tokens)
    by_form = rows.groupby(["question_id", "label"], dropna=True).ngroup()
    group = by_form.fillna(NO_ANSWER).to_numpy(dtype=int).reshape(shape)
    return Answered(correct, group, tokens)
