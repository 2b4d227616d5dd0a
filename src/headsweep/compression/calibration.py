"""What is measured of a model's heads on texts: attention statistics, activations; weight norms.

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
from jaxtyping import Float, Int
from torch import Tensor, nn
from transformers import PreTrainedModel
from transformers.pytorch_utils import Conv1D

from headsweep.errors import ModelError
from headsweep.models.geometry import AttentionLayer, HeadGeometry, evaluating
from headsweep.models.learner import eager_attention, move, no_weights, padded
from headsweep.models.removal import Readers, find_readers

Texts = Mapping[str, Tensor]
"""A model's inputs: input_ids and attention_mask [batch, tokens], padded on either side."""
Scores = Mapping[int, Tensor]
"""A score for each head, [query_heads] by layer; the lowest are removed first."""


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
    layers = geometry.layers
    readers = find_readers(model, geometry)
    base = model.base_model
    sums = {each.index: torch.zeros(3, each.query_heads, dtype=torch.float64) for each in layers}
    rows: dict[str, Tensor] = {}
    tokens: Counter[str] = Counter()
    seen: set[int] = set()
    queries = 0
    valid = torch.empty(0)
    keys = torch.empty(0)
    counted = torch.empty(0)

    def add(name: str, _: nn.Module, __: tuple[Tensor, ...], output: Tensor) -> None:
        if output.shape[:-1] == valid.shape:  # skip projections of anything but the tokens
            rows[name] = rows.get(name, 0.0) + output[valid].abs().double().sum(0).cpu()
            tokens[name] += int(valid.sum())

    def reduce(layer: AttentionLayer, _: nn.Module, args: Any, kwargs: Any, output: Any) -> None:
        shape = (len(valid), layer.query_heads, valid.shape[1])
        parts = output if isinstance(output, tuple) else ()
        maps = [part for part in parts if getattr(part, "shape", ())[:3] == shape]
        if not maps or layer.index in seen:
            return
        seen.add(layer.index)
        visible = _visible([*args, *kwargs.values()], keys)
        for text, weights in enumerate(maps[0]):  # one text at a time: these are copies
            asked = counted[text]
            share = weights[:, asked].float() * valid[text]
            nats = -torch.xlogy(share, share).sum(-1)
            of_most = nats / visible[text, asked].clamp(min=2).log()
            found = torch.stack([nats, of_most, share.amax(-1)])  # 3, heads, queries
            sums[layer.index] += found.double().sum(-1).cpu()

    takes = inspect.signature(base.forward).parameters
    options = {"use_cache": False} if "use_cache" in takes else {}
    with ExitStack() as stack, torch.no_grad():
        stack.enter_context(eager_attention(model))
        for layer in layers:
            for name in readers[layer.index] if activations else ():
                hook = model.get_submodule(name).register_forward_hook(partial(add, name))
                stack.callback(hook.remove)
            for name in {name.rpartition(".")[0] for name in readers[layer.index]}:
                owner = model.get_submodule(name)
                hook = owner.register_forward_hook(partial(reduce, layer), with_kwargs=True)
                stack.callback(hook.remove)
        stack.enter_context(evaluating(model))
        for batch in batches:
            valid = batch["attention_mask"].bool()
            # How many keys each query sees: all, or in a decoder those up to its own.
            keys = valid.cumsum(1) if geometry.keeps_cache else valid.sum(1, True).expand_as(valid)
            counted = valid & (keys > 1)
            seen.clear()
            base(**batch, **options)
            if not seen and "output_attentions" not in options:
                # Falcon, DeBERTa and MPNet return no weights unless they are asked to keep all.
                options["output_attentions"] = True
                rows.clear()
                tokens.clear()
                base(**batch, **options)
            if len(seen) < len(layers):
                raise no_weights(model)
            queries += int(counted.sum())
    queries = int(total(torch.tensor(queries)))
    if not queries:
        raise ModelError("no text to calibrate on has two tokens; give longer ones")
    whole = {layer: total(each) for layer, each in sums.items()}
    found: dict[str, Scores] = {
        name: {layer: (each[kind] / queries).float() for layer, each in whole.items()}
        for kind, name in enumerate(("raw", "normalised", "peak"))
    }
    if activations:
        counts = {name: total(torch.tensor(tokens[name])) for name in rows}
        means = {name: (total(each) / counts[name]).float() for name, each in rows.items()}
        found["activations"] = _head_sums(geometry, readers, means.__getitem__)
    return found


def _visible(
    given: Iterable[Any], keys: Int[Tensor, "batch queries"]
) -> Int[Tensor, "batch queries"]:
    """Return how many keys each query of a layer sees; `keys` are those seen without a window.

    Sliding windows are known from what the attention module was `given`: the mask that it adds to
    the logits, if there is one.
    """
    for mask in given:
        shape = mask.shape if isinstance(mask, Tensor) and mask.is_floating_point() else ()
        if len(shape) == 4 and (shape[1], shape[3]) == (1, keys.shape[1]):
            open_to = mask[:, 0] > torch.finfo(mask.dtype).min / 2
            return open_to.sum(-1).expand_as(keys)
    return keys
