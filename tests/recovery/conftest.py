"""A tiny random Llama with a chat template, on disk."""

from pathlib import Path

import pytest
import torch
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast
from words import TEMPLATE, WORDS

LAYERS, HEADS, KV_HEADS, HEAD_DIM = 3, 6, 2, 10


@pytest.fixture(scope="session")
def llama(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("models") / "llama"
    config = LlamaConfig(
        vocab_size=len(WORDS),
        hidden_size=48,
        intermediate_size=28,
        num_hidden_layers=LAYERS,
        num_attention_heads=HEADS,
        num_key_value_heads=KV_HEADS,
        head_dim=HEAD_DIM,
        max_position_embeddings=64,
        eos_token_id=1,
        pad_token_id=0,
        initializer_range=0.2,
    )
    with torch.random.fork_rng():
        torch.manual_seed(3)
        LlamaForCausalLM(config).save_pretrained(folder)
    words = {word: number for number, word in enumerate(WORDS)}
    tokenizer = Tokenizer(models.WordLevel(words, unk_token="[PAD]"))
    tokenizer.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        eos_token="[END]",
        pad_token="[PAD]",
        chat_template=TEMPLATE,
    ).save_pretrained(folder)
    return folder
