"""What a pass computes between its products: norms, rotation, gates, masks, the best token.

`Operators` does it with PyTorch's own. On a GPU most of these only move memory, one of PyTorch's
kernels after the other; there `triton_kernels` does each in one, which reads and
writes every number once.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from jaxtyping import Complex, Float, Int
from torch import Tensor

from headsweep.engine.attention import Attention, Slots
from headsweep.engine.segments import Segments

if TYPE_CHECKING:
    from headsweep.engine.weights import AnyLinear, Layer, Norm

Heads = Float[Tensor, "tokens heads head_dim"]
Hidden = Float[Tensor, "tokens hidden"]
Rotations = Complex[Tensor, "positions 1 pairs"]
Best = tuple[Int[Tensor, " places"], Float[Tensor, " places"]]


class Operators:
    """PyTorch's own operators; on a CPU oneDNN applies some of them while it writes a product."""

    name = ""

    def add_then_norm(
        self, layer: AnyLinear, states: Tensor, residual: Hidden, norm: Norm
    ) -> tuple[Hidden, Hidden]:
        """Return the residual stream plus a layer's product, and the norm of this sum."""
        total = layer.then("add", residual, states)
        return total, norm(total)

    def gated(self, layer: Layer, states: Hidden, activation: str) -> Float[Tensor, "tokens inner"]:
        """Return what `down` reads: the gate's activation times `up`."""
        return layer.up.then("mul", layer.gate(states, activation), states)

    def place(
        self,
        heads: Heads,
        layer: Layer,
        index: int,
        rotations: Rotations,
        segments: Segments,
        slots: Slots,
    ) -> Heads:
        """Rotate queries and keys; put keys and values into their slots; return the queries.

        Args:
            heads: a layer's query heads, then its keys, then its values; overwritten.
            layer: what else there is to know of them.
            index: the layer's.
            rotations: of all positions.
            segments: where the tokens stand.
            slots: where keys and values go.
        """
        rotations = segments.rotations_of(rotations)
        counts = (layer.query_heads, layer.kv_heads, layer.kv_heads)
        queries, keys, values = heads.split(counts, dim=1)
        if layer.head_norms:
            of_queries, of_keys = layer.head_norms
            queries = _rotated(of_queries(queries), rotations)
            keys = _rotated(of_keys(keys), rotations)
        else:
            both = heads[:, : layer.query_heads + layer.kv_heads]
            if heads.dtype == torch.float32:
                torch.view_as_complex(both.unflatten(-1, (-1, 2))).mul_(rotations)
            else:
                both.copy_(_rotated(both, rotations))
        slots.write(index, segments, keys, values)
        return queries

    def attend(
        self,
        attention: Attention,
        queries: Heads,
        slots: Slots,
        index: int,
        segments: Segments,
        window: int | None,
    ) -> Float[Tensor, "tokens width"]:
        """Return the joined outputs of a layer's heads, as an attention of `attention` does."""
        return attention(queries, slots, index, segments, window)

    def scale_heads(
        self, joined: Float[Tensor, "rows width"], factors: Float[Tensor, "rows query_heads"]
    ) -> Float[Tensor, "rows width"]:
        """Return the heads' joined outputs times a factor for each head; may overwrite them."""
        heads = joined.unflatten(-1, (factors.shape[1], -1))
        return (heads * factors[..., None]).flatten(-2)

    def best_two(self, logits: Float[Tensor, "places vocabulary"]) -> Best:
        """Return each place's most probable token, and its gap to the second best, float32.

        Of equal logits the first counts. The gap is no finite number where a logit is none, or is
        +infinity.
        """
        tokens = logits.argmax(-1)
        places = tokens[:, None]
        best = logits.gather(-1, places)
        second = logits.scatter_(-1, places, -torch.inf).amax(-1)  # in place: a copy would be large
        logits.scatter_(-1, places, best)
        return tokens, best[:, 0].float() - second.float()


def _rotated(heads: Heads, rotations: Rotations) -> Heads:
    """Return rotated queries or keys; the product is computed in float32."""
    pairs = torch.view_as_complex(heads.float().unflatten(-1, (-1, 2)).contiguous())
    return torch.view_as_real(pairs * rotations).flatten(-2).to(heads.dtype)


PLAIN = Operators()
