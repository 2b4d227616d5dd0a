"""Runs of the real Snakefile, in miniature."""

import copy
from pathlib import Path
from typing import Any

import pytest
from mini import MINIATURE, Snakemake


@pytest.fixture
def miniature() -> dict[str, Any]:
    """The demo in miniature, as config values that a test may change."""
    return copy.deepcopy(MINIATURE)


@pytest.fixture
def snakemake(tmp_path: Path) -> Snakemake:
    """Run the real Snakefile in an empty folder."""
    return Snakemake(tmp_path)


@pytest.fixture(scope="session")
def tiny_checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A checkpoint of the miniature's shape, in the format of transformers."""
    from headroom.config import Reasoner
    from headroom.reasoner.training import train_reasoner

    folder = tmp_path_factory.mktemp("model") / "tiny"
    train_reasoner(folder, Reasoner(**MINIATURE["models"]["tiny"]["train"]), threads=1)
    return folder
