"""Parquet tables: where they lie, their columns, atomic writing, checked reading.

Every table of the project is declared below, once: the template of its path, and its schema.
`headsweep.planning.store.Store.read` takes the declaration and config names. Wildcards in braces
are keys (see `headsweep.planning.store`), names from the config, or a variant.

Writing casts to the schema, writes to a temporary file and renames it, so a reader never sees half
a table. Reading refuses a table with other columns, and a damaged file: each holds its own
checksum. Files contain no time and no host, so equal content gives equal bytes.
"""

import io
import json
import os
import re
import shutil
import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq

from headsweep.errors import TableError

if TYPE_CHECKING:  # pandas takes half a second to import, and not every job needs it
    import pandas as pd

_TEXT, _BOOL = pa.string(), pa.bool_()
_INT8, _INT16, _INT32, _INT64 = pa.int8(), pa.int16(), pa.int32(), pa.int64()
_FLOAT32, _FLOAT64 = pa.float32(), pa.float64()


@dataclass(frozen=True)
class Table:
    """A kind of Parquet file."""

    path: str
    """The template of its path, below the folder that has ``results``."""
    schema: pa.Schema
    """The columns that every such file has."""
    cells: pa.DataType | None = None
    """The type of further columns, which have no empty cells; None if there are none."""

    @property
    def columns(self) -> list[str]:
        """The names of the columns that every such file has."""
        names: list[str] = self.schema.names
        return names

    def schema_of(self, names: Iterable[str]) -> pa.Schema:
        """Return the schema of a file that has columns of these names, in any order.

        Raises:
            TableError: one of the table's columns is missing, or one is superfluous.
        """
        given = list(names)
        further = [name for name in given if name not in self.columns]
        if set(self.columns) - set(given) or (further and self.cells is None):
            raise TableError(
                f"columns {sorted(given)} are not those of its schema, {sorted(self.columns)}"
            )
        return pa.schema(
            [*self.schema, *(pa.field(name, self.cells, nullable=False) for name in further)]
        )


FileKind = Table | str
"""A Parquet table, or the template in `headsweep.paths` of another file."""


def template_of(kind: FileKind) -> str:
    """Return the template of the paths of a kind of file."""
    return kind.path if isinstance(kind, Table) else kind


def _schema(nullable: str = "", **columns: pa.DataType) -> pa.Schema:
    """Return a schema of columns; those named in `nullable` may have null cells."""
    return pa.schema(
        [pa.field(name, kind, name in nullable.split()) for name, kind in columns.items()]
    )


QUESTIONS = Table(
    "results/store/questions/{questions}.parquet",
    _schema(
        question_id=_TEXT,
        split=_TEXT,
        subject=_TEXT,  # null if the benchmark has none
        level=_INT8,  # 1 (easy) to 5 (hard), null if unknown
        question=_TEXT,
        answer=_TEXT,  # gold answer, without box
        solution=_TEXT,  # worked solution, null if there is none
        source_row=_INT32,
        nullable="subject level solution",
    ),
)
"""A question set: one row per question."""

SOURCE = Table("results/store/sources/{source}.parquet", QUESTIONS.schema)
"""The split that question sets are drawn from."""

ANSWERS = Table(
    "results/store/{model}/{decoding}/{questions}/{variant}.parquet",
    _schema(
        question_id=_TEXT,
        sample=_INT16,  # 0 for greedy decoding
        token_ids=pa.list_(_INT32),  # eos not included
        text=_TEXT,
        stop_reason=_TEXT,  # "eos" or "length"
        margin=_FLOAT32,  # smallest gap between best and second logit
    ),
)
"""Answers of one variant to one question set under one decoding."""

BASE_ANSWERS = Table(
    "results/store/{model}/{decoding}/{questions}/base.parquet",
    ANSWERS.schema,
)
"""The answers of the whole model."""

ACTIVATIONS = Table(
    "results/store/activations/{model}/{decoding}/{questions}.parquet",
    _schema(
        layer=_INT16,
        head=_INT16,
        share=_FLOAT64,  # of the squared norm of all heads
        norm=_FLOAT64,
        output_norm=_FLOAT64,
        noise_norm=_FLOAT64,
        nullable="output_norm noise_norm",
    ),
)
"""Each head's slice of the input of the output projection, means over tokens; and the norms of what
the head, and of what its noise placebo, adds to the projection's output: equal but for rounding."""

SCORES = Table(
    "results/store/scores/{texts}/{layer}.parquet",
    _schema(
        question_id=_TEXT,
        kind=_TEXT,  # "right", "wrong": a sample of the base model; "solution": the benchmark's
        variant=_TEXT,  # the heads of one layer and noise in it; the model as it is: "L05R00"
        log_probability=_FLOAT64,  # of all tokens together, given the prompt; natural logarithm
        tokens=_INT32,  # without the end of sequence
        kept=_INT32,  # tokens that are the variant's own first choice
    ),
)
"""How likely known texts are to the variants of one layer: a row a text and variant."""

GRADIENTS = Table(
    "results/store/scores/{texts}/gradients.parquet",
    _schema(
        question_id=_TEXT,
        kind=_TEXT,
        variant=_TEXT,
        change=_FLOAT64,
    ),
)
"""First-order estimate of the change of a text's log-probability without each head."""

GRADED = Table(
    "results/{run}/graded/{model}/{decoding}/{questions}.parquet",
    _schema(
        question_id=_TEXT,
        variant=_TEXT,
        sample=_INT16,
        answer=_TEXT,  # extracted answer, null if none was found
        group=_INT32,  # equal answers of a question share it; -1: none
        correct=_BOOL,
        verdict=_TEXT,  # judged, no_answer, timeout, memory, error
        tokens=_INT32,
        stop_reason=_TEXT,
        margin=_FLOAT32,
        nullable="answer",
    ),
)
"""Every answer of a (model, decoding, question set) with its verdict."""

REGRADED = Table(
    "results/{run}/graded/{grading}/{model}/{decoding}/{questions}.parquet",
    GRADED.schema,
)
"""The same under grading rules other than the run's."""

ACCURACY = Table(
    "results/{run}/accuracy/{model}/{decoding}/{questions}.parquet",
    _schema(question_id=_TEXT, subject=_TEXT, level=_INT8, nullable="subject level"),
    cells=_INT8,
)
"""The accuracy matrix Z: these columns, then one of 0 and 1 for each variant (or, for sampling, for
each sample: ``S00``, ``S01``, ...)."""

REGRADED_ACCURACY = Table(
    "results/{run}/accuracy/{grading}/{model}/{decoding}/{questions}.parquet",
    ACCURACY.schema,
    cells=_INT8,
)
"""The same under grading rules other than the run's."""

EMBEDDINGS = Table(
    "results/store/embeddings/{embedder}/{questions}.parquet",
    _schema(question_id=_TEXT, vector=pa.list_(_FLOAT32)),
)
"""Question embeddings, float32 [embedding_dim]."""

RANKING = Table(
    "results/{run}/sprint/{selector}/ranking.parquet",
    _schema(
        question_id=_TEXT,
        heads=pa.list_(_TEXT),  # nearest first
        distances=pa.list_(_FLOAT32),  # squared, ascending
    ),
)
"""Heads ranked for each question by a trained selector."""

TRAININGS = Table(
    "results/{run}/sprint/{selector}/trainings.parquet",
    _schema(
        method=_TEXT,  # SPRINT or a rival of it
        training=_TEXT,  # see headsweep.sprint.validation
        seed=_INT64,
        question_id=_TEXT,
        heads=pa.list_(_INT16),  # nearest first
    ),
)
"""Heads (indices in the pool) as ranked by selectors of other seeds and training questions, and by
simpler methods."""

POINTS = Table(
    "results/{run}/sprint/{selector}/points.parquet",
    _schema(
        kind=_TEXT,  # "head" or "question"
        name=_TEXT,  # variant or question_id
        vector=pa.list_(_FLOAT32),
    ),
)
"""Heads and questions in the shared space of a trained selector."""

CURVES = Table(
    "results/{run}/sprint/{selector}/pass_at_n.parquet",
    _schema(
        method=_TEXT,
        n=_INT16,
        pass_at_n=_FLOAT64,
        low=_FLOAT64,  # 95% bootstrap interval over questions
        high=_FLOAT64,
        majority=_FLOAT64,  # accuracy of the majority answer, null if undefined
        distinct_answers=_FLOAT64,  # mean number of distinct final answers
        agreement=_FLOAT64,  # mean pairwise agreement of final answers
        tokens=_FLOAT64,  # generated tokens per question
        nullable="majority distinct_answers agreement tokens",
    ),
)
"""Pass@N of every method on one question set, with diversity and cost at the same N."""

PROBLEMS = Table(
    "results/store/problems/{data}.parquet",
    _schema(
        example_id=_TEXT,
        part=_TEXT,  # "train", "dev" or "test"
        stratum=_TEXT,  # complexity and operators: "low +*"
        official=_TEXT,  # the dataset's own split or fold
        text=_TEXT,  # numbers masked
        numbers=pa.list_(_FLOAT64),
        equation=_TEXT,  # over n0, n1, ..., all brackets
        answer=_FLOAT64,
    ),
)
"""A dataset of word problems, divided into parts."""

OUTCOMES = Table(
    "results/store/compressed/{subject}/{data}/{arm}/{seed}/outcomes.parquet",
    _schema(
        example_id=_TEXT,
        stratum=_TEXT,  # complexity, or subject
        quantised=_BOOL,  # with 8-bit weights
        answer=_TEXT,  # null if there is none
        strict=_BOOL,
        lenient=_BOOL,
        nullable="answer",
    ),
)
"""The answers of one arm of a compression to the test part, for one seed."""

INT8_OUTCOMES = Table(
    "results/store/compressed/{subject}/{data}/{arm}/{seed}/int8.parquet",
    OUTCOMES.schema,
)
"""The same with 8-bit weights."""

STUDY_OUTCOMES = Table(
    "results/{run}/compression/{compression}/outcomes.parquet",
    pa.schema([*_schema(arm=_TEXT, seed=_INT64), *OUTCOMES.schema]),
)
"""The answers of all arms of a compression, by the arms' names in the config."""

_FORMULA = ("=", "+", "-", "@", "\t", "\r")
"""What a formula in a spreadsheet begins with."""
_SIGNED_NUMBER = re.compile(r"[+-]?[0-9]*\.?[0-9]+(?:[eE][+-]?[0-9]+)?")

_CHECKSUM = b"headsweep.crc32"
"""Metadata key of a file's CRC-32, which is computed with zeros in its place."""
_NO_CHECKSUM = b"0" * 8


@contextmanager
def atomic(path: Path, *, folder: bool = False) -> Iterator[Path]:
    """Yield a temporary path beside `path`; rename it to `path` if the block succeeds.

    An exception removes what is temporary and leaves an older `path` unchanged. In place of a file
    there may be a folder, whose `path` must be missing or empty.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}.{os.urandom(6).hex()}.tmp")
    if folder:
        temporary.mkdir()
    else:
        temporary.touch(exist_ok=False)
    try:
        yield temporary
        temporary.replace(path)
    except BaseException:
        if folder:
            shutil.rmtree(temporary, ignore_errors=True)
        else:
            temporary.unlink(missing_ok=True)
        raise


def write_text(path: Path, text: str) -> None:
    """Write text atomically, as UTF-8."""
    with atomic(path) as temporary:
        temporary.write_text(text, encoding="utf-8")


def write_json(path: Path, value: Any) -> None:
    """Write a value as indented JSON, atomically."""
    write_text(path, json.dumps(value, indent=2, ensure_ascii=False) + "\n")


def write_csv(path: Path, data: "pd.DataFrame", digits: int | None = None) -> Path:
    """Write a table as CSV, atomically, with some significant digits or all; return its path.

    Text that a spreadsheet would take for a formula gets an apostrophe before it.
    """
    form = f"%.{digits}g" if digits else None
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
        content = path.read_bytes()
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
