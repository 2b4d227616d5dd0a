"""What compression saves: parameters, floating-point operations, time and memory.

Time need not fall as the operations do: it is measured.
"""

import itertools
import os
from collections.abc import Callable, Iterable, Iterator
from typing import Any, NamedTuple

import torch
from jaxtyping import Int
from torch import Tensor, nn
from torch.profiler import ProfilerActivity, profile
from transformers import PreTrainedModel

from headsweep.models.geometry import HeadGeometry, is_linear


class Size(NamedTuple):
    """How large a model is."""

    parameters: int
    layer_parameters: int  # of the transformer layers: no embeddings, no output head
    flops: int  # floating-point operations of one pass over one text, from the shapes
    weight_bytes: int


def size(model: PreTrainedModel, geometry: HeadGeometry, tokens: int) -> Size:
    """Return how large a model is; operations are those for a text of `tokens` tokens."""
    return Size(
        parameters=parameters(model),
        layer_parameters=sum(parameters(module) for module in _layers(model, geometry)),
        flops=closed_form_flops(model, geometry, tokens),
        weight_bytes=weight_bytes(model),
    )


def _layers(model: nn.Module, geometry: HeadGeometry) -> list[nn.Module]:
    return [model.get_submodule(layer.block) for layer in geometry.layers]


def parameters(module: nn.Module) -> int:
    """Return the number of parameters of a module; shared ones count once."""
    return sum(parameter.numel() for parameter in module.parameters())


def closed_form_flops(model: PreTrainedModel, geometry: HeadGeometry, tokens: int) -> int:
    """Return the floating-point operations of a pass over one text, from the model's shapes.

    Two per token for each weight of a linear layer, and four per query and key for each dimension
    of each head. Language heads count; embeddings, norms, poolers and classifiers do not. All
    experts count, also those that a token is not routed to.
    """
    weights = sum(
        module.get_parameter("weight").numel()
        for layer in _layers(model, geometry)
        for module in layer.modules()
        if is_linear(module)
    )
    head = model.get_output_embeddings()
    weights += head.weight.numel() if head is not None else 0
    products = sum(2 * tokens * layer.width for layer in geometry.layers)
    return 2 * tokens * (weights + products)


def dummy_texts(model: PreTrainedModel, batch: int, tokens: int) -> dict[str, Int[Tensor, "b t"]]:
    """Return random token ids without padding, for measurements that ignore the content."""
    rows = model.get_input_embeddings().num_embeddings
    draw = torch.Generator().manual_seed(0)
    ids = torch.randint(rows, (batch, tokens), generator=draw).to(model.device)
    return {"input_ids": ids, "attention_mask": torch.ones_like(ids)}


def weight_bytes(model: nn.Module) -> int:
    """Return the bytes of a model's weights and persistent buffers, quantised ones included."""
    tensors = {tensor.data_ptr(): tensor for tensor in _tensors(model.state_dict().values())}
    return sum(tensor.nbytes for tensor in tensors.values())


def _tensors(values: Iterable[Any]) -> Iterator[Tensor]:
    """Yield the tensors among values, including those that quantised layers pack into tuples."""
    for value in values:
        if isinstance(value, Tensor):
            yield value
        elif isinstance(value, tuple):
            yield from _tensors(value)


def cache_bytes(model: PreTrainedModel, geometry: HeadGeometry) -> int:
    """Return a decoder's bytes of keys and values for a token, keys taken to be as wide."""
    return geometry.cached_numbers * model.dtype.itemsize


def peak_bytes(model: PreTrainedModel, batch: int, tokens: int) -> int:
    """Return the bytes of a model's weights and the most that a pass holds beside them.

    A pass reads `batch` texts of `tokens` tokens. Bytes of tensors are counted, so that neither the
    way in which weights were loaded nor what the allocator keeps is taken for the model's own.
    """
    texts = dummy_texts(model, batch, tokens)
    with torch.inference_mode():
        return weight_bytes(model) + most_allocated(lambda: model(**texts))


def most_allocated(call: Callable[[], Any]) -> int:
    """Return the most bytes of new tensors that a call holds at once, on the GPU if there is one.

    On a CPU those of the calling thread are counted.
    """
    if torch.cuda.is_available():
        torch.cuda.reset_peak_memory_stats()
        before = torch.cuda.memory_allocated()
        call()
        return torch.cuda.max_memory_allocated() - before
    os.environ.setdefault("KINETO_LOG_LEVEL", "99")  # it would print when it starts and stops
    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as profiled:
        call()
    assert profiled.profiler is not None and profiled.profiler.kineto_results is not None
    events = profiled.profiler.kineto_results.events()
    changes = [event for event in events if event.name() == "[memory]"]
    changes.sort(key=lambda event: event.start_ns())
    return max(itertools.accumulate((event.nbytes() for event in changes), initial=0))
