"""A decoding step that is captured once and replayed: one launch in place of some 350.

A graph keeps the addresses that it was captured with, and every number that the host knew then. So
a captured step has buffers of its own, for as many rows as its bucket has, and the decoder's usual
forward pass runs on segments whose columns only the device knows. Rows that are missing write into
free slots of their own. The step chooses each row's most probable token itself and feeds it to its
next replay, so that the host need not look after each. Layers that are left out stay with the eager
step. No graph answers before it was held against its function, on other contents of the buffers
than those that it was captured with.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from functools import cache
from typing import Any, NamedTuple, Protocol

import torch
from jaxtyping import Float
from torch import Tensor

from headsweep.engine.attention import Hidden, Slots
from headsweep.engine.operators import Operators, Rotations
from headsweep.engine.requests import NEAR_TIE
from headsweep.engine.segments import FixedSegments, Segments
from headsweep.engine.weights import Weights
from headsweep.models.loaded import dtype_name
from headsweep.models.masks import RowMasks
from headsweep.models.noise import LayerNoise

Replay = Callable[[], object]
Capture = Callable[[Callable[[], Tensor]], tuple[Replay, Tensor]]
"""Captures what a function does; returns what does it again, and the tensor that this fills."""

MOST_REPLAYS = 8
"""Most steps after which the host looks at the tokens. A row that ends before computes in vain."""

_POWERS = 64  # buckets are powers of two up to so many rows, above that multiples of it


class GraphError(RuntimeError):
    """A captured step does not compute what its function does."""


class Replayed(NamedTuple):
    """What replays of a step have found for the rows that were fed."""

    logits: Float[Tensor, "rows vocabulary"]  # of the last; until the next replay
    chosen: Float[Tensor, "replays 2 rows"]  # float64: each row's token, and its gap


class _Forward(Protocol):
    """What of `decoder.Decoder` is captured."""

    weights: Weights
    capture: Capture | None
    operators: Operators
    rotations: Rotations

    def forward(self, tokens: Tensor, segments: Segments, slots: Slots, change: Any) -> Hidden: ...

    def logits(self, normed: Hidden) -> Tensor: ...


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
        pool: Any = _shared_memory().id
        with _restored_on_failure(pool), torch.cuda.graph(graph, pool=pool):
            filled = compute()
    return graph.replay, filled


@cache
def _shared_memory() -> torch.cuda.MemPool:
    """Return the memory of all graphs of this process: one runs at a time.

    It counts as used as long as this object lives. The memory of a mere handle is gone with its
    last graph, and no graph can be captured into it any more.
    """
    return torch.cuda.MemPool()


@contextmanager
def _restored_on_failure(pool: Any) -> Iterator[None]:
    """Leave the current GPU as it was if a capture into a pool of memory fails inside.

    PyTorch leaves the stream of the capture as the current one, a generator that believes that it
    is captured, so that the next random number raises an error, and an allocator that goes on to
    fill the pool, so that no memory can be given back.
    """
    device = torch.cuda.current_device()
    stream = torch.cuda.current_stream()
    generator = torch.cuda.default_generators[device]
    state = generator.clone_state()
    try:
        yield
    except BaseException:
        torch.cuda.set_stream(stream)
        generator.graphsafe_set_state(state)
        with suppress(RuntimeError):  # the allocator has not begun
            torch._C._cuda_endAllocateToPool(device, pool)
        _shared_memory.cache_clear()
        raise


class Steps:
    """Captured steps over the rows in slots, by bucket; each is made when it is first needed."""

    def __init__(self, decoder: _Forward, slots: Slots) -> None:
        self._decoder = decoder
        self._slots = slots
        self._steps: dict[int, _Step] = {}

    def replayed(
        self,
        tokens: Sequence[int],
        columns: Sequence[int],
        masks: dict[int, RowMasks],
        replays: int = 1,
    ) -> Replayed | None:
        """Feed row i, in slot i, a token at a column, and each of its choices but the last.

        None: the eager step has to do it.

        Raises:
            GraphError: the graph computes something else than its function.
        """
        if any(mask.skipped is not None for mask in masks.values()):
            return None
        noises = {index: mask.noise for index, mask in masks.items() if mask.noise is not None}
        size = bucket(len(tokens), self._slots.count)
        step = self._steps.get(size)
        if step is None or step.memory is not self._slots.memory:  # slots that grow lie elsewhere
            step = self._steps[size] = _Step(self._decoder, self._slots, size, noises)
        elif not noises.keys() <= step.noises.keys():
            noises = {**step.noises, **noises}
            step = self._steps[size] = _Step(self._decoder, self._slots, size, noises)
        return step.run(tokens, columns, masks, replays)


class _Step:
    """The step of so many rows, with the buffers that its graph reads.

    In layers of `noises` rows may have noise; in all layers they may scale heads.
    """

    def __init__(
        self, decoder: _Forward, slots: Slots, rows: int, noises: Mapping[int, LayerNoise]
    ) -> None:
        weights = decoder.weights
        self._decoder, self._slots = decoder, slots
        self.memory = slots.memory
        self.noises = noises
        self._segments = FixedSegments(rows, slots.capacity, weights.device)
        self._tokens = torch.zeros(rows, dtype=torch.int64, device=weights.device)
        like = torch.empty(0, dtype=weights.dtype, device=weights.device)
        heads = [layer.query_heads for layer in weights.layers]
        # One tensor of all layers, so that one launch sets it back.
        self._factors = like.new_ones(len(heads), rows, max(heads))
        self._sources = like.new_zeros(len(heads), rows, max(heads))
        self._masks = [
            RowMasks(
                self._factors[index, :, :count],
                self._sources[index, :, :count] if index in noises else None,
                noise=noises.get(index),
            )
            for index, count in enumerate(heads)
        ]
        self._masked: dict[int, RowMasks] = {}
        self._chosen = torch.zeros(2, rows, dtype=torch.float64, device=weights.device)
        self._history = torch.zeros(
            MOST_REPLAYS, 2, rows, dtype=torch.float64, device=weights.device
        )
        self._replay, self._logits = self._captured()
        self._rotations = decoder.rotations
        """Those that the graph reads: the decoder may take others."""

    def run(
        self,
        tokens: Sequence[int],
        columns: Sequence[int],
        masks: dict[int, RowMasks],
        replays: int,
    ) -> Replayed:
        """Replay the step; rows may be fewer than its own."""
        count = len(tokens)
        if masks is not self._masked:
            self._masked = masks
            self._change_nothing()
            for index, mask in masks.items():
                self._masks[index].factors[:count] = mask.factors
                if mask.sources is not None:
                    self._sources[index, :count, : mask.sources.shape[1]] = mask.sources
        missing = [0] * (len(self._tokens) - count)
        self._fill([*tokens, *missing], [*columns, *missing])
        for number in range(replays):
            self._replay()
            self._history[number].copy_(self._chosen)
            # What it has chosen is fed next. A row in its last column has ended: it goes on there.
            self._tokens.copy_(self._chosen[0])
            self._segments.column_of_token.add_(1).clamp_(max=self._slots.capacity - 1)
        return Replayed(self._logits[:count], self._history[:replays, :, :count])

    def _change_nothing(self) -> None:
        self._factors.fill_(1)
        if self.noises:
            self._sources.zero_()

    def _fill(self, tokens: Sequence[int], columns: Sequence[int]) -> None:
        given = torch.tensor([tokens, columns], device=self._tokens.device)  # one copy for both
        self._tokens.copy_(given[0])
        self._segments.column_of_token.copy_(given[1])

    def _compute(self) -> Tensor:
        """Do the step: return its logits, and fill `_chosen`."""
        operators = self._decoder.operators

        def change(index: int, segments: Segments, hidden: Hidden, joined: Tensor) -> object:
            mask = self._masks[index]
            if mask.noise is not None:
                return segments, hidden, mask.applied_to(joined), None
            return segments, hidden, operators.scale_heads(joined, mask.factors), None

        self._segments.begin()
        normed = self._decoder.forward(self._tokens, self._segments, self._slots, change)
        logits = self._decoder.logits(normed)
        tokens, gaps = operators.best_two(logits)
        self._chosen[0].copy_(tokens)
        self._chosen[1].copy_(gaps)
        return logits

    def _captured(self) -> tuple[Replay, Tensor]:
        """Capture the step on one content of the buffers; compare with the function on another.

        What both write into the slots is put back.
        """
        assert self._decoder.capture is not None
        slots = self._slots
        places = self._invented(3)
        before = slots.at(places)
        replay, logits = self._decoder.capture(self._compute)
        slots.put(places, before)
        places = self._invented(8)
        before = slots.at(places)
        expected = self._compute().float()
        gaps = self._chosen[1].clone()
        written = slots.at(places)
        slots.put(places, before)
        replay()
        found = logits.float()
        tokens = self._chosen[0, :, None].long()
        off = [
            found - expected,
            found.amax(-1, keepdim=True) - found.gather(-1, tokens),
            self._chosen[1] - gaps,
            slots.at(places) - written,
        ]
        slots.put(places, before)
        self._change_nothing()
        bound = NEAR_TIE[dtype_name(before.dtype)] / 4
        worst = max(torch.stack([part.abs().max().float() for part in off]).tolist())
        if not worst <= bound:  # nor if it is no number
            raise GraphError(f"a captured step is {worst:.3g} off its function")
        return replay, logits

    def _invented(self, stride: int) -> Tensor:
        """Fill the buffers, for each stride with other numbers; return where rows write then."""
        numbers = range(stride, stride * (len(self._tokens) + 1), stride)
        vocabulary = len(self._decoder.weights.embeddings)
        capacity = self._slots.capacity
        self._fill([n % vocabulary for n in numbers], [n % capacity for n in numbers])
        places = torch.arange(self._factors.numel(), device=self._factors.device)
        self._factors.copy_((places % stride > 0).view_as(self._factors))
        if self.noises:
            self._sources.copy_((places % stride == 0).view_as(self._sources))
        return self._segments.destinations
