"""`headroom bench sweep`: the engine and its rivals side by side on one sweep."""

import os
import tempfile
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import torch
from transformers.utils.logging import disable_progress_bar

from headroom import __version__, paths
from headroom.bench import shapes
from headroom.bench.measure import REFERENCE, Bench, Measurements, settings_of
from headroom.bench.rivals import Work, spread
from headroom.bench.table import as_json, report
from headroom.bench.worker import Job
from headroom.benchmarks.generated import generate
from headroom.config import Decoding, load
from headroom.errors import ConfigError
from headroom.generation.prompts import encode_prompt, prompt_text
from headroom.models.load import LoadedModel, load_model
from headroom.planning.store import Store
from headroom.tables import write_json
from headroom.variants import BASE, Variant

_DEMO = Path("config/demo.yaml")
_PROFILED_QUESTIONS = 8
_PROCESS_MEMORY = 1.5
"""Memory of a worker over the weights of its model, at most."""


def run(
    *,
    model: str,
    shape: shapes.ShapeName,
    heads: int,
    questions: int,
    max_new_tokens: int,
    threads: Sequence[int],
    rivals: Sequence[str],
    repeat: int,
    json: Path | None,
    vllm_python: str | None,
) -> Measurements:
    """Measure a sweep, print the table, and write what is asked for.

    Args:
        model: a folder, or `demo` for the demo's reasoner.
        shape: see `shapes.make`.
        heads: how many to prune, one at a time, spread over the model; the base model comes on top.
        questions: how many of the generated benchmark's test questions.
        max_new_tokens: limit of an answer.
        threads: numbers of CPU threads to try; the best counts, for each rival on its own.
        rivals: which rows to measure.
        repeat: rounds; medians count.
        json: where to write all figures.
        vllm_python: Python of an environment that has vLLM.

    Raises:
        ConfigError: the demo's reasoner is not trained yet.
        ModelError: the model cannot be loaded, or the shape is not for it.
    """
    disable_progress_bar()
    with tempfile.TemporaryDirectory(prefix="headroom-bench-") as scratch:
        source = load_model(str(_demo() if model == "demo" else model), device="cpu")
        on_gpu = torch.cuda.is_available()
        dtype = torch.bfloat16 if on_gpu else torch.float32
        folder, every = shapes.make(shape, source, Path(scratch) / "model", dtype)
        work = _work(source, [BASE, *spread(every, heads)], questions, max_new_tokens)
        setup: Job = {
            "folder": str(folder),
            "dtype": str(dtype).removeprefix("torch."),
            "device": "auto",
            "max_new_tokens": max_new_tokens,
            "eos_token_ids": source.eos_token_ids,
        }
        vllm = None
        if vllm_python is not None:
            twin = shapes.for_vllm(folder, Path(scratch) / "vllm")
            vllm = ({**setup, "folder": str(twin)}, vllm_python)
        del source
        settings = [(1, max(threads))]
        if not on_gpu:
            settings = settings_of(threads, processes=_fits(folder, len(threads) + max(threads)))
        keys = [name for name in rivals if name != "vllm" or vllm]
        with ExitStack() as stack:
            bench = Bench(stack, setup, settings, vllm)
            found = bench.measure(keys, work, repeat)
            facts = _facts(found, work, shape)
            facts["settings"] = [f"{processes} × {threads}" for processes, threads in settings]
            facts["added_head"] = bench.added_head(found, work)
            facts["idle"] = bench.idle(work.first(questions=_PROFILED_QUESTIONS))
            print(report(found, facts))
        if json:
            write_json(json, facts)
    return found


def _demo() -> Path:
    config = load(_DEMO)
    folder = Store(config).path(paths.CHECKPOINT, model="reasoner")
    if not (folder / "config.json").exists():
        raise ConfigError(
            f"the demo's reasoner is not in {folder}; train it with `headroom model "
            f"--config {_DEMO} --model reasoner`, or name a folder with --model"
        )
    return folder


def _work(
    loaded: LoadedModel, variants: Sequence[Variant], questions: int, max_new_tokens: int
) -> Work:
    decoding = Decoding(max_new_tokens=max_new_tokens)
    rows = generate("generated_math", "test", questions, seed=0)
    prompts = {
        question_id: encode_prompt(
            loaded.tokenizer, prompt_text(loaded.tokenizer, question, decoding, "math")
        )
        for question_id, question in zip(rows["question_id"], rows["question"], strict=True)
    }
    return Work(prompts, tuple(variants), max_new_tokens)


def _fits(folder: Path, copies: int) -> bool:
    """Say whether the memory holds a model several times."""
    weights = sum(file.stat().st_size for file in folder.glob("*.safetensors"))
    pages: int = os.sysconf("SC_AVPHYS_PAGES")
    return copies * weights * _PROCESS_MEMORY < pages * os.sysconf("SC_PAGE_SIZE")


def _facts(found: Measurements, work: Work, shape: str) -> dict[str, Any]:
    reference = found.row(REFERENCE)
    return {
        "headroom": __version__,
        "torch": torch.__version__,
        "shape": shape,
        "questions": len(work.prompts),
        "variants": [str(variant) for variant in work.variants],
        "max_new_tokens": work.max_new_tokens,
        "unchanged": found.unchanged,
        "ratio_to_one_process": found.alone,
        "peaks": found.peaks,
        "rows": {
            row.key: as_json(found, row, reference) if row.runs else {"failure": row.failure}
            for row in found.rows
        },
    }
