import os
from contextlib import contextmanager

import pytest

from example_config import config
from headsweep.generation import alone, devices

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
    monkeypatch.setattr(alone, "held", hold)
    monkeypatch.setattr(alone, "read_json", lambda _: {"folder": "big"})
    monkeypatch.setattr(alone, "load_model", lambda _, **how: how)
    planned = config(models={"big": model})
    assert alone.with_model(planned, "big", lambda how: how["device"]) == placement
    assert held == gpus
    assert os.environ["CUDA_VISIBLE_DEVICES"] == visible
