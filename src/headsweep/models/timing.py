"""How long something takes."""

import time
from collections.abc import Callable
from typing import Any

import torch

PROMPT_TOKENS, ANSWER_TOKENS, TURNS = 16, 32, 3
"""With what the speed of generation is measured."""


def seconds_of(call: Callable[[], Any]) -> float:
    """Return how long a call takes, to its end on the GPU if there is one."""
    wait = torch.cuda.synchronize if torch.cuda.is_available() else lambda: None
    wait()
    begin = time.perf_counter()
    call()
    wait()
    return time.perf_counter() - begin
