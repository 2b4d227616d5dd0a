"""Planning at scale, measured: 20 models, all heads of 32 layers of 32, on the real Snakefile.

    python tests/workflow/planning.py [MODELS]    # a few minutes; nothing is generated

Prints time and memory of a dry run, which plans all jobs and then describes each, and of a run that
finds all done: its outputs are empty files that Snakemake is told are up to date.
"""

import os
import re
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from mini import Snakemake

MODEL = {
    "revision": "4" * 40,
    "layers": 32,
    "heads": 32,
    "kv_heads": 8,
    "billions": 8.0,
    "dtype": "bfloat16",
}


def values(models: int) -> dict[str, Any]:
    """Return a config that sweeps all heads of some models."""
    names = [f"m{number:02d}" for number in range(models)]
    return {
        "run": "scale",
        "models": {name: {**MODEL, "source": f"nobody/{name}"} for name in names},
        "questions": {"test": {"benchmark": "generated_math", "split": "test", "n": 500}},
        "decodings": {"greedy": {"max_new_tokens": 100}},
        "sweeps": {name: {"model": name, "questions": "test", "layers": "all"} for name in names},
    }


def main(models: int = 20) -> None:
    """Measure planning a run and finding it done."""
    config = values(models)
    with tempfile.TemporaryDirectory(prefix="headroom-planning-") as name:
        run = Snakemake(Path(name))
        said = _measured("dry run", run, config, "--dry-run")
        outputs = re.findall(r"^ +output: (.*)$", said, re.MULTILINE)
        for file in (Path(name, each) for line in outputs for each in line.split(", ")):
            file.parent.mkdir(parents=True, exist_ok=True)
            file.touch()
        print(f"{len(outputs):,} jobs", flush=True)
        _measured("marking it as done", run, config, "--cores", "1", "--touch")
        said = _measured("finding it done", run, config, "--cores", "1")
        assert "Nothing to be done" in said, said[-2000:]


def _measured(what: str, run: Snakemake, config: dict[str, Any], *arguments: str) -> str:
    """Run Snakemake, print its wall time, CPU time and memory, and return what it says."""
    log = Path(tempfile.mkstemp(prefix="headroom-planning-")[1])
    begin = time.monotonic()
    process = run.start(config, *arguments, log=log)
    planned = None
    while not (ended := os.wait4(process.pid, os.WNOHANG))[0]:
        if planned is None and "Job stats" in log.read_text(encoding="utf-8"):
            planned = time.monotonic() - begin
        time.sleep(0.2)
    _, status, used = ended
    seconds = time.monotonic() - begin
    said = log.read_text(encoding="utf-8")
    log.unlink()
    print(
        f"{what}: {seconds:.0f} s{f', planned after {planned:.0f}' if planned else ''}, "
        f"{used.ru_utime + used.ru_stime:.0f} s of CPU, {used.ru_maxrss / 1024:.0f} MiB",
        flush=True,
    )
    assert status == 0, said[-2000:]
    return said


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
