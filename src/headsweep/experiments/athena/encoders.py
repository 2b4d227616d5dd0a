"""Small encoders that are trained from scratch: pre-norm RoBERTas over whole words.

They are saved in the hub's format, so that `load_encoder` reads them as it reads pretrained ones.
"""

from collections import Counter
from collections.abc import Iterable

import torch
from tokenizers import Tokenizer
from tokenizers.models import WordLevel
from tokenizers.pre_tokenizers import WhitespaceSplit
from tokenizers.processors import TemplateProcessing
from transformers import PreTrainedTokenizerFast

from headsweep.config.solvers import CONTEXT, Encoder
from headsweep.models.load import TextEncoder

_SPECIAL = {f"{name}_token": f"[{name.upper()}]" for name in ("pad", "unk", "cls", "sep", "mask")}


def new_encoder(settings: Encoder, texts: Iterable[str], seed: int) -> TextEncoder:
    """Return an untrained encoder over the words of training texts; a seed decides its weights."""
    # Imported here because it is slow and rarely needed.
    from transformers import RobertaPreLayerNormConfig, RobertaPreLayerNormModel

    tokenizer = word_tokenizer(texts, settings.min_count)
    config = RobertaPreLayerNormConfig(
        vocab_size=len(tokenizer),
        hidden_size=settings.width,
        num_hidden_layers=settings.layers,
        num_attention_heads=settings.heads,
        intermediate_size=settings.intermediate,
        hidden_dropout_prob=settings.dropout,
        attention_probs_dropout_prob=settings.dropout,
        max_position_embeddings=CONTEXT + tokenizer.pad_token_id + 1,
        type_vocab_size=1,
        pad_token_id=tokenizer.pad_token_id,
        bos_token_id=tokenizer.cls_token_id,
        eos_token_id=tokenizer.sep_token_id,
    )
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        model = RobertaPreLayerNormModel(config, add_pooling_layer=False)
    return model.eval(), tokenizer


def word_tokenizer(texts: Iterable[str], min_count: int) -> PreTrainedTokenizerFast:
    """Return a tokenizer of words that occur `min_count` times or more, most frequent first."""
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
        tokenizer_object=tokenizer, model_max_length=CONTEXT, padding_side="right", **_SPECIAL
    )
