"""Embedders' folders, checked before sentence-transformers or transformers reads them.

A folder of sentence-transformers lists its modules, by Python class, in ``modules.json``. Only some
classes are allowed, with settings that name no code. This module does not import torch.
"""

import re
from pathlib import Path, PurePosixPath
from typing import Any

from headsweep.errors import ModelError, quoted
from headsweep.models.files import read_json, read_object
from headsweep.models.source import check_folder

MODULES = "modules.json"

_ADVICE = "name a model of sentence-transformers without code of its own"
_KIND = "config_sentence_transformers.json"
_TYPE = re.compile(
    r"sentence_transformers\.(?:models|(?:base|sentence_transformer)\.modules)(?:\.[a-z_]+)?"
    r"\.([A-Za-z]+)"
)
_ALLOWED = ("Transformer", "Pooling", "Normalize")
"""A model of transformers, and what has no weights and names no code."""

_METHOD = re.compile(r"forward|get_[a-z]+_features")
_SETTINGS = {
    "max_seq_length",
    "do_lower_case",
    "module_output_name",
    "processing_kwargs",
    "unpad_inputs",
    "query_length",
    "document_length",
    "query_expansion",
}
"""Settings of a Transformer module that say how texts are read; others go to functions of
transformers, which take code and files from anywhere."""


def check_embedder(folder: Path) -> None:
    """Raise a ModelError unless a folder's embedder is whole and loads without running its code."""
    if not (folder / MODULES).is_file():
        check_folder(folder)
        return
    kind = folder / _KIND
    if kind.is_file():
        model_type = read_object(kind, None, _ADVICE).get("model_type", "SentenceTransformer")
        if model_type != "SentenceTransformer":
            raise ModelError(
                f"{kind}: model_type {quoted(model_type)} gives no sentences' vectors; {_ADVICE}"
            )
    modules = read_json(folder / MODULES, _ADVICE)
    if not isinstance(modules, list) or not modules:
        raise ModelError(f"{folder / MODULES} lists no modules; {_ADVICE}")
    for module in modules:
        name, part = _described(folder, module)
        if name == "Transformer":
            _check_transformer(part)


def _described(folder: Path, module: Any) -> tuple[str, Path]:
    """Return a module's class, one of those allowed, and its folder."""
    file = folder / MODULES
    if not isinstance(module, dict):
        raise ModelError(f"{file} lists {quoted(module)}, which is no module; {_ADVICE}")
    kind, path = module.get("type"), module.get("path")
    match = _TYPE.fullmatch(kind) if isinstance(kind, str) else None
    if match is None or match[1] not in _ALLOWED:
        raise ModelError(
            f"{file} names the class {quoted(kind)}, whose code is never run; {_ADVICE} (its "
            f"modules may be {', '.join(_ALLOWED)})"
        )
    parts = PurePosixPath(path) if isinstance(path, str) else PurePosixPath("/")
    if parts.is_absolute() or ".." in parts.parts:
        raise ModelError(f"{file}: the path {quoted(path)} leads out of the folder; {_ADVICE}")
    return match[1], folder / parts


def _check_transformer(folder: Path) -> None:
    check_folder(folder, ignore_unneeded=False)
    for file in sorted(folder.glob("sentence_*_config.json")):
        for key, value in read_object(file, None, _ADVICE).items():
            if not (_is_harmless(key, value) or value in ({}, None)):
                raise ModelError(
                    f"{file}: {quoted(key)} may not be {quoted(value)}, as it can name code or "
                    f"other files; {_ADVICE}"
                )


def _is_harmless(key: str, value: Any) -> bool:
    if key == "transformer_task":
        return bool(value == "feature-extraction")
    if key == "modality_config":
        return isinstance(value, dict) and all(
            isinstance(method, dict) and _METHOD.fullmatch(str(method.get("method")))
            for method in value.values()
        )
    return key in _SETTINGS
