"""`headsweep pilot`: measure a small part of a config before hundreds of jobs start.

For each model, the base and two pruned heads answer 20 questions through the engine of a run, which
checks itself as it starts. The measured time over the planned time of the same answers scales the
plan for the whole config. How often the base model is right, and a head changes that, says what the
whole config could see.
"""

import logging
import math
import os
import re
import shlex
import shutil
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from headsweep import paths
from headsweep.config import Config, load
from headsweep.config.files import read_values
from headsweep.errors import ConfigError
from headsweep.generation import client
from headsweep.grading.matrix import grade_batch
from headsweep.planning.batches import Batch, batches
from headsweep.planning.cards import card_of
from headsweep.planning.cost import Request, generation_request, generation_seconds
from headsweep.planning.inputs import check_devices, preflight, resolve
from headsweep.planning.plan import aligned, duration
from headsweep.planning.sight import ABOUT, Rates, sight
from headsweep.planning.store import Store
from headsweep.record import read_record, versions
from headsweep.tables import ANSWERS, read_arrow, write_json
from headsweep.tool.machine import output_of
from headsweep.tool.sweep import answer
from headsweep.variants import BASE, Variant

QUESTIONS = 20
HEADS = 2
_WARM = 2
"""Questions asked before time is taken, so that loading and the engine's first check are over."""
_START_MINUTES, _LEAST_MINUTES = 10, 15
"""Of a SLURM allocation: for loading a model and its engine's check, and what is asked at least."""

_PROFILE = Path("workflow/profiles/slurm/config.yaml")
_LOG = logging.getLogger(__name__)


def show(config: Path, *, slurm: bool, cores: int | None) -> None:
    """Print what a pilot of a config file measures, here or, with `slurm`, in an allocation."""
    whole = resolve(load(config))
    if slurm:
        submit(whole, config)
        return
    piloted = _piloted(whole)
    if not piloted:
        raise ConfigError("no model of this config has heads to prune; there is nothing to pilot")
    client.begin_run()
    rows = [["model", "answers", "tokens", "cut", "seconds", "tokens/s", "GB", "whole config"]]
    facts = {}
    rates = {}
    hours = 0.0
    for name, batch in piloted.items():
        row, own, facts[name], rates[name] = _measure(whole, batch, cores)
        rows.append([name, *row])
        hours += own
    print(f"base and {HEADS} heads of each model on {QUESTIONS} questions, by the run's own engine")
    print(aligned(rows, left=1))
    for name, record in facts.items():
        # What the engine's check of itself has found, if it makes one.
        checks = [f"{key} {record[key]}" for key in ("path", "check", "falls") if record.get(key)]
        print(f"{name}: the engine ran on {', '.join([record['device'], *checks])}")
    print(f"the whole config's answers: about {duration(hours)}")
    print(f"for a report of a fault: {_write_bundle(rows, facts)}")
    if seen := sight(whole, rates):
        print(f"\n{ABOUT} (base right and outcomes changed are those of the pilot)")
        print(aligned(seen, left=1))


def _write_bundle(rows: Sequence[Sequence[str]], facts: Mapping[str, Mapping[str, Any]]) -> Path:
    """Write what a report of a fault needs: cards, versions, checks and rates; return the file."""
    file = Path(paths.RESULTS, "pilot", "bundle.json")
    told = ("device", "backend", "path", "batch_size", "check", "falls")
    cards = output_of("nvidia-smi", "--query-gpu=name,driver_version,memory.total", "--format=csv")
    header = rows[0][1:]
    write_json(
        file,
        {
            "cards": (cards or "").splitlines(),
            "versions": versions(),
            "engines": {
                name: {key: record[key] for key in told if key in record}
                for name, record in facts.items()
            },
            "rates": {name: dict(zip(header, row, strict=True)) for name, *row in rows[1:]},
        },
    )
    return file


def _piloted(config: Config) -> dict[str, Batch]:
    """Return the batch that stands for each model: its first greedy one with pruned heads."""
    piloted: dict[str, Batch] = {}
    for batch in batches(config):
        if config.decodings[batch.decoding].greedy and len(batch.variants) > 1:
            piloted.setdefault(batch.model, batch)
    return piloted


def _chosen(batch: Batch) -> list[Variant]:
    """Return the heads that a pilot prunes: the first and the last of a batch."""
    heads = [variant for variant in batch.variants if variant.kind == "head"]
    return list(dict.fromkeys([heads[0], heads[-1]]))[:HEADS]


def _measure(
    config: Config, batch: Batch, cores: int | None
) -> tuple[list[str], float, dict[str, Any], Rates]:
    """Return counts of a model's answers with time and memory, as text; hours; the record; rates.

    The hours are those of all answers of this model in the config, finished ones included.
    """
    warm, whole = (_little(config, batch, _chosen(batch), n) for n in (_WARM, QUESTIONS))
    preflight(whole)
    check_devices(whole)
    try:
        before = _check_seconds(_files(warm, answer(warm, cores, stay=True)))
        begin = time.monotonic()
        store = answer(whole, cores, stay=True)
        seconds = time.monotonic() - begin
        gigabytes = _memory()
    finally:
        client.end_run()
    little = batches(whole)[0]
    files = _files(whole, store)
    # The engine checks its first answers with the model's own modules; a run does so once, too.
    seconds = max(seconds / 10, seconds - max(0.0, _check_seconds(files) - before))
    rows = [row for file in files for row in read_arrow(file, ANSWERS).to_pylist()]
    asked_first = list(dict.fromkeys(row["question_id"] for row in rows))[:_WARM]
    new = [row for row in rows if row["question_id"] not in asked_first] or rows
    card = card_of(config.models[batch.model].device)
    planned = generation_seconds(whole, little, card) * len(new) / len(rows)
    asked = [each for each in batches(config) if each.model == batch.model]
    ahead = sum(generation_seconds(config, each, card) for each in asked)
    tokens = sum(len(row["token_ids"]) for row in new)
    cut = sum(row["stop_reason"] == "length" for row in new)
    row = [f"{len(new)}", f"{tokens:,}", f"{cut}", f"{seconds:,.1f}", f"{tokens / seconds:,.0f}"]
    hours = ahead * seconds / planned / 3600
    row += [f"{gigabytes:.1f}", duration(hours)]
    return row, hours, read_record(files[0]), _rates(whole, little)


def _files(config: Config, store: Store) -> list[Path]:
    """Return the files of answers of a config of one batch."""
    return [Path(file) for file in store.answers(batches(config)[0])]


def _check_seconds(files: Sequence[Path]) -> float:
    """Return how long the engine had checked itself when it wrote the last of some answers."""
    checks = [read_record(file).get("check") or {} for file in files]
    return max((float(check.get("seconds", 0)) for check in checks), default=0.0)


def _rates(config: Config, batch: Batch) -> Rates:
    """Return how often the base model is right, and how often a head's loss changes that."""
    _, _, graded = grade_batch(config, batch, config.grading)
    right = graded.pivot(index="question_id", columns="variant", values="correct")
    changed = right.drop(columns=str(BASE)).ne(right[str(BASE)], axis=0)
    return Rates(float(right[str(BASE)].mean()), float(changed.to_numpy().mean()))


def _little(config: Config, batch: Batch, heads: list[Variant], n: int) -> Config:
    """Return a config of one sweep per head, on the batch's model and its first questions."""
    questions = config.questions[batch.questions]
    few = {"n": min(n, questions.n or n), "sampling": "first", "embedder": None}
    sweeps = {
        str(head): {**batch.names, "layers": [head.layer], "heads": [head.head]} for head in heads
    }
    return Config.model_validate(
        {
            "run": "pilot",
            "models": {batch.model: config.models[batch.model]},
            "questions": {batch.questions: questions.model_copy(update=few)},
            "decodings": {batch.decoding: config.decodings[batch.decoding]},
            "sweeps": sweeps,
        }
    )


def _memory() -> float:
    """Return the gigabytes in use on the GPUs, or without a GPU by this folder's engines."""
    query = ("nvidia-smi", "--query-gpu=memory.used", "--format=csv,noheader,nounits")
    if used := output_of(*query):
        return sum(map(float, used.split())) / 1e3
    sessions = {os.getsid(engine["process"]) for engine in client.status()}
    total = 0
    for process in Path("/proc").glob("[0-9]*"):
        try:
            if os.getsid(int(process.name)) in sessions:
                memory = (process / "smaps_rollup").read_text(encoding="ascii")
                total += 1024 * int(re.findall(r"^Pss:\s*(\d+)", memory, re.M)[0])
        except (OSError, IndexError):  # it has ended
            continue
    return total / 1e9


def _minutes(config: Config) -> int:
    """Return the minutes to ask for: twice those of each model's pilot, and its start."""
    total = 0.0
    for batch in _piloted(config).values():
        little = _little(config, batch, _chosen(batch), QUESTIONS)
        card = card_of(config.models[batch.model].device, local=False)
        seconds = sum(generation_seconds(little, each, card) for each in batches(little))
        total += _START_MINUTES + 2 * seconds / 60
    return max(_LEAST_MINUTES, math.ceil(total))


def submit(config: Config, file: Path) -> None:
    """Run the pilot in one SLURM allocation, wait for it, and print its output.

    The largest model of the resolved config decides the requested resources.
    """
    if not shutil.which("sbatch"):
        raise ConfigError("--slurm: there is no sbatch on the path; run it where SLURM is")
    requests = [generation_request(config, batch) for batch in batches(config)]
    asked = Request(*map(max, zip(Request(0, 4000, 5), *requests, strict=True)))
    log = Path(paths.RESULTS, "pilot", "logs", "slurm.log").absolute()
    log.parent.mkdir(parents=True, exist_ok=True)
    options = {"job-name": "headsweep-pilot", "output": log, "cpus-per-task": 8}
    options |= {"mem": f"{asked.megabytes}M", "time": _minutes(config)}
    if asked.gpus:
        options["gpus"] = asked.gpus  # as the profile's executor asks for a run's
    if _PROFILE.exists():
        defaults = read_values(_PROFILE).get("default-resources") or {}
        for option in ("partition", "account"):
            if (value := defaults.get(f"slurm_{option}")) not in (None, "CHANGE-ME"):
                options[option] = value
    command = [sys.executable, "-m", "headsweep.cli", "pilot", str(file.absolute())]
    words = [f"--{name}={value}" for name, value in options.items()]
    _LOG.info("sbatch %s; its log: %s", " ".join(words), log)
    words = ["sbatch", "--wait", *words, f"--wrap={shlex.join(command)}"]
    done = subprocess.run(words, capture_output=True, errors="replace", check=False)
    output = log.read_text(encoding="utf-8", errors="replace") if log.exists() else ""
    print(output, end="")
    if done.returncode:
        last = " ".join((output or done.stderr).split("\n")[-3:]).strip()
        raise ConfigError(f"--slurm: the job has failed ({last}); {log} says more")
