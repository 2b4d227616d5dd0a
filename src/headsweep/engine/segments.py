"""Which tokens of a pass belong to which row, and where they lie in its slot.

The tokens of all rows of a pass lie one after the other, without padding.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import accumulate
from typing import NamedTuple

import numpy as np
import torch
from jaxtyping import Bool, Complex, Int
from torch import Tensor


class Bounds(NamedTuple):
    """Where rows begin and end, as `flash` reads it: int32, on the device."""

    queries: Int[Tensor, " rows+1"]  # where each row's tokens begin among all, and their number
    keys: Int[Tensor, " rows+1"]  # where each row's slot begins among the columns of all slots
    lengths: Int[Tensor, " rows"]  # how many columns of its slot each row has filled


@dataclass(eq=False)
class Segments:
    """Successive tokens of some rows, row after row.

    Two rows with slots [4, 7], starts [10, 12] and counts [3, 1] have four tokens in this pass:
    those at columns 10, 11 and 12 of slot 4, and the one at column 12 of slot 7. So their ends are
    [13, 13], and their offsets [0, 3, 4].
    """

    slots: Sequence[int]
    starts: Sequence[int]  # column of each row's first token in this pass, also its position
    counts: list[int]  # number of tokens of each row in this pass
    device: torch.device
    keep: list[int]  # how many last tokens of each row need an output of the last layer

    def __post_init__(self) -> None:
        rows = zip(self.starts, self.counts, strict=True)
        self.ends = [start + count for start, count in rows]
        """Column after each row's last token."""
        self.offsets = [0, *accumulate(self.counts)]
        """Place of each row's first token among all tokens; after them, the number of tokens."""
        self.most_tokens = max(self.counts)
        """Largest number of tokens in a row."""
        self.width = max(self.ends)
        """Largest number of columns that a token sees."""
        self._is_ragged = min(self.counts) < self.most_tokens
        starts_are_equal = min(self.starts) == max(self.starts)
        self.has_equal_columns = not self._is_ragged and starts_are_equal
        """Whether all rows have the same columns."""
        self._seen: dict[int | None, Tensor] = {}
        self._rotations: Tensor | None = None
        self._bounds: dict[int, Bounds] = {}

    @cached_property
    def row_of_token(self) -> Int[Tensor, " tokens"]:
        """The row of each token, counted from the first: [0, 0, 0, 1] above."""
        numbers = np.repeat(range(len(self.counts)), self.counts)
        return torch.as_tensor(numbers, device=self.device)

    @cached_property
    def destinations(self) -> Int[Tensor, "2 tokens"]:
        """The slot and the column of each token; one copy to the device for both."""
        slots = np.repeat(self.slots, self.counts)
        columns = _numbers(self.starts, self.counts)
        return torch.as_tensor(np.stack([slots, columns]), device=self.device)

    @property
    def slot_of_token(self) -> Int[Tensor, " tokens"]:
        """The slot of each token: [4, 4, 4, 7] above."""
        return self.destinations[0]

    @property
    def column_of_token(self) -> Int[Tensor, " tokens"]:
        """Where each token's key and value go, and its position in the text: [10, 11, 12, 12]."""
        return self.destinations[1]

    def rotations_of(
        self, of_positions: Complex[Tensor, "positions 1 pairs"]
    ) -> Complex[Tensor, "tokens 1 pairs"]:
        """Return the rotations of the tokens' positions; they are looked up once a pass."""
        if self._rotations is None:
            self._rotations = of_positions[self.column_of_token]
        return self._rotations

    def bounds(self, capacity: int) -> Bounds:
        """Return what `flash` reads at each layer, for slots of so many columns.

        It is copied to the device once, not at each layer: a copy makes the host wait.
        """
        if capacity not in self._bounds:
            behind = self.slots[-1] + 1
            begins = [slot * capacity for slot in (*self.slots, behind)]
            numbers = [*self.offsets, *begins, *self.ends]
            copied = torch.tensor(numbers, dtype=torch.int32, device=self.device)
            sizes = (len(self.offsets), len(begins), len(self.ends))
            self._bounds[capacity] = Bounds(*copied.split(sizes))
        return self._bounds[capacity]

    @cached_property
    def slot_index(self) -> slice | Int[Tensor, " rows"]:
        """The index that reads the rows' slots out of all."""
        first = self.slots[0]
        behind = first + len(self.slots)
        if list(self.slots) == list(range(first, behind)):
            return slice(first, behind)  # reads without a copy
        return torch.tensor(self.slots, device=self.device)

    @property
    def keeps_all(self) -> bool:
        """Whether all tokens need an output of the last layer."""
        return self.keep == self.counts

    def part(self, first: int, last: int) -> Segments:
        """Return the rows from number `first` on, to before number `last`."""
        part = Segments(
            self.slots[first:last],
            self.starts[first:last],
            self.counts[first:last],
            self.device,
            self.keep[first:last],
        )
        tokens = slice(self.offsets[first], self.offsets[last])
        part.destinations = self.destinations[:, tokens]  # on the device already
        return part

    def tail(self) -> tuple[Segments, Int[Tensor, " kept"]]:
        """Return the last `keep` tokens of each row, and where they stand among all tokens."""
        starts = [end - keep for end, keep in zip(self.ends, self.keep, strict=True)]
        behind = self.offsets[1:]  # each row's last token
        firsts = [offset - keep for offset, keep in zip(behind, self.keep, strict=True)]
        kept = Segments(self.slots, starts, self.keep, self.device, self.keep)
        return kept, ranges(firsts, self.keep, self.device)

    def padded(self, tokens: Tensor) -> Tensor:
        """Return what belongs to tokens row by row, rows of fewer tokens with zeros after them."""
        if not self._is_ragged:
            return tokens.unflatten(0, (-1, self.most_tokens))
        laid = tokens.new_zeros(len(self.counts) * self.most_tokens, *tokens.shape[1:])
        laid[self._laid] = tokens
        return laid.unflatten(0, (-1, self.most_tokens))

    def packed(self, padded: Tensor) -> Tensor:
        """Return what `padded` laid out, tokens one after the other again."""
        flat = padded.flatten(0, 1)
        return flat[self._laid] if self._is_ragged else flat

    @cached_property
    def _laid(self) -> Int[Tensor, " tokens"]:
        """The place of each token where all rows are padded to the same length."""
        most = self.most_tokens
        return ranges(range(0, len(self.counts) * most, most), self.counts, self.device)

    def seen(self, window: int | None) -> Bool[Tensor, "#rows 1 most_tokens width"]:
        """Return which columns each token sees: up to its own, the last `window` of them."""
        if window not in self._seen:
            # Padding sees column 0: a row of nothing would be no number.
            if self.has_equal_columns:
                last_seen = self.column_of_token[None, : self.most_tokens]
            else:
                last_seen = self.padded(self.column_of_token)
            columns = torch.arange(self.width, device=self.device)
            seen = columns <= last_seen[..., None]
            if window is not None:
                seen &= columns > last_seen[..., None] - window
            self._seen[window] = seen[:, None]
        return self._seen[window]


class FixedSegments(Segments):
    """One token of each of the first rows, at columns that only the device knows.

    All numbers of the host stay as they are, whatever the columns: `flash` reads no others.
    """

    def __init__(self, rows: int, capacity: int, device: torch.device) -> None:
        ones = [1] * rows
        super().__init__(range(rows), [0] * rows, ones, device, ones)
        self._capacity = capacity
        self.width = capacity
        self.has_equal_columns = False  # keys and values are written by index
        self.bounds(capacity)  # made once

    def begin(self) -> None:
        """Let a pass begin whose columns have been written."""
        self.bounds(self._capacity).lengths.copy_(self.column_of_token + 1)
        self._rotations = None


def ranges(
    starts: Sequence[int], counts: Sequence[int], device: torch.device
) -> Int[Tensor, " numbers"]:
    """Return `_numbers` on a device."""
    return torch.as_tensor(_numbers(starts, counts), device=device)


def _numbers(starts: Sequence[int], counts: Sequence[int]) -> Int[np.ndarray, " numbers"]:
    """Return successive numbers from each start on, so many of each, one after the other.

    For starts [10, 12] and counts [3, 1] they are [10, 11, 12, 12].
    """
    before = np.cumsum(counts) - counts  # how many numbers belong to earlier starts
    return np.arange(sum(counts)) + np.repeat(starts - before, counts)
