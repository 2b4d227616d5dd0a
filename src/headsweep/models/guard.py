"""What a model's folder may have a library do: load tensors, and nothing else.

A config can name Python code, in the folder or on the hub, and files elsewhere. No code of a model
is ever run, so a folder that needs it is refused before a library reads it. This module does not
import torch.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from headsweep.errors import ModelError, quoted
from headsweep.models.files import read_object

CONFIG, TOKENIZER_CONFIG = "config.json", "tokenizer_config.json"

_ADAPTER = "adapter_config.json"
_CODE = "auto_map"
_OTHER_WEIGHTS = "transformers_weights"
_IMPLEMENTATION = "_implementation"  # ends keys such as `attn_implementation`
_VERSIONS = ("configuration_files", "fast_tokenizer_files")
_ADVICE = "fetch it again, or name a folder in the hub's format"


def read_config(folder: Path) -> dict[str, Any]:
    """Return a model folder's config.json; raise a ModelError if it is damaged or missing."""
    config = read_object(folder / CONFIG, "model_type", _ADVICE)
    if not isinstance(config["model_type"], str):
        raise ModelError(f"{folder / CONFIG}: model_type is no text; {_ADVICE}")
    return config


def read_decoder_config(folder: Path) -> dict[str, Any]:
    """Return what config.json says of the decoder: a part of it in a multimodal model.

    Raises:
        ModelError: the file is damaged or missing.
    """
    config = read_config(folder)
    decoder = config.get("text_config")
    return decoder if isinstance(decoder, dict) else config


def check_code(folder: Path, *, ignore_unneeded: bool = True) -> None:
    """Refuse a folder whose configs name code, or files elsewhere, that loading would take in.

    Code that a config names is not needed if transformers has classes of its own for the type of
    model or tokenizer. It is then ignored or, without `ignore_unneeded`, refused, too.

    Raises:
        ModelError: a config is damaged, or names what is never loaded.
    """
    config = read_config(folder)
    if (folder / _ADAPTER).exists():
        raise ModelError(
            f"{folder / _ADAPTER} takes its weights from another model; merge the adapter into "
            f"that model, and name the result"
        )
    if _OTHER_WEIGHTS in config:
        raise ModelError(
            f"{folder / CONFIG} takes its weights from {quoted(config[_OTHER_WEIGHTS])} "
            f"({_OTHER_WEIGHTS}); name them model.safetensors, and remove that key"
        )
    _refuse_versions(folder / CONFIG, config)
    inner = [entry for value in config.values() for entry in _entries(value)]
    code_entries = [entry for entry in inner if entry[0] == _CODE]
    for key, value in (*config.items(), *inner):
        if key.endswith(_IMPLEMENTATION) and "/" in repr(value):  # a kernel on the hub
            code_entries.append((key, value))
    if config.get(_CODE) and not (ignore_unneeded and _has_classes(config["model_type"])):
        code_entries.append((_CODE, config[_CODE]))
    if code_entries:
        key, value = code_entries[0]
        raise _runs_code(folder / CONFIG, key, value)
    tokenizer = folder / TOKENIZER_CONFIG
    if tokenizer.is_file():
        settings = read_object(tokenizer, None, _ADVICE)
        _refuse_versions(tokenizer, settings)
        code = settings.get(_CODE)
        if code and not (ignore_unneeded and _has_tokenizer(settings.get("tokenizer_class"))):
            raise _runs_code(tokenizer, _CODE, code)


def _refuse_versions(file: Path, settings: dict[str, Any]) -> None:
    """Refuse a file that names others to be read in its place by some versions of transformers."""
    for key in _VERSIONS:
        if settings.get(key):
            raise ModelError(
                f"{file} names other files in place of the usual ones ({key}: "
                f"{quoted(settings[key])}); remove that key, or use another model"
            )


def _entries(value: Any) -> Iterator[tuple[str, Any]]:
    """Yield the keys and values of all objects in a JSON value."""
    left = [value]
    while left:
        entry = left.pop()
        if isinstance(entry, dict):
            yield from entry.items()
            left += entry.values()
        elif isinstance(entry, list):
            left += entry


def _has_classes(kind: str) -> bool:
    """Return whether transformers has classes of its own for a type of model."""
    from transformers import CONFIG_MAPPING  # slow, and few configs name code

    return kind in CONFIG_MAPPING


def _has_tokenizer(kind: object) -> bool:
    import transformers

    return isinstance(kind, str) and hasattr(transformers, kind)


def _runs_code(file: Path, key: str, value: object) -> ModelError:
    return ModelError(
        f"{file} names code ({key}: {quoted(value)}), which is never run; use a model that "
        f"transformers knows"
    )
