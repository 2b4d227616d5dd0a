"""What a compression found, in sentences: what it cost, and which of its parts help."""

from collections.abc import Iterator
from typing import Any

import pandas as pd

from headroom.figures.compression.evidence import BASELINE, METHOD, Trial
from headroom.figures.compression.families import ratios_of
from headroom.figures.compression.knee import knee
from headroom.figures.compression.notices import NOTABLE
from headroom.figures.compression.numbers import Difference, accuracy, difference, savings
from headroom.figures.text import percent, points

QUESTIONS = (
    (
        "Recursion (the teacher of each round is the round before it, not the unpruned solver)",
        (METHOD, "joint_single_teacher"),
    ),
    ("Distillation (beside pruning alone)", (METHOD, "pruning_only")),
    ("Ranking heads (beside a random draw, both in one shot)", ("global", "random")),
    ("Removing heads in rounds (beside one shot)", (METHOD, "global")),
    ("Entropy in the score (beside the norm alone)", ("pruning_only", "without_entropy")),
    ("The norm in the score (beside entropy alone)", ("pruning_only", "without_norm")),
    (
        "Pruning a larger solver (beside a small one from scratch)",
        (METHOD, "small_from_scratch"),
    ),
)
"""What two arms of the ablation differ in, and which they are."""


def findings(trial: Trial) -> list[str]:
    """Return what a compression found, one sentence each; intervals are 95%."""
    return [*_cost(trial), *_saved(trial), *_parts(trial), *_knee(trial), *_eight_bits(trial)]


def verdict(found: Difference) -> str:
    """Say what an interval shows: more, less, or neither; one seed shows nothing of others."""
    word = "help" if found.low > 0 else "harm" if found.high < 0 else None
    if word is None:
        return "not shown to help"
    return f"shown to {word}" + (" in this one training" if found.seeds == 1 else "")


def _cost(trial: Trial) -> Iterator[str]:
    if not {BASELINE, METHOD} <= set(trial.settings):
        return
    before, after = accuracy(trial, BASELINE), accuracy(trial, METHOD)
    removed, heads = trial.heads(METHOD)
    loss, low, high = (after[f"change{end}"] for end in ("", "_low", "_high"))
    shown = "a loss is shown" if high < 0 else "a gain is shown" if low > 0 else "no loss is shown"
    if high >= 0 and low < -NOTABLE:
        shown += f", but one of more than {100 * NOTABLE:g} points is not ruled out"
    yield (
        f"Removing {removed} of {heads} heads of {trial.title} changes accuracy by {points(loss)} "
        f"points ({points(low)} to {points(high)}), from {percent(before['accuracy'])} to "
        f"{percent(after['accuracy'])}: {shown} ({tested(trial, METHOD)})."
    )


def tested(trial: Trial, arm: str) -> str:
    """Say on how many examples and under how many seeds an arm was tested."""
    found = accuracy(trial, arm)
    return f"{found['n']} examples, " + (
        f"{found['seeds']} seeds" if found["seeds"] > 1 else "one seed"
    )


def _saved(trial: Trial) -> Iterator[str]:
    if METHOD not in trial.settings:
        return
    found = savings(trial, METHOD)
    if pd.isna(found["faster_large"]):
        return
    yield (
        f"It saves {percent(found['parameters_removed'])} of the encoder's parameters, "
        f"{percent(found['whole_removed'])} of all, and {percent(found['flops_removed'])} of the "
        f"encoder's arithmetic; passes are {_faster(found, 'small')} and "
        f"{_faster(found, 'large')}, where arithmetic allows {percent(found['speedup_at_most'])}."
    )


def _faster(found: dict[str, Any], size: str) -> str:
    """State a speed-up, or that the timings spread too far to show one."""
    batch = f"batch {found[f'{size}_batch']}"
    if not found[f"apart_{size}"]:
        return f"neither faster nor slower beyond the spread of the timings ({batch})"
    change = found[f"faster_{size}"]
    return f"{percent(abs(change))} {'faster' if change > 0 else 'slower'} ({batch})"


def _parts(trial: Trial) -> Iterator[str]:
    for what, (arm, other) in QUESTIONS:
        if {arm, other} <= set(trial.settings):
            found = difference(trial, arm, other)
            yield (
                f"{what}: {points(found.value)} points ({points(found.low)} to "
                f"{points(found.high)}), {verdict(found)}."
            )


def _knee(trial: Trial) -> Iterator[str]:
    found = knee(trial)
    if found is None:
        return
    tried = ", ".join(f"{100 * ratio:g}%" for ratio in ratios_of(trial))
    most, safe = (
        f"up to {100 * ratio:g}% are" if ratio else "none is" for ratio in (found.ratio, found.safe)
    )
    yield (
        f"Of the ratios {tried}, {most} not shown to lose more than {100 * NOTABLE:g} points (95% "
        f"range of the largest {100 * found.low:g} to {100 * found.high:g}%), and {safe} shown to "
        "lose less."
    )


def _eight_bits(trial: Trial) -> Iterator[str]:
    for arm in (BASELINE, METHOD):
        if trial.right(arm, quantised=True).empty:
            continue
        found, saved = (of(trial, arm, quantised=True) for of in (accuracy, savings))
        change = (
            f"{points(found['change'])} points ({points(found['change_low'])} to "
            f"{points(found['change_high'])})"
        )
        what = "Eight bits alone" if arm == BASELINE else "Pruning and eight bits together"
        weights = (
            ""
            if pd.isna(saved["weight_removed"])
            else (f" and save {percent(saved['weight_removed'])} of the weights' bytes")
        )
        yield f"{what} change accuracy by {change}{weights}."
