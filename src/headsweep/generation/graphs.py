"""A decoding step that is captured once and replayed: one launch in place of some 700.

A graph keeps the addresses that it was captured with, and every number that the host knew then. So
a captured step has buffers of its own, for as many rows as its bucket has, and the decoder's usual
forward pass runs on segments whose columns only the device knows. Rows that are missing write into
free slots of their own. Captured are steps by `flash` whose variants multiply heads; noise, and
layers that are left out, stay with the eager step. No graph answers before it was held against its
function, on other contents of the buffers than those that it was captured with.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import cache
from typing import Any, Protocol

import torch
from torch import Tensor

from headsweep.generation.attention import FixedSegments, Hidden, Segments, Slots
from headsweep.generation.requests import NEAR_TIE
from headsweep.generation.weights import Weights
from headsweep.models.loaded import dtype_name
from headsweep.models.masks import RowMasks

Replay = Callable[[], object]
Capture = Callable[[Callable[[], Tensor]], tuple[Replay, Tensor]]
"""Captures what a function does; returns what does it again, and the tensor that this fills."""

_POWERS = 64  # buckets are powers of two up to so many rows, above that multiples of it


class GraphError(RuntimeError):
    """A captured step does not compute what its function does."""


class _Forward(Protocol):
    """What of `decoder.Decoder` is captured."""

    weights: Weights
    capture: Capture | None

    def forward(self, tokens: Tensor, segments: Segments, slots: Slots, change: Any) -> Hidden: ...

    def logits(self, hidden: Hidden) -> Tensor: ...


def bucket(rows: int, most: int) -> int:
    """Return for how many rows the step is captured that serves so many, of `most`."""
    if rows <= _POWERS:
        return min(most, 1 << (rows - 1).bit_length())
    return min(most, math.ceil(rows / _POWERS) * _POWERS)


def cuda_graph(compute: Callable[[], Tensor], device: torch.device) -> tuple[Replay, Tensor]:
    """Capture what a function does on a GPU: a `Capture`, but for the device.

    Streams are the current GPU's, the first unless another is chosen: they would record nothing of
    what runs elsewhere.
    """
    with torch.cuda.device(device):
        stream = torch.cuda.Stream()
        stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(stream):  # kernels are chosen, workspaces taken, before the capture
            compute()
        torch.cuda.current_stream().wait_stream(stream)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph, pool=_shared_memory()):
            filled = compute()
    return graph.replay, filled


@cache
def _shared_memory() -> Any:
    """Return the memory of all graphs of this process: one runs at a time."""
    return torch.cuda.graph_pool_handle()


class Steps:
    """Captured steps over the rows in slots, by bucket; each is made when it is first needed."""

    def __init__(self, decoder: _Forward, slots: Slots, most: int) -> None:
        self._decoder = decoder
        self._slots = slots
        self._most = most
        self._steps: dict[int, _Step] = {}

    def hidden(
        self, tokens: Sequence[int], columns: Sequence[int], masks: dict[int, RowMasks]
    ) -> Hidden | None:
        """Feed row i, in slot i, a token at a column; return the last layer's output.

        None: the eager step has to do it.

        Raises:
            GraphError: the graph computes something else than its function.
        """
        if any(mask.sources is not None or mask.skipped is not None for mask in masks.values()):
            return None
        size = bucket(len(tokens), self._most)
        step = self._steps.get(size)
        if step is None or step.memory is not self._slots.memory:  # slots that grow lie elsewhere
            step = self._steps[size] = _Step(self._decoder, self._slots, size)
        return step.run(tokens, columns, masks)


class _Step:
    """The step of so many rows, with the buffers that its graph reads."""

    def __init__(self, decoder: _Forward, slots: Slots, rows: int) -> None:
        weights = decoder.weights
        self._decoder, self._slots = decoder, slots
        self.memory = slots.memory
        self._segments = FixedSegments(rows, slots.capacity, weights.device)
        self._tokens = torch.zeros(rows, dtype=torch.int64, device=weights.device)
        like = torch.empty(0, dtype=weights.dtype, device=weights.device)
        self._masks = {
            index: RowMasks(like.new_ones(rows, layer.query_heads))
            for index, layer in enumerate(weights.layers)
        }
        self._masked: dict[int, RowMasks] = {}
        self._replay, self._filled = self._captured()

    def run(
        self, tokens: Sequence[int], columns: Sequence[int], masks: dict[int, RowMasks]
    ) -> Hidden:
        """Replay the step; rows may be fewer than its own."""
        count = len(tokens)
        if masks is not self._masked:
            self._masked = masks
            for index, mask in self._masks.items():
                mask.factors.fill_(1)
                if index in masks:
                    mask.factors[:count] = masks[index].factors
        missing = [0] * (len(self._tokens) - count)
        self._fill([*tokens, *missing], [*columns, *missing])
        self._replay()
        return self._filled[:count]

    def _fill(self, tokens: Sequence[int], columns: Sequence[int]) -> None:
        given = torch.tensor([tokens, columns], device=self._tokens.device)  # one copy for both
        self._tokens.copy_(given[0])
        self._segments.column_of_token.copy_(given[1])

    def _compute(self) -> Hidden:
        def change(index: int, segments: Segments, hidden: Hidden, joined: Tensor) -> object:
            return segments, hidden, self._masks[index].applied_to(joined), None

        self._segments.begin()
        return self._decoder.forward(self._tokens, self._segments, self._slots, change)

    def _captured(self) -> tuple[Replay, Tensor]:
        """Capture the step on one content of the buffers; compare with the function on another.

        What both write into the slots is put back.
        """
        assert self._decoder.capture is not None
        slots = self._slots
        places = self._segments.destinations
        before = self._invented(3)
        replay, filled = self._decoder.capture(self._compute)
        slots.put(places, before)
        before = self._invented(8)
        expected = self._decoder.logits(self._compute())
        written = slots.at(places)
        slots.put(places, before)
        replay()
        logits = self._decoder.logits(filled)
        rewritten = slots.at(places)
        slots.put(places, before)
        for mask in self._masks.values():
            mask.factors.fill_(1)
        off = (logits - expected).abs().max().maximum((rewritten - written).abs().max())
        bound = NEAR_TIE[dtype_name(written.dtype)] / 4
        worst = float(off.tolist())  # type: ignore[arg-type]
        if not worst <= bound:  # nor if it is no number
            raise GraphError(f"a captured step is {worst:.3g} off its function")
        return replay, filled

    def _invented(self, stride: int) -> Tensor:
        """Fill the buffers, for each stride with other numbers; return what lies at the columns."""
        numbers = range(stride, stride * (len(self._tokens) + 1), stride)
        vocabulary = len(self._decoder.weights.embeddings)
        capacity = self._slots.capacity
        self._fill([n % vocabulary for n in numbers], [n % capacity for n in numbers])
        for mask in self._masks.values():
            places = torch.arange(mask.factors.numel(), device=mask.factors.device)
            mask.factors.copy_((places % stride > 0).view_as(mask.factors))
        return self._slots.at(self._segments.destinations)
