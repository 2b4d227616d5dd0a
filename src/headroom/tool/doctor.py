"""`headroom doctor [CONFIG]`: facts for a bug report, and what a config lacks.

It changes, fetches and starts nothing, and loads no model.
"""

import os
import shutil
import subprocess
from collections.abc import Iterator
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from headroom import paths
from headroom.config import Config, load
from headroom.errors import HeadroomError
from headroom.generation.client import status
from headroom.models.source import local_folder
from headroom.planning.batches import batches
from headroom.planning.cost import generation_cost
from headroom.planning.inputs import check_devices, preflight, resolve
from headroom.planning.store import Store
from headroom.record import git_commit, versions

_SECONDS = 10.0  # limit of a command that queries a driver or a controller
_PROFILE = Path("workflow/profiles/slurm/config.yaml")
_PLACEHOLDER = "CHANGE-ME"


def report(config: Path | None) -> str:
    """Return the report, one fact per line; what is missing begins with ``missing:``.

    Args:
        config: a config file to check, too.
    """
    parts = {"versions": _versions(), "machine": _machine(), "paths": _paths(), "SLURM": _slurm()}
    if config is not None:
        parts[str(config)] = _config(config)
    return "\n".join("\n  ".join([title, *facts]) for title, facts in parts.items())


def _versions() -> Iterator[str]:
    yield f"commit {git_commit() or 'unknown: not a checkout'}"
    for name, number in versions().items():
        yield f"{name} {number}"


def _machine() -> Iterator[str]:
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 1e9
    yield f"{len(os.sched_getaffinity(0))} of {os.cpu_count()} cores, {memory:.0f} GB of memory"
    query = ("nvidia-smi", "--query-gpu=name,memory.total,driver_version", "--format=csv,noheader")
    yield from _printed(*query).splitlines() or ["no GPU, as far as nvidia-smi can tell"]
    for name in ("OMP_NUM_THREADS", "CUDA_VISIBLE_DEVICES"):
        if name in os.environ:
            yield f"{name}={os.environ[name]}"


def _paths() -> Iterator[str]:
    results = Path(paths.RESULTS).absolute()
    existing = next(folder for folder in (results, *results.parents) if folder.exists())
    yield f"results: {results}, {shutil.disk_usage(existing).free / 1e9:.1f} GB free"
    from huggingface_hub.constants import HF_HUB_CACHE

    yield f"models from the hub: {HF_HUB_CACHE}"
    offline = os.environ.get("HF_HUB_OFFLINE", "0")
    yield f"HF_HUB_OFFLINE={offline}; jobs set it, fetching does not"
    yield f"engines that run here: {len(status())}"


def _slurm() -> Iterator[str]:
    if not shutil.which("sbatch"):
        yield "none: no sbatch on the path"
        return
    yield _printed("sbatch", "--version").strip()
    yield from _printed("sinfo", "--noheader", "--format=%P %a %D nodes %G").splitlines() or [
        "missing: sinfo does not answer; is the controller up?"
    ]
    try:
        yield f"snakemake-executor-plugin-slurm {version('snakemake-executor-plugin-slurm')}"
    except PackageNotFoundError:
        yield "missing: pip install 'headroom[slurm]'"
    if _PROFILE.exists() and _PLACEHOLDER in _PROFILE.read_text(encoding="utf-8"):
        yield f"missing: partition and account in {_PROFILE}"


def _config(file: Path) -> Iterator[str]:
    try:
        config = resolve(load(file))
    except HeadroomError as error:
        yield f"missing: {error}"
        return
    for check in (preflight, check_devices):
        try:
            check(config)
        except HeadroomError as error:
            yield f"missing: {error}"
    yield from _to_fetch(config)
    gigabytes = 0.0
    store = Store(config)
    for batch in batches(config):
        files = store.answers(batch)
        done = sum(Path(answers).exists() for answers in files)
        gigabytes += generation_cost(config, batch).disk_gigabytes
        yield (
            f"{batch.model}, {batch.decoding}, {batch.questions}: {done} of {len(files)} tables "
            f"of answers"
        )
    yield f"answers of the whole run: about {gigabytes:.1f} GB"


def _to_fetch(config: Config) -> Iterator[str]:
    """Yield for each fetched input whether a job without network will find it."""
    from huggingface_hub.constants import HF_HUB_CACHE

    for kind in ("models", "embedders"):
        for name, section in getattr(config, kind).items():
            if section.source is None or local_folder(section.source):
                continue
            folder = Path(HF_HUB_CACHE, f"models--{section.source.replace('/', '--')}")
            found = (folder / "snapshots" / str(section.revision)).is_dir()
            yield f"{kind}.{name}: {_state(found)} ({section.source})"
    for name, questions in config.questions.items():
        if not questions.generated:
            drawn = Store(config).path(paths.QUESTIONS, questions=name)
            source = Store(config).path(paths.SOURCE, source=name)
            yield f"questions.{name}: {_state(drawn.exists() or source.exists())}"


def _state(found: bool) -> str:
    return "fetched" if found else "missing: run the target `fetch` where there is network"


def _printed(*command: str) -> str:
    """Return what a command prints; nothing if it is missing, fails or hangs."""
    try:
        return subprocess.run(
            command, capture_output=True, text=True, check=True, timeout=_SECONDS
        ).stdout
    except (OSError, subprocess.SubprocessError):
        return ""
