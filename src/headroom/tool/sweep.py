"""A sweep without Snakemake: the same jobs, one after the other, the same files."""

import contextlib
import logging
import os
import re
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, get_args

import pandas as pd

from headroom import paths
from headroom.config import Config, parse
from headroom.config.questions import Benchmark
from headroom.errors import ConfigError
from headroom.generation import activations, client, job, prepare
from headroom.grading.tables import grade
from headroom.models.source import (
    count_parameters,
    fetch_model,
    local_folder,
    stated_geometry,
)
from headroom.planning.batches import find_batch
from headroom.planning.inputs import check_devices, preflight, resolve
from headroom.planning.store import Store
from headroom.tables import write_json

RUN, MODEL, QUESTIONS, SWEEP = "sweep", "model", "questions", "heads"
"""Names in the config of a sweep."""
_GENERATED_QUESTIONS = 200

Numbers = Literal["all"] | Sequence[int]

_LOG = logging.getLogger(__name__)


def sweep(
    model: str | Path,
    benchmark: str | Path,
    *,
    layers: Numbers,
    heads: Numbers = "all",
    out: str | Path = "headroom-sweep",
    revision: str | None = None,
    split: str = "test",
    n: int | None = None,
    columns: Mapping[str, str] | None = None,
    grader: str | None = None,
    benchmark_revision: str | None = None,
    max_new_tokens: int = 2048,
    dtype: str | None = None,
    device: str = "auto",
    batch_size: int | None = None,
    placebos: str = "none",
    cores: int | None = None,
) -> pd.DataFrame:
    """Prune heads one at a time, answer a benchmark with each, and test each against the model.

    Answers are kept as they finish: the same call goes on where it was stopped, and asking for
    more layers, heads or questions keeps what is there. `out` has the layout of a Snakemake run:
    ``snakemake --configfile OUT/results/sweep/config.json --directory OUT`` adds all figures and
    the report without generating anything twice.

    Args:
        model: hub id, folder in the hub's format, or GGUF file.
        benchmark: ``math500``, ``math_train``, ``gsm8k``, ``generated_math``, ``generated_gsm8k``,
            a CSV or JSON Lines file, or the hub id of a dataset.
        layers: whose heads are pruned, from 0; or ``all``.
        heads: query heads pruned in each layer, from 0; or ``all``.
        out: folder that everything goes to; made if it is not there.
        revision: commit hash on the hub; by default the newest, or the newest in the cache.
        split: of the benchmark.
        n: how many questions; all by default (200 of a generated benchmark).
        columns: of a benchmark of your own: which column is ``question``, ``answer``, and, if
            there, ``id``, ``subject``, ``level``.
        grader: of a benchmark of your own: ``math`` (default), ``numeric``, ``choice``, ``exact``.
        benchmark_revision: commit hash of a dataset of your own on the hub.
        max_new_tokens: token limit of an answer.
        dtype: ``float32``, ``bfloat16`` or ``float16``; by default bfloat16 on a GPU, else float32.
        device: ``auto``, ``cpu``, ``cuda``, ``cuda:1``, or ``balanced`` over all GPUs.
        batch_size: sequences decoded together; changes speed and memory only (in float32).
        placebos: ``none``, ``numeric``, ``noise`` or ``both``: controls that prune nothing.
        cores: CPU cores to use; all by default.

    Returns:
        One row for the base model and one a head: accuracy, gain with its 95% interval, exact
        McNemar p, q after Benjamini and Hochberg, shares of answers without a box, truncated, ...
        The columns of ``results/sweep/controls/heads/heads.csv``.

    Raises:
        HeadroomError: one line that says what is wrong and what to do.
    """
    gpu = any(Path("/dev").glob("nvidia[0-9]*")) and device != "cpu"
    given = {
        "columns": dict(columns or {}),
        "grader": grader,
        "n": n,
        "revision": benchmark_revision,
    }
    described = _model(str(model), revision)
    described |= {"dtype": dtype or ("bfloat16" if gpu else "float32"), "device": device}
    if batch_size is not None:
        described["batch_size"] = batch_size
    pruned = {
        key: chosen if isinstance(chosen, str) else list(chosen)
        for key, chosen in (("layers", layers), ("heads", heads))
    }
    config = parse(
        {
            "run": RUN,
            "models": {MODEL: described},
            "questions": {QUESTIONS: {"split": split, **_questions(str(benchmark), given)}},
            "decodings": {"greedy": {"max_new_tokens": max_new_tokens}},
            "sweeps": {
                SWEEP: {"model": MODEL, "questions": QUESTIONS, "placebos": placebos, **pruned}
            },
        },
        "sweep",
    )
    folder = Path(out).expanduser()
    folder.mkdir(parents=True, exist_ok=True)
    with contextlib.chdir(folder):
        resolved = resolve(config)
        preflight(resolved)
        check_devices(resolved)
        write_json(Path(paths.CONFIG.format(run=RUN)), resolved.model_dump(mode="json"))
        return _run(resolved, cores or len(os.sched_getaffinity(0)))


def _model(source: str, revision: str | None) -> dict[str, Any]:
    """Return the section of a model, fetched if it is on the hub."""
    local = Path(source).is_dir() or local_folder(source)
    folder = fetch_model(source, revision, or_file=True)
    return {
        # A snapshot's folder is named by its commit.
        "source": str(folder.absolute()) if local else source,
        "revision": revision if local else folder.name,
        **stated_geometry(folder),
        "billions": count_parameters(folder) / 1e9,
    }


def _questions(benchmark: str, given: Mapping[str, Any]) -> dict[str, Any]:
    """Return the section of a benchmark by name, file or hub id, with the keys that are given."""
    section = {key: value for key, value in given.items() if value}
    if benchmark in get_args(Benchmark) and benchmark != "custom":
        size = {"n": _GENERATED_QUESTIONS} if benchmark.startswith("generated_") else {}
        return {"benchmark": benchmark, **size, **section}
    if Path(benchmark).suffix in (".csv", ".jsonl", ".gz"):
        file = str(Path(benchmark).expanduser().absolute())
        return {**section, "benchmark": "custom", "file": file}
    if re.fullmatch(r"[\w.-]+/[\w.-]+", benchmark):
        return {**section, "benchmark": "custom", "dataset": benchmark}
    known = ", ".join(name for name in get_args(Benchmark) if name != "custom")
    raise ConfigError(
        f"benchmark {benchmark!r} is not known; choose {known}, a .csv or .jsonl file, or a "
        f"dataset on the hub (owner/name)"
    )


def _run(config: Config, cores: int) -> pd.DataFrame:
    """Do what the rules of the workflow would do, as far as the table of heads."""
    from headroom.analysis.jobs import write_controls  # draws with matplotlib: slow to import

    batch = find_batch(config, MODEL, "greedy", QUESTIONS)
    store, names = Store(config), {"source": QUESTIONS, **batch.names}
    _once(store.path(paths.MODEL, **names), lambda: prepare.prepare_model(config, MODEL))
    _once(store.path(paths.SOURCE, **names), lambda: prepare.read_source(config, QUESTIONS))
    _once(store.path(paths.QUESTIONS, **names), lambda: prepare.draw_questions(config, QUESTIONS))
    asked = [
        v for v in batch.variants if not store.path(paths.ANSWERS, variant=v, **names).exists()
    ]
    started = time.monotonic()
    try:
        for number, variant in enumerate(asked, start=1):
            job.run(config, MODEL, "greedy", QUESTIONS, variant, cores)
            left = (time.monotonic() - started) / number * (len(asked) - number)
            _LOG.info("%d of %d models have answered, %.0f s left", number, len(asked), left)
    finally:
        client.stop()
    _once(
        store.path(paths.ACTIVATIONS, **names),
        lambda: activations.run(config, MODEL, "greedy", QUESTIONS),
    )
    grade(config, MODEL, "greedy", QUESTIONS)
    write_controls(config, SWEEP)
    _LOG.info("tables are in %s", Path(paths.CONFIG.format(run=RUN)).parent.absolute())
    return pd.read_csv(paths.CONTROLS.format(run=RUN, sweep=SWEEP, table="heads", suffix="csv"))


def _once(path: Path, make: Callable[[], None]) -> None:
    """Make a file whose path names its content, unless it is there."""
    if not path.exists():
        make()
