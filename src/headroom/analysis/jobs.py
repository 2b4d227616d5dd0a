"""The jobs that write a run's tables.

Names are config names; paths follow from the config. A record is written beside the tables.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import pandas as pd

from headroom import paths
from headroom.analysis.claims import claims, claims_sheets
from headroom.analysis.compression.sheets import sheet_of
from headroom.analysis.compression.tables import exhibits, printed
from headroom.analysis.compression.trial import read_trials, sources
from headroom.analysis.controls import NOISE, controls, gains_sheet
from headroom.analysis.failures import failures
from headroom.analysis.gains import accuracy_path, accuracy_paths, read_cells, read_z
from headroom.analysis.placebos import placebo_sheet, placebo_table
from headroom.analysis.published import SPRINT_CLAIMS, reproduced, sweep_csv, sweep_sheets
from headroom.analysis.sheet import (
    Columns,
    Sheet,
    filled,
    interval,
    read_csv,
    record,
    sheet,
    write_csv,
    write_sheets,
)
from headroom.config import Config
from headroom.planning.batches import find_batch, placebos
from headroom.planning.store import Store
from headroom.record import Stopwatch
from headroom.sprint import choosing, evaluation, matching
from headroom.tables import ACTIVATIONS, GRADED, read_table


class Table(NamedTuple):
    """How a CSV file is shown as text: path, required columns, columns shown, caption."""

    path: str
    schema: list[str]
    columns: Columns
    caption: str
    texts: int

    def sheet(self, table: pd.DataFrame, of: str) -> Sheet:
        """Return the table as text.

        Args:
            table: the file's content.
            of: name of the selector or comparison.
        """
        return sheet(table, self.columns, f"{of}: {self.caption}", self.texts)


SELECTOR_TABLES = (
    Table(
        paths.EMBEDDING_VALUE,
        matching.COLUMNS,
        {
            **{name: f"{{{name}}}" for name in ("method", "questions", "pool", "against")},
            "heads": "{heads:int}",
            "N": "{n}",
            "own": "{sprint:%}",
            "other": "{other:%}",
            "difference": "{difference:pts}",
            "95% interval": "{low:pts} to {high:pts}",
            "p": "{p:.3f}",
        },
        "Pass@N of SPRINT, in percent, beside what does not know the question: SPRINT with the "
        "questions' embeddings shuffled (exact mean over all permutations; p: one-sided, 10,000 "
        "permutations), the greedy cover, which is the same heads for every question, and heads "
        "drawn from the pool. Differences in percentage points with paired 95% bootstrap intervals "
        "over questions. Mean: over N = 1 to the largest.",
        4,
    ),
    Table(
        paths.DIVERSITY,
        evaluation.DIVERSITY,
        {
            "method": "{method}",
            "N": "{n:int}",
            "Pass@N (%)": "{pass_at_n:%}",
            "distinct answers": interval("distinct_answers", ".2f", "distinct"),
            "agreement (%)": interval("agreement", "%"),
            "tokens": "{tokens:.0f}",
            "longest": "{longest:.0f}",
            "prompts": "{prompts:.2f}",
            "tokens computed": "{computed:.0f}",
        },
        "Diversity and cost of N answers, means over questions: distinct final answers by value "
        "and share of pairs that agree, with 95% bootstrap intervals; generated tokens of all "
        "answers, and of the longest: the steps that N answers take side by side. Prompts: how "
        "often the question's tokens pass the whole model; samples share all of it, pruned heads "
        "what lies below the layer of the highest among them, where they part from the base model. "
        "Tokens computed are prompts times the mean length of a prompt, and the generated ones. A "
        "method that orders fewer answers than N stays at its last value.",
        1,
    ),
    Table(
        paths.CHOOSING,
        choosing.COLUMNS,
        {
            "answers of": "{method}",
            "chosen by": "{rule}",
            "N": "{n:int}",
            "right (%)": "{accuracy:%} ({low:%} to {high:%})",
            "recovered (%)": interval("recovered", "%"),
            "over majority": interval("over_majority", ends="over"),
        },
        "One answer chosen among N without an oracle, in percent of the questions, with 95% "
        "bootstrap intervals over questions. Recovered: of Pass@N (the oracle), the questions that "
        "one of the N answers solves. First: that of the nearest head; a single sample. Majority: "
        "most votes; of equals one at random. Agreement: a vote counts as much as its head agreed "
        "with the others on training questions. Verifier: a logistic regression on votes, rank and "
        "length, fitted to held-out training questions. Right answers count as equal however they "
        "are written.",
        2,
    ),
)
"""Value of the question embedding; diversity and cost; choosing one answer."""

COMPARISON = Table(
    paths.COMPARISON,
    [
        *("decoding", "grading", "n", "correct", "accuracy", "no_answer", "truncated"),
        "differ_from_default",
    ],
    {
        "prompt": "{decoding}",
        "grading": "{grading}",
        "n": "{n:int}",
        "correct": "{correct:int}",
        "accuracy (%)": "{accuracy:%}",
        "no answer": "{no_answer:int}",
        "truncated": "{truncated:int}",
        "differ from default": "{differ_from_default:int}",
    },
    "prompt and grading rules, base model.",
    2,
)
"""The same questions under both prompts and both grading rules."""


def write_tables(config: Config, sweep: str, published: Path) -> None:
    """Write Pass@1 by subject, layer and head, and by level, as Markdown, LaTeX and CSV.

    Numbers from the folder of published tables are shown beside the run's.
    """
    stopwatch = Stopwatch()
    template = filled(paths.TABLE, run=config.run, sweep=sweep)
    cells = read_cells(config, sweep)
    how = config.decodings[config.sweeps[sweep].decoding].prompt, config.grading_of(sweep)
    beside = reproduced(config, sweep, cells, published)
    sheets, table = sweep_sheets(cells, beside, sweep, *how), sweep_csv(cells, beside)
    table[["prompt", "grading"]] = how
    made = write_sheets(template, sheets, table)
    record(made, stopwatch, [accuracy_path(config, sweep)])


def write_comparison(config: Config, comparison: str) -> None:
    """Write a comparison of prompts and grading rules as Markdown and LaTeX, beside its CSV."""
    _write_as_text([COMPARISON], config.run, comparison, comparison=comparison)


def write_selector_tables(config: Config, selector: str) -> None:
    """Write `SELECTOR_TABLES` of a selector as Markdown and LaTeX, beside their CSV files."""
    _write_as_text(SELECTOR_TABLES, config.run, selector, selector=selector)


def _write_as_text(tables: Sequence[Table], run: str, of: str, **names: str) -> None:
    stopwatch = Stopwatch()
    made: list[Path] = []
    sources: list[Path] = []
    for table in tables:
        template = filled(table.path, run=run, **names)
        sources.append(Path(template.format(suffix="csv")))
        found = read_csv(sources[-1], table.schema)
        made += write_sheets(template, {"": table.sheet(found, of)})
    record(made, stopwatch, sources)


def write_controls(config: Config, sweep: str) -> None:
    """Write the controls of a sweep: gains, heads, spread, placebos and failures."""
    stopwatch = Stopwatch()
    section = config.sweeps[sweep]
    batch = find_batch(config, section.model, section.decoding, section.questions)
    z, variants = read_z(config, sweep)
    store = Store(config)
    source = store.of_sweep(sweep, paths.GRADED)
    dtype = config.models[section.model].dtype
    graded, others = read_table(source, GRADED), placebos(config, section)
    found = controls(z, graded, variants, others, NOISE[dtype], config.seed)
    answers = dict(zip(map(str, batch.variants), map(Path, store.answers(batch)), strict=True))
    measured = store.path(paths.ACTIVATIONS, **batch.names)
    activations = read_table(measured, ACTIVATIONS)
    changes = placebo_table(graded, [*variants[1:], *others], answers, activations)
    template = paths.CONTROLS.replace("{run}", config.run).replace("{sweep}", sweep)
    made = []
    for table, data in (
        ("gains", found.gains),
        ("heads", found.heads),
        ("spread", found.spread),
        ("placebos", changes),
        ("failures", failures(found.heads, graded, answers, activations)),
    ):
        made.append(Path(template.format(table=table, suffix="csv")))
        write_csv(made[-1], data)
    for table, text in (
        ("placebos", placebo_sheet(changes, sweep)),
        ("gains", gains_sheet(found.gains, sweep)),
    ):
        made += write_sheets(template.replace("{table}", table), {"": text})
    record(made, stopwatch, [accuracy_path(config, sweep), source, measured])


def write_claims(config: Config, published: Path) -> None:
    """Write which of the papers' claims hold in the published tables and in this run."""
    stopwatch = Stopwatch()
    table = claims(config, published)
    sheets = claims_sheets(table, config.run)
    made = write_sheets(filled(paths.CLAIMS, run=config.run), sheets, table)
    record(made, stopwatch, [Path(published.name) / SPRINT_CLAIMS, *accuracy_paths(config)])


def write_compression_tables(config: Config, published: Path) -> None:
    """Write Tables 1-4 of the paper, the knee, quantisation and cost as Markdown, LaTeX and CSV.

    Numbers from the folder of published tables are shown beside the run's.
    """
    stopwatch = Stopwatch()
    trials = read_trials(config)
    made = []
    for exhibit, table in exhibits(trials, printed(published)).items():
        template = filled(paths.COMPRESSION_TABLE, run=config.run, exhibit=exhibit)
        made += write_sheets(template, {"": sheet_of(exhibit, table, trials)}, table)
    read = [file for name in config.compressions for file in sources(config, name)]
    record(made, stopwatch, read)
