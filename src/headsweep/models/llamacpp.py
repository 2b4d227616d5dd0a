"""What llama.cpp does with a GGUF file, if the package llama-cpp-python is installed."""

import importlib.util
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import torch

from headsweep.errors import ModelError, cause_of
from headsweep.models.timing import ANSWER_TOKENS, PROMPT_TOKENS, TURNS, seconds_of


def installed() -> bool:
    """Return whether llama-cpp-python is installed."""
    return importlib.util.find_spec("llama_cpp") is not None


def quantise(file: Path, made: Path) -> None:
    """Make q4_k_m of a file in float32; rows that do not fit its blocks get another type.

    Raises:
        ModelError: llama.cpp could not.
    """
    import llama_cpp

    _silent()
    wanted = llama_cpp.llama_model_quantize_default_params()
    wanted.ftype = llama_cpp.LLAMA_FTYPE_MOSTLY_Q4_K_M
    if llama_cpp.llama_model_quantize(str(file).encode(), str(made).encode(), wanted):
        raise ModelError(f"llama.cpp could not quantise {file}; write q8_0")


def tokens_per_second(file: Path) -> float | None:
    """Return how many tokens a second llama.cpp decodes on the CPU; None where it is not installed.

    Batch 1, 32 tokens after 16, on as many threads as torch uses; median of 3 turns.

    Raises:
        ModelError: llama.cpp cannot load the file, or not decode with it.
    """
    if not installed():
        return None
    try:
        return _tokens_per_second(file)
    except Exception as error:  # it raises errors of any type
        raise ModelError(
            f"llama.cpp cannot load what was written ({cause_of(error, 100)}); update "
            f"llama-cpp-python, or uninstall it to write the file untried"
        ) from error


def _tokens_per_second(file: Path) -> float:
    import llama_cpp

    _silent()
    threads = torch.get_num_threads()
    length = PROMPT_TOKENS + ANSWER_TOKENS
    keys = {"n_ctx": 2 * length, "n_threads": threads, "n_gpu_layers": 0, "verbose": False}
    model = llama_cpp.Llama(str(file), **keys)
    seconds = []

    def answer() -> None:
        for token in range(PROMPT_TOKENS, length):
            model.eval([token])

    for _ in range(TURNS):
        model.reset()
        model.eval(list(range(PROMPT_TOKENS)))
        seconds.append(seconds_of(answer))
    model.close()
    return ANSWER_TOKENS / float(np.median(seconds))


@cache
def _silent() -> Any:
    """Keep llama.cpp's messages from the terminal; what it calls is kept, as it must not go."""
    import llama_cpp

    callback = llama_cpp.llama_log_callback(lambda *_: None)
    llama_cpp.llama_log_set(callback, None)
    return callback
