"""What compression gains: parameters, arithmetic, time and memory.

Removing heads takes little from a transformer: attention is a third of a layer's weights. So the
arithmetic that is removed bounds the speed-up that can be had, and both are reported.
"""

import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor, nn
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils.flop_counter import FlopCounterMode
from transformers import PreTrainedModel

from headroom.errors import ModelError
from headroom.models.geometry import AttentionLayer, HeadGeometry, is_linear
from headroom.models.load import load_checkpoint
from headroom.record import peak_resident


@dataclass(frozen=True)
class Size:
    """How large a model is."""

    parameters: int
    layer_parameters: int
    """Without embeddings and whatever stands on the layers."""
    flops: int
    """Of one pass over the tokens of one text: what the shapes say."""
    flops_counted: int
    """The same, counted while it runs."""
    weight_bytes: int


def size(model: PreTrainedModel, geometry: HeadGeometry, tokens: int) -> Size:
    """Return how large a model is; its arithmetic is counted for a text of so many tokens."""
    layers = [_layer_module(model, layer) for layer in geometry.layers]
    return Size(
        parameters=parameters(model),
        layer_parameters=sum(parameters(layer) for layer in layers),
        flops=closed_form_flops(model, geometry, tokens),
        flops_counted=counted_flops(model, tokens),
        weight_bytes=weight_bytes(model),
    )


def parameters(module: nn.Module) -> int:
    """Return how many parameters a module has; shared ones count once."""
    return sum(parameter.numel() for parameter in module.parameters())


def closed_form_flops(model: PreTrainedModel, geometry: HeadGeometry, tokens: int) -> int:
    """Return the floating-point operations of a pass over one text, from the shapes of a model.

    Two for each weight of a linear layer and token, and four for each entry of a head's output and
    key that it sees. Language heads count, embeddings, norms, poolers and classifiers do not; of
    experts all count.
    """
    weights = sum(
        module.get_parameter("weight").numel()
        for layer in geometry.layers
        for module in _layer_module(model, layer).modules()
        if is_linear(module)
    )
    head = model.get_output_embeddings()
    weights += head.weight.numel() if head is not None else 0
    products = sum(2 * tokens * layer.width for layer in geometry.layers)
    return 2 * tokens * (weights + products)


def counted_flops(model: PreTrainedModel, tokens: int) -> int:
    """Count the floating-point operations of the matrix products in a pass over one text."""
    # Fused attention is counted on some devices only; taken apart, it is on all.
    with FlopCounterMode(display=False) as counter, sdpa_kernel(SDPBackend.MATH), torch.no_grad():
        model(**dummy_texts(model, 1, tokens))
    return counter.get_total_flops()


def dummy_texts(model: PreTrainedModel, batch: int, tokens: int) -> dict[str, Int[Tensor, "b t"]]:
    """Return texts without padding, for measurements that do not depend on what they say."""
    rows = model.get_input_embeddings().num_embeddings
    draw = torch.Generator().manual_seed(0)
    ids = torch.randint(rows, (batch, tokens), generator=draw).to(model.device)
    return {"input_ids": ids, "attention_mask": torch.ones_like(ids)}


def weight_bytes(model: nn.Module) -> int:
    """Return the bytes of a model's weights and stored buffers, quantised ones included."""
    tensors = {tensor.data_ptr(): tensor for tensor in _tensors(model.state_dict().values())}
    return sum(tensor.numel() * tensor.element_size() for tensor in tensors.values())


def _tensors(values: Any) -> Iterator[Tensor]:
    """Yield the tensors among values, also those that quantised layers pack into tuples."""
    for value in values:
        if isinstance(value, Tensor):
            yield value
        elif isinstance(value, tuple):
            yield from _tensors(value)


def in_turns(
    calls: Sequence[Callable[[], Any]], turns: int, warm_ups: int = 0
) -> Float[np.ndarray, "turns calls"]:
    """Return how long calls take, in seconds, in so many turns after so many that do not count.

    The calls take turns, so that whatever else the machine does falls on all of them alike.
    """
    with torch.inference_mode():
        seconds = [[_seconds(call) for call in calls] for _ in range(warm_ups + turns)]
    return np.array(seconds[warm_ups:])


def _seconds(call: Callable[[], Any]) -> float:
    wait = torch.cuda.synchronize if torch.cuda.is_available() else lambda: None
    wait()
    started = time.perf_counter()
    call()
    wait()
    return time.perf_counter() - started


def peak_bytes(folders: Sequence[Path], batch: int, tokens: int, device: str = "cpu") -> list[int]:
    """Return by how much a fresh process grows, at its peak, to load each model and run one pass.

    On a GPU it is the peak of what is allocated there.

    Args:
        folders: model folders, pruned or not.
        batch: texts a pass.
        tokens: their length.
        device: cpu or cuda.

    Raises:
        ModelError: a model cannot be loaded or run.
    """
    arguments = [str(batch), str(tokens), device, *map(str, folders)]
    command = [sys.executable, "-m", "headroom.compression.footprint", *arguments]
    run = subprocess.run(command, capture_output=True, text=True)
    peaks = [int(line) for line in run.stdout.split()]
    if run.returncode:
        reason = run.stderr.strip().rpartition("\n")[2]
        raise ModelError(f"the peak memory of {folders[len(peaks)]} cannot be measured ({reason})")
    return peaks


def _tell_peaks(batch: str, tokens: str, device: str, *folders: str) -> int:
    """Print for each folder a line with the peak in bytes, without what the libraries take.

    Each is measured in a fork, which starts with the libraries loaded and nothing else: importing
    them takes longer than all the rest. Returns the exit status.
    """
    peak = peak_resident if device == "cpu" else torch.cuda.max_memory_allocated
    for folder in folders:
        child = os.fork()
        if child == 0:
            before = peak()
            model = load_checkpoint(folder, device=device)
            with torch.inference_mode():
                model(**dummy_texts(model, int(batch), int(tokens)))
            print(peak() - before, flush=True)
            return 0
        if os.waitpid(child, 0)[1]:
            return 1
    return 0


def _layer_module(model: nn.Module, layer: AttentionLayer) -> nn.Module:
    """Return the module of the list of layers that an attention layer lies in."""
    parts = layer.name.split(".")
    for end in range(1, len(parts)):
        holder = model.get_submodule(".".join(parts[:end]))
        if isinstance(holder, nn.ModuleList) and parts[end] == str(layer.index):
            return holder[layer.index]
    raise AssertionError(f"{layer.name} lies in no list of layers")


if __name__ == "__main__":
    sys.exit(_tell_peaks(*sys.argv[1:]))
