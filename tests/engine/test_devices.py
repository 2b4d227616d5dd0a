"""GPUs, without one: who counts them, and who waits for whom. Their UUIDs are injected."""

import multiprocessing
import os
import subprocess
import sys
from contextlib import ExitStack
from itertools import takewhile
from types import SimpleNamespace

import pytest
import torch

import inline
from batch_of import batch_of
from headsweep.answers import activations, exclusive, worker
from headsweep.engine import devices
from headsweep.engine.devices import Device
from headsweep.errors import EngineError
from headsweep.files.tables import ACTIVATIONS
from headsweep.variants import BASE
from processes import wait_until

pytestmark = pytest.mark.filterwarnings("ignore:This process:DeprecationWarning")  # of forking

TAKING = (
    "import sys, pathlib; from headsweep.files.locks import Locks; "
    "locks = Locks(pathlib.Path(sys.argv[1]), shared=True); "
    "print(locks.take(sys.argv[2]), flush=True); "
    "sys.stdin.read()"
)


@pytest.fixture
def counted_by(tmp_path, monkeypatch):
    """Have torch see three GPUs; return who has looked at them."""
    file = tmp_path / "counted"

    def count():
        file.write_text(str(os.getpid()))
        return 3

    monkeypatch.setattr(torch.cuda, "device_count", count)
    properties = [SimpleNamespace(uuid=f"uuid-{number}") for number in range(3)]
    monkeypatch.setattr(torch.cuda, "get_device_properties", properties.__getitem__)
    return lambda: int(file.read_text())


def test_a_child_counts_the_gpus(counted_by, monkeypatch):
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    every = [Device(f"cuda:{number}", (f"uuid-{number}",)) for number in range(3)]
    assert devices.devices("auto") == every
    assert counted_by() != os.getpid()
    assert devices.devices("cuda") == [Device("cuda", ("uuid-0",))]
    assert devices.devices("cuda:2") == [Device("cuda:2", ("uuid-2",))]
    assert devices.devices("balanced") == [Device("balanced", ("uuid-0", "uuid-1", "uuid-2"))]
    assert devices.devices("cpu") == [Device("cpu")]
    pair = Device("cuda:0,1", ("uuid-0", "uuid-1"))
    assert devices.devices("auto", together=2) == [pair], "the third stays free"
    with pytest.raises(EngineError, match="tensor_parallel: 4, but there are 3 GPUs here; lower"):
        devices.devices("auto", together=4)
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "MIG-a,MIG-b,MIG-c,MIG-d")
    parts = [device.gpus for device in devices.devices("auto")]
    assert parts == [("MIG-a",), ("MIG-b",), ("MIG-c",)], "as many as torch counts"


def test_without_gpus_there_is_the_cpu_and_a_count_that_dies_is_told(monkeypatch):
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 0)
    assert devices.devices("auto") == [Device("cpu")]
    assert devices.devices("auto", together=2) == [Device("cpu")], "ranks are processes there"
    monkeypatch.setattr(torch.cuda, "device_count", lambda: os._exit(7))
    with pytest.raises(EngineError, match=r"^counting the GPUs has ended with status 7; .*$"):
        devices.devices("auto")


@pytest.fixture
def taken(tmp_path, monkeypatch):
    """A process that has GPU-1."""
    monkeypatch.setattr(devices, "LOCKS", tmp_path / "gpus")
    monkeypatch.setattr(devices, "_SECONDS_BETWEEN_TRIES", 0.02)
    command = [sys.executable, "-c", TAKING, str(devices.LOCKS), "GPU-1"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as holder:
        assert holder.stdout.readline() == b"True\n"
        yield holder
        holder.kill()


def test_activations_load_no_model_onto_a_gpu_that_another_process_has(
    run_config, taken, monkeypatch
):
    names = ("tiny", "greedy", "small")
    inline.run(run_config, *names, BASE)
    monkeypatch.setattr(exclusive, "devices", lambda *_: [Device("cpu", ("GPU-1",))])
    asked, load = [], exclusive.load_model

    def ask_for_room():
        asked.append(taken.poll())
        if len(asked) == 3:
            taken.kill()
            taken.wait()

    def loads(*arguments, **options):
        assert taken.poll() is not None, "the GPU is another's"
        return load(*arguments, **options)

    monkeypatch.setattr(exclusive, "ask_for_room", ask_for_room)
    monkeypatch.setattr(exclusive, "load_model", loads)
    activations.run(batch_of(run_config, *names))
    assert asked[:3] == [None, None, None]
    assert batch_of(run_config, *names).path(ACTIVATIONS).exists()


def test_a_gpu_is_free_again_after_use_and_others_are_not_waited_for(taken, monkeypatch):
    waited = []
    with devices.held(Device("cuda:1", ("GPU-2",)), waited.append):
        pass
    assert waited == []
    with devices.held(Device("cpu"), waited.append):
        pass

    def give_up(gpu):
        raise TimeoutError(gpu)

    with pytest.raises(TimeoutError, match="GPU-1"), devices.held(Device("x", ("GPU-1",)), give_up):
        pass
    monkeypatch.setattr(devices, "LOCKS", devices.LOCKS.with_name("spoilt"))
    devices.LOCKS.mkdir()  # a warning, and no lock
    with devices.held(Device("x", ("GPU-1",)), give_up):
        pass


def is_free(gpu):
    """Tell whether another process can take a GPU."""
    command = [sys.executable, "-c", TAKING, str(devices.LOCKS), gpu]
    done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, check=True)
    return done.stdout == b"True\n"


def test_a_gpu_that_a_process_holds_twice_is_free_after_the_last(tmp_path, monkeypatch):
    """As in a notebook, where a second `Solver` takes the first one's name."""
    monkeypatch.setattr(devices, "LOCKS", tmp_path / "gpus")

    def hold():
        holding = ExitStack()
        holding.enter_context(devices.held(Device("cuda:0", ("GPU-1",)), pytest.fail))
        return holding

    solver = hold()
    assert not is_free("GPU-1")
    solver = hold()  # and the first is collected
    assert not is_free("GPU-1")
    del solver
    assert is_free("GPU-1")


def test_whoever_gives_up_waiting_for_a_gpu_keeps_none(taken):
    def give_up(gpu):
        raise TimeoutError(gpu)

    both = Device("x", ("GPU-0", "GPU-1"))
    with pytest.raises(TimeoutError, match="GPU-1"), devices.held(both, give_up):
        pass
    assert is_free("GPU-0")


def test_a_worker_that_has_its_gpu_waits_for_it_no_more(taken, monkeypatch):
    """Loading a large model takes minutes, in which jobs would hear of a GPU that is free."""
    monkeypatch.setattr(worker, "ask_for_room", lambda: None)
    context = multiprocessing.get_context("fork")
    ours, theirs = context.Pipe()
    given = (theirs, SimpleNamespace, os.getpid(), Device("cuda:0", ("GPU-1",)))
    process = context.Process(target=worker.serve, args=given)
    process.start()
    try:
        assert ours.recv() == ("waits", "GPU-1")
        taken.kill()
        taken.wait()
        words = list(takewhile(lambda said: said != ("ready", None), iter(ours.recv, None)))
        assert words[-1] == ("waits", "")
        assert {*words[:-1]} <= {("waits", "GPU-1")}
    finally:
        process.kill()
        process.join()


def test_an_idle_worker_gives_back_memory_once(tmp_path, monkeypatch):
    emptied = tmp_path / "emptied"

    def empty():
        with emptied.open("a") as stream:
            stream.write(".")

    monkeypatch.setattr(worker, "_SECONDS_TO_REST", 0.01)
    context = multiprocessing.get_context("fork")
    ours, theirs = context.Pipe()
    answering = SimpleNamespace(run=lambda unit: [unit], rest=empty)
    given = (theirs, lambda: answering, os.getpid(), Device("cpu"))
    process = context.Process(target=worker.serve, args=given)
    process.start()
    try:
        assert ours.recv() == ("ready", None)
        wait_until(emptied.exists)
        ours.send(5)
        assert ours.recv() == ("answer", 5)
        assert ours.recv() == ("ready", None)
        wait_until(lambda: emptied.read_text() == "..")
    finally:
        process.kill()
        process.join()
