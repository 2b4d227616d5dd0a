"""The tiny models of `tests/models` serve here, too, and all is on the CPU."""

import sys
from pathlib import Path

import pytest
import torch

sys.path.insert(0, str(Path(__file__).parents[1] / "models"))


@pytest.fixture(scope="module", autouse=True)
def _no_gpu():
    """Hide a GPU: memory and times are measured on it where there is one."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(torch.cuda, "is_available", lambda: False)
        yield
