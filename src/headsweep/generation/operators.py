"""What a pass computes between its products: norms, rotation, gates, masks, the best token.

`Operators` does it with PyTorch's own. On a GPU most of these only move memory, one of PyTorch's
kernels after the other; there `fused` does each in one kernel (`triton_kernels`), which reads and
writes every number once. Nothing fused is used before it was held against `Operators`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from jaxtyping import Complex, Float, Int
from torch import Tensor

from headsweep.errors import cause_of
from headsweep.generation.attention import Attention, Segments, Slots

if TYPE_CHECKING:
    from headsweep.generation.weights import AnyLinear, Layer, Norm, Weights

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

_ROWS = 5  # of the trial of fused operators


def fused(weights: Weights, attention: Attention) -> Operators | str:
    """Return fused operators for a model's weights on a GPU, or in words why there are none."""
    try:
        from headsweep.generation.triton_kernels import Fused

        return _differing(Fused(), weights, attention) or Fused()
    except torch.OutOfMemoryError:
        raise
    except Exception as error:  # the compiler has many of its own
        return cause_of(error, 200)


@torch.inference_mode()
def _differing(tried: Operators, weights: Weights, attention: Attention) -> str:
    """Name the operators that do something else than PyTorch's own; "" if there are none."""
    found, expected = (_results(each, weights, attention) for each in (tried, PLAIN))
    bound = 2 * torch.finfo(weights.dtype).eps
    differing = [
        name
        for name, right in expected.items()
        if not (found[name] - right).norm() <= bound * right.norm()
    ]
    return f"other results of {', '.join(differing)}" if differing else ""


def _results(operators: Operators, weights: Weights, attention: Attention) -> dict[str, Tensor]:
    """Return what each operator gives for invented numbers, float32."""
    index = len(weights.layers) - 1
    layer = weights.layers[index]
    device, dtype, head_dim = weights.device, weights.dtype, weights.head_dim
    draw = torch.Generator().manual_seed(0)

    def numbers(*sizes: int) -> Tensor:
        return torch.randn(sizes, generator=draw).to(device, dtype)

    width, vocabulary = layer.query_heads * head_dim, len(weights.embeddings)
    residual = numbers(_ROWS, weights.embeddings.shape[1])
    joined = numbers(_ROWS, width)
    total, normed = operators.add_then_norm(layer.output, joined, residual, layer.mlp_norm)
    gated = operators.gated(layer, residual, weights.activation)
    # Two rows of unlike lengths, in slots that are no neighbours.
    segments = Segments([1, 4], [3, 0], [2, _ROWS - 2], device, [1, 1])
    slots = Slots(weights)
    slots.reserve(6, 7)
    angles = torch.outer(torch.arange(8.0), 1 / torch.arange(1.0, head_dim // 2 + 1))
    rotations = torch.polar(torch.ones_like(angles), angles)[:, None].to(device)
    heads = numbers(_ROWS, layer.query_heads + 2 * layer.kv_heads, head_dim)
    queries = operators.place(heads, layer, index, rotations, segments, slots)
    placed = torch.cat([queries.flatten(), slots.memory[index].flatten()])
    # Rows with holes between their slots; the window is within the longest and beyond another.
    slots.reserve(6, 100)
    slots.memory.copy_(numbers(*slots.memory.shape))
    one_each = Segments([0, 1, 4], [80, 2, 63], [1, 1, 1], device, [1, 1, 1])
    asking = numbers(3, layer.query_heads, head_dim)
    attended = [
        operators.attend(attention, asking, slots, index, one_each, window)
        for window in (None, 9)
    ]
    factors = torch.arange(_ROWS * layer.query_heads, device=device) % 3 / 2
    factors = factors.view(_ROWS, layer.query_heads).to(dtype)
    scaled = operators.scale_heads(joined.clone(), factors)
    logits = numbers(_ROWS, vocabulary)
    logits[1, vocabulary // 2 :: 5] = 9  # equal ones, all above the rest
    logits[2, -1] = 9
    tokens, gaps = operators.best_two(logits)
    return {
        "add_then_norm": torch.cat([total, normed]).float(),
        "gated": gated.float(),
        "place": placed.float(),
        "attend": torch.cat(attended).float(),
        "scale_heads": scaled.float(),
        "best_two": torch.stack([tokens.float(), gaps]),
    }
