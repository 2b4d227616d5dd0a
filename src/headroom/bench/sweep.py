"""`headroom bench sweep`: the engine and its rivals side by side on one sweep."""

import logging
import os
import sys
import tempfile
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from statistics import median
from typing import Any

import torch
from transformers.utils.logging import disable_progress_bar

from headroom import __version__
from headroom.bench import shapes
from headroom.bench.floor import Costs, floor
from headroom.bench.measure import Crew, Run, Setting
from headroom.bench.rivals import NEAR_TIE, RIVALS, Key, Work, spread
from headroom.bench.worker import Job
from headroom.benchmarks.generated import generate
from headroom.config import Decoding
from headroom.errors import ModelError
from headroom.generation.prompts import encode_prompt, prompt_text
from headroom.models.load import LoadedModel, load_model
from headroom.tables import write_json
from headroom.variants import BASE, Variant

_LOG = logging.getLogger(__name__)

_PROCESS_MEMORY = 1.5
"""Upper bound of a worker's memory, in sizes of its model's weights."""


@dataclass
class Row:
    """The measurements of one rival."""

    key: str
    work: Work
    runs: dict[Setting, list[Run]] = field(default_factory=dict)
    failure: str | None = None

    @property
    def seconds(self) -> dict[Setting, float]:
        """The median time at each setting."""
        return {each: median(run.seconds for run in runs) for each, runs in self.runs.items()}

    @property
    def best(self) -> Setting:
        """The fastest setting."""
        return min(self.seconds, key=self.seconds.__getitem__)

    @property
    def first(self) -> Run:
        """The first run at the fastest setting."""
        return self.runs[self.best][0]


def run(
    *,
    model: str,
    shape: str,
    heads: int,
    questions: int,
    max_new_tokens: int,
    threads: Sequence[int],
    rivals: Sequence[str],
    repeat: int,
    json: Path | None,
    vllm_python: str | None,
) -> None:
    """Measure a sweep, print the table, and write the JSON file.

    Args:
        model: a folder, or `demo` for the demo's reasoner.
        shape: see `shapes.make`.
        heads: how many to prune, one at a time, spread over the model; the base model is added.
        questions: how many of the generated benchmark's test questions.
        max_new_tokens: limit of an answer.
        threads: numbers of CPU threads to try; each rival's best is reported.
        rivals: which rows to measure.
        repeat: rounds, of which medians are reported.
        json: file for all measurements.
        vllm_python: Python of an environment that has vLLM.

    Raises:
        ModelError: the model cannot be loaded, or does not fit the shape.
    """
    disable_progress_bar()
    with tempfile.TemporaryDirectory(prefix="headroom-bench-") as scratch:
        source = load_model("builtin:reasoner" if model == "demo" else model, device="cpu")
        on_gpu = torch.cuda.is_available()
        dtype = torch.bfloat16 if on_gpu else torch.float32
        folder, every = shapes.make(shape, source, Path(scratch) / "model", dtype)
        work = _work(source, [BASE, *spread(every, heads)], questions, max_new_tokens)
        del source
        setup: Job = {"dtype": str(dtype).removeprefix("torch."), "device": "auto"}
        starts = {"torch": ({**setup, "folder": str(folder)}, sys.executable)}
        if vllm_python is not None:
            twin = shapes.for_vllm(folder, Path(scratch) / "vllm")
            starts["vllm"] = ({**setup, "folder": str(twin)}, vllm_python)
        settings = [(1, max(threads))]
        if not on_gpu:
            settings = [(1, count) for count in threads]
            if _fits(folder, len(threads) + max(threads)):
                settings += [(count, 1) for count in threads if count > 1]
        rows = [
            Row(key, work.first(variants=RIVALS[key].variants))
            for key in rivals
            if key != "vllm" or vllm_python is not None
        ]
        facts = {
            "headroom": __version__,
            "torch": torch.__version__,
            "shape": shape,
            "questions": len(work.prompts),
            "variants": [str(variant) for variant in work.variants],
            "max_new_tokens": max_new_tokens,
            "settings": [f"{processes} × {threads}" for processes, threads in settings],
            **_measure(rows, settings, starts, repeat),
        }
    print(report(facts))
    if json:
        write_json(json, facts)


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
    """Tell whether several copies of a model fit into memory."""
    weights = sum(file.stat().st_size for file in folder.glob("*.safetensors"))
    pages: int = os.sysconf("SC_AVPHYS_PAGES")
    return copies * weights * _PROCESS_MEMORY < pages * os.sysconf("SC_PAGE_SIZE")


def _measure(
    rows: Sequence[Row],
    settings: Sequence[Setting],
    starts: Mapping[str, tuple[Job, str]],
    repeat: int,
) -> dict[str, Any]:
    """Measure rivals in turn, round after round, after a small part of the work to warm up.

    Args:
        rows: to be filled; some rivals get the first variants only.
        settings: processes and threads to try.
        starts: by kind of worker, its first job and the Python that runs it.
        repeat: rounds; medians of their times count.
    """
    with ExitStack() as stack:

        @cache
        def crew(kind: str, setting: Setting) -> Crew:
            made = Crew(kind, setting, *starts[kind])
            stack.callback(made.close)
            return made

        def capacity(threads: int) -> Job:
            return crew("torch", (1, threads)).ask([{}])[0]

        counts = [threads for processes, threads in settings if processes == 1]
        before = {threads: capacity(threads) for threads in counts}
        for number in range(repeat):
            for row in rows:
                if row.failure is None:
                    _round(row, settings, crew, warm=number > 0)
        peaks = {n: max(capacity(n)["peak"], facts["peak"]) for n, facts in before.items()}
        measured = {row.key: row for row in rows if row.runs}
        reference, engine = measured.get("published"), measured.get("engine")
        costs = Costs(**before[counts[0]]["costs"])
        facts: dict[str, Any] = {
            "unchanged": _unchanged(measured.values()),
            "ratio_to_one_process": None,
            "added_head": None,
            "peaks": peaks,
            "rows": {
                row.key: _figures(row, reference, costs, peaks)
                if row.runs
                else {"name": RIVALS[row.key].name, "failure": row.failure}
                for row in rows
            },
        }
        if reference is not None and engine is not None:
            # The published code is one process, although two are faster on two cores.
            alone = min(time for (n, _), time in reference.seconds.items() if n == 1)
            facts["ratio_to_one_process"] = alone / engine.seconds[engine.best]
            facts["added_head"] = _added_head(reference, engine, crew)
    return facts


def _round(
    row: Row, settings: Sequence[Setting], crew: Callable[[str, Setting], Crew], *, warm: bool
) -> None:
    """Measure a rival once at each setting; after one failure it is not measured at all."""
    rival = RIVALS[row.key]
    try:
        for setting in settings:
            workers = crew("torch" if rival.answer else "vllm", setting)
            if not warm:
                part = row.work.first(questions=2 * setting[0], variants=2)
                workers.measure(row.key, part, rival.split)
            run = workers.measure(row.key, row.work, rival.split)
            row.runs.setdefault(setting, []).append(run)
            _LOG.info("%s, %d × %d threads: %.2f s", rival.name, *setting, run.seconds)
    except ModelError as error:
        row.failure = str(error)
        row.runs.clear()
        _LOG.warning("%s is not measured: %s", rival.name, error)


def _added_head(
    reference: Row, engine: Row, crew: Callable[[str, Setting], Crew]
) -> dict[str, float] | None:
    """Return the seconds that one more head takes, with the published method and with the engine.

    For the published method this is its time over the number of variants; for the engine, the
    additional time of all heads over half of them, per head.
    """
    variants = len(engine.work.variants)
    half = variants // 2
    if not half:
        return None
    part, workers = engine.work.first(variants=variants - half), crew("torch", engine.best)
    few = [workers.measure("engine", part, "questions") for _ in engine.runs[engine.best]]
    less = engine.seconds[engine.best] - median(run.seconds for run in few)
    return {
        "published": reference.seconds[reference.best] / variants,
        "engine": less / half,
    }


def _unchanged(rows: Iterable[Row]) -> float | None:
    """Return the share of pruned models' answers that equal the base model's."""
    choices: dict[Key, list[int]] = next((row.first.choices for row in rows), {})
    pruned = [(q, v) for q, v in choices if v != str(BASE)]
    same = sum(choices[q, v] == choices[q, str(BASE)] for q, v in pruned)
    return same / len(pruned) if pruned else None


def _figures(
    row: Row, reference: Row | None, costs: Costs, peaks: Mapping[int, float]
) -> dict[str, Any]:
    """Return the figures of a row at its fastest setting, and its time at every setting."""
    (processes, threads), first = row.best, row.first
    seconds, cpu_seconds = row.seconds[row.best], _cpu_seconds(row)
    tokens, spent = _tokens(row), first.statistics
    compared: dict[str, Any] = dict.fromkeys(("ratio", "cpu_ratio", "differing"))
    if reference is not None:
        chosen, expected = first.choices, reference.first.choices
        different = {key for key in chosen if chosen[key] != expected[key]}
        theirs = _tokens(reference)
        compared = {
            "ratio": tokens / seconds / (theirs / reference.seconds[reference.best]),
            "cpu_ratio": tokens / cpu_seconds / (theirs / _cpu_seconds(reference)),
            "differing": len(different),
            "near_ties_differing": len(different & first.near_ties),
        }
    least = None
    if all((question, str(BASE)) in first.choices for question in row.work.prompts):
        least = floor(row.work, first.choices, costs) / peaks[processes * threads]
    return {
        "name": RIVALS[row.key].name,
        "variants": len(row.work.variants),
        "processes": processes,
        "threads": threads,
        "seconds": seconds,
        "cpu_seconds": cpu_seconds,
        "tokens": tokens,
        "tokens_per_second": tokens / seconds,
        **compared,
        "fed_per_token": spent["fed"] / tokens if "fed" in spent else None,
        # Workers add up their own seconds, so the sum over workers is shared out again.
        **{
            name: spent[f"{name}_seconds"] / processes / first.seconds
            if f"{name}_seconds" in spent
            else None
            for name in ("verify", "decode")
        },
        "of_floor": None if least is None else least / seconds,
        "answers": len(first.choices),
        "near_ties": len(first.near_ties),
        "statistics": spent,
        "all_seconds": {f"{n}x{m}": [r.seconds for r in runs] for (n, m), runs in row.runs.items()},
    }


def _tokens(row: Row) -> int:
    """Return the number of tokens chosen, ends of sequence included."""
    return sum(map(len, row.first.choices.values()))


def _cpu_seconds(row: Row) -> float:
    """Return the median processor time, which other work on the machine disturbs least."""
    return median(run.cpu_seconds for run in row.runs[row.best])


def report(facts: Mapping[str, Any]) -> str:
    """Return the table, with lines on the work, the rivals and the engine."""
    peaks = ", ".join(
        f"{n}: {rate / 1e9:.0f} GFLOP/s" for n, rate in sorted(facts["peaks"].items())
    )
    lines = [
        f"{len(facts['variants'])} variants × {facts['questions']} questions, "
        f"shape {facts['shape']}; peak by threads: {peaks}",
        f"processes × threads tried: {', '.join(facts['settings'])}; each rival's fastest is shown",
        f"{'':41} {'threads':>7} {'s':>8} {'CPU s':>8} {'×':>6} {'CPU ×':>6} {'tokens/s':>9} "
        f"{'fed/kept':>8} {'verify':>6} {'decode':>6} {'floor':>6} {'differ':>12}",
        *map(_line, facts["rows"].values()),
        f"unchanged answers {_cell(facts['unchanged'], '.1%')}",
    ]
    if facts["ratio_to_one_process"] is not None:
        ratio = facts["ratio_to_one_process"]
        lines.append(f"engine {ratio:.1f} times as fast as one process of the published method")
    if facts["added_head"] is not None:
        published, engine = facts["added_head"].values()
        lines.append(
            f"one more head takes {published:.3f} s with the published method, "
            f"{engine:.3f} s with the engine ({engine / published:.1%})"
        )
    row = facts["rows"].get("engine", {})
    if "near_ties" in row:
        differ = row.get("near_ties_differing")
        lines.append(
            f"engine: {row['near_ties']} near ties (margin at most {NEAR_TIE:g})"
            + ("" if differ is None else f", {differ} of them differ")
        )
    if "vllm" not in facts["rows"]:
        lines.append("vLLM is not measured: name a Python that has it with --vllm-python")
    return "\n".join(lines)


def _line(row: Mapping[str, Any]) -> str:
    if "failure" in row:
        return f"{row['name']:41} not measured: {row['failure']}"
    threads = f"{row['processes']} × {row['threads']}"
    differing = "–" if row["differing"] is None else f"{row['differing']} of {row['answers']}"
    styles = {
        "seconds": "8.2f",
        "cpu_seconds": "8.2f",
        "ratio": "6.2f",
        "cpu_ratio": "6.2f",
        "tokens_per_second": "9.0f",
        "fed_per_token": "8.2f",
        "verify": "6.1%",
        "decode": "6.1%",
        "of_floor": "6.1%",
    }
    cells = " ".join(_cell(row[name], style) for name, style in styles.items())
    return f"{row['name']:41} {threads:>7} {cells} {differing:>12}"


def _cell(value: float | None, style: str) -> str:
    """Format a number; a dash if there is none."""
    return f"{'–':>{style.partition('.')[0]}}" if value is None else f"{value:{style}}"
