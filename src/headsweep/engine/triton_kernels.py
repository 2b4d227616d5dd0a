"""`operators.Operators` on a GPU, each in one kernel of Triton, which PyTorch's CUDA builds bring.

Bytes, for T tokens of hidden size H, inner size I and vocabulary V, two bytes a number:

- `add_then_norm` reads the product and the residual once and writes sum and norm, 8·T·H. PyTorch's
  addition and norm take 10·T·H.
- `gated` takes 6·T·I, PyTorch's activation and product 10·T·I.
- `place` reads queries, keys and values once and writes them, 4 bytes a number. PyTorch converts
  to float32, multiplies, converts back, copies, and writes keys and values apart: some 34 bytes.
- `attend`, of one token a row, reads each key and value once for all queries that share it. ATen's
  operator does, too, but copies queries and outputs into another order and back, and fills tiles of
  64 or 128 queries with the few there are.
- `scale_heads` touches only heads whose factor is not 1; PyTorch's product takes 4 bytes of each.
- `best_two` reads the logits once, 2·T·V. A copy in float32, two maxima and a scatter take 18·T·V.

Sums and products are taken in float32, and rounded when they are written.
"""

# mypy: disable-error-code="no-untyped-def, misc"

from __future__ import annotations

from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

from headsweep.engine.attention import Attention, Slots
from headsweep.engine.operators import Best, Heads, Hidden, Operators, Rotations
from headsweep.engine.segments import Segments
from headsweep.engine.weights import AnyLinear, Layer, Norm

_GATED = 1024  # numbers that a program of `_gate` takes
_SEARCHED = 4096  # logits that a program of `_search` compares at once
_SEEN = 64  # columns that a program of `_attend` sees at once
_FEWEST_MULTIPLIED = 16  # rows of a product in Triton
_ACTIVATIONS = {"silu": 0, "gelu": 1, "gelu_pytorch_tanh": 2}


class Fused(Operators):
    """Each operator in one kernel."""

    name = "fused"

    def add_then_norm(
        self, layer: AnyLinear, states: Tensor, residual: Hidden, norm: Norm
    ) -> tuple[Hidden, Hidden]:
        """Do as `Operators.add_then_norm`."""
        product = layer(states)
        total, normed = torch.empty_like(residual), torch.empty_like(residual)
        rows, width = residual.shape
        block = triton.next_power_of_2(width)
        _launch(
            _add_then_norm,
            rows,
            product,
            residual,
            norm.weight,
            total,
            normed,
            norm.epsilon,
            width,
            block,
        )
        return total, normed

    def gated(self, layer: Layer, states: Hidden, activation: str) -> Tensor:
        """Do as `Operators.gated`."""
        gate, up = layer.gate(states), layer.up(states)
        count = gate.numel()
        programs = triton.cdiv(count, _GATED)
        _launch(_gate, programs, gate, up, count, _ACTIVATIONS[activation], _GATED)
        return gate

    def place(
        self,
        heads: Heads,
        layer: Layer,
        index: int,
        rotations: Rotations,
        segments: Segments,
        slots: Slots,
    ) -> Heads:
        """Do as `Operators.place`."""
        queries = heads[:, : layer.query_heads]
        rotated = layer.query_heads + layer.kv_heads
        if layer.head_norms:
            of_queries, of_keys = layer.head_norms
            queries.copy_(of_queries(queries))
            keys = heads[:, layer.query_heads : rotated]
            keys.copy_(of_keys(keys))
        keys_of_slots, values_of_slots = slots.memory[index]
        tokens = len(heads)
        head_dim = heads.shape[2]
        _launch(
            _place,
            tokens,
            heads,
            torch.view_as_real(rotations),
            segments.slot_of_token,
            segments.column_of_token,
            keys_of_slots,
            values_of_slots,
            keys_of_slots.stride(0),
            keys_of_slots.stride(1),
            keys_of_slots.stride(2),
            layer.query_heads,
            layer.kv_heads,
            head_dim // 2,
            triton.next_power_of_2(rotated),
            triton.next_power_of_2(layer.kv_heads),
            triton.next_power_of_2(head_dim // 2),
        )
        return queries

    def attend(
        self,
        attention: Attention,
        queries: Heads,
        slots: Slots,
        index: int,
        segments: Segments,
        window: int | None,
    ) -> Tensor:
        """Do as `Operators.attend`; rows of several tokens are left to `attention`."""
        if segments.most_tokens > 1:
            return attention(queries, slots, index, segments, window)
        rows, query_heads, head_dim = queries.shape
        keys, values = slots.memory[index]
        kv_heads = slots.kv_heads[index]
        group = query_heads // kv_heads
        outputs = torch.empty(
            rows, query_heads, head_dim, dtype=queries.dtype, device=queries.device
        )
        _launch(
            _attend,
            rows * kv_heads,
            queries,
            keys,
            values,
            segments.slot_of_token,
            segments.column_of_token,
            outputs,
            queries.stride(0),
            keys.stride(0),
            keys.stride(1),
            keys.stride(2),
            head_dim**-0.5,
            window or slots.capacity,
            kv_heads,
            group,
            head_dim,
            max(_FEWEST_MULTIPLIED, triton.next_power_of_2(group)),
            triton.next_power_of_2(head_dim),
            _SEEN,
        )
        return outputs.flatten(1)

    def scale_heads(self, joined: Tensor, factors: Tensor) -> Tensor:
        """Do as `Operators.scale_heads`."""
        rows, heads = factors.shape
        head_dim = joined.shape[1] // heads
        block = triton.next_power_of_2(head_dim)
        _launch(_scale_heads, rows, joined, factors, factors.stride(0), heads, head_dim, block)
        return joined

    def best_two(self, logits: Tensor) -> Best:
        """Do as `Operators.best_two`."""
        places, vocabulary = logits.shape
        tokens = torch.empty(places, dtype=torch.int64, device=logits.device)
        gaps = torch.empty(places, dtype=torch.float32, device=logits.device)
        block = min(_SEARCHED, triton.next_power_of_2(vocabulary))
        _launch(_search, places, logits, tokens, gaps, logits.stride(0), vocabulary, block)
        return tokens, gaps


def _launch(kernel: Any, programs: int, first: Tensor, *rest: Any) -> None:
    """Launch a kernel on the GPU of its first tensor, which need not be the current one."""
    with torch.cuda.device_of(first):
        kernel[(programs,)](first, *rest)


# Kernels. Triton reads annotations, and knows none but its own: sizes of blocks, powers of two.


@triton.jit
def _add_then_norm(
    product,
    residual,
    weight,
    total,
    normed,
    epsilon,
    width,
    block: tl.constexpr,
):
    row = tl.program_id(0).to(tl.int64) * width
    column = tl.arange(0, block)
    inside = column < width
    added = tl.load(product + row + column, mask=inside, other=0.0).to(tl.float32)
    before = tl.load(residual + row + column, mask=inside, other=0.0)
    # Rounded as PyTorch's sum is: the norm is of what the residual stream holds.
    rounded = (added + before.to(tl.float32)).to(before.dtype)
    tl.store(total + row + column, rounded, mask=inside)
    states = rounded.to(tl.float32)
    scale = tl.rsqrt(tl.sum(states * states, axis=0) / width + epsilon)
    factor = tl.load(weight + column, mask=inside, other=0.0).to(tl.float32)
    tl.store(normed + row + column, (states * scale * factor).to(before.dtype), mask=inside)


@triton.jit
def _gate(gate, up, count, activation: tl.constexpr, block: tl.constexpr):
    place = tl.program_id(0).to(tl.int64) * block + tl.arange(0, block)
    inside = place < count
    stored = tl.load(gate + place, mask=inside, other=0.0)
    x = stored.to(tl.float32)
    if activation == 0:
        opened = x / (1.0 + tl.exp(-x))
    elif activation == 1:
        opened = 0.5 * x * (1.0 + tl.erf(x * 0.7071067811865476))
    else:  # the hyperbolic tangent of u is 2 / (1 + exp(-2u)) - 1
        u = 0.7978845608028654 * (x + 0.044715 * x * x * x)
        opened = x / (1.0 + tl.exp(-2.0 * u))
    # Rounded as PyTorch's activation is.
    opened = opened.to(stored.dtype).to(tl.float32)
    other = tl.load(up + place, mask=inside, other=0.0).to(tl.float32)
    tl.store(gate + place, (opened * other).to(stored.dtype), mask=inside)


@triton.jit
def _place(
    heads,
    rotations,
    slot_of_token,
    column_of_token,
    keys,
    values,
    slot_stride,
    column_stride,
    kv_head_stride,
    query_heads: tl.constexpr,
    kv_heads: tl.constexpr,
    pairs: tl.constexpr,
    rotated_block: tl.constexpr,
    kv_block: tl.constexpr,
    pair_block: tl.constexpr,
):
    token = tl.program_id(0).to(tl.int64)
    slot = tl.load(slot_of_token + token)
    column = tl.load(column_of_token + token)
    own = heads + token * (query_heads + 2 * kv_heads) * 2 * pairs
    into = slot * slot_stride + column * column_stride
    both = tl.arange(0, 2 * pair_block)
    turns = tl.load(rotations + column * 2 * pairs + both, mask=both < 2 * pairs, other=0.0)
    cos, sin = tl.split(tl.reshape(turns, (1, pair_block, 2)))
    both = both[None, :]
    head = tl.arange(0, rotated_block)[:, None]
    inside = (head < query_heads + kv_heads) & (both < 2 * pairs)
    # Neighbours are read together, then parted: x and y of each rotary pair.
    stored = tl.load(own + head * 2 * pairs + both, mask=inside, other=0.0)
    parted = tl.reshape(stored.to(tl.float32), (rotated_block, pair_block, 2))
    x, y = tl.split(parted)
    turned = tl.join(x * cos - y * sin, x * sin + y * cos)
    rotated = tl.reshape(turned, (rotated_block, 2 * pair_block)).to(stored.dtype)
    tl.store(own + head * 2 * pairs + both, rotated, mask=inside & (head < query_heads))
    key = keys + into + (head - query_heads) * kv_head_stride + both
    tl.store(key, rotated, mask=inside & (head >= query_heads))
    kv_head = tl.arange(0, kv_block)[:, None]
    within = (kv_head < kv_heads) & (both < 2 * pairs)
    of_values = own + (query_heads + kv_heads + kv_head) * 2 * pairs + both
    value = tl.load(of_values, mask=within, other=0.0)
    tl.store(values + into + kv_head * kv_head_stride + both, value, mask=within)


@triton.jit
def _attend(
    queries,
    keys,
    values,
    slot_of_row,
    column_of_row,
    outputs,
    query_stride,
    slot_stride,
    column_stride,
    kv_head_stride,
    scale,
    window,
    kv_heads: tl.constexpr,
    group: tl.constexpr,
    head_dim: tl.constexpr,
    group_block: tl.constexpr,
    dim_block: tl.constexpr,
    columns: tl.constexpr,
):
    row = tl.program_id(0).to(tl.int64) // kv_heads
    kv_head = tl.program_id(0) % kv_heads
    last = tl.load(column_of_row + row).to(tl.int32)
    of_slot = tl.load(slot_of_row + row) * slot_stride + kv_head * kv_head_stride
    member = tl.arange(0, group_block)[:, None]
    dim = tl.arange(0, dim_block)[None, :]
    inside = (member < group) & (dim < head_dim)
    own = (kv_head * group + member) * head_dim + dim
    query = tl.load(queries + row * query_stride + own, mask=inside, other=0.0)
    first = tl.maximum(last + 1 - window, 0)
    # The softmax in one pass (Milakov and Gimelshein, arXiv 1805.02867).
    highest = tl.full([group_block, 1], float("-inf"), tl.float32)
    weight = tl.zeros([group_block, 1], tl.float32)
    total = tl.zeros([group_block, dim_block], tl.float32)
    for begin in range(first, last + 1, columns):
        column = begin + tl.arange(0, columns)
        seen = column <= last
        place = of_slot + column.to(tl.int64)[:, None] * column_stride + dim
        is_there = seen[:, None] & (dim < head_dim)
        key = tl.load(keys + place, mask=is_there, other=0.0)
        score = tl.dot(query, tl.trans(key)) * scale
        score = tl.where(seen[None, :], score, float("-inf"))
        higher = tl.maximum(highest, tl.max(score, axis=1, keep_dims=True))
        shrinking = tl.exp(highest - higher)
        share = tl.exp(score - higher)
        weight = weight * shrinking + tl.sum(share, axis=1, keep_dims=True)
        value = tl.load(values + place, mask=is_there, other=0.0)
        total = total * shrinking + tl.dot(share.to(value.dtype), value)
        highest = higher
    result = (total / weight).to(query.dtype)
    tl.store(outputs + row * kv_heads * group * head_dim + own, result, mask=inside)


@triton.jit
def _scale_heads(
    joined,
    factors,
    factor_stride,
    heads: tl.constexpr,
    head_dim: tl.constexpr,
    block: tl.constexpr,
):
    row = tl.program_id(0).to(tl.int64)
    place = tl.arange(0, block)
    for head in tl.static_range(heads):
        factor = tl.load(factors + row * factor_stride + head).to(tl.float32)
        if factor != 1.0:
            of_head = joined + (row * heads + head) * head_dim + place
            output = tl.load(of_head, mask=place < head_dim, other=0.0)
            scaled = (output.to(tl.float32) * factor).to(output.dtype)
            tl.store(of_head, scaled, mask=place < head_dim)


@triton.jit
def _search(logits, tokens, gaps, stride, vocabulary, block: tl.constexpr):
    place = tl.program_id(0).to(tl.int64)
    lane = tl.arange(0, block)
    # Of each lane: its best logit so far, the token of this, the second best, and whether a
    # logit was no number.
    best = tl.full([block], float("-inf"), tl.float32)
    second = tl.full([block], float("-inf"), tl.float32)
    token = lane
    spoilt = tl.zeros([block], tl.int32)
    for start in range(0, vocabulary, block):
        here = start + lane
        logit = tl.load(
            logits + place * stride + here, mask=here < vocabulary, other=float("-inf")
        ).to(tl.float32)
        better = logit > best
        second = tl.where(better, best, tl.maximum(second, logit))
        token = tl.where(better, here, token)
        best = tl.where(better, logit, best)
        spoilt = tl.where(logit != logit, 1, spoilt)
    highest = tl.max(best, axis=0)
    chosen = tl.min(tl.where(best == highest, token, vocabulary), axis=0)
    runner_up = tl.max(tl.where(token == chosen, second, best), axis=0)
    gap = tl.where(tl.max(spoilt, axis=0) > 0, float("nan"), highest - runner_up)
    tl.store(tokens + place, chosen.to(tl.int64))
    tl.store(gaps + place, gap)
