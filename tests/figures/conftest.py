from pathlib import Path

import pytest

import simulated_runs
from headroom.config import Config


@pytest.fixture(scope="session")
def run(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Config]:
    """Return the folder and config of a simulated run, drawn once for the whole session."""
    return simulated_runs.swept(tmp_path_factory.mktemp("run"))


@pytest.fixture(scope="session")
def compressed(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Config]:
    """Return the folder and config of a run of two simulated compressions."""
    return simulated_runs.compressed(tmp_path_factory.mktemp("compressed"))
