"""A tiny random Llama with a chat template, on disk."""

import sys
from pathlib import Path

import pytest
from words import TEMPLATE, WORDS

sys.path += [str(Path(__file__).parents[1] / room) for room in ("models", "compression")]
import tiny_models


def _saved(folder, **size):
    """Save a tiny Llama with its tokenizer in a folder."""
    size = {"vocab_size": len(WORDS), "eos_token_id": 1, **size}
    tiny_models.build(tiny_models.wide("Llama", **size)).save_pretrained(folder)
    special = {"eos_token": "[END]", "pad_token": "[PAD]", "chat_template": TEMPLATE}
    tiny_models.save_tokenizer(folder, WORDS, **special)
    return folder


@pytest.fixture(scope="session")
def llama(tmp_path_factory):
    return _saved(tmp_path_factory.mktemp("models") / "llama", num_hidden_layers=3)


@pytest.fixture(scope="session")
def nines(tmp_path_factory):
    """3 layers of 9 heads in 3 groups; a config of 6 or 3 heads is allowed, too."""
    size = {"num_hidden_layers": 3, "num_attention_heads": 9, "num_key_value_heads": 3}
    size |= {"hidden_size": 72}
    return _saved(tmp_path_factory.mktemp("models") / "nines", **size)
