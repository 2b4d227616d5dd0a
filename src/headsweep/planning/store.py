"""Paths of a config's files, made of keys that identify their content.

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
from functools import cache, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from headsweep import paths
from headsweep.config import Config, Study
from headsweep.config.compression import Encoder
from headsweep.config.section import Section
from headsweep.errors import ConfigError
from headsweep.models.source import local_folder
from headsweep.tables import write_text

if TYPE_CHECKING:
    from headsweep.planning.batches import Batch

VERSION = 2
"""Of the store. It is raised where files of before must not be taken for those of today: where the
same settings give another content, or keys are made otherwise. `headsweep store --upgrade` then
renames what stays valid."""

_SHOWN = {"title", "file"}  # the content of a file is named by its revision (sha256)
_SPEED_ONLY = {"device", "batch_size", "billions"}
_OF_DRAW = {"sampling", "embedder", "clusters"}
_OF_CUSTOM = {"dataset", "subset", "columns", "grader"}
_UNUSED = {"random": {"fold"}, "folds": {"ratios"}, "official": {"ratios", "fold", "seed"}}
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
    facts = {name: value for name, value in _keyed(section).items() if name in of_split}
    return _named(f"{section.benchmark}-{section.split}", {**facts, **size})


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
        case "decodings" if section.greedy:
            idle |= {"seed"}
        case "problems":
            if not section.generated:
                idle |= {"seed"}
            partition = section.partition.reset(*_UNUSED[section.partition.protocol])
            section = section.model_copy(update={"partition": partition})
    found = _without_place(section, values)
    kept = {setting: value for setting, value in found.items() if setting not in idle}
    for setting, (other, referred) in references.items():
        kept[setting] = _deciding(config, other, referred, values)
    return kept


def _keyed(section: Section) -> dict[str, Any]:
    return _without_place(section, Section.non_defaults)


def _without_place(section: Section, values: _Values) -> dict[str, Any]:
    """Return a section's values, without a local folder, whose content its revision names."""
    found = values(section)
    if found.get("source") and local_folder(found["source"]):
        del found["source"]
    return found


def check_version(root: Path = Path()) -> None:
    """Refuse the store of a folder if it is of another version; an empty one is of any.

    Raises:
        ConfigError: one line that says what to do.
    """
    store, file = root / paths.STORE, root / paths.STORE_VERSION
    if file.exists():
        found = file.read_text(encoding="utf-8").strip()
    else:
        held = store.iterdir() if store.is_dir() else ()
        found = "1" if any(not entry.name.startswith(".") for entry in held) else str(VERSION)
    if found == str(VERSION):
        return
    advice = "update headsweep"
    if found == "1":
        advice = f"`headsweep store --upgrade`, given in {root.resolve()}, renames what it holds"
    raise ConfigError(f"{store} is of version {found}; what runs here reads {VERSION}; {advice}")


def mark_version(root: Path = Path(), *, upgraded: bool = False) -> None:
    """Write into a folder's store, before the first file, its version and who shares it by a link.

    Raises:
        ConfigError: it is of another version, unless it was just upgraded.
    """
    file = root / paths.STORE_VERSION
    if not upgraded:
        check_version(root)
    if upgraded or not file.exists():
        write_text(file, f"{VERSION}\n")
    results = (root / paths.RESULTS).resolve()
    if (root / paths.STORE).resolve().parent != results:
        name = hashlib.sha256(str(results).encode()).hexdigest()[:16]
        write_text(root / paths.STORE_USERS / name, f"{results}\n")


def other_users() -> list[Path]:
    """Return the results folders, besides this one, that share this folder's store by a link."""
    store = Path(paths.STORE).resolve()
    registered = sorted(Path(paths.STORE_USERS).glob("[!.]*"))
    folders = [Path(file.read_text(encoding="utf-8").strip()) for file in registered]
    sharing = [folder for folder in folders if (folder / store.name).resolve() == store]
    return [
        folder
        for folder in dict.fromkeys([store.parent, *sharing])
        if folder != Path(paths.RESULTS).resolve()
    ]


def journal_files(journal: Path) -> list[Path]:
    """Return the files of a journal of answers: one of each process that has added to it."""
    return sorted(journal.parent.glob(f"{journal.stem}.*{journal.suffix.lstrip('.')}"))


class Store:
    """The files of one config, in the store and in its run.

    The wildcards of `headsweep.paths` are filled from config names: `model`, `questions`,
    `decoding` and `embedder` become the keys of what they name; `source` is the name of a question
    set and becomes the key of its split; `data` is the name of a dataset of problems and becomes
    its key; `run` is the config's own. All other values are inserted as they are.
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
        """Return the path of a file from its template in `headsweep.paths` and config names."""
        return Path(template.format_map(self._values(names)))

    def fill(self, template: str, **names: object) -> str:
        """Return a template with the run and some names filled in; other wildcards stay open."""
        values = self._values(names)
        return re.sub(r"{(\w+)}", lambda each: str(values.get(each[1], each[0])), template)

    def of_sweep(self, sweep: str, template: str = paths.ACCURACY, **names: object) -> Path:
        """Return a file of a sweep's batch; the sweep's own grading decides which graded one."""
        section = self.config.sweeps[sweep]
        grading = self.config.grading_of(sweep)
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
