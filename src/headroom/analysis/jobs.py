"""The jobs that compute and write: each reads what it needs and writes tables or the report.

Names are config names; paths follow from the config. Beside what a job makes lies its record.
"""

from collections.abc import Sequence
from pathlib import Path

from headroom import paths
from headroom.analysis.claims import claims, claims_sheets
from headroom.analysis.compression.tables import exhibits, printed, sheet_of
from headroom.analysis.compression.trial import read_trials, sources
from headroom.analysis.controls import NOISE, controls, gains_sheet
from headroom.analysis.failures import failures
from headroom.analysis.gains import accuracy_path, accuracy_paths, read_cells, read_z
from headroom.analysis.placebos import placebo_sheet, placebo_table
from headroom.analysis.published import SPRINT_CLAIMS, reproduced, sweep_csv, sweep_sheets
from headroom.analysis.selectors import COMPARISON, SELECTOR_TABLES, Table
from headroom.analysis.sheet import filled, read_csv, record, write_csv, write_sheets
from headroom.config import Config
from headroom.planning.batches import find_batch, placebos
from headroom.planning.store import Store
from headroom.record import Stopwatch
from headroom.tables import ACTIVATIONS, GRADED, read_table


def write_tables(config: Config, sweep: str, published: Path) -> None:
    """Write Pass@1 by subject × layer × head, and by level, as Markdown, LaTeX and CSV.

    What the published tables, in the given folder, have of it stands beside.
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
    """Write as text whether a selector's embedding matters, diversity and cost, and choosing."""
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
    """Write the controls of a sweep: gains, heads, placebos, spread, how heads that hurt fail."""
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
    activations = read_table(measured, ACTIVATIONS, exact=False)
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
    for table, sheet in (
        ("placebos", placebo_sheet(changes, sweep)),
        ("gains", gains_sheet(found.gains, sweep)),
    ):
        made += write_sheets(template.replace("{table}", table), {"": sheet})
    record(made, stopwatch, [accuracy_path(config, sweep), source, measured])


def write_claims(config: Config, published: Path) -> None:
    """Write which of the papers' claims hold, in the published tables and in this run."""
    stopwatch = Stopwatch()
    table = claims(config, published)
    sheets = claims_sheets(table, config.run)
    made = write_sheets(filled(paths.CLAIMS, run=config.run), sheets, table)
    record(made, stopwatch, [Path(published.name) / SPRINT_CLAIMS, *accuracy_paths(config)])


def write_compression_tables(config: Config, published: Path) -> None:
    """Write Tables 1-4 of the paper, the knee, quantisation and cost as Markdown, LaTeX and CSV.

    What the published tables, in the given folder, have of it stands beside.
    """
    stopwatch = Stopwatch()
    trials = read_trials(config)
    made = []
    for exhibit, table in exhibits(trials, printed(published)).items():
        template = filled(paths.COMPRESSION_TABLE, run=config.run, exhibit=exhibit)
        made += write_sheets(template, {"": sheet_of(exhibit, table, trials)}, table)
    read = [file for name in config.compressions for file in sources(config, name)]
    record(made, stopwatch, read)
