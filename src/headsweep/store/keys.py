"""Keys that identify the content of a config's files, and stand in their paths.

The key of a model, question set, decoding or embedder is its config name, a hyphen, and 8 hex
digits of a hash of the settings that decide its content. Changed settings give new files, and
configs with equal settings share files. A setting at its default is no part of a key, so a new
setting changes no key; the default of a setting must therefore never change. Settings that only
change speed (batch size, device) are left out. The attention implementation is part of the key,
because it changes tokens in half precision.

The files of a compression have the keys of what is compressed (a model, or a solver, which depends
on its dataset), of the data, and of the arm, which covers only settings that have an effect.

Keys consist of letters, digits, '.', '_' and '-': they need no quoting in a path or a shell.
"""

import hashlib
import json
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from headsweep.config import Config, Model, Study
from headsweep.config.section import Section
from headsweep.config.solvers import Encoder
from headsweep.models import gguf
from headsweep.models.source import local_folder

VERSION = 2
"""Of the store. It is raised where files of before must not be taken for those of today: where the
same settings give another content, or keys are made otherwise. Where only a GGUF file is read
otherwise, `gguf.READING` is raised."""

_SHOWN = {"title", "file", "beside"}  # the content of a file is named by its revision (sha256)
_SPEED_ONLY = {"device", "batch_size", "billions", "tensor_parallel", "graphs"}
_OF_DRAW = {"sampling", "embedder", "clusters"}
_OF_CUSTOM = {"dataset", "subset", "columns", "grader"}
_UNUSED = {"random": {"fold"}, "folds": {"ratios"}, "official": {"ratios", "fold", "seed"}}
"""Settings of a partition that its protocol does not use."""

SECTIONS = {
    "model": "models",
    "questions": "questions",
    "decoding": "decodings",
    "embedder": "embedders",
    "source": "questions",
    "data": "problems",
}
"""Wildcards of paths that are filled with keys, and the config section each belongs to."""

_Values = Callable[[Section], dict[str, Any]]


def digest(value: Any) -> str:
    """Return 8 hex digits of a JSON value's content, independent of key order."""
    text = json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=True)
    return hashlib.sha256(text.encode()).hexdigest()[:8]


def settings(config: Config, kind: str, name: str) -> dict[str, Any]:
    """Return the settings that decide the content of one model, question set, ...

    References to other sections are replaced by the settings there.
    """
    return _deciding(config, kind, name, lambda section: section.model_dump(mode="json"))


def key(config: Config, kind: str, name: str) -> str:
    """Return the key of an entry of `models`, `questions`, `decodings`, `embedders`, `problems`."""
    return _named(name, _deciding(config, kind, name, Section.non_defaults))


def split_key(config: Config, name: str, **size: int | None) -> str:
    """Return the key of the split that a question set is drawn from.

    Sets of any size and draw from one split share it, and so can share answers.
    """
    section = config.questions[name]
    of_split = {"revision", "dataset", "subset", "columns"}
    if section.generated:
        of_split = {"seed", "templates"}
    values = _keyed(section)
    facts = {setting: values[setting] for setting in values if setting in of_split}
    return _named(f"{section.benchmark}-{section.split}", {**facts, **size})


def model_identity(config: Config, name: str) -> dict[str, Any]:
    """Return what tells a model from others, however it is run: its source and its revision."""
    kept = _without_place(config.models[name], lambda section: section.model_dump(mode="json"))
    return {setting: kept[setting] for setting in ("source", "revision") if setting in kept}


def source_key(config: Config, name: str) -> str:
    """Return the key of a split's file; a generated split's key includes the set's size."""
    section = config.questions[name]
    if section.generated:
        return split_key(config, name, n=section.n)
    return split_key(config, name)


def encoder_key(encoder: Encoder) -> str:
    """Return the key of a pretrained encoder: what its name has of a key's characters, a digest."""
    name = str(encoder.source).rstrip("/").rpartition("/")[2]
    plain = re.sub(r"[^A-Za-z0-9._]+", "-", name).strip("-.")
    return _named(plain or "encoder", _keyed(encoder))


def study_keys(config: Config, study: Study) -> dict[str, str]:
    """Return the keys of what is compressed and of its data: `subject` and `data`."""
    if study.solver is not None:
        solver = config.solver_of(study)
        trained = solver.model_copy(update={"training": solver.training.reset("checkpoint_steps")})
        values = {**trained.non_defaults(), "encoder": _keyed(solver.encoder)}
        data = key(config, "problems", str(study.data))
        return {"subject": _named(study.solver, values), "data": data}
    facts = {
        "train": _deciding(config, "questions", str(study.train), Section.non_defaults),
        "test": _deciding(config, "questions", str(study.test), Section.non_defaults),
        "decoding": _deciding(config, "decodings", study.decoding, Section.non_defaults),
        "grading": config.grading,
    }
    return {
        "subject": key(config, "models", str(study.model)),
        "data": _named(f"{study.train}.{study.test}.{study.decoding}", facts),
    }


def _named(name: str, values: Mapping[str, Any]) -> str:
    return f"{name}-{digest({'store': VERSION, **values})}"


def _deciding(config: Config, kind: str, name: str, values: _Values) -> dict[str, Any]:
    """Return the values of the settings that decide an entry's content."""
    section = getattr(config, kind)[name]
    idle = _SHOWN | _SPEED_ONLY
    references: dict[str, tuple[str, str]] = {}
    match kind:
        case "embedders" if section.model:
            references["model"] = ("models", section.model)
        case "questions":
            if not section.generated and (section.n is None or section.sampling == "first"):
                idle |= {"seed"}
            if section.n is None:  # the whole split: there is no draw
                idle |= _OF_DRAW
            elif section.embedder:
                references["embedder"] = ("embedders", section.embedder)
            if section.sampling != "clusters":
                idle |= {"clusters"}
            if not section.generated:
                idle |= {"templates"}
            if section.benchmark != "custom":
                idle |= _OF_CUSTOM
        case "decodings":
            if section.greedy:
                idle |= {"seed"}
            if section.prompt != "default" or section.template is not None:
                idle |= {"system"}
        case "problems":
            if not section.generated:
                idle |= {"seed"}
            partition = section.partition.reset(*_UNUSED[section.partition.protocol])
            section = section.model_copy(update={"partition": partition})
    values_of_section = _without_place(section, values)
    kept = {setting: value for setting, value in values_of_section.items() if setting not in idle}
    if kind == "models" and _is_gguf(section) and gguf.READING > 1:
        kept["reading"] = gguf.READING
    for setting, (other, referred) in references.items():
        kept[setting] = _deciding(config, other, referred, values)
    return kept


def _is_gguf(model: Model) -> bool:
    return bool(model.gguf_file) or Path(model.source).suffix == gguf.SUFFIX


def _keyed(section: Section) -> dict[str, Any]:
    return _without_place(section, Section.non_defaults)


def _without_place(section: Section, values: _Values) -> dict[str, Any]:
    """Return a section's values, without a local folder, whose content its revision names."""
    kept = values(section)
    if kept.get("source") and local_folder(kept["source"]):
        del kept["source"]
    return kept


def key_of_wildcard(config: Config, wildcard: str, name: str) -> str:
    """Return the key that fills a wildcard of a path, given a config name."""
    if wildcard == "source":
        return source_key(config, name)
    return key(config, SECTIONS[wildcard], name)
