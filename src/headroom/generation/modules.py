"""All other architectures: passes by transformers' own modules, rows pruned by hooks.

Rows of a batch end at the same column, as left-padded rows do: a model needs nothing but an
ordinary attention mask in two dimensions. Rows that enter are laid beside those that are there,
the shorter ones with padding in front. Verification runs each row through the whole model.
"""

from __future__ import annotations

import inspect
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import torch
from jaxtyping import Float, Int
from torch import Tensor
from torch.nn.functional import pad
from transformers import DynamicCache
from transformers.cache_utils import DynamicLayer

from headroom.generation.requests import Row
from headroom.models.masks import HeadMasks, variant_masks
from headroom.variants import Variant

if TYPE_CHECKING:
    from headroom.models.load import LoadedModel


class Modules:
    """Runs a model on rows with a key/value cache.

    Args:
        loaded: the model.
        hooks: what prunes it.
    """

    path = "modules"

    def __init__(self, loaded: LoadedModel, hooks: HeadMasks) -> None:
        self.loaded = loaded
        self._hooks = hooks
        self._masked: Sequence[Variant] = ()
        self.fed = 0
        """Tokens fed so far, those of all rows."""
        self.accepted = inspect.signature(loaded.model.forward).parameters.keys()

    def rows(self, _: int) -> ModuleRows:
        """Return room for rows to be decoded."""
        return ModuleRows(self)

    def mask(self, variants: Sequence[Variant]) -> None:
        """Let each row of the next pass be of its variant."""
        # One mask serves rows that are all alike.
        unlike = variants if len(set(variants)) > 1 else variants[:1]
        if unlike != self._masked:
            loaded = self.loaded
            self._hooks.masks = variant_masks(loaded.geometry, unlike, loaded.device, loaded.dtype)
            self._masked = unlike


class ModuleRows:
    """Keys and values of rows that end at the same column.

    Args:
        modules: run the model.
    """

    def __init__(self, modules: Modules) -> None:
        self._modules = modules
        self._cache = DynamicCache()
        device = modules.loaded.device
        self._visible = torch.zeros(0, 0, dtype=torch.long, device=device)
        """Which columns each row sees: not those of its padding."""

    def feed(
        self,
        rows: Sequence[Row],
        tokens: Int[Tensor, "rows tokens"],
        visible: Int[Tensor, "rows tokens"] | None = None,
        keep: int = 1,
    ) -> Float[Tensor, "rows keep vocabulary"]:
        """Feed each row some tokens; return the logits of the last `keep` ones, float32.

        Args:
            rows: all of them.
            tokens: of each row.
            visible: 0 for padding.
            keep: how many positions' logits to return.
        """
        modules, device = self._modules, self._visible.device
        modules.mask([row.variant for row in rows])
        modules.fed += tokens.numel()
        visible = (torch.ones_like(tokens) if visible is None else visible).to(device)
        before = self._visible if len(self._visible) else visible[:, :0]
        self._visible = torch.cat([before, visible], dim=1)
        positions = (self._visible.cumsum(1) - 1).clamp(min=0)[:, -tokens.shape[1] :]
        options: dict[str, Any] = {"position_ids": positions, "logits_to_keep": keep}
        output = modules.loaded.model(
            input_ids=tokens.to(device),
            attention_mask=self._visible,
            past_key_values=self._cache,
            use_cache=True,
            **{name: options[name] for name in options.keys() & modules.accepted},
        )
        return output.logits[:, -keep:].float()

    def enter(
        self, first: int, rows: Sequence[Row], leaders: Sequence[int]
    ) -> Float[Tensor, "rows vocabulary"]:
        """Prefill prompts; return the logits behind them. For arguments see `SlotRows`."""
        prompts = [row.request.prompt for row in rows]
        width = max(map(len, prompts))
        filler = self._modules.loaded.pad_token_id
        tokens = torch.tensor([(filler,) * (width - len(p)) + p for p in prompts])
        visible = torch.tensor([[0] * (width - len(p)) + [1] * len(p) for p in prompts])
        new = ModuleRows(self._modules)
        logits = new.feed(rows, tokens, visible)[:, -1]
        new.keep(rows, [*range(len(rows)), *leaders])
        self.resume(first, [new])
        return logits

    def resume(self, first: int, states: Sequence[ModuleRows]) -> None:
        """Lay other rows beside these, the first ones."""
        parts = [self, *states] if first else states
        width = max(each._visible.shape[1] for each in parts)
        gaps = [width - each._visible.shape[1] for each in parts]
        cache = DynamicCache()
        for index in range(len(parts[0]._cache.layers)):
            layers = [each._cache.layers[index] for each in parts]
            keys, values = (
                torch.cat([pad(s, (0, 0, gap, 0)) for s, gap in zip(each, gaps, strict=True)])
                for each in ([a.keys for a in layers], [a.values for a in layers])
            )
            cache.update(keys, values, index)
        self._cache = cache
        self._visible = torch.cat(
            [pad(each._visible, (gap, 0)) for each, gap in zip(parts, gaps, strict=True)]
        )

    def step(self, rows: Sequence[Row]) -> Float[Tensor, "rows vocabulary"]:
        """Feed each row its last token; return the logits behind it."""
        return self.feed(rows, torch.tensor([row.tokens[-1:] for row in rows]))[:, -1]

    def keep(self, _: Sequence[Row], kept: Sequence[int]) -> None:
        """Let row i be what row `kept[i]` was, without the columns that none of them sees."""
        if kept:
            first = int(self._visible[kept].any(0).long().argmax())
            self._take(torch.tensor(kept, device=self._visible.device), slice(first, None), self)

    def states(self, row: int, length: int) -> ModuleRows:
        """Return one row of rows without padding, as long as its first tokens."""
        found = ModuleRows(self._modules)
        found._cache.layers += [DynamicLayer() for _ in self._cache.layers]
        self._take(slice(row, row + 1), slice(length), found)
        return found

    def _take(self, rows: Any, columns: slice, into: ModuleRows) -> None:
        into._visible = self._visible[rows, columns]
        for own, layer in zip(self._cache.layers, into._cache.layers, strict=True):
            layer.keys, layer.values = own.keys[rows, :, columns], own.values[rows, :, columns]
