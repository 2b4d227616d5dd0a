"""The jobs that compute and write: each reads what it needs and writes tables or the report.

Names are config names; paths follow from the config. Beside what a job makes lies its record.
"""

from functools import partial
from pathlib import Path

from headroom import paths
from headroom.config import Config
from headroom.figures.arithmetic import arithmetic, arithmetic_tables
from headroom.figures.audit import audit, audit_figure, audit_tables
from headroom.figures.beside import beside
from headroom.figures.choosing import choosing_text, read_choosing
from headroom.figures.claims import claims
from headroom.figures.claims_text import claims_tables
from headroom.figures.controls import NOISE, controls
from headroom.figures.drawing import filled, record, save, write_csv
from headroom.figures.gains import accuracy_path, accuracy_paths, read_cells, read_z
from headroom.figures.headlines import headlines
from headroom.figures.placebos import placebo_table, placebo_text
from headroom.figures.published import FIGURE_5, HEAD_PRUNING, SPRINT_CLAIMS, head_pruning
from headroom.figures.report import render
from headroom.figures.selectors import (
    diversity_text,
    embedding_text,
    read_diversity,
    read_embedding,
)
from headroom.figures.sweep_tables import sweep_tables
from headroom.figures.tables import comparison_tables, read_comparison
from headroom.figures.verdict import failures, gains_table
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
    made = []
    for suffix, text in sweep_tables(
        cells, beside(config, sweep, cells, published), sweep, how
    ).items():
        made.append(Path(template.format(suffix=suffix)))
        write_text(made[-1], text)
    record(made, stopwatch, [accuracy_path(config, sweep)])


def write_comparison(config: Config, comparison: str) -> None:
    """Write a comparison of prompts and grading rules as Markdown and LaTeX, beside its CSV."""
    stopwatch = Stopwatch()
    source = Path(paths.COMPARISON.format(run=config.run, comparison=comparison, suffix="csv"))
    made = []
    for suffix, text in comparison_tables(read_comparison(source), comparison).items():
        made.append(source.with_name(f"{comparison}.{suffix}"))
        write_text(made[-1], text)
    record(made, stopwatch, [source])


def write_selector_tables(config: Config, selector: str) -> None:
    """Write as text whether a selector's embedding matters, diversity and cost, and choosing."""
    stopwatch = Stopwatch()
    names = {"run": config.run, "selector": selector}
    made, sources = [], []
    for template, read, text in (
        (paths.EMBEDDING_VALUE, read_embedding, embedding_text),
        (paths.DIVERSITY, read_diversity, diversity_text),
        (paths.CHOOSING, read_choosing, choosing_text),
    ):
        sources.append(Path(template.format(**names, suffix="csv")))
        for suffix, written in text(read(sources[-1]), selector).items():
            made.append(Path(template.format(**names, suffix=suffix)))
            write_text(made[-1], written)
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
    for table, texts in (
        ("placebos", placebo_text(changes, sweep, dtype)),
        ("gains", gains_table(found.gains, sweep)),
    ):
        for suffix, text in texts.items():
            made.append(Path(template.format(table=table, suffix=suffix)))
            write_text(made[-1], text)
    record(made, stopwatch, [accuracy_path(config, sweep), source, measured])


def draw_audit(config: Config, published: Path) -> None:
    """Hold the published tables, in the given folder, against chance and arithmetic."""
    stopwatch = Stopwatch()
    found = audit(head_pruning(published), config.seed)
    sources = [Path(published.name) / name for name in (HEAD_PRUNING, FIGURE_5)]
    made = save(filled(paths.AUDIT, run=config.run), partial(audit_figure, found), sources)
    cuts = arithmetic(published)
    for paper, texts in (("sprint", audit_tables(found)), ("compression", arithmetic_tables(cuts))):
        for suffix, text in texts.items():
            made.append(Path(paths.AUDIT_TABLE.format(run=config.run, paper=paper, suffix=suffix)))
            write_text(made[-1], text)
    record(made, stopwatch, sources)


def write_claims(config: Config, published: Path) -> None:
    """Write which of the papers' claims hold, in the published tables and in this run."""
    stopwatch = Stopwatch()
    made = []
    for suffix, text in claims_tables(claims(config, published), config.run).items():
        made.append(Path(paths.CLAIMS.format(run=config.run, suffix=suffix)))
        write_text(made[-1], text)
    record(made, stopwatch, [Path(published.name) / SPRINT_CLAIMS, *accuracy_paths(config)])


def write_report(config: Config) -> None:
    """Write the report of a run, and what the run prints of it."""
    stopwatch = Stopwatch()
    output = Path(paths.REPORT.format(run=config.run))
    write_text(output, render(config))
    said = Path(paths.FINDINGS.format(run=config.run))
    write_text(said, "".join(f"{sentence}\n" for sentence in headlines(config)))
    record([said, output], stopwatch, accuracy_paths(config))
