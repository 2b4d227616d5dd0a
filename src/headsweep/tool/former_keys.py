"""Keys as version 1 of the store made them, for `headsweep.tool.upgrade` alone.

They were made of all settings, including those at their defaults. Some settings remained in keys
after they had been removed from the config.
"""

from collections.abc import Collection
from typing import Any

from headsweep.config import Config, Study
from headsweep.config.compression import Compression
from headsweep.config.section import Section
from headsweep.config.solvers import Encoder
from headsweep.models.source import local_folder
from headsweep.planning import batches, keys
from headsweep.planning.keys import digest

_RELEASE = "0.1.0"  # the only one that wrote such keys
_SINCE = {"templates", "clusters", "layer_heads", "tensor_parallel", "beside", "graphs"}
"""Settings that version 1 did not have."""
_BACKEND = "headroom"
"""What version 1 called the backend of this package."""
_UNIMPORTANT = {"device", "batch_size", "billions", "title", "file"}
_OPTIONAL: dict[str, Any] = {"unit": "group", "gguf_file": None, "split": None}
"""Settings that version 1 left out of a key at these values, because they came late to it."""
_CUSTOM_ONLY = {"dataset", "subset", "columns", "grader"}
_UNUSED = {"random": {"fold"}, "folds": {"ratios"}, "official": {"ratios", "fold", "seed"}}

_KINDS = ("models", "questions", "decodings", "embedders", "problems")


def renamed(config: Config) -> dict[str, str]:
    """Return today's keys of a config, by those of version 1."""
    new_names = {
        _key(config, kind, name): keys.key(config, kind, name)
        for kind in _KINDS
        for name in getattr(config, kind)
    }
    for name, questions in config.questions.items():
        new_names[_split_key(config, name)] = keys.split_key(config, name)
        size = questions.n if questions.generated else None
        new_names[_split_key(config, name, n=size)] = keys.source_key(config, name)
    for name, encoder in batches.encoders(config).items():
        new_names[_encoder_key(encoder)] = name
    for study in config.compressions.values():
        today = keys.study_keys(config, study)
        for kind, before in _study_keys(config, study).items():
            new_names[before] = today[kind]
    for arm in batches.all_arms(config).values():
        new_names[_arm_key(arm)] = arm.key
    return new_names


def _key(config: Config, kind: str, name: str) -> str:
    return f"{name}-{digest(_settings(config, kind, name))}"


def _settings(config: Config, kind: str, name: str) -> dict[str, Any]:
    section = getattr(config, kind)[name]
    kept = _dump(section, _UNIMPORTANT)
    match kind:
        case "models":
            kept["train"] = None
        case "embedders" if section.model:
            kept["model"] = _settings(config, "models", section.model)
        case "questions":
            if section.embedder:
                kept["embedder"] = _settings(config, "embedders", section.embedder)
            if section.generated:
                kept["version"] = _RELEASE
            elif section.n is None or section.sampling == "first":
                kept["seed"] = None
            if section.benchmark != "custom":
                kept = {key: value for key, value in kept.items() if key not in _CUSTOM_ONLY}
            if section.n is None:
                kept["sampling"] = kept["embedder"] = None
        case "decodings":
            if section.greedy:
                kept["seed"] = None
            if section.prompt == "authors":
                kept["prompts"] = 2
        case "problems":
            kept = {key: value for key, value in kept.items() if value is not None}
            if section.generated:
                kept["version"] = _RELEASE
            else:
                del kept["seed"]
            for setting in _UNUSED[section.partition.protocol]:
                del kept["partition"][setting]
    return _without_optional(kept)


def _split_key(config: Config, name: str, **size: int | None) -> str:
    section = config.questions[name]
    split = f"{section.benchmark}-{section.split}"
    facts: dict[str, Any] = {
        "split": split,
        "revision": section.revision,
        "seed": section.seed if section.generated else None,
        "version": _RELEASE if section.generated else None,
        **size,
    }
    if section.benchmark == "custom":
        facts |= section.model_dump(mode="json", include={"dataset", "subset", "columns"})
    return f"{split}-{digest(_without_optional(facts))}"


def _encoder_key(encoder: Encoder) -> str:
    name = str(encoder.source).rstrip("/").rpartition("/")[2]
    return f"{name}-{digest(_dump(encoder))}"


def _study_keys(config: Config, study: Study) -> dict[str, str]:
    if study.solver is not None:
        solver = config.solver_of(study)
        values = {**_dump(solver, {"profile"}), "encoder": _dump(solver.encoder)}
        del values["training"]["checkpoint_steps"]
        values |= {"goal": "end", "targets": "tree"}
        subject = f"{study.solver}-{digest(_without_optional(values))}"
        return {"subject": subject, "data": _key(config, "problems", str(study.data))}
    facts: dict[str, Any] = {
        "train": _settings(config, "questions", str(study.train)),
        "test": _settings(config, "questions", str(study.test)),
        "decoding": _settings(config, "decodings", study.decoding),
        "grading": config.grading,
    }
    if (dtype := config.models[str(study.model)].dtype) != "float32":
        facts["tested_in"] = dtype
    data = f"{study.train}.{study.test}.{study.decoding}-{digest(facts)}"
    return {"subject": _key(config, "models", str(study.model)), "data": data}


def _arm_key(arm: batches.Arm) -> str:
    settings = arm.settings
    values = _decisive(arm.settings)
    if settings.scratch:
        layout = _decisive(arm.study.pruned(settings))
        scratch = {name: value for name, value in values.items() if name.startswith("scratch")}
        values = {**scratch, "epochs": settings.training.epochs, "layout": layout}
    return f"{arm.name}-{digest(_without_optional(values))}"


def _decisive(settings: Compression) -> dict[str, Any]:
    """Return the settings of an arm that had an effect."""
    if not settings.rounds:
        return {"rounds": 0}
    values = settings.model_dump(mode="json")
    del values["training"]["checkpoint_steps"], values["importance"]["batch_size"]
    literal = settings.schedule == "literal"
    idle = {"rounds"} if literal else {"smallest", "largest_loss"}
    if settings.schedule == "one_shot":
        idle |= {"start", "exponent"}
    if not settings.ratio:
        idle |= {"start", "exponent", "importance"}
    defaults = {"scratch_rate": None, "scratch_times": 1}
    idle |= {name for name in defaults if not settings.scratch or values[name] == defaults[name]}
    if settings.distillation.teacher == "none":
        values["distillation"] = {"teacher": "none"}
    if settings.importance.criterion != "mixed":
        for name in ("alpha", "norm", "entropy", "scale", "entropy_sign"):
            del values["importance"][name]
    again = literal or (settings.schedule == "rounds" and settings.rounds > 1)
    if settings.importance.scope == "layer" and again:
        values["importance"]["ranks"] = "over all removals"
    if literal and settings.ratio:
        values["training"]["moments"] = "cut"
    if settings.importance.criterion in ("random", "causal"):
        del values["importance"]["calibration"]
    return {name: value for name, value in values.items() if name not in idle}


def _dump(section: Section, exclude: Collection[str] = ()) -> dict[str, Any]:
    values = section.model_dump(mode="json", exclude={*exclude, *_SINCE})
    if values.get("source") and local_folder(values["source"]):
        del values["source"]
    if values.get("backend") == "headsweep":
        values["backend"] = _BACKEND
    return values


def _without_optional(values: dict[str, Any]) -> dict[str, Any]:
    return {
        name: _without_optional(value) if isinstance(value, dict) else value
        for name, value in values.items()
        if name not in _OPTIONAL or value != _OPTIONAL[name]
    }
