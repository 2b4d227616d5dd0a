"""A real SLURM of three nodes on this host: installed, started, broken, stopped.

It needs root on Debian or Ubuntu: SLURM's job steps read `/etc/slurm` and nothing else. A host that
has a SLURM of its own is left alone.
"""

import contextlib
import os
import shutil
import signal
import socket
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from processes import wait_until

PACKAGES = ("slurmctld", "slurmd", "slurm-client", "munge", "slurm-wlm-basic-plugins")
NODES = ("n1", "n2", "n3")
PARTITION = "debug"
SETTINGS = Path("/etc/slurm")

_CONFIG = """\
ClusterName=headroom
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

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._started: dict[str, subprocess.Popen[bytes]] = {}

    def start(self) -> None:
        """Write the configuration, start all daemons, wait until all nodes are idle."""
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

    def start_node(self, name: str) -> None:
        """Start a node's daemon."""
        self._run(name, "slurmd", "-D", "-N", name)

    def crash_node(self, name: str) -> None:
        """Kill a node's daemon and all that runs on the node, as a power cut does."""
        daemon = self._started.pop(name)
        daemon.kill()
        daemon.wait()
        for process in processes_of(SLURMD_NODENAME=name):
            with contextlib.suppress(psutil.Error):
                process.kill()

    def states(self) -> list[str]:
        """Return the state of each node, without what SLURM adds to it."""
        listed = output("sinfo", "--Node", "--noheader", "--format=%t").split()
        return [state.rstrip("*~#$@+") for state in listed]

    def stop(self) -> None:
        """Cancel all jobs, stop all daemons, remove the configuration."""
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

    def _run(self, name: str, *command: str) -> None:
        with (self._folder / f"{name}.out").open("ab") as log:
            self._started[name] = subprocess.Popen(
                command, stdout=log, stderr=log, start_new_session=True
            )


def install() -> None:
    """Install SLURM from the distribution's packages, unless there is one that is not ours."""
    if os.geteuid() != 0:
        pytest.skip("SLURM: only root may install and start it")
    if (SETTINGS / "slurm.conf").exists():
        pytest.skip(f"SLURM: {SETTINGS}/slurm.conf is of a SLURM that is in use here")
    if all(map(shutil.which, ("slurmctld", "slurmd", "sbatch", "munged"))):
        return
    if not shutil.which("apt-get"):
        pytest.skip("SLURM: it is installed by apt-get only, which is not here")
    install = ["install", "-qq", "--yes", "--no-install-recommends", *PACKAGES]
    variables = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
    options: dict[str, Any] = {"env": variables, "capture_output": True, "text": True}
    for arguments in (["update", "-qq"], install):
        done = subprocess.run(["apt-get", *arguments], check=False, **options)
        if done.returncode:
            pytest.skip(f"SLURM: apt-get fails: {done.stderr.strip().splitlines()[-1:]}")


def processes_of(**variables: str) -> Iterator[psutil.Process]:
    """Yield the processes that have some environment variables."""
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error):
            if variables.items() <= process.environ().items():
                yield process


def output(*command: str, check: bool = True) -> str:
    """Return what a command prints."""
    return subprocess.run(command, capture_output=True, text=True, check=check).stdout
