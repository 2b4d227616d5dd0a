"""A tiny random Qwen2 with its tokenizer, as a folder in the hub's format."""

import shutil
from pathlib import Path

import pytest
import tiny_models


@pytest.fixture(scope="session")
def qwen2_original(tmp_path_factory):
    folder = tmp_path_factory.mktemp("models") / "qwen2"
    tiny_models.build(tiny_models.DECODERS[0]).save_pretrained(folder)
    words = ["[PAD]", "[BOS]", "[EOS]", *(f"w{number}" for number in range(94))]
    tiny_models.save_tokenizer(folder, words, eos_token="[EOS]")
    return folder


@pytest.fixture
def qwen2_folder(qwen2_original, tmp_path):
    """A copy that a test may damage."""
    return Path(shutil.copytree(qwen2_original, tmp_path / "qwen2"))
