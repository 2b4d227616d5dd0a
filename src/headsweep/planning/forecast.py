"""Predict how long a config's answers take, from rates that a pilot has measured.

A step over r rows takes s₀ + s₁ · r: reading the weights, and the products of each row. Tokens are
counted at the rate of a full width. Towards the end of a unit of work fewer rows are left, and each
step still costs s₀; that is counted as additional steps.
"""

import math
from typing import NamedTuple

from headsweep.config import Config
from headsweep.planning.assumptions import LENGTHS
from headsweep.planning.batches import PlannedBatch
from headsweep.planning.cost import answer_length, question_count
from headsweep.planning.rows_at_once import UNIT_VARIANTS, questions_of_unit
from headsweep.variants import FAMILIES, Variant

_JOB_SECONDS = 0.25
"""CPU time of the job that asks for a variant's table."""


class Speed(NamedTuple):
    """What one worker of a run does in a second; all workers were busy while it was measured."""

    rows: int
    """Decoded together at full width."""
    prefill: float
    """Tokens of prompts a second."""
    decode: float
    """New tokens a second, of all rows together, at full width."""
    narrow: float
    """Steps a second with one row."""

    @property
    def fixed(self) -> float:
        """Seconds of a step that do not depend on its rows: s₀."""
        if self.rows == 1:
            return 0.0
        wide = self.rows / self.decode
        row_seconds = max(0.0, wide - 1 / self.narrow) / (self.rows - 1)
        return max(0.0, 1 / self.narrow - row_seconds)


class Habits(NamedTuple):
    """What a model's answers are like."""

    prompt: float
    """Mean tokens of a prompt."""
    length: float
    """Mean tokens of an answer."""
    longest: float
    """Tokens of the longest answer."""
    verified: float
    """Mean share of a head's answer that repeats the beginning of the base model's."""


class Software(NamedTuple):
    """The software that answers, as measured."""

    speed: Speed
    workers: int
    """How many workers a run has on this machine."""
    verifies: bool = True
    """Whether heads' answers are verified against the base model's, as headsweep's engine does."""


def model_seconds(
    config: Config,
    like: PlannedBatch,
    batches: list[PlannedBatch],
    habits: Habits,
    software: Software,
) -> float:
    """Return the seconds that this machine takes for some batches of one model.

    `habits` are those of the answers of the batch `like`; other benchmarks' lengths differ from
    them as the plan assumes.
    """
    return sum(
        _batch_seconds(config, batch, _scaled(config, like, batch, habits), software)
        for batch in batches
    )


def _scaled(config: Config, like: PlannedBatch, batch: PlannedBatch, habits: Habits) -> Habits:
    """Return the habits that are expected in a batch."""
    limit = config.decodings[batch.decoding].max_new_tokens
    benchmarks = [config.questions[either.questions].benchmark for either in (like, batch)]
    piloted_prompt, prompt = (LENGTHS[benchmark][0] for benchmark in benchmarks)
    longer = answer_length(config, batch) / answer_length(config, like)
    return habits._replace(
        prompt=habits.prompt * prompt / piloted_prompt,
        length=min(limit, habits.length * longer),
        longest=min(limit, habits.longest * longer),
    )


def _batch_seconds(
    config: Config, batch: PlannedBatch, habits: Habits, software: Software
) -> float:
    """Return the seconds of one batch: prefill and decoding, and the narrow end of each unit.

    What is verified is fed like a prompt, from the pruned layer on, in place of being decoded.
    """
    questions = question_count(config.questions[batch.questions])
    decoding = config.decodings[batch.decoding]
    layers = config.models[batch.model].layers
    speed = software.speed
    seconds = 0.0
    for variant in batch.variants:
        decoded = habits.length * decoding.samples
        fed = habits.prompt
        if software.verifies and decoding.greedy and _is_verified(variant):
            decoded *= 1 - habits.verified
            fed += habits.verified * habits.length
            fed *= 1 - (variant.layer or 0) / layers
        seconds += questions * (fed / speed.prefill + decoded / speed.decode)
    steps = max(0.0, habits.longest - habits.length)
    units = _units(questions, len(batch.variants), software.workers)
    jobs = len(batch.variants) * _JOB_SECONDS
    return (seconds + units * steps * speed.fixed + jobs) / software.workers


def _is_verified(variant: Variant) -> bool:
    """Tell whether a variant's answers begin as the base model's, which are verified for it."""
    family = FAMILIES[variant.kind]
    return not (variant.is_base or variant.kind == "numeric" or family.on_weights)


def _units(questions: int, variants: int, workers: int) -> int:
    """Return into how many units of work an engine divides a batch."""
    units = 0
    left = questions
    while left > 0:
        left -= questions_of_unit(left, workers)
        units += 1
    return units * math.ceil(variants / UNIT_VARIANTS)
