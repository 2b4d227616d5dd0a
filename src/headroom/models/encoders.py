"""Encoders that read word problems: any of the hub's with a mask token, or small ones from scratch.

A small encoder is a pre-norm RoBERTa over whole words. It is saved in the hub's own format, so
that the same code loads it.
"""

from collections import Counter
from collections.abc import Iterable
from typing import NamedTuple

import torch
from tokenizers import Tokenizer
from tokenizers.models import WordLevel
from tokenizers.pre_tokenizers import WhitespaceSplit
from tokenizers.processors import TemplateProcessing
from transformers import (
    AutoModel,
    PreTrainedModel,
    PreTrainedTokenizerBase,
    PreTrainedTokenizerFast,
    RobertaPreLayerNormConfig,
    RobertaPreLayerNormModel,
)

from headroom.config.compression import Encoder
from headroom.errors import ModelError
from headroom.models.load import load_tokenizer, load_weights
from headroom.models.source import fetch_model

_SPECIAL = {
    "pad_token": "[PAD]",
    "unk_token": "[UNK]",
    "cls_token": "[CLS]",
    "sep_token": "[SEP]",
    "mask_token": "[MASK]",
}
_CONTEXT = 512


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
