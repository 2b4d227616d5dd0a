"""A tiny random Llama with a chat template, on disk."""

import sys
from pathlib import Path

import pytest
from words import TEMPLATE, WORDS

sys.path += [str(Path(__file__).parents[1] / room) for room in ("models", "compression")]
import tiny_models


@pytest.fixture(scope="session")
def llama(tmp_path_factory):
    folder = tmp_path_factory.mktemp("models") / "llama"
    size = {"vocab_size": len(WORDS), "num_hidden_layers": 3, "eos_token_id": 1}
    tiny_models.build(tiny_models.wide("Llama", **size)).save_pretrained(folder)
    special = {"eos_token": "[END]", "pad_token": "[PAD]", "chat_template": TEMPLATE}
    tiny_models.save_tokenizer(folder, WORDS, **special)
    return folder
