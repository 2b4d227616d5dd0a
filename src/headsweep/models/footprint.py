"""What a model takes where it is loaded: bytes, GPUs and main memory."""

import math

from headsweep.config import Config, Model, Study

_SHARE_OF_WEIGHTS = 0.6  # the rest of a GPU holds keys, values and activations
_GPU_GIGABYTES = 80

BASE_ENCODER = 1.8e8
"""Parameters of a solver with a base encoder from the hub."""
_LARGE_ENCODER = 4.5e8
_SMALL = 5e6  # parameters below which a GPU is not faster
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


def embedding_model(config: Config, embedder: str) -> Model | None:
    """Return a model of the config as it is loaded to embed; None for an embedder of the hub."""
    name = config.embedders[embedder].model
    return None if name is None else config.models[name].model_copy(update={"dtype": "float32"})


def parameters(config: Config, study: Study) -> float:
    """Return roughly how many parameters are trained; a hub encoder's name tells its size."""
    if study.model is not None:
        return config.models[study.model].billions * 1e9
    encoder = config.solver_of(study).encoder
    if encoder.source is not None:
        return _LARGE_ENCODER if "large" in encoder.source else BASE_ENCODER
    # An encoder from scratch with 3,000 words; the thought head is as large as eight layers.
    layer = 4 * encoder.width**2 + 2 * encoder.width * encoder.intermediate
    return (encoder.layers + 8) * layer + 3000 * encoder.width


def trains_on_gpu(config: Config, study: Study) -> bool:
    """Return whether the jobs of a compression use a GPU, where there is one."""
    is_large = parameters(config, study) > _SMALL
    return is_large and (study.model is None or config.models[study.model].device != "cpu")
