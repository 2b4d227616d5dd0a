"""A model that one job loads to measure or train it; nothing else shares its GPU meanwhile."""

import logging
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TypeVar

import torch

from headsweep.answers.client import ask_for_room, ask_idle_engines_to_leave
from headsweep.config import Model
from headsweep.engine.devices import Device, devices, held, visible_devices
from headsweep.errors import ModelError
from headsweep.machine.host import host_memory
from headsweep.machine.processors import is_on_gpu
from headsweep.models.footprint import cpu_megabytes
from headsweep.models.load import load_model
from headsweep.models.loaded import LoadedModel
from headsweep.store.layout import Store

_LOG = logging.getLogger(__name__)

_T = TypeVar("_T")


@contextmanager
def placed(section: Model) -> Iterator[str]:
    """Hold the GPUs, if there are any, for a model outside of an engine; yield where to load it.

    Ranks are vLLM's own; here as many GPUs hold the layers of such a model, one after the other,
    and from now on this process sees no others.
    """
    with gpu_held(section.device, section.tensor_parallel) as device:
        place = section.device
        if section.tensor_parallel > 1 and device.gpus:
            # PyTorch looks at this when the first model is loaded.
            os.environ["CUDA_VISIBLE_DEVICES"] = visible_devices(device.name.removeprefix("cuda:"))
            place = "balanced"
        yield place


@contextmanager
def gpu_held(place: str = "auto", ranks: int = 1) -> Iterator[Device]:
    """Hold the GPUs of a place, if it has any: ``auto`` is the first ones, if there are any.

    Says once for which GPU it waits. An engine leaves when its plan is done, or no job comes.
    Whoever holds a GPU asks no engine, which would wait for it.
    """
    device, *_ = devices(place, ranks)
    awaited: set[str] = set()

    def waits(gpu: str) -> None:
        if gpu not in awaited:
            _LOG.info("waiting for GPU %s, where another model is loaded", gpu)
            awaited.add(gpu)
        ask_for_room()

    with held(device, waits):
        yield device


def make_room(model: Model) -> None:
    """Have idle engines leave before a model is loaded that the main memory does not hold twice."""
    if not is_on_gpu(model.device) and 2 * 10**6 * cpu_megabytes(model) > host_memory():
        ask_idle_engines_to_leave()


def with_model(
    store: Store,
    name: str,
    measure: Callable[[LoadedModel], _T],
    dtype: str | None = None,
    attention: str | None = None,
) -> _T:
    """Load a model, and return what is measured on it; the model is gone afterwards.

    If the main memory does not hold it twice, idle engines leave first.

    Args:
        store: of a resolved config.
        name: of the model in the config.
        measure: keeps nothing of the model.
        dtype: of weights and activations; None: the model's own.
        attention: eager, sdpa or flash_attention_2; None: the model's own.

    Raises:
        ModelError: the model cannot be loaded, or what is measured does not fit into memory.
        TableError: what says where the model is is missing or damaged.
    """
    section = store.config.models[name]
    folder = str(store.model_folder(name))
    dtype = dtype or section.dtype
    loaded = section.model_copy(update={"dtype": dtype})
    make_room(loaded)
    try:
        with placed(section) as place:
            # No name holds the model: it is gone when its device is given back.
            attention = attention or section.attention
            return measure(load_model(folder, dtype=dtype, device=place, attention=attention))
    except torch.OutOfMemoryError:
        raise ModelError(
            "what is measured does not fit in the GPU's memory beside the model; use dtype "
            "bfloat16 or device: balanced, or end what else `nvidia-smi` shows there, and run again"
        ) from None
