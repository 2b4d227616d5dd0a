"""Errors of the graders; how often intervals of `headsweep compare` hold; what pairing shows.

The last two are simulated. Two systems answer the same questions. The outcomes of a share of the
questions differ without a gain (`changed`): at a gain g, changed / 2 + g of all questions turn
right and changed / 2 turn wrong. All other outcomes are equal.
"""

import argparse
from collections.abc import Callable
from math import ceil
from typing import Any

import numpy as np
import pandas as pd
from jaxtyping import Int
from scipy.special import ndtri

from benchmarks import graders
from headsweep.results.systems import of_pairs
from headsweep.statistics import LEVEL
from headsweep.statistics.power import POWER, smallest_gain

QUESTIONS = (100, 250, 1000)
CHANGED = (0.1, 0.2, 0.4)
"""Numbers of questions and shares of changed outcomes that are simulated."""
_RIGHT = 0.6  # share of the questions without a change that both systems have right
_BLOCK = 1000  # comparisons at once; bounds memory


def run(*, comparisons: int, seed: int) -> None:
    """Print the tables of `graders`, `coverage` and `powers`; the arguments are the script's."""
    graders.run()
    shares = "{:.1%}".format
    covered = coverage(comparisons, seed)
    print(f"\n95% intervals and McNemar's test at 5%, {comparisons:,} simulated comparisons a row:")
    print(_printed(covered))
    power = powers(comparisons, seed)
    print(
        f"\nHow often the gain is shown that should be with {shares(POWER)}, "
        f"{shares(_RIGHT)} of the unchanged questions right:"
    )
    print(_printed(power))


def _printed(table: pd.DataFrame) -> str:
    forms: dict[str, Callable[..., Any]] = {str(name): _number for name in table}
    return table.to_string(index=False, formatters=forms)


def _number(value: float) -> str:
    return f"{value:,.0f}" if value > 1 else f"{value:.1%}"


def coverage(comparisons: int, seed: int) -> pd.DataFrame:
    """Return how often the interval of a difference holds the true gain.

    Args:
        comparisons: number of simulated comparisons for each row.
        seed: of the draws.

    Returns:
        Columns questions, changed, gain, covered (share of the comparisons), and called: how often
        the test finds a difference, which should be at most 5% where there is no gain. Numbers are
        fractions.
    """
    draw = np.random.default_rng(seed)
    rows = []
    for questions in QUESTIONS:
        for changed in CHANGED:
            for gain in (0.0, changed / 2):
                table = _compared(draw, questions, changed, gain, comparisons)[0]
                covered = (table["low"] <= gain) & (gain <= table["high"])
                called = (table["p"] < 1 - LEVEL).mean()
                rows.append((questions, changed, gain, covered.mean(), called))
    return pd.DataFrame(rows, columns=["questions", "changed", "gain", "covered", "called"])


def powers(comparisons: int, seed: int) -> pd.DataFrame:
    """Return how often the smallest gain that should be shown is, paired and unpaired.

    The unpaired test is the z-test of two shares, as of two sets of questions. Arguments are those
    of `coverage`.

    Returns:
        Columns questions, changed, gain, paired, unpaired (shares of the comparisons).
    """
    draw = np.random.default_rng(seed)
    rows = []
    for questions in QUESTIONS:
        for changed in CHANGED:
            gain = smallest_gain(questions, changed, 1)
            table, differences = _compared(draw, questions, changed, gain, comparisons)
            paired = (table["p"] < 1 - LEVEL).mean()
            unpaired = _z_test(draw, differences).mean()
            rows.append((questions, changed, gain, paired, unpaired))
    return pd.DataFrame(rows, columns=["questions", "changed", "gain", "paired", "unpaired"])


def _compared(
    draw: np.random.Generator, questions: int, changed: float, gain: float, comparisons: int
) -> tuple[pd.DataFrame, Int[np.ndarray, "questions comparisons"]]:
    """Return the rows of `headsweep compare` for simulated pairs, and their differences."""
    lost = changed / 2
    won = lost + gain
    drawn = draw.random((questions, comparisons), dtype=np.float32)
    differences = (drawn < won).astype(np.int8) - (drawn >= 1 - lost)
    blocks = [
        of_pairs(part, [True] * part.shape[1])
        for part in np.array_split(differences, ceil(comparisons / _BLOCK), axis=1)
    ]
    return pd.concat(blocks, ignore_index=True), differences


def _z_test(
    draw: np.random.Generator, differences: Int[np.ndarray, "questions comparisons"]
) -> np.ndarray:
    """Return whether an unpaired test of both shares finds a difference, for each comparison."""
    unchanged = draw.random(differences.shape) < _RIGHT
    first = np.where(differences == 0, unchanged, differences < 0).mean(axis=0)
    second = np.where(differences == 0, unchanged, differences > 0).mean(axis=0)
    pooled = (first + second) / 2
    error = np.sqrt(2 * pooled * (1 - pooled) / len(differences))
    return np.abs(second - first) > ndtri((1 + LEVEL) / 2) * error


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--comparisons", type=int, default=4000, help="simulated for each row")
    parser.add_argument("--seed", type=int, default=0, help="of what is simulated")
    run(**vars(parser.parse_args()))
