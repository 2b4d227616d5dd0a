"""What each file of the store is, and which configs need it."""

import os
import re
from collections import defaultdict
from collections.abc import Iterator, Mapping
from itertools import product
from pathlib import Path
from typing import NamedTuple

from headsweep.errors import TableError
from headsweep.files import paths
from headsweep.files.safe_files import is_temporary, read_metadata
from headsweep.files.tables import (
    ACTIVATIONS,
    ANSWERS,
    EMBEDDINGS,
    LOOKS,
    PROBLEMS,
    QUESTIONS,
    SCORES,
    SOURCE,
    TEXTS,
    FileKind,
)
from headsweep.store.batches import batches, encoders, seeded_arms
from headsweep.store.keys import split_key
from headsweep.store.layout import Store
from headsweep.store.looks import looks_file
from headsweep.store.map_scores import layer_name, map_layers, score_files, texts_key

STORE = Path(paths.STORE)
TRASH = STORE / ".trash"

_KEY = "[^/]+-[0-9a-f]{8}"
_NO_KEYS = ("variant", "seed", "layer")
"""Wildcards whose values are no keys."""


def _form(template: str) -> re.Pattern[str]:
    """Return how paths below the store begin that a template gives: keys, then a variant, say."""
    folder, _, _ = Path(template).relative_to(STORE).as_posix().partition("{")
    keys = [_KEY for name in re.findall(r"{(\w+)}", template) if name not in _NO_KEYS]
    return re.compile(rf"{re.escape(folder)}({'/'.join(keys)})(?:/([^/.]*)|\.|$)")


_KINDS = {
    "model": _form(paths.MODEL),
    "source": _form(SOURCE.path),
    "questions": _form(QUESTIONS.path),
    "embedder": _form(paths.EMBEDDER),
    "embeddings": _form(EMBEDDINGS.path),
    "activations": _form(ACTIVATIONS.path),
    "looks": _form(LOOKS.path),
    "texts": _form(TEXTS.path),
    "scores": _form(SCORES.path),
    "dataset": _form(PROBLEMS.path),
    "encoder": _form(paths.ENCODER),
    "solver": _form(paths.TEACHER),
    "arm": _form(paths.HISTORY),
    "solver, unfinished": _form(paths.TEACHER_JOURNAL),
    "arm, unfinished": _form(paths.COMPRESSION_JOURNAL),
    "answers, unfinished": _form(paths.JOURNAL),
    "scores, unfinished": _form(paths.SCORES_JOURNAL),
    "answers": _form(ANSWERS.path),
}
"""What each kind of file of the store is called."""

_OF_STORE = {Path(paths.STORE_VERSION), Path(paths.STORE_USERS), Path(paths.STORE_LOCKS), TRASH}
"""Entries of the store that hold no results."""
_Taken = dict[tuple[str, str, str, str], set[str]]


class _Unit(NamedTuple):
    """What a file of the store belongs to; a config needs all of a unit's files or none."""

    kind: str
    """Of `_KINDS`, or ``temporary`` or ``other``."""
    key: str
    """The keys in its path; of ``temporary`` and ``other`` files the path."""
    variant: str
    """Variant, seed or layer; empty where there is none."""


class Held(NamedTuple):
    """Files of the store that are listed together."""

    kind: str
    key: str
    """These two as in `_Unit`."""
    needed_by: tuple[str, ...]
    """The sorted names of the configs that need them."""

    @property
    def is_idle(self) -> bool:
        """Whether no config needs them; of ``other`` files that is unknown."""
        return self.kind != "other" and not self.needed_by


def contents(stores: Mapping[str, Store]) -> dict[Held, list[Path]]:
    """Return the files of the store, by what they are and which of the configs need them.

    Some config may need files of the kind ``other``; none needs ``temporary`` ones, which a killed
    process left.
    """
    asking: dict[_Unit, set[str]] = defaultdict(set)
    for name, store in stores.items():
        for file in files_of(store):
            asking[_unit(file)].add(name)
    taking = _taking_over(stores)
    files: dict[Held, list[Path]] = defaultdict(list)
    for file in files_below(STORE):
        unit = _unit(file)
        names = asking.get(unit) or _takers(unit, taking)
        files[Held(unit.kind, unit.key, tuple(sorted(names)))].append(file)
    kinds = [*_KINDS, "temporary", "other"]

    def place(held: Held) -> tuple[int, str, tuple[str, ...]]:
        return kinds.index(held.kind), held.key, held.needed_by

    return {held: files[held] for held in sorted(files, key=place)}


def _taking_over(stores: Mapping[str, Store]) -> _Taken:
    """Return the configs that could take over answers, by model, decoding, split and variant."""
    taken: _Taken = defaultdict(set)
    for name, store in stores.items():
        for keys, batch in batches(store).items():
            split = split_key(store.config, batch.questions)
            for variant in batch.variants:
                taken[keys.model, keys.decoding, split, str(variant)].add(name)
    return taken


def _takers(unit: _Unit, taking: _Taken) -> set[str]:
    """Return the configs that could take over a unit's answers; none if it has no table of them."""
    kind, key, variant = unit
    if kind != "answers":
        return set()
    model, decoding, _ = key.split("/")
    try:
        split = read_metadata(STORE / key / f"{variant}.parquet").get("split", "")
    except TableError:
        return set()
    return taking.get((model, decoding, split, variant), set())


def files_of(store: Store) -> Iterator[Path]:
    """Yield the files that a config may read or make in the store, without records."""
    config = store.config
    path = store.path
    for name in config.models:
        yield path(paths.MODEL, model=name)
    for name in config.questions:
        yield path(SOURCE, source=name)
        yield path(QUESTIONS, questions=name)
    for name in config.embedders:
        yield path(paths.EMBEDDER, embedder=name)
        for questions in config.questions:
            yield path(EMBEDDINGS, embedder=name, questions=questions)
    for batch in batches(store).values():
        yield batch.path(ACTIVATIONS)
        kinds: list[FileKind] = [ANSWERS, paths.JOURNAL]
        for variant, kind in product(batch.variants, kinds):
            yield batch.path(kind, variant=variant)
    for name in config.sweeps:
        yield looks_file(store, name)
    for name in config.maps:
        texts = texts_key(config, name)
        yield path(TEXTS, texts=texts)
        yield from map(Path, score_files(config, name))
        for layer in map(layer_name, map_layers(config, name)):
            yield path(paths.SCORES_JOURNAL, texts=texts, layer=layer)
    for name in config.problems:
        yield path(PROBLEMS, data=name)
    for key in encoders(config):
        yield Path(paths.ENCODER.format(encoder=key))
    for arm, seed in seeded_arms(config):
        templates = [paths.HISTORY, paths.COMPRESSION_JOURNAL]
        if arm.study.solver is not None:
            templates += [paths.TEACHER, paths.TEACHER_JOURNAL]
        for template in templates:
            yield Path(arm.file(template, seed))


def _unit(file: Path) -> _Unit:
    """Return kind, key and variant of a file of the store; its record's are the same."""
    place = file.relative_to(STORE)
    if any(map(is_temporary, place.parts)):
        return _Unit("temporary", place.as_posix(), "")
    for kind, form in _KINDS.items():
        if match := form.match(place.as_posix()):
            variant = "" if kind == "model" else match[2] or ""  # a model is a folder of files
            return _Unit(kind, match[1], variant)
    return _Unit("other", place.as_posix(), "")


def files_below(folder: Path) -> Iterator[Path]:
    """Yield the files of a folder in order; of the store those of results."""
    if folder != STORE:
        yield from walk(folder)
        return
    if not STORE.is_dir():
        return
    for entry in sorted(STORE.iterdir()):
        if entry not in _OF_STORE:
            yield from walk(entry) if entry.is_dir() else [entry]


def walk(folder: Path) -> Iterator[Path]:
    """Yield all files of a folder and of those in it, in order; none if it is missing."""
    for parent, folders, names in os.walk(folder):
        folders.sort()
        yield from (Path(parent, name) for name in sorted(names))
