"""The models that sweeps are measured on, as folders in the hub's format."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from pathlib import Path

import torch
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
        "qwen2.5-1.5b": (1536, 8960, 28, 12, 2, 128, 151936),
        "qwen2.5-7b": (3584, 18944, 28, 28, 4, 128, 151936),
        "qwen2.5-tiny": (64, 96, 3, 8, 4, 8, 512),
    }.items()
}
"""Qwen2.5's shapes of 1.54B and 7.6B; a rehearsal's."""


def make(
    name: str, loaded: LoadedModel, folder: Path, dtype: torch.dtype
) -> tuple[Path, list[Variant]]:
    """Make a model of a shape; return where it is, and its heads in order.

    `demo` is the loaded model as it is, `qwen2.5-1.5b` has random weights and is saved in the
    folder. Such a model never ends an answer, and the loss of a head changes nothing or everything.

    Raises:
        ModelError: the model is no Qwen2.
    """
    if name == "demo":
        layers = loaded.geometry.layers
        every = (
            Variant(layer.index, head) for layer in layers for head in range(layer.query_heads)
        )
        return loaded.folder, [*every]
    model = loaded.model
    if not isinstance(model, Qwen2ForCausalLM) or not model.config.tie_word_embeddings:
        raise ModelError(
            f"shape {name} needs a Qwen2 with tied embeddings, such as the demo's; "
            f"{type(model).__name__} is measured with --shape demo"
        )
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        made = Qwen2ForCausalLM._from_config(resized(model.config, SIZES[name]), dtype=dtype)
    made.save_pretrained(folder)
    loaded.tokenizer.save_pretrained(folder)
    return folder, heads(range(28), range(12))


def resized(config: Qwen2Config, sizes: Sizes) -> Qwen2Config:
    """Return a copy of a config with other sizes."""
    made = copy.deepcopy(config)
    made.update({**sizes, "layer_types": ["full_attention"] * sizes["num_hidden_layers"]})
    return made
