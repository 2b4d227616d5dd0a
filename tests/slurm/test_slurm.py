"""The shipped profile on a real SLURM of three nodes on this host, while jobs are broken.

It needs root on Debian or Ubuntu: SLURM's job steps read `/etc/slurm` and nothing else. A host that
has a SLURM of its own is left alone.
"""

import contextlib
import os
import re
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from pathlib import Path

import psutil
import pytest
import yaml

from comparing import assert_same
from mini import MINIATURE, REASONER, ROOT, Snakemake
from processes import wait_until

NODES = ("n1", "n2", "n3")
PARTITION = "debug"
SETTINGS = Path("/etc/slurm")

_CONFIG = """\
ClusterName=headsweep
SlurmctldHost={host}
SlurmUser=root
SlurmdUser=root
StateSaveLocation={folder}/state
SlurmctldPidFile={folder}/slurmctld.pid
SlurmctldLogFile={folder}/slurmctld.log
SlurmdSpoolDir={folder}/%n
SlurmdPidFile={folder}/%n.pid
SlurmdLogFile={folder}/%n.log
SlurmdParameters=config_overrides
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SwitchType=switch/none
MpiDefault=none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core_Memory
AccountingStorageType=accounting_storage/none
JobAcctGatherType=jobacct_gather/none
GresTypes=gpu
ReturnToService=2
MinJobAge=3600
DefMemPerCPU=500
KillWait=5
SlurmdTimeout=15
{nodes}
PartitionName={partition} Nodes=ALL Default=YES State=UP
"""
_NODE = (
    "NodeName={name} NodeHostname={host} NodeAddr=127.0.0.1 Port={port} "
    "CPUs=16 RealMemory=64000 Gres=gpu:h200:1"
)


class Cluster:
    """A controller and three nodes with a GPU each, as far as SLURM knows."""

    def __init__(self, folder):
        self._folder = folder
        self._started = {}

    def start(self):
        host = socket.gethostname().partition(".")[0]
        (self._folder / "state").mkdir(parents=True)
        nodes = "\n".join(
            _NODE.format(name=name, host=host, port=17001 + number)
            for number, name in enumerate(NODES)
        )
        text = _CONFIG.format(host=host, folder=self._folder, nodes=nodes, partition=PARTITION)
        (SETTINGS / "slurm.conf").write_text(text)
        (SETTINGS / "gres.conf").write_text(
            "AutoDetect=off\nNodeName=n[1-3] Name=gpu Type=h200 File=/dev/null\n"
        )
        if not Path("/run/munge/munge.socket.2").exists():
            Path("/run/munge").mkdir(mode=0o755, exist_ok=True)
            shutil.chown("/run/munge", "munge", "munge")
            self._run("munged", "runuser", "-u", "munge", "--", "munged", "--foreground")
            wait_until(Path("/run/munge/munge.socket.2").exists, 100)
        self._run("slurmctld", "slurmctld", "-D")
        for name in NODES:
            self.start_node(name)
        wait_until(lambda: self.states().count("idle") == len(NODES), 300)

    def start_node(self, name):
        self._run(name, "slurmd", "-D", "-N", name)

    def crash_node(self, name):
        """Kill a node's daemon and all that runs on the node, as a power cut does."""
        daemon = self._started.pop(name)
        daemon.kill()
        daemon.wait()
        for process in processes_of(SLURMD_NODENAME=name):
            with contextlib.suppress(psutil.Error):
                process.kill()

    def states(self):
        """Return the state of each node, without what SLURM adds to it."""
        listed = output("sinfo", "--Node", "--noheader", "--format=%t").split()
        return [state.rstrip("*~#$@+") for state in listed]

    def stop(self):
        subprocess.run(["scancel", "--user=root", "--full"], check=False)
        deadline = time.monotonic() + 20
        while output("squeue", "--noheader", check=False).strip() and time.monotonic() < deadline:
            time.sleep(0.2)
        for process in reversed(self._started.values()):
            process.send_signal(signal.SIGTERM)
        for process in self._started.values():
            try:
                process.wait(20)
            except subprocess.TimeoutExpired:
                process.kill()
        for name in ("slurm.conf", "gres.conf"):
            (SETTINGS / name).unlink(missing_ok=True)

    def _run(self, name, *command):
        with (self._folder / f"{name}.out").open("ab") as log:
            self._started[name] = subprocess.Popen(
                command, stdout=log, stderr=log, start_new_session=True
            )


def processes_of(**variables):
    """Yield the processes that have some environment variables."""
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error):
            if variables.items() <= process.environ().items():
                yield process


def output(*command, check=True):
    return subprocess.run(command, capture_output=True, text=True, check=check).stdout


WITHOUT_ACCOUNTING = (
    *("--slurm-no-account", "--slurm-status-command", "squeue"),
    *("--slurm-init-seconds-before-status-checks", "2", "--seconds-between-status-checks", "2"),
)


@pytest.fixture(scope="module")
def slurm():
    """A cluster of three nodes."""
    if not os.environ.get("HEADSWEEP_SLURM"):
        pytest.skip("SLURM: `make slurm` installs it and runs this")
    if os.geteuid() != 0:
        pytest.skip("SLURM: only root may start it")
    if (SETTINGS / "slurm.conf").exists():
        pytest.skip(f"SLURM: {SETTINGS}/slurm.conf is of a SLURM that is in use here")
    if not all(map(shutil.which, ("slurmctld", "slurmd", "sbatch", "munged"))):
        pytest.skip("SLURM: `make slurm` could not install it; it takes apt-get")
    with tempfile.TemporaryDirectory(prefix="headsweep-slurm-") as folder:
        started = Cluster(Path(folder))
        try:
            started.start()
            yield started
        finally:
            started.stop()


SWEEP = {
    **{key: MINIATURE[key] for key in ("run", "decodings")},
    "models": {"tiny": {**REASONER, "device": "auto"}},
    "questions": {"test": MINIATURE["questions"]["test"]},
    "sweeps": {"math": {"model": "tiny", "questions": "test", "layers": [0, 1]}},
}
"""A sweep of two layers."""


def profile(folder):
    """Write the shipped profile with partition and account named, as a user does."""
    values = yaml.safe_load((ROOT / "workflow/profiles/slurm/config.yaml").read_text())
    values["default-resources"] |= {"slurm_partition": PARTITION, "slurm_account": "none"}
    folder.mkdir(parents=True)
    (folder / "config.yaml").write_text(yaml.safe_dump(values))
    return folder


def running():
    lines = output("squeue", "--noheader", "--states=R", "--format=%i|%N|%k").splitlines()
    return {job: (node, comment) for job, node, comment in (line.split("|") for line in lines)}


def job_of(layer):
    """Return the running job that answers for a layer; nothing if there is none."""
    return next((job for job, (_, said) in running().items() if f"/{layer}_" in said), "")


def tables(folder, layer):
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
    assert_same(local / "results", far / "results", frozenset({"mini/report.html"}))  # states times
    wait_until(lambda: not list(processes_of(PWD=str(far))), 300)  # engines leave when idle
    assert gpus_asked(far) == {True, False}  # drawing the questions needs none


class Breakages:
    """Whatever breaks a run: each once, as soon as there is something to break.

    A node is drained from the start; the base model's job runs out of time, layer 0's is cancelled
    and layer 1's node cut off, both when they have finished a table.
    """

    def __init__(self, slurm, folder):
        self._slurm, self._folder = slurm, folder
        self._waiting = [self._late, self._cancelled, self._cut_off]
        self._late_job = ""
        self.kept = {}
        scontrol("NodeName=n1", "State=drain", "Reason=test")

    @property
    def over(self):
        """Whether all have happened; looks for occasions."""
        self._waiting = [breakage for breakage in self._waiting if not breakage()]
        return not self._waiting

    def _late(self):
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

    def _cancelled(self):
        job = job_of("0")
        if found := bool(job and self._has_table(0)):
            subprocess.run(["scancel", job], check=True)
        return found

    def _cut_off(self):
        job = job_of("1")
        node, _ = running().get(job, ("", ""))  # it may have ended
        if found := bool(node and self._has_table(1)):
            self._slurm.crash_node(node)
            self._slurm.start_node(node)
            scontrol("NodeName=n1", "State=resume")
        return found

    def _has_table(self, layer):
        found = tables(self._folder, layer)
        self.kept |= found
        return bool(found)


def scontrol(*update):
    subprocess.run(["scontrol", "update", *update], check=True)


def gpus_asked(folder):
    jobs = output("scontrol", "--oneliner", "show", "job").splitlines()
    return {
        bool(re.search(r"TresPer\w+=\S*gpu", job)) for job in jobs if f"WorkDir={folder}" in job
    }
