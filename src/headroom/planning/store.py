"""Paths of a config's files, made of keys that identify their content.

The key of a model, question set, decoding or embedder is its config name, a hyphen, and 8 hex
digits of a hash of the settings that decide its content. Changed settings give new files, and
configs with equal settings share files. Settings that only change speed (batch size, device) are
left out. The attention implementation is part of the key, because it changes tokens in half
precision.

The files of a compression have the keys of what is compressed (a model, or a solver, which depends
on its dataset), of the data, and of the arm, which covers only settings that have an effect.
"""

import hashlib
import json
import re
from collections.abc import Callable, Collection, Mapping
from functools import cache, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from headroom import __version__, paths
from headroom.config import Config, Study
from headroom.config.compression import Encoder
from headroom.config.section import Section
from headroom.errors import ConfigError
from headroom.models.source import local_folder

if TYPE_CHECKING:
    from headroom.planning.batches import Batch

_SPEED_ONLY = {"device", "batch_size", "billions"}
_NAMED_OTHERWISE = {"title", "file"}  # a file's content is named by its revision (sha256)
_LATER: dict[str, Any] = {"unit": "group", "gguf_file": None, "split": None}
"""Settings that were added later, with the value that keeps the earlier behaviour. At that value
they are not part of a key, so that earlier results stay valid."""
_CUSTOM_ONLY = ("dataset", "subset", "columns", "grader")
_IDLE = {"random": {"fold"}, "folds": {"ratios"}, "official": {"ratios", "fold", "seed"}}
"""Settings of a partition that its protocol does not use."""

_SECTIONS = {
    "model": "models",
    "questions": "questions",
    "decoding": "decodings",
    "embedder": "embedders",
    "source": "questions",
    "data": "problems",
}
"""Wildcards of paths that are filled with keys, and the config section each belongs to."""

_REGRADED = {paths.GRADED: paths.REGRADED, paths.ACCURACY: paths.REGRADED_ACCURACY}


def digest(value: Any) -> str:
    """Return 8 hex digits of a JSON value's content, independent of key order."""
    text = json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=True)
    return hashlib.sha256(text.encode()).hexdigest()[:8]


def settings(config: Config, kind: str, name: str) -> dict[str, Any]:
    """Return the settings that decide the content of one model, question set, ...

    References to other sections are replaced by the settings there.
    """
    section = getattr(config, kind)[name]
    kept = _dump(section, _SPEED_ONLY | _NAMED_OTHERWISE)
    match kind:
        case "models":
            kept["train"] = None  # once a setting, and still part of the key
        case "embedders" if section.model:
            kept["model"] = settings(config, "models", section.model)
        case "questions":
            if section.embedder:
                kept["embedder"] = settings(config, "embedders", section.embedder)
            if section.generated:
                kept["version"] = __version__
            elif section.n is None or section.sampling == "first":
                kept["seed"] = None
            if section.benchmark != "custom":
                kept = {key: value for key, value in kept.items() if key not in _CUSTOM_ONLY}
            if section.n is None:  # the whole split: there is no draw
                kept["sampling"] = kept["embedder"] = None
        case "decodings":
            if section.greedy:
                kept["seed"] = None
            if section.prompt == "authors":
                kept["prompts"] = 2  # their version
        case "problems":
            kept = {key: value for key, value in kept.items() if value is not None}
            if section.generated:
                kept["version"] = __version__
            else:
                del kept["seed"]
            for setting in _IDLE[section.partition.protocol]:
                del kept["partition"][setting]
    return without_later(kept)


def key(config: Config, kind: str, name: str) -> str:
    """Return the key of an entry of `models`, `questions`, `decodings`, `embedders`, `problems`."""
    return f"{name}-{digest(settings(config, kind, name))}"


def split_key(config: Config, name: str, **size: int | None) -> str:
    """Return the key of the split that a question set is drawn from.

    Sets of any size and draw from one split share it, and so can share answers.
    """
    section = config.questions[name]
    split = f"{section.benchmark}-{section.split}"
    facts: dict[str, Any] = {
        "split": split,
        "revision": section.revision,
        "seed": section.seed if section.generated else None,
        "version": __version__ if section.generated else None,
        **size,
    }
    if section.benchmark == "custom":
        facts |= section.model_dump(mode="json", include={"dataset", "subset", "columns"})
    return f"{split}-{digest(without_later(facts))}"


def source_key(config: Config, name: str) -> str:
    """Return the key of a split's file; a generated split's key includes the set's size."""
    section = config.questions[name]
    return split_key(config, name, n=section.n if section.generated else None)


def encoder_key(encoder: Encoder) -> str:
    """Return the key of a pretrained encoder."""
    name = str(encoder.source).rstrip("/").rpartition("/")[2]
    return f"{name}-{digest(_dump(encoder))}"


def study_keys(config: Config, study: Study) -> dict[str, str]:
    """Return the keys of what is compressed and of its data: `subject` and `data`."""
    if study.solver is not None:
        solver = config.solver_of(study)
        values = {**_dump(solver, ["profile"]), "encoder": _dump(solver.encoder)}
        del values["training"]["checkpoint_steps"]
        values |= {"goal": "end", "targets": "tree"}  # once settings, and still part of the key
        subject = f"{study.solver}-{digest(without_later(values))}"
        return {"subject": subject, "data": key(config, "problems", str(study.data))}
    facts: dict[str, Any] = {
        "train": settings(config, "questions", str(study.train)),
        "test": settings(config, "questions", str(study.test)),
        "decoding": settings(config, "decodings", study.decoding),
        "grading": config.grading,
    }
    if (dtype := config.models[str(study.model)].dtype) != "float32":
        facts["tested_in"] = dtype  # once tested and saved in float32 whatever the config said
    data = f"{study.train}.{study.test}.{study.decoding}-{digest(facts)}"
    return {"subject": key(config, "models", str(study.model)), "data": data}


def without_later(values: dict[str, Any]) -> dict[str, Any]:
    """Leave out settings that were added later, where they keep the earlier behaviour."""
    return {
        name: without_later(value) if isinstance(value, dict) else value
        for name, value in values.items()
        if name not in _LATER or value != _LATER[name]
    }


def _dump(section: Section, exclude: Collection[str] = ()) -> dict[str, Any]:
    """Return a section's values, without a local folder, whose content its revision names."""
    values = section.model_dump(mode="json", exclude=set(exclude))
    if values.get("source") and local_folder(values["source"]):
        del values["source"]
    return values


class Store:
    """The files of one config, in the store and in its run.

    The wildcards of `headroom.paths` are filled from config names: `model`, `questions`, `decoding`
    and `embedder` become the keys of what they name; `source` is the name of a question set and
    becomes the key of its split; `data` is the name of a dataset of problems and becomes its key;
    `run` is the config's own. All other values are inserted as they are.
    """

    def __init__(self, config: Config) -> None:
        self.config = config
        self.key: Callable[[str, str], str] = cache(partial(_key, config))
        """Returns the key of a config name: `key(wildcard, name)`."""

    def keys(self, **names: str) -> dict[str, str]:
        """Return the keys of config names, by wildcard."""
        return {wildcard: self.key(wildcard, name) for wildcard, name in names.items()}

    def name(self, wildcard: str, given: str) -> str:
        """Return the config name of a key; for a split, the first question set drawn from it.

        Raises:
            ConfigError: this config has no such key.
        """
        section = _SECTIONS[wildcard]
        known = {self.key(wildcard, name): name for name in reversed(getattr(self.config, section))}
        if given not in known:
            there = ", ".join(reversed(known)) or "none"
            raise ConfigError(f"{section}: this config has no {given!r}; it has {there}")
        return known[given]

    def path(self, template: str, **names: object) -> Path:
        """Return the path of a file from its template in `headroom.paths` and config names."""
        return Path(template.format_map(self._values(names)))

    def fill(self, template: str, **names: object) -> str:
        """Return a template with the run and some names filled in; other wildcards stay open."""
        values = self._values(names)
        return re.sub(r"{(\w+)}", lambda each: str(values.get(each[1], each[0])), template)

    def of_sweep(self, sweep: str, template: str = paths.ACCURACY, **names: object) -> Path:
        """Return a file of a sweep's batch; the sweep's own grading decides which graded one."""
        section, grading = self.config.sweeps[sweep], self.config.grading_of(sweep)
        if grading != self.config.grading:
            template = _REGRADED.get(template, template)
        names |= {"model": section.model, "decoding": section.decoding, "grading": grading}
        return self.path(template, **names, questions=section.questions)

    def answers(self, batch: "Batch") -> list[str]:
        """Return the files of a batch's answers, one per variant."""
        keys = self.keys(**batch.names)
        return [paths.ANSWERS.format(variant=variant, **keys) for variant in batch.variants]

    def _values(self, names: Mapping[str, object]) -> dict[str, object]:
        keyed = {name: self.key(name, str(names[name])) for name in names.keys() & _SECTIONS}
        return {"run": self.config.run, **names, **keyed}


def _key(config: Config, wildcard: str, name: str) -> str:
    if wildcard == "source":
        return source_key(config, name)
    return key(config, _SECTIONS[wildcard], name)
