"""Measurements of a model's heads: attention statistics and activations on texts; weight norms.

A pass holds the attention weights of one layer at a time, and computes no logits.
"""

import inspect
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import ExitStack
from functools import partial
from typing import Any

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn
from transformers import PreTrainedModel
from transformers.pytorch_utils import Conv1D

from headsweep.errors import ModelError
from headsweep.models.geometry import AttentionLayer, HeadGeometry, evaluating
from headsweep.models.learner import eager_attention, move, no_weights, padded
from headsweep.models.readers import Readers, find_readers

Texts = Mapping[str, Tensor]
"""A model's inputs: input_ids and attention_mask [batch, tokens], padded on either side."""
Scores = Mapping[int, Tensor]
"""A score for each head, [query_heads] by layer; the lowest are removed first."""

_ATTENTION = ("raw", "normalised", "peak")  # statistics of attention, see `calibrate`


def row_batches(
    rows: Iterable[Int[np.ndarray, " tokens"]], size: int, device: torch.device
) -> Iterator[dict[str, Tensor]]:
    """Yield token ids as a model's inputs, the shortest first, `size` rows at a time."""
    ordered = sorted(rows, key=len)
    for start in range(0, len(ordered), size):
        yield move(padded(ordered[start : start + size]), device)


def weight_norms(model: PreTrainedModel, geometry: HeadGeometry) -> Scores:
    """Return each head's mean absolute weight, summed over query, key and value (eq. 1).

    Heads that share a key/value head share its term.
    """

    def mean(name: str) -> Float[Tensor, " rows"]:
        module = model.get_submodule(name)
        weight = module.get_parameter("weight").detach().float().abs().cpu()
        return weight.mean(0 if isinstance(module, Conv1D) else 1)

    return _head_sums(geometry, find_readers(model, geometry), mean)


def _head_sums(
    geometry: HeadGeometry,
    readers: Mapping[int, Readers],
    mean: Callable[[str], Float[Tensor, " rows"]],
) -> Scores:
    """Return for each head the sum over its projections of the means of its rows.

    `mean` gets a projection's module name and returns a value for each of its rows.
    """
    scores = {}
    for layer in geometry.layers:
        terms = (mean(name) @ read.float() for name, read in readers[layer.index].items())
        scores[layer.index] = sum(terms, torch.zeros(layer.query_heads)) / layer.head_dim
    return scores


def alone(part: Tensor) -> Tensor:
    """Return a sum over one process's texts as it is: no other has any."""
    return part


def calibrate(
    model: PreTrainedModel,
    geometry: HeadGeometry,
    batches: Iterable[Texts],
    *,
    activations: bool = False,
    total: Callable[[Tensor], Tensor] = alone,
) -> dict[str, Scores]:
    """Return statistics of the heads of a model on texts, in evaluation mode.

    Where several processes have a part of the texts each, `total` returns the sum of a tensor over
    all of them.

    All non-padding tokens have equal weight; attention statistics skip queries that see one key.

    Returns:
        ``raw``: entropy of the attention over keys in nats (eq. 3), mean over queries.
        ``normalised``: the same, each query's divided by the logarithm of its number of visible
        keys; a sliding window hides some. ``peak``: largest attention weight over keys, mean over
        queries, the paper's score for attention visualisation. With `activations` also
        ``activations``: mean absolute activation over tokens, summed over query, key and value
        projections.

    Raises:
        ModelError: the model has no eager attention whose weights can be read, or no text has two
            tokens.
    """
    readers = find_readers(model, geometry)
    sums = _Sums(geometry)
    with ExitStack() as stack, torch.no_grad():
        stack.enter_context(eager_attention(model))
        _watch(model, readers, sums, stack, activations=activations)
        stack.enter_context(evaluating(model))
        _read(model, batches, sums)
    queries = int(total(torch.tensor(sums.queries)))
    if not queries:
        raise ModelError("no text to calibrate on has two tokens; give longer ones")
    attention = {layer: total(values) for layer, values in sums.attention.items()}
    statistics: dict[str, Scores] = {
        name: {layer: (values[row] / queries).float() for layer, values in attention.items()}
        for row, name in enumerate(_ATTENTION)
    }
    if activations:
        means = {
            name: (total(values) / total(torch.tensor(sums.tokens[name]))).float()
            for name, values in sums.activations.items()
        }
        statistics["activations"] = _head_sums(geometry, readers, means.__getitem__)
    return statistics


class _Sums:
    """Sums over texts of what a model's heads do, added to by hooks while it reads a batch."""

    def __init__(self, geometry: HeadGeometry) -> None:
        self.geometry = geometry
        self.attention = {
            layer.index: torch.zeros(len(_ATTENTION), layer.query_heads, dtype=torch.float64)
            for layer in geometry.layers
        }
        self.queries = 0  # in these sums
        self.activations: dict[str, Float[Tensor, " rows"]] = {}  # by projection
        self.tokens: Counter[str] = Counter()  # in these sums
        self.seen: set[int] = set()  # layers whose weights of the present batch were added
        # Of the present batch: which tokens are no padding, how many keys each query sees, and
        # which queries count.
        self.valid = self.keys = self.counted = torch.empty(0)

    def begin(self, valid: Bool[Tensor, "batch tokens"]) -> None:
        """Prepare for a batch; `valid` are the tokens that are no padding."""
        self.valid = valid
        if self.geometry.keeps_cache:  # a decoder's queries see the keys up to their own
            self.keys = valid.cumsum(1)
        else:
            self.keys = valid.sum(1, True).expand_as(valid)
        self.counted = valid & (self.keys > 1)
        self.seen.clear()

    def add_activations(
        self, name: str, module: nn.Module, inputs: tuple[Tensor, ...], output: Tensor
    ) -> None:
        """Add the output of a projection: a forward hook."""
        if output.shape[:-1] != self.valid.shape:  # a projection of something but the tokens
            return
        magnitudes = output[self.valid].abs().double().sum(0).cpu()
        self.activations[name] = self.activations.get(name, 0.0) + magnitudes
        self.tokens[name] += int(self.valid.sum())

    def add_attention(
        self, layer: AttentionLayer, module: nn.Module, inputs: Any, options: Any, output: Any
    ) -> None:
        """Add the attention weights that a layer returns: a forward hook."""
        maps = self._maps(layer, output)
        if maps is None or layer.index in self.seen:
            return
        self.seen.add(layer.index)
        visible = _visible([*inputs, *options.values()], self.keys)
        for text, weights in enumerate(maps):  # one text at a time: these are copies
            queries = self.counted[text]
            share = weights[:, queries].float() * self.valid[text]
            nats = -torch.xlogy(share, share).sum(-1)
            normalised = nats / visible[text, queries].clamp(min=2).log()
            values = torch.stack([nats, normalised, share.amax(-1)])  # as `_ATTENTION`, of queries
            self.attention[layer.index] += values.double().sum(-1).cpu()

    def _maps(
        self, layer: AttentionLayer, output: Any
    ) -> Float[Tensor, "batch heads queries keys"] | None:
        """Return the attention weights in the output of an attention module, if they are there."""
        texts, tokens = self.valid.shape
        if not isinstance(output, tuple):
            return None
        for part in output:
            if getattr(part, "shape", ())[:3] == (texts, layer.query_heads, tokens):
                return part
        return None


def _watch(
    model: PreTrainedModel,
    readers: Mapping[int, Readers],
    sums: _Sums,
    stack: ExitStack,
    *,
    activations: bool,
) -> None:
    """Have attention modules, and with `activations` projections, add to sums until `stack` ends.

    `readers` are the projections of each layer; their parents are the attention modules.
    """
    for layer in sums.geometry.layers:
        projections = readers[layer.index]
        if activations:
            for name in projections:
                add = partial(sums.add_activations, name)
                hook = model.get_submodule(name).register_forward_hook(add)
                stack.callback(hook.remove)
        for name in {name.rpartition(".")[0] for name in projections}:
            add = partial(sums.add_attention, layer)
            hook = model.get_submodule(name).register_forward_hook(add, with_kwargs=True)
            stack.callback(hook.remove)


def _read(model: PreTrainedModel, batches: Iterable[Texts], sums: _Sums) -> None:
    """Let a model read texts, and sums be added to; raise a ModelError if no weights are seen."""
    base = model.base_model
    options = {}
    if "use_cache" in inspect.signature(base.forward).parameters:
        options["use_cache"] = False
    for batch in batches:
        sums.begin(batch["attention_mask"].bool())
        base(**batch, **options)
        if not sums.seen and "output_attentions" not in options:
            # Falcon, DeBERTa and MPNet return no weights unless they are asked to keep all.
            options["output_attentions"] = True
            sums.activations.clear()
            sums.tokens.clear()
            base(**batch, **options)
        if len(sums.seen) < len(sums.geometry.layers):
            raise no_weights(model)
        sums.queries += int(sums.counted.sum())


def _visible(
    inputs: Iterable[Any], keys: Int[Tensor, "batch queries"]
) -> Int[Tensor, "batch queries"]:
    """Return how many keys each query of a layer sees; `keys` are those seen without a window.

    Sliding windows are known from the attention module's `inputs`: the mask that it adds to the
    logits, if there is one.
    """
    for mask in inputs:
        shape = mask.shape if isinstance(mask, Tensor) and mask.is_floating_point() else ()
        if len(shape) == 4 and (shape[1], shape[3]) == (1, keys.shape[1]):
            open_to = mask[:, 0] > torch.finfo(mask.dtype).min / 2
            return open_to.sum(-1).expand_as(keys)
    return keys
