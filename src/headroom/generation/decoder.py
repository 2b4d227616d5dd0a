"""The one forward pass of Llama-like decoders, on CPU and GPU: tokens of any rows, packed.

All tokens of a pass lie one after the other, without padding; only attention knows which are
whose. Linear layers do activation, gate and residual sum as they write a product. The last layer is
computed only where something is chosen. The same weights give the same function as the model's own
modules but for rounding; `Decoder.of` makes sure by a trial.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING

import torch
from jaxtyping import Complex, Float, Int
from torch import Tensor
from torch.nn.functional import embedding

from headroom.generation.attention import Attention, Segments, Slots, States, best
from headroom.generation.requests import Row
from headroom.generation.weights import Layer, Weights, serves
from headroom.models.masks import RowMasks, variant_masks
from headroom.variants import Variant

if TYPE_CHECKING:
    from headroom.models.load import LoadedModel

_LOG = logging.getLogger(__name__)

_TRIAL = 24
"""Tokens of the text on which a decoder is held against the model's own modules."""

_LOGIT_BYTES = 1 << 27
"""Logits are computed for no more positions at once than fit into this; a GPU takes 8 times it."""

Hidden = Float[Tensor, "tokens hidden"]
Heads = Float[Tensor, "tokens heads head_dim"]
Turns = Complex[Tensor, "tokens 1 pairs"]
Joined = Float[Tensor, "tokens width"]

Changed = tuple[Segments, Hidden, Joined, Tensor | None]
Change = Callable[[int, Segments, Hidden, Joined], Changed]
"""Is given a layer's index, the rows in it, its input, and the joined outputs of its heads; returns
the rows that go on, with theirs, and which of their tokens leave the layer out, if any do."""


class Decoder:
    """Runs a model on packed tokens.

    Args:
        loaded: the model.
        attend: how attention is computed; by default the fastest way that the device allows.
    """

    def __init__(self, loaded: LoadedModel, attend: Attention | None = None) -> None:
        self.weights = Weights(loaded)
        self.attend = attend or best(self.weights)
        self.fed = 0
        """Tokens fed so far, those of all rows."""
        self._turns = torch.empty(0)
        self._masked: Sequence[Variant] = ()
        self._masks: dict[int, RowMasks] = {}

    @staticmethod
    def of(loaded: LoadedModel) -> Decoder | None:
        """Return a decoder for a model, or None where it needs its own modules."""
        if serves(loaded):
            decoder = Decoder(loaded)
            if decoder._is_faithful(loaded):
                return decoder
        _LOG.info("%s runs by its own modules", type(loaded.model).__name__)
        return None

    @property
    def path(self) -> str:
        """How it attends: ``dense`` or ``flash``."""
        return str(getattr(self.attend, "__name__", "attention"))

    def forward(
        self,
        tokens: Int[Tensor, " tokens"],
        segments: Segments,
        slots: Slots,
        change: Change = lambda _, *rows: (*rows, None),
    ) -> Hidden:
        """Return the output of the last layer where it matters; keys and values go into the slots.

        Args:
            tokens: of all rows, one after the other.
            segments: which are whose.
            slots: keys and values of earlier tokens, and of these.
            change: what happens between the heads and their output projection.
        """
        weights, turned = self.weights, None
        hidden = embedding(tokens, weights.embeddings)
        if weights.scale is not None:
            hidden = hidden * weights.scale
        for index, layer in enumerate(weights.layers):
            if segments is not turned:
                turned, turns = segments, self._turns_at(segments)
            queries, keys, values = self._project(layer, hidden, turns)
            slots.write(index, segments, keys, values)
            if index == len(weights.layers) - 1 and segments.keep != segments.counts:
                segments, chosen = segments.tail()
                hidden, queries = hidden[chosen], queries[chosen]
            joined = self.attend(queries, *slots.read(index, segments), segments, layer.window)
            segments, before, joined, skipped = change(index, segments, hidden, joined)
            hidden = layer.output.plus(joined, before)
            normed = layer.mlp_norm(hidden)
            inner = layer.up.times(normed, layer.gate(normed, weights.activation))
            hidden = layer.down.plus(inner, hidden)
            if skipped is not None:
                hidden = torch.where(skipped[:, None], before, hidden)
        return hidden

    def logits(self, hidden: Hidden) -> Float[Tensor, "tokens vocabulary"]:
        """Return the logits from the output of the last layer, float32."""
        return self.weights.output(self.weights.norm(hidden)).float()

    def slabs(self, hidden: Hidden) -> Iterator[Tensor]:
        """Yield the logits of all places, so many at a time that they fit into memory."""
        most = _LOGIT_BYTES * (8 if hidden.device.type == "cuda" else 1)
        for part in hidden.split(max(1, most // (4 * len(self.weights.embeddings)))):
            yield self.logits(part)

    def row_masks(self, variants: Sequence[Variant]) -> dict[int, RowMasks]:
        """Return what rows change, by layer."""
        weights = self.weights
        if variants != self._masked:  # at most steps of a batch its rows are the same
            self._masks = variant_masks(weights.geometry, variants, weights.device, weights.dtype)
            self._masked = variants
        return self._masks

    def rows(self, size: int) -> SlotRows:
        """Return room for rows to be decoded, at most `size`."""
        return SlotRows(self, size)

    def _project(self, layer: Layer, hidden: Hidden, turns: Turns) -> Sequence[Heads]:
        """Return a layer's queries, keys and values."""
        heads = layer.qkv(layer.norm(hidden)).unflatten(-1, (-1, self.weights.head_dim))
        queries, keys, values = heads.split(layer.heads, dim=1)
        if layer.head_norms:
            of_queries, of_keys = layer.head_norms
            return _turned(of_queries(queries), turns), _turned(of_keys(keys), turns), values
        turned = heads[:, : sum(layer.heads[:2])]
        if heads.dtype == torch.float32:
            torch.view_as_complex(turned.unflatten(-1, (-1, 2))).mul_(turns)
        else:
            turned.copy_(_turned(turned, turns))
        return queries, keys, values

    def _turns_at(self, segments: Segments) -> Turns:
        """Return what turns queries and keys at the tokens' positions."""
        if segments.width > len(self._turns):
            positions = torch.arange(2 * segments.width + 64, device=self.weights.device)
            like = torch.empty(0, device=self.weights.device)
            cos, sin = self.weights.rotary(like, positions[None])
            pairs = self.weights.head_dim // 2
            self._turns = torch.complex(cos[0, :, :pairs], sin[0, :, :pairs])[:, None]
        return self._turns[segments.columns]

    @torch.inference_mode()
    def _is_faithful(self, loaded: LoadedModel) -> bool:
        """Compare logits with those of the model's own modules."""
        width = min(_TRIAL, loaded.model.config.max_position_embeddings)
        tokens = torch.arange(2 * width, device=loaded.device) % len(self.weights.embeddings)
        expected = loaded.model(tokens.view(2, width)).logits.float().flatten(0, 1)
        slots = Slots(self.weights)
        slots.reserve(2, width)
        segments = Segments(range(2), [0, 0], [width, width], loaded.device)
        found = self.logits(self.forward(tokens, segments, slots))
        # Far above rounding, far below what another function gives.
        tolerance = math.sqrt(torch.finfo(loaded.dtype).eps) * expected.abs().max()
        return bool((expected - found).abs().max() <= tolerance)


class SlotRows:
    """Keys and values of rows that a decoder decodes: those of row r are in slot r.

    Args:
        decoder: runs the model.
        size: most rows.
    """

    def __init__(self, decoder: Decoder, size: int) -> None:
        self._decoder = decoder
        self._size = size
        self._slots = Slots(decoder.weights)

    def enter(
        self, first: int, rows: Sequence[Row], leaders: Sequence[int]
    ) -> Float[Tensor, "rows vocabulary"]:
        """Prefill prompts; return the logits behind them.

        Args:
            first: number of rows that are there.
            rows: one a prompt.
            leaders: of each row more, whose prompt it has.
        """
        counts = [len(row.request.prompt) for row in rows]
        tokens = [token for row in rows for token in row.request.prompt]
        slots = range(first, first + len(rows))
        logits = self._feed(tokens, rows, slots, [0] * len(rows), counts)
        for new, leader in enumerate(leaders, start=slots.stop):
            self._slots.move(first + leader, new, counts[leader])
        return logits

    def resume(self, first: int, states: Sequence[States]) -> None:
        """Let rows in whose keys and values are known."""
        self._slots.reserve(self._size, max(each.shape[2] for each in states) + 1)
        for slot, each in enumerate(states, start=first):
            self._slots.insert(slot, each)

    def step(self, rows: Sequence[Row]) -> Float[Tensor, "rows vocabulary"]:
        """Feed each row its last token; return the logits behind it."""
        tokens, lengths = [row.tokens[-1] for row in rows], [row.length for row in rows]
        return self._feed(tokens, rows, range(len(rows)), lengths, [1] * len(rows))

    def keep(self, rows: Sequence[Row], kept: Sequence[int]) -> None:
        """Let row i be what row `kept[i]` was, none earlier than i."""
        for new, old in enumerate(kept):
            if new != old:
                self._slots.move(old, new, rows[old].length)

    def _feed(
        self,
        tokens: Sequence[int],
        rows: Sequence[Row],
        slots: range,
        starts: Sequence[int],
        counts: Sequence[int],
    ) -> Float[Tensor, "rows vocabulary"]:
        decoder, device = self._decoder, self._decoder.weights.device
        self._slots.reserve(self._size, max(map(int.__add__, starts, counts)))
        segments = Segments(slots, starts, counts, device, [1] * len(rows))
        masks = decoder.row_masks([row.variant for row in rows])
        decoder.fed += len(tokens)
        fed = torch.tensor(tokens, device=device)
        return decoder.logits(decoder.forward(fed, segments, self._slots, masking(masks)))


def masking(masks: dict[int, RowMasks]) -> Change:
    """Return what applies the masks of rows, by layer, to their tokens."""

    def change(index: int, segments: Segments, hidden: Hidden, joined: Joined) -> Changed:
        if index not in masks:
            return segments, hidden, joined, None
        mask = masks[index]
        if segments.most > 1:
            mask = mask.each(lambda part: part[segments.rows])
        skipped = None if mask.skipped is None else mask.skipped > 0
        return segments, hidden, mask.applied_to(joined), skipped

    return change


def _turned(heads: Heads, turns: Turns) -> Heads:
    pairs = torch.view_as_complex(heads.float().unflatten(-1, (-1, 2)).contiguous())
    return torch.view_as_real(pairs * turns).flatten(-2).to(heads.dtype)
