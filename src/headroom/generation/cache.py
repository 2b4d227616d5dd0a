"""A key/value cache whose rows come and go while decoding goes on.

All rows end at the same column, as left-padded rows do, so one column takes the next keys and
values of every row, and the model needs nothing but an ordinary 2D attention mask. A new row is
laid into a free slot so that its prompt ends where the others end now. Buffers are allocated once
and grow rarely; a step copies no cache.
"""

from collections.abc import Sequence

import torch
from torch import Tensor
from transformers.cache_utils import Cache, DynamicLayer

RowStates = Sequence[tuple[Tensor, Tensor]]
"""Keys and values of one row, layer by layer, [kv_heads, tokens, head_dim] each."""

_SPARE_COLUMNS = 64
"""Fewest columns allocated beyond those in use."""


class _SlotLayer(DynamicLayer):
    """Keys and values of one layer, [slots, kv_heads, columns, head_dim] each."""

    def __init__(self, cache: "SlotCache", keys: Tensor, values: Tensor) -> None:
        super().__init__()
        self._cache = cache
        self.keys = keys.new_zeros(0)
        self.values = values.new_zeros(0)
        self._shapes = [(states.shape[0], states.shape[2]) for states in (keys, values)]
        self.is_initialized = True

    def update(self, key_states: Tensor, value_states: Tensor, *_: object, **__: object) -> tuple:
        """Write the next column; return all columns that some row can see."""
        cache = self._cache
        rows, columns = slice(len(cache.starts)), slice(cache.begin, cache.end + 1)
        self.keys[rows, :, cache.end] = key_states[:, :, 0]
        self.values[rows, :, cache.end] = value_states[:, :, 0]
        return self.keys[rows, :, columns], self.values[rows, :, columns]

    def get_seq_length(self) -> int:
        """Return the number of columns that are filled and that some row can see."""
        return self._cache.end - self._cache.begin

    def resize(self, slots: int, columns: int, live: slice, end: int) -> None:
        """Make new buffers, with the live columns moved so that they end before `end`."""
        resized = []
        for states, (kv_heads, head_dim) in zip(
            (self.keys, self.values), self._shapes, strict=True
        ):
            # Zeros, not rubbish: a masked column's weight is zero, and zero times NaN is NaN.
            larger = states.new_zeros(slots, kv_heads, columns, head_dim)
            if live.stop > live.start:
                larger[:, :, end - (live.stop - live.start) : end] = states[:, :, live]
            resized.append(larger)
        self.keys, self.values = resized


class SlotCache(Cache):
    """Keys and values of at most `slots` rows; rows are numbered without holes."""

    def __init__(self, like: RowStates, slots: int) -> None:
        """Make an empty cache for rows like one that is at hand."""
        super().__init__(layers=[_SlotLayer(self, keys, values) for keys, values in like])
        self._slots = slots
        self._columns = 0
        self.starts: list[int] = []  # first column of each row
        self.begin = 0  # first column of the longest row
        self.end = 0  # the column that the next token goes to

    def attention_mask(self, device: torch.device) -> Tensor:
        """Return which columns each row sees in the next step, [rows, columns]."""
        columns = torch.arange(self.begin, self.end + 1, device=device)
        return columns >= torch.tensor(self.starts, device=device)[:, None]

    def insert(self, rows: Sequence[RowStates]) -> None:
        """Append rows."""
        lengths = [row[0][0].shape[1] for row in rows]
        if self.end < max(lengths) or not self.starts:
            self._resize(max(lengths))
        for row, length in zip(rows, lengths, strict=True):
            slot, columns = len(self.starts), slice(self.end - length, self.end)
            for layer, (keys, values) in zip(self.layers, row, strict=True):
                layer.keys[slot, :, columns] = keys
                layer.values[slot, :, columns] = values
            self.starts.append(columns.start)
        self.begin = min(self.starts)

    def advance(self) -> None:
        """Go on to the next column."""
        self.end += 1
        if self.end == self._columns:
            self._resize(0)

    def keep(self, rows: Sequence[int]) -> None:
        """Drop all other rows; afterwards, row i is what row `rows[i]` was, none earlier than i."""
        for new, old in enumerate(rows):
            if old != new:
                columns = slice(self.starts[old], self.end)
                for layer in self.layers:
                    layer.keys[new, :, columns] = layer.keys[old, :, columns]
                    layer.values[new, :, columns] = layer.values[old, :, columns]
        self.starts = [self.starts[row] for row in rows]
        self.begin = min(self.starts, default=self.end)

    def _resize(self, width: int) -> None:
        """Drop columns that no row sees, and make room for `width` before and some after `end`."""
        live = slice(self.begin if self.starts else self.end, self.end)
        end = max(live.stop - live.start, width)
        self._columns = end + max(_SPARE_COLUMNS, end // 2)
        for layer in self.layers:
            layer.resize(self._slots, self._columns, live, end)
        shift = end - self.end
        self.starts = [start + shift for start in self.starts]
        self.begin += shift
        self.end = end
