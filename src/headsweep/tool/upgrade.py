"""`headsweep store --upgrade`: renames what version 1 of the store made to the names of today.

Version 1 was written while the project was called headroom. Its keys were made of all settings,
including those at their defaults and some that are no settings any more, and its files carry the
former name. Here the old keys are computed again from the configs of the runs, and everything that
carries them is renamed. Only noise placebos have to be answered again: their noise was different.

An interrupted upgrade goes on when the command is given again: a file is complete under its new
name before the old one goes.
"""

import json
import os
import re
import struct
import zlib
from collections.abc import Callable, Iterable, Iterator
from itertools import chain
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import yaml

from headsweep import paths
from headsweep.config import Config, parse
from headsweep.errors import ConfigError, HeadsweepError, TableError
from headsweep.planning import store
from headsweep.planning.revisions import resolve
from headsweep.record import digest_of, read_facts, replace_record, rewrite_checksums
from headsweep.safe_files import atomic, write_arrow, write_json, write_text
from headsweep.tool import former_keys
from headsweep.tool.store import move_to_trash, refuse_while_running, remove_empty
from headsweep.tool.store_files import STORE, files_below

_FORMER, _NAME = "headroom", "headsweep"
_CHECKSUM = b"headroom.crc32"
_NOISE = re.compile(r"L\d+N\d+\.")
_KEY = re.compile(r"-[0-9a-f]{8}(?=[./]|$)")
_SINCE_VERSION_2 = {"scores", "texts"}  # folders of the store, and of its journal
_RECORD = ".run.json"
_DESCRIPTIONS = ("model.json", "pruned_heads.json", "README.md")


def upgrade(named: Iterable[Path]) -> None:
    """Rename what version 1 made in this folder's store and runs, and say what was done.

    Args:
        named: configs whose files are renamed, besides those of the runs in results/. A config that
            ends with .json, as an export's, is written anew; one of your own is yours to change.

    Raises:
        ConfigError: a run is under way here, or the store is of a later version, or no config is
            known, or one cannot be read.
    """
    if store.version_of() != store.FORMER_VERSION:
        store.check_version()
    refuse_while_running("--upgrade")
    files = [*sorted(Path(paths.RESULTS).glob("*/config.json")), *named]
    if not files:
        raise ConfigError(
            f"--upgrade: {paths.RESULTS}/ has no run whose config says what its files are; name "
            f"the configs that made them: headsweep store --upgrade CONFIG"
        )
    configs = {file: _read(file) for file in files}
    names = _Names(configs.values())
    folders = [STORE, *(Path(paths.RESULTS, config.run) for config in configs.values())]
    outdated = [file for file in files_below(STORE) if _is_outdated(file, names)]
    move_to_trash(outdated)
    damaged = []
    for group in _groups(chain.from_iterable(map(files_below, dict.fromkeys(folders)))):
        try:
            _rename(group, names)
        except TableError as error:
            damaged.append(str(error))
    for file in outdated:
        base = Path(names.replaced(file.with_name("base.parquet").as_posix()))
        if base.exists():
            base.touch()  # so that runs, which are whole without the noise, grade it anew
    for file, config in configs.items():
        if file.suffix == ".json":
            write_json(file, config.model_dump(mode="json"))
            rewrite_checksums(file)
    store.mark_version(upgraded=True)
    _tell(outdated, damaged, names)


def _tell(outdated: list[Path], damaged: list[str], names: "_Names") -> None:
    print(f"{STORE} is of version {store.VERSION}")
    if outdated:
        print(
            f"{len(outdated)} files of noise, activations and unfinished trainings are made "
            f"again; they went to {STORE}/.trash"
        )
    for message in damaged:
        print(f"not renamed: {message}")
    unknown = [file for file in files_below(STORE) if names.are_unknown(file)]
    if unknown:
        print(
            f"{len(unknown)} files belong to no config that is known here, such as {unknown[0]}; "
            f"to have them renamed, name their config: headsweep store --upgrade CONFIG"
        )


class _Names:
    """What keys of version 1 are called today."""

    def __init__(self, configs: Iterable[Config]) -> None:
        self._new: dict[str, str] = {}
        for config in configs:
            self._new |= former_keys.renamed(config)
        old = sorted(self._new, key=len, reverse=True)
        self._old = re.compile("|".join(map(re.escape, old)) or r"(?!)")

    def replaced(self, text: str) -> str:
        """Return a text with every old key replaced."""
        return self._old.sub(lambda match: self._new[match[0]], text)

    def are_old(self, file: Path) -> bool:
        """Tell whether a path has an old key."""
        return bool(self._old.search(file.as_posix()))

    def are_unknown(self, file: Path) -> bool:
        """Tell whether a path has a key that is neither an old nor a new one of a known config."""
        if not _SINCE_VERSION_2.isdisjoint(file.relative_to(STORE).parts):
            return False
        text = file.relative_to(STORE).as_posix()
        for new in self._new.values():
            text = text.replace(new, "")
        return bool(_KEY.search(text))


def _read(file: Path) -> Config:
    """Return a config of version 1, or of today, as one of today."""
    try:
        values = yaml.safe_load(file.read_text(encoding="utf-8"))
        for model in values.get("models", {}).values():
            if model.get("backend") == _FORMER:
                model["backend"] = _NAME
        for questions in values.get("questions", {}).values():
            if questions.get("benchmark", "").startswith("generated_"):
                questions.setdefault("templates", "shared")
        return resolve(parse(values))
    except (OSError, ValueError, AttributeError, yaml.YAMLError, HeadsweepError) as error:
        raise ConfigError(f"--upgrade: {file} cannot be read: {error}") from error


def _is_outdated(file: Path, names: _Names) -> bool:
    """Tell whether a file of the store is of no use today.

    Noise, and what was measured of it, was another; unfinished trainings say in other words what
    they belong to.
    """
    if not names.are_old(file):
        return False
    kind = file.relative_to(STORE).parts[0]
    unfinished = kind == ".journal" and file.suffix == ".safetensors"
    return bool(_NOISE.match(file.name)) or kind == "activations" or unfinished


def _groups(files: Iterable[Path]) -> Iterator[list[Path]]:
    """Yield files that belong together: a record, then those that it describes."""
    rest = dict.fromkeys(files)
    for record in [file for file in rest if file.name.endswith(_RECORD)]:
        described = [record.parent / name for name in _checksums(record)]
        group = [record, *(file for file in described if file in rest)]
        for file in group:
            del rest[file]
        yield group
    yield from ([file] for file in rest)


def _checksums(record: Path) -> dict[str, str]:
    """Return what a record says of its files: sha256 by name."""
    checksums: dict[str, str] = json.loads(record.read_text(encoding="utf-8")).get("sha256", {})
    return checksums


def _rename(group: list[Path], names: _Names) -> None:
    """Give a group its new names and contents.

    Raises:
        TableError: a file is damaged; the group stays as it is.
    """
    places = {file: Path(names.replaced(file.as_posix())) for file in group}
    record = group[0] if group[0].name.endswith(_RECORD) else None
    files = group[1:] if record else group
    sums = _checksums(record) if record else {}
    for file in files:
        # A table holds its own checksum; the record of one that lost its texts has another.
        if file.suffix == ".parquet" or record is None:
            continue
        name = str(file.relative_to(record.parent))
        if digest_of(file) != sums[name] and not _is_of_today(file):
            raise TableError(f"{file} is damaged: its checksum differs")
    for file in files:
        _keeping_time(_write, file, places[file], names)
    if record is not None:
        _keeping_time(_write_record, record, places[record], names)
    for file, place in places.items():
        if place != file:
            file.unlink()
            remove_empty(file.parent)


def _keeping_time(
    write: Callable[[Path, Path, _Names], None], file: Path, place: Path, names: _Names
) -> None:
    """Write a file's successor, with the file's time: Snakemake compares times."""
    times = file.stat()
    write(file, place, names)
    os.utime(place, ns=(times.st_atime_ns, times.st_mtime_ns))


def _write(file: Path, place: Path, names: _Names) -> None:
    """Write a file with today's names in it to its place; unchanged ones only get a second name."""
    content = file.read_bytes()
    if file.suffix == ".parquet" and _CHECKSUM in content:
        _write_table(file, place, names)
    elif file.suffix == ".safetensors" and f'"{_FORMER}"'.encode() in content:
        _write_tensors(content, place, names)
    elif file.name in _DESCRIPTIONS or file.parent == STORE / "embedders":
        write_text(place, _in_words_of_today(content.decode(), names))
    elif not place.exists():
        place.parent.mkdir(parents=True, exist_ok=True)
        os.link(file, place)


def _write_table(file: Path, place: Path, names: _Names) -> None:
    content = file.read_bytes()
    start = content.rfind(_CHECKSUM) + len(_CHECKSUM) + 2
    zeros = content[:start] + b"0" * 8 + content[start + 8 :]
    if content[start : start + 8] != b"%08x" % zlib.crc32(zeros):
        raise TableError(f"{file} is damaged: its checksum differs")
    table = pq.read_table(pa.BufferReader(content))
    facts = {
        key.decode(): json.loads(names.replaced(value.decode()))
        for key, value in table.schema.metadata.items()
        if key != _CHECKSUM
    }
    write_arrow(place, table, facts)


def _write_tensors(content: bytes, place: Path, names: _Names) -> None:
    """Write safetensors whose metadata have today's names; the tensors' bytes stay."""
    (length,) = struct.unpack("<Q", content[:8])
    header = json.loads(content[8 : 8 + length])
    facts = names.replaced(header["__metadata__"].pop(_FORMER))
    header["__metadata__"][_NAME] = facts
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)  # the format asks for aligned tensors
    with atomic(place) as temporary:
        temporary.write_bytes(struct.pack("<Q", len(text)) + text + content[8 + length :])


def _write_record(record: Path, place: Path, names: _Names) -> None:
    """Write a record that describes the files of its group as they are now."""
    result = place.with_name(place.name.removesuffix(_RECORD))
    replace_record(result, json.loads(_in_words_of_today(json.dumps(read_facts(record)), names)))
    rewrite_checksums(result)


def _in_words_of_today(text: str, names: _Names) -> str:
    return re.sub(rf"\b{_FORMER}\b", _NAME, names.replaced(text))


def _is_of_today(file: Path) -> bool:
    """Tell whether an interrupted upgrade wrote a file and not its record."""
    content = file.read_bytes()
    return _NAME.encode() in content and _FORMER.encode() not in content
