"""The jobs that draw: each reads the tables it needs and saves figures, one record beside each.

Names are config names; paths follow from the config.
"""

from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

from headroom import paths
from headroom.config import Config
from headroom.figures.agreement import agreement, agreement_map
from headroom.figures.components import components
from headroom.figures.cost import cost, cost_figure
from headroom.figures.curves import curves
from headroom.figures.drawing import Figure, filled, record, save
from headroom.figures.forest import forest
from headroom.figures.gains import (
    accuracy_path,
    accuracy_paths,
    against_base,
    gains,
    read_cells,
    read_gained,
    read_z,
)
from headroom.figures.heatmap import heatmap
from headroom.figures.levels import levels
from headroom.figures.sheet import read_csv
from headroom.figures.space import plane, space
from headroom.figures.style import Theme
from headroom.figures.verdict import read_heads, read_spread
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


def _draw(template: str, draw: Callable[[Theme], Figure], sources: Sequence[Path]) -> None:
    """Save a figure, and its record."""
    stopwatch = Stopwatch()
    record(save(template, draw, sources), stopwatch, sources)
