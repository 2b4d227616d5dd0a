"""A key/value cache whose rows come and go while decoding goes on.

All rows end at the same column, as left-padded rows do, so one column takes the next keys and
values of every row, and the model needs nothing but an ordinary 2D attention mask. A new row is
laid into a free slot so that its prompt ends where the others end now. Buffers are allocated once
and grow rarely; a step copies no cache.
"""

from collections.abc import Sequence

import torch
from torch import Tensor
from transformers import DynamicCache
from transformers.cache_utils import Cache, DynamicLayer

_SPARE_COLUMNS = 64
"""Fewest columns allocated beyond those in use."""


class _SlotLayer(DynamicLayer):
    """Keys and values of one layer, [slots, kv_heads, columns, head_dim] each."""

    def __init__(self, cache: "SlotCache", like: DynamicLayer) -> None:
        super().__init__()
        assert like.keys is not None and like.values is not None
        self._cache = cache
        self.keys = like.keys.new_zeros(0)
        self.values = like.values.new_zeros(0)
        self._shapes = [(s.shape[1], s.shape[3]) for s in (like.keys, like.values)]
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

    def __init__(self, like: DynamicCache, slots: int) -> None:
        """Make an empty cache with layers of the same kind as those of a filled one."""
        super().__init__(layers=[_SlotLayer(self, layer) for layer in like.layers])
        self._slots = slots
        self._columns = 0
        self.starts: list[int] = []  # first column of each row
        self.begin = 0  # first column of the longest row
        self.end = 0  # the column that the next token goes to

    def attention_mask(self, device: torch.device) -> Tensor:
        """Return which columns each row sees in the next step, [rows, columns]."""
        columns = torch.arange(self.begin, self.end + 1, device=device)
        return columns >= torch.tensor(self.starts, device=device)[:, None]

    def insert(self, prefilled: DynamicCache, rows: Sequence[int], lengths: Sequence[int]) -> None:
        """Append rows of another cache, which is left-padded.

        Args:
            prefilled: the other cache.
            rows: which of its rows; one may come several times.
            lengths: how many of its last columns belong to each of these rows.
        """
        width = prefilled.get_seq_length()
        if self.end < width or not self.starts:
            self._resize(width)
        new = slice(len(self.starts), len(self.starts) + len(rows))
        for layer, source in zip(self.layers, prefilled.layers, strict=True):
            index = torch.tensor(rows, device=source.keys.device)
            layer.keys[new, :, self.end - width : self.end] = source.keys[index]
            layer.values[new, :, self.end - width : self.end] = source.values[index]
        self.starts += [self.end - length for length in lengths]
        self.begin = min(self.starts)

    def advance(self) -> None:
        """Go on to the next column."""
        self.end += 1
        if self.end == self._columns:
            self._resize(0)

    def keep(self, rows: Sequence[int]) -> None:
        """Drop all other rows; afterwards, row i is what row `rows[i]` was."""
        moved = [(old, new) for new, old in enumerate(rows) if old != new]
        if moved:
            old, new = zip(*moved, strict=True)
            for layer in self.layers:
                layer.keys[list(new)] = layer.keys[list(old)]
                layer.values[list(new)] = layer.values[list(old)]
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
