"""The second paper's claims, held against its own tables and against arithmetic.

A number in a claim is looked up in a table. One that the tables bear out still fails where removed
heads cannot save as much (`headroom.figures.arithmetic`).
"""

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd

from headroom.figures.arithmetic import ENCODERS, LONGEST
from headroom.figures.judgement import Judgement, holds_if, unjudged
from headroom.figures.listing import rows_of
from headroom.figures.published import (
    COMPRESSION,
    COMPRESSION_FACTORS,
    COMPRESSION_SIZES,
    COMPRESSION_STRATEGIES,
)
from headroom.figures.tables import read_csv

COMPARABLE = 2.0
"""Largest ratio of two losses that counts as comparable; the paper names no number."""

_BASE, _LARGE = "ATHENA-base", "ATHENA-large"


Row = dict[str, Any]


@dataclass(frozen=True)
class Printed:
    """The paper's Tables 1-4."""

    ratios: pd.DataFrame
    sizes: pd.DataFrame
    factors: pd.DataFrame
    strategies: pd.DataFrame

    @classmethod
    def read(cls, folder: Path) -> "Printed":
        """Read the tables.

        Raises:
            TableError: one is missing or damaged.
        """
        names = (COMPRESSION, COMPRESSION_SIZES, COMPRESSION_FACTORS, COMPRESSION_STRATEGIES)
        return cls(*(read_csv(folder / name, ["accuracy_pct"]) for name in names))

    def condition(self, model: str, data: str, ratio: int) -> Row:
        """Return a row of Table 1 (base model) or Table 2, with the loss of accuracy."""
        table = self.ratios if model == _BASE else self.sizes
        row, before = (
            _row(table, model=model, dataset=data, pruning_ratio_pct=r) for r in (ratio, 0)
        )
        before_it = before["accuracy_pct"]
        return {**row, "before": before_it, "drop": before_it - row["accuracy_pct"]}

    def alpha(self, value: float) -> float:
        """Return the accuracy at a mixture of norm and entropy, from Table 3(a)."""
        return float(_row(self.factors, factor="alpha", level=str(value))["accuracy_pct"])

    def problems(self, level: str) -> Row:
        """Return a row of Table 3(b)."""
        return _row(self.factors, level=level)

    def strategy(self, name: str) -> Row:
        """Return a row of Table 4."""
        return _row(self.strategies, strategy=name)


Judge = Callable[[Printed, str], Judgement]


def cuts(model: str, data: str, ratio: int, *columns: str) -> Judge:
    """Return the judge of a condition's numbers, in the order in which the claim states them."""

    def judge(printed: Printed, value: str) -> Judgement:
        row = printed.condition(model, data, ratio)
        found = _agree(value, [float(row[column]) for column in columns])
        return _within_arithmetic(found, model, ratio, {name: row[name] for name in columns})

    return judge


def _within_arithmetic(found: Judgement, model: str, ratio: int, row: Row) -> Judgement:
    """Let a judgement fail where numbers exceed what the removed heads can save."""
    encoder = ENCODERS[model]
    flops = encoder.flops_cut(ratio / 100, LONGEST)
    most = {
        "param_reduction_pct": 100 * encoder.parameter_cut(ratio / 100),
        "flops_reduction_pct": 100 * flops,
        "speedup_pct": 100 * (1 / (1 - flops) - 1),
    }
    beyond = [f"{most[name]:.1f}" for name in row if name in most and row[name] > most[name]]
    if not beyond:
        return found
    why = f"{found.why}; removing these heads saves at most {', '.join(beyond)} (arithmetic)"
    return holds_if(False, why)


def looked_up(*numbers: Callable[[Printed], float], within: float = 0.051) -> Judge:
    """Return the judge of numbers that stand in a table, in the order of the claim."""

    def judge(printed: Printed, value: str) -> Judgement:
        return _agree(value, [number(printed) for number in numbers], within)

    return judge


def encoder_size(model: str) -> Judge:
    """Return the judge of an encoder's stated size in millions of parameters."""

    def judge(printed: Printed, value: str) -> Judgement:
        encoder = ENCODERS[model]
        stated = _numbers(value)
        shape = [encoder.layers, encoder.width, encoder.heads]
        millions = encoder.parameters / 1e6
        right = stated[:3] == shape and abs(millions / stated[3] - 1) < 0.01
        return holds_if(right, f"RoBERTa's shape has {millions:.1f}M parameters without task head")

    return judge


def heads_hold(model: str, ratio: int) -> Judge:
    """Return the judge of whether pruned heads hold as many parameters as are said to go."""

    def judge(printed: Printed, value: str) -> Judgement:
        most = 100 * ENCODERS[model].parameter_cut(ratio / 100)
        why = f"{ratio}% of the heads hold {most:.1f}% of the parameters, not {_numbers(value)[0]}%"
        return holds_if(_numbers(value)[0] <= most, why)

    return judge


def _overall(printed: Printed, value: str) -> Judgement:
    """Judge numbers stated as "about" and "over": to one point."""
    row = printed.strategy("ours")
    loss = float(printed.strategy("baseline")["accuracy_pct"] - row["accuracy_pct"])
    columns = [*_SAVED, "memory_reduction_pct"]
    found = _agree(value, [loss, *(float(row[column]) for column in columns)], within=1.0)
    return _within_arithmetic(found, _BASE, 25, {name: row[name] for name in columns})


def _same_twice(printed: Printed, value: str) -> Judgement:
    strategies = [printed.strategy(f"without {part}") for part in ("norm", "entropy")]
    mixed, bare = [printed.alpha(0.0), printed.alpha(1.0)], [s["accuracy_pct"] for s in strategies]
    why = f"Table 3(a) {mixed[0]:.1f}, {mixed[1]:.1f}; Table 4 {bare[0]:.1f}, {bare[1]:.1f}"
    return holds_if(mixed == bare and set(mixed) <= set(_numbers(value)), why)


def _best_alpha(printed: Printed, value: str) -> Judgement:
    own = printed.factors[printed.factors["factor"] == "alpha"]
    accuracy, level = max((row.accuracy_pct, float(row.level)) for row in rows_of(own))
    return _agree(value, [level, accuracy])


def _above_between(printed: Printed, value: str) -> Judgement:
    least = min(printed.alpha(alpha) for alpha in (0.3, 0.5, 0.7))
    return holds_if(least > _numbers(value)[0], f"the least is {least:.1f}")


def _larger_loses_less(printed: Printed, value: str) -> Judgement:
    drops = {
        data: [printed.condition(model, data, 25)["drop"] for model in (_BASE, _LARGE)]
        for data in ("Math23k", "ASDiv-A")
    }
    why = "; ".join(f"{data}: base −{a:.1f}, large −{b:.1f}" for data, (a, b) in drops.items())
    return holds_if(all(b < a - 1e-6 for a, b in drops.values()), f"loss at 25%: {why}")


def _comparable(printed: Printed, value: str) -> Judgement:
    best = max(printed.alpha(alpha) for alpha in (0.0, 0.3, 0.5, 0.7, 1.0))
    entropy, norm = (best - printed.alpha(alpha) for alpha in (0.0, 1.0))
    why = f"entropy alone loses {entropy:.1f} against the best mixture, norm alone {norm:.1f}"
    apart = max(entropy, norm) / min(entropy, norm)
    return holds_if(
        apart <= COMPARABLE, f"{why}; comparable is taken as a factor of {COMPARABLE:g}"
    )


def _reduces(printed: Printed, value: str) -> Judgement:
    table = printed.ratios.sort_values("pruning_ratio_pct")
    columns = ["param_reduction_pct", "flops_reduction_pct"]
    rising = [
        own[column].is_monotonic_increasing
        for _, own in table.groupby("dataset")
        for column in columns
    ]
    return holds_if(all(rising), "parameters and FLOPs in Table 1; memory is not there")


def _ratios(printed: Printed, value: str) -> Judgement:
    found = sorted(set(printed.ratios["pruning_ratio_pct"]) - {0})
    return holds_if(found == _numbers(value), f"Table 1: {', '.join(map(str, found))}")


def _shared(printed: Printed, value: str) -> Judgement:
    own = printed.strategies[printed.strategies["speedup_pct"] > 0]
    found = own[["speedup_pct", "memory_reduction_pct"]].drop_duplicates()
    same = len(found) == 1 and list(found.iloc[0]) == _numbers(value)
    return holds_if(same, f"{len(own)} strategies, {len(found)} different pairs of figures")


def _single_round(printed: Printed, value: str) -> Judgement:
    rounds = [printed.strategy(f"with {kind} distillation") for kind in ("response", "feature")]
    gains = sorted(printed.strategy("ours")["accuracy_pct"] - row["accuracy_pct"] for row in rounds)
    why = f"Table 4: {gains[0]:.1f} to {gains[1]:.1f}"
    return holds_if(any(abs(gain - _numbers(value)[0]) < 0.051 for gain in gains), why)


def _accuracy(strategy: str) -> Callable[[Printed], float]:
    return lambda printed: float(printed.strategy(strategy)["accuracy_pct"])


def _problem(level: str, column: str) -> Callable[[Printed], float]:
    return lambda printed: float(printed.problems(level)[column])


def _below(printed: Printed) -> float:
    row = printed.strategy
    return float(row("baseline")["accuracy_pct"] - row("without entropy")["accuracy_pct"])


def _row(table: pd.DataFrame, **wanted: Any) -> Row:
    """Return the first row in which columns have the wanted values."""
    for name, value in wanted.items():
        table = table[table[name] == value]
    return {str(name): value for name, value in table.to_dict("records")[0].items()}


def _numbers(text: str) -> list[float]:
    """Return the numbers of a claim, without signs."""
    return [float(number) for number in re.findall(r"\d+(?:\.\d+)?", text)]


def _agree(value: str, found: Sequence[float], within: float = 0.051) -> Judgement:
    stated = _numbers(value)
    why = f"the tables print {', '.join(f'{abs(number):g}' for number in found)}"
    if len(stated) != len(found):
        return unjudged(f"{why}; the claim has {len(stated)} numbers")
    same = all(abs(a - abs(b)) < within for a, b in zip(stated, found, strict=True))
    return holds_if(same, why)


_ACCURACY = ("before", "accuracy_pct", "drop")
_SAVED = ("param_reduction_pct", "speedup_pct")


JUDGES: dict[str, Judge] = {
    "Math23k, 30% pruning: parameter reduction": cuts(_BASE, "Math23k", 30, _SAVED[0]),
    "Math23k, 30% pruning: speedup": cuts(_BASE, "Math23k", 30, _SAVED[1]),
    "Math23k, 30% pruning: FLOPs reduction": cuts(_BASE, "Math23k", 30, "flops_reduction_pct"),
    "Math23k, 30% pruning: accuracy": cuts(_BASE, "Math23k", 30, *_ACCURACY),
    "Math23k, increasing the ratio reduces parameters, memory and computation": _reduces,
    "ASDiv-A, 25% pruning: accuracy": cuts(_BASE, "ASDiv-A", 25, *_ACCURACY),
    "ASDiv-A, 25% pruning: parameter reduction / speedup": cuts(_BASE, "ASDiv-A", 25, *_SAVED),
    "ATHENA-large, Math23k, 25%: accuracy drop / parameters / speed": cuts(
        _LARGE, "Math23k", 25, "drop", *_SAVED
    ),
    "ATHENA-base, Math23k, 25%: accuracy drop / parameters / speed": cuts(
        _BASE, "Math23k", 25, "drop", *_SAVED
    ),
    "ATHENA-large, ASDiv-A, 25%: accuracy / parameters / speed": cuts(
        _LARGE, "ASDiv-A", 25, *_ACCURACY, *_SAVED
    ),
    "larger models contain more redundant heads, making the optimization more effective": (
        _larger_loses_less
    ),
    "best alpha": _best_alpha,
    "alpha = 0 / alpha = 1": looked_up(lambda t: t.alpha(0.0), lambda t: t.alpha(1.0)),
    "accuracy for alpha between 0.3 and 0.7": _above_between,
    "same accuracies in Table 3(a) and Table 4": _same_twice,
    "simple / complex problems: accuracy drop": looked_up(
        _problem("Simple", "accuracy_change_pct"), _problem("Complex", "accuracy_change_pct")
    ),
    'Table 3(b) "All" row': looked_up(
        _problem("All", "baseline_accuracy_pct"),
        _problem("All", "accuracy_pct"),
        _problem("All", "accuracy_change_pct"),
    ),
    "removing entropy": looked_up(_accuracy("without entropy"), _below),
    "weight norm and entropy contribute comparably": _comparable,
    "pruning only / without norm": looked_up(_accuracy("pruning only"), _accuracy("without norm")),
    "response / feature distillation": looked_up(
        _accuracy("with response distillation"), _accuracy("with feature distillation")
    ),
    "random / global threshold / attention visualization pruning": looked_up(
        _accuracy("random pruning"),
        _accuracy("global threshold pruning"),
        _accuracy("attention visualization pruning"),
    ),
    "distillation only": looked_up(_accuracy("distillation only")),
    "overall at 25%: accuracy loss / parameters / speed / memory": _overall,
    "all pruned variants of Table 4 share speed and memory figures": _shared,
    "recursive distillation gain over single-round distillation": _single_round,
    "pruning ratios tested": _ratios,
    "ATHENA-base configuration": encoder_size(_BASE),
    "ATHENA-large configuration": encoder_size(_LARGE),
    "parameter reduction against what heads hold (ATHENA-base, 30%)": heads_hold(_BASE, 30),
    "parameter reduction against what heads hold (ATHENA-large, 25%)": heads_hold(_LARGE, 25),
}
"""The judge of each claim that the paper's tables or arithmetic can decide."""
