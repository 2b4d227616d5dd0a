"""What a model takes where it is loaded: bytes, GPUs and main memory."""

import math

from headsweep.config import Model

_SHARE_OF_WEIGHTS = 0.6  # the rest of a GPU holds keys, values and activations
_GPU_GIGABYTES = 80

_BESIDE = 4000  # MB of a job, beside what its model takes
_LOADED = 2500  # MB a GB of weights that go through main memory to a GPU
_REARRANGED = 2700  # the same on a CPU, where a copy and a quarter of the whole come on top
_WIDENED = 6000
"""The same in half precision: the engine keeps a copy in float32, twice the weights, only where it
is less than a third of the memory; otherwise it converts weights at each product."""


def weight_bytes(model: Model) -> float:
    """Return the bytes of a model's weights."""
    return 1e9 * model.billions * (4 if model.dtype == "float32" else 2)


def gpus_of(model: Model) -> int:
    """Return how many GPUs hold one copy of a model; 0 if it is on the CPU.

    With device `balanced` they are as many of 80 GB as leave room for keys and values.
    """
    if model.device == "cpu":
        return 0
    if model.device == "balanced":
        return math.ceil(weight_bytes(model) / (_SHARE_OF_WEIGHTS * 1e9 * _GPU_GIGABYTES))
    return model.tensor_parallel


def host_megabytes(model: Model) -> int:
    """Return the MB of main memory that a job with a model asks for.

    Weights are loaded through it; a model on a CPU stays in it.
    """
    if model.device == "cpu":
        return _BESIDE + cpu_megabytes(model)
    return int(_BESIDE + _LOADED * weight_bytes(model) / 1e9)


def cpu_megabytes(model: Model) -> int:
    """Return the MB that a model takes on a CPU: its weights, a copy of them, keys and values."""
    per_gigabyte = _REARRANGED if model.dtype == "float32" else _WIDENED
    return int(per_gigabyte * weight_bytes(model) / 1e9)
