"""`headsweep pilot`: measure a small part of a config before hundreds of jobs start.

Each model is tried first (`headsweep.tool.trial`): prefill and decoding at full width are timed
separately, without the engine's check of itself. In half precision that check comes first. If vLLM
is installed and can answer the whole run, it is tried, too. What fails is dropped, and the faster
one is written into the run's settings (`headsweep.planning.pilot_settings`). Then the base and two
pruned heads answer 20 questions through the engine of a run. The lengths of these answers, how much
of them repeats the base model's, and the measured rates say how long the whole config takes. How
often the base model is right, and how often a head changes an outcome, say what the whole config
could show.
"""

import os
import re
from collections.abc import Mapping, Sequence
from contextlib import suppress
from importlib.util import find_spec
from itertools import takewhile
from pathlib import Path
from statistics import fmean
from typing import Any

from headsweep.config import Config, Questions, load, parse
from headsweep.errors import ConfigError, EngineError
from headsweep.generation import client
from headsweep.grading.matrix import grade_batch
from headsweep.planning.batches import PlannedBatch, batches
from headsweep.planning.cards import card_of, is_on_gpu, output_of
from headsweep.planning.cost import generation_seconds, map_seconds, question_count
from headsweep.planning.detectable_gain import ABOUT, Rates, detectable_gains
from headsweep.planning.forecast import Habits, model_seconds
from headsweep.planning.host import host_cores
from headsweep.planning.pilot_settings import write_settings
from headsweep.planning.preflight import check_devices, preflight
from headsweep.planning.revisions import resolve
from headsweep.planning.store import Store
from headsweep.record import Stopwatch, read_record
from headsweep.safe_files import read_arrow
from headsweep.tables import ANSWERS
from headsweep.text import aligned
from headsweep.tool.pilot_findings import (
    CAPTURED,
    HEADS,
    PLAIN,
    QUESTIONS,
    Answered,
    Tried,
    print_table,
    remarks,
    write_bundle,
)
from headsweep.tool.trial import Trial, attempt
from headsweep.tool.without_snakemake import answer, prepared
from headsweep.variants import BASE, Variant

_MEBIBYTE = 1 << 20
_ENGINE = "headsweep"  # what answers unless something else is faster


def show(config: Path, cores: int | None) -> None:
    """Print what a pilot of a config file measures here; write what it decides."""
    stated = load(config)
    whole = resolve(stated)
    piloted = piloted_batches(whole)
    stopwatch = Stopwatch()
    client.begin_run()
    usable = min(cores or host_cores(), host_cores())
    tried: dict[str, Tried] = {}
    for name, batch in piloted.items():
        candidates: list[str] = [whole.models[name].backend]
        dropped: dict[str, str] = {}
        if on_gpu(whole, name) and "backend" not in stated.models[name].model_fields_set:
            candidates, dropped = _candidates(whole, name)
        is_stated = "graphs" in stated.models[name].model_fields_set
        if on_gpu(whole, name) and is_stated and whole.models[name].graphs == "off":
            dropped["graphs"] = "the config states 'off'"
        tried[name] = _try(whole, batch, candidates, dropped, usable, tries_graphs=not is_stated)
    print_table(tried)
    for name, model in tried.items():
        for line in remarks(name, model):
            print(line)
    decided = {name: model.decided for name, model in tried.items() if on_gpu(whole, name)}
    if decided:
        print(f"what answers in the run: {write_settings(whole, decided, stopwatch)}")
    print(f"for a report of a fault: {write_bundle(tried)}")
    rates = {name: model.answered.rates for name, model in tried.items()}
    if seen := detectable_gains(whole, rates):
        print(f"\n{ABOUT} (base right and outcomes changed are those of the pilot)")
        print(aligned(seen, left=1))


def piloted_batches(config: Config) -> dict[str, PlannedBatch]:
    """Return the batch that stands for each model: its first greedy one with variants.

    Raises:
        ConfigError: there is none.
    """
    piloted: dict[str, PlannedBatch] = {}
    for batch in batches(config):
        if config.decodings[batch.decoding].greedy and len(batch.variants) > 1:
            piloted.setdefault(batch.model, batch)
    if not piloted:
        raise ConfigError(
            "no model of this config answers greedily without heads; a pilot times nothing else"
        )
    return piloted


def on_gpu(config: Config, name: str) -> bool:
    """Tell whether a model of a config answers on a GPU of this machine."""
    return is_on_gpu(config.models[name].device)


def little_config(config: Config, batch: PlannedBatch) -> Config:
    """Return a config of one sweep per piloted head, on the batch's model and first questions.

    The heads are the first and the last of the batch, or of the model if the batch has none.
    """
    questions = config.questions[batch.questions]
    few: dict[str, Any] = {"n": min(QUESTIONS, question_count(questions))}
    if questions.sampling != "stratified":  # few of each stratum are like all; clusters take long
        few["sampling"] = "first"
        few |= {name: Questions.model_fields[name].default for name in ("embedder", "clusters")}
    model = config.models[batch.model]
    last = model.layers - 1
    of_model = [Variant(0, 0), Variant(last, model.heads_in(last)[-1])]
    heads = [variant for variant in batch.variants if variant.kind == "head"] or of_model
    chosen = list(dict.fromkeys([heads[0], heads[-1]]))[:HEADS]
    sweeps = {
        str(head): {**batch.names, "layers": [head.layer], "heads": [head.head]} for head in chosen
    }
    return Config.model_validate(
        {
            "run": "pilot",
            "grading": config.grading,
            "models": {batch.model: config.models[batch.model]},
            "questions": {batch.questions: questions.model_copy(update=few)},
            "decodings": {batch.decoding: config.decodings[batch.decoding]},
            "sweeps": sweeps,
        }
    )


def _candidates(config: Config, name: str) -> tuple[list[str], dict[str, str]]:
    """Return the software to try for a model on a GPU, and why other software is not tried."""
    for backend in dict.fromkeys([config.models[name].backend, _ENGINE]):
        candidate = _with(config, name, backend=backend)
        store = Store(candidate)
        planned = [batch for batch in batches(candidate) if batch.model == name]
        if any(Path(file).exists() for batch in planned for file in store.answers(batch)):
            return [backend], {"others": f"the run has answers by {backend} already"}
    if find_spec("vllm") is None:
        return [_ENGINE], {"vllm": "it is not installed"}
    try:
        parse(_with(config, name, backend="vllm").model_dump(mode="json"))
    except ConfigError as error:
        return [_ENGINE], {"vllm": f"it cannot answer all of the run: {error}"}
    return [_ENGINE, "vllm"], {}


def _with(config: Config, name: str, **settings: str) -> Config:
    """Return a config with some settings of a model changed."""
    model = config.models[name].model_copy(update=settings)
    return config.model_copy(update={"models": {**config.models, name: model}})


def _try(
    config: Config,
    batch: PlannedBatch,
    candidates: Sequence[str],
    dropped: Mapping[str, str],
    cores: int,
    *,
    tries_graphs: bool,
) -> Tried:
    """Try software with a model; ask it the pilot's questions, the engine if it works.

    With `tries_graphs` the engine is tried without captured steps and with them, else as the config
    states.

    Raises:
        ConfigError: none works; what was found is in the bundle.
    """
    little = little_config(config, batch)
    if tries_graphs:  # a former pilot's decision is no reason to try nothing else
        little = _with(little, batch.model, graphs="off")
    preflight(little)
    trials: dict[str, Trial] = {}
    failed: dict[str, str] = {}
    for backend in candidates:
        tried = _with(little, batch.model, backend=backend)
        check_devices(tried)
        prepared(tried)
        try:
            trials[backend] = attempt(tried, cores)
        except EngineError as error:
            failed[backend] = str(error)
    if not trials:
        causes = "; ".join(failed.values())
        file = write_bundle({}, {batch.model: {**dropped, **failed}})
        raise ConfigError(
            f"models.{batch.model}: nothing answers here: {causes}; please report this with {file}"
        )
    if tries_graphs and _ENGINE in trials:
        captured = _with(little, batch.model, backend=_ENGINE, graphs="auto")
        trials[_ENGINE], why = _faster(captured, trials[_ENGINE], cores)
        failed |= {"graphs": why} if why else {}
    answered = _answered(_with(little, batch.model, backend=next(iter(trials))), cores)
    prompt = next(iter(trials.values())).facts["prompt_tokens"]
    habits = _habits(answered.tables, prompt)
    hours = {backend: _hours(config, batch, habits, trial) for backend, trial in trials.items()}
    return Tried(trials, {**dropped, **failed}, hours, answered)


def _faster(config: Config, plain: Trial, cores: int) -> tuple[Trial, str | None]:
    """Try the engine with captured steps, beside a trial without; return the faster of both.

    Besides, return why captured steps are left out. They have a process of their own: what breaks
    in one may spoil the GPU for the rest of it.
    """
    if plain.facts.get("path") != PLAIN:  # only flash attention is captured
        return plain, None
    try:
        tried = attempt(config, cores)
    except EngineError as error:
        return plain, str(error)
    if tried.facts.get("path") != CAPTURED:
        return plain, "; ".join(tried.facts.get("falls", ["they were not used"]))
    before, after = plain.software.speed.decode, tried.software.speed.decode
    if after <= before:
        return plain, f"{after:.0f} tokens/s with them, {before:.0f} without"
    return tried, None


def _answered(config: Config, cores: int) -> Answered:
    """Ask a pilot's questions, by the run's own engine."""
    (batch,) = batches(config)
    try:
        files = [Path(file) for file in answer(config, cores, stay=True).answers(batch)]
        gigabytes = _gigabytes_in_use(of_gpus=on_gpu(config, batch.model))
    finally:
        client.end_run()
    tables = [read_arrow(file, ANSWERS).to_pylist() for file in files]
    return Answered(tables, read_record(files[0]), gigabytes, _rates(config, batch))


def _habits(tables: Sequence[Sequence[Mapping[str, Any]]], prompt: float) -> Habits:
    """Return what answers are like, given those of the base model and of each head in turn."""
    base = {row["question_id"]: row["token_ids"] for row in tables[0]}
    lengths = []
    for row in tables[0]:
        ends = 1 if row["stop_reason"] == "eos" else 0  # a token, too, which the table lacks
        lengths.append(len(row["token_ids"]) + ends)
    repeated = []
    for table in tables[1:]:
        for row in table:
            pairs = zip(row["token_ids"], base[row["question_id"]], strict=False)
            same = [*takewhile(lambda pair: pair[0] == pair[1], pairs)]
            repeated.append(len(same) / max(1, len(row["token_ids"])))
    return Habits(prompt, fmean(lengths), max(lengths), fmean(repeated))


def _hours(config: Config, batch: PlannedBatch, habits: Habits, trial: Trial) -> float:
    """Return the hours of all answers of a model in the config, finished ones too, and its maps.

    A map takes as much longer than planned as the answers do. The engine starts once.
    """
    batches_of_model = [other for other in batches(config) if other.model == batch.model]
    seconds = model_seconds(config, batch, batches_of_model, habits, trial.software)
    card = card_of(config.models[batch.model].device)
    planned = sum(generation_seconds(config, other, card) for other in batches_of_model)
    maps = [name for name, section in config.maps.items() if section.model == batch.model]
    mapped = sum(map_seconds(config, name, card) for name in maps)
    return (trial.facts["start"] + seconds * (1 + mapped / planned)) / 3600


def _rates(config: Config, batch: PlannedBatch) -> Rates:
    """Return how often the base model is right, and how often a head's loss changes that."""
    _, _, graded = grade_batch(config, batch, config.grading)
    right = graded.pivot(index="question_id", columns="variant", values="correct")
    changed = right.drop(columns=str(BASE)).ne(right[str(BASE)], axis=0)
    return Rates(float(right[str(BASE)].mean()), float(changed.to_numpy().mean()))


def _gigabytes_in_use(*, of_gpus: bool) -> float:
    """Return the gigabytes in use on the GPUs, by whomever, or else by this folder's engines."""
    query = ("nvidia-smi", "--query-gpu=memory.used", "--format=csv,noheader,nounits")
    if of_gpus and (used := output_of(*query)):
        with suppress(ValueError):  # "[N/A]" where GPU and CPU share their memory
            return sum(map(float, used.split())) * _MEBIBYTE / 1e9
    sessions = {os.getsid(engine["process"]) for engine in client.status()}
    total = 0
    for process in Path("/proc").glob("[0-9]*"):
        try:
            if os.getsid(int(process.name)) in sessions:
                rollup = (process / "smaps_rollup").read_text(encoding="ascii")
                total += 1024 * int(re.findall(r"^Pss:\s*(\d+)", rollup, re.M)[0])
        except (OSError, IndexError):  # it has ended
            continue
    return total / 1e9
