"""`headsweep pilot`: measure a small part of a config before hundreds of jobs start.

Of each model, the base and two pruned heads answer some questions (`headsweep.cli.pilot_trial`). On
a GPU all that may answer is tried, one after the other: the engine, and vLLM if it is installed.
The seconds of an answer, of the base model's and of a head's, say how long the whole config takes.
How often the base model is right, and how often a head changes an outcome, say what the whole
config could show.
"""

from collections.abc import Mapping, Sequence, Set
from importlib.util import find_spec
from pathlib import Path
from typing import Any, NamedTuple

import pandas as pd

from headsweep.cli.pilot_trial import Trial, attempt
from headsweep.cli.without_snakemake import prepared
from headsweep.config import Config, Questions, load, parse
from headsweep.errors import ConfigError, EngineError
from headsweep.files.tables import QUESTIONS
from headsweep.grading.matrix import grade_answers
from headsweep.machine.host import host_cores
from headsweep.machine.processors import card_of, is_on_gpu
from headsweep.store.batches import Batch, batches
from headsweep.store.layout import Store
from headsweep.store.revisions import resolve
from headsweep.text import aligned, duration
from headsweep.variants import BASE, FAMILIES, Variant
from headsweep.workflow.cost import answer_length, generation_seconds, map_seconds, question_count
from headsweep.workflow.detectable_gain import ABOUT, Rates, detectable_gains
from headsweep.workflow.preflight import check_devices, preflight

_QUESTIONS, _GPU_QUESTIONS = 20, 170
"""At most so many are answered, by the base model and by `_HEADS` heads: on a GPU as many rows as
a run decodes together."""
_HEADS = 2
_TITLES = ["model", "answers", "tokens", "cut", "tokens/s", "whole config"]


class _Found(NamedTuple):
    """What answers soonest for a model, as tried."""

    backend: str
    trial: Trial
    hours: float


def show(config: Path, cores: int | None) -> None:
    """Print what a pilot of a config file measures here."""
    stated = load(config)
    store = Store(resolve(stated))
    whole = store.config
    piloted = piloted_batches(store)
    usable = min(cores or host_cores(), host_cores())
    found: dict[str, _Found] = {}
    notes: list[str] = []
    for name, batch in piloted.items():
        backends, left_out = _backends(whole, name, stated.models[name].model_fields_set)
        tried, told = _try(batch, backends, usable)
        found[name] = min(tried, key=lambda each: each.hours)
        notes += [f"{name}: {note}" for note in told + left_out]
        backend = found[name].backend
        if backend != whole.models[name].backend:
            notes.append(f"{name}: write backend: {backend} into its section: it is faster here")
    rows = [_TITLES, *([name, *_cells(model)] for name, model in found.items())]
    print(f"base and {_HEADS} heads of each model, on as many questions as are answered together")
    print(aligned(rows, left=1))
    hours = sum(model.hours for model in found.values())
    print(f"answers and maps of {', '.join(found)} in the whole config: about {duration(hours)}")
    print("\n".join(notes))
    rates = {name: _rates(piloted[name], model.trial) for name, model in found.items()}
    if seen := detectable_gains(whole, rates):
        print(f"\n{ABOUT} (base right and outcomes changed are those of the pilot)")
        print(aligned(seen, left=1))


def piloted_batches(store: Store) -> dict[str, Batch]:
    """Return the batch that stands for each model: its first greedy one with variants.

    Raises:
        ConfigError: there is none.
    """
    piloted: dict[str, Batch] = {}
    for batch in batches(store).values():
        if store.config.decodings[batch.decoding].greedy and len(batch.variants) > 1:
            piloted.setdefault(batch.model, batch)
    if not piloted:
        raise ConfigError(
            "no model of this config answers greedily without heads; a pilot times nothing else"
        )
    return piloted


def little_config(batch: Batch) -> Config:
    """Return a config of one sweep per piloted head, on the batch's model and first questions.

    The heads are the first and the last of the batch, or of the model if the batch has none.
    """
    config = batch.store.config
    questions = config.questions[batch.questions]
    model = config.models[batch.model]
    most = _GPU_QUESTIONS if is_on_gpu(model.device) else _QUESTIONS
    few: dict[str, Any] = {"n": min(most, question_count(questions))}
    if questions.sampling != "stratified":  # few of each stratum are like all; clusters take long
        few["sampling"] = "first"
        few |= {name: Questions.model_fields[name].default for name in ("embedder", "clusters")}
    last = model.layers - 1
    of_model = [Variant(0, 0), Variant(last, model.heads_in(last)[-1])]
    heads = [variant for variant in batch.variants if variant.kind == "head"] or of_model
    chosen = list(dict.fromkeys([heads[0], heads[-1]]))[:_HEADS]
    asked = {"model": batch.model, "decoding": batch.decoding, "questions": batch.questions}
    sweeps = {str(head): {**asked, "layers": [head.layer], "heads": [head.head]} for head in chosen}
    return Config.model_validate(
        {
            "run": "pilot",
            "grading": config.grading,
            "models": {batch.model: model},
            "questions": {batch.questions: questions.model_copy(update=few)},
            "decodings": {batch.decoding: config.decodings[batch.decoding]},
            "sweeps": sweeps,
        }
    )


def _try(batch: Batch, backends: Sequence[str], cores: int) -> tuple[list[_Found], list[str]]:
    """Try what may answer for a model; return what works, and words for each.

    Raises:
        ConfigError: nothing answers.
    """
    little = little_config(batch)
    preflight(Store(little))
    found: list[_Found] = []
    told = []
    failed = []
    for backend in backends:
        tried = Store(_with(little, batch.model, backend))
        check_devices(tried)
        prepared(tried)
        called = f"{backend}: " if len(backends) > 1 else ""
        try:
            trial = attempt(tried, cores)
        except EngineError as error:
            failed.append(f"{called}{error}")
            continue
        hours = _hours(batch, trial)
        told.append(f"{called}{duration(hours)} on {_told(trial)}")
        found.append(_Found(backend, trial, hours))
    if not found:
        raise ConfigError(
            f"models.{batch.model}: nothing answers here: {'; '.join(failed)}; please report this"
        )
    return found, told + [f"left out: {why}" for why in failed]


def _backends(config: Config, name: str, stated: Set[str]) -> tuple[list[str], list[str]]:
    """Return the software to try for a model, and why other software is not tried.

    There is a choice on a GPU only, and where the config states none.
    """
    model = config.models[name]
    if "backend" in stated or not is_on_gpu(model.device):
        return [model.backend], []
    if find_spec("vllm") is None:
        return [model.backend], ["left out: vllm: it is not installed"]
    try:
        parse(_with(config, name, "vllm").model_dump(mode="json"))
    except ConfigError as error:
        return [model.backend], [f"left out: vllm: it cannot answer all of the run: {error}"]
    return [model.backend, "vllm"], []


def _with(config: Config, name: str, backend: str) -> Config:
    """Return a config in which other software answers for a model."""
    model = config.models[name].model_copy(update={"backend": backend})
    return config.model_copy(update={"models": {**config.models, name: model}})


def _told(trial: Trial) -> str:
    """Return what software says of itself, in words."""
    facts = trial.facts
    said = [f"{key} {facts[key]}" for key in ("version", "path", "check", "falls") if key in facts]
    return ", ".join([facts["device"], *said])


def _cells(found: _Found) -> list[str]:
    """Return a row of the table, below `_TITLES`."""
    trial = found.trial
    rows = [row for table in trial.answers.values() for row in table]
    tokens = sum(len(row["token_ids"]) for row in rows)
    cut = sum(row["stop_reason"] == "length" for row in rows)
    base = len(trial.answers[str(BASE)])
    seconds = base * trial.base + (len(rows) - base) * trial.head
    rate = f"{tokens / seconds:,.0f}"
    return [f"{len(rows)}", f"{tokens:,}", f"{cut}", rate, duration(found.hours)]


def _hours(batch: Batch, trial: Trial) -> float:
    """Return the hours of all answers of a model in the config, finished ones too, and its maps.

    Answers to another benchmark take as much longer than the piloted as the plan assumes that they
    are. A map takes as much longer than planned as the answers do. The engine starts once.
    """
    config = batch.store.config
    seconds = planned = 0.0
    card = card_of(config.models[batch.model].device)
    for other in batches(batch.store).values():
        if other.model != batch.model:
            continue
        decoding = config.decodings[other.decoding]
        longer = answer_length(other) / answer_length(batch)
        answers = longer * question_count(config.questions[other.questions]) * decoding.samples
        for variant in other.variants:
            verified = decoding.greedy and _is_verified(variant)
            seconds += answers * (trial.head if verified else trial.base)
        planned += generation_seconds(other, card)
    maps = [name for name, section in config.maps.items() if section.model == batch.model]
    mapped = sum(map_seconds(config, name, card) for name in maps)
    return (trial.start + seconds * (1 + mapped / planned)) / 3600


def _is_verified(variant: Variant) -> bool:
    """Tell whether a variant's answers begin as the base model's, which are verified for it."""
    family = FAMILIES[variant.kind]
    return not (variant.is_base or variant.kind == "numeric" or family.on_weights)


def _rates(batch: Batch, trial: Trial) -> Rates:
    """Return how often the base model is right, and how often a head's loss changes that."""
    config = batch.store.config
    rows = Store(little_config(batch)).read(QUESTIONS, questions=batch.questions)
    answers: Mapping[str, pd.DataFrame] = {
        variant: pd.DataFrame(table) for variant, table in trial.answers.items()
    }
    grader_name = config.questions[batch.questions].grader_name
    graded = grade_answers(rows, answers, grader_name, config.grading)
    right = graded.pivot(index="question_id", columns="variant", values="correct")
    changed = right.drop(columns=str(BASE)).ne(right[str(BASE)], axis=0)
    return Rates(float(right[str(BASE)].mean()), float(changed.to_numpy().mean()))
