"""How many rows are decoded together, and in what units: the engine and the plans use the same."""

import math

PROMPT = 512  # tokens of a prompt that memory is set aside for
GPU_ROWS = 512  # most rows that are decoded together on a GPU
CPU_ROWS, HEAVY_CPU_ROWS = 64, 128
"""The same on a CPU, and where a layer is heavy: large products are faster the more rows they have,
small ones gain nothing above 64."""
HEAVY = 1 << 22  # weights of a layer from which a pass's own overhead no longer counts

UNIT_VARIANTS = 25
"""Variants that answer together; some tables are complete when one group of these is."""

_UNIT_QUESTIONS = 64
"""A worker takes so many at once at least, if there are: rows stand idle while a batch runs dry."""
_GIGABYTE = 1 << 30


def gpu_memory(free: float, total: float) -> float:
    """Return the bytes that keys and values may take of those free on a GPU.

    A twelfth and a gigabyte are left for what a pass holds beside them.
    """
    return free - total // 12 - _GIGABYTE


def cpu_memory(total: float, cores: int) -> float:
    """Return the bytes that one worker's keys and values may take, beside the weights.

    Each of so many cores has a worker.
    """
    return total // (4 * cores)


def fitting(memory: float, token: float, new_tokens: int, most: int) -> int:
    """Return how many rows are decoded together: one at least.

    Args:
        memory: bytes for keys and values.
        token: bytes of a token's keys and values in all layers.
        new_tokens: most tokens of an answer.
        most: rows, whatever the memory.
    """
    row = token * (new_tokens + PROMPT)
    # As much again is for verification: half of it for its slots, half for rows that wait to enter.
    return max(1, min(most, int(memory / (2 * row))))


def questions_of_unit(left: int, workers: int) -> int:
    """Return how many of the questions that are left for a group a worker takes at once."""
    questions = max(left / (2 * workers), min(_UNIT_QUESTIONS, left / workers))
    return math.ceil(questions)
