"""Keys and values of rows in slots, and attention of packed tokens to them.

A row's keys and values lie in its slot, from column 0 on. All rows' tokens of a pass lie one after
the other without padding; `Segments` says which are whose. `flash` is one call of ATen's operator
for float16 and bfloat16 on GPUs; `dense` pads queries, masks columns, and serves everything else.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import accumulate

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor
from torch.nn.functional import scaled_dot_product_attention

from headsweep.generation.weights import Weights

States = Float[Tensor, "layers 2 tokens kv_heads head_dim"]  # keys and values of one row
_STEP = 64  # columns are allocated in multiples of this


@dataclass(eq=False)
class Segments:
    """Successive tokens of some rows, row after row."""

    slots: Sequence[int]
    starts: Sequence[int]  # the column, and so the position, of each row's first token here
    counts: Sequence[int]  # how many tokens each row has here
    device: torch.device
    keep: Sequence[int]  # how many last tokens of each row matter after the last layer

    def __post_init__(self) -> None:
        self.ends = [*map(int.__add__, self.starts, self.counts)]
        self.offsets = [0, *accumulate(self.counts)]
        """Where each row's tokens begin among all, and the number of all."""
        self.most, self.width = max(self.counts), max(self.ends)
        """Tokens of a row, and columns that some token sees."""
        self._ragged = min(self.counts) < self.most
        self.alike = not self._ragged and min(self.starts) == max(self.starts)
        """Whether all rows have the same columns."""
        self._seen: dict[int | None, Tensor] = {}

    @cached_property
    def rows(self) -> Int[Tensor, " tokens"]:
        """The row of each token, counted from the first."""
        numbers = np.repeat(range(len(self.counts)), self.counts)
        return torch.as_tensor(numbers, device=self.device)

    @cached_property
    def own(self) -> Int[Tensor, " tokens"]:
        """The slot of each token."""
        return torch.as_tensor(np.repeat(self.slots, self.counts), device=self.device)

    @cached_property
    def columns(self) -> Int[Tensor, " tokens"]:
        """Where each token's key and value go; its position in the text."""
        return ranges(self.starts, self.counts, self.device)

    @cached_property
    def places(self) -> slice | Int[Tensor, " rows"]:
        """What reads the rows' slots out of all."""
        places = range(self.slots[0], self.slots[0] + len(self.slots))
        if [*self.slots] == [*places]:  # read without a copy
            return slice(places.start, places.stop)
        return torch.tensor(self.slots, device=self.device)

    def part(self, first: int, last: int) -> Segments:
        """Return some successive rows."""
        slots, starts, counts, keep = (
            each[first:last] for each in (self.slots, self.starts, self.counts, self.keep)
        )
        return Segments(slots, starts, counts, self.device, keep)

    def tail(self) -> tuple[Segments, Int[Tensor, " kept"]]:
        """Return the last tokens of each row that matter, and where they stand among all."""
        starts = [*map(int.__sub__, self.ends, self.keep)]
        left = Segments(self.slots, starts, self.keep, self.device, self.keep)
        begins = [*map(int.__sub__, self.offsets[1:], self.keep)]
        return left, ranges(begins, self.keep, self.device)

    def padded(self, tokens: Tensor) -> Tensor:
        """Return what belongs to tokens row by row, rows of fewer tokens with zeros behind."""
        if not self._ragged:
            return tokens.unflatten(0, (-1, self.most))
        laid = tokens.new_zeros(len(self.counts) * self.most, *tokens.shape[1:])
        laid[self._laid] = tokens
        return laid.unflatten(0, (-1, self.most))

    def packed(self, padded: Tensor) -> Tensor:
        """Return what `padded` laid out, tokens one after the other again."""
        flat = padded.flatten(0, 1)
        return flat[self._laid] if self._ragged else flat

    @cached_property
    def _laid(self) -> Int[Tensor, " tokens"]:
        return ranges(range(0, len(self.counts) * self.most, self.most), self.counts, self.device)

    def seen(self, window: int | None) -> Bool[Tensor, "#rows 1 most width"]:
        """Return which columns each token sees: up to its own, the last `window` of them."""
        if window not in self._seen:
            # Padding sees column 0: a row of nothing would be no number.
            own = self.columns[None, : self.most] if self.alike else self.padded(self.columns)
            columns = torch.arange(self.width, device=self.device)
            seen = columns <= own[..., None]
            if window is not None:
                seen &= columns > own[..., None] - window
            self._seen[window] = seen[:, None]
        return self._seen[window]


def ranges(
    starts: Sequence[int], counts: Sequence[int], device: torch.device
) -> Int[Tensor, " numbers"]:
    """Return successive numbers from each start on, so many of each, one after the other."""
    before = np.cumsum(counts) - counts
    numbers = np.arange(sum(counts)) + np.repeat(starts - before, counts)
    return torch.as_tensor(numbers, device=device)


class Slots:
    """Keys and values of any number of rows of a model; buffers grow rarely."""

    def __init__(self, weights: Weights) -> None:
        self._heads = [layer.heads[1] for layer in weights.layers]
        self._weights = weights
        self._data = self._zeros(0, 0)

    def reserve(self, slots: int, columns: int) -> None:
        """Make room for so many slots of so many columns, with what is there left in place."""
        old, (_, _, before, capacity) = self._data, self._data.shape[:4]
        if slots <= before and columns <= capacity:
            return
        if columns > capacity:
            columns = -(-max(columns, capacity * 5 // 4) // _STEP) * _STEP
        # Zeros, not rubbish: a masked column's weight is zero, and zero times NaN is NaN.
        self._data = self._zeros(max(slots, before), max(columns, capacity))
        self._data[:, :, :before, :capacity] = old

    def write(self, layer: int, segments: Segments, keys: Tensor, values: Tensor) -> None:
        """Put keys and values of tokens, [tokens, kv_heads, head_dim] each, where they belong."""
        for number, states in enumerate((keys, values)):
            slots = self._data[layer, number, :, :, : self._heads[layer]]
            if segments.alike and isinstance(segments.places, slice):
                columns = slice(segments.width - segments.most, segments.width)
                slots[segments.places, columns] = segments.padded(states)
            else:
                slots[segments.own, segments.columns] = states

    def read(self, layer: int, segments: Segments) -> tuple[Tensor, Tensor]:
        """Return keys and values, [rows, capacity, kv_heads, head_dim] each."""
        keys, values = self._data[layer, :, segments.places, :, : self._heads[layer]]
        return keys, values

    def _zeros(self, slots: int, columns: int) -> Tensor:
        weights, heads = self._weights, max(self._heads)
        like = torch.empty(0, device=weights.device, dtype=weights.dtype)
        sizes = (len(self._heads), 2, slots)
        if weights.device.type == "cpu":  # there each head's keys are read by themselves
            return like.new_zeros(*sizes, heads, columns, weights.head_dim).transpose(3, 4)
        return like.new_zeros(*sizes, columns, heads, weights.head_dim)


Attention = Callable[[Tensor, Tensor, Tensor, Segments, int | None], Tensor]  # `dense` or `flash`


def dense(
    queries: Float[Tensor, "tokens query_heads head_dim"],
    keys: Float[Tensor, "rows capacity kv_heads head_dim"],
    values: Float[Tensor, "rows capacity kv_heads head_dim"],
    segments: Segments,
    window: int | None,
) -> Float[Tensor, "tokens width"]:
    """Return the joined outputs of all heads; a token sees the last `window` columns, or all."""
    width, kv_heads = segments.width, keys.shape[2]
    causal = width == segments.most and not any(segments.starts)
    padded = segments.padded(queries).transpose(1, 2)
    keys, values = (each[:, :width].transpose(1, 2) for each in (keys, values))
    if causal and (window is None or window >= width):
        found = scaled_dot_product_attention(padded, keys, values, is_causal=True, enable_gqa=True)
        return segments.packed(found.transpose(1, 2)).flatten(1)
    # Queries that share keys are rows of one product: PyTorch's own sharing is slow with few tokens
    # a row, in bfloat16 on a CPU above all.
    grouped = padded.unflatten(1, (kv_heads, -1))
    group, seen = grouped.shape[2], segments.seen(window)
    if segments.most > 1:
        seen = seen.repeat(1, 1, group, 1)
    found = scaled_dot_product_attention(grouped.flatten(2, 3), keys, values, attn_mask=seen)
    found = found.unflatten(2, (group, -1)).flatten(1, 2)
    return segments.packed(found.transpose(1, 2)).flatten(1)


def flash(
    queries: Tensor, keys: Tensor, values: Tensor, segments: Segments, window: int | None
) -> Tensor:
    """Do as `dense`; capacity is constant, so that only lengths change with a step."""
    (rows, capacity), device = keys.shape[:2], segments.device
    outputs = torch.ops.aten._flash_attention_forward(
        queries,
        keys.flatten(0, 1),
        values.flatten(0, 1),
        torch.tensor(segments.offsets, dtype=torch.int32, device=device),
        torch.arange(rows + 1, dtype=torch.int32, device=device) * capacity,
        segments.most,
        capacity,
        0.0,  # dropout
        True,  # causal: a row's last query sees all of `seqused_k`
        False,
        window_size_left=None if window is None else window - 1,
        window_size_right=None if window is None else 0,
        seqused_k=torch.tensor(segments.ends, dtype=torch.int32, device=device),
    )[0]
    return outputs.flatten(1)


def best(weights: Weights) -> Attention:
    """Return the fastest attention that a model's device and type allow."""
    if weights.device.type != "cuda" or weights.dtype == torch.float32:
        return dense
    served = torch.cuda.get_device_capability(weights.device) >= (8, 0)
    alike = len({layer.heads[1] for layer in weights.layers}) == 1
    return flash if served and alike and weights.head_dim % 8 == 0 else dense
