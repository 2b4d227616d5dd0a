"""The models that sweeps are measured on, as folders in the hub's format."""

import json
import shutil
from pathlib import Path
from typing import Any, Literal, get_args

import torch
from transformers import LlamaConfig, LlamaForCausalLM, Qwen2Config, Qwen2ForCausalLM

from headroom.bench.expansion import Expansion, Shape
from headroom.errors import ModelError
from headroom.models.load import LoadedModel
from headroom.variants import Variant, heads

ShapeName = Literal["demo", "46m", "qwen2.5-1.5b"]
SHAPES: tuple[ShapeName, ...] = get_args(ShapeName)

MEDIUM = Shape(
    hidden=512, intermediate=1792, layers=12, query_heads=8, kv_heads=4, head_dim=64,
    vocabulary=8192,
)  # fmt: skip
"""46.7M parameters."""

QWEN_1_5B = Shape(
    hidden=1536, intermediate=8960, layers=28, query_heads=12, kv_heads=2, head_dim=128,
    vocabulary=151936,
)  # fmt: skip
"""Qwen2.5-Math-1.5B, 1.54B parameters."""


def make(
    name: ShapeName, loaded: LoadedModel, folder: Path, dtype: torch.dtype
) -> tuple[Path, list[Variant]]:
    """Make a model of a shape.

    Args:
        name: `demo` is the model as it is, `46m` embeds it into a larger one with the same answers,
            `qwen2.5-1.5b` has random weights.
        loaded: the model to start from.
        folder: to save it in.
        dtype: of the weights.

    Returns:
        Where the model is, and its heads that carry function, in order.

    Raises:
        ModelError: the model cannot be embedded.
    """
    every = heads_of(loaded)
    if name == "demo":
        return loaded.folder, every
    config = loaded.model.config
    if not isinstance(loaded.model, Qwen2ForCausalLM) or not config.tie_word_embeddings:
        raise ModelError(
            f"shape {name} needs a Qwen2 with tied embeddings, such as the demo's; "
            f"{type(loaded.model).__name__} is measured with --shape demo"
        )
    if name == "46m":
        expansion = Expansion(Shape.of(config), MEDIUM)
        model = expansion.apply(loaded.model, loaded.pad_token_id)
        variants = [expansion.variant(variant) for variant in every]
    else:
        model = _random(QWEN_1_5B, config, dtype)
        variants = heads(range(QWEN_1_5B.layers), range(QWEN_1_5B.query_heads))
    model.save_pretrained(folder)
    loaded.tokenizer.save_pretrained(folder)
    return folder, variants


def heads_of(loaded: LoadedModel) -> list[Variant]:
    """Return one variant for each head of a model."""
    return [
        Variant(layer.index, head)
        for layer in loaded.geometry.layers
        for head in range(layer.query_heads)
    ]


def _random(shape: Shape, like: Qwen2Config, dtype: torch.dtype) -> Qwen2ForCausalLM:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        default = torch.get_default_dtype()
        torch.set_default_dtype(dtype)
        try:
            return Qwen2ForCausalLM(shape.config(like)).eval()
        finally:
            torch.set_default_dtype(default)


def for_vllm(source: Path, folder: Path) -> Path:
    """Return a folder whose model vLLM computes as transformers does.

    vLLM takes hidden size over heads for the head width of a Qwen2. A model of another width is
    written as a Llama with biases, those of the output projection zero, which is the same function.
    """
    settings: dict[str, Any] = json.loads((source / "config.json").read_text(encoding="utf-8"))
    usual = settings["hidden_size"] // settings["num_attention_heads"]
    if settings["model_type"] != "qwen2" or settings.get("head_dim", usual) == usual:
        return source
    model = Qwen2ForCausalLM.from_pretrained(source)
    names = LlamaConfig().to_dict().keys() - {"model_type", "architectures", "attention_bias"}
    shared = {name: value for name, value in model.config.to_dict().items() if name in names}
    llama = LlamaForCausalLM(LlamaConfig(**shared, attention_bias=True))
    weights = model.state_dict()
    for name, parameter in llama.named_parameters():
        if name.endswith("o_proj.bias"):
            weights[name] = torch.zeros_like(parameter)
    llama.load_state_dict(weights)
    llama.generation_config = model.generation_config
    llama.save_pretrained(folder)
    for file in source.iterdir():
        if "token" in file.name or file.suffix == ".jinja":
            shutil.copy(file, folder)
    return folder
