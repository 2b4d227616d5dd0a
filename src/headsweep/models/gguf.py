"""Models in GGUF, llama.cpp's format: one file holds weights, tokenizer and settings.

transformers reads such a file and dequantises it; the model is then kept as a folder in the hub's
format, which all other code uses (https://github.com/ggml-org/ggml/blob/master/docs/gguf.md).
"""

import contextlib
import math
import re
import tempfile
from collections import Counter
from collections.abc import Iterator, Mapping
from functools import cache, lru_cache
from pathlib import Path
from typing import Any, Literal, NamedTuple

from headsweep.errors import ModelError, cause_of, quoted
from headsweep.files.plain_files import digest_of, open_to_read
from headsweep.models.gguf_header import MAGIC, read_header

SUFFIX = ".gguf"

READING = 1
"""How files are read; a part of the keys of their models (`headsweep.store.keys`). It is raised
where a file comes out otherwise than before, so that what answered before is not found again."""

Kind = Literal["f32", "f16", "q8_0", "q4_k_m"]
"""Types of the matrices in a file that is written."""

_ARCHITECTURE = "general.architecture"
_BLOCK = re.compile(r"blk\.\d+\.")  # begins the names of a layer's tensors
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
    return digest_of(file)


def stated_geometry(file: Path) -> dict[str, int]:
    """Return ``layers``, and ``heads`` and ``kv_heads`` of each, or raise a ModelError."""
    fields = _read(file).fields
    architecture = fields[_ARCHITECTURE]

    def stated(key: str, default: Any = None) -> int:
        value = fields.get(f"{architecture}.{key}", default)
        if type(value) is not int:
            raise ModelError(
                f"{file} does not state one {key} for all layers ({quoted(value)}); use a "
                "transformer with the same number of heads in each layer"
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
    return _read(file).parameters


def tokenizer_fields(file: Path) -> dict[str, Any]:
    """Return the fields of a file's tokenizer by name, or raise a ModelError."""
    stated = _read(file).fields
    fields = {name: value for name, value in stated.items() if name.startswith("tokenizer.")}
    if not isinstance(fields.get("tokenizer.ggml.tokens"), list):
        raise ModelError(f"{file} has no tokenizer; name another file")
    return fields


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
    from transformers import AutoConfig, AutoModelForCausalLM, AutoTokenizer, GenerationConfig

    from headsweep.files.safe_files import atomic, remove_folder

    # Slow, and planning does not need them.
    from headsweep.models.gguf_stated import (
        complete,
        count_unread,
        rope_factors,
        split_as_stated,
    )

    content = _read(file)
    fields = content.fields
    facts = {
        "sha256": sha256(file),
        "quantisation": dict(content.types),
        "architecture": fields[_ARCHITECTURE],
        "name": str(fields.get("general.name", file.stem)),
    }
    ends = _end_token_ids(file, fields)
    # Alone in a folder: transformers would also read configs that lie beside the file.
    with tempfile.TemporaryDirectory() as alone, contextlib.ExitStack() as reading:
        link = Path(alone, "model.gguf")
        link.symlink_to(file.absolute())
        safe = {"local_files_only": True, "trust_remote_code": False}
        where = {"pretrained_model_name_or_path": alone, "gguf_file": str(link), **safe}
        try:
            reading.enter_context(_read_once_by_transformers())
            config = AutoConfig.from_pretrained(**where)
            complete(config, fields, rope_factors(file, content.shapes))
            with torch.device("meta"):
                model = AutoModelForCausalLM.from_config(config, dtype=getattr(torch, dtype))
            unread = count_unread(model, content.shapes)
            if unread < 0:
                raise ValueError(f"its fields describe {-unread:,} parameters more than it holds")
            if unread:
                raise ValueError(f"it holds {unread:,} parameters that its fields do not describe")
            loaded, info = AutoModelForCausalLM.from_pretrained(
                **where, config=config, dtype=model.dtype, output_loading_info=True
            )
            tokenizer = AutoTokenizer.from_pretrained(**where)
            split_as_stated(tokenizer, fields)
        except Exception as error:  # fields of any content raise errors of any type
            cause = cause_of(error, 200)
            raise ModelError(f"transformers cannot read {file} ({cause}); use another") from error
    if missing := sorted(info["missing_keys"]):
        raise ModelError(f"{file} lacks {len(missing)} tensors, such as {missing[0]}; use another")
    # A new model, as the config of the one loaded says that it is quantised, and cannot be saved.
    model.load_state_dict(loaded.state_dict(), assign=True)
    model.tie_weights()
    model.generation_config = GenerationConfig(
        eos_token_id=ends, pad_token_id=fields.get("tokenizer.ggml.padding_token_id", ends[0])
    )
    with atomic(folder, folder=True) as temporary:
        model.save_pretrained(temporary)
        tokenizer.save_pretrained(temporary)
        remove_folder(folder)
    return facts


@contextlib.contextmanager
def _read_once_by_transformers() -> Iterator[None]:
    """Let transformers, which reads a file anew for config, tokenizer and weights, read it once.

    Its reader's views are plain arrays: a vocabulary is some 500,000 of them, and making one of a
    memory map takes several times as long.
    """
    import gguf
    import numpy as np

    class Reader(gguf.GGUFReader):
        @property
        def data(self) -> Any:
            return self._plain

        @data.setter
        def data(self, mapped: np.memmap) -> None:
            self._plain = np.asarray(mapped)

    own = gguf.GGUFReader
    setattr(gguf, "GGUFReader", cache(Reader))  # noqa: B010 - mypy knows it as a type
    try:
        yield
    finally:
        setattr(gguf, "GGUFReader", own)  # noqa: B010


class _Content(NamedTuple):
    """What a file holds; callers share it."""

    fields: Mapping[str, Any]
    shapes: Mapping[str, tuple[int, ...]]  # of the tensors, by name
    types: Mapping[str, int]  # number of tensors by llama.cpp's name of their type
    parameters: int  # entries of all tensors


def _read(file: Path) -> _Content:
    """Return what a file holds, or raise a ModelError."""
    _check_magic(file)
    stat = file.stat()
    return _read_once(file, stat.st_size, stat.st_mtime_ns)


@lru_cache
def _read_once(file: Path, size: int, changed: int) -> _Content:
    """Read a file once while its size and time stay the same, as reading takes a while."""
    try:
        fields, tensors = read_header(file)
    except ImportError as error:
        raise ModelError(
            f"{file} is GGUF, and the package gguf is not installed; "
            "install it: pip install 'gguf>=0.17'"
        ) from error
    except (ValueError, OSError) as error:
        raise ModelError(f"{file} is truncated or damaged ({error}); fetch it again") from error
    if not tensors or not isinstance(fields.get(_ARCHITECTURE), str):
        raise ModelError(f"{file} holds no model; name another file")
    matches = [_BLOCK.match(name) for name in tensors]
    blocks = len({match[0] for match in matches if match})
    layers = fields.get(f"{fields[_ARCHITECTURE]}.block_count")
    if blocks and layers != blocks:  # transformers would make as many as stated
        raise ModelError(
            f"{file} states {quoted(layers)} layers (block_count), but holds the tensors of "
            f"{blocks}; fetch it again"
        )
    types = Counter(tensor.kind for tensor in tensors.values())
    parameters = sum(math.prod(tensor.shape) for tensor in tensors.values())
    shapes = {name: tensor.shape for name, tensor in tensors.items()}
    return _Content(fields, shapes, dict(sorted(types.items())), parameters)


def _check_magic(file: Path) -> None:
    if not file.is_file():
        raise ModelError(f"{file} is missing; put the GGUF file there, or correct `source`")
    with open_to_read(file) as stream:
        if stream.read(len(MAGIC)) != MAGIC:
            raise ModelError(f"{file} is not a GGUF file; fetch it again")


def _end_token_ids(file: Path, fields: Mapping[str, Any]) -> list[int]:
    tokens, types = (fields.get(f"tokenizer.ggml.{name}") for name in ("tokens", "token_type"))
    if not isinstance(tokens, list) or not isinstance(types, list) or len(tokens) != len(types):
        raise ModelError(f"{file} has no tokens with a type each; use another file")
    ends = [fields[key] for key in _END_KEYS if key in fields]
    ends += [
        number
        for number, (token, kind) in enumerate(zip(tokens, types, strict=True))
        if kind == _CONTROL and _ENDS.fullmatch(str(token))
    ]
    if not ends or not all(number in range(len(tokens)) for number in ends):
        raise ModelError(f"{file} names no token that ends an answer; use another file")
    return sorted(set(ends))
