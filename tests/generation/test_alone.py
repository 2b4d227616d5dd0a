from contextlib import contextmanager

import pytest

from example_config import config
from headsweep.generation import alone
from headsweep.generation.devices import Device


@pytest.mark.parametrize(
    ("model", "placement"),
    [
        ({"backend": "vllm", "tensor_parallel": 4}, "balanced"),
        ({"backend": "vllm"}, "auto"),
        ({"backend": "vllm", "tensor_parallel": 4, "device": "cpu"}, "cpu"),
        ({"device": "cuda:1"}, "cuda:1"),
    ],
)
def test_a_model_of_several_ranks_of_vllm_is_measured_on_all_gpus(model, placement, monkeypatch):
    held = []

    @contextmanager
    def hold(device, waits):
        held.append(device.name)
        yield

    monkeypatch.setattr(alone, "devices", lambda device: [Device(device)])
    monkeypatch.setattr(alone, "held", hold)
    monkeypatch.setattr(alone, "read_json", lambda _: {"folder": "big"})
    monkeypatch.setattr(alone, "load_model", lambda _, **how: how)
    planned = config(models={"big": model})
    assert alone.with_model(planned, "big", lambda how: how["device"]) == placement
    assert held == [placement]
