"""A random Llama of a user's own, on disk, and what the tests know of it."""

import pytest
import torch
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

import warm
from headsweep.grading import pool
from headsweep.machine import fork_server

HEAD_DIM = 8


@pytest.fixture(scope="module")
def warm_engines():
    """Have engines fork from the server of mini-runs: else importing is most of their time."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(fork_server.ADDRESS, warm.environment()[fork_server.ADDRESS])
        yield


@pytest.fixture(scope="module")
def kept_graders():
    """End the processes that grade with the module's last test."""
    yield
    pool.close_kept()


@pytest.fixture(scope="session")
def llama(tmp_path_factory):
    folder = tmp_path_factory.mktemp("own") / "my-llama"
    words = ["[PAD]", "[END]", *map(str, range(57)), "Question", "Answer", ":", "plus"]
    shape = {"hidden_size": 48, "intermediate_size": 40, "num_hidden_layers": 2}
    shape |= {"num_attention_heads": 6, "num_key_value_heads": 3, "head_dim": HEAD_DIM}
    ids = {"vocab_size": len(words), "eos_token_id": 1, "pad_token_id": 0}
    with torch.random.fork_rng():
        torch.manual_seed(3)
        config = LlamaConfig(**shape, **ids, initializer_range=0.4)
        LlamaForCausalLM(config).save_pretrained(folder)
    tokens = {word: number for number, word in enumerate(words)}
    tokenizer = Tokenizer(models.WordLevel(tokens, unk_token="[PAD]"))
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, eos_token="[END]", pad_token="[PAD]"
    ).save_pretrained(folder)
    return folder
