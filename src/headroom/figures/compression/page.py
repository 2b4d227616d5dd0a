"""What the report shows of compressions: findings first, then tables, figures and warnings."""

from dataclasses import dataclass
from pathlib import Path

import pandas as pd

from headroom import paths
from headroom.config import Config
from headroom.figures.compression.evidence import BASELINE, METHOD, Trial, read_trials
from headroom.figures.compression.exhibits import COLUMNS
from headroom.figures.compression.findings import findings, tested
from headroom.figures.compression.nothing import EMPTY
from headroom.figures.compression.numbers import accuracy, savings
from headroom.figures.findings import Finding
from headroom.figures.pictures import Picture, read_picture
from headroom.figures.sheets import Sheet, read_sheets
from headroom.figures.text import percent, points

_TITLES = {
    "table1": "Ratios (Table 1)",
    "table2": "Solvers of two sizes (Table 2)",
    "table3a": "What ranks the heads (Table 3a)",
    "table3b": "Simple and complex problems (Table 3b)",
    "table4": "Ablation (Table 4)",
    "knee": "Where accuracy breaks",
    "quantisation": "Weights of eight bits",
    "cost": "What it costs, and warnings",
}
_FIGURES = (paths.PARETO, paths.ALPHA, paths.IMPORTANCE, paths.LOSSES)


@dataclass(frozen=True)
class CompressionPart:
    """What the page shows of one compression."""

    name: str
    subject: str
    data: str
    cards: list[Finding]
    sentences: list[str]
    pictures: list[Picture]


def compression_parts(config: Config) -> list[CompressionPart]:
    """Return what the page shows of each compression.

    Raises:
        TableError: a file of one is missing or damaged.
    """
    return [
        CompressionPart(
            name=trial.name,
            subject=trial.subject,
            data=trial.data,
            cards=_cards(trial),
            sentences=findings(trial),
            pictures=_drawn(config, trial.name),
        )
        for trial in read_trials(config)
    ]


def compression_tables(config: Config) -> list[tuple[str, list[Sheet]]]:
    """Return the tables of a run's compressions, each with its title; none where it has none."""
    if not config.compressions:
        return []
    names = {"run": config.run, "suffix": "md"}
    return [
        (
            _TITLES[exhibit],
            read_sheets(Path(paths.COMPRESSION_TABLE.format(exhibit=exhibit, **names))),
        )
        for exhibit in COLUMNS
    ]


def _cards(trial: Trial) -> list[Finding]:
    """Return the headline numbers: before, after, and what is saved."""
    if not {BASELINE, METHOD} <= set(trial.settings):
        return []
    before, after, saved = (
        accuracy(trial, BASELINE),
        accuracy(trial, METHOD),
        savings(trial, METHOD),
    )
    interval = f"{points(after['change_low'])} to {points(after['change_high'])}"
    removed = f"{saved['heads_removed']} of {saved['heads']} heads removed"
    cards = [
        Finding("Unpruned", percent(before["accuracy"]), tested(trial, BASELINE)),
        Finding(
            removed, percent(after["accuracy"]), f"{points(after['change'])} points ({interval})"
        ),
    ]
    if pd.isna(saved["parameters_removed"]):
        return cards
    return [
        *cards,
        Finding(
            "Fewer parameters",
            percent(saved["parameters_removed"]),
            f"of the encoder; {percent(saved['whole_removed'])} of the whole",
        ),
        Finding(
            f"Faster, batch {saved['large_batch']}",
            percent(saved["faster_large"]) if saved["apart_large"] else "not shown",
            f"t0/t1 − 1, measured; arithmetic allows {percent(saved['speedup_at_most'])}",
        ),
    ]


def _drawn(config: Config, compression: str) -> list[Picture]:
    """Return the figures that show something."""
    found = (read_picture(t, run=config.run, compression=compression) for t in _FIGURES)
    return [picture for picture in found if picture and not picture.alt.startswith(EMPTY)]
