"""Passes of Llama-like decoders in few operators, on a CPU in float32.

The model's own modules run some thirty operators a layer; here there are a dozen. Queries, keys
and values are one product. Rotary embedding is one complex product: the two parts of a pair are
put side by side, in queries and keys alike, so that no score changes. oneDNN, where it is taken,
does activation, gate and residual sums as it writes a product. The last layer is computed only
where logits are asked for.

The same weights give the same function, but for rounding. `Direct.of` makes sure of that by a
trial, and serves no model that fails it: everything else goes through `forward.Forward`.
"""

import logging
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Bool, Complex, Float, Int
from torch import Tensor, nn
from torch.nn.functional import embedding, rms_norm, scaled_dot_product_attention
from transformers import DynamicCache, LlamaForCausalLM, Qwen2ForCausalLM
from transformers.cache_utils import Cache

from headroom.generation.linear import Linear
from headroom.models.load import LoadedModel
from headroom.models.masks import RowMasks, variant_masks
from headroom.variants import BASE, Variant

_LOG = logging.getLogger(__name__)

_SERVED = (LlamaForCausalLM, Qwen2ForCausalLM)

Hidden = Float[Tensor, "batch tokens hidden"]
Heads = Float[Tensor, "batch heads tokens head_dim"]


@dataclass(frozen=True)
class Layer:
    """Weights of one layer."""

    heads: tuple[int, int, int]
    """How many of queries, keys and values."""
    norm: Any
    qkv: Linear
    output: Linear
    mlp_norm: Any
    gate: Linear
    up: Linear
    down: Linear


class Direct:
    """Runs a model on token ids and a key/value cache, as `forward.Forward` does.

    Keys are kept with their pairs side by side: no other code can go on with them.
    """

    @staticmethod
    def of(loaded: LoadedModel) -> "Direct | None":
        """Return direct passes of a model, or None where it needs its own modules."""
        on_cpu = loaded.device.type == "cpu" and loaded.dtype == torch.float32
        if not (on_cpu and type(loaded.model) in _SERVED and _has_weights(loaded.model)):
            return None
        direct = Direct(loaded)
        if direct._is_faithful():
            return direct
        _LOG.info("%s runs by its own modules", type(loaded.model).__name__)
        return None

    @torch.no_grad()
    def __init__(self, loaded: LoadedModel) -> None:
        """Copy the weights: a model that is changed afterwards needs other passes."""
        self.loaded = loaded
        self.fed = 0
        """Tokens fed so far, those of all rows."""
        self._decoder: Any = loaded.model.model
        attentions = loaded.geometry.layers
        self._head_dim = attentions[0].head_dim
        self.layers = [
            self._layer(layer, (heads.query_heads, heads.kv_heads, heads.kv_heads))
            for layer, heads in zip(self._decoder.layers, attentions, strict=True)
        ]
        self._output = Linear(loaded.model.get_output_embeddings().weight)
        self._variants: list[Variant] = []
        self._masks: dict[int, RowMasks] = {}

    def __call__(
        self,
        tokens: Int[Tensor, "batch tokens"],
        positions: Int[Tensor, "batch tokens"],
        variants: Sequence[Variant],
        cache: Cache,
        *,
        visible: Int[Tensor, "batch columns"] | None = None,
        keep: int = 1,
    ) -> Float[Tensor, "batch keep vocabulary"]:
        """Return the logits of the last `keep` positions; see `forward.Forward`."""
        self.fed += tokens.numel()
        masks = self._masks_of(list(variants))
        hidden, angles = self.embed(tokens), self.angles(positions)
        seen = _seen(visible, *tokens.shape)
        for index, layer in enumerate(self.layers):
            queries, keys, values = self.project(layer, hidden, angles)
            keys, values = cache.update(keys, values, index)
            if index == len(self.layers) - 1:
                hidden, queries, seen = hidden[:, -keep:], queries[:, :, -keep:], seen[:, :, -keep:]
            joined = self.attend(queries, keys, values, seen)
            if index in masks:
                joined = masks[index].applied_to(joined)
            hidden = self.finish(layer, hidden, joined)
        return self.logits(hidden)

    def embed(self, tokens: Int[Tensor, "batch tokens"]) -> Hidden:
        """Return the input of the first layer."""
        return embedding(tokens, self._decoder.embed_tokens.weight)

    def angles(
        self, positions: Int[Tensor, "batch tokens"]
    ) -> Complex[Tensor, "batch tokens 1 pairs"]:
        """Return what turns queries and keys at some positions."""
        cos, sin = self._decoder.rotary_emb(torch.empty(0), positions)
        pairs = self._head_dim // 2
        return torch.complex(cos[..., :pairs], sin[..., :pairs])[:, :, None]

    def project(
        self, layer: Layer, hidden: Hidden, angles: Complex[Tensor, "batch tokens 1 pairs"]
    ) -> Sequence[Heads]:
        """Return a layer's queries, keys and values."""
        qkv = layer.qkv(_normed(layer.norm, hidden))
        heads = qkv.unflatten(-1, (-1, self._head_dim))
        turned = heads[:, :, : sum(layer.heads[:2])].unflatten(-1, (-1, 2))
        torch.view_as_complex(turned).mul_(angles)
        return heads.transpose(1, 2).split(layer.heads, dim=1)

    def attend(
        self,
        queries: Heads,
        keys: Heads,
        values: Heads,
        seen: Bool[Tensor, "#batch 1 #tokens columns"] | None,
    ) -> Float[Tensor, "batch tokens width"]:
        """Return the joined outputs of all heads.

        Args:
            queries: of the query heads.
            keys: of the key/value heads.
            values: of the key/value heads.
            seen: which columns each query sees; None: those up to its own, from the first on.
        """
        outputs = scaled_dot_product_attention(
            queries, keys, values, attn_mask=seen, is_causal=seen is None, enable_gqa=True
        )
        return outputs.transpose(1, 2).flatten(2)

    def finish(
        self, layer: Layer, hidden: Hidden, joined: Float[Tensor, "batch tokens width"]
    ) -> Hidden:
        """Return a layer's output from its input and the joined outputs of its heads."""
        hidden = layer.output.plus(joined, hidden)
        normed = _normed(layer.mlp_norm, hidden)
        inner = layer.up.times(normed, layer.gate(normed, "silu"))
        return layer.down.plus(inner, hidden)

    def logits(self, hidden: Hidden) -> Float[Tensor, "batch tokens vocabulary"]:
        """Return the logits from the output of the last layer."""
        return self._output(_normed(self._decoder.norm, hidden))

    def _layer(self, layer: Any, heads: tuple[int, int, int]) -> Layer:
        attention = layer.self_attn
        turned, values = (attention.q_proj, attention.k_proj), attention.v_proj
        biased = values.bias is not None
        weight = torch.cat([*(self._paired(part.weight) for part in turned), values.weight])
        bias = None
        if biased:
            bias = torch.cat([*(self._paired(part.bias) for part in turned), values.bias])
        output, mlp = attention.o_proj, layer.mlp
        return Layer(
            heads,
            layer.input_layernorm,
            Linear(weight, bias),
            Linear(output.weight, output.bias),
            layer.post_attention_layernorm,
            *(Linear(part.weight) for part in (mlp.gate_proj, mlp.up_proj, mlp.down_proj)),
        )

    def _paired(self, weight: Tensor) -> Tensor:
        """Put the rows of each rotary pair of a projection's heads side by side."""
        halves = weight.unflatten(0, (-1, 2, self._head_dim // 2))
        return halves.transpose(1, 2).flatten(0, 2)

    def _masks_of(self, variants: list[Variant]) -> dict[int, RowMasks]:
        if variants != self._variants:
            self._masks = variant_masks(self.loaded.geometry, variants)
            self._variants = variants
        return self._masks

    @torch.inference_mode()
    def _is_faithful(self) -> bool:
        """Compare logits with those of the model's own modules."""
        width = min(8, self.loaded.model.config.max_position_embeddings)
        tokens = torch.arange(2 * width).view(2, width) % self._decoder.embed_tokens.num_embeddings
        expected = self.loaded.model(tokens).logits
        positions, visible = torch.arange(width)[None], torch.ones_like(tokens)
        cache = DynamicCache()
        found = self(tokens, positions, [BASE] * 2, cache, visible=visible, keep=width)
        self.fed = 0
        # Far above rounding, far below what another function gives.
        tolerance = math.sqrt(torch.finfo(torch.float32).eps) * expected.abs().max()
        return bool((expected - found).abs().max() <= tolerance)


def _has_weights(model: nn.Module) -> bool:
    """Tell whether products are those of plain weights, not of eight bits."""
    parts = [module for name, module in model.named_modules() if name.endswith(("proj", "head"))]
    return all(type(part) is nn.Linear for part in parts)


def _normed(norm: Any, hidden: Hidden) -> Hidden:
    return rms_norm(hidden, hidden.shape[-1:], norm.weight, norm.variance_epsilon)


def _seen(
    visible: Int[Tensor, "batch columns"] | None, batch: int, tokens: int
) -> Bool[Tensor, "#batch 1 #tokens columns"]:
    """Return which columns each query sees; the last columns are those of the tokens."""
    if visible is None:
        return torch.ones(1, 1, tokens, tokens, dtype=torch.bool).tril()
    seen = visible[:, None, None].bool()
    if tokens == 1:
        return seen
    columns = visible.shape[1]
    # A padded position sees itself: a row of nothing would be no number.
    causal = torch.ones(tokens, columns, dtype=torch.bool).tril(columns - tokens)
    own = (
        torch.ones(tokens, columns, dtype=torch.bool).tril(columns - tokens).triu(columns - tokens)
    )
    return (seen & causal) | own
