"""`headsweep store`: what the store holds, which configs need it, and what may be removed.

A file that no known config needs goes to the store's trash, from which it can be moved back.
Answers stay as long as a known config could reuse them: those to another draw from its split. A
store that several folders share by links is pruned only if the runs of all of them are known.
"""

import contextlib
import shlex
import shutil
from collections.abc import Iterable, Mapping, Sequence
from itertools import chain
from pathlib import Path

from headsweep.answers.client import status
from headsweep.cli.store_files import STORE, TRASH, Held, contents, walk
from headsweep.config import load
from headsweep.errors import ConfigError, HeadsweepError
from headsweep.files import paths
from headsweep.files.locks import Locks
from headsweep.files.plain_files import refuse_links
from headsweep.store.layout import Store, check_version, other_users
from headsweep.store.revisions import resolve
from headsweep.text import aligned, counted

_LOCKS = Path(".snakemake", "locks")


def show(configs: Sequence[Path]) -> None:
    """Print what the store of this folder holds, and which configs need it.

    Raises:
        ConfigError: there is no store here.
    """
    _check_there()
    stores, unread = _configs(configs)
    held = contents(stores)
    _print(held, unread)
    idle = _idle(held)
    words = f"no config needs {_amount(idle)}" if idle else "nothing to prune"
    print(f"{_megabytes(chain(*held.values()))} MB in all; {words}")
    if trash := list(walk(TRASH)):
        print(f"{TRASH} holds {_amount(trash)}; `headsweep store --empty-trash` removes them")


def prune(configs: Sequence[Path], *, yes: bool) -> None:
    """Move what no config needs to the trash, after listing it and asking.

    Raises:
        ConfigError: it is not known what is needed, or a run is under way.
    """
    _check_there()
    stores, unread = _configs(configs)
    _refuse_unknown(stores, unread, configs)
    held = contents(stores)
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
    _refuse_unknown(stores, unread, configs)  # a run may have started since
    if _idle(contents(_configs(configs)[0])) != idle:
        raise ConfigError("--prune: the store has changed since the question; prune again")
    move_to_trash(idle)
    print(f"moved to {TRASH}: {amount}; `headsweep store --empty-trash` removes them")


def empty_trash(*, yes: bool) -> None:
    """Remove what lies in the trash, after asking."""
    _check_there()
    refuse_links(TRASH)
    trash = list(walk(TRASH))
    if not trash:
        print(f"{TRASH} is empty")
        return
    amount = _amount(trash)
    if not yes and not _agreed(f"Remove {amount}?"):
        print("nothing is removed")
        return
    shutil.rmtree(TRASH)
    print(f"removed: {amount}")


def _check_there() -> None:
    """Refuse a folder without a store, or whose store is of another version."""
    if not STORE.is_dir():
        raise ConfigError(
            f"no {STORE} is in {Path.cwd()}; change to the folder where a run was started, or to "
            f"the --out of a sweep"
        )
    check_version()


def move_to_trash(files: Iterable[Path]) -> None:
    """Move files of the store to its trash, and remove folders that are empty afterwards.

    The file that marks the others as complete goes first (model.json before its checkpoint, a table
    before its record), so that the rest of an interrupted move counts as missing.
    """
    for file in sorted(files, key=_marker_first):
        place = TRASH / file.relative_to(STORE)
        refuse_links(file)
        refuse_links(place)
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


def _configs(named: Iterable[Path]) -> tuple[dict[str, Store], list[str]]:
    """Return the stores of the configs of runs and of named ones, and errors of unreadable ones."""
    stores = {}
    unread = []
    for file in sorted(Path(paths.RESULTS).glob("*/config.json")):
        try:
            stores[file.parent.name] = Store(resolve(load(file)))
        except HeadsweepError as error:
            unread.append(f"{file}: {error}")
    return stores | {str(file): Store(resolve(load(file))) for file in named}, unread


def refuse_while_running(option: str) -> None:
    """Refuse an option that moves files while a run is under way in this folder.

    Raises:
        ConfigError: a run is, or may be, under way.
    """
    if working := what_works():
        raise ConfigError(f"{option}: {working}")
    if is_locked():
        raise ConfigError(
            f"{option}: {_LOCKS} says that a run is under way here; wait for it, or, if it was "
            f"killed, give its snakemake command again with --unlock"
        )


def is_locked() -> bool:
    """Return whether Snakemake's locks are in this folder: those of a killed run stay."""
    return any(_LOCKS.glob("*"))


def what_works() -> str | None:
    """Return which process is at work in this folder, and how to end that, or None.

    A run that was killed is not, but the engine that it started may be.
    """
    if engines := status():
        return (
            f"{len(engines)} engines answer here; wait for their run, or end them with `headsweep "
            f"engine stop`"
        )
    locks = Path(paths.STORE_LOCKS)
    if locks.exists() and Locks(locks).are_held():
        return (
            "an engine answers into this store, perhaps on another host; wait for its run, or end "
            "it there with `headsweep engine stop`"
        )
    if Path(paths.RUN_LOCK).exists() and Locks(Path(paths.RUN_LOCK)).are_held():
        return "a run is under way here; wait for its end"
    return None


def _refuse_unknown(stores: dict[str, Store], unread: list[str], named: Sequence[Path]) -> None:
    """Refuse to prune while something runs, or while it is unknown what is needed."""
    refuse_while_running("--prune")
    if unread:
        raise ConfigError(
            f"--prune: what a run needs is not known: {unread[0]}; repair its config.json by "
            f"running it again, or remove the run's folder"
        )
    if not stores:
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


def _print(held: Mapping[Held, Sequence[Path]], unread: Sequence[str]) -> None:
    rows = [("kind", "key", "needed by", "files", "MB")]
    for (kind, key, needing), files in held.items():
        by = ", ".join(needing) or ("unknown" if kind == "other" else "none")
        rows.append((kind, key, by, f"{len(files):,}", _megabytes(files)))
    print(aligned(rows, left=3))
    for error in unread:
        print(f"cannot be read, so its files may be listed as needed by none: {error}")


def _idle(held: Mapping[Held, Sequence[Path]]) -> list[Path]:
    """Return the files that no config needs."""
    return list(chain.from_iterable(files for which, files in held.items() if which.is_idle))


def _agreed(question: str) -> bool:
    try:
        return input(f"{question} [y/N] ").strip().lower() in ("y", "yes")
    except EOFError:  # no terminal
        return False


def _amount(files: Sequence[Path]) -> str:
    return f"{counted(len(files), 'file')}, {_megabytes(files)} MB"


def _megabytes(files: Iterable[Path]) -> str:
    total = 0
    for file in files:
        with contextlib.suppress(FileNotFoundError):  # a run may be at work here
            total += file.lstat().st_size
    return f"{total / 1e6:,.1f}"
