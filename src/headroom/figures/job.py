"""The jobs of this room: each reads the tables it needs and writes figures, tables or the report.

Names are config names; paths follow from the config. Beside what a job makes lies its record.
"""

import logging
from collections.abc import Sequence
from functools import partial
from pathlib import Path

from headroom import paths
from headroom.config import Config
from headroom.errors import ConfigError
from headroom.figures.arithmetic import arithmetic, arithmetic_tables
from headroom.figures.audit import audit, audit_figure, audit_tables
from headroom.figures.beside import beside
from headroom.figures.claims import claims
from headroom.figures.claims_text import claims_tables
from headroom.figures.controls import NOISE, controls
from headroom.figures.curves import PAIRED_COLUMNS, curves
from headroom.figures.drawing import save, write_csv
from headroom.figures.forest import forest
from headroom.figures.gains import accuracy_path, gains, read_cells, read_gained, read_z
from headroom.figures.heatmap import heatmap
from headroom.figures.levels import levels
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
from headroom.figures.tables import comparison_tables, read_comparison, read_csv
from headroom.figures.verdict import failures, gains_table, read_heads
from headroom.figures.violins import violins
from headroom.plan import find_batch, placebos
from headroom.record import Stopwatch, write_record
from headroom.tables import ACTIVATIONS, CURVES, GRADED, read_metadata, read_table, write_text

_LOG = logging.getLogger(__name__)


def draw_violins(config: Config) -> None:
    """Draw the gains of all sweeps over (subject, layer) pairs."""
    stopwatch = Stopwatch()
    gained = {sweep: read_gained(config, sweep) for sweep in config.sweeps}
    made = save(
        _template(paths.VIOLINS, run=config.run), partial(violins, gained), _sources(config)
    )
    _record(made, stopwatch, _sources(config))


def draw_levels(config: Config) -> None:
    """Draw the gains of all sweeps by MATH level."""
    stopwatch = Stopwatch()
    gained = {sweep: gains(read_cells(config, sweep)) for sweep in config.sweeps}
    made = save(_template(paths.LEVELS, run=config.run), partial(levels, gained), _sources(config))
    _record(made, stopwatch, _sources(config))


def draw_heatmap(config: Config, sweep: str, layer: int) -> None:
    """Draw head × subject of one layer of a sweep."""
    stopwatch = Stopwatch()
    cells = read_cells(config, sweep)
    layers = sorted(cells["layer"].dropna().unique().tolist())
    if layer not in layers:
        raise ConfigError(f"layer {layer} is not in sweep {sweep!r}, which has {layers}; name one")
    template = _template(paths.HEATMAP, run=config.run, sweep=sweep, layer=f"{layer:02d}")
    sources = [accuracy_path(config, sweep)]
    _record(save(template, partial(heatmap, cells, sweep, layer), sources), stopwatch, sources)


def draw_curves(config: Config, selector: str) -> None:
    """Draw Pass@N of a selector and its baselines."""
    stopwatch = Stopwatch()
    names = {"run": config.run, "selector": selector}
    sources = [Path(paths.CURVES.format(**names)), Path(paths.PAIRED.format(**names))]
    table, paired = read_table(sources[0], CURVES), read_csv(sources[1], PAIRED_COLUMNS)
    n = int(read_metadata(sources[0])["test_questions"])
    template = _template(paths.PASS_AT_N, **names)
    draw = partial(curves, table, paired, selector, n)
    _record(save(template, draw, sources), stopwatch, sources)


def write_tables(config: Config, sweep: str, published: Path) -> None:
    """Write Pass@1 by subject × layer × head, and by level, as Markdown, LaTeX and CSV.

    What the published tables, in the given folder, have of it stands beside.
    """
    stopwatch = Stopwatch()
    template = _template(paths.TABLE, run=config.run, sweep=sweep)
    cells = read_cells(config, sweep)
    prompt = config.decodings[config.sweeps[sweep].decoding].prompt
    how = f"Prompt: {prompt}; grading: {config.grading}."
    made = []
    for suffix, text in sweep_tables(
        cells, beside(config, sweep, cells, published), sweep, how
    ).items():
        made.append(Path(template.format(suffix=suffix)))
        write_text(made[-1], text)
    _record(made, stopwatch, [accuracy_path(config, sweep)])


def write_comparison(config: Config, comparison: str) -> None:
    """Write a comparison of prompts and grading rules as Markdown and LaTeX, beside its CSV."""
    stopwatch = Stopwatch()
    source = Path(paths.COMPARISON.format(run=config.run, comparison=comparison, suffix="csv"))
    made = []
    for suffix, text in comparison_tables(read_comparison(source), comparison).items():
        made.append(source.with_name(f"{comparison}.{suffix}"))
        write_text(made[-1], text)
    _record(made, stopwatch, [source])


def write_selector_tables(config: Config, selector: str) -> None:
    """Write as text whether a selector's embedding matters, and its diversity and cost."""
    stopwatch = Stopwatch()
    names = {"run": config.run, "selector": selector}
    made, sources = [], []
    for template, read, text in (
        (paths.EMBEDDING_VALUE, read_embedding, embedding_text),
        (paths.DIVERSITY, read_diversity, diversity_text),
    ):
        sources.append(Path(template.format(**names, suffix="csv")))
        for suffix, written in text(read(sources[-1]), selector).items():
            made.append(Path(template.format(**names, suffix=suffix)))
            write_text(made[-1], written)
    _record(made, stopwatch, sources)


def write_controls(config: Config, sweep: str) -> None:
    """Write the controls of a sweep: gains, heads, placebos, spread, how heads that hurt fail."""
    stopwatch = Stopwatch()
    section = config.sweeps[sweep]
    batch = find_batch(config, section.model, section.decoding, section.questions)
    z, variants = read_z(config, sweep)
    source = Path(paths.GRADED.format(run=config.run, **batch.wildcards(config)))
    dtype = config.models[section.model].dtype
    graded, others = read_table(source, GRADED), placebos(config, section)
    found = controls(z, graded, variants, others, NOISE[dtype], config.seed)
    answers = dict(zip(map(str, batch.variants), map(Path, batch.answers(config)), strict=True))
    measured = Path(paths.ACTIVATIONS.format(**batch.wildcards(config)))
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
    _record(made, stopwatch, [accuracy_path(config, sweep), source, measured])


def draw_forest(config: Config, sweep: str) -> None:
    """Draw every head of a sweep with its interval."""
    stopwatch = Stopwatch()
    names = {"run": config.run, "sweep": sweep}
    source = Path(paths.CONTROLS.format(**names, table="heads", suffix="csv"))
    heads = read_heads(source)
    made = save(_template(paths.FOREST, **names), partial(forest, heads, sweep), [source])
    _record(made, stopwatch, [source])


def draw_audit(config: Config, published: Path) -> None:
    """Hold the published tables, in the given folder, against chance and arithmetic."""
    stopwatch = Stopwatch()
    found = audit(head_pruning(published), config.seed)
    sources = [Path(published.name) / name for name in (HEAD_PRUNING, FIGURE_5)]
    made = save(_template(paths.AUDIT, run=config.run), partial(audit_figure, found), sources)
    cuts = arithmetic(published)
    for paper, texts in (("sprint", audit_tables(found)), ("compression", arithmetic_tables(cuts))):
        for suffix, text in texts.items():
            made.append(Path(paths.AUDIT_TABLE.format(run=config.run, paper=paper, suffix=suffix)))
            write_text(made[-1], text)
    _record(made, stopwatch, sources)


def write_claims(config: Config, published: Path) -> None:
    """Write which of the papers' claims hold, in the published tables and in this run."""
    stopwatch = Stopwatch()
    made = []
    for suffix, text in claims_tables(claims(config, published), config.run).items():
        made.append(Path(paths.CLAIMS.format(run=config.run, suffix=suffix)))
        write_text(made[-1], text)
    _record(made, stopwatch, [Path(published.name) / SPRINT_CLAIMS, *_sources(config)])


def write_report(config: Config) -> None:
    """Write the report of a run."""
    stopwatch = Stopwatch()
    output = Path(paths.REPORT.format(run=config.run))
    write_text(output, render(config))
    _record([output], stopwatch, _sources(config))


def _template(template: str, **names: object) -> str:
    """Fill a path template but for its suffix."""
    return template.format(suffix="{suffix}", **names)


def _sources(config: Config) -> list[Path]:
    return list(dict.fromkeys(accuracy_path(config, sweep) for sweep in config.sweeps))


def _record(made: Sequence[Path], stopwatch: Stopwatch, sources: Sequence[Path]) -> None:
    """Write one record for files made together, beside the last of them."""
    facts = {"files": [path.name for path in made], "sources": [str(path) for path in sources]}
    write_record(made[-1], stopwatch, facts)
    _LOG.info("%s", ", ".join(path.name for path in made))
