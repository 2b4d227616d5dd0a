from contextlib import contextmanager
from pathlib import Path

import pytest

from example_config import STUDIES, changed, config
from headsweep.compression import arm_jobs, arm_measurements
from headsweep.config import parse
from headsweep.generation import alone, prepare
from headsweep.generation.devices import Device
from headsweep.planning.batches import arms
from headsweep.planning.store import Store


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
    monkeypatch.setattr(Store, "model_folder", lambda *_: Path("big"))
    monkeypatch.setattr(alone, "load_model", lambda _, **how: how)
    planned = config(models={"big": model})
    assert alone.with_model(planned, "big", lambda how: how["device"]) == placement
    assert held == [placement]


class AskedError(Exception):
    """A GPU is asked for."""


@pytest.mark.parametrize(
    ("job", "device"),
    [
        (lambda config: arm_jobs.train_teacher(config, "tiny", "made", 0), "auto"),
        (lambda config: arm_jobs.compress_arm(config, **arms(config, "words")[1].wildcards, seed=0),
         "auto"),
        (lambda config: arm_jobs.compress_arm(config, **arms(config, "own")[1].wildcards, seed=0),
         "cpu"),
        (lambda config: arm_measurements.measure(config, "words"), "auto"),
        (lambda config: prepare.embed_questions(config, "minilm", "test"), "auto"),
    ],
)  # fmt: skip
def test_what_trains_measures_or_embeds_asks_for_the_gpu_first(job, device, monkeypatch):
    def hold(device, waits):
        raise AskedError(device.name)

    monkeypatch.setattr(alone, "devices", lambda device: [Device(device)])
    monkeypatch.setattr(alone, "held", hold)
    monkeypatch.setattr(Store, "read", lambda *_, **__: None)
    with pytest.raises(AskedError, match=device):
        job(parse(changed(STUDIES, "models/big/device", "cpu")))
