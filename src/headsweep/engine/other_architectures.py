"""All other architectures: passes by transformers' own modules, with rows pruned by hooks.

The rows of a batch are left-padded, so that all end at the same column: a model needs no more than
an ordinary attention mask in two dimensions. New rows are added to those that are there, and the
shorter rows get padding in front. Verification runs each row through the whole model.
"""

from __future__ import annotations

import inspect
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor
from torch.nn.functional import pad
from transformers import DynamicCache
from transformers.cache_utils import DynamicLayer

from headsweep.engine.operators import PLAIN
from headsweep.engine.requests import Drafted, Row
from headsweep.engine.sampling import places_at_once
from headsweep.engine.shared_pass import Chunk, Pair
from headsweep.models.loaded import LoadedModel
from headsweep.models.masks import HeadMasks


class Modules(HeadMasks):
    """Runs a model on rows with a key/value cache, inside a ``with`` block."""

    def __init__(self, loaded: LoadedModel) -> None:
        super().__init__(loaded.model, loaded.geometry)
        self.loaded = loaded
        self.accepted = inspect.signature(loaded.model.forward).parameters.keys()


class ModuleRows:
    """Keys and values of rows that end at the same column."""

    operators = PLAIN
    takes_drafts = False

    def __init__(self, modules: Modules) -> None:
        self._modules = modules
        self._cache = DynamicCache()
        self._visible = torch.zeros(0, 0, dtype=torch.long, device=modules.loaded.device)
        """Which columns each row sees: not those of its padding."""

    def feed(
        self, first: int, rows: Sequence[Row], texts: Sequence[Sequence[int]], keep: int = 1
    ) -> Float[Tensor, "places vocabulary"]:
        """Do as `SlotRows.feed`; return the logits of the last `keep` tokens of each row."""
        if first:
            new = ModuleRows(self._modules)
            logits = new.feed(0, rows, texts, keep)
            self.join([new])
            return logits
        output = self._run(self._modules.loaded.model, rows, texts, logits_to_keep=keep)
        return output.logits[:, -keep:].float().flatten(0, 1)

    def replayed(self, rows: Sequence[Row], replays: int) -> None:
        """Do as `SlotRows.replayed`: no step of modules is captured."""

    def hidden(
        self, rows: Sequence[Row], texts: Sequence[Sequence[int]], keep: int
    ) -> Float[Tensor, "rows keep hidden"]:
        """Feed rows that are new; return what their last `keep` tokens' logits are computed from.

        Only for models that `weights.serves`: others may change the logits themselves.
        """
        output = self._run(self._modules.loaded.model.base_model, rows, texts)
        return output.last_hidden_state[:, -keep:]

    def _run(
        self, model: Any, rows: Sequence[Row], texts: Sequence[Sequence[int]], **wanted: int
    ) -> Any:
        """Run a model, or the part of it below the logits, on the next tokens of all rows."""
        modules = self._modules
        loaded = self._modules.loaded
        modules.prune([row.variant for row in rows])
        width = max(map(len, texts))
        filler = loaded.pad_token_id
        ids = [[filler] * (width - len(text)) + [*text] for text in texts]
        is_text = [[0] * (width - len(text)) + [1] * len(text) for text in texts]
        tokens = torch.tensor(ids, device=loaded.device)
        visible = torch.tensor(is_text, device=loaded.device)
        before = self._visible if len(self._visible) else visible[:, :0]
        self._visible = torch.cat([before, visible], dim=1)
        positions = (self._visible.cumsum(1) - 1).clamp(min=0)[:, -width:]
        options: dict[str, Any] = {"position_ids": positions, **wanted}
        return model(
            input_ids=tokens,
            attention_mask=self._visible,
            past_key_values=self._cache,
            use_cache=True,
            **{name: options[name] for name in options.keys() & modules.accepted},
        )

    def join(self, states: Sequence[ModuleRows]) -> None:
        """Lay other rows after these."""
        parts = [self, *states] if len(self._visible) else states
        widths = [part._visible.shape[1] for part in parts]
        gaps = [max(widths) - width for width in widths]

        def beside(states: Iterable[Tensor]) -> Tensor:
            return torch.cat([pad(s, (0, 0, gap, 0)) for s, gap in zip(states, gaps, strict=True)])

        self._cache = DynamicCache(
            (beside(layer.keys for layer in layers), beside(layer.values for layer in layers))
            for layers in zip(*(part._cache.layers for part in parts), strict=True)
        )
        self._visible = torch.cat(
            [pad(part._visible, (gap, 0)) for part, gap in zip(parts, gaps, strict=True)]
        )

    def keep(self, kept: Sequence[int]) -> None:
        """Let row i be what row `kept[i]` was, without the columns that none of them sees."""
        if kept:
            first = int(self._visible[kept].any(0).long().argmax())
            self._take(torch.tensor(kept, device=self._visible.device), slice(first, None), self)
        else:
            self._cache = DynamicCache()
            self._visible = self._visible[:0]

    def states(self, row: int, length: int) -> ModuleRows:
        """Return one row of rows without padding, as long as its first tokens."""
        one_row = ModuleRows(self._modules)
        one_row._cache.layers += [DynamicLayer() for _ in self._cache.layers]
        self._take(slice(row, row + 1), slice(length), one_row)
        return one_row

    def _take(self, rows: slice | Tensor, columns: slice, into: ModuleRows) -> None:
        into._visible = self._visible[rows, columns]
        for source, layer in zip(self._cache.layers, into._cache.layers, strict=True):
            # Layers may be on several devices.
            here = rows.to(source.keys.device) if isinstance(rows, Tensor) else rows
            layer.keys, layer.values = (
                source.keys[here, :, columns],
                source.values[here, :, columns],
            )


class WholePass(ModuleRows):
    """A pass of rows over the draft of their question, each through the whole model."""

    @property
    def most_places(self) -> int:
        """At how many places logits are computed at once."""
        loaded = self._modules.loaded
        vocabulary = len(loaded.model.get_input_embeddings().weight)
        return places_at_once(vocabulary, on_gpu=loaded.device.type != "cpu")

    def begin(self, pairs: Sequence[Pair]) -> None:
        """Verify these rows, of one question, instead of others."""
        self.pairs = list(pairs)
        self.keep([])

    def logits(self, chunks: Mapping[Drafted, Chunk]) -> Iterator[Tensor]:
        """Feed the text's next chunk; yield logits row by row, of the places compared."""
        (drafted,) = chunks
        chunk = chunks[drafted]
        texts = [chunk.fed_of(drafted.text)] * len(self.pairs)
        yield self.feed(0, [row for row, _ in self.pairs], texts, chunk.compared)

    def stay(self, rows: Sequence[int]) -> None:
        """Drop all other rows."""
        self.pairs = [self.pairs[row] for row in rows]
        self.keep(rows)
