"""The files of one config: their paths, in the store and in its run, and the store's version.

Paths are the templates of `headsweep.files.tables` and `headsweep.files.paths`, filled with keys
(`headsweep.store.keys`).
"""

import errno
import hashlib
import json
import re
from collections.abc import Callable, Mapping
from functools import cache, lru_cache, partial
from pathlib import Path
from typing import TYPE_CHECKING

from headsweep.config import Config, load
from headsweep.errors import ConfigError
from headsweep.files import paths
from headsweep.files.plain_files import read_plain
from headsweep.files.record import Stopwatch, record_path, write_record
from headsweep.files.safe_files import read_table, write_json, write_text
from headsweep.files.tables import (
    ACCURACY,
    GRADED,
    REGRADED,
    REGRADED_ACCURACY,
    FileKind,
    Table,
    template_of,
)
from headsweep.models.source import ready_folder
from headsweep.store.keys import SECTIONS, VERSION, key_of_wildcard

if TYPE_CHECKING:
    import pandas as pd

_NOT_ARCHIVED = ("models", "sources", "problems", "encoders", "solvers", "texts", ".journal")
"""Folders of the store that no table or figure is made from."""

_REGRADED: dict[FileKind, Table] = {GRADED: REGRADED, ACCURACY: REGRADED_ACCURACY}


def is_archived(file: Path) -> bool:
    """Tell whether an archive of a run has a file of it, or of the store; else it does without."""
    store = Path(paths.STORE)
    return not any(file.is_relative_to(store / folder) for folder in _NOT_ARCHIVED)


def check_version(root: Path = Path()) -> None:
    """Refuse the store of a folder if it is of another version; one that says none is of any.

    Raises:
        ConfigError: its version is another, or cannot be read; one line says what to do.
    """
    store, file = root / paths.STORE, root / paths.STORE_VERSION
    if not file.exists():
        return
    try:
        version = int(read_plain(file))
    except (OSError, ValueError):
        raise ConfigError(
            f"{file} cannot be read: it holds no number; write {VERSION} into it, or remove "
            f"{store} if the answers in it are not needed"
        ) from None
    if version != VERSION:
        raise ConfigError(
            f"{store} is of version {version}; what runs here reads {VERSION}; install the "
            f"headsweep that made it, or start in another folder"
        )


def mark_version(root: Path = Path()) -> None:
    """Write into a folder's store, before the first file, its version and who shares it by a link.

    Raises:
        ConfigError: it is of another version.
    """
    file = root / paths.STORE_VERSION
    check_version(root)
    if not file.exists():
        write_text(file, f"{VERSION}\n")
    results = (root / paths.RESULTS).resolve()
    if (root / paths.STORE).resolve().parent != results:
        name = hashlib.sha256(str(results).encode()).hexdigest()[:16]
        user = root / paths.STORE_USERS / name
        if not user.exists():
            try:
                write_text(user, f"{results}\n")
            except OSError as error:  # one may read the store, and grade what it holds
                if error.errno not in (errno.EACCES, errno.EPERM, errno.EROFS):
                    raise


def write_config(store: "Store") -> None:
    """Write a resolved config where the jobs of its run read it (`read_config`).

    Beside it stand its models by key: a job that finds an engine at work does not take the time to
    read a config and compute keys.
    """
    file = store.path(paths.CONFIG)
    models = store.path(paths.MODEL_SECTIONS)
    values = store.config.model_dump(mode="json")
    sections = {store.key("model", name): section for name, section in values["models"].items()}
    if record_path(file).exists() and _holds(file, values) and _holds(models, sections):
        return  # so that its date is that of this config
    write_json(file, values)
    write_json(models, sections)
    write_record(file, Stopwatch(), {}, together=[models])


def _holds(file: Path, value: object) -> bool:
    """Tell whether a file is there and has this value as JSON."""
    try:
        return bool(json.loads(read_plain(file)) == value)
    except (OSError, ValueError):
        return False


def read_config(file: Path) -> "Store":
    """Return the store of a run's config; it is read again only when its file has changed.

    Raises:
        ConfigError: it cannot be read.
    """
    try:
        state = file.stat()
    except OSError:
        return Store(load(file))  # which says why it cannot
    return _read_config(file, state.st_ino, state.st_mtime_ns)


@lru_cache(maxsize=8)
def _read_config(file: Path, *_state: int) -> "Store":
    return Store(load(file))


def other_users() -> list[Path]:
    """Return the results folders, besides this one, that share this folder's store by a link."""
    store = Path(paths.STORE).resolve()
    registered = sorted(Path(paths.STORE_USERS).glob("[!.]*"))
    folders = [Path(read_plain(file).decode().strip()) for file in registered]
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

    The wildcards of templates are filled from config names: `model`, `questions`,
    `decoding` and `embedder` become the keys of what they name; `source` is the name of a question
    set and becomes the key of its split; `data` is the name of a dataset of problems and becomes
    its key; `run` is the config's own. All other values are inserted as they are.
    """

    def __init__(self, config: Config) -> None:
        self.config = config
        self.key: Callable[[str, str], str] = cache(partial(key_of_wildcard, config))
        """Returns the key of a config name: `key(wildcard, name)`."""

    def name(self, wildcard: str, given: str) -> str:
        """Return the config name of a key; for a split, the first question set drawn from it.

        Raises:
            ConfigError: this config has no such key.
        """
        section = SECTIONS[wildcard]
        names = {self.key(wildcard, name): name for name in reversed(getattr(self.config, section))}
        if given not in names:
            there = ", ".join(reversed(names)) or "none"
            raise ConfigError(f"{section}: this config has no {given!r}; it has {there}")
        return names[given]

    def path(self, kind: FileKind, /, **names: object) -> Path:
        """Return the path of a file from its kind and config names."""
        return Path(template_of(kind).format_map(self._values(names)))

    def read(self, table: Table, /, **names: object) -> "pd.DataFrame":
        """Return a Parquet table from its declaration in `headsweep.files.tables` and config names.

        Raises:
            TableError: the file is missing or damaged, or has other columns than its schema.
        """
        return read_table(self.path(table, **names), table)

    def fill(self, kind: FileKind, /, **names: object) -> str:
        """Return a template with the run and some names filled in; other wildcards stay open."""
        values = self._values(names)

        def filled(wildcard: re.Match[str]) -> str:
            return str(values.get(wildcard[1], wildcard[0]))

        return re.sub(r"{(\w+)}", filled, template_of(kind))

    def of_sweep(self, sweep: str, kind: FileKind = ACCURACY, **names: object) -> Path:
        """Return a file of a sweep's batch; the sweep's own grading decides which graded one."""
        section = self.config.sweeps[sweep]
        grading = self.config.grading_of(sweep)
        if grading != self.config.grading:
            kind = _REGRADED.get(kind, kind)
        names |= {"model": section.model, "decoding": section.decoding, "grading": grading}
        return self.path(kind, **names, questions=section.questions)

    def model_folder(self, model: str, root: Path = Path()) -> Path:
        """Return the folder of a fetched model; raises what `source.ready_folder` raises.

        The store lies under `root`.
        """
        file = root / self.path(paths.MODEL, model=model)
        return ready_folder(self.config.models[model].source, file, root)

    def embedder_folder(self, embedder: str, root: Path = Path()) -> Path:
        """Return the folder of a fetched embedder, or of its model, as `model_folder` does."""
        section = self.config.embedders[embedder]
        if section.model is not None:
            return self.model_folder(section.model, root)
        return ready_folder(
            section.source, root / self.path(paths.EMBEDDER, embedder=embedder), root
        )

    def _values(self, names: Mapping[str, object]) -> dict[str, object]:
        keyed = {name: self.key(name, str(names[name])) for name in names.keys() & SECTIONS}
        return {"run": self.config.run, **names, **keyed}
