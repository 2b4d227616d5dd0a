"""Where the attention heads of a model are, found by watching data flow through it.

Attention is the only place in a transformer where tokens mix, and its output projection is the
linear module that receives the concatenated head outputs. One forward pass of two rows of two
tokens therefore finds it in any architecture. Every layer receives the same two rows of noise,
which differ in their first token only, so that before attention the second token is the same in
both rows. The output projection is the first linear module whose input differs at the second token
and is as wide as all heads together, and whose output is as wide as the residual stream. The
key/value cache of the same pass gives each layer's number of key/value heads and head width. No
module names or model types are used.
"""

import inspect
import itertools
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from transformers import Cache, PretrainedConfig, PreTrainedModel
from transformers.pytorch_utils import Conv1D

from headsweep.errors import ModelError, cause_of
from headsweep.variants import Variant

_LIMITS = ("max_position_embeddings", "n_positions", "max_seq_len")
"""What configs call the largest number of tokens: most models, GPT-2 and GPT-J, MPT."""
_MIXED, _MIXED_HALF = 1e-5, 1e-3
"""Relative difference above which the second token counts as different, and in half precision.
Before attention both rows are computed alike, and their difference is 0. After it they differ more,
even where heads look at their own token alone: by 0.002 in a trained layer with one group left."""


@dataclass(frozen=True)
class AttentionLayer:
    """The heads of one attention layer."""

    index: int  # among all of the model's layers, those without attention included; from 0
    block: str  # dotted path of the whole layer
    name: str
    """Dotted path of the output projection, whose input is (batch, tokens, query_heads * head_dim),
    head after head."""
    query_heads: int
    kv_heads: int
    head_dim: int  # width of a head's output, which is that of its values; keys may be wider
    kept: tuple[int, ...] = ()  # the remaining heads' original numbers, in order, if some are gone

    @property
    def original_heads(self) -> tuple[int, ...]:
        """The heads' numbers in the unpruned model, in order."""
        return self.kept or tuple(range(self.query_heads))

    @property
    def width(self) -> int:
        """Width of all head outputs together: query_heads * head_dim."""
        return self.query_heads * self.head_dim

    def columns(self, head: int) -> slice:
        """Return which columns of the output projection's input hold one query head's output."""
        return slice(head * self.head_dim, (head + 1) * self.head_dim)


@dataclass(frozen=True)
class HeadGeometry:
    """All attention layers of a model, in order."""

    layers: tuple[AttentionLayer, ...]
    keeps_cache: bool = True
    """Whether the model keeps keys and values from step to step: decoders do, encoders do not."""

    @property
    def heads(self) -> int:
        """Number of query heads of all layers together."""
        return sum(layer.query_heads for layer in self.layers)

    @property
    def cached_numbers(self) -> int:
        """Numbers that a token leaves in the key/value cache of all layers.

        Keys are taken to be as wide as values.
        """
        return sum(2 * layer.kv_heads * layer.head_dim for layer in self.layers)

    def layer(self, index: int) -> AttentionLayer:
        """Return the attention layer with this index, or raise a ModelError."""
        for layer in self.layers:
            if layer.index == index:
                return layer
        indices = [layer.index for layer in self.layers]
        whole = indices == list(range(indices[0], indices[-1] + 1))
        shown = f"{indices[0]} to {indices[-1]}" if whole else ", ".join(map(str, indices))
        raise ModelError(f"layer {index} has no heads to prune in this model; choose from {shown}")

    def by_original_name(self) -> dict[str, Variant]:
        """Return the heads, in order, by the names that they had in the unpruned model."""
        return {
            str(Variant(layer.index, head)): Variant(layer.index, place)
            for layer in self.layers
            for place, head in enumerate(layer.original_heads)
        }

    def check(self, variant: Variant) -> None:
        """Raise a ModelError unless the model has the head or the layers that a variant changes."""
        for index in variant.layers:
            heads = self.layer(index).query_heads
            if variant.head is not None and not 0 <= variant.head < heads:
                raise ModelError(
                    f"head {variant.head} is out of range in layer {index}; "
                    f"choose from 0 to {heads - 1}"
                )
        if len(variant.layers) >= len(self.layers) > 1:
            raise ModelError(f"{variant} leaves no layer of {len(self.layers)}; skip fewer")

    def output_projection(self, model: nn.Module, index: int) -> nn.Module:
        """Return the module whose input is the concatenated head outputs of a layer."""
        return model.get_submodule(self.layer(index).name)

    def weights_that_read(self, model: nn.Module, layer: int, head: int) -> Tensor:
        """Return a writable view of the output projection's weights that read a head's output."""
        projection = self.output_projection(model, layer)
        weight: Tensor = projection.get_parameter("weight").data
        if isinstance(projection, Conv1D):  # stores its weight as (input, output)
            weight = weight.T
        return weight[:, self.layer(layer).columns(head)]

    @torch.no_grad()
    def output_weight(self, model: nn.Module, layer: int) -> Tensor:
        """Return an output projection's weight [outputs, width] without bias, float64.

        A weight that is not stored as plain numbers (in few bits, or on no device) is what the
        module makes of unit vectors.
        """
        projection: Any = self.output_projection(model, layer)
        if type(projection) in (nn.Linear, Conv1D):
            weight = projection.weight.data
            if type(weight) is Tensor and weight.is_floating_point() and not weight.is_meta:
                return (weight.T if isinstance(projection, Conv1D) else weight).double()
        device = next(itertools.chain(projection.parameters(), projection.buffers())).device
        dtype = next(
            parameter.dtype for parameter in model.parameters() if parameter.is_floating_point()
        )
        units = torch.eye(self.layer(layer).width, dtype=dtype)
        nothing = torch.zeros_like(units[:1])  # the bias comes of it
        inputs = torch.cat([units, nothing]).to("cpu" if device.type == "meta" else device)
        outputs = projection.forward(inputs).double()
        return (outputs[:-1] - outputs[-1]).T


def find_heads(model: PreTrainedModel) -> HeadGeometry:
    """Find the heads of every attention layer of a decoder or encoder, by one tiny forward pass.

    The model has loaded weights, on any device, in any dtype; it is not changed.

    Raises:
        ModelError: the architecture has no attention heads, or none that one output projection
            joins (recurrent and state-space models, encoder-decoders, layers that share weights,
            latent attention with compressed keys and values).
    """
    name = type(model).__name__
    config = model.config.get_text_config()
    if model.config.is_encoder_decoder:
        raise ModelError(
            f"{name} is an encoder-decoder, which is not supported; use a decoder or an encoder"
        )
    query_heads = getattr(config, "num_attention_heads", None)
    if not isinstance(query_heads, int):
        raise ModelError(
            f"{name} has no attention heads to prune; use a transformer with attention"
        )

    kept = kept_heads(config)
    blocks, calls, cache = _probe(model, config.num_hidden_layers)
    layers = []
    for index, block in enumerate(blocks):
        kept_here = tuple(kept.get(str(index), ()))
        heads = len(kept_here) or query_heads
        values = None
        if cache is not None:
            values = getattr(cache.layers[index], "values", None) if index < len(cache) else None
            if values is None:
                continue  # no attention (hybrid models), or another layer's keys and values
        inside = [call for call in calls if call.name.startswith(f"{block}.")]
        layer = _attention_layer(index, block, inside, heads, values)
        if layer is None:
            raise ModelError(
                f"{name}: no output projection joins the {heads} heads of layer {index}; "
                f"such an architecture cannot be pruned, use another model"
            )
        layers.append(replace(layer, kept=kept_here))
    if not layers:
        raise ModelError(f"{name}: no layer with attention was found; use another model")
    return HeadGeometry(tuple(layers), keeps_cache=cache is not None)


def kept_heads(config: PretrainedConfig) -> dict[str, list[int]]:
    """Return the original numbers of the heads that a pruned model kept, by layer that lost any."""
    return getattr(config.get_text_config(), "kept_heads", None) or {}


def most_tokens(config: PretrainedConfig) -> int | None:
    """Return how many tokens a model reads at most by its config; None if that states no limit."""
    text = config.get_text_config()
    limits = [getattr(text, name, None) for name in _LIMITS]
    return next((limit for limit in limits if isinstance(limit, int) and limit > 0), None)


def readable_tokens(model: PreTrainedModel) -> int | None:
    """Return how many tokens a loaded model reads at most; None if its config states no limit.

    Some encoders, such as RoBERTa, count positions from behind that of padding, so that they read
    fewer tokens than they have positions.
    """
    positions = most_tokens(model.config)
    words = model.get_input_embeddings()
    for module in model.modules():
        if not isinstance(module, nn.Embedding) or module is words:
            continue
        if module.num_embeddings == positions and module.padding_idx is not None:
            return positions - module.padding_idx - 1
    return positions


@contextmanager
def evaluating(model: nn.Module) -> Iterator[None]:
    """Put a model into evaluation mode inside a ``with`` block."""
    training = model.training
    model.eval()
    try:
        yield
    finally:
        model.train(training)


class _Call(NamedTuple):
    name: str  # of the linear module
    in_features: int
    out_features: int
    residual: int  # width of the layer's own input
    mixed: bool  # whether its input at the second token depends on the first token


def _attention_layer(
    index: int, block: str, calls: Sequence[_Call], query_heads: int, values: Tensor | None
) -> AttentionLayer | None:
    """Return the heads of one layer, or None if no module can be its output projection.

    `calls` are its linear modules in the order of execution, `values` its cached ones [batch,
    kv_heads, tokens, head_dim]; None if the model keeps no cache, as an encoder. Then queries, keys
    and values must be equally wide.
    """
    before = itertools.takewhile(lambda call: not call.mixed, calls)
    projected = sum({call.name: call.out_features for call in before}.values())
    if values is None:
        kv_heads = query_heads
        head_dim = projected // (3 * query_heads)
        fits = projected == 3 * query_heads * head_dim
    else:
        _, kv_heads, _, head_dim = values.shape
        # Some models (Falcon) cache each key/value head once for every query head that reads it.
        fewer, rest = divmod(projected - query_heads * head_dim, 2 * head_dim)
        if kv_heads == query_heads and rest == 0 and 0 < fewer < query_heads:
            kv_heads = fewer
        fits = query_heads % kv_heads == 0
    for call in calls:
        joins = call.in_features == query_heads * head_dim and call.out_features == call.residual
        if fits and call.mixed and joins:
            return AttentionLayer(index, block, call.name, query_heads, kv_heads, head_dim)
    return None


class _Probe:
    """Hooks that record a pass of two rows of two tokens: layers entered, and linear calls.

    Every layer gets noise, of which the rows share the second token: what differs there afterwards
    was mixed between tokens.
    """

    def __init__(self) -> None:
        self.entered: list[str] = []
        self.calls: list[_Call] = []
        self._residual = 0

    def enter(self, name: str, _: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Note a layer, and give it noise in place of its hidden state."""
        hidden = args[0] if args else kwargs["hidden_states"]
        if hidden.ndim != 3:
            raise ModelError(
                f"{name} takes a hidden state of {hidden.ndim} axes, not (batch, tokens, width); "
                f"such an architecture cannot be pruned, use another model"
            )
        self.entered.append(name)
        self._residual = hidden.shape[-1]
        draw = torch.Generator().manual_seed(0)
        begin, other_begin, shared = torch.randn(3, self._residual, generator=draw).to(hidden)
        noise = torch.stack([begin, shared, other_begin, shared]).view(2, 2, self._residual)
        return ((noise, *args[1:]), kwargs) if args else (args, kwargs | {"hidden_states": noise})

    def record(self, name: str, module: nn.Module, args: tuple[Any, ...]) -> None:
        """Note a linear layer that takes a hidden state."""
        if not args or args[0].shape[:2] != (2, 2) or args[0].ndim != 3:
            return
        first, second = args[0][:, 1].float()
        least = _MIXED if args[0].dtype.itemsize > 2 else _MIXED_HALF
        mixed = bool((first - second).norm() > least * first.norm())
        if isinstance(module, Conv1D):
            width_in, width_out = module.nx, module.nf
        else:
            width_in, width_out = module.in_features, module.out_features
        self.calls.append(_Call(name, width_in, width_out, self._residual, mixed))


def _probe(model: PreTrainedModel, depth: int) -> tuple[list[str], list[_Call], Cache | None]:
    """Run two rows of two tokens; return the layers' names, linear calls and the cache."""
    lists = [
        name
        for name, module in model.named_modules()
        if isinstance(module, nn.ModuleList) and len(module) == depth
    ]
    probe = _Probe()
    tokens = torch.ones(2, 2, dtype=torch.long, device=model.device)
    arguments: dict[str, Any] = {"input_ids": tokens, "attention_mask": tokens}
    if "use_cache" in inspect.signature(model.forward).parameters:
        arguments["use_cache"] = True
    with ExitStack() as hooks, torch.no_grad(), evaluating(model):
        for name, module in model.named_modules():
            if name.rpartition(".")[0] in lists:
                hook = partial(probe.enter, name)
                handle = module.register_forward_pre_hook(hook, with_kwargs=True)
            elif is_linear(module):
                handle = module.register_forward_pre_hook(partial(probe.record, name))
            else:
                continue
            hooks.callback(handle.remove)
        try:
            output = model(**arguments)
        except ModelError:
            raise
        except Exception as error:  # unknown architectures raise errors of any type
            raise ModelError(
                f"{type(model).__name__} cannot run on token ids alone ({cause_of(error, 200)}); "
                f"use a text decoder or encoder"
            ) from error
    cache = getattr(output, "past_key_values", None)
    for name in lists:
        layers = [f"{name}.{index}" for index in range(depth)]
        if [layer for layer in probe.entered if layer in set(layers)] == layers:
            return layers, probe.calls, cache if isinstance(cache, Cache) else None
    raise ModelError(
        f"{type(model).__name__} does not run {depth} layers of its own one after another; "
        f"layers that share weights cannot be pruned one by one, use another model"
    )


def is_linear(module: nn.Module) -> bool:
    """Return whether a module is a linear layer of any kind."""
    return isinstance(module, Conv1D) or (
        hasattr(module, "in_features") and hasattr(module, "out_features")
    )
