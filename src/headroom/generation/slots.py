"""Keys and values of rows that come and go: row r is slot r, its tokens from column 0 on.

Buffers are allocated once and grow rarely. All rows' tokens of a pass lie one after the other, in
no padding: `Segments` says which are whose.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import accumulate
from typing import Any

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from headroom.generation.weights import Weights

States = Float[Tensor, "layers 2 tokens kv_heads head_dim"]
"""Keys and values of one row."""

_STEP = 64
"""Columns are allocated in multiples of this."""


@dataclass
class Segments:
    """Tokens of successive slots, row after row."""

    begin: int
    """The first slot."""
    counts: Sequence[int]
    """Tokens of each row."""
    columns: Int[Tensor, " tokens"]
    """Where each token's key and value go; its position in the text."""
    width: int
    """Columns that some token sees."""
    fresh: bool
    """Whether every row begins at column 0."""
    alike: bool
    """Whether all rows have as many tokens, in the same columns."""
    most: int = field(init=False)
    """Tokens of the row that has most."""
    ragged: bool = field(init=False)
    """Whether rows differ in their number of tokens."""
    _kept: dict[object, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.most = max(self.counts)
        self.ragged = min(self.counts) < self.most

    @classmethod
    def of(
        cls, starts: Sequence[int], counts: Sequence[int], device: torch.device, begin: int = 0
    ) -> "Segments":
        """Lay out rows.

        Args:
            starts: the column of each row's first token.
            counts: how many tokens each row has.
            device: where to put indices.
            begin: the first row's slot.
        """
        columns = torch.cat([torch.arange(s, s + n) for s, n in zip(starts, counts, strict=True)])
        return cls(
            begin,
            counts,
            columns.to(device),
            max(start + count for start, count in zip(starts, counts, strict=True)),
            fresh=not any(starts),
            alike=len({*zip(starts, counts, strict=True)}) == 1,
        )

    @cached_property
    def rows(self) -> Int[Tensor, " tokens"]:
        """The row of each token, counted from the first."""
        counts = torch.tensor(self.counts, device=self.columns.device)
        rows = torch.arange(len(self.counts), device=self.columns.device)
        return rows.repeat_interleave(counts, output_size=len(self.columns))

    def part(self, first: int, last: int) -> "Segments":
        """Return some successive rows."""
        if (first, last) == (0, len(self.counts)):
            return self
        if (first, last) not in self._kept:
            counts = self.counts[first:last]
            skipped = sum(self.counts[:first])
            columns = self.columns[skipped : skipped + sum(counts)]
            self._kept[first, last] = Segments(
                self.begin + first, counts, columns, self.width, self.fresh, self.alike
            )
        return self._kept[first, last]

    def padded(self, tokens: Tensor) -> Tensor:
        """Return what belongs to tokens row by row, rows of fewer tokens with zeros behind."""
        rows, most = len(self.counts), self.most
        if not self.ragged:
            return tokens.unflatten(0, (rows, most))
        laid = tokens.new_zeros(rows * most, *tokens.shape[1:])
        laid[self._places] = tokens
        return laid.unflatten(0, (rows, most))

    def packed(self, padded: Tensor) -> Tensor:
        """Return what `padded` laid out, tokens one after the other again."""
        flat = padded.flatten(0, 1)
        return flat[self._places] if self.ragged else flat

    def seen(self, window: int | None) -> Bool[Tensor, "#rows 1 most width"]:
        """Return which columns each token sees: up to its own, the last `window` of them."""
        if ("seen", window) not in self._kept:
            # Padding sees column 0: a row of nothing would be no number.
            own = self.columns[None, : self.most] if self.alike else self.padded(self.columns)
            columns = torch.arange(self.width, device=own.device)
            seen = columns <= own[..., None]
            if window is not None:
                seen &= columns > own[..., None] - window
            self._kept["seen", window] = seen[:, None]
        return self._kept["seen", window]

    @cached_property
    def _places(self) -> Int[Tensor, " tokens"]:
        offsets = torch.tensor([0, *accumulate(self.counts)][:-1], device=self.columns.device)
        place = torch.arange(len(self.columns), device=self.columns.device)
        return self.rows * self.most + place - offsets[self.rows]


class Slots:
    """Keys and values of any number of rows of a model.

    Args:
        weights: of the model.
    """

    def __init__(self, weights: Weights) -> None:
        self._heads = [layer.heads[1] for layer in weights.layers]
        self._most_heads, self._head_dim = weights.kv_heads, weights.head_dim
        self._like = torch.empty(0, device=weights.device, dtype=weights.dtype)
        self._data = self._zeros(0, 0)

    @property
    def capacity(self) -> int:
        """Columns of each slot."""
        return self._data.shape[3]

    def reserve(self, slots: int, columns: int) -> None:
        """Make room for so many slots of so many columns, with what is there left in place."""
        before = self._data.shape[2]
        if slots <= before and columns <= self.capacity:
            return
        old = self._data
        if columns > self.capacity:
            columns = -(-max(columns, self.capacity * 5 // 4) // _STEP) * _STEP
        # Zeros, not rubbish: a masked column's weight is zero, and zero times NaN is NaN.
        self._data = self._zeros(max(slots, before), max(columns, self.capacity))
        self._data[:, :, :before, : old.shape[3]] = old

    def write(self, layer: int, segments: Segments, keys: Tensor, values: Tensor) -> None:
        """Put keys and values of tokens, [tokens, kv_heads, head_dim] each, where they belong."""
        rows = slice(segments.begin, segments.begin + len(segments.counts))
        heads = self._heads[layer]
        for number, states in enumerate((keys, values)):
            slots = self._data[layer, number, rows, :, :heads]
            if segments.alike:
                columns = slice(segments.width - segments.most, segments.width)
                slots[:, columns] = segments.padded(states)
            else:
                slots[segments.rows, segments.columns] = states

    def read(self, layer: int, segments: Segments) -> tuple[Tensor, Tensor]:
        """Return keys and values, [rows, capacity, kv_heads, head_dim] each."""
        rows = slice(segments.begin, segments.begin + len(segments.counts))
        keys, values = self._data[layer, :, rows, :, : self._heads[layer]]
        return keys, values

    def states(self, slot: int, length: int, base: int = 0, layers: int = 0) -> States:
        """Return a copy of a row's first tokens; those of the first layers lie in another slot.

        Args:
            slot: the row's.
            length: how many tokens.
            base: where the first layers' are.
            layers: how many layers that are.
        """
        parts = self._data[:layers, :, base, :length], self._data[layers:, :, slot, :length]
        return torch.cat(parts)

    def insert(self, slot: int, states: States) -> None:
        """Fill a slot."""
        self._data[:, :, slot, : states.shape[2]] = states

    def move(self, old: int, new: int, length: int, layers: int = 0) -> None:
        """Copy a row's first tokens to another slot, from a layer on."""
        self._data[layers:, :, new, :length] = self._data[layers:, :, old, :length]

    def _zeros(self, slots: int, columns: int) -> Tensor:
        layers, heads, dim = len(self._heads), self._most_heads, self._head_dim
        if self._like.device.type == "cpu":  # there each head's keys are read by themselves
            shape = (layers, 2, slots, heads, columns, dim)
            return self._like.new_zeros(shape).transpose(3, 4)
        return self._like.new_zeros(layers, 2, slots, columns, heads, dim)
