"""Settings and fixtures for every test."""

import os
from pathlib import Path

import pytest

# Before any library reads them: no network, and no thread pools larger than this machine's cores.
os.environ["HF_HUB_OFFLINE"] = "1"
os.environ.setdefault("OMP_NUM_THREADS", "1")


@pytest.fixture(scope="session")
def headroom_data() -> Path:
    """Return the folder of real data; skip where there is none."""
    folder = os.environ.get("HEADROOM_DATA")
    if not folder:
        pytest.skip("real data: set HEADROOM_DATA to the folder that holds math500.jsonl")
    return Path(folder)
