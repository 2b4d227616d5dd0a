"""A process of its own that loads a model, runs one pass, and prints how far its memory grew.

python -m headroom.compression.peak FOLDER BATCH TOKENS DEVICE
"""

import re
import sys
from pathlib import Path

import torch

from headroom.compression.measurement import dummy_texts
from headroom.models.load import load_checkpoint


def main(folder: str, batch: str, tokens: str, device: str) -> None:
    """Print the peak in bytes, without what the libraries take."""
    before = _peak(device)
    model = load_checkpoint(folder, device=device)
    with torch.inference_mode():
        model(**dummy_texts(model, int(batch), int(tokens)))
    print(_peak(device) - before)


def _peak(device: str) -> int:
    """Return the peak so far, in bytes: of the GPU's memory, or resident on the CPU.

    `getrusage` would tell the parent's peak, which a new process inherits.
    """
    if device != "cpu":
        return torch.cuda.max_memory_allocated()
    status = Path("/proc/self/status").read_text(encoding="ascii")
    return 1024 * int(re.findall(r"VmHWM:\s*(\d+) kB", status)[0])


if __name__ == "__main__":
    main(*sys.argv[1:])
