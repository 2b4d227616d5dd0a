"""Reads what `lm_eval --log_samples` wrote: `samples_TASK_TIME.jsonl` beside `results_TIME.json`.

The format is that of EleutherAI's lm-evaluation-harness 0.4, which names its version in the file of
results; another is refused.
"""

import json
import re
from pathlib import Path
from typing import Any

import pandas as pd

from headsweep.errors import TableError, quoted
from headsweep.tool.foreign import read_file

_SAMPLES = re.compile(r"samples_(?P<task>.+)_(?P<time>\d{4}-\d\d-\d\dT\d\d-\d\d-\d\d\.\d+)\.jsonl")
_KNOWN = re.compile(r"0\.4\.\d+")
_NEEDED = ("doc_id", "filter", "metrics")


def read_folder(folder: Path, metric: str | None, filtered: str | None) -> tuple[pd.DataFrame, str]:
    """Return the answers of a folder of lm_eval's: question_id, correct; and what they are.

    Args:
        folder: that of ``--output_path``, or the model's in it.
        metric: which of its metrics says what is right; needed where there are several.
        filtered: which of its filters, likewise.

    Raises:
        TableError: the folder has no such files, several of a task, an unknown version, several
            metrics or filters of which none is named, or a number that is neither 0 nor 1.
    """
    files = sorted(folder.rglob("samples_*.jsonl"))
    matches = {file: _SAMPLES.fullmatch(file.name) for file in files}
    named = {file: match for file, match in matches.items() if match is not None}
    if not named:
        raise TableError(
            f"{folder} is neither a run of headsweep nor a folder of lm_eval: it has no "
            "samples_TASK_TIME.jsonl; run lm_eval with --log_samples, or give a file"
        )
    tasks = [found["task"] for found in named.values()]
    if twice := sorted({task for task in tasks if tasks.count(task) > 1}):
        raise TableError(f"{folder} has task {twice[0]} of several runs; give each a folder")
    versions = {_version(file, found["time"]) for file, found in named.items()}
    parts = []
    for file, found in named.items():
        rows = read_file(file)
        if missing := [name for name in _NEEDED if name not in rows]:
            raise TableError(
                f"{file} lacks {missing}, which lm_eval 0.4 writes; give a CSV instead"
            )
        if rows["metrics"].map(tuple).nunique() > 1:
            raise TableError(f"{file} has rows of different metrics; give a CSV instead")
        name = _chosen(file, "metric", metric, rows["metrics"].iloc[0])
        which = _chosen(file, "metric-filter", filtered, rows["filter"].unique())
        own = rows[rows["filter"] == which]
        ids = f"{found['task']}/" + own["doc_id"].astype(str)
        parts.append(pd.DataFrame({"question_id": ids, "correct": own[name]}))
    told = f"lm_eval {', '.join(sorted(versions))}, {', '.join(sorted(tasks))}, {name} ({which})"
    return pd.concat(parts, ignore_index=True), told


def _version(file: Path, time: str) -> str:
    """Return the version of lm_eval that wrote a file, if it is known."""
    beside = file.with_name(f"results_{time}.json")
    try:
        version = json.loads(beside.read_text(encoding="utf-8")).get("lm_eval_version")
    except (OSError, ValueError, AttributeError) as error:
        raise TableError(f"{beside} cannot be read ({error}); keep it beside {file.name}") from None
    if not _KNOWN.fullmatch(str(version)):
        raise TableError(
            f"{beside} is of lm_eval {quoted(version)}; 0.4 is read, give a CSV instead"
        )
    return str(version)


def _chosen(file: Path, what: str, asked: str | None, there: Any) -> str:
    """Return the metric or filter that is asked for, or the only one."""
    known = list(map(str, there))
    if asked is not None and asked in known:
        return asked
    if asked is None and len(known) == 1:
        return known[0]
    found = f"{what} {quoted(asked)} is not in" if asked else f"there are {len(known)} {what}s in"
    raise TableError(f"{found} {file}; name one by --{what}: {', '.join(known)}")
