"""The trial of fused operators: none is used before it was held against PyTorch's own.

`fused` returns operators of one kernel each for a model on a GPU. Kernels may be missing, fail to
compile, or be wrong on a card that nobody has tried; then it says why, and `Operators` serve.
"""

from __future__ import annotations

import torch
from torch import Tensor

from headsweep.engine.attention import Attention, Slots
from headsweep.engine.operators import PLAIN, Operators
from headsweep.engine.segments import Segments
from headsweep.engine.weights import Weights
from headsweep.errors import cause_of

_ROWS = 5  # of the trial of fused operators


def fused(weights: Weights, attention: Attention) -> Operators | str:
    """Return fused operators for a model's weights on a GPU, or in words why there are none."""
    try:
        from headsweep.engine.triton_kernels import Fused

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

    width = layer.query_heads * head_dim
    vocabulary = len(weights.embeddings)
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
        operators.attend(attention, asking, slots, index, one_each, window) for window in (None, 9)
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
