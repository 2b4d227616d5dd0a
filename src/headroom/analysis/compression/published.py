"""The paper's numbers beside a run's: looked up by data, model and condition, as parts of 1."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from headroom.analysis.arithmetic import ENCODERS
from headroom.analysis.published import (
    COMPRESSION,
    COMPRESSION_FACTORS,
    COMPRESSION_SIZES,
    COMPRESSION_STRATEGIES,
)
from headroom.analysis.sheet import read_csv

STRATEGIES = {
    "baseline": "baseline",
    "pruning_only": "pruning only",
    "without_entropy": "without entropy",
    "without_norm": "without norm",
    "response_distillation": "with response distillation",
    "feature_distillation": "with feature distillation",
    "random": "random pruning",
    "global": "global threshold pruning",
    "attention_visualisation": "attention visualization pruning",
    "distillation_only": "distillation only",
    "full": "ours",
}
"""The paper's name of each arm of its Table 4."""

STRATA = {"low": "Simple", "medium": "Medium", "high": "Complex", "all": "All"}
"""The paper's name of each complexity."""

_TABLES = ("Math23k", 0.25)  # data and ratio of its Tables 3 and 4
_ALONE = {0.0: "without_norm", 0.5: "pruning_only", 1.0: "without_entropy"}  # no distillation


@dataclass(frozen=True)
class Published:
    """The paper's Tables 1-4, asked for one condition at a time; empty where it has none."""

    ratios: pd.DataFrame
    sizes: pd.DataFrame
    factors: pd.DataFrame
    strategies: pd.DataFrame

    @classmethod
    def read(cls, folder: Path) -> "Published":
        """Read the tables.

        Raises:
            TableError: one is missing or damaged.
        """
        names = (COMPRESSION, COMPRESSION_SIZES, COMPRESSION_FACTORS, COMPRESSION_STRATEGIES)
        return cls(*(read_csv(folder / name, ["accuracy_pct"]) for name in names))

    def condition(self, data: str | None, ratio: float, model: str) -> dict[str, Any]:
        """Return a row of Tables 1 and 2, and what its heads can hold by arithmetic."""
        table = self.ratios if model == "ATHENA-base" else self.sizes
        row = _first(table, dataset=data, model=model, pruning_ratio_pct=_percent(ratio))
        base = _first(table, dataset=data, model=model, pruning_ratio_pct=0)
        held = ENCODERS[model].parameter_cut(ratio) if row is not None else np.nan
        return {
            "published_model": model if row is not None else None,
            "published_accuracy": _part(row, "accuracy_pct"),
            "published_change": _part(row, "accuracy_pct") - _part(base, "accuracy_pct"),
            "published_parameters": _part(row, "param_reduction_pct"),
            "published_parameters_at_most": held,
            "published_speedup": _part(row, "speedup_pct"),
            "published_flops": _part(row, "flops_reduction_pct"),
        }

    def alpha(
        self, data: str | None, ratio: float, alpha: float, *, distilled: bool
    ) -> dict[str, Any]:
        """Return the accuracy at a mixture: of Table 3(a), or of Table 4 without distillation."""
        row = None
        if (data, ratio) == _TABLES and distilled:
            row = _first(self.factors, factor="alpha", level=str(alpha))
        elif (data, ratio) == _TABLES and alpha in _ALONE:
            row = self._strategy(_ALONE[alpha])
        found = _part(row, "accuracy_pct")
        before = _part(self._strategy("baseline"), "accuracy_pct")
        return {"published_accuracy": found, "published_change": found - before}

    def stratum(self, data: str | None, ratio: float, stratum: str) -> dict[str, Any]:
        """Return a row of Table 3(b)."""
        known = (data, ratio) == _TABLES and stratum in STRATA
        row = _first(self.factors, level=STRATA[stratum]) if known else None
        return {
            "published_baseline": _part(row, "baseline_accuracy_pct"),
            "published_accuracy": _part(row, "accuracy_pct"),
            "published_change": _part(row, "accuracy_change_pct"),
        }

    def arm(self, data: str | None, ratio: float, arm: str) -> dict[str, Any]:
        """Return a row of Table 4."""
        row = self._strategy(arm) if (data, ratio) == _TABLES else None
        return {
            "published_accuracy": _part(row, "accuracy_pct"),
            "published_parameters": _part(row, "param_reduction_pct"),
            "published_speedup": _part(row, "speedup_pct"),
            "published_memory": _part(row, "memory_reduction_pct"),
        }

    def alphas(self, *, distilled: bool) -> pd.DataFrame:
        """Return all published mixtures: ``alpha`` and ``published_change``."""
        levels = (0.0, 0.3, 0.5, 0.7, 1.0)
        rows = [{"alpha": a, **self.alpha(*_TABLES, a, distilled=distilled)} for a in levels]
        return pd.DataFrame(rows).dropna(subset="published_change")

    def _strategy(self, arm: str) -> pd.Series | None:
        return _first(self.strategies, strategy=STRATEGIES.get(arm))


def _first(table: pd.DataFrame, **wanted: Any) -> pd.Series | None:
    for name, value in wanted.items():
        table = table[table[name] == value]
    return table.iloc[0] if len(table) else None


def _part(row: pd.Series | None, column: str) -> float:
    return np.nan if row is None or column not in row else float(row[column]) / 100


def _percent(ratio: float) -> int:
    return round(100 * ratio) if abs(100 * ratio - round(100 * ratio)) < 1e-9 else -1
