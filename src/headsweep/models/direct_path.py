"""How what a head writes reaches the logits directly, past all later attention and MLPs.

A head's output, through its columns of the output projection, is a vector of the residual stream.
The logits read the stream's last state through the final norm and the unembedding. With the norm's
scale frozen at the value that it has there, logits are linear in the stream, and the share of each
head is its direct effect (Elhage et al. 2021, A Mathematical Framework for Transformer Circuits).
The bias of the output projection belongs to no head, that of a norm or of the unembedding to none
either. Where a norm stands between the output projection and the stream (Gemma 2, OLMo 2), its
scale is frozen likewise. Logits are those that the model returns: its scale of logits is applied,
but not a soft cap, which bends them; effects are then on logits before the cap.

What lies on the path is found by data, not by name: one pass of a few tokens shows that each
layer adds to its input a multiple of its attention's output, and of another module's, and nothing
else. A model that computes otherwise is refused.
"""

import copy
import itertools
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from functools import partial
from typing import Any, NamedTuple, TypeGuard

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn
from transformers import PreTrainedModel

from headsweep.errors import ModelError
from headsweep.models.geometry import AttentionLayer, HeadGeometry

_TOKENS = 8  # of the pass that shows the path
_NEAR, _NEAR_HALF = 1e-4, 3e-2
"""Largest difference, relative, of what counts as equal; and in half precision."""
_FAR = 1e4  # a state so long that what a norm adds under its root does not count


class FrozenNorm:
    """A norm whose scale is that of one state: then it is linear, plus a bias.

    It is an RMS norm or a layer norm, whatever its weights are called or how they are applied:
    both give what they give for any multiple of a state, the second also for any shift of it.
    """

    def __init__(self, module: nn.Module, states: Float[Tensor, "states width"]) -> None:
        """Copy a norm to the CPU, in float32, and check on states of the model that it is one.

        Raises:
            ModelError: it is neither of the two.
        """
        self._module = copy.deepcopy(module).float().cpu()
        states = states.float().cpu()
        self.bias = self._module(torch.zeros_like(states[:1]))[0]
        shifted = self._module(states + states.std())
        self._centred = _near(shifted, self._module(states), _NEAR)
        added = states + states.roll(1, dims=-1)
        apart = self.share(states, states) + self.share(states.roll(1, dims=-1), states)
        whole = self.share(states, states) + self.bias
        if not (
            _near(self.share(added, states), apart, _NEAR)
            and _near(whole, self._module(states), _NEAR)
        ):
            raise ModelError(
                f"{type(module).__name__} is neither an RMS norm nor a layer norm, so that a head "
                f"has no share in what it returns"
            )

    def share(
        self, parts: Float[Tensor, "states *parts width"], states: Float[Tensor, "states width"]
    ) -> Float[Tensor, "states *parts width"]:
        """Return what parts of states become, with the scale that the norm has at the states."""
        parts = parts.float().cpu()
        ones = [1] * (parts.ndim - 2)
        scale = self._scale(states.float().cpu()).view(-1, *ones, 1)
        return self._unscaled(parts) * scale

    def _unscaled(self, vectors: Tensor) -> Tensor:
        """Return vectors, centred or not, times the norm's weights."""
        spread = self._spread(vectors)
        return (self._module(vectors / spread * _FAR) - self.bias) * spread

    def _scale(self, states: Tensor) -> Tensor:
        """Return by what the norm multiplies each state before its weights."""
        unscaled = self._unscaled(states)
        given = self._module(states) - self.bias
        return (given * unscaled).sum(dim=-1) / unscaled.square().sum(dim=-1)

    def _spread(self, vectors: Tensor) -> Tensor:
        if self._centred:
            vectors = vectors - vectors.mean(dim=-1, keepdim=True)
        return vectors.square().mean(dim=-1, keepdim=True).sqrt().clamp_min(1e-30)


class _LayerPath(NamedTuple):
    """How a layer's attention joins the residual stream."""

    norm: FrozenNorm | None
    """Between the projection and the stream; None: there is none."""
    factor: float
    """By which the model multiplies what joins the stream."""


class States(NamedTuple):
    """What one layer's heads had and gave at some tokens, and the stream behind all layers."""

    heads: Float[Tensor, "tokens query_heads head_dim"]
    projected: Float[Tensor, "tokens residual"]
    """What the output projection returned, its bias included."""
    last: Float[Tensor, "tokens residual"]
    """The stream's last state, which the final norm reads."""


class DirectPath:
    """The direct paths of all heads of a decoder to its logits.

    Attributes:
        final_norm: dotted path of the module that reads the stream's last state.
    """

    @torch.no_grad()
    def __init__(self, model: PreTrainedModel, geometry: HeadGeometry) -> None:
        """Find the paths by one pass of a few tokens; the model has loaded weights.

        Raises:
            ModelError: a layer does not add its attention to the stream, or something other than
                a norm stands between the stream and the unembedding.
        """
        self._model = model
        self._geometry = geometry
        self._near = _NEAR if model.dtype == torch.float32 else _NEAR_HALF
        seen = _watched_pass(model)
        self._layers = {layer.index: self._layer_path(layer, seen) for layer in geometry.layers}
        for before, after in itertools.pairwise(geometry.layers):
            passed_on = _equal(seen.of_name[before.block].given, seen.of_name[after.block].taken)
            if after.index == before.index + 1 and not passed_on:
                raise self._refused(f"changes the residual stream before layer {after.index}")
        last = seen.of_name[geometry.layers[-1].block].given
        unembedding: Any = model.get_output_embeddings()
        head = next(call for call in seen.calls if call.module is unembedding)
        norms = [
            call
            for call in seen.calls
            if _equal(call.taken, last) and self._multiple(call.given, head.taken) is not None
        ]
        if not norms:
            raise self._refused("has more than a norm between its last layer and its logits")
        norm = norms[-1]  # of modules that pass on the same: the innermost ends first
        self.final_norm = norm.name
        self._norm = FrozenNorm(norm.module, last)
        self._before = self._multiple(norm.given, head.taken) or 1.0
        behind = self._multiple(head.given, seen.logits)
        if behind is None and not getattr(model.config, "final_logit_softcapping", None):
            raise self._refused("bends its logits")
        self._behind = behind or 1.0
        self._unembedding = unembedding

    @torch.no_grad()
    def effects(
        self, layer: int, states: States, token_ids: Int[Tensor, "tokens several"]
    ) -> Float[Tensor, "tokens query_heads several"]:
        """Return the direct effect of each head of a layer on logits, at each of some tokens.

        Args:
            layer: its index.
            states: of the layer, at the tokens whose next one is asked for.
            token_ids: whose logits are asked for.
        """
        path = self._layers[layer]
        weight = self._geometry.output_weight(self._model, layer)
        slices = torch.stack(weight.split(states.heads.shape[-1], dim=1))
        written = torch.einsum("thd,hrd->thr", states.heads.to(weight), slices)
        if path.norm is not None:
            written = path.norm.share(written, states.projected)
        read = self._norm.share(written * path.factor, states.last)
        read = read * (self._before * self._behind)
        return torch.einsum("thr,tsr->ths", read, self._rows(token_ids).to(read))

    @torch.no_grad()
    def likeliest(
        self, last: Float[Tensor, "tokens residual"], token_ids: Int[Tensor, " several"]
    ) -> Int[Tensor, " tokens"]:
        """Return which of some tokens has the highest logit, given the stream's last state."""
        normed = (self._norm.share(last, last) + self._norm.bias) * self._before
        logits = normed @ self._rows(token_ids).to(normed).T
        bias = getattr(self._unembedding, "bias", None)
        if bias is not None:
            logits = logits + bias[token_ids.to(bias.device)].to(logits)
        return token_ids[logits.argmax(dim=-1)]

    def _rows(self, token_ids: Tensor) -> Tensor:
        weight: Tensor = self._unembedding.weight.detach()
        return weight[token_ids.to(weight.device)]

    def _refused(self, what: str) -> ModelError:
        name = type(self._model).__name__
        return ModelError(f"{name} {what}, so that a head has no direct effect on its logits")

    def _layer_path(self, layer: AttentionLayer, seen: "_Seen") -> _LayerPath:
        """Return how a layer's attention joins the stream, or raise a ModelError."""
        block = seen.of_name[layer.block]
        projection = seen.of_name[layer.name]
        added = block.given - block.taken
        inside = [call for call in seen.calls if call.name.startswith(f"{layer.block}.")]
        joining = [projection, *(call for call in inside if _equal(call.taken, projection.given))]
        fits = [
            _fitted(added, own, other)
            for own in joining
            for other in inside
            if own is not other and own.given.shape == other.given.shape
        ]
        fit = min(fits, key=lambda fit: fit.rest)
        if fit.rest > self._near or abs(fit.factor) < self._near:
            raise self._refused(
                f"does not just add the attention of layer {layer.index} to the residual stream"
            )
        norm = None if fit.own is projection else FrozenNorm(fit.own.module, fit.own.taken)
        return _LayerPath(norm, fit.factor)

    def _multiple(self, one: Tensor, other: Tensor) -> float | None:
        """Return by what a tensor is to be multiplied to give another; None if by nothing."""
        if one.shape != other.shape:
            return None
        one, other = one.double(), other.double()
        factor = (one * other).sum() / one.square().sum()
        return float(factor) if _near(factor * one, other, self._near) else None


class _Call(NamedTuple):
    """A module's call: its first tensor, and the first that it returned."""

    name: str
    module: nn.Module
    taken: Float[Tensor, "tokens width"]
    given: Float[Tensor, "tokens width"]


class _Fit(NamedTuple):
    """What a layer adds to the stream, as multiples of what two modules returned."""

    own: _Call
    factor: float
    """Of that one."""
    rest: float
    """The length of what is left, as a share of what is added."""


class _Seen(NamedTuple):
    """What a pass showed, modules in the order in which they ended."""

    calls: Sequence[_Call]
    of_name: Mapping[str, _Call]
    logits: Float[Tensor, "tokens vocabulary"]


@torch.no_grad()
def _watched_pass(model: PreTrainedModel) -> _Seen:
    """Return every module's call with states of all tokens, in one pass of a few tokens."""
    calls: list[_Call] = []

    def note(
        name: str, module: nn.Module, given: tuple[Any, ...], named: dict[str, Any], result: Any
    ) -> None:
        taken = next((one for one in (*given, *named.values()) if isinstance(one, Tensor)), None)
        while isinstance(result, tuple | list) and result:
            result = result[0]
        if _has_all_tokens(taken) and _has_all_tokens(result):
            calls.append(_Call(name, module, _rows(taken), _rows(result)))

    with ExitStack() as hooks:
        for name, module in model.named_modules():
            hook = module.register_forward_hook(partial(note, name), with_kwargs=True)
            hooks.callback(hook.remove)
        vocabulary = model.get_input_embeddings().num_embeddings
        draw = torch.Generator().manual_seed(0)
        ids = torch.randint(vocabulary, (1, _TOKENS), generator=draw).to(model.device)
        logits = model(input_ids=ids, use_cache=False).logits
    return _Seen(calls, {call.name: call for call in calls}, _rows(logits))


def _has_all_tokens(value: Any) -> TypeGuard[Tensor]:
    """Tell whether a value has states of all tokens."""
    if not isinstance(value, Tensor) or not value.is_floating_point():
        return False
    return value.ndim > 1 and value.numel() % _TOKENS == 0


def _rows(tensor: Tensor) -> Tensor:
    """Return states as [tokens, width]; some models join the axes of rows and tokens."""
    return tensor.detach().clone().reshape(_TOKENS, -1).cpu()


def _equal(one: Tensor, other: Tensor) -> bool:
    return one.shape == other.shape and torch.equal(one, other)


def _near(one: Tensor, other: Tensor, most: float) -> bool:
    """Tell whether the difference of two tensors is at most a share of the second."""
    return bool((one - other).norm() <= most * other.norm())


def _fitted(added: Tensor, own: _Call, other: _Call) -> _Fit:
    """Write what a layer adds as multiples of what two of its modules returned."""
    columns = torch.stack([own.given.flatten(), other.given.flatten()], dim=1).double()
    wanted = added.flatten().double()
    factors = torch.linalg.lstsq(columns, wanted).solution
    rest = (wanted - columns @ factors).norm() / wanted.norm()
    return _Fit(own, float(factors[0]), float(rest))
