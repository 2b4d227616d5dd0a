"""A GPU that computes nothing: shapes, types, devices and counts of what would run on one.

PyTorch's CPU build has no CUDA. A backend written in Python has the name `gpu` in its place, and
fake tensors have its device: operators check sizes and mix no devices, as on a real one. A whole
step of a model takes milliseconds. What is read back are tokens that the test hands out.
"""

from __future__ import annotations

import multiprocessing
import traceback
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from functools import partial, wraps
from multiprocessing.connection import Connection
from typing import Any
from unittest.mock import patch

import numpy as np
import pytest
import torch
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode, unset_fake_temporarily
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.backend_registration import _setup_privateuseone_for_python_backend
from transformers import Qwen2Config, Qwen2ForCausalLM

from headsweep.models.geometry import AttentionLayer, HeadGeometry
from headsweep.models.loaded import LoadedModel

NAME = "gpu"
LAYERS = 4
QWEN = Qwen2Config(
    hidden_size=1536,
    num_hidden_layers=LAYERS,
    num_attention_heads=12,
    num_key_value_heads=2,
    intermediate_size=8960,
    vocab_size=151936,
    max_position_embeddings=4096,
    tie_word_embeddings=True,
)
"""Qwen2.5-1.5B, with few of its 28 layers."""

SYNCHRONISING = ("_local_scalar_dense", "item", "nonzero", "masked_select", "equal", "unique")
"""Operators whose result the host waits for."""


@dataclass
class Counts:
    """What would have crossed to or from the GPU, and what would have run on it."""

    operators: Counter[str] = field(default_factory=Counter)
    """Kernels by name; views are none."""
    to_device: list[str] = field(default_factory=list)
    """Where in headsweep each copy from the host was asked for."""
    to_host: list[tuple[int, ...]] = field(default_factory=list)
    """The shape of each tensor that was read."""
    slots_copied: int = 0
    """How often rows' slots were copied out of all."""

    def clear(self) -> None:
        """Begin to count."""
        self.operators.clear()
        self.to_device.clear()
        self.to_host.clear()
        self.slots_copied = 0


class _Watch(TorchDispatchMode):
    """Counts operators with a tensor on the GPU; refuses what makes the host wait unseen."""

    def __init__(self, counts: Counts) -> None:
        super().__init__()
        self._counts = counts

    def __torch_dispatch__(
        self, function: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        kwargs = kwargs or {}
        result = function(*args, **kwargs)
        name = function.overloadpacket.__name__
        given, made = _tensors([*args, *kwargs.values()]), _tensors([result])
        on_gpu = [part for part in given + made if part.device.type == NAME]
        if not on_gpu or name in _NO_KERNEL:
            return result
        if name in SYNCHRONISING and any(part.device.type == NAME for part in given):
            raise AssertionError(f"{name} makes the host wait, in {_place()}")
        if any(part.device.type == "cpu" for part in made):
            raise AssertionError(f"{name} copies to the host, in {_place()}")
        if given and all(part.device.type == "cpu" for part in given):
            self._counts.to_device.append(_place())
            return result
        storages = {part.untyped_storage()._cdata for part in given}
        is_view = all(part.untyped_storage()._cdata in storages for part in made)
        if name == "index" and given[0].dim() > 3:  # hidden states and heads have less
            self._counts.slots_copied += 1
        if function._schema.is_mutable or not is_view:
            self._counts.operators[name] += 1
        return result


_NO_KERNEL = {"device", "lift_fresh", "empty", "empty_like", "new_empty", "empty_strided"}


def _tensors(values: Any) -> list[Tensor]:
    """Return the tensors among values, and among those of lists."""
    tensors = []
    for value in values:
        if isinstance(value, list | tuple):
            tensors += _tensors(value)
        elif isinstance(value, Tensor):
            tensors.append(value)
    return tensors


def _place() -> str:
    frames = [frame for frame in traceback.extract_stack() if "/headsweep/" in frame.filename]
    return f"{frames[-1].name}: {frames[-1].line}" if frames else "elsewhere"


def flash(
    counts: Counts,
    queries: Tensor,
    keys: Tensor,
    values: Tensor,
    cu_seq_q: Tensor,
    cu_seq_k: Tensor,
    max_q: int,
    max_k: int,
    dropout: float,
    is_causal: bool,
    return_debug_mask: bool,
    *,
    scale: float | None = None,
    window_size_left: int | None = None,
    window_size_right: int | None = None,
    seqused_k: Tensor | None = None,
) -> tuple[Tensor, ...]:
    """Assert what FlashAttention-2's `mha_varlen_fwd` asserts; return outputs of that shape."""
    assert queries.dtype in (torch.float16, torch.bfloat16)
    assert queries.dtype == keys.dtype == values.dtype
    assert queries.dim() == keys.dim() == values.dim() == 3
    assert keys.shape == values.shape
    heads, width = queries.shape[1:]
    assert heads % keys.shape[1] == 0
    assert width <= 256 and width % 8 == 0 and keys.shape[2] == width
    assert seqused_k is not None and len(seqused_k) == len(cu_seq_q) - 1 == len(cu_seq_k) - 1
    for bounds in (cu_seq_q, cu_seq_k, seqused_k):
        assert bounds.dtype == torch.int32 and bounds.is_contiguous() and bounds.dim() == 1
    assert all(part.stride(-1) == 1 for part in (queries, keys, values))
    counts.operators["_flash_attention_forward"] += 1
    every = (queries, keys, values, cu_seq_q, cu_seq_k, seqused_k)
    assert {part.device.type for part in every} == {NAME}
    assert type(max_q) is type(max_k) is int and max_q > 0 and max_k > 0
    return (torch.empty_like(queries),)


@contextmanager
def counted(
    tokens: float = 7, floats: Callable[[tuple[int, ...]], np.ndarray] | None = None
) -> Iterator[Counts]:
    """Count inside the block.

    What is read from the GPU is the token, with a gap of the same size, or what `floats` returns
    for a shape.
    """
    counts = Counts()
    tensor, as_tensor = torch.tensor, torch.as_tensor

    def moved(make: Any, data: Any, *, device: Any = None, **options: Any) -> Tensor:
        made: Any = make(data, **options)
        if device is None:
            return made
        made.constant = None  # a fake tensor of one element would be copied for real
        return made.to(device)

    def read(self: Tensor) -> Any:
        counts.to_host.append(tuple(self.shape))
        is_pair = self.dtype == torch.float64  # tokens and gaps
        if self.dtype.is_floating_point and not is_pair and floats is not None:
            return floats(tuple(self.shape)).tolist()
        return np.full(self.shape, tokens).tolist()

    with ExitStack() as stack:
        stack.enter_context(torch.inference_mode())
        stack.enter_context(FakeTensorMode(allow_non_fake_inputs=True))
        stack.enter_context(_Watch(counts))
        stack.enter_context(patch.object(torch, "tensor", partial(moved, tensor)))
        stack.enter_context(patch.object(torch, "as_tensor", partial(moved, as_tensor)))
        stack.enter_context(patch.object(FakeTensor, "tolist", read))
        stack.enter_context(
            patch.object(torch.ops.aten, "_flash_attention_forward", partial(flash, counts))
        )
        yield counts


def loaded_model() -> LoadedModel:
    """Return a model of random weights on the GPU, in bfloat16; inside `counted`."""
    # Without fake tensors: where other tests ran before, they fail on what transformers asks first.
    with unset_fake_temporarily(), torch.device("meta"):
        model = Qwen2ForCausalLM._from_config(QWEN, dtype=torch.bfloat16).eval()
    model.to_empty(device=NAME)
    heads = QWEN.num_attention_heads
    sizes = (heads, QWEN.num_key_value_heads, QWEN.hidden_size // heads)
    blocks = [f"model.layers.{index}" for index in range(LAYERS)]
    layers = [
        AttentionLayer(index, block, f"{block}.self_attn.o_proj", *sizes)
        for index, block in enumerate(blocks)
    ]
    geometry = HeadGeometry(tuple(layers))
    device = torch.device(NAME)
    return LoadedModel(model, None, geometry, None, device, torch.bfloat16, 0, (2,))


def in_a_process(test: Any) -> Any:
    """Let a test run in a process of its own, whose backend is this module's."""

    def told(connection: Connection, *given: Any, **named: Any) -> None:
        try:
            _setup_privateuseone_for_python_backend(NAME)
            test(*given, **named)
            connection.send(None)
        except BaseException:
            connection.send(traceback.format_exc())

    @wraps(test)
    def forked(*given: Any, **named: Any) -> None:
        context = multiprocessing.get_context("fork")
        ours, theirs = context.Pipe(duplex=False)
        process = context.Process(target=told, args=(theirs, *given), kwargs=named)
        process.start()
        theirs.close()
        try:
            failure = ours.recv()
        except EOFError:
            failure = "the process has died"
        process.join()
        if failure:
            pytest.fail(failure, pytrace=False)

    return forked
