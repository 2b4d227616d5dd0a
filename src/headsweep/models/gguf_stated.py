"""What a GGUF file states and transformers does not read: read here, or refused.

What llama.cpp makes of it stands in its `llama-model.cpp` and `llama-vocab.cpp`.
"""

import copy
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch
from tokenizers import pre_tokenizers
from transformers import PretrainedConfig, PreTrainedTokenizerBase
from transformers.integrations.gguf.gguf_tokenizer_mapping import GGUF_PRE_TOKENIZER_SPLITS
from transformers.modeling_rope_utils import ROPE_INIT_FUNCTIONS

ROPE_FACTORS = "rope_freqs.weight"
"""The tensor of what llama.cpp divides each rotary frequency by."""

_SINGLE_DIGITS = ("smollm", "starcoder", "refact", "command-r")
"""Names of splits into single digits, then GPT-2's words."""
_WORDS = ("gpt-2", "phi-2")
_LLAMA3 = {"low_freq_factor": 1.0, "high_freq_factor": 4.0}  # of every Llama 3
_LENGTHS = [2**power for power in range(5, 18)]  # that such a model was trained on before


def rope_factors(file: Path, shapes: Mapping[str, tuple[int, ...]]) -> np.ndarray:
    """Return what a file divides each rotary frequency by [head_dim / 2]; empty if nothing."""
    from gguf import GGUFReader  # an optional package

    if ROPE_FACTORS not in shapes:
        return np.empty(0)
    return next(each.data for each in GGUFReader(file).tensors if each.name == ROPE_FACTORS)


def complete(config: PretrainedConfig, fields: Mapping[str, Any], factors: np.ndarray) -> None:
    """Give a config the width of heads and the rotary frequencies that a file states.

    Args:
        config: as transformers reads it from the file.
        fields: the file's, by name.
        factors: what the file divides each frequency by [head_dim / 2]; empty if it says nothing.

    Raises:
        ValueError: no config has such frequencies.
    """
    width = fields.get(f"{fields['general.architecture']}.attention.key_length")
    if width is not None and hasattr(config, "head_dim"):
        config.head_dim = width
    rope = getattr(config, "rope_parameters", None)
    if not rope or rope.get("rope_type", "default") != "default":
        return  # none, or transformers has read them
    start = f"{fields['general.architecture']}.rope."
    scaling = fields.get(f"{start}scaling.type", "linear")
    stated = fields.get(f"{start}scaling.factor", fields.get(f"{start}scale_linear", 0))
    factor = 1.0 if scaling == "none" else float(stated) or 1.0
    if scaling not in ("none", "linear"):
        raise ValueError(f"{start}scaling.type {scaling!r} is not read; none and linear are")
    if len(factors) and factor != 1:
        raise ValueError(f"{start}scaling.factor and {ROPE_FACTORS} are both there")
    if len(factors) and np.allclose(factors, factors[0], rtol=1e-5):
        factor = float(factors[0])
    elif len(factors):
        config.rope_parameters = _llama3(config, factors)
        return
    if factor != 1:
        config.rope_parameters = {**rope, "rope_type": "linear", "factor": factor}


def _llama3(config: PretrainedConfig, factors: np.ndarray) -> dict[str, Any]:
    """Return Llama 3's settings that divide the frequencies by these factors."""
    rope = {**config.rope_parameters, **_LLAMA3, "rope_type": "llama3"}
    plain = _frequencies(config, {**rope, "rope_type": "linear", "factor": 1.0})
    for length in _LENGTHS:
        tried = {
            **rope,
            "factor": float(factors.max()),
            "original_max_position_embeddings": length,
        }
        made = plain / _frequencies(config, tried)
        if made.shape == factors.shape and np.allclose(made, factors, rtol=1e-4):
            return tried
    raise ValueError(f"{ROPE_FACTORS} are not the frequencies of a Llama 3")


def _frequencies(config: PretrainedConfig, rope: Mapping[str, Any]) -> np.ndarray:
    """Return the rotary frequencies [head_dim / 2] of a config with these settings."""
    changed = copy.deepcopy(config)
    changed.rope_parameters = dict(rope)
    found, _ = ROPE_INIT_FUNCTIONS[rope["rope_type"]](changed, torch.device("cpu"))
    frequencies: np.ndarray = found.double().numpy()
    return frequencies


def split_as_stated(tokenizer: PreTrainedTokenizerBase, fields: Mapping[str, Any]) -> None:
    """Have a byte-level tokenizer of transformers split texts as its file states.

    Raises:
        ValueError: the split is not known.
    """
    split = fields.get("tokenizer.ggml.pre")
    if fields.get("tokenizer.ggml.model") != "gpt2" or split in GGUF_PRE_TOKENIZER_SPLITS:
        return
    words = pre_tokenizers.ByteLevel(add_prefix_space=False)
    if split in _SINGLE_DIGITS:
        digits = pre_tokenizers.Digits(individual_digits=True)
        tokenizer.backend_tokenizer.pre_tokenizer = pre_tokenizers.Sequence([digits, words])
    elif split in _WORDS:
        tokenizer.backend_tokenizer.pre_tokenizer = words
    else:
        known = sorted({*_SINGLE_DIGITS, *_WORDS, *GGUF_PRE_TOKENIZER_SPLITS})
        raise ValueError(f"tokenizer.ggml.pre is {split!r}; read are {', '.join(known)}")


def count_unread(model: torch.nn.Module, shapes: Mapping[str, tuple[int, ...]]) -> int:
    """Return how many numbers of a file's tensors a model made from it has no place for."""
    others = {ROPE_FACTORS}
    config: Any = model.config
    if config.get_text_config().tie_word_embeddings:
        others.add("output.weight")  # the embeddings again
    stored = sum(math.prod(shape) for name, shape in shapes.items() if name not in others)
    return stored - sum(parameter.numel() for parameter in model.parameters())
