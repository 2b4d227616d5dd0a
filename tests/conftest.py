import gc
import json
import os
import shutil
from contextlib import chdir
from functools import cache
from pathlib import Path

import pytest
from filelock import FileLock

from headsweep import telling
from headsweep.store.layout import Store

gc.disable()  # until all is collected that is imported

# Before any library reads them: no network, a GPU's kernels interpreted on the CPU, and one
# thread for each worker of the tests.
os.environ["HF_HUB_OFFLINE"] = "1"
os.environ["TRITON_INTERPRET"] = "1"
os.environ["OMP_NUM_THREADS"] = "1"  # with more, what forks after a computation may hang
os.environ.setdefault("OMP_WAIT_POLICY", "passive")  # where there are more: none spins as it waits

ALLOWED_SKIPS = (
    "this machine has a GPU",
    "vLLM: ",  # has an environment of its own, too large for every run
    "SLURM: ",  # installs a cluster on this machine: `make slurm`
    "nightly: ",  # takes long: `make nightly`
    "namespaces: ",  # an unprivileged container imitates no hosts
    *filter(None, [os.environ.get("ALLOWED_SKIP")]),
)
"""Beginnings of the reasons for which a test may skip in CI; everywhere else any reason will do."""


LONGEST = (
    "workflow/test_miniature.py",
    "faults/test_faults.py",
    "workflow/test_engine_deaths.py",
    "engine/test_verify.py",
    "workflow/test_compression.py",
    "recovery/test_recovery.py",
    "compression/test_rounds.py",
    "workflow/test_map.py",
    "workflow/test_reruns.py",
    "cli/test_how_tos.py",
    "engine/test_server.py",
)
"""Files that take longest, longest first; `test_reruns` needs what `test_miniature` makes."""


def pytest_collection_modifyitems(items):
    """Hand out the longest files first, so that no worker is left alone with one at the end."""
    places = {name: place for place, name in enumerate(LONGEST)}
    here = Path(__file__).parent
    items.sort(key=lambda item: places.get(str(item.path.relative_to(here)), len(places)))


@pytest.hookimpl(tryfirst=True)
def pytest_runtestloop():
    """Leave what is loaded by now, a million objects, out of all later collections of garbage.

    They took half of the time of tests that train. Until here there is none to collect.
    """
    gc.freeze()
    gc.enable()


GONE = {
    "whole": (),
    "sweep": ("selectors", "compressions", "frontiers"),
    "compression": ("selectors", "sweeps", "comparisons", "frontiers"),
}
"""What each kind of simulated run has not."""


@pytest.fixture(scope="session")
def shared(tmp_path_factory, worker_id):
    """The folder that all workers share."""
    own = tmp_path_factory.getbasetemp()
    return own if worker_id == "master" else own.parent


@pytest.fixture(scope="session")
def simulated(shared):
    """Return what makes a kind of simulated run, its report included, once for all workers.

    Only the whole one has figures, which take long and which the page shows by links.
    """
    import simulation
    from headsweep.page.report import write_report  # slow to import
    from headsweep.results import jobs

    @cache
    def made(kind):
        config = simulation.whole().model_copy(update={section: {} for section in GONE[kind]})
        folder, finished = shared / f"simulated-{kind}", shared / f"simulated-{kind}.finished"
        whole = None if kind == "whole" else made("whole")[0].parents[1]
        with FileLock(shared / f"simulated-{kind}.lock"):
            if not finished.exists():
                if whole:  # its tables serve; what is told of them does not
                    shutil.copytree(whole, folder, ignore=shutil.ignore_patterns("figures"))
                else:
                    folder.mkdir()
                with chdir(folder):
                    if whole:
                        jobs.write_claims(Store(config), simulation.PUBLISHED)
                    else:
                        simulation.fill(config)
                        simulation.write(config)
                    write_report(Store(config))
                finished.touch()
        return folder / "results" / config.run, config

    return made


@pytest.fixture(autouse=True)
def _no_step_speaks(monkeypatch):
    """Have steps of commands say nothing of the time they take: under load they would, anywhere."""
    monkeypatch.setattr(telling, "_PAUSE", 3600.0)


@pytest.fixture
def enter_copy(tmp_path, monkeypatch):
    """Return what copies a folder and enters the copy, which the test may change."""

    def enter(folder):
        shutil.copytree(folder, tmp_path, dirs_exist_ok=True)
        monkeypatch.chdir(tmp_path)

    return enter


@pytest.fixture(scope="session")
def headsweep_data():
    folder = os.environ.get("HEADSWEEP_DATA")
    if not folder:
        pytest.skip("real data: set HEADSWEEP_DATA to the folder that holds math500.jsonl")
    return Path(folder)


@pytest.fixture(scope="session")
def smol(headsweep_data):
    return headsweep_data.parent / "models" / "SmolLM2-135M-Instruct.Q4_1.gguf"


@pytest.fixture(scope="session")
def converted(smol, shared):
    """The folder that `smol` was converted to in float32, for all workers, and the facts of it."""
    from headsweep.models import gguf  # slow to import

    folder, facts = shared / "smol", shared / "smol.json"
    with FileLock(shared / "smol.lock"):
        if not facts.exists():
            facts.write_text(json.dumps(gguf.convert(smol, folder, "float32")), encoding="utf-8")
    return folder, json.loads(facts.read_text(encoding="utf-8"))


@pytest.fixture
def pretended_gpu(tmp_path, monkeypatch):
    """A GPU, as the kernel lists it and `nvidia-smi` names it; the program, to be changed."""
    from headsweep.machine import processors

    devices = tmp_path / "dev"
    devices.mkdir()
    (devices / "nvidia0").touch()
    monkeypatch.setattr(processors, "_DEVICES", devices)
    monkeypatch.setattr("headsweep.workflow.preflight.usable_gpu_count", lambda: 1)
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    program = tmp_path / "bin" / "nvidia-smi"
    program.parent.mkdir()
    program.write_text("#!/bin/sh\necho Card X\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{program.parent}{os.pathsep}{os.environ['PATH']}")
    return program


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport():
    """Fail a test that skips in CI: what CI does not run, nobody runs."""
    report = yield
    if os.environ.get("CI") and report.skipped and isinstance(report.longrepr, tuple):
        reason = report.longrepr[2].removeprefix("Skipped: ")
        if not reason.startswith(ALLOWED_SKIPS):
            report.outcome = "failed"
            report.longrepr = f"skipped in CI: {reason}"
    return report
