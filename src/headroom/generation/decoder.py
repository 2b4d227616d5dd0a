"""The one forward pass of Llama-like decoders, on CPU and GPU: tokens of any rows, packed.

All tokens of a pass lie one after the other, without padding; only attention knows which are
whose. Linear layers do activation, gate and residual sum as they write a product. The last layer is
computed only where something is chosen. The same weights give the same function as the model's own
modules but for rounding; `Decoder.of` makes sure by a trial.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING

import torch
from jaxtyping import Complex, Float, Int
from torch import Tensor
from torch.nn.functional import embedding

from headroom.generation.attention import Attention, best
from headroom.generation.sampling import choose
from headroom.generation.slots import Segments, Slots
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


class Decoder:
    """Runs a model on packed tokens.

    Args:
        loaded: the model.
        attend: how attention is computed; by default the fastest way that the device allows.
    """

    def __init__(self, loaded: LoadedModel, attend: Attention | None = None) -> None:
        self.loaded = loaded
        self.weights = Weights(loaded)
        self.attend = attend or best(self.weights)
        self.fed = 0
        """Tokens fed so far, those of all rows."""
        self._angles = torch.empty(0)

    @staticmethod
    def of(loaded: LoadedModel) -> Decoder | None:
        """Return a decoder for a model, or None where it needs its own modules."""
        if serves(loaded):
            decoder = Decoder(loaded)
            if decoder._is_faithful():
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
        masks: Mapping[int, RowMasks],
        keep: Sequence[int] | None = None,
    ) -> Hidden:
        """Return the output of the last layer; keys and values go into the slots.

        Args:
            tokens: of all rows, one after the other.
            segments: which are whose.
            slots: keys and values of earlier tokens, and of these.
            masks: what tokens change, by layer.
            keep: how many last tokens of each row to compute to the end; all by default.
        """
        self.fed += len(tokens)
        hidden, angles = self.embed(tokens), self.angles(segments.columns)
        for index, layer in enumerate(self.weights.layers):
            queries, keys, values = self.project(layer, hidden, angles)
            slots.write(index, segments, keys, values)
            if keep is not None and index == len(self.weights.layers) - 1:
                segments, chosen = tail(segments, keep)
                hidden, queries = hidden[chosen], queries[chosen]
                masks = {at: mask.of(chosen) for at, mask in masks.items()}
            joined = self.attend(queries, *slots.read(index, segments), segments, layer.window)
            if index in masks:
                joined = masks[index].applied_to(joined[:, None])[:, 0]
            hidden = self.finish(layer, hidden, joined)
        return hidden

    def embed(self, tokens: Int[Tensor, " tokens"]) -> Hidden:
        """Return the input of the first layer."""
        hidden = embedding(tokens, self.weights.embeddings)
        return hidden if self.weights.scale is None else hidden * self.weights.scale

    def angles(self, positions: Int[Tensor, " tokens"]) -> Complex[Tensor, "tokens 1 pairs"]:
        """Return what turns queries and keys at some positions."""
        if positions.device.type == "cuda":  # no look at what lies there: that would wait for it
            return self._turns(positions)
        last = int(positions.max())
        if last >= len(self._angles):
            self._angles = self._turns(torch.arange(2 * last + 64))
        return self._angles[positions]

    def project(
        self, layer: Layer, hidden: Hidden, angles: Complex[Tensor, "tokens 1 pairs"]
    ) -> Sequence[Heads]:
        """Return a layer's queries, keys and values."""
        heads = layer.qkv(layer.norm(hidden)).unflatten(-1, (-1, self.weights.head_dim))
        queries, keys, values = heads.split(layer.heads, dim=1)
        if layer.head_norms:
            queries, keys = (
                norm(part) for norm, part in zip(layer.head_norms, (queries, keys), strict=True)
            )
            return _turned(queries, angles), _turned(keys, angles), values
        turned = heads[:, : sum(layer.heads[:2])]
        if heads.dtype == torch.float32:
            torch.view_as_complex(turned.unflatten(-1, (-1, 2))).mul_(angles)
        else:
            turned.copy_(_turned(turned, angles))
        return queries, keys, values

    def finish(self, layer: Layer, hidden: Hidden, joined: Float[Tensor, "tokens width"]) -> Hidden:
        """Return a layer's output from its input and the joined outputs of its heads."""
        hidden = layer.output.plus(joined, hidden)
        normed = layer.mlp_norm(hidden)
        inner = layer.up.times(normed, layer.gate(normed, self.weights.activation))
        return layer.down.plus(inner, hidden)

    def logits(self, hidden: Hidden) -> Float[Tensor, "tokens vocabulary"]:
        """Return the logits from the output of the last layer, float32."""
        return self.weights.output(self.weights.norm(hidden)).float()

    def choose(
        self, hidden: Hidden, watch: Callable[[int, Tensor], object] | None = None
    ) -> tuple[list[int], list[float]]:
        """Return the most probable token at each place, and its gap to the second best.

        Args:
            hidden: the output of the last layer.
            watch: is shown logits, and from which place on they are.
        """
        most = _LOGIT_BYTES * (8 if hidden.device.type == "cuda" else 1)
        rows = max(1, most // (4 * len(self.weights.embeddings)))
        found = []
        for begin in range(0, len(hidden), rows):
            logits = self.logits(hidden[begin : begin + rows])
            if watch is not None:
                watch(begin, logits)
            found.append(choose(logits))
        tokens, gaps = (torch.cat(parts) for parts in zip(*found, strict=True))
        return tokens.tolist(), gaps.tolist()

    def share_above(self, layer: int) -> float:
        """Return the share of a token's products that lies above a layer's attention."""
        depth, each = len(self.weights.layers), self.weights.layer_size
        output = self.weights.output.size
        return ((depth - layer) * each + output) / (depth * each + output)

    def row_masks(self, variants: Sequence[Variant]) -> dict[int, RowMasks]:
        """Return what rows change, by layer."""
        weights = self.weights
        return variant_masks(weights.geometry, variants, weights.device, weights.dtype)

    def _turns(self, positions: Int[Tensor, " tokens"]) -> Complex[Tensor, "tokens 1 pairs"]:
        like = torch.empty(0, device=self.weights.device)
        cos, sin = self.weights.rotary(like, positions[None])
        pairs = self.weights.head_dim // 2
        return torch.complex(cos[0, :, :pairs], sin[0, :, :pairs])[:, None]

    @torch.inference_mode()
    def _is_faithful(self) -> bool:
        """Compare logits with those of the model's own modules."""
        loaded = self.loaded
        width = min(_TRIAL, loaded.model.config.max_position_embeddings)
        tokens = torch.arange(2 * width, device=loaded.device) % len(self.weights.embeddings)
        expected = loaded.model(tokens.view(2, width)).logits.float().flatten(0, 1)
        slots = Slots(self.weights)
        slots.reserve(2, width)
        segments = Segments.of([0, 0], [width, width], loaded.device)
        found = self.logits(self.forward(tokens, segments, slots, {}))
        self.fed = 0
        # Far above rounding, far below what another function gives.
        tolerance = math.sqrt(torch.finfo(loaded.dtype).eps) * expected.abs().max()
        return bool((expected - found).abs().max() <= tolerance)


def tail(segments: Segments, keep: Sequence[int]) -> tuple[Segments, Int[Tensor, " kept"]]:
    """Return the last tokens of each row, and where they stand among all.

    Args:
        segments: the rows.
        keep: how many of each; at least one.
    """
    places: list[int] = []
    end = 0
    for count, kept in zip(segments.counts, keep, strict=True):
        end += count
        places += range(end - kept, end)
    chosen = torch.tensor(places, device=segments.columns.device)
    whole = list(keep) == list(segments.counts)
    left = Segments(
        segments.begin,
        keep,
        segments.columns[chosen],
        segments.width,
        segments.fresh and whole,
        segments.alike and len(set(keep)) == 1,
    )
    return left, chosen


def _turned(heads: Heads, angles: Complex[Tensor, "tokens 1 pairs"]) -> Heads:
    pairs = torch.view_as_complex(heads.float().unflatten(-1, (-1, 2)).contiguous())
    return torch.view_as_real(pairs * angles).flatten(-2).to(heads.dtype)
