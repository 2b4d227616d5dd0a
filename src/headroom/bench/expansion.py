r"""A small Qwen2 embedded into a larger shape that computes the same function.

Random weights make a poor benchmark: such a model never ends an answer, and pruning a head of it
changes either nothing or everything. The expanded model has the size of a larger one and answers
as the small one does, so that its answers diverge where a trained model's do. In the spirit of
Net2Net (Chen et al., arXiv 1511.05641):

- Residual channels are tiled: :math:`x' = (x, \dots, x)` has the mean square of :math:`x`, so
  RMSNorm commutes with it. What reads the residual stream is divided by the number of copies, what
  writes to it is repeated. With tied embeddings the final norm carries the division.
- A wider head keeps its rotary frequencies: :math:`\theta^{-2i/d}` is the frequency of pair
  :math:`ki` of a head of width :math:`kd`, with the same :math:`\theta`. Queries grow by
  :math:`\sqrt{k}`, which the softmax scale takes back.
- New heads and neurons are zero. Layers are spread evenly; a new one is a copy of the layer before
  it that adds nothing to the residual stream.
- New vocabulary entries repeat the embedding of a token that is never said, such as padding.
"""

import copy
from bisect import bisect_right
from dataclasses import dataclass

import torch
from torch import Tensor
from transformers import Qwen2Config, Qwen2ForCausalLM

from headroom.errors import ModelError
from headroom.variants import BASE, Variant


@dataclass(frozen=True)
class Shape:
    """The sizes of a Qwen2 with tied embeddings."""

    hidden: int
    intermediate: int
    layers: int
    query_heads: int
    kv_heads: int
    head_dim: int
    vocabulary: int

    @classmethod
    def of(cls, config: Qwen2Config) -> "Shape":
        """Return the shape of a model."""
        query_heads = config.num_attention_heads
        return cls(
            hidden=config.hidden_size,
            intermediate=config.intermediate_size,
            layers=config.num_hidden_layers,
            query_heads=query_heads,
            kv_heads=config.num_key_value_heads,
            head_dim=getattr(config, "head_dim", None) or config.hidden_size // query_heads,
            vocabulary=config.vocab_size,
        )

    def config(self, like: Qwen2Config) -> Qwen2Config:
        """Return the config of a model of this shape, otherwise like another."""
        config = copy.deepcopy(like)
        config.update(
            {
                "hidden_size": self.hidden,
                "intermediate_size": self.intermediate,
                "num_hidden_layers": self.layers,
                "layer_types": ["full_attention"] * self.layers,
                "num_attention_heads": self.query_heads,
                "num_key_value_heads": self.kv_heads,
                "head_dim": self.head_dim,
                "vocab_size": self.vocabulary,
            }
        )
        return config


@dataclass(frozen=True)
class Expansion:
    """Where the parts of a small model stand in a larger one."""

    small: Shape
    large: Shape

    def __post_init__(self) -> None:
        small, large = self.small, self.large
        for name in ("hidden", "head_dim"):
            if getattr(large, name) % getattr(small, name):
                raise ModelError(
                    f"{name} {getattr(large, name)} is no multiple of the model's "
                    f"{getattr(small, name)}, so it cannot be expanded; use --shape demo"
                )
        fits = (
            large.layers >= small.layers
            and large.kv_heads >= small.kv_heads
            and large.query_heads // large.kv_heads >= small.query_heads // small.kv_heads
            and large.intermediate >= small.intermediate
            and large.vocabulary >= small.vocabulary
        )
        if not fits:
            raise ModelError(f"{small} does not fit into {large}; use --shape demo")

    def layer(self, layer: int) -> int:
        """Return the place of a layer."""
        return layer * self.large.layers // self.small.layers

    def head(self, head: int) -> int:
        """Return the place of a query head: it reads the key/value head that it read before."""
        group = self.small.query_heads // self.small.kv_heads
        kv_head, place = divmod(head, group)
        return kv_head * (self.large.query_heads // self.large.kv_heads) + place

    def variant(self, variant: Variant) -> Variant:
        """Return the variant of the large model that prunes the same head."""
        if variant.layer is None or variant.head is None:
            return BASE
        return Variant(self.layer(variant.layer), self.head(variant.head))

    @torch.no_grad()
    def apply(self, model: Qwen2ForCausalLM, filler: int) -> Qwen2ForCausalLM:
        """Return a model of the large shape with the logits of a small one.

        Args:
            model: the small model, with tied embeddings.
            filler: id of a token that is never said; new vocabulary entries get its logit.
        """
        large = Qwen2ForCausalLM(self.large.config(model.config)).to(model.dtype)
        copies = self.large.hidden // self.small.hidden
        embedding = model.get_input_embeddings().weight
        extra = embedding[filler].expand(self.large.vocabulary - self.small.vocabulary, -1)
        large.get_input_embeddings().weight.copy_(torch.cat([embedding, extra]).tile(1, copies))
        large.model.norm.weight.copy_(model.model.norm.weight.tile(copies) / copies)
        places = [self.layer(layer) for layer in range(self.small.layers)]
        for index, layer in enumerate(large.model.layers):
            source = model.model.layers[bisect_right(places, index) - 1].state_dict()
            layer.load_state_dict({name: self._widen(name, w) for name, w in source.items()})
            if index not in places:
                layer.self_attn.o_proj.weight.zero_()
                layer.mlp.down_proj.weight.zero_()
        large.generation_config = copy.deepcopy(model.generation_config)
        return large.eval()

    def _widen(self, name: str, weight: Tensor) -> Tensor:
        """Return a layer's weight or bias, [output, input] or [output], in the large shape."""
        copies = self.large.hidden // self.small.hidden
        module = name.split(".")[-2]
        if module.endswith("norm"):
            return weight.tile(copies)
        places, size = self._units(module)
        if module in ("o_proj", "down_proj"):  # write to the residual stream
            wide = weight.new_zeros(len(weight), size)
            wide[:, places] = weight
            return wide.tile(copies, 1)
        wide = weight.new_zeros(size, *weight.shape[1:])
        wide[places] = weight
        if module == "q_proj":
            wide *= (self.large.head_dim / self.small.head_dim) ** 0.5
        return wide if weight.ndim == 1 else wide.tile(1, copies) / copies

    def _units(self, module: str) -> tuple[Tensor, int]:
        """Return the places of a module's inner units (not the residual ones) and their number."""
        small, large = self.small, self.large
        if module in ("gate_proj", "up_proj", "down_proj"):
            return torch.arange(small.intermediate), large.intermediate
        width = torch.arange(small.head_dim)
        if module in (
            "q_proj",
            "k_proj",
        ):  # pair i is (i, i + half), its frequency that of i / half
            pair = torch.arange(small.head_dim // 2) * (large.head_dim // small.head_dim)
            width = torch.cat([pair, pair + large.head_dim // 2])
        if module in ("q_proj", "o_proj"):
            heads, count = [self.head(h) for h in range(small.query_heads)], large.query_heads
        else:
            heads, count = list(range(small.kv_heads)), large.kv_heads
        starts = torch.tensor(heads) * large.head_dim
        return (starts[:, None] + width).flatten(), count * large.head_dim
