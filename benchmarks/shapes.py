r"""The models that sweeps are measured on, as folders in the hub's format.

Random weights make a poor benchmark: such a model never ends an answer, and pruning a head of it
changes either nothing or everything. So a small trained Qwen2 is embedded into a larger shape that
computes the same function, and its answers diverge where the small model's do. In the spirit of
Net2Net (Chen et al., arXiv 1511.05641):

- Residual channels are tiled: :math:`x' = (x, \dots, x)` has the mean square of :math:`x`, so
  RMSNorm commutes with it. What reads the residual stream is divided by the number of copies, what
  writes to it is repeated. With tied embeddings the final norm carries the division.
- A wider head keeps its rotary frequencies: :math:`\theta^{-2i/d}` is the frequency of pair
  :math:`ki` of a head of width :math:`kd`, with the same :math:`\theta`. Queries grow by
  :math:`\sqrt{k}`, which the softmax scale takes back.
- New heads and neurons are zero. Layers are spread evenly; a new one is a copy of the layer before
  it that adds nothing to the residual stream.
- New vocabulary entries repeat the embedding of a token that is never generated, such as padding.
"""

from __future__ import annotations

import copy
from bisect import bisect_right
from collections.abc import Mapping
from pathlib import Path

import torch
from torch import Tensor
from transformers import Qwen2Config, Qwen2ForCausalLM

from headsweep.errors import ModelError
from headsweep.models.loaded import LoadedModel
from headsweep.variants import Variant, heads

Sizes = Mapping[str, int]  # the sizes of a Qwen2 with tied embeddings, by their names in its config

_NAMES = (
    "hidden_size",
    "intermediate_size",
    "num_hidden_layers",
    "num_attention_heads",
    "num_key_value_heads",
    "head_dim",
    "vocab_size",
)
SIZES: dict[str, Sizes] = {
    name: dict(zip(_NAMES, sizes, strict=True))
    for name, sizes in {
        "46m": (512, 1792, 12, 8, 4, 64, 8192),
        "qwen2.5-1.5b": (1536, 8960, 28, 12, 2, 128, 151936),
        "qwen2.5-7b": (3584, 18944, 28, 28, 4, 128, 151936),
        "qwen2.5-tiny": (64, 96, 3, 8, 4, 8, 512),
    }.items()
}
"""46.7M parameters; Qwen2.5's shapes of 1.54B and 7.6B; a rehearsal's."""


def make(
    name: str, loaded: LoadedModel, folder: Path, dtype: torch.dtype
) -> tuple[Path, list[Variant]]:
    """Make a model of a shape; return where it is, and its heads that carry function, in order.

    `demo` is the loaded model as it is, `46m` embeds it into a larger one with the same answers,
    `qwen2.5-1.5b` has random weights. The last two are saved in the folder.

    Raises:
        ModelError: the model cannot be embedded.
    """
    layers = loaded.geometry.layers
    every = [Variant(layer.index, head) for layer in layers for head in range(layer.query_heads)]
    if name == "demo":
        return loaded.folder, every
    model = loaded.model
    if not isinstance(model, Qwen2ForCausalLM) or not model.config.tie_word_embeddings:
        raise ModelError(
            f"shape {name} needs a Qwen2 with tied embeddings, such as the demo's; "
            f"{type(model).__name__} is measured with --shape demo"
        )
    if name == "46m":
        expansion = Expansion(sizes(model.config), SIZES[name])
        made = expansion.apply(model, loaded.pad_token_id)
        variants = [expansion.variant(variant) for variant in every]
    else:
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(0)
            made = Qwen2ForCausalLM._from_config(resized(model.config, SIZES[name]), dtype=dtype)
        variants = heads(range(28), range(12))
    made.save_pretrained(folder)
    loaded.tokenizer.save_pretrained(folder)
    return folder, variants


def sizes(config: Qwen2Config) -> dict[str, int]:
    """Return the sizes that a config states."""
    usual = config.hidden_size // config.num_attention_heads
    return {name: getattr(config, name, None) or usual for name in _NAMES}


def resized(config: Qwen2Config, sizes: Sizes) -> Qwen2Config:
    """Return a copy of a config with other sizes."""
    made = copy.deepcopy(config)
    made.update({**sizes, "layer_types": ["full_attention"] * sizes["num_hidden_layers"]})
    return made


class Expansion:
    """The places of a small model's parts in a larger one, or a ModelError if it does not fit."""

    def __init__(self, small: Sizes, large: Sizes) -> None:
        for name in ("hidden_size", "head_dim"):
            if large[name] % small[name]:
                raise ModelError(
                    f"{name} {large[name]} is no multiple of the model's {small[name]}, so it "
                    f"cannot be expanded; use --shape demo"
                )
        self._small, self._large = small, large
        self._group, self._large_group = (
            shape["num_attention_heads"] // shape["num_key_value_heads"] for shape in (small, large)
        )
        larger = all(large[name] >= small[name] for name in _NAMES if name != "num_attention_heads")
        if not larger or self._large_group < self._group:
            raise ModelError(f"{small} does not fit into {large}; use --shape demo")
        self._copies = large["hidden_size"] // small["hidden_size"]

    def layer(self, layer: int) -> int:
        """Return the place of a layer."""
        return layer * self._large["num_hidden_layers"] // self._small["num_hidden_layers"]

    def head(self, head: int) -> int:
        """Return the place of a query head: it reads the key/value head that it read before."""
        kv_head, place = divmod(head, self._group)
        return kv_head * self._large_group + place

    def variant(self, variant: Variant) -> Variant:
        """Return the variant of the large model that prunes the same head."""
        if variant.layer is None or variant.head is None:
            return variant
        return Variant(self.layer(variant.layer), self.head(variant.head))

    @torch.no_grad()
    def apply(self, model: Qwen2ForCausalLM, filler: int) -> Qwen2ForCausalLM:
        """Return a model of the large shape with the logits of a small one with tied embeddings.

        New vocabulary entries get the logit of `filler`, a token that is never generated.
        """
        large = Qwen2ForCausalLM(resized(model.config, self._large)).to(model.dtype)
        embedding = model.get_input_embeddings().weight
        extra = embedding[filler].expand(self._large["vocab_size"] - len(embedding), -1)
        rows = torch.cat([embedding, extra]).tile(1, self._copies)
        large.get_input_embeddings().weight.copy_(rows)
        large.model.norm.weight.copy_(model.model.norm.weight.tile(self._copies) / self._copies)
        places = [self.layer(layer) for layer in range(self._small["num_hidden_layers"])]
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
        module = name.split(".")[-2]
        if module.endswith("norm"):
            return weight.tile(self._copies)
        places, size = self._units(module)
        if module in ("o_proj", "down_proj"):  # write to the residual stream
            wide = weight.new_zeros(len(weight), size)
            wide[:, places] = weight
            return wide.tile(self._copies, 1)
        wide = weight.new_zeros(size, *weight.shape[1:])
        wide[places] = weight
        if module == "q_proj":
            wide *= (self._large["head_dim"] / self._small["head_dim"]) ** 0.5
        return wide if weight.ndim == 1 else wide.tile(1, self._copies) / self._copies

    def _units(self, module: str) -> tuple[Tensor, int]:
        """Return the places of a module's inner units (not the residual ones) and their number."""
        small, large = self._small, self._large
        if module in ("gate_proj", "up_proj", "down_proj"):
            return torch.arange(small["intermediate_size"]), large["intermediate_size"]
        before, after = small["head_dim"], large["head_dim"]
        width = torch.arange(before)
        if module in ("q_proj", "k_proj"):
            # Pair i is (i, i + half), its frequency that of i / half.
            pair = torch.arange(before // 2) * (after // before)
            width = torch.cat([pair, pair + after // 2])
        if module in ("q_proj", "o_proj"):
            count = "num_attention_heads"
            starts = torch.tensor([self.head(head) for head in range(small[count])]) * after
        else:
            count = "num_key_value_heads"
            starts = torch.arange(small[count]) * after
        return (starts[:, None] + width).flatten(), large[count] * after
