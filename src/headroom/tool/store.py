"""`headroom store`: what the store holds and for which config; what none asks for is removed."""

from collections.abc import Iterable, Sequence
from pathlib import Path

from headroom import paths
from headroom.config import Config, load
from headroom.errors import ConfigError, HeadroomError
from headroom.generation.client import status
from headroom.planning.contents import Entry, contents, remove
from headroom.planning.inputs import resolve

_LOCKS = Path(".snakemake", "locks")
_UNITS = ("B", "kB", "MB", "GB", "TB")


def show(configs: Sequence[Path], *, prune: bool, yes: bool) -> None:
    """Print what the store of this folder holds; remove what no config asks for.

    Args:
        configs: files of configs, beside those of the runs in this folder.
        prune: whether to remove.
        yes: remove without a question.

    Raises:
        HeadroomError: a config cannot be read, so that nobody knows what it needs; or something
            runs here, or no config is known, and files are to be removed.
    """
    known, unread = _configs(configs)
    if prune:
        _check(known, unread)
    entries = contents(known)
    for line in _table(entries):
        print(line)
    for error in unread:
        print(f"not read, so that what it needs may stand as nobody's: {error}")
    idle = [entry for entry in entries if entry.idle]
    told = f"{sum(len(entry.files) for entry in idle)} files, {_size(idle)}"
    found = f"no config asks for {told}" if idle else "nothing to prune"
    print(f"{_size(entries)} in all; {found}")
    if not prune or not idle:
        return
    if not yes and not _agreed(f"Remove {told}? [y/N] "):
        print("nothing is removed")
        return
    _check(known, unread)  # a run may have begun while the question stood
    remove(idle)
    print(f"removed: {told}")


def _configs(named: Iterable[Path]) -> tuple[dict[str, Config], list[str]]:
    """Return the configs of runs and those named, and what is wrong with those of runs."""
    known, unread = {}, []
    for file in sorted(Path(paths.RESULTS).glob("*/config.json")):
        try:
            known[file.parent.name] = resolve(load(file))
        except HeadroomError as error:
            unread.append(f"{file}: {error}")
    for file in named:
        known[str(file)] = resolve(load(file))
    return known, unread


def _check(known: dict[str, Config], unread: list[str]) -> None:
    """Refuse to remove files while it cannot be told what is needed.

    Raises:
        ConfigError: one line that says why, and what to do.
    """
    engines = status()
    if engines:
        raise ConfigError(
            f"--prune: {len(engines)} engines answer here; wait for their run, or end them with "
            f"`headroom engine stop`"
        )
    if any(_LOCKS.glob("*")):
        raise ConfigError(
            f"--prune: {_LOCKS} says that a run is under way here; wait for it, or, if it was "
            f"killed, give its snakemake command again with --unlock"
        )
    if unread:
        raise ConfigError(
            f"--prune: what a run needs is not known: {unread[0]}; make its config.json good again "
            f"by running it, or remove the run's folder"
        )
    if not known:
        raise ConfigError(
            f"--prune: no config is known, so that all would go; name configs whose files are to "
            f"stay (runs in {paths.RESULTS}/ count by their config.json)"
        )


def _table(entries: Sequence[Entry]) -> list[str]:
    """Return lines of a table, one an entry."""
    rows = [("kind", "key", "files", "size", "date", "asked for by")]
    rows += [
        (
            entry.kind,
            entry.key,
            f"{len(entry.files):,}",
            _size([entry]),
            f"{entry.modified:%Y-%m-%d}",
            ", ".join(entry.asked_by) or ("unknown" if entry.kind == "other" else "none"),
        )
        for entry in entries
    ]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return [
        f"{kind:<{widths[0]}}  {key:<{widths[1]}}  {files:>{widths[2]}}  {size:>{widths[3]}}  "
        f"{date:<{widths[4]}}  {by}"
        for kind, key, files, size, date, by in rows
    ]


def _size(entries: Iterable[Entry]) -> str:
    """Say how large entries are, as in ``1.3 GB``."""
    size = float(sum(entry.size for entry in entries))
    for unit in _UNITS:
        if size < 1000 or unit == _UNITS[-1]:
            break
        size /= 1000
    return f"{size:.0f} B" if unit == "B" else f"{size:.1f} {unit}"


def _agreed(question: str) -> bool:
    try:
        return input(question).strip().lower() in ("y", "yes")
    except EOFError:  # nobody is there to answer
        return False
