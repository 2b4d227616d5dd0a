"""Weights of Llama-like decoders, in the form in which `decoder` reads them.

The models are Llama (and SmolLM), Mistral, Qwen2, Qwen3 and Gemma 1. Queries, keys and values
become one product. The two parts of a rotary pair are put side by side, in queries and keys and in
their norms, so that no score changes and rotation is one complex product.

For products in float32 PyTorch uses MKL, which leaves half of AVX-512 unused on processors that are
not Intel's. oneDNN applies activation, gate and residual sum while it writes a product, and keeps a
copy of the weights in the order in which it reads them: with few rows it is twice as fast. Its
operators are those by which `torch.compile` replaces a linear layer. MKL is faster for small
products. Without AVX-512 it is faster for all but those of few rows with large weights, which it
packs anew each time. A processor without products in half precision emulates them, six times as
slowly as it computes in float32, and some that have them are faster in float32 all the same. There
products are computed in float32 and rounded.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import cache, partial
from typing import Any, Literal

import torch
from torch import Tensor, nn
from torch.nn.functional import gelu, rms_norm, silu
from torch.nn.functional import linear as plain_linear

from headsweep.machine.host import host_memory
from headsweep.models.geometry import AttentionLayer
from headsweep.models.loaded import LoadedModel

_SERVED = {"gemma", "llama", "mistral", "qwen2", "qwen3"}

_SMALL = 1 << 20  # below so many multiplications a product takes MKL: its overhead is smaller
_ROWS = 64  # for about so many rows a copy of weights is arranged; it serves any number
_HEAVY = 1 << 22  # weights of a layer from which a pass's own overhead no longer counts
_LARGE = 1 << 22  # weights from which on oneDNN is faster without AVX-512, too
_FEW = 128  # for products of up to so many rows

_TRIED, _TRIED_ROWS, _TRIALS = 2048, 32, 7
"""Inputs and outputs of a product that is timed, its rows, and how often: the fastest counts."""
_CLEARLY = 0.9  # of the time in half precision: float32 takes twice the memory

_COPIED_SHARE = 1 / 3
"""Of the host's memory, at most, for all copies of the weights. They themselves take as much,
half of it if the copy is in float32 and they are not; keys and values take a quarter."""

ACTIVATIONS: dict[str, tuple[Callable[[Tensor], Tensor], str, str]] = {
    "silu": (silu, "swish", ""),
    "gelu": (gelu, "gelu", "none"),
    "gelu_pytorch_tanh": (partial(gelu, approximate="tanh"), "gelu", "tanh"),
}
"""What may follow a product: the function, and the two words by which oneDNN knows it."""


class Linear:
    """A linear layer, with what may follow its product.

    By default a copy of the weight, [outputs, inputs], is arranged; one that may change needs none.
    """

    def __init__(self, weight: Tensor, bias: Tensor | None = None, *, packed: bool = True) -> None:
        self.size = weight.numel()
        self._inputs = weight.shape[1]
        self._weight: Tensor | None = weight
        self._bias = bias
        self._read = weight
        """What oneDNN reads."""
        self._most_rows = _most_rows_of_onednn(weight, packed=packed)
        if self._most_rows and packed:
            self._read = torch.ops.mkldnn._reorder_linear_weight(weight, _ROWS)

    def keep_one_copy(self) -> None:
        """Let go of the weight as it was given, if oneDNN can take every product in its own."""
        if self._read is not self._weight and self.size >= _SMALL:
            self._weight = None

    def __call__(self, states: Tensor, activation: str | None = None) -> Tensor:
        """Return the product, through an activation of `ACTIVATIONS` if one is named."""
        if (weight := self._read_by_mkl(states)) is not None:
            product = plain_linear(states, weight, self._bias)
            return ACTIVATIONS[activation][0](product) if activation else product
        _, name, kind = ACTIVATIONS[activation] if activation else (None, "none", "")
        return torch.ops.mkldnn._linear_pointwise(states, self._read, self._bias, name, [], kind)

    def then(self, how: Literal["add", "mul"], other: Tensor, states: Tensor) -> Tensor:
        """Return the product plus, or times, another tensor."""
        if (weight := self._read_by_mkl(states)) is not None:
            product = plain_linear(states, weight, self._bias)
            return product.add_(other) if how == "add" else product.mul_(other)
        fused = torch.ops.mkldnn._linear_pointwise.binary
        return fused(states, other, self._read, self._bias, how)

    def _read_by_mkl(self, states: Tensor) -> Tensor | None:
        """Return the weight if MKL takes its product with some states; None if oneDNN does."""
        rows = states.numel() // self._inputs
        return self._weight if rows * self.size < _SMALL or rows > self._most_rows else None


class WideLinear:
    """A linear layer in half precision whose product is taken in float32, then rounded.

    By default a copy of the weight in float32 is kept; of one that may change a copy is made each
    time.
    """

    def __init__(self, weight: Tensor, bias: Tensor | None = None, *, packed: bool = True) -> None:
        self.size = weight.numel()
        self._weight, self._bias = weight, bias
        self._kept: Linear | None = None
        if packed:
            self._kept = self._in_float32(packed=True)
            self._kept.keep_one_copy()

    def __call__(self, states: Tensor, activation: str | None = None) -> Tensor:
        """Return the product, through an activation of `ACTIVATIONS` if one is named."""
        layer = self._kept or self._in_float32(packed=False)
        return layer(states.float(), activation).to(states.dtype)

    def then(self, how: Literal["add", "mul"], other: Tensor, states: Tensor) -> Tensor:
        """Return the product plus, or times, another tensor."""
        layer = self._kept or self._in_float32(packed=False)
        return layer.then(how, other.float(), states.float()).to(states.dtype)

    def _in_float32(self, *, packed: bool) -> Linear:
        bias = None if self._bias is None else self._bias.float()
        return Linear(self._weight.float(), bias, packed=packed)


def linear(weight: Tensor, bias: Tensor | None = None, *, packed: bool = True) -> AnyLinear:
    """Return a linear layer in the form that is fast on the weight's device; see `Linear`."""
    kind = WideLinear if _computes_in_float32(weight.dtype, weight.device.type) else Linear
    return kind(weight, bias, packed=packed)


@contextmanager
def fast_linear(model: nn.Module) -> Iterator[None]:
    """Let linear layers of a model on the CPU take the faster library inside the block.

    Others stay as they are, and so do modules whose `forward` somebody has replaced, as accelerate
    does where a model is spread over devices: its hooks bring weights and states together.
    """
    with ExitStack() as patches:
        for module in model.modules():
            if (
                type(module) is nn.Linear
                and module.weight.device.type == "cpu"
                and "forward" not in vars(module)
            ):
                fast = linear(module.weight, module.bias, packed=False)
                vars(module)["forward"] = fast
                patches.callback(delattr, module, "forward")
        yield


@cache
def _computes_in_float32(dtype: torch.dtype, device: str) -> bool:
    """Tell whether a processor takes products of a type in half precision faster in float32.

    It has none of its own, so that PyTorch emulates them, or they are timed and found slower.
    """
    if device != "cpu" or not torch.backends.mkldnn.is_available():
        return False
    operators = torch.ops.mkldnn
    has_products = {
        torch.bfloat16: operators._is_mkldnn_bf16_supported,
        torch.float16: operators._is_mkldnn_fp16_supported,
    }
    if dtype not in has_products:
        return False
    return not has_products[dtype]() or _is_faster_in_float32(dtype)


@torch.inference_mode()
def _is_faster_in_float32(dtype: torch.dtype) -> bool:
    """Time a product of a type in both ways, in turn, so that other work disturbs both alike."""
    weight = torch.ones(_TRIED, _TRIED, dtype=dtype)
    states = torch.ones(_TRIED_ROWS, _TRIED, dtype=dtype)
    ways = (Linear(weight), WideLinear(weight))
    seconds: dict[Linear | WideLinear, list[float]] = {way: [] for way in ways}
    for _ in range(_TRIALS):
        for way in ways:
            begin = time.perf_counter()
            way(states)
            seconds[way].append(time.perf_counter() - begin)
    in_half, in_float32 = (min(seconds[way]) for way in ways)
    return in_float32 < _CLEARLY * in_half


def _most_rows_of_onednn(weight: Tensor, *, packed: bool) -> float:
    """Return the most rows of a product with a weight that oneDNN takes, 0 if it takes none."""
    if not _has_onednn(weight.dtype, weight.device.type):
        return 0
    if weight.dtype != torch.float32 or _is_wide():
        return math.inf
    return _FEW if packed and weight.numel() >= _LARGE else 0


def _is_wide() -> bool:
    return torch.backends.cpu.get_cpu_capability().startswith("AVX512")


@cache
def _has_onednn(dtype: torch.dtype, device: str) -> bool:
    """Look at the processor, and try the operators: they are no part of a stable interface."""
    if device != "cpu" or not torch.backends.mkldnn.is_available():
        return False
    if dtype != torch.float32 and not (
        dtype == torch.bfloat16 and torch.ops.mkldnn._is_mkldnn_bf16_supported()
    ):
        return False
    states = torch.eye(4, 3, dtype=dtype)
    weight = torch.arange(6, dtype=dtype).view(2, 3)
    try:
        packed = torch.ops.mkldnn._reorder_linear_weight(weight, _ROWS)
        product = torch.ops.mkldnn._linear_pointwise(states, packed, None, "none", [], "")
    except (AttributeError, RuntimeError):
        return False
    return torch.equal(product, plain_linear(states, weight))


AnyLinear = Linear | WideLinear


@dataclass(frozen=True)
class Norm:
    """A norm by root mean square (Zhang and Sennrich, arXiv 1910.07467)."""

    weight: Tensor  # in float32 where the model's own norm is computed so
    epsilon: float

    def __call__(self, states: Tensor) -> Tensor:
        """Return the norm of states over their last axis, in their type."""
        in_type = states.to(self.weight.dtype)
        return rms_norm(in_type, self.weight.shape, self.weight, self.epsilon).to(states.dtype)


@dataclass(frozen=True)
class Layer:
    """Weights of one layer."""

    query_heads: int
    kv_heads: int
    window: int | None  # how many of the last tokens a query sees, its own included; None: all
    norm: Norm
    qkv: AnyLinear
    head_norms: tuple[Norm, Norm] | None  # of queries and keys
    output: AnyLinear
    mlp_norm: Norm
    gate: AnyLinear
    up: AnyLinear
    down: AnyLinear


class Weights:
    """Copies and views of a model's weights; a model that is changed afterwards needs others.

    As many processes of this host as `copies` make such copies.
    """

    @torch.no_grad()
    def __init__(self, loaded: LoadedModel, copies: int = 1) -> None:
        model: Any = loaded.model
        config = model.config
        layers = loaded.geometry.layers
        self.device, self.dtype = loaded.device, loaded.dtype
        self._gemma = config.model_type == "gemma"
        self.head_dim = layers[0].head_dim
        self.embeddings: Tensor = model.model.embed_tokens.weight.detach()
        self.scale = None
        """What embeddings are multiplied by."""
        if self._gemma:
            self.scale = torch.tensor(config.hidden_size**0.5, dtype=self.dtype).item()
        self.rotary = model.model.rotary_emb
        copy = torch.float32 if _computes_in_float32(self.dtype, self.device.type) else self.dtype
        copied = copies * copy.itemsize * sum(part.numel() for part in model.parameters())
        self._packed = copied < _COPIED_SHARE * host_memory()
        self.activation = _activation(config)
        kinds = getattr(config, "layer_types", None) or ["sliding_attention"] * len(layers)
        window = getattr(config, "sliding_window", None)
        self.layers = [
            self._layer(layer, heads, window if kind == "sliding_attention" else None)
            for layer, heads, kind in zip(model.model.layers, layers, kinds, strict=True)
        ]
        self.norm = self._norm(model.model.norm)
        self.output = linear(model.get_output_embeddings().weight, packed=self._packed)

    @property
    def is_heavy(self) -> bool:
        """Whether a token's arithmetic costs more than what surrounds it."""
        layer = self.layers[0]
        parts = (layer.qkv, layer.output, layer.gate, layer.up, layer.down)
        return sum(part.size for part in parts) > _HEAVY

    def _layer(self, layer: Any, heads: AttentionLayer, window: int | None) -> Layer:
        attention = layer.self_attn
        rotary = (attention.q_proj, attention.k_proj)
        values = attention.v_proj
        weight = torch.cat([*(self._rotary_order(part.weight) for part in rotary), values.weight])
        bias = norms = None
        if values.bias is not None:
            bias = torch.cat([*(self._rotary_order(part.bias) for part in rotary), values.bias])
        if hasattr(attention, "q_norm"):
            norms = (
                self._norm(attention.q_norm, rotary=True),
                self._norm(attention.k_norm, rotary=True),
            )
        return Layer(
            query_heads=heads.query_heads,
            kv_heads=heads.kv_heads,
            window=window,
            norm=self._norm(layer.input_layernorm),
            qkv=linear(weight, bias, packed=self._packed),
            head_norms=norms,
            output=self._linear(attention.o_proj),
            mlp_norm=self._norm(layer.post_attention_layernorm),
            gate=self._linear(layer.mlp.gate_proj),
            up=self._linear(layer.mlp.up_proj),
            down=self._linear(layer.mlp.down_proj),
        )

    def _linear(self, module: Any) -> AnyLinear:
        return linear(module.weight, module.bias, packed=self._packed)

    def _rotary_order(self, weight: Tensor) -> Tensor:
        """Put the rows of each rotary pair of a projection's heads side by side."""
        halves = weight.unflatten(0, (-1, 2, self.head_dim // 2))
        return halves.transpose(1, 2).flatten(0, 2)

    def _norm(self, norm: Any, *, rotary: bool = False) -> Norm:
        """Return an RMSNorm module as a `Norm`.

        `rotary`: it is of queries or keys, and its weights are reordered as these are. Gemma 1 has
        no such norms.
        """
        weight = norm.weight.detach()
        if self._gemma:
            # In float32, as Gemma's own: of 1 + w bfloat16 keeps little.
            return Norm(1 + weight.float(), norm.eps)
        weight = self._rotary_order(weight) if rotary else weight
        return Norm(weight, norm.variance_epsilon)


def serves(loaded: LoadedModel) -> bool:
    """Tell whether a model looks like one whose weights can be read; a trial decides."""
    model = loaded.model
    parts = [module for name, module in model.named_modules() if name.endswith(("proj", "head"))]
    return (
        model.config.model_type in _SERVED
        and not getattr(model, "hf_device_map", None)  # spread over several devices
        and all(type(part) is nn.Linear for part in parts)  # not of eight bits
        and _activation(model.config) in ACTIVATIONS
        and len({layer.head_dim for layer in loaded.geometry.layers}) == 1
    )


def _activation(config: Any) -> str:
    return str(getattr(config, "hidden_activation", None) or config.hidden_act)
