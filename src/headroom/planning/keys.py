"""Names with digests: nothing is overwritten, nothing stale is taken for fresh.

The key of a model, question set, decoding or embedder is its config name, a hyphen, and 8 hex
digits of the settings that decide its content. Two configs whose settings agree share a key, and
with it the store; settings that only change speed (batch size, device) are left out. The attention
implementation stays in: in half precision it changes tokens.

What a compression makes is kept by what is compressed (a solver, which depends on its dataset, or a
model), by the data, and by the arm, whose digest is of the settings that have an effect.
"""

import hashlib
import json
from typing import Any, Literal

from headroom import __version__
from headroom.config import Config, Study
from headroom.config.compression import Compression, Encoder
from headroom.models.source import local_folder

Kind = Literal["models", "questions", "decodings", "embedders"]

_DIGITS = 8
_SPEED_ONLY = {"device", "batch_size", "billions"}
_LOCATION_ONLY = {"file"}  # a file's content is named by its revision (sha256)
_LATER: dict[str, Any] = {"unit": "group"}
"""Settings of solvers and compressions that came after results were kept, with the value that does
as was done before: there they are no part of a key."""
_AUTHORS_PROMPTS = 2
"""Counts the versions of the prompts `authors` (headroom.generation.prompts)."""
_CUSTOM_ONLY = ("dataset", "subset", "columns", "grader")


def digest(value: Any) -> str:
    """Return 8 hex digits of a JSON value's content, independent of key order."""
    text = json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=True)
    return hashlib.sha256(text.encode()).hexdigest()[:_DIGITS]


def settings(config: Config, kind: Kind, name: str) -> dict[str, Any]:
    """Return the settings that decide the content of one model, question set, ...

    References to other sections are replaced by what they refer to.
    """
    section = getattr(config, kind)[name]
    values: dict[str, Any] = section.model_dump(mode="json")
    dropped = _SPEED_ONLY | _LOCATION_ONLY
    if kind in ("models", "embedders") and section.source and local_folder(section.source):
        dropped = dropped | {"source"}  # its fingerprint, `revision`, names the content
    kept = {key: value for key, value in values.items() if key not in dropped}
    if (kind == "models" and section.train) or (kind == "questions" and section.generated):
        kept["version"] = __version__  # the code that makes it is part of what it is
    if kind == "models" and section.gguf_file is None:  # keys are older than GGUF files
        del kept["gguf_file"]
    if kind == "embedders" and section.model:
        kept["model"] = settings(config, "models", section.model)
    if kind == "questions":
        if section.embedder:
            kept["embedder"] = settings(config, "embedders", section.embedder)
        if section.n is None or section.sampling == "first":
            kept["seed"] = section.seed if section.generated else None
        if section.benchmark != "custom":
            kept = {key: value for key, value in kept.items() if key not in _CUSTOM_ONLY}
        if section.n is None:  # the whole split, however it would have been drawn
            kept["sampling"] = kept["embedder"] = None
    if kind == "decodings" and section.greedy:
        kept["seed"] = None
    if kind == "decodings" and section.prompt == "authors":
        kept["prompts"] = _AUTHORS_PROMPTS
    return kept


def key(config: Config, kind: Kind, name: str) -> str:
    """Return the key of a named model, question set, decoding or embedder."""
    return f"{name}-{digest(settings(config, kind, name))}"


def split_key(config: Config, name: str, **size: int | None) -> str:
    """Return the key of the split that a question set is drawn from.

    Sets of the same split, whatever their size and draw, share it, and so may share answers.
    """
    section = config.questions[name]
    split = f"{section.benchmark}-{section.split}"
    facts = {
        "split": split,
        "revision": section.revision,
        "seed": section.seed if section.generated else None,
        "version": __version__ if section.generated else None,
        **size,
    }
    if section.benchmark == "custom":
        facts |= section.model_dump(mode="json", include={"dataset", "subset", "columns"})
    return f"{split}-{digest(facts)}"


def source_key(config: Config, name: str) -> str:
    """Return the key of the file that holds the split: `split_key`, but a generated split is made
    only as large as its set.
    """
    section = config.questions[name]
    return split_key(config, name, n=section.n if section.generated else None)


def data_key(config: Config, name: str) -> str:
    """Return the key of a dataset that solvers are trained on, with its division into parts."""
    section = config.problems[name]
    values = section.model_dump(mode="json", exclude=_LOCATION_ONLY | {"partition"})
    kept = {key: value for key, value in values.items() if value is not None}
    if section.dataset == "generated":
        kept["version"] = __version__
    else:
        del kept["seed"]
    partition = section.partition
    asked = {"random": {"ratios", "seed"}, "folds": {"fold", "seed"}, "official": set[str]()}
    kept["partition"] = partition.model_dump(
        mode="json", include={"protocol"} | asked[partition.protocol]
    )
    return f"{name}-{digest(kept)}"


def solver_key(config: Config, solver: str, data: str) -> str:
    """Return the key of a solver trained on a dataset: a profile's settings depend on that."""
    settings = config.solvers[solver].on(config.problems[data].dataset)
    values = settings.model_dump(mode="json", exclude={"profile": True, "encoder": True})
    del values["training"]["checkpoint_steps"]
    values["encoder"] = _encoder_settings(settings.encoder)
    return f"{solver}-{digest(_without_later(values))}"


def encoder_key(encoder: Encoder) -> str:
    """Return the key of a pretrained encoder."""
    assert encoder.source is not None
    name = encoder.source.rstrip("/").rpartition("/")[2]
    return f"{name}-{digest(_encoder_settings(encoder))}"


def study_keys(config: Config, study: Study) -> dict[str, str]:
    """Return the keys of what is compressed and of its data: `subject` and `data`."""
    if study.solver is not None:
        assert study.data is not None
        subject = solver_key(config, study.solver, study.data)
        return {"subject": subject, "data": data_key(config, study.data)}
    assert study.model is not None and study.train is not None and study.test is not None
    facts = {
        "train": settings(config, "questions", study.train),
        "test": settings(config, "questions", study.test),
        "decoding": settings(config, "decodings", study.decoding),
        "grading": config.grading,
    }
    data = f"{study.train}.{study.test}.{study.decoding}-{digest(facts)}"
    return {"subject": key(config, "models", study.model), "data": data}


def arm_key(study: Study, name: str, settings: Compression) -> str:
    """Return the key of an arm: its name, and a digest of the settings that have an effect.

    An arm from scratch takes the heads that the same settings without `scratch` leave.
    """
    values = settings.decisive()
    if settings.scratch:
        layout = study.pruned(settings).decisive()
        values = {"scratch": True, "epochs": settings.training.epochs, "layout": layout}
    return f"{name}-{digest(_without_later(values))}"


def _without_later(values: dict[str, Any]) -> dict[str, Any]:
    return {
        name: _without_later(value) if isinstance(value, dict) else value
        for name, value in values.items()
        if name not in _LATER or value != _LATER[name]
    }


def _encoder_settings(encoder: Encoder) -> dict[str, Any]:
    values = encoder.model_dump(mode="json")
    if encoder.source is not None and local_folder(encoder.source):
        del values["source"]  # its fingerprint, `revision`, names the content
    return values
