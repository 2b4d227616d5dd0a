"""A config for one sweep, from a model and a benchmark by name: what a user would have written."""

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, get_args

from headroom.config import Config, parse
from headroom.config.questions import Benchmark
from headroom.errors import ConfigError
from headroom.models.source import (
    count_parameters,
    fetch_model,
    local_folder,
    stated_geometry,
)

RUN = "sweep"
MODEL = "model"
QUESTIONS = "questions"
SWEEP = "heads"

_GENERATED_QUESTIONS = 200

Numbers = Literal["all"] | Sequence[int]


def sweep_config(
    model: str | Path,
    benchmark: str | Path,
    *,
    layers: Numbers,
    heads: Numbers,
    revision: str | None,
    split: str,
    n: int | None,
    columns: Mapping[str, str],
    grader: str | None,
    benchmark_revision: str | None,
    max_new_tokens: int,
    dtype: str | None,
    device: str,
    batch_size: int | None,
    placebos: str,
) -> Config:
    """Return the config of a sweep; see `sweep.sweep` for the arguments.

    Raises:
        ConfigError: a value is not allowed, or the benchmark is not known.
        ModelError: the model is missing, damaged, or has no attention heads.
    """
    section = _model(str(model), revision)
    section |= {"dtype": dtype or default_dtype(device), "device": device}
    if batch_size is not None:
        section["batch_size"] = batch_size
    questions = _questions(str(benchmark), split, n, columns, grader, benchmark_revision)
    return parse(
        {
            "run": RUN,
            "models": {MODEL: section},
            "questions": {QUESTIONS: questions},
            "decodings": {"greedy": {"max_new_tokens": max_new_tokens}},
            "sweeps": {
                SWEEP: {
                    "model": MODEL,
                    "questions": QUESTIONS,
                    "layers": _numbers(layers),
                    "heads": _numbers(heads),
                    "placebos": placebos,
                }
            },
        },
        "sweep",
    )


def default_dtype(device: str) -> str:
    """Return bfloat16 where a GPU will be used, else float32, which is exact on a CPU."""
    gpu = any(Path("/dev").glob("nvidia[0-9]*")) and device != "cpu"
    return "bfloat16" if gpu else "float32"


def _model(source: str, revision: str | None) -> dict[str, Any]:
    """Return the section of a model, fetched if it is on the hub."""
    local = Path(source).is_dir() or local_folder(source)
    folder = fetch_model(source, revision)
    return {
        # A snapshot's folder is named by its commit.
        "source": str(folder.absolute()) if local else source,
        "revision": revision if local else folder.name,
        **stated_geometry(folder),
        "billions": count_parameters(folder) / 1e9,
    }


def _questions(
    benchmark: str,
    split: str,
    n: int | None,
    columns: Mapping[str, str],
    grader: str | None,
    revision: str | None,
) -> dict[str, Any]:
    own = {"columns": dict(columns), "grader": grader}
    section: dict[str, Any] = {
        **{key: value for key, value in own.items() if value},
        "split": split,
        "n": n,
        "revision": revision,
    }
    if benchmark in get_args(Benchmark) and benchmark != "custom":
        if benchmark.startswith("generated_") and n is None:
            section["n"] = _GENERATED_QUESTIONS
        return {**section, "benchmark": benchmark}
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


def _numbers(chosen: Numbers) -> Any:
    return chosen if isinstance(chosen, str) else list(chosen)
