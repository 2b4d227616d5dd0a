"""Keys and values of rows in slots, and attention of packed tokens to them.

The keys and values of a row lie in its slot, from column 0 on; `Segments` says which tokens belong
to which row. `flash` is one call of ATen's operator for float16 and bfloat16 on GPUs. `dense` pads
queries and masks columns; it serves everything else.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
from jaxtyping import Float, Int
from torch import Tensor
from torch.nn.functional import scaled_dot_product_attention

from headsweep.engine.segments import Segments
from headsweep.engine.weights import Weights

Hidden = Float[Tensor, "tokens hidden"]
States = Float[Tensor, "layers 2 tokens kv_heads head_dim"]  # keys and values of one row
_STEP = 64  # columns are allocated in multiples of this


class Slots:
    """Keys and values of any number of rows of a model; the buffer grows rarely.

    The buffer has six axes: [layers, 2, slots, columns, kv_heads, head_dim]. On the second axis
    keys come first, then values. Layers with fewer key/value heads than others leave the last ones
    unused.
    """

    def __init__(self, weights: Weights) -> None:
        self.kv_heads = [layer.kv_heads for layer in weights.layers]
        """By layer."""
        self.weights = weights
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
        """Return a copy of the keys and values at slots and columns, in all layers."""
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
        weights = self.weights
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
