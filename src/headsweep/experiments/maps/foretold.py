"""Does a map predict what a sweep measures? Compares its outcomes with measured gains of heads."""

import math
from collections.abc import Mapping

import numpy as np
import pandas as pd
from scipy.special import ndtri

from headsweep.experiments.maps.outcomes import TITLE_OF_OUTCOME
from headsweep.statistics import LEVEL
from headsweep.variants import BASE

FORETOLD = ["questions", "decoding", "title", "n", "outcome", "heads", "correlation"]
FORETOLD += ["low", "high", "top", "best_hits", "worst_hits", "by_chance"]
FORETOLD += ["best_gain", "best_found"]
"""Columns of the table. `top` is a quarter of the heads, and the hits count how many of the so many
that measured best (worst) are among the map's best (worst). Where heads are tied for the last
places, each counts with its share of them. `by_chance` is the count that luck gives. `best_found`
is the largest gain among the map's best, ties included, `best_gain` that among all heads, as
fractions of the `n` questions."""

_FEWEST = 6  # heads, below which a rank correlation says nothing


def foretold(
    heads: pd.DataFrame,
    measured: Mapping[tuple[str, str], pd.DataFrame],
    called: Mapping[tuple[str, str], str],
) -> pd.DataFrame:
    """Return columns `FORETOLD`, a row for each question set, decoding and outcome.

    Args:
        heads: the map's table, columns `headsweep.experiments.maps.outcomes.HEADS`.
        measured: matrices Z (`headsweep.files.tables.ACCURACY`), by question set and decoding.
        called: what the report calls each of these.
    """
    rows = []
    pruned = heads[heads["kind"] == "head"]
    for (questions, decoding), z in measured.items():
        present = [name for name in pruned["variant"].unique() if name in z.columns]
        if len(present) < _FEWEST:
            continue
        gains = z[present].mean() - z[str(BASE)].mean()
        for outcome in TITLE_OF_OUTCOME:
            of_outcome = pruned[pruned["outcome"] == outcome].set_index("variant")
            if of_outcome.empty:
                continue
            facts = {
                "questions": questions,
                "decoding": decoding,
                "title": called[questions, decoding],
                "n": len(z),
                "outcome": outcome,
            }
            rows.append(facts | _held(of_outcome.loc[present, "change"], gains))
    return pd.DataFrame(rows, columns=FORETOLD)


def _held(predicted: pd.Series, gains: pd.Series) -> dict[str, float]:
    """Return how well predictions rank the gains of the same heads."""
    count = len(gains)
    top = math.ceil(count / 4)
    correlation, low, high = rank_correlation(predicted.to_numpy(), gains.to_numpy())
    found = among_best(predicted, top)
    return {
        "heads": count,
        "correlation": correlation,
        "low": low,
        "high": high,
        "top": top,
        "best_hits": found @ among_best(gains, top),
        "worst_hits": among_best(-predicted, top) @ among_best(-gains, top),
        "by_chance": top * top / count,
        "best_gain": gains.max(),
        "best_found": gains[found > 0].max(),
    }


def among_best(values: pd.Series, top: int) -> "pd.Series[float]":
    """Return with which share each value is among the largest `top`; the shares sum to `top`.

    Values that are tied for the last places share them equally.
    """
    last = values.nlargest(top).iloc[-1]
    above, tied = values > last, values == last
    return above + tied * (top - above.sum()) / tied.sum()


def rank_correlation(first: np.ndarray, second: np.ndarray) -> tuple[float, float, float]:
    """Return Spearman's rank correlation, ties at their mean rank, and its 95% interval.

    The interval is Fisher's, with the variance of Bonett and Wright 2000 (Sample size requirements
    for estimating Pearson, Kendall and Spearman correlations): (1 + ρ²/2) / (n − 3). All are NaN
    where one of the two does not vary.
    """
    from scipy.stats import spearmanr  # slow to import

    if np.ptp(first) == 0 or np.ptp(second) == 0:
        return math.nan, math.nan, math.nan
    rho = float(spearmanr(first, second).statistic)
    middle = math.atanh(min(max(rho, -1 + 1e-12), 1 - 1e-12))
    half = ndtri((1 + LEVEL) / 2) * math.sqrt((1 + rho**2 / 2) / (len(first) - 3))
    return rho, math.tanh(middle - half), math.tanh(middle + half)
