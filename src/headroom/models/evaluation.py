"""Evaluation mode, and answering texts of unlike length side by side."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TypeVar

from torch import nn

_Example = TypeVar("_Example")
_Answer = TypeVar("_Answer")


@contextmanager
def evaluating(model: nn.Module) -> Iterator[None]:
    """Put a model into evaluation mode; put its mode back at the end."""
    training = model.training
    model.eval()
    try:
        yield
    finally:
        model.train(training)


def answer_by_length(
    examples: Sequence[_Example],
    length: Callable[[_Example], int],
    at_once: int,
    answer: Callable[[list[_Example]], Sequence[_Answer]],
) -> list[_Answer]:
    """Answer examples, those of like length together: less padding.

    Args:
        examples: what is answered.
        length: tells how many tokens of one are read.
        at_once: how many are answered together.
        answer: gives the answers to some, in their order.

    Returns:
        The answers, in the order of `examples`.
    """
    order = sorted(range(len(examples)), key=lambda index: length(examples[index]))
    found: dict[int, _Answer] = {}
    for start in range(0, len(order), at_once):
        indices = order[start : start + at_once]
        found.update(zip(indices, answer([examples[i] for i in indices]), strict=True))
    return [found[index] for index in range(len(examples))]
