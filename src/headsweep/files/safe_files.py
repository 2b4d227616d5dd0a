"""Files are written whole or not at all, and are read with their checksum.

Each is written to a temporary file, which is then renamed: a reader never sees half a file. A
Parquet table is cast to its schema (`headsweep.files.tables`) and holds its own checksum. Reading
refuses a damaged file, and one with other columns. Tables contain no time and no host, so equal
content gives equal bytes.
"""

import errno
import io
import json
import os
import re
import shutil
import tempfile
import zlib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq

from headsweep.errors import ConfigError, TableError
from headsweep.files.plain_files import read_plain, refuse_links
from headsweep.files.tables import Table

if TYPE_CHECKING:  # pandas takes half a second to import, and not every job needs it
    import pandas as pd

_FORMULA = ("=", "+", "-", "@", "\t", "\r")
"""What a formula in a spreadsheet begins with."""
_SIGNED_NUMBER = re.compile(r"[+-]?[0-9]*\.?[0-9]+(?:[eE][+-]?[0-9]+)?")

_TEMPORARY = re.compile(r"\..+\.[0-9a-f]{12}\.tmp")

_CHECKSUM = b"headsweep.crc32"
"""Metadata key of a file's CRC-32, which is computed with zeros in its place."""
_NO_CHECKSUM = b"0" * 8


@contextmanager
def atomic(path: Path, *, folder: bool = False) -> Iterator[Path]:
    """Yield a temporary path beside `path`; rename it to `path` if the block succeeds.

    An exception removes what is temporary and leaves an older `path` unchanged. In place of a file
    there may be a folder, whose `path` must be missing or empty. The user's mask says who may read
    it: safetensors makes files that nobody else may.

    Raises:
        ConfigError: `path` leads through a link, see `plain_files.refuse_links`.
    """
    refuse_links(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}.{os.urandom(6).hex()}.tmp")
    if folder:
        temporary.mkdir()
    else:
        temporary.touch(exist_ok=False)
    mode = temporary.stat().st_mode & 0o666
    try:
        yield temporary
        for file in (temporary, *temporary.rglob("*")):
            if file.is_file() and not file.is_symlink():
                file.chmod(mode)
        temporary.replace(path)
    except BaseException:
        if folder:
            shutil.rmtree(temporary, ignore_errors=True)
        else:
            temporary.unlink(missing_ok=True)
        raise


def remove_folder(folder: Path) -> None:
    """Remove a folder of ours, if it is there, also one that was copied with no right to write.

    Raises:
        ConfigError: it leads through a link, see `plain_files.refuse_links`.
    """
    refuse_links(folder)
    for parent, _, _ in os.walk(folder):  # which enters no link
        Path(parent).chmod(0o700)
    shutil.rmtree(folder, ignore_errors=True)


def is_temporary(name: str) -> bool:
    """Tell whether `atomic` gives such a name to what it has not yet renamed."""
    return _TEMPORARY.fullmatch(name) is not None


@contextmanager
def written_to(option: str, path: Path, kind: str = "file") -> Iterator[None]:
    """Say in one line that what an option names, a file or a folder, cannot be written.

    Raises:
        ConfigError: the block failed with an error of the operating system.
    """
    try:
        yield
    except OSError as error:
        raise ConfigError(
            f"{option} {path} cannot be written ({error.strerror or error}); name another {kind}"
        ) from None


def check_writable(option: str, file: Path, kind: str = "file") -> None:
    """Refuse a file or folder that could not be written, before the work that it is to hold.

    Raises:
        ConfigError: it is of the other kind, or lies where no file can be made.
    """
    with written_to(option, file, kind):
        if kind == "file" and file.is_dir():
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR))
        if kind == "folder" and file.is_file():
            raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR))
        existing = next(folder for folder in file.absolute().parents if folder.exists())
        with tempfile.TemporaryFile(dir=existing):
            pass


def write_text(path: Path, text: str) -> None:
    """Write text atomically, as UTF-8."""
    with atomic(path) as temporary:
        temporary.write_text(text, encoding="utf-8")


def write_json(path: Path, value: Any) -> None:
    """Write a value as indented JSON, atomically."""
    write_text(path, json.dumps(value, indent=2, ensure_ascii=False) + "\n")


def write_csv(
    path: Path, data: "pd.DataFrame", digits: int | None = None, *, verbatim: bool = False
) -> Path:
    """Write a table as CSV, atomically, with some significant digits or all; return its path.

    Text that a spreadsheet would take for a formula gets an apostrophe before it, unless texts are
    to be kept `verbatim`, as a user's own ids and answers.
    """
    form = f"%.{digits}g" if digits else None
    if not verbatim:
        data = data.rename(columns=_inert)
        for name in data.select_dtypes(exclude=["number", "bool"]):
            data[name] = data[name].map(_inert)
    with atomic(path) as temporary:
        data.to_csv(temporary, index=False, lineterminator="\n", float_format=form)
    return path


def _inert(cell: Any) -> Any:
    begins = isinstance(cell, str) and cell.startswith(_FORMULA)
    return f"'{cell}" if begins and not _SIGNED_NUMBER.fullmatch(cell) else cell


def write_table(
    path: Path,
    data: "pd.DataFrame | pa.Table",
    table: Table,
    metadata: Mapping[str, Any] | None = None,
) -> None:
    """Write a table atomically.

    Args:
        path: the file to make.
        data: the table's columns, in any order.
        table: what the file is to be.
        metadata: facts to keep in the file itself (JSON values; no times, no hosts).

    Raises:
        TableError: columns are missing, superfluous, of another type, or null where not allowed.
    """
    names = data.column_names if isinstance(data, pa.Table) else list(data.columns)
    try:
        schema = table.schema_of(names)
        if isinstance(data, pa.Table):
            # `Table.cast` would import Arrow's compute functions even for equal types.
            content = pa.Table.from_arrays(data.select(schema.names).columns, schema=schema)
        else:
            content = pa.Table.from_pandas(data, schema=schema, preserve_index=False)
        content.validate(full=True)
    except (pa.ArrowInvalid, pa.ArrowTypeError, ValueError, TableError) as error:
        raise TableError(f"{path}: {error}") from error
    for field in schema:
        if not field.nullable and content.column(field.name).null_count:
            raise TableError(f"{path}: column {field.name!r} has empty cells; it must not")
    write_arrow(path, content, metadata)


def write_arrow(path: Path, content: pa.Table, metadata: Mapping[str, Any] | None = None) -> None:
    """Write what `write_table` has checked, or what was read from another file of the project."""
    facts = {
        key.encode(): json.dumps(value, sort_keys=True).encode()
        for key, value in (metadata or {}).items()
    }
    stream = io.BytesIO()
    pq.write_table(
        content.replace_schema_metadata(facts | {_CHECKSUM: _NO_CHECKSUM}),
        stream,
        compression="zstd",
    )
    file_content = bytearray(stream.getvalue())
    start = _place(file_content)
    file_content[start : start + 8] = b"%08x" % zlib.crc32(file_content)
    with atomic(path) as temporary:
        temporary.write_bytes(file_content)


def read_table(path: Path, table: Table, *, columns: Sequence[str] | None = None) -> "pd.DataFrame":
    """Read a table into pandas; otherwise as `read_arrow`."""
    return read_arrow(path, table, columns=columns).to_pandas()


def read_arrow(path: Path, table: Table, *, columns: Sequence[str] | None = None) -> pa.Table:
    """Read a table and check its content and its columns.

    Args:
        path: a Parquet file.
        table: what the file should be.
        columns: the columns to read; all by default.

    Raises:
        TableError: the file is missing, damaged, is not Parquet, or has other columns or types.
    """
    with _opened(path) as file:
        present = file.schema_arrow
        names = columns and list(columns)
        content = file.read(names)  # `pq.read_table` would import pandas
    for field in table.schema:
        if field.name not in present.names:
            raise TableError(f"{path}: column {field.name!r} is missing; remove the file and rerun")
        written = present.field(field.name).type
        if written != field.type:
            raise TableError(f"{path}: column {field.name!r} is {written}, not {field.type}")
    further = sorted(set(present.names) - set(table.columns))
    if further and table.cells is None:
        raise TableError(f"{path}: unknown columns {further}; remove the file and rerun")
    return content


def read_metadata(path: Path) -> dict[str, Any]:
    """Return the facts that `write_table` kept in a file, whose content is checked."""
    with _opened(path) as file:
        metadata = file.schema_arrow.metadata or {}
    return {
        key.decode(): json.loads(value)
        for key, value in metadata.items()
        if not key.startswith((b"ARROW:", b"pandas", _CHECKSUM))
    }


def count_rows(path: Path) -> int:
    """Return the number of rows of a table, whose content is checked."""
    with _opened(path) as file:
        rows: int = file.metadata.num_rows
    return rows


@contextmanager
def _opened(path: Path) -> Iterator[pq.ParquetFile]:
    """Open a Parquet file, read once and compared with the checksum in it.

    A file without a checksum is accepted.

    Raises:
        TableError: the file is missing or damaged, or is not Parquet.
    """
    try:
        content = read_plain(path)
        start = _place(content)
        if start >= 0:
            before = memoryview(content)[:start]
            after = memoryview(content)[start + 8 :]
            computed = zlib.crc32(after, zlib.crc32(_NO_CHECKSUM, zlib.crc32(before)))
            if content[start : start + 8] != b"%08x" % computed:
                raise pa.ArrowInvalid("it is damaged: its checksum differs")
        with pq.ParquetFile(io.BytesIO(content)) as file:
            yield file
    except (OSError, pa.ArrowInvalid) as error:
        raise unreadable(path, error) from error


def _place(content: bytes | bytearray) -> int:
    """Return the offset of the checksum, in the footer two bytes after its key; -1 without one."""
    key = content.rfind(_CHECKSUM)
    return key if key < 0 else key + len(_CHECKSUM) + 2


def unreadable(path: Path, error: Exception) -> TableError:
    """Return what to raise where a file is missing or cannot be read."""
    if not path.exists():
        return TableError(f"{path} is missing; the rule that makes it has not run")
    reason = " ".join(str(error).split())
    return TableError(f"{path} cannot be read ({reason}); remove it and run again")
