"""A process of its own that measures how far loading and running a model makes memory grow.

python -m headroom.compression.peak_memory BATCH TOKENS DEVICE FOLDER...
"""

import os
import sys

import torch

from headroom.compression.footprint import dummy_texts
from headroom.models.load import load_checkpoint
from headroom.record import peak_resident


def main(batch: str, tokens: str, device: str, *folders: str) -> int:
    """Print for each folder a line with the peak in bytes, without what the libraries take.

    Each is measured in a fork, which starts with the libraries loaded and nothing else: importing
    them takes longer than all the rest. Returns the exit status.
    """
    for folder in folders:
        child = os.fork()
        if child == 0:
            print(_growth(folder, int(batch), int(tokens), device), flush=True)
            return 0
        if os.waitpid(child, 0)[1]:
            return 1
    return 0


def _growth(folder: str, batch: int, tokens: int, device: str) -> int:
    before = _peak(device)
    model = load_checkpoint(folder, device=device)
    with torch.inference_mode():
        model(**dummy_texts(model, batch, tokens))
    return _peak(device) - before


def _peak(device: str) -> int:
    """Return the peak so far, in bytes: of the GPU's memory, or resident on the CPU."""
    return peak_resident() if device == "cpu" else torch.cuda.max_memory_allocated()


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
