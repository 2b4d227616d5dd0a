"""Where a model's files come from: the hub or a local folder, checked before anything is loaded.

This module does not import torch, so that planning and checking a config are fast.
"""

import hashlib
import math
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from headsweep.config import Model
from headsweep.errors import ConfigError, ModelError, quoted
from headsweep.files import record
from headsweep.files.plain_files import expanded, open_to_read, read_plain
from headsweep.models import gguf
from headsweep.models.files import read_header, read_json, read_object
from headsweep.models.guard import CONFIG, check_code, read_config, read_decoder_config

BUILTIN = {"builtin:reasoner": Path(__file__).with_name("reasoner")}
"""Folders of the models that ship with the package, by source."""

SHA256 = re.compile(r"[0-9a-f]{64}")  # a file's checksum; a commit hash, in contrast, has 40 digits

_GENERATION = "generation_config.json"
_WEIGHTS = "model.safetensors"
_INDEX = "model.safetensors.index.json"
_SUFFIX = ".safetensors"
_TOKENIZERS = (
    ("tokenizer.json",),
    ("tokenizer.model",),
    ("tekken.json",),
    ("spiece.model",),
    ("sentencepiece.bpe.model",),
    ("vocab.json", "merges.txt"),
    ("vocab.txt",),
)
"""Each of these sets of files is a complete tokenizer."""
_TOKENIZER_FILES = {name for names in _TOKENIZERS for name in names} | {
    "tokenizer_config.json",
    "special_tokens_map.json",
    "added_tokens.json",
    "chat_template.jinja",
    # Vocabularies of single families.
    "bpe.codes",
    "byte_maps.json",
    "chat_template.json",
    "dict.txt",
    "emoji.json",
    "entity_vocab.json",
    "normalizer.json",
    "prophetnet.tokenizer",
    "sentencepiece.model",
    "source.spm",
    "spm.model",
    "spm_char.model",
    "target.spm",
    "target_vocab.json",
    "tiktoken.model",
    "vocab-src.json",
    "vocab-tgt.json",
    "word_pronunciation.json",
    "word_shape.json",
}
_TOKENIZER_PATTERNS = ("tokenizer.model.*", "additional_chat_templates/*.jinja")
"""These and `_TOKENIZER_FILES` are all that transformers reads, and those are in a fingerprint."""
_PICKLES = ("*.bin", "*.pt", "*.pth", "*.ckpt", "*.h5", "*.msgpack")
_DOWNLOADED = ["*.json", "*.safetensors", "*.model", "*.txt", "*.jinja"]
_NOT_DOWNLOADED = ["*/*", "consolidated*"]  # other formats' copies of the same weights

_SLICES = 64
_SLICE_BYTES = 1 << 16
"""A fingerprint reads 64 evenly spaced slices of 64 KiB of a large weight file."""

_MOST_LAYERS = 10_000  # that heads are counted in

_NAMES = {
    "layers": ("num_hidden_layers", "n_layer", "n_layers", "num_layers"),
    "heads": ("num_attention_heads", "n_head", "n_heads", "num_heads", "attention_heads"),
    "kv_heads": ("num_key_value_heads", "num_kv_heads", "n_head_kv"),
}
"""Names of the same number in the configs of different architectures."""


def local_folder(source: str | Path) -> Path | None:
    """Return the folder that a model's source names, None for a hub id, without reading the disk.

    A hub id is ``owner/name`` or ``name``; a folder begins with ``.``, ``/`` or ``~``, or is a
    Path; a model that ships with the package begins with ``builtin:``.

    Raises:
        ConfigError: the package has no such model.
    """
    if isinstance(source, Path):
        return expanded(source)
    if source.startswith("builtin:"):
        if source not in BUILTIN:
            raise ConfigError(f"{source!r} is not in the package; it has {', '.join(BUILTIN)}")
        return BUILTIN[source]
    return expanded(source) if source.startswith((".", "/", "~")) else None


def ready_folder(source: str | None, file: Path, root: Path = Path()) -> Path:
    """Return the folder of a fetched model or embedder, given its source and its JSON file.

    A local folder is the config's own. It may have moved since the file was written: folders of
    equal content have the same key. Relative folders lie under `root`.

    Raises:
        ModelError: the folder is gone.
        TableError: the file is missing or damaged.
    """
    stated = local_folder(source) if source is not None and source not in BUILTIN else None
    if stated is not None and (root / stated).is_dir():
        return root / stated
    folder = root / record.read_json(file)["folder"]
    if not folder.is_dir():
        raise ModelError(
            f"{folder}, which {file} names, is gone; restore it, or remove {file} and run again, "
            f"which fetches it anew"
        )
    return folder


def fetch_model(
    source: str | Path,
    revision: str | None = None,
    *,
    gguf_file: str | None = None,
    or_file: bool = False,
) -> Path:
    """Return the folder of a model's files, complete and checked; download it if necessary.

    Args:
        source: a hub id, such as ``Qwen/Qwen2.5-Math-1.5B-Instruct``, a local folder, or
            ``builtin:reasoner``.
        revision: hub: a branch, tag or commit hash. Folder: its expected fingerprint. GGUF file:
            its sha256.
        gguf_file: name of the file in a repository of GGUF files on the hub.
        or_file: whether a GGUF file is allowed; its own path is then returned.

    Raises:
        ConfigError: the package has no such model.
        ModelError: no such model or revision, no access, no network, no space, or files that
            are missing, damaged or changed.
    """
    folder = local_folder(source) or Path(source)
    if folder.suffix == gguf.SUFFIX or gguf_file:
        if not or_file:
            raise ModelError(
                f"{folder} is a GGUF file; a sweep dequantises it and keeps it as a folder under "
                f"results/store/models: name that folder"
            )
        if gguf_file:
            return _fetch_gguf(str(source), revision, gguf_file)
        _check_sha256(folder, revision)
        return folder
    if folder.is_dir():
        check_folder(folder)
        if revision and (actual := fingerprint(folder)) != revision:
            raise ModelError(
                f"{folder} has fingerprint {actual}, not {revision}; its files have changed: "
                f"restore them, or write revision: {actual}"
            )
        return folder
    if folder.exists() or local_folder(source):
        raise ModelError(f"{source} is not a folder; name a model folder or a hub id")
    folder = download(
        str(source), revision, allow_patterns=_DOWNLOADED, ignore_patterns=_NOT_DOWNLOADED
    )
    check_folder(folder)
    return folder


def _fetch_gguf(hub_id: str, revision: str | None, name: str) -> Path:
    """Return a GGUF file of the hub; its revision is a branch, tag or commit, or its sha256."""
    is_checksum = revision is not None and SHA256.fullmatch(revision) is not None
    commit = None if is_checksum else revision
    file = download(hub_id, commit, allow_patterns=[name]) / name
    if not file.is_file():
        raise ModelError(f"{hub_id} has no file {name}; correct gguf_file")
    if is_checksum:
        _check_sha256(file, revision)
    return file


def _check_sha256(file: Path, stated: str | None) -> None:
    """Raise a ModelError if a GGUF file has not the sha256 that is stated, if any is."""
    if not stated:
        return
    actual = gguf.sha256(file)
    if actual != stated:
        raise ModelError(
            f"{file} has sha256 {actual}, not {stated}; fetch it again, or correct `revision`"
        )


def check_folder(folder: Path, *, ignore_unneeded: bool = True) -> None:
    """Raise a ModelError unless a folder has a config, whole safetensors and a tokenizer.

    It may not name code of its own, unless that is not needed and `ignore_unneeded`; see
    `guard.check_code`.
    """
    check_code(folder, ignore_unneeded=ignore_unneeded)
    for file in weight_files(folder):
        read_header(file)
    names_there = {str(file.relative_to(folder)) for file in tokenizer_files(folder)}
    if not any(names_there.issuperset(names) for names in _TOKENIZERS):
        raise ModelError(
            f"{folder} has no tokenizer (tokenizer.json, tokenizer.model or vocab files); "
            f"save the tokenizer there with its save_pretrained"
        )
    for name in sorted(names_there | {_GENERATION}):
        if name.endswith(".json") and (folder / name).is_file():
            read_json(folder / name, "fetch it again")


def weight_files(folder: Path) -> list[Path]:
    """Return a model's safetensors files, sorted, or raise a ModelError if one is missing."""
    if (folder / _WEIGHTS).is_file():  # before an index, as in transformers
        files = [folder / _WEIGHTS]
    elif (folder / _INDEX).is_file():
        index = read_object(folder / _INDEX, "weight_map", "fetch it again")
        files = _shards(folder, index["weight_map"])
    else:
        pickles = sorted(path.name for pattern in _PICKLES for path in folder.glob(pattern))
        content = f"only {pickles[0]}, which could run code when read" if pickles else "no weights"
        raise ModelError(
            f"{folder} has {content}; only safetensors are read ({_WEIGHTS} or {_INDEX}): "
            f"save the model with save_pretrained, or take a revision that has them"
        )
    for file in files:
        if not file.is_file():
            raise ModelError(f"{folder} lacks {file.name}, which {_INDEX} names; fetch it again")
    return files


def _shards(folder: Path, named: Any) -> list[Path]:
    """Return the files that an index of weights names: safetensors in its own folder."""
    names = list(named.values()) if isinstance(named, dict) else [named]
    for name in names:
        if not isinstance(name, str) or Path(name).name != name or not name.endswith(_SUFFIX):
            raise ModelError(
                f"{folder / _INDEX} names {quoted(name)}, which is no {_SUFFIX} file in that "
                f"folder; fetch it again"
            )
    return [folder / name for name in sorted(set(names))]


def tokenizer_files(folder: Path) -> list[Path]:
    """Return the files of a folder's tokenizer and chat template, sorted."""
    named = [folder / name for name in _TOKENIZER_FILES]
    for pattern in _TOKENIZER_PATTERNS:
        named += folder.glob(pattern)
    return sorted(file for file in named if file.is_file())


def check_geometry(folder: Path, model: Model) -> None:
    """Raise a ModelError unless a config states the geometry of a model's folder or GGUF file."""
    geometry = stated_geometry(folder)
    where = folder if folder.suffix == gguf.SUFFIX else folder / CONFIG
    for name in ("layers", "heads", "kv_heads", "layer_heads"):
        stated = getattr(model, name)
        actual = geometry.get(name)
        if stated != actual:
            if actual is None:  # only a model whose layers differ has `layer_heads`
                raise ModelError(
                    f"{name}: {quoted(stated)} is stated, but by {where} all layers have "
                    f"{geometry['heads']} heads; remove {name}"
                )
            told = str(list(actual) if isinstance(actual, tuple) else actual)
            raise ModelError(
                f"{name}: {quoted(stated)} is stated, but {where} says {told}; write {name}: {told}"
            )


def stated_geometry(folder: Path) -> dict[str, Any]:
    """Return ``layers``, and ``heads`` and ``kv_heads`` of each, or raise a ModelError.

    A pruned model whose layers differ has ``layer_heads`` besides, those of each layer.
    """
    if folder.suffix == gguf.SUFFIX:
        return gguf.stated_geometry(folder)
    config = read_decoder_config(folder)
    geometry: dict[str, Any] = {
        name: next((config[key] for key in names if type(config.get(key)) is int), 0)
        for name, names in _NAMES.items()
    }
    if config.get("multi_query") and not config.get("new_decoder_architecture"):
        geometry["kv_heads"] = 1
    geometry["kv_heads"] = geometry["kv_heads"] or geometry["heads"]
    for name, number in geometry.items():
        if not number:
            raise ModelError(
                f"{folder / CONFIG} does not state {name}; use a transformer with attention"
            )
    if kept := config.get("kept_heads"):
        geometry["layer_heads"] = _layer_heads(folder, kept, geometry["layers"], geometry["heads"])
    return geometry


def _layer_heads(folder: Path, kept: Any, layers: int, heads: int) -> tuple[int, ...]:
    """Return how many heads each layer has by the `kept_heads` of a pruned model's config."""
    lists = [*kept.values()] if isinstance(kept, dict) else [kept]
    whole = layers <= _MOST_LAYERS and all(
        isinstance(heads_kept, list) and heads_kept for heads_kept in lists
    )
    if not whole or not isinstance(kept, dict):
        raise ModelError(
            f"{folder / CONFIG} is damaged: kept_heads is {quoted(kept)}; fetch it again"
        )
    return tuple(len(kept.get(str(layer), range(heads))) for layer in range(layers))


def count_parameters(folder: Path) -> int:
    """Return the number of parameters in a model's weight files, or raise a ModelError."""
    if folder.suffix == gguf.SUFFIX:
        return gguf.count_parameters(folder)
    headers = [read_header(file) for file in weight_files(folder)]
    return sum(math.prod(shape) for header in headers for shape in header.shapes.values())


def fingerprint(folder: Path) -> str:
    """Return 16 hex digits that tell a model folder's content; of a GGUF file its sha256.

    Config, tokenizer and weight headers count in full, and weight files of up to 4 MiB. Larger ones
    count by evenly spaced slices, so that 15 GB take well under a second: a change between slices
    goes unnoticed.

    Raises:
        ModelError: config or weights are missing or damaged.
    """
    if folder.suffix == gguf.SUFFIX:
        return gguf.sha256(folder)
    read_config(folder)
    digest = hashlib.sha256()

    def update(name: str, content: bytes) -> None:
        digest.update(f"{name}\0{len(content)}\0".encode())
        digest.update(content)

    for file in sorted([*tokenizer_files(folder), folder / CONFIG, folder / _GENERATION]):
        if file.is_file():
            update(str(file.relative_to(folder)), read_plain(file))
    for file in weight_files(folder):
        update(file.name, read_header(file).content)
        size = file.stat().st_size
        offsets = list(range(0, size, _SLICE_BYTES))  # end to end in a small file
        if size > _SLICES * _SLICE_BYTES:
            offsets = [step * (size - _SLICE_BYTES) // (_SLICES - 1) for step in range(_SLICES)]
        with open_to_read(file) as stream:
            for offset in offsets:
                stream.seek(offset)
                digest.update(stream.read(_SLICE_BYTES))
    return digest.hexdigest()[:16]


def download(hub_id: str, revision: str | None, **patterns: Sequence[str]) -> Path:
    """Download a model's files, or find them in the cache when offline; return their folder.

    The patterns are ``allow_patterns`` and ``ignore_patterns`` of `snapshot_download`.

    Raises:
        ModelError: no such model or revision, no access, no network, no space.
    """
    from huggingface_hub import errors, snapshot_download  # slow, and planning does not need it

    name = f"{hub_id} (revision {revision})" if revision else hub_id
    try:
        folder = snapshot_download(hub_id, revision=revision, **patterns)
    except (OSError, errors.HFValidationError) as error:
        reason = f"{name} cannot be fetched ({str(error).partition(chr(10))[0]}); check name, "
        reason += "network and free space, or name a local folder"
        if isinstance(error, errors.GatedRepoError):
            page = f"https://huggingface.co/{hub_id}"
            reason = f"{name} is gated; accept its terms at {page}, then `hf auth login`"
        raise ModelError(reason) from error
    return Path(folder)
