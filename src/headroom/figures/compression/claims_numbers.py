"""Claims that state numbers of the paper's solvers, held against what a run measured of them.

A loss is compatible with what is stated where its interval holds it, and is shown where the
interval leaves out zero. Cuts and speed-ups are to come within half a point, or above.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import pandas as pd

from headroom.figures.compression.cells import label
from headroom.figures.compression.evidence import BASELINE, METHOD, Trial
from headroom.figures.compression.families import mixtures_of, ratios_of
from headroom.figures.compression.numbers import accuracy, savings
from headroom.figures.judgement import Judgement, holds_if, unjudged
from headroom.figures.text import percent, points

Judge = Callable[[Sequence[Trial], str], Judgement]
"""Judges trials and the value that a claim states."""

BASE, LARGE = "ATHENA-base", "ATHENA-large"

_WITHIN = 0.005
_PRINTED_BASELINE = 84.4  # percent, ATHENA-base on Math23k

Arms = Callable[[Trial], Mapping[str, str | None]]
"""Finds arms of a trial: what each is called, and its name, or None where it was not tested."""


def condition(model: str, data: str | None, ratio: float, *what: str) -> Judge:
    """Return the judge of one ratio on one solver and dataset.

    Args:
        model: the paper's name of the solver.
        data: the paper's name of the dataset; None for any.
        ratio: part of the heads that is removed.
        what: what the claim's numbers are, in their order: before, after (accuracies, which depend
            on the division of the data and are not judged), drop, parameters, speed, flops, memory.
    """

    def judge(trials: Sequence[Trial], value: str) -> Judgement:
        wanted = f"{model}{f' on {data}' if data else ''} at {100 * ratio:g}%"
        stated = dict(zip(what, _numbers(value), strict=False))
        found = [trial for trial in trials if ratio in ratios_of(trial)]
        own = [t for t in found if t.papers_model == model and data in (None, t.papers_data)]
        if own:
            return _compared(own[0], ratios_of(own[0])[ratio], stated)
        others = [_summary(trial, ratios_of(trial)[ratio], stated) for trial in found]
        return _absent(wanted, others)

    return judge


def arms(find: Arms, *, drop: bool = False, least: bool = False) -> Judge:
    """Return the judge of accuracies of arms at the paper's condition, ATHENA-base on Math23k.

    Args:
        find: finds them, in the order in which the claim states their numbers.
        drop: whether the numbers are losses; else they are accuracies.
        least: whether one number is what all accuracies are said to be above.
    """

    def judge(trials: Sequence[Trial], value: str) -> Judgement:
        numbers = _numbers(value)
        found = {trial.name: (trial, find(trial)) for trial in trials}
        for trial, names in found.values():
            if (
                trial.papers_model == BASE
                and trial.papers_data == "Math23k"
                and all(names.values())
            ):
                given = numbers[:1] * len(names) if least else numbers
                stated = [(-n if drop else n - _PRINTED_BASELINE) / 100 for n in given]
                return _changes(trial, names, stated, least)
        others = [
            f"{trial.title}: {_listed(trial, names)}"
            for trial, names in found.values()
            if any(names.values())
        ]
        return _absent(f"{BASE} on Math23k with these arms", others)

    return judge


def named(*names: str) -> Arms:
    """Return a finder of arms by name."""
    return lambda trial: {label(n): n if n in trial.settings else None for n in names}


def mixed(*alphas: float) -> Arms:
    """Return a finder of the method's arms by alpha."""

    def find(trial: Trial) -> dict[str, str | None]:
        known = mixtures_of(trial, distilled=True)
        return {f"alpha {alpha:g}": known.get(alpha) for alpha in alphas}

    return find


def strata(*names: str) -> Judge:
    """Return the judge of the method's losses on strata, stated in points."""

    def judge(trials: Sequence[Trial], value: str) -> Judgement:
        others = []
        for trial in trials:
            known = set(trial.outcomes["stratum"])
            if not set(names) <= known or not {BASELINE, METHOD} <= set(trial.settings):
                continue
            found = {name: accuracy(trial, METHOD, stratum=name) for name in names}
            text = ", ".join(f"{name} {_interval(own)}" for name, own in found.items())
            if _is_papers(trial):
                stated = [-number / 100 for number in _numbers(value)]
                return _word(f"{trial.title}: {text}", list(found.values()), stated)
            others.append(f"{trial.title}: {text}")
        return _absent(f"{BASE} on Math23k by complexity", others)

    return judge


def _is_papers(trial: Trial) -> bool:
    """Tell whether a trial is of what the paper's Tables 3 and 4 are of."""
    return trial.papers_model == BASE and trial.papers_data == "Math23k"


def _compared(trial: Trial, arm: str, stated: Mapping[str, float]) -> Judgement:
    why = _summary(trial, arm, stated)
    saved = savings(trial, arm)
    most = {
        "parameters": [saved["parameters_removed"], saved["whole_removed"]],
        "speed": [saved["faster_small"], saved["faster_large"]],
        "flops": [saved["flops_removed"]],
        "memory": [saved["weight_removed"], saved["peak_removed"]],
    }
    asked = {name: pd.Series(values).max() for name, values in most.items() if name in stated}
    if any(found < stated[name] / 100 - _WITHIN for name, found in asked.items()):
        return holds_if(False, why)
    if any(map(pd.isna, asked.values())):
        return unjudged(f"{why}: not all was measured")
    if "drop" not in stated:
        return holds_if(True, why)
    return _word(why, [accuracy(trial, arm)], [-stated["drop"] / 100])


def _changes(
    trial: Trial, names: Mapping[str, str | None], stated: Sequence[float], least: bool
) -> Judgement:
    why = f"{trial.title}: {_listed(trial, names)}"
    found = [accuracy(trial, name) for name in names.values() if name]
    if not least:
        return _word(why, found, stated)
    if all(own["change_low"] > bound for own, bound in zip(found, stated, strict=True)):
        return holds_if(True, why)
    below = any(own["change_high"] < bound for own, bound in zip(found, stated, strict=True))
    return holds_if(False, why) if below else unjudged(f"{why}: intervals hold both")


def _word(why: str, found: Sequence[Mapping[str, Any]], stated: Sequence[float]) -> Judgement:
    """Judge stated changes: one outside its interval fails, an interval with zero leaves open."""
    within = [
        own["change_low"] - 1e-9 <= value <= own["change_high"] + 1e-9
        for own, value in zip(found, stated, strict=False)
    ]
    if not all(within):
        return holds_if(False, why)
    if all(own["change_high"] < 0 or own["change_low"] > 0 for own in found):
        return holds_if(True, why)
    return unjudged(f"{why}: both 0 and what is stated are possible")


def _summary(trial: Trial, arm: str, stated: Mapping[str, float]) -> str:
    found, saved = accuracy(trial, arm), savings(trial, arm)
    texts = {
        "drop": f"accuracy {_interval(found)}",
        "parameters": f"{percent(saved['parameters_removed'])} of the encoder's parameters, "
        f"{percent(saved['whole_removed'])} of all",
        "speed": f"passes {percent(saved['faster_small'])} to {percent(saved['faster_large'])} "
        "faster (t0/t1 − 1)",
        "flops": f"{percent(saved['flops_removed'])} of the encoder's FLOPs",
        "memory": f"{percent(saved['weight_removed'])} of the weights' bytes",
    }
    return f"{trial.title}: " + "; ".join(texts[name] for name in texts if name in stated)


def _listed(trial: Trial, names: Mapping[str, str | None]) -> str:
    found = {shown: accuracy(trial, name) for shown, name in names.items() if name}
    return ", ".join(f"{shown} {_interval(own)}" for shown, own in found.items())


def _interval(found: Mapping[str, Any]) -> str:
    return (
        f"{points(found['change'])} points ({points(found['change_low'])} to "
        f"{points(found['change_high'])})"
    )


def _absent(wanted: str, others: Sequence[str]) -> Judgement:
    if not others:
        return unjudged(f"the run has no {wanted}")
    return unjudged(f"the run has no {wanted}; measured on {'; '.join(others)}")


def _numbers(text: str) -> list[float]:
    return [float(number) for number in re.findall(r"\d+(?:\.\d+)?", text)]
