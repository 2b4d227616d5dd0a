"""The jobs that compute and write: each reads what it needs and writes tables or the report.

Names are config names; paths follow from the config. Beside what a job makes lies its record.
"""

from functools import partial
from pathlib import Path

from headroom import paths
from headroom.config import Config
from headroom.figures.arithmetic import arithmetic, arithmetic_sheet
from headroom.figures.audit import audit, audit_figure, audit_sheet
from headroom.figures.claims import claims, claims_sheets
from headroom.figures.controls import NOISE, controls
from headroom.figures.drawing import filled, record, save, write_csv, write_sheets
from headroom.figures.gains import accuracy_path, accuracy_paths, read_cells, read_z
from headroom.figures.headlines import headlines
from headroom.figures.placebos import placebo_sheet, placebo_table
from headroom.figures.prompts import comparison_sheet, read_comparison
from headroom.figures.published import (
    FIGURE_5,
    HEAD_PRUNING,
    SPRINT_CLAIMS,
    head_pruning,
    reproduced,
)
from headroom.figures.report import render
from headroom.figures.selectors import SELECTOR_TABLES
from headroom.figures.sheet import read_csv
from headroom.figures.sweep_tables import sweep_csv, sweep_sheets
from headroom.figures.verdict import failures, gains_sheet
from headroom.planning.batches import find_batch, placebos
from headroom.planning.store import Store
from headroom.record import Stopwatch
from headroom.tables import ACTIVATIONS, GRADED, read_table, write_text


def write_tables(config: Config, sweep: str, published: Path) -> None:
    """Write Pass@1 by subject × layer × head, and by level, as Markdown, LaTeX and CSV.

    What the published tables, in the given folder, have of it stands beside.
    """
    stopwatch = Stopwatch()
    template = filled(paths.TABLE, run=config.run, sweep=sweep)
    cells = read_cells(config, sweep)
    prompt = config.decodings[config.sweeps[sweep].decoding].prompt
    how = f"Prompt: {prompt}; grading: {config.grading}."
    beside = reproduced(config, sweep, cells, published)
    made = write_sheets(template, sweep_sheets(cells, beside, sweep, how), sweep_csv(cells, beside))
    record(made, stopwatch, [accuracy_path(config, sweep)])


def write_comparison(config: Config, comparison: str) -> None:
    """Write a comparison of prompts and grading rules as Markdown and LaTeX, beside its CSV."""
    stopwatch = Stopwatch()
    template = filled(paths.COMPARISON, run=config.run, comparison=comparison)
    source = Path(template.format(suffix="csv"))
    made = write_sheets(template, [comparison_sheet(read_comparison(source), comparison)])
    record(made, stopwatch, [source])


def write_selector_tables(config: Config, selector: str) -> None:
    """Write as text whether a selector's embedding matters, diversity and cost, and choosing."""
    stopwatch = Stopwatch()
    names = {"run": config.run, "selector": selector}
    made: list[Path] = []
    sources: list[Path] = []
    for template, columns, sheet in SELECTOR_TABLES:
        sources.append(Path(template.format(**names, suffix="csv")))
        table = read_csv(sources[-1], columns)
        made += write_sheets(filled(template, **names), [sheet(table, selector)])
    record(made, stopwatch, sources)


def write_controls(config: Config, sweep: str) -> None:
    """Write the controls of a sweep: gains, heads, placebos, spread, how heads that hurt fail."""
    stopwatch = Stopwatch()
    section = config.sweeps[sweep]
    batch = find_batch(config, section.model, section.decoding, section.questions)
    z, variants = read_z(config, sweep)
    store = Store(config)
    source = store.path(paths.GRADED, **batch.names)
    dtype = config.models[section.model].dtype
    graded, others = read_table(source, GRADED), placebos(config, section)
    found = controls(z, graded, variants, others, NOISE[dtype], config.seed)
    answers = dict(zip(map(str, batch.variants), map(Path, store.answers(batch)), strict=True))
    measured = store.path(paths.ACTIVATIONS, **batch.names)
    activations = read_table(measured, ACTIVATIONS)
    changes = placebo_table(graded, [*variants[1:], *others], answers)
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
        ("placebos", placebo_sheet(changes, sweep, dtype)),
        ("gains", gains_sheet(found.gains, sweep)),
    ):
        made += write_sheets(template.replace("{table}", table), [sheet])
    record(made, stopwatch, [accuracy_path(config, sweep), source, measured])


def draw_audit(config: Config, published: Path) -> None:
    """Hold the published tables, in the given folder, against chance and arithmetic."""
    stopwatch = Stopwatch()
    found = audit(head_pruning(published), config.seed)
    sources = [Path(published.name) / name for name in (HEAD_PRUNING, FIGURE_5)]
    made = save(filled(paths.AUDIT, run=config.run), partial(audit_figure, found), sources)
    cuts = arithmetic(published)
    tables = {
        "sprint": (audit_sheet(found.summary), found.summary, 6),
        "compression": (arithmetic_sheet(cuts), cuts, 4),
    }
    for paper, (sheet, numbers, digits) in tables.items():
        template = filled(paths.AUDIT_TABLE, run=config.run, paper=paper)
        made += write_sheets(template, [sheet], numbers, digits)
    record(made, stopwatch, sources)


def write_claims(config: Config, published: Path) -> None:
    """Write which of the papers' claims hold, in the published tables and in this run."""
    stopwatch = Stopwatch()
    table = claims(config, published)
    sheets = claims_sheets(table, config.run)
    made = write_sheets(filled(paths.CLAIMS, run=config.run), sheets, table)
    record(made, stopwatch, [Path(published.name) / SPRINT_CLAIMS, *accuracy_paths(config)])


def write_report(config: Config) -> None:
    """Write the report of a run, and what the run prints of it."""
    stopwatch = Stopwatch()
    output = Path(paths.REPORT.format(run=config.run))
    write_text(output, render(config))
    said = Path(paths.FINDINGS.format(run=config.run))
    write_text(said, "".join(f"{sentence}\n" for sentence in headlines(config)))
    record([said, output], stopwatch, accuracy_paths(config))
