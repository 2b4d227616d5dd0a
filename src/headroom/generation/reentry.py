"""Entering a model at any layer, with the hidden states that another pass left below it.

No architecture is named. The output of each layer is what its module returned; to enter at layer
l, the modules of the layers below return at once what layer l - 1 returned before. Everything
around the layers (positions, masks, rotary angles) is the model's own. Whether an architecture
allows this is for the caller to find out by comparison with a whole pass.
"""

from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any
from unittest.mock import patch

from torch import Tensor, nn

from headroom.models.geometry import HeadGeometry


class Reentry:
    """The layers of a model, which can be recorded and skipped."""

    def __init__(self, model: nn.Module, geometry: HeadGeometry) -> None:
        self._layers = _layers(model, geometry)

    @contextmanager
    def recorded(self, entrances: Iterable[int]) -> Iterator[dict[int, Any]]:
        """Record what layers need to be entered, by layer, during passes inside the block."""
        outputs: dict[int, Any] = {}
        with ExitStack() as hooks:
            for entrance in entrances:
                if entrance == 0:
                    continue  # a pass from the bottom needs nothing

                def record(_: nn.Module, __: Any, output: Any, entrance: int = entrance) -> None:
                    outputs[entrance] = output

                handle = self._layers[entrance - 1].register_forward_hook(record)
                hooks.callback(handle.remove)
            yield outputs

    @contextmanager
    def entered(self, entrance: int, output: Any) -> Iterator[None]:
        """Skip the layers below `entrance`; the last of them returns `output`."""

        def skip(*_: Any, **__: Any) -> Any:
            return output

        with ExitStack() as patches:
            for layer in self._layers[:entrance]:
                patches.enter_context(patch.object(layer, "forward", skip))
            yield


def part(output: Any, rows: slice, tokens: slice) -> Any:
    """Return a part of a layer's output, in the form in which its module returned it."""
    if isinstance(output, Tensor):
        return output[rows, tokens]
    hidden, *others = output
    return (hidden[rows, tokens], *others)


def _layers(model: nn.Module, geometry: HeadGeometry) -> nn.ModuleList:
    """Return the model's list of layers, those without attention included."""
    first = geometry.layers[0]
    names = first.name.split(".")
    for depth, name in enumerate(names):
        parent = model.get_submodule(".".join(names[:depth]))
        if isinstance(parent, nn.ModuleList) and name == str(first.index):
            return parent
    raise LookupError(f"{first.name} lies in no list of layers")
