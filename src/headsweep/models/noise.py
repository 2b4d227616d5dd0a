"""Noise as strong as a head: at each token it is as long after the output projection.

Let W be the output projection's weight [outputs, query_heads * head_dim], W_h its columns that read
head h, and a_h the head's output at a token. Pruning the head removes W_h a_h. Its noise placebo
adds d ‖W_h a_h‖ / ‖W d‖ before the projection, where d is a random unit vector fixed by layer and
head. After the projection this is as long as what pruning removes, in a random direction. Since
‖W_h a_h‖² = a_hᵀ G_h a_h with G_h = W_hᵀ W_h, a token costs head_dim² products for a head, and no
weight is read again.
"""

from typing import NamedTuple
from weakref import WeakKeyDictionary

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor, nn

from headsweep.models.geometry import AttentionLayer, HeadGeometry
from headsweep.variants import noise_direction


class LayerNoise(NamedTuple):
    """What noise in one layer needs of its weights, float32 whatever the model computes in."""

    grams: Float[Tensor, "query_heads head_dim head_dim"]
    """G_h of each head."""
    directions: Float[Tensor, "query_heads width"]
    """d / ‖W d‖ of each head; zero where W d is, as in a layer whose weights are all zero."""

    def to(self, device: torch.device | str) -> "LayerNoise":
        """Return the noise of the layer on another device."""
        return LayerNoise(self.grams.to(device), self.directions.to(device))

    def lengths(
        self, heads: Float[Tensor, "*tokens query_heads head_dim"]
    ) -> Float[Tensor, "*tokens query_heads"]:
        """Return ‖W_h a_h‖ of each head, float32, from the heads' outputs."""
        outputs = heads.float()
        products = torch.einsum("...hi,hij->...hj", outputs, self.grams)
        return (products * outputs).sum(dim=-1).clamp_min(0).sqrt()  # rounding may go below 0


_KNOWN: WeakKeyDictionary[nn.Module, LayerNoise] = WeakKeyDictionary()
"""By output projection, as long as the model lives."""


def layer_noise(model: nn.Module, geometry: HeadGeometry, index: int) -> LayerNoise:
    """Return what noise in a layer needs; weights are read once, and must not change afterwards."""
    projection = geometry.output_projection(model, index)
    if projection not in _KNOWN:
        weight = geometry.output_weight(model, index)
        _KNOWN[projection] = _read(geometry.layer(index), weight)
    return _KNOWN[projection]


def _read(layer: AttentionLayer, weight: Float[Tensor, "outputs width"]) -> LayerNoise:
    heads = weight.unflatten(1, (layer.query_heads, layer.head_dim)).transpose(0, 1)
    drawn = [noise_direction(layer.index, head, layer.width) for head in range(layer.query_heads)]
    directions = torch.from_numpy(np.stack(drawn)).to(weight)
    lengths = (directions @ weight.T).norm(dim=1, keepdim=True)
    scaled = torch.where(lengths > 0, directions / lengths, 0.0)
    return LayerNoise((heads.mT @ heads).float(), scaled.float())
