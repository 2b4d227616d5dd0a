"""The jobs that draw: each reads the tables it needs and saves figures, one record beside each.

Names are config names; paths follow from the config.
"""

from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

from headroom import paths
from headroom.analysis.arithmetic import arithmetic, arithmetic_sheet
from headroom.analysis.audit import audit, audit_sheet
from headroom.analysis.compression.published import Published
from headroom.analysis.compression.trial import read_trial, sources
from headroom.analysis.gains import (
    accuracy_path,
    accuracy_paths,
    against_base,
    gains,
    read_cells,
    read_gained,
    read_z,
)
from headroom.analysis.published import FIGURE_5, HEAD_PRUNING, head_pruning
from headroom.analysis.sheet import filled, read_csv, record, write_sheets
from headroom.analysis.verdict import read_heads, read_spread
from headroom.config import Config
from headroom.figures.agreement import agreement, agreement_map
from headroom.figures.audit import audit_figure
from headroom.figures.components import components
from headroom.figures.compression.alpha import alpha
from headroom.figures.compression.importance import importance
from headroom.figures.compression.losses import losses
from headroom.figures.compression.pareto import pareto
from headroom.figures.cost import cost, cost_figure
from headroom.figures.curves import curves
from headroom.figures.drawing import Figure, save
from headroom.figures.forest import forest
from headroom.figures.heatmap import heatmap
from headroom.figures.levels import levels
from headroom.figures.space import plane, space
from headroom.figures.style import Theme
from headroom.figures.violins import violins
from headroom.planning.batches import find_batch
from headroom.planning.store import Store
from headroom.record import Stopwatch
from headroom.sprint.evaluation import PAIRED
from headroom.tables import ACCURACY, ANSWERS, CURVES, POINTS, read_arrow, read_metadata, read_table
from headroom.variants import BASE


def draw_violins(config: Config) -> None:
    """Draw the gains of all sweeps over (subject, layer) pairs."""
    gained = {sweep: read_gained(config, sweep) for sweep in config.sweeps}
    _draw(filled(paths.VIOLINS, run=config.run), partial(violins, gained), accuracy_paths(config))


def draw_levels(config: Config) -> None:
    """Draw the gains of all sweeps by MATH level."""
    gained = {sweep: gains(read_cells(config, sweep)) for sweep in config.sweeps}
    _draw(filled(paths.LEVELS, run=config.run), partial(levels, gained), accuracy_paths(config))


def draw_sweep(config: Config, sweep: str) -> None:
    """Draw a sweep: a heatmap for each layer, heads with intervals, agreement, spread, cost."""
    z, variants = read_z(config, sweep)
    section = config.sweeps[sweep]
    batch = find_batch(config, section.model, section.decoding, section.questions)
    names = {"run": config.run, "sweep": sweep}
    matrix = accuracy_path(config, sweep)

    cells = against_base(z, variants)
    for layer in sorted({variant.layer for variant in variants[1:] if variant.layer is not None}):
        template = filled(paths.HEATMAP, **names, layer=f"{layer:02d}")
        _draw(template, partial(heatmap, cells, sweep, layer), [matrix])

    pairs = agreement(z, variants)
    draw = partial(agreement_map, pairs, variants, sweep, len(z))
    _draw(filled(paths.AGREEMENT, **names), draw, [matrix])

    source = Path(paths.CONTROLS.format(**names, table="heads", suffix="csv"))
    _draw(filled(paths.FOREST, **names), partial(forest, read_heads(source), sweep), [source])
    source = source.with_name("spread.csv")
    draw = partial(components, read_spread(source), sweep, len(z))
    _draw(filled(paths.COMPONENTS, **names), draw, [source])

    files = dict(zip(batch.variants, map(Path, Store(config).answers(batch)), strict=True))
    tables = (
        (variant.layer, read_arrow(files[variant], ANSWERS))
        for variant in variants[1:]
        if variant.layer is not None
    )
    counted = cost(read_arrow(files[BASE], ANSWERS), tables)
    draw = partial(cost_figure, counted, sweep)
    _draw(filled(paths.COST, **names), draw, [files[BASE].parent])


def draw_selector(config: Config, selector: str) -> None:
    """Draw a selector: Pass@N beside its baselines, and the space of heads and questions."""
    names = {"run": config.run, "selector": selector}
    sources = [Path(paths.CURVES.format(**names)), Path(paths.PAIRED.format(**names))]
    table, paired = read_table(sources[0], CURVES), read_csv(sources[1], PAIRED)
    n = int(read_metadata(sources[0])["test_questions"])
    draw = partial(curves, table, paired, selector, n)
    _draw(filled(paths.PASS_AT_N, **names), draw, sources)

    section = config.selectors[selector]
    batch = find_batch(config, section.model, section.decoding, section.test)
    matrix = Store(config).path(paths.ACCURACY, **batch.names)
    z = read_table(matrix, ACCURACY, exact=False).set_index("question_id")
    source = Path(paths.POINTS.format(**names))
    points = read_table(source, POINTS)
    heads = points.loc[points["kind"] == "head", "name"]
    placed, kept = plane(points, z[heads.tolist()].mean(axis=1))
    draw = partial(space, placed, kept, selector)
    _draw(filled(paths.SPACE, **names), draw, [source, matrix])


def draw_compression(config: Config, compression: str, published: Path) -> None:
    """Draw a compression: accuracy against parameters, importance, losses, mixtures.

    What the published tables, in the given folder, have of it stands beside.
    """
    trial = read_trial(config, compression)
    read = sources(config, compression)
    for template, figure in (
        (paths.PARETO, partial(pareto, trial)),
        (paths.IMPORTANCE, partial(importance, trial)),
        (paths.LOSSES, partial(losses, trial)),
        (paths.ALPHA, partial(alpha, trial, Published.read(published))),
    ):
        stopwatch = Stopwatch()
        made = save(filled(template, run=config.run, compression=compression), figure, read)
        record(made, stopwatch, read)


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


def _draw(template: str, draw: Callable[[Theme], Figure], sources: Sequence[Path]) -> None:
    """Save a figure, and its record."""
    stopwatch = Stopwatch()
    record(save(template, draw, sources), stopwatch, sources)
