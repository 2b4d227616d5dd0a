"""What the two training loops share: a step's texts, its seed and rate, checks and messages.

The loops stay apart, because they differ in every step. That of learners
(`headsweep.experiments.compression.training`) runs in one process, counts epochs, keeps the best
weights, and may lose heads between two steps. That of decoders on texts
(`headsweep.experiments.recovery.text_training`) runs in any number of processes, counts steps over
all rounds, and may train LoRA matrices only.
"""

import logging
import math
import time
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from headsweep.errors import ModelError
from headsweep.models.learner import Example

_LOG = logging.getLogger(__name__)
_SECONDS_BETWEEN_REPORTS = 30
_BUCKETS = 16  # batches whose texts are sorted by length together, for less padding


class Reports:
    """Logs every 30 seconds how far a training is."""

    def __init__(self, step: int, total: int) -> None:
        self.first, self.total = step, total
        self.begun = self.last = time.monotonic()

    def __call__(self, step: int, losses: Mapping[str, float]) -> None:
        """Report the number of steps done and the present losses, if it is time to."""
        now = time.monotonic()
        if now - self.last > _SECONDS_BETWEEN_REPORTS:
            self.last = now
            left = (now - self.begun) / (step - self.first) * (self.total - step) / 60
            _LOG.info(
                "step %d of %d: %s, %.1f min left", step, self.total, loss_words(losses), left
            )


def derived_seed(seed: int, number: int) -> int:
    """Return a seed for a step, an epoch or a round, by its number."""
    return seed * 1_000_003 + number


def begin_step(optimizer: torch.optim.Optimizer, rate: float, seed: int, step: int) -> None:
    """Set the learning rate of a step, from 0, and a seed of its own for dropout."""
    for group in optimizer.param_groups:
        group["lr"] = rate
    torch.manual_seed(derived_seed(seed, step))


def check_finite(losses: Mapping[str, float], step: int, remedy: str) -> None:
    """Raise a ModelError if a part of the loss at a step, from 1, is not finite."""
    for name, value in losses.items():
        if not math.isfinite(value):
            raise ModelError(
                f"the {name} part of the loss is {value} at step {step}; lower {remedy}"
            )


def decay_groups(parameters: Sequence[Tensor], weight_decay: float) -> list[dict[str, Any]]:
    """Return an optimiser's two groups: matrices with the weight decay, others without."""
    matrices = [parameter for parameter in parameters if parameter.ndim > 1]
    others = [parameter for parameter in parameters if parameter.ndim < 2]
    return [
        {"params": matrices, "weight_decay": weight_decay},
        {"params": others, "weight_decay": 0.0},
    ]


def loss_words(losses: Mapping[str, float]) -> str:
    """Return the parts of a loss in words, for the log."""
    return "loss " + ", ".join(f"{name} {loss:.4g}" for name, loss in losses.items())


def epoch_batches(examples: Sequence[Example], size: int, seed: int, epoch: int) -> list[list[int]]:
    """Return the batches of an epoch as indices of examples; texts of similar length share one."""
    draw = torch.Generator().manual_seed(derived_seed(seed, epoch))
    order = torch.randperm(len(examples), generator=draw).tolist()
    batches = []
    for start in range(0, len(order), size * _BUCKETS):
        bucket = order[start : start + size * _BUCKETS]
        bucket.sort(key=lambda index: len(examples[index].input_ids))
        batches += [bucket[first : first + size] for first in range(0, len(bucket), size)]
    return [batches[place] for place in torch.randperm(len(batches), generator=draw).tolist()]
