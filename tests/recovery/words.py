"""The words of a tiny model, and texts of them; steps that are counted."""

from collections.abc import Callable

import pytest

from headsweep.experiments.recovery import text_training

WORDS = ["[PAD]", "[END]", "user", "assistant", *(f"w{number}" for number in range(43))]
TEMPLATE = (
    "{% for m in messages %}{{ m['role'] }} {{ m['content'] }} [END] {% endfor %}"
    "{% if add_generation_prompt %}assistant {% endif %}"
)
TEXTS = [
    " ".join(f"w{(start * step) % 43}" for step in range(1, 5 + start % 9))
    for start in range(1, 31)
]
HELD_OUT = TEXTS[:7]


def keep_every_state(patch: pytest.MonkeyPatch) -> None:
    """Have trainings write their state after each step."""
    for name in ("_SECONDS_BETWEEN_STATES", "_WRITES_BETWEEN_STATES"):
        patch.setattr(text_training, name, 0)


def count_steps(patch: pytest.MonkeyPatch, count: Callable[[], object]) -> None:
    """Count before each step of a training from now on."""
    step = text_training._step
    patch.setattr(text_training, "_step", lambda *arguments: (count(), step(*arguments))[1])
