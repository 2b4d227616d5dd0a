"""`headsweep store`: what the store holds, which configs need it, and what may be removed.

A file that no known config needs goes to the store's trash, from which it can be moved back.
Answers stay as long as a known config could reuse them: those to another draw from its split. A
store that several folders share by links is pruned only if the runs of all of them are known.
"""

import contextlib
import os
import re
import shlex
import shutil
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cache
from itertools import chain, product
from pathlib import Path
from typing import NamedTuple

from headsweep import paths
from headsweep.config import Config, load
from headsweep.errors import ConfigError, HeadsweepError, TableError
from headsweep.generation.client import status
from headsweep.generation.locks import Locks
from headsweep.planning.batches import batches, encoders, seeded_arms
from headsweep.planning.keys import split_key
from headsweep.planning.maps import layer_name, map_layers, score_files, texts_key
from headsweep.planning.preflight import resolve
from headsweep.planning.store import Store, check_version, other_users
from headsweep.safe_files import read_metadata
from headsweep.tables import (
    ACTIVATIONS,
    ANSWERS,
    EMBEDDINGS,
    GRADIENTS,
    PROBLEMS,
    QUESTIONS,
    SCORES,
    SOURCE,
    FileKind,
)
from headsweep.text import aligned

STORE = Path(paths.STORE)
TRASH = STORE / ".trash"

_LOCKS = Path(".snakemake", "locks")
_KINDS: dict[str, list[str]] = {
    "model": [str(Path(paths.MODEL).parent)],
    "source": [SOURCE.path],
    "questions": [QUESTIONS.path],
    "embedder": [paths.EMBEDDER],
    "embeddings": [EMBEDDINGS.path],
    "activations": [ACTIVATIONS.path],
    "scores": [SCORES.path, GRADIENTS.path],
    "dataset": [PROBLEMS.path],
    "encoder": [paths.ENCODER],
    "solver": [str(Path(paths.TEACHER).parent)],
    "arm": [str(Path(paths.HISTORY).parent)],
    "solver, unfinished": [paths.TEACHER_JOURNAL],
    "arm, unfinished": [paths.COMPRESSION_JOURNAL],
    "answers, unfinished": [paths.JOURNAL, paths.FINISHED],
    "scores, unfinished": [paths.SCORES_JOURNAL],
    "answers": [ANSWERS.path],
}
"""The templates of each kind of file or folder of the store."""

_KEY = "[^/]+-[0-9a-f]{8}"
_FORMS = {"seed": r"\d+", "layer": r"L\d+", "variant": "[^/.]+"}
"""How the value of a wildcard looks; that of any other is a key."""

_HIDDEN = (paths.STORE_VERSION, paths.STORE_USERS, paths.STORE_LOCKS)
_ITS_OWN = {TRASH.name}.union(Path(each).name for each in _HIDDEN)
_Taken = dict[tuple[str, str, str, str], set[str]]


class _Unit(NamedTuple):
    """What a file of the store belongs to; a config needs all of a unit's files or none."""

    kind: str
    """Of `_KINDS`, or ``other``."""
    key: str
    """The keys in its path, or the path of an ``other`` file."""
    variant: str
    """The variant that answered; empty where there is none."""


class _Held(NamedTuple):
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


def show(configs: Sequence[Path]) -> None:
    """Print what the store of this folder holds, and which configs need it."""
    check_version()
    configs_by_run, unread = _configs(configs)
    held = contents(configs_by_run)
    _print(held, unread)
    idle = _idle(held)
    words = f"no config needs {_amount(idle)}" if idle else "nothing to prune"
    print(f"{_megabytes(chain(*held.values()))} MB in all; {words}")
    if trash := list(_walk(TRASH)):
        print(f"{TRASH} holds {_amount(trash)}; `headsweep store --empty-trash` removes them")


def prune(configs: Sequence[Path], *, yes: bool) -> None:
    """Move what no config needs to the trash, after listing it and asking.

    Raises:
        ConfigError: it is not known what is needed, or a run is under way.
    """
    check_version()
    configs_by_run, unread = _configs(configs)
    _refuse_unknown(configs_by_run, unread, configs)
    held = contents(configs_by_run)
    going = {which: files for which, files in held.items() if which.is_idle}
    idle = _idle(held)
    if not idle:
        print("nothing to prune")
        return
    _print(going, unread)
    amount = _amount(idle)
    if not yes and not _agreed(f"Move {amount} to {TRASH}?"):
        print("nothing is moved")
        return
    _refuse_unknown(configs_by_run, unread, configs)  # a run may have started since
    move_to_trash(idle)
    print(f"moved to {TRASH}: {amount}; `headsweep store --empty-trash` removes them")


def empty_trash(*, yes: bool) -> None:
    """Remove what lies in the trash, after asking."""
    trash = list(_walk(TRASH))
    if not trash:
        print(f"{TRASH} is empty")
        return
    amount = _amount(trash)
    if not yes and not _agreed(f"Remove {amount}?"):
        print("nothing is removed")
        return
    shutil.rmtree(TRASH)
    print(f"removed: {amount}")


def contents(configs: Mapping[str, Config]) -> dict[_Held, list[Path]]:
    """Return the files of the store, by what they are and which of the configs need them.

    Some config may need files of the kind ``other``.
    """
    asking: dict[_Unit, set[str]] = defaultdict(set)
    for name, config in configs.items():
        for file in files_of(config):
            asking[_unit(file)].add(name)
    taking = _taking_over(configs)
    files: dict[_Held, list[Path]] = defaultdict(list)
    for file in files_below(STORE):
        unit = _unit(file)
        names = asking.get(unit) or _takers(unit, taking)
        files[_Held(unit.kind, unit.key, tuple(sorted(names)))].append(file)
    kinds = [*_KINDS, "other"]

    def place(held: _Held) -> tuple[int, str, tuple[str, ...]]:
        return kinds.index(held.kind), held.key, held.needed_by

    return {held: files[held] for held in sorted(files, key=place)}


def _taking_over(configs: Mapping[str, Config]) -> _Taken:
    """Return the configs that could take over answers, by model, decoding, split and variant."""
    taken: _Taken = defaultdict(set)
    for name, config in configs.items():
        for batch in batches(config):
            keys = Store(config).keys(**batch.names)
            split = split_key(config, batch.questions)
            for variant in batch.variants:
                taken[keys["model"], keys["decoding"], split, str(variant)].add(name)
    return taken


def _takers(unit: _Unit, taking: _Taken) -> set[str]:
    """Return the configs that could take over a unit's answers; none if it holds no answers."""
    kind, key, variant = unit
    if kind not in ("answers", "answers, unfinished"):
        return set()
    model, decoding, questions = key.split("/")
    table = STORE / key / f"{variant}.parquet"
    if not table.exists():
        table = STORE / "questions" / f"{questions}.parquet"
    try:
        split = read_metadata(table).get("split", "")
    except TableError:
        return set()
    return taking.get((model, decoding, split, variant), set())


def files_of(config: Config) -> Iterator[Path]:
    """Yield the files that a config may read or make in the store, without records."""
    path = Store(config).path
    for name in config.models:
        yield path(paths.MODEL, model=name)
    for name in config.questions:
        yield path(SOURCE, source=name)
        yield path(QUESTIONS, questions=name)
    for name in config.embedders:
        yield path(paths.EMBEDDER, embedder=name)
        for questions in config.questions:
            yield path(EMBEDDINGS, embedder=name, questions=questions)
    for batch in batches(config):
        yield path(ACTIVATIONS, **batch.names)
        kinds: list[FileKind] = [ANSWERS, paths.JOURNAL]
        for variant, kind in product(batch.variants, kinds):
            yield path(kind, variant=variant, **batch.names)
    for name in config.maps:
        yield from map(Path, score_files(config, name))
        texts = texts_key(config, name)
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
    for kind, beginning in _beginnings():
        if match := beginning.match(file.as_posix()):
            values = match.groupdict()
            variant = values.pop("variant", "")
            values.pop("layer", "")  # the layers of a map belong together
            return _Unit(kind, "/".join(values.values()), variant)
    return _Unit("other", file.relative_to(STORE).as_posix(), "")


@cache
def _beginnings() -> list[tuple[str, re.Pattern[str]]]:
    """Return what the paths of each kind begin with; some kinds have several."""
    beginnings = []
    for kind, templates in _KINDS.items():
        beginnings += [(kind, _beginning(template)) for template in templates]
    return beginnings


def _beginning(template: str) -> re.Pattern[str]:
    """Return what the path of a file, its record, or a file in a folder begins with."""
    form = ""
    for part in re.split(r"({\w+})", template):
        if part.startswith("{"):
            name = part.strip("{}")
            form += f"(?P<{name}>{_FORMS.get(name, _KEY)})"
        else:
            form += re.escape(part)
    if template.endswith(".jsonl"):  # each process that writes has its own name before the suffix
        form = form.replace(re.escape(".jsonl"), r"\.[^/]*jsonl")
    if not Path(template).suffix:
        form += "(?:/|$)"
    return re.compile(form)


def files_below(folder: Path) -> Iterator[Path]:
    """Yield the files of a folder in order; of the store without its trash, version and users."""
    if folder != STORE:
        yield from _walk(folder)
        return
    for entry in sorted(STORE.iterdir()) if STORE.is_dir() else ():
        if entry.name not in _ITS_OWN:
            yield from _walk(entry) if entry.is_dir() else [entry]


def _walk(folder: Path) -> Iterator[Path]:
    for parent, folders, names in os.walk(folder):
        folders.sort()
        yield from (Path(parent, name) for name in sorted(names))


def move_to_trash(files: Iterable[Path]) -> None:
    """Move files of the store to its trash, and remove folders that are empty afterwards.

    The file that marks the others as complete goes first (model.json before its checkpoint, a table
    before its record), so that the rest of an interrupted move counts as missing.
    """
    for file in sorted(files, key=_marker_first):
        place = TRASH / file.relative_to(STORE)
        place.parent.mkdir(parents=True, exist_ok=True)
        file.replace(place)
        remove_empty(file.parent)


def _marker_first(file: Path) -> tuple[int, bool, bool]:
    """Return a sort key: of a folder's files, other JSON files come first and records last."""
    is_record = file.name.endswith(".run.json")
    return len(file.parts), is_record, file.suffix != ".json"


def remove_empty(folder: Path) -> None:
    """Remove a folder of results, and those around it, as far as they are empty."""
    for parent in (folder, *folder.parents):
        if parent in (STORE, Path(paths.RESULTS)) or any(parent.iterdir()):
            return
        parent.rmdir()


def _configs(named: Iterable[Path]) -> tuple[dict[str, Config], list[str]]:
    """Return the configs of runs and the named ones, and the errors of runs' unreadable ones."""
    configs_by_run = {}
    unread = []
    for file in sorted(Path(paths.RESULTS).glob("*/config.json")):
        try:
            configs_by_run[file.parent.name] = resolve(load(file))
        except HeadsweepError as error:
            unread.append(f"{file}: {error}")
    return configs_by_run | {str(file): resolve(load(file)) for file in named}, unread


def refuse_while_running(option: str) -> None:
    """Refuse an option that moves files while a run is under way in this folder.

    Raises:
        ConfigError: a run is, or may be, under way.
    """
    if engines := status():
        raise ConfigError(
            f"{option}: {len(engines)} engines answer here; wait for their run, or end them with "
            f"`headsweep engine stop`"
        )
    locks = Path(paths.STORE_LOCKS)
    if locks.exists() and Locks(locks).are_held():
        raise ConfigError(
            f"{option}: an engine answers into this store, perhaps on another host; wait for its "
            f"run, or end it there with `headsweep engine stop`"
        )
    if any(_LOCKS.glob("*")):
        raise ConfigError(
            f"{option}: {_LOCKS} says that a run is under way here; wait for it, or, if it was "
            f"killed, give its snakemake command again with --unlock"
        )


def _refuse_unknown(
    configs_by_run: dict[str, Config], unread: list[str], named: Sequence[Path]
) -> None:
    """Refuse to prune while something runs, or while it is unknown what is needed."""
    refuse_while_running("--prune")
    if unread:
        raise ConfigError(
            f"--prune: what a run needs is not known: {unread[0]}; repair its config.json by "
            f"running it again, or remove the run's folder"
        )
    if not configs_by_run:
        raise ConfigError(
            f"--prune: no config is known, so everything would go; name configs whose files are "
            f"to stay (runs in {paths.RESULTS}/ count by their config.json)"
        )
    given = {file.resolve() for file in named}
    for folder in other_users():
        runs = sorted(folder.glob("*/config.json"))
        if missing := [run for run in runs if run.resolve() not in given]:
            raise ConfigError(
                f"--prune: {folder} uses this store, too, and its runs are not named; name them: "
                f"headsweep store --prune {shlex.join(map(str, missing))}"
            )


def _print(held: Mapping[_Held, Sequence[Path]], unread: Sequence[str]) -> None:
    rows = [("kind", "key", "needed by", "files", "MB")]
    for (kind, key, needing), files in held.items():
        by = ", ".join(needing) or ("unknown" if kind == "other" else "none")
        rows.append((kind, key, by, f"{len(files):,}", _megabytes(files)))
    print(aligned(rows, left=3))
    for error in unread:
        print(f"cannot be read, so its files may be listed as needed by none: {error}")


def _idle(held: Mapping[_Held, Sequence[Path]]) -> list[Path]:
    """Return the files that no config needs."""
    return list(chain.from_iterable(files for which, files in held.items() if which.is_idle))


def _agreed(question: str) -> bool:
    try:
        return input(f"{question} [y/N] ").strip().lower() in ("y", "yes")
    except EOFError:  # no terminal
        return False


def _amount(files: Sequence[Path]) -> str:
    return f"{len(files)} files, {_megabytes(files)} MB"


def _megabytes(files: Iterable[Path]) -> str:
    total = 0
    for file in files:
        with contextlib.suppress(FileNotFoundError):  # a run may be at work here
            total += file.lstat().st_size
    return f"{total / 1e6:,.1f}"
