"""Loading models: a decoder with what generation needs to know of it, an encoder, any other model.

Encoders read word problems: any of the hub's with a mask token, or small ones from scratch. These
are pre-norm RoBERTas over whole words, saved in the hub's own format so that the same code loads
them.
"""

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import torch
import transformers
from tokenizers import Tokenizer
from tokenizers.models import WordLevel
from tokenizers.pre_tokenizers import WhitespaceSplit
from tokenizers.processors import TemplateProcessing
from transformers import (
    AutoModel,
    AutoModelForCausalLM,
    AutoTokenizer,
    PreTrainedModel,
    PreTrainedTokenizerBase,
    PreTrainedTokenizerFast,
)
from transformers.models.auto.tokenization_auto import get_tokenizer_config
from transformers.utils import is_flash_attn_2_available

from headroom.config.compression import Encoder
from headroom.errors import ModelError
from headroom.models.checkpoints import read_pretrained
from headroom.models.geometry import HeadGeometry, find_heads
from headroom.models.source import fetch_model, read_config

_DTYPES = {
    "float32": torch.float32,
    "bfloat16": torch.bfloat16,
    "float16": torch.float16,
}
_ATTENTIONS = ("eager", "sdpa", "flash_attention_2")
_BALANCED = "balanced"
_SPECIAL = {
    "pad_token": "[PAD]",
    "unk_token": "[UNK]",
    "cls_token": "[CLS]",
    "sep_token": "[SEP]",
    "mask_token": "[MASK]",
}
_CONTEXT = 512


@dataclass(frozen=True)
class LoadedModel:
    """A decoder in evaluation mode, and what generation needs to know of it."""

    model: PreTrainedModel
    tokenizer: PreTrainedTokenizerBase
    """Pads on the left."""
    geometry: HeadGeometry
    folder: Path
    device: torch.device
    """Where token ids go: the device of the embeddings."""
    dtype: torch.dtype
    pad_token_id: int
    """An id that the embeddings hold; masked out wherever it stands."""
    eos_token_ids: tuple[int, ...]
    """The ids that end an answer, as `transformers.generate` knows them, ascending."""


def load_model(
    source: str,
    *,
    dtype: str = "float32",
    device: str = "auto",
    attention: str = "sdpa",
) -> LoadedModel:
    """Load a decoder from the hub or a local folder; never any code from there.

    Args:
        source: a hub id or a local folder.
        dtype: float32, bfloat16 or float16.
        device: auto (the GPU if there is one), cpu, cuda, cuda:N, or balanced (spread over all
            GPUs by accelerate, for a model larger than one).
        attention: eager, sdpa or flash_attention_2.

    Raises:
        ModelError: files that are missing or unreadable, a device, dtype or attention that is
            not to be had here, not enough memory, or a model whose heads cannot be found.
    """
    placement = check_device(device, dtype, attention)
    folder = fetch_model(source)
    tokenizer = load_tokenizer(folder)
    model = load_weights(AutoModelForCausalLM, folder, _DTYPES[dtype], placement, attention)
    geometry = find_heads(model)
    if not geometry.keeps_cache:
        raise ModelError(
            f"the model in {folder} keeps no keys and values to decode with, as an encoder; "
            f"use a causal language model"
        )
    ends = model.generation_config.eos_token_id
    ends = tokenizer.eos_token_id if ends is None else ends
    ends = (ends,) if isinstance(ends, int) else tuple(sorted(set(ends or ())))
    # Padding is masked out, so any id serves that needs no larger embedding matrix.
    embeddings = model.get_input_embeddings()
    choices = (tokenizer.pad_token_id, *ends, 0)
    tokenizer.pad_token_id = next(
        each for each in choices if each is not None and 0 <= each < embeddings.num_embeddings
    )
    return LoadedModel(
        model=model,
        tokenizer=tokenizer,
        geometry=geometry,
        folder=folder,
        device=embeddings.weight.device,
        dtype=_DTYPES[dtype],
        pad_token_id=tokenizer.pad_token_id,
        eos_token_ids=ends,
    )


def check_device(device: str, dtype: str, attention: str = "sdpa") -> str:
    """Make sure that this machine has a device and that the device has a dtype and an attention.

    Returns:
        The device of torch to use, or ``balanced``.

    Raises:
        ModelError: one of the three is unknown or cannot be had here.
    """
    if dtype not in _DTYPES:
        raise ModelError(f"dtype {dtype!r} is not known; use {', '.join(_DTYPES)}")
    kind, _, number = device.partition(":")
    gpus = torch.cuda.device_count()
    if device not in ("auto", "cpu", "cuda", _BALANCED) and not (
        kind == "cuda" and number.isdecimal()
    ):
        raise ModelError(f"device {device!r} is not known; use auto, cpu, cuda, cuda:N or balanced")
    if kind == "cuda" and int(number or 0) >= gpus:
        raise ModelError(f"device {device} is asked for, but torch finds {gpus} GPUs; use auto")
    placement = device
    if device == "auto":
        placement = "cuda" if torch.cuda.is_available() else "cpu"
    on_cpu = placement == "cpu" or not torch.cuda.is_available()
    if on_cpu and dtype == "float16":
        raise ModelError("dtype float16 needs a GPU; on a CPU use float32 or bfloat16")
    if not on_cpu and dtype == "bfloat16" and not torch.cuda.is_bf16_supported(False):
        name = torch.cuda.get_device_name()
        raise ModelError(f"dtype bfloat16 is not supported by {name}; use float16 or float32")
    if attention not in _ATTENTIONS:
        raise ModelError(f"attention {attention!r} is not known; use {', '.join(_ATTENTIONS)}")
    flash = not on_cpu and dtype != "float32" and is_flash_attn_2_available()
    if attention == "flash_attention_2" and not flash:
        raise ModelError(
            "attention flash_attention_2 needs a GPU, float16 or bfloat16, and the package "
            "flash-attn; use sdpa"
        )
    return placement


def load_tokenizer(folder: Path) -> PreTrainedTokenizerBase:
    """Load the tokenizer of a model folder, padding on the left; never any code from there.

    A folder that declares no tokenizer class but the general one means its tokenizer.json to be
    taken as it is. `AutoTokenizer` instead rebuilds it by the rules of the model's type, which
    for another tokenizer on a Qwen2 model, say, gives other tokens.

    Raises:
        ModelError: the tokenizer is damaged, or of a kind that transformers does not know.
    """
    try:
        declared = get_tokenizer_config(folder).get("tokenizer_class")
        general = declared in ("TokenizersBackend", "PreTrainedTokenizerFast")
        reader = PreTrainedTokenizerFast if general else AutoTokenizer
        return reader.from_pretrained(
            folder, local_files_only=True, trust_remote_code=False, padding_side="left"
        )
    except Exception as error:  # readers of many formats, each with errors of its own
        raise ModelError(
            f"the tokenizer in {folder} cannot be read ({_first_line(error)}); fetch it again"
        ) from error


def load_checkpoint(
    source: str,
    *,
    revision: str | None = None,
    dtype: str | None = None,
    device: str = "auto",
    attention: str = "sdpa",
) -> PreTrainedModel:
    """Load a model of any kind, pruned or not; never any code from there, and no pickles.

    What plain `from_pretrained` loads is loaded alike. So are models whose layers kept different
    numbers of attention heads, which it refuses.

    Args:
        source: a hub id or a local folder.
        revision: hub: a branch, tag or commit hash. Folder: its expected fingerprint.
        dtype: float32, bfloat16 or float16; that of the files by default.
        device: auto (the GPU if there is one), cpu, cuda, cuda:N, or balanced.
        attention: eager, sdpa or flash_attention_2.

    Returns:
        A model of the class that its config names, in evaluation mode.

    Raises:
        ModelError: files that are missing, unreadable or do not fit each other, a device, dtype
            or attention that is not to be had here, or not enough memory.
    """
    placement = check_device(device, dtype or "float32", attention)
    folder = fetch_model(source, revision)
    names = read_config(folder).get("architectures") or [""]
    kind = getattr(transformers, names[0], AutoModel)
    if kind is not AutoModel and not issubclass(kind, PreTrainedModel):
        raise ModelError(
            f"{folder} says that it is a {names[0]}, which is no model; fetch it again"
        )
    return load_weights(kind, folder, _DTYPES[dtype] if dtype else "auto", placement, attention)


def load_weights(
    kind: Any,
    folder: Path,
    dtype: torch.dtype | str = "auto",
    placement: str = "cpu",
    attention: str | None = None,
) -> PreTrainedModel:
    """Load a model with a class or auto class of transformers, and all of its weights.

    Args:
        kind: the class.
        folder: the model.
        dtype: of the weights; by default that of the files.
        placement: as `check_device` returns it.
        attention: by default the architecture's own.

    Raises:
        ModelError: files that do not fit each other or the class, or not enough memory.
    """
    try:
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
    except (OSError, ValueError, ImportError, RuntimeError) as error:
        raise ModelError(
            f"the model in {folder} cannot be loaded as {kind.__name__} ({_first_line(error)}); "
            f"use a model of that kind that transformers knows"
        ) from error
    missing = sorted(info["missing_keys"])
    if missing and all(name.startswith("pooler.") for name in missing):
        model.pooler = None  # saved without this layer, which only some tasks have
    elif missing:
        raise ModelError(
            f"the weights in {folder} lack {len(missing)} tensors, such as {missing[0]}; "
            f"fetch them again, or use a model of the kind {kind.__name__}"
        )
    return model.eval()


def _first_line(error: Exception) -> str:
    return f"{type(error).__name__}: {str(error).strip().partition(chr(10))[0]}"


class TextEncoder(NamedTuple):
    """An encoder and its tokenizer, which pads on the right."""

    model: PreTrainedModel
    tokenizer: PreTrainedTokenizerBase


def load_encoder(source: str, revision: str | None = None) -> TextEncoder:
    """Load an encoder, pruned or not, from the hub or a local folder; never any code from there.

    Args:
        source: a hub id or a local folder.
        revision: hub: a branch, tag or commit hash. Folder: its expected fingerprint.

    Raises:
        ModelError: files that are missing or unreadable, a model that is no encoder of text with
            a mask token, or a tokenizer with more entries than the embeddings have rows.
    """
    folder = fetch_model(source, revision)
    tokenizer = load_tokenizer(folder)
    tokenizer.padding_side = "right"
    model = load_weights(AutoModel, folder)
    if getattr(model, "pooler", None) is not None:
        model.pooler = None  # classifies sentences; word problems do not need it
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
    positions = getattr(model.config, "max_position_embeddings", tokenizer.model_max_length)
    tokenizer.model_max_length = min(tokenizer.model_max_length, positions)
    return TextEncoder(model.eval(), tokenizer)


def new_encoder(settings: Encoder, texts: Iterable[str], seed: int) -> TextEncoder:
    """Return an untrained encoder over the words of training texts.

    Args:
        settings: shape, dropout, and how often a word must be seen.
        texts: words separated by spaces.
        seed: decides the weights.
    """
    from transformers import RobertaPreLayerNormConfig, RobertaPreLayerNormModel  # slow, for few

    tokenizer = word_tokenizer(texts, settings.min_count)
    config = RobertaPreLayerNormConfig(
        vocab_size=len(tokenizer),
        hidden_size=settings.width,
        num_hidden_layers=settings.layers,
        num_attention_heads=settings.heads,
        intermediate_size=settings.intermediate,
        hidden_dropout_prob=settings.dropout,
        attention_probs_dropout_prob=settings.dropout,
        max_position_embeddings=_CONTEXT + tokenizer.pad_token_id + 1,
        type_vocab_size=1,
        pad_token_id=tokenizer.pad_token_id,
        bos_token_id=tokenizer.cls_token_id,
        eos_token_id=tokenizer.sep_token_id,
    )
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        model = RobertaPreLayerNormModel(config, add_pooling_layer=False)
    return TextEncoder(model.eval(), tokenizer)


def word_tokenizer(texts: Iterable[str], min_count: int) -> PreTrainedTokenizerFast:
    """Return a tokenizer of whole words: those seen `min_count` times, in order of frequency."""
    counts = Counter(word for text in texts for word in text.split())
    seen = (word for word, n in counts.items() if n >= min_count)
    words = sorted(seen, key=lambda word: (-counts[word], word))
    entries = [*_SPECIAL.values(), *(word for word in words if word not in _SPECIAL.values())]
    tokenizer = Tokenizer(
        WordLevel({word: place for place, word in enumerate(entries)}, _SPECIAL["unk_token"])
    )
    tokenizer.pre_tokenizer = WhitespaceSplit()
    start, end = _SPECIAL["cls_token"], _SPECIAL["sep_token"]
    tokenizer.post_processor = TemplateProcessing(
        single=f"{start} $A {end}",
        special_tokens=[(start, entries.index(start)), (end, entries.index(end))],
    )
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, model_max_length=_CONTEXT, padding_side="right", **_SPECIAL
    )
