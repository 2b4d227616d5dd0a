"""How many rows are decoded and verified together: what a model's shape and the memory allow."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from headsweep.engine.batch import GPU_VERIFIED
from headsweep.engine.decoder import Decoder
from headsweep.machine.host import host_cores, host_memory
from headsweep.models.loaded import LoadedModel

if TYPE_CHECKING:
    from headsweep.config import Decoding

_PROMPT = 512  # tokens of a prompt that memory is set aside for
_GPU_ROWS = 512  # most rows that are decoded together on a GPU
_CPU_ROWS, _HEAVY_CPU_ROWS = 64, 128
"""The same on a CPU, and where a layer is heavy: large products are faster the more rows they have,
small ones gain nothing above 64."""
_GIGABYTE = 1 << 30
PREFILLED = 1 << 14
"""Most tokens of texts in one pass on a GPU: gate and up of more would fill it."""
PREFILLED_ON_CPU = 1 << 11
"""There a pass of more tokens is no faster, and for minutes nothing would be heard of it."""


def fitting_rows(loaded: LoadedModel, decoder: Decoder | None, decoding: Decoding) -> int:
    """Return how many rows to decode together, from a model's shape and the memory that is free."""
    if loaded.device.type == "cpu":
        memory = cpu_memory(host_memory(), host_cores())
        is_heavy = decoder is not None and decoder.weights.is_heavy
        most = _HEAVY_CPU_ROWS if is_heavy else _CPU_ROWS
    else:
        free, total = torch.cuda.mem_get_info(loaded.device)
        # What torch keeps for tensors to come is free: the driver does not know that it is.
        kept = torch.cuda.memory_reserved(loaded.device) - torch.cuda.memory_allocated(
            loaded.device
        )
        # A twelfth and a gigabyte are left for what a pass holds beside keys and values.
        memory = free + kept - total // 12 - _GIGABYTE
        most = _GPU_ROWS
    token_bytes = loaded.geometry.cached_numbers * loaded.dtype.itemsize
    row = token_bytes * (decoding.max_new_tokens + _PROMPT)
    # As much again is for verification: half of it for its slots, half for rows that wait to enter.
    return max(1, min(most, int(memory / (2 * row))))


def cpu_memory(total: float, cores: int) -> float:
    """Return the bytes that one worker's keys and values may take, beside the weights.

    Each of so many cores has a worker.
    """
    return total // (4 * cores)


def rows_of(batch_size: int, columns: int, decoding: Decoding) -> int:
    """Return how many rows of so many columns take the memory that a batch was given.

    Prompts may be longer than those that memory was set aside for.
    """
    planned = decoding.max_new_tokens + _PROMPT
    return max(1, min(batch_size, batch_size * planned // columns))


def rows_together(batch_size: int, placebo: int) -> int:
    """Return how many rows a placebo decodes together: 1, 2, ... fewer than other variants."""
    return max(1, batch_size - 1 - (placebo - 1) % max(1, batch_size // 2))


def verified_rows(batch_size: int) -> int:
    """Return how many rows a GPU verifies together, base rows included: two at least."""
    return max(2, min(GPU_VERIFIED, batch_size // 2))
