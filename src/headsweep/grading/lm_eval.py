"""Reads what `lm_eval --log_samples` wrote: `samples_TASK_TIME.jsonl` beside `results_TIME.json`.

The results of ``--output_path x.json`` are called `x_TIME.json`.

The format is that of EleutherAI's lm-evaluation-harness 0.4, which names its version in the file of
results; another is refused, and so are rows that do not say which filter and metrics they are of.
"""

import json
import re
from pathlib import Path
from typing import Any

import pandas as pd

from headsweep.errors import TableError, quoted
from headsweep.files.plain_files import read_plain
from headsweep.grading.foreign_answers import read_file

_SAMPLES = re.compile(
    r"samples_(?P<task>.+)_(?P<time>\d{4}-\d\d-\d\dT\d\d-\d\d-\d\d(?:\.\d+)?)\.jsonl"
)
_KNOWN = re.compile(r"0\.4\.\d+(\.\w+)*(\+[\w.]+)?")
_NEEDED = ("doc_id", "filter", "metrics")
_BEFORE_GOLD = "#### "  # in a target of GSM8K, which is a whole solution


ANSWERS = "resps"
"""Stands in place of a metric: all answers of a ``generate_until`` task, to be graded here."""


def read_folder(folder: Path, metric: str | None, filtered: str | None) -> tuple[pd.DataFrame, str]:
    """Return the answers of a folder of lm_eval's, and what they are.

    A task with ``repeats`` logs all answers to a question, and its metrics for the one that each of
    its filters makes of them.

    Args:
        folder: that of ``--output_path``, or the model's in it.
        metric: which of its metrics says what is right, needed where there are several; or
            `ANSWERS`. Several, with commas between them: of each task the first that it has.
        filtered: which of its filters, in the same way; of no matter to `ANSWERS`.

    Returns:
        Columns question_id, gold, correct, and doc_hash if it is there; of `ANSWERS` question_id,
        sample, answer, gold.

    Raises:
        TableError: the folder has no such files, those of several models, several of a task, an
            unknown version, several metrics or filters of which none is named, a number that is
            neither 0 nor 1, or no texts to grade.
    """
    versions = set()
    parts = []
    descriptions = []
    for file, task, time in _logs(folder):
        versions.add(_version(file, time))
        rows = read_file(file)
        if missing := [name for name in _NEEDED if name not in rows]:
            raise TableError(
                f"{file} lacks {missing}, which lm_eval 0.4.7 and later write; give a CSV instead"
            )
        _check_rows(file, rows)
        if metric == ANSWERS:
            part = _all_answers(file, rows)
            said = "all answers"
        else:
            part, said = _by_metric(file, rows, metric, filtered)
        parts.append(part.assign(question_id=f"{task}/" + part["question_id"].astype(str)))
        descriptions.append(f"{task}, {said}")
    line = f"lm_eval {', '.join(sorted(versions))}, {'; '.join(descriptions)}"
    return pd.concat(parts, ignore_index=True), line


def _logs(folder: Path) -> list[tuple[Path, str, str]]:
    """Return the files of samples, and the task and the time of each."""
    files = sorted(folder.rglob("samples_*.jsonl"))
    matches = [(file, _SAMPLES.fullmatch(file.name)) for file in files]
    named = [(file, match) for file, match in matches if match is not None]
    if not named:
        raise TableError(
            f"{folder} is neither a run of headsweep nor a folder of lm_eval: it has no "
            "samples_TASK_TIME.jsonl; run lm_eval with --log_samples, or give a file"
        )
    models = sorted({file.parent for file, _ in named})
    if len(models) > 1:
        raise TableError(
            f"{folder} has results of several models; name a folder of one, such as {models[0]}"
        )
    tasks = [match["task"] for _, match in named]
    if twice := sorted({task for task in tasks if tasks.count(task) > 1}):
        raise TableError(f"{folder} has task {twice[0]} of several runs; give each a folder")
    return [(file, match["task"], match["time"]) for file, match in named]


def _check_rows(file: Path, rows: pd.DataFrame) -> None:
    """Refuse rows that do not say which filter and metrics they are of."""
    for row, (of_filter, metrics) in enumerate(
        zip(rows["filter"], rows["metrics"], strict=True), 1
    ):
        are_texts = isinstance(metrics, list) and all(isinstance(name, str) for name in metrics)
        if not isinstance(of_filter, str) or not are_texts:
            raise TableError(
                f"{file} row {row} has the filter {quoted(of_filter)} and the metrics "
                f"{quoted(metrics)}; give a CSV instead"
            )


def _by_metric(
    file: Path, rows: pd.DataFrame, metric: str | None, filtered: str | None
) -> tuple[pd.DataFrame, str]:
    """Return what a metric says of the answers that a filter made, and how it was chosen."""
    if rows["metrics"].map(tuple).nunique() > 1:
        raise TableError(f"{file} has rows of different metrics; give a CSV instead")
    name = _chosen(file, "metric", metric, rows["metrics"].iloc[0])
    if name not in rows:
        raise TableError(f"{file} has no value of its metric {quoted(name)}; give a CSV instead")
    which = _chosen(file, "metric-filter", filtered, rows["filter"].unique())
    rows = rows[rows["filter"] == which]
    said = f"{name} ({which})"
    repeats = len(_texts(rows["resps"].iloc[0])) if "resps" in rows else 0
    if repeats > 1:
        said += f" of {repeats} answers each; --metric {ANSWERS} grades all of them"
    # What the right answer is tells whether two folders mean the same question by an id.
    golds = rows["target"].map(_gold) if "target" in rows else None
    part = pd.DataFrame({"question_id": rows["doc_id"], "gold": golds, "correct": rows[name]})
    if "doc_hash" in rows:
        part["doc_hash"] = rows["doc_hash"]
    return part, said


def _all_answers(file: Path, rows: pd.DataFrame) -> pd.DataFrame:
    """Return all answers to each question, with the gold answer."""
    if missing := [name for name in (ANSWERS, "target") if name not in rows]:
        raise TableError(f"{file} lacks {missing}, which has the answers; name a metric instead")
    rows = rows[rows["filter"] == rows["filter"].iloc[0]]  # each filter repeats them
    all_answers = []
    for row in rows.itertuples():
        answers = _texts(row.resps)
        if not answers:
            raise TableError(
                f"{file}: the answers to question {row.doc_id} are no texts, as of a multiple "
                "choice; name a metric instead"
            )
        if isinstance(row.target, list | dict):
            raise TableError(
                f"{file}: question {row.doc_id} has several right answers, {quoted(row.target)}; "
                "name a metric instead"
            )
        gold = _gold(row.target)
        all_answers += [(row.doc_id, sample, answer, gold) for sample, answer in enumerate(answers)]
    return pd.DataFrame(all_answers, columns=["question_id", "sample", "answer", "gold"])


def _gold(target: Any) -> str:
    """Return the right answer that a target states; of a solution what stands at its end."""
    return target.rpartition(_BEFORE_GOLD)[2] if isinstance(target, str) else json.dumps(target)


def _texts(answers: Any) -> list[str]:
    """Return the texts of a cell of ``resps``; none if it holds anything else."""
    repeats = answers[0] if isinstance(answers, list) and len(answers) == 1 else []
    is_text = isinstance(repeats, list) and all(isinstance(text, str) for text in repeats)
    return repeats if is_text else []


def _version(file: Path, time: str) -> str:
    """Return the version of lm_eval that wrote a file, if it is known."""
    beside = next(
        iter(sorted(file.parent.glob(f"*_{time}.json"))), file.with_name(f"results_{time}.json")
    )
    try:
        version = json.loads(read_plain(beside)).get("lm_eval_version")
    except (OSError, ValueError, AttributeError, RecursionError) as error:
        raise TableError(f"{beside} cannot be read ({error}); keep it beside {file.name}") from None
    if not _KNOWN.fullmatch(str(version)):
        raise TableError(
            f"{beside} is of lm_eval {quoted(version)}; 0.4 is read, give a CSV instead"
        )
    return str(version)


def _chosen(file: Path, what: str, wanted: str | None, there: Any) -> str:
    """Return the first that is there of the metrics or filters asked for, or the only one."""
    names = list(map(str, there))
    for name in (wanted or "").split(","):
        if name.strip() in names:
            return name.strip()
    if wanted is None and len(names) == 1:
        return names[0]
    problem = (
        f"{what} {quoted(wanted)} is not in" if wanted else f"there are {len(names)} {what}s in"
    )
    raise TableError(f"{problem} {file}; name one by --{what}: {', '.join(names)}")
