"""What a pilot decides for a run, and how an engine divides its work."""

import pytest
import yaml

from example_config import changed
from headsweep.config import parse
from headsweep.engine.rows_at_once import questions_of_unit
from headsweep.errors import ConfigError, TableError
from headsweep.files.record import Stopwatch
from headsweep.machine import processors
from headsweep.store.pilot_settings import settings_file, unpiloted, write_settings
from headsweep.store.revisions import resolve
from mini import REASONER


def test_a_unit_of_work_is_half_of_what_is_left_for_each_worker_and_64_questions_at_least():
    assert [questions_of_unit(left, 2) for left in (500, 375, 200, 128, 64, 3, 1)] == [
        125,
        94,
        64,
        64,
        32,
        2,
        1,
    ]
    assert questions_of_unit(70, 1) == 64


@pytest.fixture
def gpu(pretended_gpu, tmp_path, monkeypatch):
    """A machine with a GPU, in a folder of its own; what tells its card."""
    monkeypatch.chdir(tmp_path)
    return pretended_gpu


def of_tiny(**model):
    return resolve(parse(changed(MINE, "models/tiny", {**REASONER, "device": "auto", **model})))


MINE = yaml.safe_load(
    """
    run: mine
    models: {tiny: {}}
    questions: {test: {benchmark: generated_math, split: test, n: 60}}
    decodings: {greedy: {max_new_tokens: 30}}
    sweeps: {math: {model: tiny, questions: test, layers: [1, 4]}}
    """
)


def test_a_run_takes_what_its_pilot_chose_unless_the_config_states_it_or_has_another_model(gpu):
    before = of_tiny()
    write_settings(before, {"tiny": {"backend": "vllm"}}, Stopwatch())
    after = of_tiny()
    assert before.models["tiny"].backend == "headsweep"
    assert after.models["tiny"].backend == "vllm"
    assert resolve(after) == after
    assert of_tiny(backend="headsweep").models["tiny"].backend == "headsweep"
    assert of_tiny(dtype="bfloat16").models["tiny"].backend == "headsweep"
    write_settings(after, {"tiny": {"backend": "headsweep"}}, Stopwatch())  # a second pilot
    assert of_tiny().models["tiny"].backend == "headsweep"
    file = settings_file(before)
    file.write_text(file.read_text().replace("headsweep", "vllm"))
    with pytest.raises(TableError):
        of_tiny()


def test_a_run_on_a_gpu_without_a_pilot_says_so_in_one_line(gpu):
    planned = of_tiny()
    (line,) = unpiloted(planned)
    assert line.startswith("no pilot of run 'mine' has tried tiny on Card X: `headsweep pilot")
    assert [*unpiloted(of_tiny(device="cpu"))] == []
    write_settings(planned, {"tiny": {"backend": "headsweep"}}, Stopwatch())
    assert [*unpiloted(of_tiny())] == []
    assert len([*unpiloted(of_tiny(dtype="bfloat16"))]) == 1
    gpu.write_text("#!/bin/sh\necho Card Y\n")
    (line,) = unpiloted(planned)
    assert "on Card Y" in line
    assert [*unpiloted(planned, local=False)] == []  # which card a cluster gives is not known here


@pytest.mark.parametrize(
    ("visible", "seen"),
    [
        ("", 0),
        ("-1", 0),
        ("NoDevFiles", 0),
        ("1", 1),
        ("GPU-a, MIG-b", 2),
        ("0,-1,1", 1),
        ("7,8,9", 2),
    ],
)
def test_gpus_are_those_that_cuda_may_see(visible, seen, gpu, monkeypatch):
    (processors._DEVICES / "nvidia1").touch()
    assert processors.gpu_count() == 2
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)
    assert processors.gpu_count() == seen


def test_without_a_gpu_nothing_is_said_but_of_a_cluster_s(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(processors, "_DEVICES", tmp_path)
    planned = of_tiny()
    assert [*unpiloted(planned)] == []
    (line,) = unpiloted(planned, local=False)
    assert "has tried tiny on its GPUs" in line


def test_what_a_pilot_chose_is_checked_against_the_config_of_today(gpu):
    write_settings(of_tiny(), {"tiny": {"backend": "vllm"}}, Stopwatch())
    placebos = changed(MINE, "models/tiny", {**REASONER, "device": "auto"})
    placebos = parse(changed(placebos, "sweeps/math/placebos", "noise"))
    said = r"^results/mine/pilot\.json has models\.tiny\.backend: vllm; .*: sweeps\.math\.placebos"
    with pytest.raises(ConfigError, match=said):
        resolve(placebos)
