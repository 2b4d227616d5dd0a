import os
from contextlib import contextmanager
from pathlib import Path
from unittest.mock import MagicMock, Mock

import pytest
import torch

from example_config import STUDIES, changed, config
from headsweep.answers import exclusive, prepare
from headsweep.config import parse
from headsweep.engine import devices
from headsweep.engine.devices import Device
from headsweep.errors import ModelError
from headsweep.experiments.compression import arm_measurements
from headsweep.experiments.compression.arm_jobs import compress_arm, train_teacher
from headsweep.models import embeddings
from headsweep.store.batches import arms, solvers
from headsweep.store.layout import Store

GPUS = ["GPU-a", "GPU-b", "GPU-c", "GPU-d"]


@pytest.mark.parametrize(
    ("model", "placement", "gpus", "visible"),
    [
        ({"backend": "vllm", "tensor_parallel": 2}, "balanced", GPUS[:2], "6,4"),
        ({"backend": "vllm", "tensor_parallel": 4}, "balanced", GPUS, "6,4,2,0"),
        ({"backend": "vllm"}, "auto", GPUS[:1], "6,4,2,0"),
        ({"backend": "vllm", "tensor_parallel": 4, "device": "cpu"}, "cpu", [], "6,4,2,0"),
        ({"device": "cuda:1"}, "cuda:1", GPUS[1:2], "6,4,2,0"),
        ({"device": "balanced"}, "balanced", GPUS, "6,4,2,0"),
    ],
)
def test_a_model_of_several_ranks_of_vllm_is_measured_on_as_many_gpus(
    model, placement, gpus, visible, monkeypatch
):
    held = []

    @contextmanager
    def hold(device, waits):
        held.extend(device.gpus)
        yield

    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "6,4,2,0")
    monkeypatch.setattr(devices, "_visible_gpus", lambda: GPUS)
    monkeypatch.setattr(exclusive, "held", hold)
    monkeypatch.setattr(Store, "model_folder", lambda *_: Path("big"))
    monkeypatch.setattr(exclusive, "load_model", lambda _, **how: how)
    planned = config(models={"big": model})
    assert exclusive.with_model(Store(planned), "big", lambda how: how["device"]) == placement
    assert held == gpus
    assert os.environ["CUDA_VISIBLE_DEVICES"] == visible


def test_what_to_do_without_memory_is_no_engines_to_stop(monkeypatch):
    """None has the GPU: its lock is held."""

    def full(_):
        raise torch.OutOfMemoryError

    monkeypatch.setattr(Store, "model_folder", lambda *_: Path("big"))
    monkeypatch.setattr(exclusive, "load_model", lambda *_, **__: None)
    planned = config(models={"big": {"device": "cpu"}})
    with pytest.raises(ModelError, match=r"beside the model; use dtype .* `nvidia-smi` shows"):
        exclusive.with_model(Store(planned), "big", full)


@pytest.mark.parametrize(("gigabytes", "asked"), [(30, 1), (40, 0)])
@pytest.mark.parametrize(
    "job",
    [
        lambda planned: exclusive.with_model(Store(planned), "big", lambda _: None, "float32"),
        lambda planned: prepare.embed_questions(Store(planned), "own", "test"),
    ],
)
def test_idle_engines_leave_for_a_model_that_the_memory_does_not_hold_twice(
    gigabytes, asked, job, monkeypatch
):
    """In float32 it takes 2.7 times 6 GB."""

    def loads(*_, **__):
        raise ModelError("it begins to load")

    told = Mock()
    monkeypatch.setattr(exclusive, "ask_idle_engines_to_leave", told)
    monkeypatch.setattr(exclusive, "host_memory", lambda: gigabytes * 10**9)
    monkeypatch.setattr(exclusive, "load_model", loads)
    monkeypatch.setattr(embeddings, "load_embedder", loads)
    for method in ("model_folder", "embedder_folder", "read"):
        monkeypatch.setattr(Store, method, MagicMock())
    embedders = {"own": {"source": None, "revision": None, "model": "big"}}
    planned = config(models={"big": {"billions": 1.5, "device": "cpu"}}, embedders=embedders)
    with pytest.raises(ModelError, match="begins to load"):
        job(planned)
    assert told.call_count == asked


class AskedError(Exception):
    """A GPU is asked for."""


@pytest.mark.parametrize(
    ("job", "device"),
    [
        (lambda store: train_teacher(store, *max(solvers(store.config)), 0), "cpu"),  # tiny
        (lambda store: train_teacher(store, *min(solvers(store.config)), 0), "auto"),  # base
        (lambda store: compress_arm(store, **arms(store.config, "words")[1].wildcards, seed=0),
         "cpu"),
        (lambda store: compress_arm(store, **arms(store.config, "own")[1].wildcards, seed=0),
         "cpu"),
        (lambda store: arm_measurements.measure(store, "words"), "auto"),
        (lambda store: prepare.embed_questions(store, "minilm", "test"), "auto"),
    ],
)  # fmt: skip
def test_what_trains_measures_or_embeds_asks_for_the_gpu_first(job, device, monkeypatch):
    def hold(device, waits):
        raise AskedError(device.name)

    monkeypatch.setattr(exclusive, "devices", lambda device, ranks: [Device(device)])
    monkeypatch.setattr(exclusive, "held", hold)
    monkeypatch.setattr(Store, "read", lambda *_, **__: None)
    with pytest.raises(AskedError, match=device):
        job(Store(parse(changed(STUDIES, "models/big/device", "cpu"))))
