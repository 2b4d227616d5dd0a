"""Models in GGUF, llama.cpp's format: one file holds weights, tokenizer and settings.

transformers reads such a file and dequantises it; the model is then kept as a folder in the hub's
format, which all other code uses (https://github.com/ggml-org/ggml/blob/master/docs/gguf.md).
"""

import hashlib
import re
import shutil
from functools import lru_cache
from pathlib import Path
from typing import Any

from headroom.errors import ModelError

SUFFIX = ".gguf"

_MAGIC = b"GGUF"
_END_KEYS = tuple(f"tokenizer.ggml.{kind}_token_id" for kind in ("eos", "eot", "eom"))
_ENDS = re.compile(
    r"<\|(im_end|endoftext|eot_id|eom_id|end|end_of_text|return|call)\|>"
    r"|<(end_of_turn|EOT|eos)>|</s>|<｜end▁of▁sentence｜>"
)
"""Control tokens that end an answer, in addition to those that the file names; from llama.cpp's
`llama_vocab`."""
_CONTROL = 3  # value of `tokenizer.ggml.token_type` for control tokens


def sha256(file: Path) -> str:
    """Return the sha256 of a GGUF file, 64 hex digits, or raise a ModelError."""
    _check_magic(file)
    with file.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def stated_geometry(file: Path) -> dict[str, int]:
    """Return ``layers``, and ``heads`` and ``kv_heads`` of each, or raise a ModelError."""
    fields = _read(file)
    architecture = fields["general.architecture"]

    def stated(key: str, default: Any = None) -> int:
        value = fields.get(f"{architecture}.{key}", default)
        if not isinstance(value, int):
            raise ModelError(
                f"{file} does not state one {key} for all layers ({value!r}); use a transformer "
                "with the same number of heads in each layer"
            )
        return value

    heads = stated("attention.head_count")
    return {
        "layers": stated("block_count"),
        "heads": heads,
        "kv_heads": stated("attention.head_count_kv", heads),
    }


def count_parameters(file: Path) -> int:
    """Return the number of parameters in a file's tensors, or raise a ModelError."""
    return int(_read(file)["parameters"])


def convert(file: Path, folder: Path, dtype: str) -> dict[str, Any]:
    """Dequantise a file into a folder in the hub's format, which appears or is replaced as a whole.

    Returns:
        Facts for the record: ``sha256``, ``quantisation`` (number of tensors by llama.cpp's type),
        ``architecture`` and ``name``.

    Raises:
        ModelError: the file is missing, truncated, damaged, or of an architecture that
            transformers does not read.
    """
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer, GenerationConfig

    fields = _read(file)
    facts = {
        "sha256": sha256(file),
        "quantisation": fields["types"],
        "architecture": fields["general.architecture"],
        "name": str(fields.get("general.name", file.stem)),
    }
    temporary = folder.with_name(f".{folder.name}.tmp")
    shutil.rmtree(temporary, ignore_errors=True)
    where = {"pretrained_model_name_or_path": str(file.parent), "gguf_file": file.name}
    try:
        loaded = AutoModelForCausalLM.from_pretrained(**where, dtype=getattr(torch, dtype))
        tokenizer = AutoTokenizer.from_pretrained(**where)
    except (ValueError, KeyError, TypeError, RuntimeError) as error:
        cause = " ".join(str(error).split())
        raise ModelError(f"transformers cannot read {file}: {cause}") from error
    # The config still says that the model is quantised, which would keep it from being saved.
    del loaded.config.quantization_config
    with torch.device("meta"):
        model = AutoModelForCausalLM.from_config(loaded.config, dtype=getattr(torch, dtype))
    model.load_state_dict(loaded.state_dict(), assign=True)
    model.tie_weights()
    ends = _end_token_ids(fields)
    model.generation_config = GenerationConfig(
        eos_token_id=ends, pad_token_id=fields.get("tokenizer.ggml.padding_token_id", ends[0])
    )
    model.save_pretrained(temporary)
    tokenizer.save_pretrained(temporary)
    shutil.rmtree(folder, ignore_errors=True)
    temporary.replace(folder)
    return facts


def _read(file: Path) -> dict[str, Any]:
    """Return a file's fields, with its tensors' ``types`` and ``parameters`` added."""
    _check_magic(file)
    stat = file.stat()
    return _read_once(file, stat.st_size, stat.st_mtime_ns)


@lru_cache
def _read_once(file: Path, size: int, changed: int) -> dict[str, Any]:
    """Read a file once while its size and time stay the same, as reading takes seconds."""
    try:
        from gguf import GGUFReader
    except ImportError as error:
        raise ModelError(
            f"{file} is GGUF, and the package gguf is not installed; "
            "install it: pip install 'headroom[gguf]'"
        ) from error
    try:
        reader = GGUFReader(file)
        fields = {name: field.contents() for name, field in reader.fields.items()}
        tensors = reader.tensors
    except (ValueError, IndexError, KeyError, OSError) as error:
        raise ModelError(f"{file} is truncated or damaged ({error}); fetch it again") from error
    end = max((tensor.data_offset + tensor.n_bytes for tensor in tensors), default=0)
    if not tensors or size < end:
        raise ModelError(f"{file} has {size} bytes, not {end}: it is truncated; fetch it again")
    names = [tensor.tensor_type.name for tensor in tensors]
    fields["types"] = {name: names.count(name) for name in sorted(set(names))}
    fields["parameters"] = sum(int(tensor.n_elements) for tensor in tensors)
    return fields


def _check_magic(file: Path) -> None:
    if not file.is_file():
        raise ModelError(f"{file} is missing; put the GGUF file there, or correct `source`")
    with file.open("rb") as stream:
        if stream.read(len(_MAGIC)) != _MAGIC:
            raise ModelError(f"{file} is not a GGUF file; fetch it again")


def _end_token_ids(fields: dict[str, Any]) -> list[int]:
    tokens, types = (fields[f"tokenizer.ggml.{name}"] for name in ("tokens", "token_type"))
    found = {fields[key] for key in _END_KEYS if key in fields}
    found |= {
        number
        for number, (token, kind) in enumerate(zip(tokens, types, strict=True))
        if kind == _CONTROL and _ENDS.fullmatch(token)
    }
    if not found:
        raise ModelError("the GGUF file names no token that ends an answer; use another file")
    return sorted(found)
