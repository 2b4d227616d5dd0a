"""What the store holds, and which configs ask for it."""

import os
import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

from headroom import paths
from headroom.config import Config
from headroom.planning.batches import all_arms, batches, teachers
from headroom.planning.store import Store, encoder_key

STORE = Path(paths.RESULTS, "store")

_KEY = r"[^/]+-[0-9a-f]{8}"
_KINDS = {
    "model": rf"models/({_KEY})/",
    "source": rf"sources/({_KEY})\.parquet",
    "questions": rf"questions/({_KEY})\.parquet",
    "embedder": rf"embedders/({_KEY})\.json",
    "embeddings": rf"embeddings/({_KEY}/{_KEY})\.parquet",
    "activations": rf"activations/({_KEY}/{_KEY}/{_KEY})\.parquet",
    "dataset": rf"problems/({_KEY})\.(?:parquet|dropped\.csv)",
    "encoder": rf"encoders/({_KEY})\.json",
    "solver": rf"solvers/({_KEY}/{_KEY}/\d+)/",
    "arm": rf"compressed/({_KEY}/{_KEY}/{_KEY}/\d+)/",
    "solver, unfinished": rf"\.journal/solvers/({_KEY}/{_KEY}/\d+)\.safetensors",
    "arm, unfinished": rf"\.journal/compressed/({_KEY}/{_KEY}/{_KEY}/\d+)(?:/|$)",
    "answers, unfinished": rf"\.journal/({_KEY}/{_KEY}/{_KEY})/([^/.]+)\.(?:jsonl|parquet)",
    "answers": rf"({_KEY}/{_KEY}/{_KEY})/([^/.]+)\.parquet",
}
"""How the paths of each kind begin, below the store; records stand beside what they are about."""


@dataclass(frozen=True)
class Entry:
    """Files of one kind and key that the same configs ask for."""

    kind: str
    """``other`` for files of no known form: nothing is known of who needs them."""
    key: str
    """Keys as they stand in the path; of other files the path itself."""
    files: tuple[Path, ...]
    asked_by: tuple[str, ...]
    """Names of configs, sorted."""

    @property
    def size(self) -> int:
        """Bytes."""
        return sum(file.lstat().st_size for file in self.files)

    @property
    def modified(self) -> datetime:
        """When the newest of the files was written."""
        return datetime.fromtimestamp(max(file.lstat().st_mtime for file in self.files))

    @property
    def idle(self) -> bool:
        """Whether no config asks for it."""
        return self.kind != "other" and not self.asked_by


def contents(configs: Mapping[str, Config]) -> list[Entry]:
    """Return what the store in this folder holds, by kind and key.

    Args:
        configs: resolved, by the names to call them by.
    """
    asking: dict[_Unit, set[str]] = defaultdict(set)
    for name, config in configs.items():
        for file in files_of(config):
            asking[_unit(file)].add(name)
    found: dict[tuple[str, str, tuple[str, ...]], list[Path]] = defaultdict(list)
    for file in _files():
        unit = _unit(file)
        found[unit[0], unit[1], tuple(sorted(asking.get(unit, ())))].append(file)
    order = {kind: place for place, kind in enumerate(_KINDS)}
    entries = [Entry(kind, key, tuple(files), by) for (kind, key, by), files in found.items()]
    return sorted(entries, key=lambda e: (order.get(e.kind, len(order)), e.key, e.asked_by))


def files_of(config: Config) -> Iterator[Path]:
    """Yield the files that a config may read or make in the store, records excepted."""
    store = Store(config)
    for name in config.models:
        yield store.path(paths.MODEL, model=name)
    for name in config.questions:
        yield store.path(paths.SOURCE, source=name)
        yield store.path(paths.QUESTIONS, questions=name)
    for name in config.embedders:
        yield store.path(paths.EMBEDDER, embedder=name)
        for questions in config.questions:
            yield store.path(paths.EMBEDDINGS, embedder=name, questions=questions)
    for batch in batches(config):
        yield store.path(paths.ACTIVATIONS, **batch.names)
        keys = store.keys(**batch.names)
        for variant in batch.variants:
            for template in (paths.ANSWERS, paths.JOURNAL):
                yield Path(template.format(variant=variant, **keys))
    for name in config.problems:
        yield store.path(paths.PROBLEMS, data=name)
    for solver in config.solvers.values():
        if solver.encoder.source is not None:
            yield Path(paths.ENCODER.format(encoder=encoder_key(solver.encoder)))
    for study in config.compressions.values():
        for keys in teachers(config, study):
            for template in (paths.TEACHER, paths.TEACHER_JOURNAL):
                yield Path(template.format(**keys))
    for arm in all_arms(config).values():
        for seed in arm.study.seeds:
            for template in (paths.HISTORY, paths.COMPRESSION_JOURNAL):
                yield Path(arm.file(template, seed))


def remove(entries: Iterable[Entry]) -> None:
    """Remove the files of entries, and the folders that are empty then.

    The file that says that all others are there goes first: what is left of a removal that was cut
    off is taken for missing.
    """
    for entry in entries:
        for file in sorted(entry.files, key=_turn):
            file.unlink(missing_ok=True)
            for folder in file.parents:
                if folder == STORE or any(folder.iterdir()):
                    break
                folder.rmdir()


def _turn(file: Path) -> tuple[int, bool, bool]:
    """Order the files of an entry: model.json before its checkpoint, tables before records."""
    return len(file.parts), file.name.endswith(".run.json"), file.suffix != ".json"


_Unit = tuple[str, str, str]  # kind, key, and the variant where there is one


def _unit(file: Path) -> _Unit:
    """Return what a file of the store belongs to."""
    path = file.relative_to(STORE).as_posix()
    for kind, form in _KINDS.items():
        match = re.match(form, path)
        if match:
            return kind, match[1], match[2] if match.lastindex == 2 else ""
    return "other", path, ""


def _files() -> Iterator[Path]:
    for folder, _, names in os.walk(STORE):
        for name in names:
            yield Path(folder, name)
