"""Keys and values of rows in slots, and attention of packed tokens to them.

The keys and values of a row lie in its slot, from column 0 on. The tokens of all rows of a pass lie
one after the other, without padding; `Segments` says which belong to which row. `flash` is one call
of ATen's operator for float16 and bfloat16 on GPUs. `dense` pads queries and masks columns; it
serves everything else.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import accumulate
from typing import NamedTuple

import numpy as np
import torch
from jaxtyping import Bool, Complex, Float, Int
from torch import Tensor
from torch.nn.functional import scaled_dot_product_attention

from headsweep.engine.weights import Weights

Hidden = Float[Tensor, "tokens hidden"]
States = Float[Tensor, "layers 2 tokens kv_heads head_dim"]  # keys and values of one row
_STEP = 64  # columns are allocated in multiples of this


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


class Slots:
    """Keys and values of any number of rows of a model; the buffer grows rarely.

    The buffer has six axes: [layers, 2, slots, columns, kv_heads, head_dim]. On the second axis
    keys come first, then values. Layers with fewer key/value heads than others leave the last ones
    unused.
    """

    def __init__(self, weights: Weights) -> None:
        self.kv_heads = [layer.kv_heads for layer in weights.layers]
        """By layer."""
        self._weights = weights
        self._data = self._zeros(0, 0)

    def reserve(self, slots: int, columns: int) -> None:
        """Make room for so many slots of so many columns, with what is there left in place."""
        if self._has_room(slots, columns):
            return
        old = self._data
        old_slots, old_columns = old.shape[2:4]
        self._data = self._zeros(*self._grown(slots, columns))
        self._data[:, :, :old_slots, :old_columns] = old

    def renew(self, slots: int, columns: int) -> None:
        """Make room likewise; nothing that is there is needed, and it goes before the new comes."""
        if not self._has_room(slots, columns):
            grown = self._grown(slots, columns)
            self._data = self._zeros(0, 0)
            self._data = self._zeros(*grown)

    def _has_room(self, slots: int, columns: int) -> bool:
        old_slots, old_columns = self._data.shape[2:4]
        return slots <= old_slots and columns <= old_columns

    def _grown(self, slots: int, columns: int) -> tuple[int, int]:
        """Return for how many slots and columns to allocate where so many are needed.

        Columns grow by a quarter at least, to a multiple of `_STEP`.
        """
        old_slots, old_columns = self._data.shape[2:4]
        new_columns = old_columns
        if columns > old_columns:
            wanted = max(columns, old_columns * 5 // 4)
            new_columns = math.ceil(wanted / _STEP) * _STEP
        return max(slots, old_slots), new_columns

    def write(self, layer: int, segments: Segments, keys: Tensor, values: Tensor) -> None:
        """Put keys and values of tokens, [tokens, kv_heads, head_dim] each, where they belong."""
        for number, states in enumerate((keys, values)):
            slots = self._data[layer, number, :, :, : self.kv_heads[layer]]
            if segments.has_equal_columns and isinstance(segments.slot_index, slice):
                columns = slice(segments.width - segments.most_tokens, segments.width)
                slots[segments.slot_index, columns] = segments.padded(states)
            else:
                slots[segments.slot_of_token, segments.column_of_token] = states

    def read(self, layer: int, segments: Segments) -> tuple[Tensor, Tensor]:
        """Return rows' keys and values, [rows, width, kv_heads, head_dim] each."""
        # Columns are cut first: where rows are copied, no more than these are.
        filled = self._data[layer, :, :, : segments.width, : self.kv_heads[layer]]
        keys, values = filled[:, segments.slot_index]
        return keys, values

    def pool(self, layer: int) -> tuple[Tensor, Tensor]:
        """Return all slots' keys and values without a copy, [slots * capacity, kv_heads, head_dim].

        All layers have the same number of key/value heads.
        """
        keys, values = self._data[layer].flatten(1, 2)
        return keys, values

    def at(self, places: Int[Tensor, "2 tokens"]) -> Tensor:
        """Return a copy of what is at slots and columns, in all layers."""
        return self._data[:, :, places[0], places[1]]

    def put(self, places: Int[Tensor, "2 tokens"], states: Tensor) -> None:
        """Put there what `at` has returned."""
        self._data[:, :, places[0], places[1]] = states

    @property
    def memory(self) -> Tensor:
        """All slots; another tensor after they have grown."""
        return self._data

    @property
    def count(self) -> int:
        """How many slots there are."""
        return self._data.shape[2]

    @property
    def capacity(self) -> int:
        """Columns of each slot."""
        return self._data.shape[3]

    def _zeros(self, slots: int, columns: int) -> Tensor:
        # Zeros, not uninitialised memory: a masked column's weight is zero, zero times NaN is NaN.
        weights = self._weights
        kv_heads = max(self.kv_heads)
        like = torch.empty(0, device=weights.device, dtype=weights.dtype)
        sizes = (len(self.kv_heads), 2, slots)
        if weights.device.type == "cpu":  # there each head's keys are read by themselves
            return like.new_zeros(*sizes, kv_heads, columns, weights.head_dim).transpose(3, 4)
        return like.new_zeros(*sizes, columns, kv_heads, weights.head_dim)


Attention = Callable[[Tensor, Slots, int, Segments, int | None], Tensor]  # `dense` or `flash`


def dense(
    queries: Float[Tensor, "tokens query_heads head_dim"],
    slots: Slots,
    layer: int,
    segments: Segments,
    window: int | None,
) -> Float[Tensor, "tokens width"]:
    """Return the joined outputs of a layer's heads, whose keys and values are in the slots.

    A token sees the last `window` columns up to its own, or all of them.
    """
    keys, values = (states.transpose(1, 2) for states in slots.read(layer, segments))
    kv_heads, width = keys.shape[1:3]
    padded = segments.padded(queries).transpose(1, 2)
    causal = width == segments.most_tokens and not any(segments.starts)
    # On GPUs no fast kernel shares keys among queries: there all queries are rows, see below.
    if causal and (window is None or window >= width) and queries.device.type == "cpu":
        outputs = scaled_dot_product_attention(
            padded, keys, values, is_causal=True, enable_gqa=True
        )
        return segments.packed(outputs.transpose(1, 2)).flatten(1)
    # Queries that share keys are rows of one product: PyTorch's own sharing is slow with few tokens
    # a row, in bfloat16 on a CPU above all.
    grouped = padded.unflatten(1, (kv_heads, -1))
    group = grouped.shape[2]
    seen = segments.seen(window)
    if segments.most_tokens > 1:
        seen = seen.repeat(1, 1, group, 1)
    outputs = scaled_dot_product_attention(grouped.flatten(2, 3), keys, values, attn_mask=seen)
    outputs = outputs.unflatten(2, (group, -1)).flatten(1, 2)
    return segments.packed(outputs.transpose(1, 2)).flatten(1)


def flash(
    queries: Tensor, slots: Slots, layer: int, segments: Segments, window: int | None
) -> Tensor:
    """Do as `dense`, by FlashAttention-2 (Dao, arXiv 2307.08691); rows are read where they lie.

    The segments' slots ascend. Capacity is constant, so that only lengths change with a step.
    """
    capacity = slots.capacity
    bounds = segments.bounds(capacity)
    keys, values = slots.pool(layer)
    outputs = torch.ops.aten._flash_attention_forward(
        queries,
        keys,
        values,
        bounds.queries,
        bounds.keys,
        segments.most_tokens,
        capacity,
        0.0,  # dropout
        True,  # causal: a row's last query sees all of `seqused_k`
        False,
        window_size_left=None if window is None else window - 1,
        window_size_right=None if window is None else 0,
        seqused_k=bounds.lengths,
    )[0]
    return outputs.flatten(1)


def avoid_compiling() -> None:
    """Take cuDNN out of the attentions that PyTorch chooses from on GPUs, for this process.

    It compiles a kernel anew at each width (pytorch#155958), and widths grow at each step.
    """
    torch.backends.cuda.enable_cudnn_sdp(False)


def best(weights: Weights) -> Attention:
    """Return the fastest attention that a model's device and type allow."""
    if weights.device.type != "cuda" or weights.dtype == torch.float32:
        return dense
    served = torch.cuda.get_device_capability(weights.device) >= (8, 0)
    alike = len({layer.kv_heads for layer in weights.layers}) == 1
    return flash if served and alike and weights.head_dim % 8 == 0 else dense
