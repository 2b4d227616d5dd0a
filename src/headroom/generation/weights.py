"""Weights of Llama-like decoders, in the form in which `decoder` reads them.

Served are Llama (SmolLM too), Mistral, Qwen2, Qwen3 and Gemma 1. Queries, keys and values become
one product. The two parts of a rotary pair are put side by side, in queries and keys and in their
norms alike, so that no score changes and rotation is one complex product.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn
from torch.nn.functional import rms_norm
from transformers import (
    GemmaForCausalLM,
    LlamaForCausalLM,
    MistralForCausalLM,
    Qwen2ForCausalLM,
    Qwen3ForCausalLM,
)

from headroom.generation.linear import ACTIVATIONS, Linear

if TYPE_CHECKING:
    from headroom.models.load import LoadedModel

_SERVED = (
    GemmaForCausalLM,
    LlamaForCausalLM,
    MistralForCausalLM,
    Qwen2ForCausalLM,
    Qwen3ForCausalLM,
)

_HEAVY = 1 << 22
"""Weights of a layer from which a pass's own overhead no longer counts."""

Norm = Callable[[Tensor], Tensor]


@dataclass(frozen=True)
class Layer:
    """Weights of one layer."""

    heads: tuple[int, int, int]
    """How many of queries, keys and values."""
    window: int | None
    """How many of the last tokens a query sees, its own included; None: all."""
    norm: Norm
    qkv: Linear
    head_norms: tuple[Norm, Norm] | None
    """Of queries and keys."""
    output: Linear
    mlp_norm: Norm
    gate: Linear
    up: Linear
    down: Linear


class Weights:
    """Copies and views of a model's weights; a model that is changed afterwards needs others.

    Args:
        loaded: a model that `serves` says yes to.
    """

    @torch.no_grad()
    def __init__(self, loaded: LoadedModel) -> None:
        model: Any = loaded.model
        config, layers = model.config, loaded.geometry.layers
        self.geometry = loaded.geometry
        self.device, self.dtype = loaded.device, loaded.dtype
        self._gemma = isinstance(model, GemmaForCausalLM)
        self.head_dim = layers[0].head_dim
        self.kv_heads = max(layer.kv_heads for layer in layers)
        self.embeddings: Tensor = model.model.embed_tokens.weight.detach()
        self.scale = None
        """What embeddings are multiplied by."""
        if self._gemma:
            self.scale = torch.tensor(config.hidden_size**0.5, dtype=self.dtype).item()
        self.rotary = model.model.rotary_emb
        self.activation = _activation(config)
        kinds = getattr(config, "layer_types", None) or ["sliding_attention"] * len(layers)
        window = getattr(config, "sliding_window", None)
        self.layers = [
            self._layer(
                layer,
                (heads.query_heads, heads.kv_heads, heads.kv_heads),
                window if kind == "sliding_attention" else None,
            )
            for layer, heads, kind in zip(model.model.layers, layers, kinds, strict=True)
        ]
        self.norm = self._norm(model.model.norm)
        self.output = Linear(model.get_output_embeddings().weight)

    @property
    def is_heavy(self) -> bool:
        """Whether a token's arithmetic costs more than what surrounds it."""
        layer = self.layers[0]
        parts = (layer.qkv, layer.output, layer.gate, layer.up, layer.down)
        return sum(part.size for part in parts) > _HEAVY

    def _layer(self, layer: Any, heads: tuple[int, int, int], window: int | None) -> Layer:
        attention, mlp = layer.self_attn, layer.mlp
        turned, values = (attention.q_proj, attention.k_proj), attention.v_proj
        bias = None
        if values.bias is not None:
            bias = torch.cat([*(self._paired(part.bias) for part in turned), values.bias])
        norms = None
        if hasattr(attention, "q_norm"):
            norms = self._norm(attention.q_norm, True), self._norm(attention.k_norm, True)
        return Layer(
            heads,
            window,
            norm=self._norm(layer.input_layernorm),
            qkv=Linear(
                torch.cat([*(self._paired(part.weight) for part in turned), values.weight]), bias
            ),
            head_norms=norms,
            output=Linear.of(attention.o_proj),
            mlp_norm=self._norm(layer.post_attention_layernorm),
            gate=Linear.of(mlp.gate_proj),
            up=Linear.of(mlp.up_proj),
            down=Linear.of(mlp.down_proj),
        )

    def _paired(self, weight: Tensor) -> Tensor:
        """Put the rows of each rotary pair of a projection's heads side by side."""
        halves = weight.unflatten(0, (-1, 2, self.head_dim // 2))
        return halves.transpose(1, 2).flatten(0, 2)

    def _norm(self, norm: Any, of_heads: bool = False) -> Norm:
        """Return a norm by root mean square."""
        weight = norm.weight.detach() + 1 if self._gemma else norm.weight.detach()
        weight = self._paired(weight) if of_heads else weight
        epsilon = norm.eps if self._gemma else norm.variance_epsilon
        return partial(rms_norm, normalized_shape=weight.shape, weight=weight, eps=epsilon)


def serves(loaded: LoadedModel) -> bool:
    """Tell whether a model looks like one whose weights can be read; a trial decides."""
    model = loaded.model
    parts = [module for name, module in model.named_modules() if name.endswith(("proj", "head"))]
    return (
        type(model) in _SERVED
        and not getattr(model, "hf_device_map", None)  # spread over several devices
        and all(type(part) is nn.Linear for part in parts)  # not of eight bits
        and _activation(model.config) in ACTIVATIONS
        and len({layer.head_dim for layer in loaded.geometry.layers}) == 1
    )


def _activation(config: Any) -> str:
    return str(getattr(config, "hidden_activation", None) or config.hidden_act)
