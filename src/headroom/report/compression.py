"""What the report shows of compressions: findings first, then tables, figures and warnings."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import pandas as pd

from headroom import paths
from headroom.analysis.compression.exhibits import COLUMNS
from headroom.analysis.compression.findings import findings, in_points, tested
from headroom.analysis.compression.numbers import accuracy, savings
from headroom.analysis.compression.tables import sheet_of, warned
from headroom.analysis.compression.trial import BASELINE, METHOD, Trial, read_trials
from headroom.analysis.findings import Finding
from headroom.analysis.sheet import Sheet, read_csv
from headroom.analysis.text import percent
from headroom.config import Config
from headroom.figures.drawing import Picture, pictures

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


@dataclass(frozen=True)
class CompressionPart:
    """What the page shows of one compression."""

    name: str
    subject: str
    data: str
    cards: list[Finding]
    sentences: list[str]
    pictures: list[Picture]


def compression_parts(
    config: Config,
) -> tuple[list[CompressionPart], list[tuple[str, list[Sheet]]]]:
    """Return what the page shows of each compression, and the titled tables of all of them.

    Raises:
        TableError: a file of one is missing or damaged.
    """
    trials = read_trials(config)
    parts = [
        CompressionPart(
            name=trial.name,
            subject=trial.subject,
            data=trial.data,
            cards=_cards(trial),
            sentences=findings(trial),
            pictures=pictures("compression", "compression", run=config.run, compression=trial.name),
        )
        for trial in trials
    ]
    return parts, [(_TITLES[name], _sheets(config, name, trials)) for name in COLUMNS if trials]


def _sheets(config: Config, exhibit: str, trials: Sequence[Trial]) -> list[Sheet]:
    file = paths.COMPRESSION_TABLE.format(run=config.run, exhibit=exhibit, suffix="csv")
    table = read_csv(Path(file), COLUMNS[exhibit])
    sheets = [sheet_of(exhibit, table, trials)]
    return [*sheets, warned(table)] if exhibit == "cost" else sheets


def _cards(trial: Trial) -> list[Finding]:
    """Return the headline numbers: before, after, and what is saved."""
    if not {BASELINE, METHOD} <= set(trial.settings):
        return []
    before, after = accuracy(trial, BASELINE), accuracy(trial, METHOD)
    saved = savings(trial, METHOD)
    change = in_points(*(after[f"change{end}"] for end in ("", "_low", "_high")))
    removed = f"{saved['heads_removed']} of {saved['heads']} heads removed"
    cards = [
        Finding("Unpruned", percent(before["accuracy"]), tested(trial, BASELINE)),
        Finding(removed, percent(after["accuracy"]), change),
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
