"""A tiny random Qwen2 with its tokenizer, as a folder in the hub's format."""

import shutil
from pathlib import Path

import pytest
import tiny_models


@pytest.fixture(scope="session")
def qwen2_original(tmp_path_factory):
    return tiny_models.save_qwen2(tmp_path_factory.mktemp("models") / "qwen2")


@pytest.fixture
def qwen2_folder(qwen2_original, tmp_path):
    """A copy that a test may damage."""
    return Path(shutil.copytree(qwen2_original, tmp_path / "qwen2"))
