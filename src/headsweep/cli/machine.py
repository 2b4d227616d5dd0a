"""This machine: facts for a bug report."""

import os
import shutil
from pathlib import Path

from headsweep.files import paths


def describe() -> None:
    """Print facts for a bug report: versions, machine, SLURM."""
    from headsweep.answers.client import status
    from headsweep.files.record import git_commit, versions
    from headsweep.machine.host import host_cores, host_memory
    from headsweep.machine.processors import PATIENCE, has_gpu, output_of, usable_gpu_count
    from headsweep.workflow.resources import PROFILE, UNNAMED

    facts = {"git commit": git_commit() or "unknown: not a checkout", **versions()}
    print(*(f"{name} {value}" for name, value in facts.items()), sep="\n")
    cores = host_cores()
    memory = host_memory() / 1e9
    print(f"{cores} of {os.cpu_count()} cores, {memory:.0f} GB of memory")
    query = ("nvidia-smi", "--query-gpu=name,memory.total,driver_version", "--format=csv,noheader")
    if has_gpu():
        silent = f"unknown, for it does not say within {PATIENCE:.0f} s"
        print(output_of(*query) or f"GPUs of nvidia-smi: {silent}")
        usable = usable_gpu_count()
        print(f"GPUs that PyTorch can use: {silent if usable is None else usable}")
    else:
        print("no GPU")
    for name in ("OMP_NUM_THREADS", "CUDA_VISIBLE_DEVICES", "HF_HOME", "HF_HUB_OFFLINE"):
        print(f"{name}={os.environ.get(name, '')}")
    free = shutil.disk_usage(".").free / 1e9
    print(f"workflow, profiles, configs: {paths.SHIPPED}")
    print(f"results: {Path(paths.RESULTS).absolute()}, {free:.1f} GB free")
    print(f"engines that run here: {len(status())}")
    if not shutil.which("sbatch"):
        print("SLURM: no sbatch on the path")
        return
    print(f"SLURM: {output_of('sbatch', '--version') or 'sbatch does not answer'}")
    nodes = output_of("sinfo", "--noheader", "--format=%P %a %D nodes %G")
    print(nodes or "missing: sinfo does not answer; is the controller up?")
    if PROFILE.exists() and UNNAMED.encode() in PROFILE.read_bytes():
        print(f"missing: partition and account in {PROFILE}")
