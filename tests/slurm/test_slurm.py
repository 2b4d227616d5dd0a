"""The shipped profile on a real SLURM, while jobs are cancelled, stopped and cut off."""

import contextlib
import os
import re
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import cluster
import psutil
import pytest
import yaml
from cluster import Cluster, output, processes_of

from comparing import assert_same, contents
from mini import MINIATURE, REASONER, ROOT, Snakemake
from processes import wait_until

WITHOUT_ACCOUNTING = (
    *("--slurm-no-account", "--slurm-status-command", "squeue"),
    *("--slurm-init-seconds-before-status-checks", "2", "--seconds-between-status-checks", "2"),
)


@pytest.fixture(scope="module")
def slurm() -> Iterator[Cluster]:
    """A cluster of three nodes, where it may be installed."""
    if not os.environ.get("HEADROOM_SLURM"):
        pytest.skip("SLURM: `make slurm` installs it and runs this")
    cluster.install()
    with tempfile.TemporaryDirectory(prefix="headroom-slurm-") as folder:
        started = Cluster(Path(folder))
        try:
            started.start()
            yield started
        finally:
            started.stop()


SWEEP: dict[str, Any] = {
    **{key: MINIATURE[key] for key in ("run", "decodings")},
    "models": {"tiny": {**REASONER, "device": "auto"}},
    "questions": {"test": MINIATURE["questions"]["test"]},
    "sweeps": {"math": {"model": "tiny", "questions": "test", "layers": [0, 1]}},
}
"""A sweep of two layers."""


def profile(folder: Path) -> Path:
    """Write the shipped profile with partition and account named, as a user does."""
    values = yaml.safe_load((ROOT / "workflow/profiles/slurm/config.yaml").read_text())
    values["default-resources"] |= {"slurm_partition": cluster.PARTITION, "slurm_account": "none"}
    folder.mkdir(parents=True)
    (folder / "config.yaml").write_text(yaml.safe_dump(values))
    return folder


def running() -> dict[str, tuple[str, str]]:
    """Return node and comment of each running SLURM job, by its id."""
    lines = output("squeue", "--noheader", "--states=R", "--format=%i|%N|%k").splitlines()
    return {job: (node, comment) for job, node, comment in (line.split("|") for line in lines)}


def job_of(layer: str) -> str:
    """Return the running job that answers for a layer; nothing if there is none."""
    return next((job for job, (_, said) in running().items() if f"/{layer}_" in said), "")


def tables(folder: Path, layer: int) -> dict[Path, int]:
    """Return a layer's finished tables with their inodes: a table put back keeps its own.

    One without a second name yet would be written again, from its journal.
    """
    found = folder.glob(f"results/store/tiny-*/greedy-*/test-*/L{layer:02d}*.parquet")
    return {file: file.stat().st_ino for file in found if file.stat().st_nlink > 1}


def test_a_sweep_on_a_cluster_that_breaks_ends_with_the_files_of_a_local_run(slurm, tmp_path):
    local, far = tmp_path / "local", tmp_path / "far"
    local.mkdir()
    far.mkdir()
    Snakemake(local)(SWEEP)
    run = Snakemake(far)
    run(SWEEP, "--cores", "1", "fetch")
    log = tmp_path / "snakemake.log"
    process = run.start(
        SWEEP, "--workflow-profile", str(profile(tmp_path / "slurm")), *WITHOUT_ACCOUNTING, log=log
    )
    try:
        breakages = Breakages(slurm, far)
        wait_until(lambda: breakages.over, 1500)
        assert process.wait(1500) == 0
    except BaseException:
        print(log.read_text(), output("squeue", "--long", "--states=all", check=False), sep="\n")
        raise
    finally:
        process.kill()
        process.wait()
    for file, made in breakages.kept.items():
        assert file.stat().st_ino == made, f"{file} was answered again"
    assert contents(local / "results").keys() == contents(far / "results").keys()
    assert_same(local / "results", far / "results", frozenset({"mini/report.html"}))  # states times
    wait_until(lambda: not list(processes_of(PWD=str(far))), 300)  # engines leave when idle
    assert gpus_asked(far) == {True, False}  # drawing the questions needs none


class Breakages:
    """Whatever breaks a run: each once, as soon as there is something to break.

    A node is drained from the start; the base model's job runs out of time, layer 0's is cancelled
    and layer 1's node cut off, both when they have finished a table.
    """

    def __init__(self, slurm: Cluster, folder: Path) -> None:
        self._slurm, self._folder = slurm, folder
        self._waiting = [self._late, self._cancelled, self._cut_off]
        self._late_job = ""
        self.kept: dict[Path, int] = {}
        scontrol("NodeName=n1", "State=drain", "Reason=test")

    @property
    def over(self) -> bool:
        """Whether all have happened; looks for occasions."""
        self._waiting = [breakage for breakage in self._waiting if not breakage()]
        return not self._waiting

    def _late(self) -> bool:
        if not self._late_job:
            self._late_job = job_of("None")
            if not self._late_job:
                return False
            scontrol(f"JobId={self._late_job}", "TimeLimit=1")
        late = "JobState=TIMEOUT" in output("scontrol", "show", "job", self._late_job)
        for process in processes_of(SLURM_JOB_ID=self._late_job):  # it may have started more
            with contextlib.suppress(psutil.Error):  # on a cluster with cgroups none is left
                process.send_signal(signal.SIGKILL if late else signal.SIGSTOP)
        return late

    def _cancelled(self) -> bool:
        job = job_of("0")
        if found := bool(job and self._has_table(0)):
            subprocess.run(["scancel", job], check=True)
        return found

    def _cut_off(self) -> bool:
        job = job_of("1")
        if found := bool(job and self._has_table(1)):
            node, _ = running()[job]
            self._slurm.crash_node(node)
            self._slurm.start_node(node)
            scontrol("NodeName=n1", "State=resume")
        return found

    def _has_table(self, layer: int) -> bool:
        found = tables(self._folder, layer)
        self.kept |= found
        return bool(found)


def scontrol(*update: str) -> None:
    subprocess.run(["scontrol", "update", *update], check=True)


def gpus_asked(folder: Path) -> set[bool]:
    """Return whether the jobs of a folder asked for a GPU."""
    jobs = output("scontrol", "--oneliner", "show", "job").splitlines()
    return {
        bool(re.search(r"TresPer\w+=\S*gpu", job)) for job in jobs if f"WorkDir={folder}" in job
    }


def test_a_pilot_is_measured_in_one_allocation(slurm, tmp_path):
    profile(tmp_path / "workflow/profiles/slurm")
    (tmp_path / "sweep.yaml").write_text(yaml.safe_dump(SWEEP))
    command = [sys.executable, "-m", "headroom.cli", "pilot", "sweep.yaml", "--slurm"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert re.search(r"^tiny +42 ", done.stdout, re.M)  # 3 variants × 14 questions of 15
    assert gpus_asked(tmp_path) == {True}
