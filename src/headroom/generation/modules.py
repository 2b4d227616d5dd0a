"""All other architectures: passes by transformers' own modules, rows pruned by hooks.

Decoding rows end at the same column, as left-padded rows do, so one column takes the next keys and
values of every row, and a model needs nothing but an ordinary 2D attention mask. A new row is laid
into a free slot so that its prompt ends where the others end now. Verification runs each row
through the whole model.
"""

from __future__ import annotations

import inspect
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import torch
from jaxtyping import Float, Int
from torch import Tensor
from transformers import DynamicCache
from transformers.cache_utils import Cache, DynamicLayer

from headroom.generation.requests import Drafted, Request, Row
from headroom.generation.sampling import choose
from headroom.models.masks import HeadMasks, variant_masks
from headroom.variants import Variant

if TYPE_CHECKING:
    from headroom.generation.batch import Watch
    from headroom.models.load import LoadedModel

RowStates = Sequence[tuple[Tensor, Tensor]]
"""Keys and values of one row, layer by layer, [kv_heads, tokens, head_dim] each."""

_SPARE_COLUMNS = 64
"""Fewest columns allocated beyond those in use."""


class Modules:
    """Runs a model on token ids and a key/value cache.

    Args:
        loaded: the model.
        masks: in force on it.
    """

    path = "modules"

    def __init__(self, loaded: LoadedModel, masks: HeadMasks) -> None:
        self.loaded = loaded
        self._masks = masks
        self._variants: list[Variant] = []
        self.fed = 0
        """Tokens fed so far, those of all rows."""
        accepted = inspect.signature(loaded.model.forward).parameters
        self._takes_positions = "position_ids" in accepted
        self._takes_keep = "logits_to_keep" in accepted

    def __call__(
        self,
        tokens: Int[Tensor, "batch tokens"],
        positions: Int[Tensor, "#batch tokens"],
        variants: Sequence[Variant],
        cache: Cache,
        *,
        visible: Int[Tensor, "batch columns"] | None = None,
        keep: int = 1,
    ) -> Float[Tensor, "batch keep vocabulary"]:
        """Return the logits of the last `keep` positions, float32.

        Args:
            tokens: fed to the model.
            positions: of these tokens; a single row holds for all.
            variants: what each row prunes.
            cache: keys and values of earlier tokens, which those of these are added to.
            visible: which columns of the cache and then of these tokens each row sees; all by
                default.
            keep: how many positions' logits to return.
        """
        # One mask serves rows that are all alike.
        self._mask(list(variants[:1] if len(set(variants)) == 1 else variants))
        device = self.loaded.device
        options: dict[str, Any] = {}
        if self._takes_positions:
            options["position_ids"] = positions.to(device)
        if self._takes_keep:
            options["logits_to_keep"] = keep
        output = self.loaded.model(
            input_ids=tokens.to(device),
            attention_mask=None if visible is None else visible.to(device),
            past_key_values=cache,
            use_cache=True,
            **options,
        )
        self.fed += tokens.numel()
        return output.logits[:, -keep:].float()

    def _mask(self, variants: list[Variant]) -> None:
        if variants != self._variants:
            loaded = self.loaded
            masks = variant_masks(loaded.geometry, variants, loaded.device, loaded.dtype)
            self._masks.replace(masks)
            self._variants = variants


class ModuleRows:
    """Keys and values of rows that are decoded, and the passes over them.

    Args:
        modules: run the model.
        size: most rows.
    """

    def __init__(self, modules: Modules, size: int) -> None:
        self._modules = modules
        self._size = size
        self._requests: list[Request] = []
        self._lengths: list[int] = []
        self._cache: _SlotCache | None = None

    def enter(
        self, requests: Sequence[Request], leaders: Sequence[int]
    ) -> Float[Tensor, "groups vocabulary"]:
        """Prefill prompts; return the logits behind them.

        Args:
            requests: one a prompt.
            leaders: of each new row, whose prompt it has.
        """
        prompts = [request.prompt for request in requests]
        width = max(map(len, prompts))
        pad = self._modules.loaded.pad_token_id
        tokens = torch.tensor([(pad,) * (width - len(p)) + p for p in prompts])
        visible = torch.tensor([[0] * (width - len(p)) + [1] * len(p) for p in prompts])
        positions = (visible.cumsum(-1) - 1).clamp(min=0)
        variants = [request.variant for request in requests]
        cache = DynamicCache()
        logits = self._modules(tokens, positions, variants, cache, visible=visible)[:, -1]
        begins = [width - len(prompt) for prompt in prompts]
        states = [
            [(a.keys[row, :, begins[row] :], a.values[row, :, begins[row] :]) for a in cache.layers]
            for row in leaders
        ]
        self.resume([requests[leader] for leader in leaders], states)
        return logits

    def resume(self, requests: Sequence[Request], states: Sequence[Any]) -> None:
        """Let rows in whose keys and values are known, `RowStates` each."""
        if self._cache is None:
            self._cache = _SlotCache(states[0], self._size)
        self._cache.insert(states)
        self._requests += requests
        self._lengths += [each[0][0].shape[1] for each in states]

    def step(self, tokens: Sequence[int]) -> Float[Tensor, "rows vocabulary"]:
        """Feed each row a token; return the logits behind it."""
        assert self._cache is not None
        visible = self._cache.attention_mask(self._modules.loaded.device)
        positions = torch.tensor(self._lengths)[:, None]
        variants = [request.variant for request in self._requests]
        fed = torch.tensor(tokens)[:, None]
        logits = self._modules(fed, positions, variants, self._cache, visible=visible)[:, -1]
        self._cache.advance()
        self._lengths = [length + 1 for length in self._lengths]
        return logits

    def keep(self, rows: Sequence[int]) -> None:
        """Drop all other rows; afterwards, row i is what row `rows[i]` was, none earlier than i."""
        assert self._cache is not None
        self._cache.keep(rows)
        self._requests = [self._requests[row] for row in rows]
        self._lengths = [self._lengths[row] for row in rows]


class WholePass:
    """A pass of rows over the draft of their question, each through the whole model.

    Args:
        modules: run the model.
        pairs: rows and their question.
    """

    def __init__(self, modules: Modules, pairs: Sequence[tuple[Row, Drafted]]) -> None:
        self._modules = modules
        self._rows = [row for row, _ in pairs]
        self._cache = DynamicCache()

    def feed(
        self, bounds: dict[Drafted, tuple[int, int]], watch: Watch | None
    ) -> tuple[list[int], list[float]]:
        """Feed the text's next chunk; return each row's choices and gaps, from its prompt on."""
        ((drafted, (begin, end)),) = bounds.items()
        tokens = torch.tensor([drafted.text[begin:end]]).expand(len(self._rows), -1)
        keep = end - max(begin, len(drafted.rows[0].request.prompt) - 1)
        variants = [row.request.variant for row in self._rows]
        positions = torch.arange(begin, end)[None]
        logits = self._modules(tokens, positions, variants, self._cache, keep=keep)
        if watch is not None:
            for row, own in zip(self._rows, logits, strict=True):
                for number, each in enumerate(own, start=len(row.tokens)):
                    watch(row, number, each)
        chosen, gaps = choose(logits.flatten(0, 1))
        return chosen.tolist(), gaps.tolist()

    def keep(self, rows: Sequence[int], _: Sequence[int]) -> None:
        """Drop all other rows."""
        if len(rows) < len(self._rows):
            self._rows = [self._rows[row] for row in rows]
            for layer in self._cache.layers:
                layer.batch_select_indices(torch.tensor(rows, device=layer.keys.device))

    def states(self, row: int, length: int) -> Any:
        """Return keys and values of a row's first tokens, as `RowStates`."""
        return [
            (layer.keys[row, :, :length], layer.values[row, :, :length])
            for layer in self._cache.layers
        ]


class _SlotLayer(DynamicLayer):
    """Keys and values of one layer, [slots, kv_heads, columns, head_dim] each."""

    def __init__(self, cache: _SlotCache, keys: Tensor, values: Tensor) -> None:
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


class _SlotCache(Cache):
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
