"""The jobs of a run's compressions: each reads what was measured and writes tables or figures."""

from functools import partial
from pathlib import Path

from headroom import paths
from headroom.config import Config
from headroom.figures.compression.alpha import alpha
from headroom.figures.compression.exhibits import exhibits
from headroom.figures.compression.importance import importance
from headroom.figures.compression.losses import losses
from headroom.figures.compression.pareto import pareto
from headroom.figures.compression.published import Published
from headroom.figures.compression.tables import sheet_of, warned
from headroom.figures.compression.trial import read_trial, read_trials, sources
from headroom.figures.drawing import filled, record, save, write_sheets
from headroom.record import Stopwatch


def write_tables(config: Config, published: Path) -> None:
    """Write Tables 1-4 of the paper, the knee, quantisation and cost as Markdown, LaTeX and CSV.

    What the published tables, in the given folder, have of it stands beside.
    """
    stopwatch = Stopwatch()
    trials = read_trials(config)
    made = []
    for exhibit, table in exhibits(trials, Published.read(published)).items():
        sheets = [sheet_of(exhibit, table, trials)]
        if exhibit == "cost":
            sheets.append(warned(table))
        names = {"run": config.run, "exhibit": exhibit}
        made += write_sheets(filled(paths.COMPRESSION_TABLE, **names), sheets, table)
    read = [file for name in config.compressions for file in sources(config, name)]
    record(made, stopwatch, read)


def draw(config: Config, compression: str, published: Path) -> None:
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
