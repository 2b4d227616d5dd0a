"""What noise placebos are held against: a hook that serves one of them, for all rows alike."""

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import Tensor, nn

from headroom.models.geometry import HeadGeometry
from headroom.variants import Variant, noise_direction


@contextmanager
def noisy(model: nn.Module, geometry: HeadGeometry, variant: Variant) -> Iterator[None]:
    """Add a placebo's noise to all rows alike, token by token and head by head."""
    layer = geometry.layer(variant.layer)
    direction = torch.from_numpy(noise_direction(variant, layer.width))

    def add(_: object, inputs: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
        joined = inputs[0].clone()
        for row in joined:
            for token in row:
                token += direction * token[layer.columns(variant.head)].norm()
        return (joined, *inputs[1:])

    hook = geometry.output_projection(model, layer.index).register_forward_pre_hook(add)
    yield
    hook.remove()
