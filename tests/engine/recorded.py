"""What a CUDA graph does, without a GPU: operators on the tensors that they were captured with."""

from __future__ import annotations

from typing import Any

from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

REFUSED = ("_local_scalar_dense", "nonzero", "masked_select", "lift_fresh", "item", "equal")
"""Operators that wait for the device, or bring a number of the host's to it."""


class Recorded(TorchDispatchMode):
    """Records operators with their tensors; `replay` runs these, and none of Python.

    Args:
        static: tensors that stay where they are, such as weights, slots and buffers. What else a
            recorded operator reads has to be an earlier one's result.
    """

    def __init__(self, static: Any) -> None:
        super().__init__()
        self._static = [tensor for tensor in tree_leaves(static) if isinstance(tensor, Tensor)]
        self._known = {address(tensor) for tensor in self._static}
        self._calls: list[tuple[Any, Any, Any, list[Tensor]]] = []

    def __torch_dispatch__(
        self, function: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        kwargs = kwargs or {}
        name = function.overloadpacket.__name__
        if name in REFUSED:
            raise RuntimeError(f"{name} cannot be captured")
        given = [part for part in tree_leaves((args, kwargs)) if isinstance(part, Tensor)]
        for part in given:
            if address(part) not in self._known:
                raise RuntimeError(f"{name} reads a tensor of {part.shape} that is not static")
        result = function(*args, **kwargs)
        made = [part for part in tree_leaves(result) if isinstance(part, Tensor)]
        before = {address(part) for part in given}
        new = [part for part in made if address(part) not in before]
        self._known |= {address(part) for part in new}
        if new or function._schema.is_mutable:  # views lie where they lay
            self._calls.append((function, args, kwargs, made if new else []))
        return result

    def replay(self) -> None:
        """Run what was recorded, on the same storages; poison is what they hold before."""
        for _, _, _, made in self._calls:
            for part in made:
                poison(part)
        for function, args, kwargs, made in self._calls:
            result = tree_leaves(function(*args, **kwargs))
            again = [part for part in result if isinstance(part, Tensor)]
            for part, other in zip(made, again, strict=True) if made else ():
                part.copy_(other)

    @property
    def operators(self) -> list[str]:
        """The names of what is replayed, in order."""
        return [function.overloadpacket.__name__ for function, *_ in self._calls]


def address(tensor: Tensor) -> int:
    """Return what tensors share that lie in the same memory."""
    try:
        return tensor.untyped_storage()._cdata
    except NotImplementedError:  # oneDNN's own form has none
        return id(tensor)


def poison(tensor: Tensor) -> None:
    """Fill a tensor with what no result is."""
    if tensor.is_floating_point() or tensor.is_complex():
        tensor.fill_(float("nan"))
    else:
        tensor.fill_(1)


class Captures:
    """Records decoding steps in the place of `graphs.cuda_graph`."""

    def __init__(self) -> None:
        self.recordings: list[Recorded] = []
        self.replays = 0

    def __call__(self, compute: Any) -> tuple[Any, Tensor]:
        """Record what a step of `graphs` does; return what replays it, and what that fills."""
        compute()
        step: Any = compute.__self__
        weights = step._decoder.weights
        buffers = [
            step._factors,
            step._sources,
            *(part for noise in step.noises.values() for part in noise),
            step._chosen,
            *step._segments.bounds(step._slots.capacity),
            step._segments.destinations,
            step._tokens,
        ]
        static = [
            weights.norm.weight,
            weights.embeddings,
            weights.scale,
            step._decoder.rotations,
            step._slots.memory,
        ]
        static += [*vars(weights.output).values()]
        for layer in weights.layers:
            for part in (layer.qkv, layer.output, layer.gate, layer.up, layer.down):
                static += [*vars(part).values()]
            for norm in (layer.norm, layer.mlp_norm, *(layer.head_norms or ())):
                static += [norm.weight]
        recorded = Recorded([buffers, static])
        with recorded:
            filled = compute()
        self.recordings.append(recorded)

        def replay() -> None:
            self.replays += 1
            recorded.replay()

        return replay, filled
