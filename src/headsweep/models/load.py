"""Loading models: a decoder with what generation needs, an encoder, or any other model.

Encoders read word problems: they have a mask token, which stands for numbers.
"""

import logging
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
import transformers
from transformers import (
    AutoModel,
    AutoModelForCausalLM,
    AutoTokenizer,
    PretrainedConfig,
    PreTrainedModel,
    PreTrainedTokenizerBase,
    PreTrainedTokenizerFast,
)
from transformers.models.auto.tokenization_auto import get_tokenizer_config

from headsweep.config.section import ALLOWED, DEVICE
from headsweep.errors import ModelError, cause_of, quoted
from headsweep.files.record import contradicting_record
from headsweep.models.checkpoints import read_pretrained, stated_config
from headsweep.models.geometry import find_heads, readable_tokens
from headsweep.models.guard import CONFIG, read_config
from headsweep.models.loaded import LoadedModel
from headsweep.models.source import fetch_model

_LOG = logging.getLogger(__name__)
_DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16, "float16": torch.float16}
_BALANCED = "balanced"
_UNNEEDED = (
    r"(^|\.)(rotary_emb\.inv_freq|position_ids|masked_bias)$",  # computed, and once saved
    r"(^|\.)mtp[._]",  # layers that guess further tokens
    r"(^|\.)(vision|visual|audio|image|multi_modal|mm_)",  # of a model that also sees or hears
)
"""Tensors of weight files that no decoder needs; transformers passes over others by itself."""
_HEADS = (r"^(lm_head|cls|classifier|qa_outputs|score|pooler|(discriminator|generator)_\w+)\.",)
"""What stands above a model that is loaded without a task."""
_READ = (".safetensors", ".json", ".model", ".txt", ".jinja")


def load_model(
    source: str,
    *,
    dtype: str = "float32",
    device: str = "auto",
    attention: str = "sdpa",
) -> LoadedModel:
    """Load a decoder from the hub or a local folder, never code from there.

    The arguments are those of `load_checkpoint`.

    Raises:
        ModelError: files are missing or unreadable; device, dtype or attention are not available;
            memory is too small; or the model's heads cannot be found.
    """
    placement = torch_device(device, dtype)
    folder = fetch_model(source)
    tokenizer = load_tokenizer(folder)
    model = load_weights(AutoModelForCausalLM, folder, _DTYPES[dtype], placement, attention)
    return as_loaded(model, tokenizer, folder)


def as_loaded(
    model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase, folder: Path
) -> LoadedModel:
    """Return a decoder with its heads and what generation needs, or raise a ModelError.

    The tokenizer, that of the folder, gets a token for padding.
    """
    geometry = find_heads(model)
    if not geometry.keeps_cache:
        raise ModelError(
            f"the model in {folder} keeps no keys and values to decode with, as an encoder; "
            f"use a causal language model"
        )
    embeddings = model.get_input_embeddings()
    ends = end_token_ids(model.generation_config.eos_token_id, tokenizer)
    if beyond := [token for token in ends if not 0 <= token < embeddings.num_embeddings]:
        raise ModelError(
            f"{folder} ends answers with token {beyond[0]} (eos_token_id), and its model has 0 to "
            f"{embeddings.num_embeddings - 1}; correct it in generation_config.json"
        )
    # Padding is masked out, so any id will do that lies within the embedding matrix.
    choices = (tokenizer.pad_token_id, *ends, 0)
    tokenizer.pad_token_id = next(
        token_id
        for token_id in choices
        if token_id is not None and 0 <= token_id < embeddings.num_embeddings
    )
    return LoadedModel(
        model,
        tokenizer,
        geometry,
        folder,
        embeddings.weight.device,
        model.dtype,
        tokenizer.pad_token_id,
        ends,
    )


def end_token_ids(
    stated: int | Sequence[int] | None, tokenizer: PreTrainedTokenizerBase
) -> tuple[int, ...]:
    """Return the ids that end an answer in `transformers.generate`, ascending.

    They are those that the model's generation config states; if it states none, the tokenizer's.

    Raises:
        ModelError: they are no numbers.
    """
    ends = tokenizer.eos_token_id if stated is None else stated
    if ends is None:
        return ()
    several = ends if isinstance(ends, list | tuple) else [ends]
    if not all(type(token) is int for token in several):
        raise ModelError(
            f"eos_token_id of {tokenizer.name_or_path} is {quoted(ends)}, not a token's id or "
            f"a list of ids; correct it in generation_config.json"
        )
    return tuple(sorted(set(several)))


def torch_device(device: str, dtype: str) -> str:
    """Return the torch device to use, or ``balanced``.

    Raises:
        ModelError: device or dtype is unknown or not available on this machine.
    """
    if dtype not in _DTYPES:
        raise ModelError(f"dtype {dtype!r} is not known; use {', '.join(_DTYPES)}")
    if not re.fullmatch(DEVICE, device):
        raise ModelError(f"device {device!r} is not known; use {ALLOWED[DEVICE]}")
    gpus = torch.cuda.device_count()
    if device.startswith("cuda") and int(device[5:] or 0) >= gpus:
        raise ModelError(f"device {device} is not there: torch finds {gpus} GPUs; use auto")
    if dtype == "float16" and (device == "cpu" or not gpus):
        raise ModelError("dtype float16 needs a GPU; on a CPU use float32 or bfloat16")
    return ("cuda" if gpus else "cpu") if device == "auto" else device


def load_tokenizer(folder: Path) -> PreTrainedTokenizerBase:
    """Load the tokenizer of a model folder, padding on the left, or raise a ModelError.

    If a folder declares the generic tokenizer class, its tokenizer.json is used as it is.
    `AutoTokenizer` would rebuild it by the rules of the model's type, which gives other tokens,
    for example, if a Qwen2 model comes with a different tokenizer.
    """
    try:
        declared = get_tokenizer_config(folder).get("tokenizer_class")
        general = declared in ("TokenizersBackend", "PreTrainedTokenizerFast")
        reader = PreTrainedTokenizerFast if general else AutoTokenizer
        return reader.from_pretrained(
            folder, local_files_only=True, trust_remote_code=False, padding_side="left"
        )
    except Exception as error:  # each format's reader raises its own errors
        raise ModelError(
            f"the tokenizer in {folder} cannot be read ({cause_of(error, 200)}); fetch it again"
        ) from error


def load_checkpoint(
    source: str | Path,
    *,
    revision: str | None = None,
    dtype: str | None = None,
    device: str = "auto",
    attention: str = "sdpa",
) -> PreTrainedModel:
    """Load a model of any kind, never code or pickles.

    It loads what plain `from_pretrained` loads, and models whose layers kept different numbers of
    attention heads.

    Args:
        source: a hub id or a local folder.
        revision: hub: a branch, tag or commit hash. Folder: its expected fingerprint.
        dtype: float32, bfloat16 or float16; by default that of the files.
        device: auto (the GPU if there is one), cpu, cuda, cuda:N, or balanced (spread over all
            GPUs by accelerate, for a model larger than one).
        attention: eager, sdpa or flash_attention_2.

    Returns:
        A model of the class that its config names, in evaluation mode.

    Raises:
        ModelError: files are missing, unreadable or do not fit each other; device, dtype or
            attention are not available; or memory is too small.
    """
    placement = torch_device(device, dtype or "float32")
    folder = fetch_model(source, revision)
    named = read_config(folder).get("architectures") or [""]
    name = str(named[0] if isinstance(named, list) else named)
    kind = getattr(transformers, name, AutoModel)
    is_class = isinstance(kind, type) and issubclass(kind, PreTrainedModel)
    if kind is not AutoModel and not is_class:
        raise ModelError(
            f"{folder} says that it is a {quoted(name)}, which is not a model; fetch it again"
        )
    return load_weights(kind, folder, _DTYPES[dtype] if dtype else "auto", placement, attention)


def weights_dtype(folder: Path) -> torch.dtype:
    """Return the type of a local model's weights, from its config where that says it.

    Raises:
        ModelError: its config, or, if that does not say it, the model cannot be read.
    """
    stated: torch.dtype | None = stated_config(folder).dtype
    return stated or load_checkpoint(folder, device="cpu").dtype


def load_weights(
    kind: Any,
    folder: Path,
    dtype: torch.dtype | str = "auto",
    placement: str = "cpu",
    attention: str | None = None,
) -> PreTrainedModel:
    """Load a model with a class of transformers, in evaluation mode, with all of its weights.

    `placement` is a torch device or ``balanced``; `attention` is by default the model's own. Eager
    attention takes the place of sdpa where transformers has none for the model; that is logged.

    Raises:
        ModelError: the folder does not hold such a model, its weights are not those of a record
            beside them, or memory is too small.
    """
    try:
        _check_records(folder)
        if attention == "sdpa" and not has_sdpa(kind, stated_config(folder)):
            _LOG.warning(f"{folder}: transformers has no sdpa attention for it; eager is used")
            attention = "eager"
        model, info = read_pretrained(
            kind,
            folder,
            dtype=dtype,
            device_map=placement if placement == _BALANCED else {"": placement},
            attn_implementation=attention,
        )
    except torch.OutOfMemoryError as error:
        raise ModelError(
            f"the model in {folder} does not fit on {placement} as {dtype}; "
            f"use device: balanced, or a smaller dtype"
        ) from error
    except ModelError:
        raise
    except Exception as error:  # a config of any content raises errors of any type
        raise ModelError(
            f"the model in {folder} cannot be loaded as {kind.__name__} ({cause_of(error, 200)}); "
            f"use a model of that kind that transformers knows"
        ) from error
    missing = sorted(info["missing_keys"])
    if missing and all(name.startswith("pooler.") for name in missing):
        model.pooler = None  # some checkpoints come without this layer, which is not needed
    elif missing:
        raise ModelError(
            f"the weights in {folder} lack {len(missing)} tensors, such as {missing[0]}; "
            f"fetch them again, or use a model of the kind {kind.__name__}"
        )
    known = re.compile("|".join(_UNNEEDED + (_HEADS if kind is AutoModel else ())))
    unread = sorted(name for name in info["unexpected_keys"] if not known.search(name))
    if unread:
        raise ModelError(
            f"the weights in {folder} hold {len(unread)} tensors that its {CONFIG} has no place "
            f"for, such as {quoted(unread[0])}: the model would answer without them; fetch it again"
        )
    return model.eval()


def has_sdpa(kind: Any, config: PretrainedConfig) -> bool:
    """Tell whether a class, or that which an auto class chooses by a config, can use sdpa."""
    classes = getattr(kind, "_model_mapping", {})
    chosen = classes.get(type(config), kind)
    if isinstance(chosen, tuple):  # the first is taken where the config names none
        named = [one for one in chosen if one.__name__ in (config.architectures or ())]
        chosen = (*named, *chosen)[0]
    return bool(getattr(chosen, "_supports_sdpa", True))


def _check_records(folder: Path) -> None:
    """Compare what loading reads in a folder with the records of what a run or a command made."""
    for file in sorted(path for path in folder.iterdir() if path.suffix in _READ):
        if record := contradicting_record(file):
            raise ModelError(
                f"{file} is damaged: its checksum differs from that in {record.name}; remove "
                f"{folder} and make it again"
            )


TextEncoder = tuple[PreTrainedModel, PreTrainedTokenizerBase]
"""An encoder and its tokenizer, which pads on the right."""


def load_encoder(source: str, revision: str | None = None) -> TextEncoder:
    """Load an encoder, pruned or not; source and revision are those of `fetch_model`.

    Raises:
        ModelError: files are missing or unreadable, the tokenizer has no mask token or is not a
            fast one, or it has more entries than the embeddings have rows.
    """
    folder = fetch_model(source, revision)
    tokenizer = load_tokenizer(folder)
    tokenizer.padding_side = "right"
    model = load_weights(AutoModel, folder)
    if hasattr(model, "pooler"):
        model.pooler = None  # for sentence classification; not needed here
    if tokenizer.mask_token is None:
        raise ModelError(
            f"the tokenizer of {source} has no mask token to stand for numbers; use an encoder "
            f"trained on masked text, such as roberta-base"
        )
    if not tokenizer.is_fast:
        raise ModelError(f"the tokenizer of {source} is not a fast one; save it as tokenizer.json")
    rows = model.get_input_embeddings().num_embeddings
    if len(tokenizer) > rows:
        raise ModelError(
            f"the tokenizer of {source} has {len(tokenizer)} entries, but the model's embeddings "
            f"have {rows} rows; they do not belong together"
        )
    if limit := readable_tokens(model):
        tokenizer.model_max_length = min(tokenizer.model_max_length, limit)
    return model, tokenizer
