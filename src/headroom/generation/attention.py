"""Attention of rows of unlike length to their slots: on any device, or by FlashAttention-2.

`flash` is one call of ATen's operator, which takes packed queries, the length of each row, and as
many key/value heads as there are. It serves float16 and bfloat16 on GPUs from compute capability
8.0 on; `dense` pads queries, masks columns, and serves everything else.
"""

from collections.abc import Callable
from itertools import accumulate

import torch
from jaxtyping import Float
from torch import Tensor
from torch.nn.functional import scaled_dot_product_attention

from headroom.generation.slots import Segments
from headroom.generation.weights import Weights

Attention = Callable[[Tensor, Tensor, Tensor, Segments, int | None], Tensor]
"""`dense` or `flash`."""


def dense(
    queries: Float[Tensor, "tokens query_heads head_dim"],
    keys: Float[Tensor, "rows capacity kv_heads head_dim"],
    values: Float[Tensor, "rows capacity kv_heads head_dim"],
    segments: Segments,
    window: int | None,
) -> Float[Tensor, "tokens width"]:
    """Return the joined outputs of all heads.

    Args:
        queries: of all rows' tokens.
        keys: the rows' slots.
        values: the rows' slots.
        segments: which tokens are whose.
        window: how many of the last columns a token sees; None: all up to its own.
    """
    width = segments.width
    causal = segments.fresh and width == segments.most and (window is None or window >= width)
    outputs = scaled_dot_product_attention(
        segments.padded(queries).transpose(1, 2),
        keys[:, :width].transpose(1, 2),
        values[:, :width].transpose(1, 2),
        attn_mask=None if causal else segments.seen(window),
        is_causal=causal,
        enable_gqa=True,
    )
    return segments.packed(outputs.transpose(1, 2)).flatten(1)


def flash(
    queries: Float[Tensor, "tokens query_heads head_dim"],
    keys: Float[Tensor, "rows capacity kv_heads head_dim"],
    values: Float[Tensor, "rows capacity kv_heads head_dim"],
    segments: Segments,
    window: int | None,
) -> Float[Tensor, "tokens width"]:
    """Return the same as `dense`; capacity is constant, so that only lengths change with a step."""
    rows, capacity = keys.shape[:2]
    device = queries.device
    offsets = torch.tensor([0, *accumulate(segments.counts)], dtype=torch.int32, device=device)
    ends = offsets[1:].long() - 1
    outputs = torch.ops.aten._flash_attention_forward(
        queries,
        keys.flatten(0, 1),
        values.flatten(0, 1),
        offsets,
        torch.arange(rows + 1, dtype=torch.int32, device=device) * capacity,
        segments.most,
        capacity,
        0.0,  # dropout
        True,  # causal: a row's last query sees all of `seqused_k`
        False,
        window_size_left=None if window is None else window - 1,
        window_size_right=None if window is None else 0,
        seqused_k=(segments.columns[ends] + 1).int(),
    )[0]
    return outputs.flatten(1)


def best(weights: Weights) -> Attention:
    """Return the fastest attention that a model's device and type allow."""
    if weights.device.type != "cuda" or weights.dtype == torch.float32:
        return dense
    served = torch.cuda.get_device_capability(weights.device) >= (8, 0)
    alike = len({layer.heads[1] for layer in weights.layers}) == 1
    return flash if served and alike and weights.head_dim % 8 == 0 else dense
