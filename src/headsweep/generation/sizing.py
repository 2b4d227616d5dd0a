"""How many rows are decoded and verified together: what a model's shape and the memory allow."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import torch

from headsweep.generation.batch import GPU_VERIFIED
from headsweep.generation.decoder import Decoder
from headsweep.models.geometry import LoadedModel

if TYPE_CHECKING:
    from headsweep.config import Decoding

PREFILLED = 1 << 14
"""Most tokens of prompts in one pass on a GPU: gate and up of more would fill it."""

_PROMPT = 512  # tokens of a prompt that memory is set aside for
_GPU_ROWS = 512  # most that are decoded together there
_GIGABYTE = 1 << 30


def fitting_rows(loaded: LoadedModel, decoder: Decoder | None, decoding: Decoding) -> int:
    """Return how many rows to decode together, from a model's shape and the memory that is free.

    Large products are faster the more rows they have; small ones gain nothing above 64.
    """
    if loaded.device.type == "cpu":
        pages = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
        free = pages // (4 * (os.cpu_count() or 1))  # of one worker, beside weights and the rest
        most = 128 if decoder and decoder.weights.is_heavy else 64
    else:
        free, most = _free(loaded.device), _GPU_ROWS
    row = _token_bytes(loaded) * (decoding.max_new_tokens + _PROMPT)
    # As much again is for verification: half of it for its slots, half for rows that wait to enter.
    return max(1, min(most, int(free / (2 * row))))


def rows_of(batch_size: int, columns: int, decoding: Decoding) -> int:
    """Return how many rows of so many columns take the memory that a batch was given.

    Prompts may be longer than those that memory was set aside for.
    """
    planned = decoding.max_new_tokens + _PROMPT
    return max(1, min(batch_size, batch_size * planned // columns))


def verified_rows(batch_size: int) -> int:
    """Return how many rows a GPU verifies together, base rows included: two at least."""
    return max(2, min(GPU_VERIFIED, batch_size // 2))


def _token_bytes(loaded: LoadedModel) -> int:
    """Return the bytes of a token's keys and values in all layers."""
    layers = loaded.geometry.layers
    return sum(2 * layer.kv_heads * layer.head_dim for layer in layers) * loaded.dtype.itemsize


def _free(device: torch.device) -> int:
    """Return the bytes of a GPU that keys and values may take, beside a pass's own tensors.

    What torch keeps for tensors to come counts as free: the driver does not know that it is.
    """
    free, total = torch.cuda.mem_get_info(device)
    kept = torch.cuda.memory_reserved(device) - torch.cuda.memory_allocated(device)
    return free + kept - total // 12 - _GIGABYTE
