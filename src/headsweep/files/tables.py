"""Parquet tables: where they lie, and their columns.

Every table of the project is declared below, once: the template of its path, and its schema.
`headsweep.store.layout.Store.read` takes the declaration and config names. Wildcards in braces
are keys (see `headsweep.store.keys`), names from the config, or a variant.
`headsweep.files.safe_files` writes and reads the files.
"""

from collections.abc import Iterable
from dataclasses import dataclass

import pyarrow as pa

from headsweep.errors import TableError

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
"""A Parquet table, or the template in `headsweep.files.paths` of another file."""


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
        token_ids=pa.list_(_INT32),  # eos not included; a stop's text is, which `text` leaves out
        text=_TEXT,
        stop_reason=_TEXT,  # "eos", "length", or "stop"
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

LOOKS = Table(
    "results/store/looks/{model}/{decoding}/{questions}/{heads}.parquet",
    _schema(
        question_id=_TEXT,
        variant=_TEXT,
        before=_TEXT,  # what the prompt has before the question
        after=_TEXT,  # and after it
        shared=_INT32,  # tokens of the answer before the first that differs
        end=_INT32,  # of what was read by then, in characters of prompt and base answer
        base_token=_TEXT,
        own_token=_TEXT,
        base_effect=_FLOAT32,  # of the head on the logit of the base model's token, directly
        own_effect=_FLOAT32,  # and on that of the variant's token
        rank=_INT16,  # of the effects' difference, by size, among the layer's heads; from 1
        starts=pa.list_(_INT32),  # of tokens read most, in characters of prompt and base answer
        lengths=pa.list_(_INT32),
        weights=pa.list_(_FLOAT32),  # of their attention, descending
    ),
)
"""What a head reads and writes in the whole model, where the answer without it first differs: a row
a changed answer. Empty, with `refused` in the metadata, for a model that cannot be looked into.
Questions whose text the prompt does not have as it stands are left out."""

TEXTS = Table(
    "results/store/texts/{texts}.parquet",
    _schema(
        question_id=_TEXT,
        kind=_TEXT,  # "right", "wrong": a sample of the base model; "solution": the benchmark's
        prompt=pa.list_(_INT32),
        token_ids=pa.list_(_INT32),  # of the text; eos not included
    ),
)
"""The known texts that a map scores, by its key; all its layers score the same."""

SCORES = Table(
    "results/store/scores/{texts}/{layer}.parquet",
    _schema(
        question_id=_TEXT,
        kind=_TEXT,  # as in `TEXTS`
        variant=_TEXT,  # the heads of one layer and noise in it; the model as it is: "L05R00"
        log_probability=_FLOAT64,  # of all tokens together, given the prompt; natural logarithm
        tokens=_INT32,  # without the end of sequence
        kept=_INT32,  # tokens that are the variant's own first choice
    ),
)
"""How likely known texts are to the variants of one layer: a row a text and variant."""

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
        training=_TEXT,  # see headsweep.experiments.sprint.validation
        seed=_INT64,
        question_id=_TEXT,
        heads=pa.list_(_INT16),  # nearest first
    ),
)
"""Heads (indices in the pool) as ranked by selectors of other seeds and training questions, and by
simpler methods."""

POSITIONS = Table(
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
