"""The models that sweeps are measured on, as folders in the hub's format."""

import copy
import json
import shutil
from pathlib import Path
from typing import Any, Literal

import torch
from transformers import AutoModelForCausalLM, LlamaConfig, LlamaForCausalLM, Qwen2ForCausalLM

from headroom.errors import ModelError
from headroom.models.load import LoadedModel
from headroom.variants import Variant, heads

ShapeName = Literal["demo", "qwen2.5-1.5b"]

_QWEN_1_5B = {
    "hidden_size": 1536,
    "intermediate_size": 8960,
    "num_hidden_layers": 28,
    "layer_types": ["full_attention"] * 28,
    "num_attention_heads": 12,
    "num_key_value_heads": 2,
    "head_dim": 128,
    "vocab_size": 151936,
}
"""Qwen2.5-Math-1.5B, 1.54B parameters."""


def make(
    name: ShapeName, loaded: LoadedModel, folder: Path, dtype: torch.dtype
) -> tuple[Path, list[Variant]]:
    """Make a model of a shape.

    Args:
        name: `demo` is the model as it is; `qwen2.5-1.5b` has random weights, and the model's
            tokenizer.
        loaded: the model to start from.
        folder: to save it in.
        dtype: of the weights.

    Returns:
        Where the model is, and its heads in order.

    Raises:
        ModelError: the model is no Qwen2, and another shape is asked for.
    """
    if name == "demo":
        layers = loaded.geometry.layers
        return loaded.folder, [
            Variant(layer.index, head) for layer in layers for head in range(layer.query_heads)
        ]
    if not isinstance(loaded.model, Qwen2ForCausalLM):
        raise ModelError(
            f"shape {name} needs a Qwen2 such as the demo's; {type(loaded.model).__name__} is "
            f"measured with --shape demo"
        )
    config = copy.deepcopy(loaded.model.config)
    config.update(_QWEN_1_5B)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        model = AutoModelForCausalLM.from_config(config, dtype=dtype).eval()
    model.save_pretrained(folder)
    loaded.tokenizer.save_pretrained(folder)
    return folder, heads(range(config.num_hidden_layers), range(config.num_attention_heads))


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
