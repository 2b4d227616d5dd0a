"""How many rows are decoded and verified together: what a model's shape and the memory allow."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from headsweep.engine import rows_at_once
from headsweep.engine.batch import GPU_VERIFIED
from headsweep.engine.decoder import Decoder
from headsweep.machine.host import host_cores, host_memory
from headsweep.models.loaded import LoadedModel

if TYPE_CHECKING:
    from headsweep.config import Decoding

PREFILLED = 1 << 14
"""Most tokens of texts in one pass on a GPU: gate and up of more would fill it."""
PREFILLED_ON_CPU = 1 << 11
"""There a pass of more tokens is no faster, and for minutes nothing would be heard of it."""


def fitting_rows(loaded: LoadedModel, decoder: Decoder | None, decoding: Decoding) -> int:
    """Return how many rows to decode together, from a model's shape and the memory that is free."""
    if loaded.device.type == "cpu":
        memory = rows_at_once.cpu_memory(host_memory(), host_cores())
        is_heavy = decoder is not None and decoder.weights.is_heavy
        most = rows_at_once.HEAVY_CPU_ROWS if is_heavy else rows_at_once.CPU_ROWS
    else:
        free, total = torch.cuda.mem_get_info(loaded.device)
        # What torch keeps for tensors to come is free: the driver does not know that it is.
        kept = torch.cuda.memory_reserved(loaded.device) - torch.cuda.memory_allocated(
            loaded.device
        )
        memory = rows_at_once.gpu_memory(free + kept, total)
        most = rows_at_once.GPU_ROWS
    token_bytes = loaded.geometry.cached_numbers * loaded.dtype.itemsize
    return rows_at_once.fitting(memory, token_bytes, decoding.max_new_tokens, most)


def rows_of(batch_size: int, columns: int, decoding: Decoding) -> int:
    """Return how many rows of so many columns take the memory that a batch was given.

    Prompts may be longer than those that memory was set aside for.
    """
    planned = decoding.max_new_tokens + rows_at_once.PROMPT
    return max(1, min(batch_size, batch_size * planned // columns))


def rows_together(batch_size: int, placebo: int) -> int:
    """Return how many rows a placebo decodes together: 1, 2, ... fewer than other variants."""
    return max(1, batch_size - 1 - (placebo - 1) % max(1, batch_size // 2))


def verified_rows(batch_size: int) -> int:
    """Return how many rows a GPU verifies together, base rows included: two at least."""
    return max(2, min(GPU_VERIFIED, batch_size // 2))
