"""The tokens that rows choose from logits, decoded or compared with a draft."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from itertools import islice

import torch
from jaxtyping import Float, Int
from torch import Tensor

from headsweep.engine.check import Check
from headsweep.engine.operators import PLAIN, Operators
from headsweep.engine.requests import NotFiniteError, Row

Choice = tuple[int, float]  # a token, and the gap of the best two logits where it was chosen


def agreed_length(draft: Sequence[int], own_choices: Sequence[Choice]) -> int:
    """Return how many first tokens of a draft are a row's own choices."""
    for place, (token, (own_token, _)) in enumerate(zip(draft, own_choices, strict=False)):
        if token != own_token:
            return place
    return len(draft)


def not_finite() -> NotFiniteError:
    """Return the error of logits that are infinite or no number."""
    return NotFiniteError("the model's logits are not finite")


def choices(
    logits: Float[Tensor, "places vocabulary"],
    owners: Iterable[tuple[Row, int]],
    watch: Check | None,
    operators: Operators = PLAIN,
    drawn: Int[Tensor, " places"] | None = None,
) -> Iterator[Choice]:
    """Return the token chosen greedily at each place, and the gap of the best two logits there.

    With `drawn`, these tokens are returned in place of the best. `owners` may have more items than
    there are places. All is read from the device at once.

    Raises:
        NotFiniteError: a logit is infinite or no number.
    """
    if watch is not None and watch.watching:
        for place, (row, number) in enumerate(islice(owners, len(logits))):
            if watch.wants(row, number):
                watch.keep(row, number, logits[place])
    tokens, gaps = operators.best_two(logits)
    if drawn is not None:
        tokens = drawn
    # Float64 holds a token's number exactly.
    numbers, gaps_read = torch.stack([tokens.double(), gaps.double()]).tolist()
    if not all(map(math.isfinite, gaps_read)):
        raise not_finite()
    return zip(map(int, numbers), gaps_read, strict=True)
