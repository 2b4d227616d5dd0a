"""Embedders' folders, checked before sentence-transformers or transformers reads them.

A folder of sentence-transformers lists its modules, by Python class, in ``modules.json``. Only some
classes are allowed, with settings that name no code. This module does not import torch.
"""

import re
from pathlib import Path, PurePosixPath
from typing import Any

from headsweep.errors import ModelError, quoted
from headsweep.models.files import read_header, read_json, read_object
from headsweep.models.guard import CONFIG
from headsweep.models.source import check_folder

MODULES = "modules.json"

_ADVICE = "name a model of sentence-transformers without code of its own"
_KIND = "config_sentence_transformers.json"
_TYPE = re.compile(
    r"sentence_transformers\.(?:models|(?:base|sentence_transformer)\.modules)(?:\.[a-z_]+)?"
    r"\.([A-Za-z]+)"
)
_WITH_WEIGHTS = ("Dense", "LayerNorm", "StaticEmbedding", "WeightedLayerPooling")
_WITHOUT = ("Normalize", "Pooling")
_ALLOWED = ("Transformer", *_WITHOUT, *_WITH_WEIGHTS)
"""The modules that read JSON and safetensors, and nothing else."""

_ACTIVATION = re.compile(r"torch\.nn\.modules\.(activation|linear)\.[A-Za-z0-9]+")
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
        elif name in _WITH_WEIGHTS:
            _check_weights(part)


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


def _check_weights(folder: Path) -> None:
    """Check a module that is a few layers: its activation and its weights."""
    weights = folder / "model.safetensors"
    if not weights.is_file():
        raise ModelError(
            f"{folder} has no {weights.name}; only safetensors are read: save the embedder again "
            f"with a present sentence-transformers"
        )
    read_header(weights)
    config = folder / CONFIG
    if not config.is_file():
        return
    activation = read_object(config, None, _ADVICE).get("activation_function")
    if activation and not (isinstance(activation, str) and _ACTIVATION.fullmatch(activation)):
        raise ModelError(
            f"{config} names the class {quoted(activation)}, whose code is never run; {_ADVICE}"
        )
