"""The tokenizer of a decoder in GGUF: byte-level BPE, or copied from another GGUF file.

llama.cpp knows only by name how a text is split before its pairs are merged; `_SPLITS` has these
names, by the splitting rules that tokenizers state.
"""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from transformers import PreTrainedTokenizerBase

from headsweep.errors import ModelError
from headsweep.models import gguf

_WORDS, _DIGITS = "words", "digits"
_MODERN = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|%s| ?[^\s\p{L}\p{N}]+[\r\n]*"
    r"|\s*[\r\n]+|\s+(?!\S)|\s+"
)
_SPLITS = {
    (_WORDS,): "gpt-2",
    (_DIGITS, _WORDS): "smollm",
    (_MODERN % r"\p{N}",): "qwen2",
    (_MODERN % r"\p{N}{1,3}",): "llama-bpe",
}
_NORMAL, _CONTROL, _USER, _UNUSED = 1, 3, 4, 5  # values of `tokenizer.ggml.token_type`
_PREFIX = "tokenizer."
_OF_CODE = {"type": "of Python code"}


def vocabulary(
    tokenizer: PreTrainedTokenizerBase, size: int, folder: Path, taken_from: Path | None
) -> dict[str, Any]:
    """Return the fields of a tokenizer of `size` tokens by name, or those of another GGUF file.

    Raises:
        ModelError: llama.cpp does not know the tokenizer, or the other file's is of another size.
    """
    if taken_from is not None:
        fields = gguf.tokenizer_fields(taken_from)
        count = len(fields["tokenizer.ggml.tokens"])
        if count != size:
            raise ModelError(
                f"{taken_from} has {count} tokens, but {folder} has {size}; name another"
            )
        return fields
    backend = getattr(tokenizer, "backend_tokenizer", None)
    state: dict[str, Any] = json.loads(backend.to_str()) if backend is not None else {}
    model = state.get("model", _OF_CODE)
    split = _SPLITS.get(_splitting(state.get("pre_tokenizer")))
    if model["type"] != "BPE" or split is None:
        raise ModelError(
            f"{folder} has a tokenizer that is not written as GGUF ({_kind(state)}); name a GGUF "
            f"file of the unpruned model, whose tokenizer is taken: --gguf-tokenizer FILE"
        )
    texts = {number: text for text, number in tokenizer.get_vocab().items()}
    added = {
        token["id"]: _CONTROL if token["special"] else _USER for token in state["added_tokens"]
    }
    kinds = [added.get(number, _NORMAL if number in texts else _UNUSED) for number in range(size)]
    entries: dict[str, Any] = {
        "model": "gpt2",
        "pre": split,
        "tokens": [texts.get(number, f"[PAD{number}]") for number in range(size)],
        "token_type": kinds,
        "merges": [pair if isinstance(pair, str) else " ".join(pair) for pair in model["merges"]],
        "add_bos_token": tokenizer("a").input_ids[:1] == [tokenizer.bos_token_id],
    }
    special_tokens = {
        "bos_token_id": tokenizer.bos_token_id,
        "eos_token_id": tokenizer.eos_token_id,
        "unknown_token_id": tokenizer.unk_token_id,
        "padding_token_id": tokenizer.pad_token_id,
    }
    entries |= {name: number for name, number in special_tokens.items() if number is not None}
    metadata = {f"{_PREFIX}ggml.{name}": value for name, value in entries.items()}
    if tokenizer.chat_template is not None:
        metadata[f"{_PREFIX}chat_template"] = tokenizer.chat_template
    return metadata


def _kind(state: Mapping[str, Any]) -> str:
    """Return what a tokenizer is, in a few words; of BPE, how it splits texts decides."""
    model = state.get("model", _OF_CODE)
    if model["type"] != "BPE":
        return str(model["type"])
    steps = [step["type"] for step in _steps(state.get("pre_tokenizer"))]
    return f"BPE with pre-tokenizer {', '.join(steps)}" if steps else "BPE without pre-tokenizer"


def _steps(stated: Any) -> list[Any]:
    """Return the steps of a pre-tokenizer as a tokenizer states it."""
    steps: list[Any] = (stated or {}).get("pretokenizers", [stated] if stated else [])
    return steps


def _splitting(stated: Any) -> tuple[str, ...]:
    """Return how a tokenizer splits texts: regular expressions, `_DIGITS` and `_WORDS`."""
    splits = []
    for step in _steps(stated):
        if step["type"] == "Split":
            splits.append(step["pattern"].get("Regex", "a text"))
        elif step["type"] == "Digits":
            splits.append(_DIGITS if step["individual_digits"] else "numbers")
        elif step["type"] != "ByteLevel" or step["add_prefix_space"]:
            splits.append(step["type"])
        elif step["use_regex"]:
            splits.append(_WORDS)
    return tuple(splits)


def add_vocabulary(writer: Any, fields: Mapping[str, Any]) -> None:
    """Write a tokenizer's fields; `writer` is the GGUFWriter of the package gguf."""
    from gguf import GGUFValueType

    for name, value in fields.items():
        if isinstance(value, list):
            writer.add_array(name, value)
        elif isinstance(value, bool):
            writer.add_bool(name, value)
        elif isinstance(value, str):
            writer.add_string(name, value)
        else:
            kind = GGUFValueType.FLOAT32 if isinstance(value, float) else GGUFValueType.UINT32
            writer.add_key_value(name, value, kind)
