"""``python -m benchmarks.proof``: plant effects, run the workflow, compare its verdicts with them.

The run is blind: what is planted is written to a sealed file, whose sha256 is printed first. Only
the last step opens it, after the verdicts have been read from the run's own tables.
"""

import argparse
import os
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from benchmarks.proof.judging import Line, judge, read
from benchmarks.proof.planting import CONFIG, RUN, opened, plant
from headsweep.arguments import count, seed
from headsweep.config import load
from headsweep.errors import ConfigError, HeadsweepError
from headsweep.files.record import read_text
from headsweep.machine.host import host_cores
from headsweep.store.revisions import resolve
from headsweep.workflow.start import command


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the proof; return 0 if every line of `benchmarks.proof.judging.judge` is right, or else
    1.

    The run must name the sabotaged head and no other in that model, measure a large enough cost of
    the sabotage and gain without it, show that SPRINT beats what ignores the question, and rank the
    right head first for most subjects. At most one of the two models whose heads toss coins may
    show something. Nothing else that the run says is looked at.
    """
    about = "Plant effects and let a run find them that does not know them."
    parser = argparse.ArgumentParser(prog="python -m benchmarks.proof", description=about)
    parser.add_argument(
        "--seed", type=seed, help="decides what is planted (default: fresh entropy)"
    )
    parser.add_argument("--folder", type=Path, help="where to run (default: a temporary folder)")
    cores = host_cores()
    parser.add_argument("--cores", type=count, default=cores, help="default: all")
    options = parser.parse_args(arguments)
    os.environ.setdefault("TQDM_DISABLE", "1")
    try:
        with tempfile.TemporaryDirectory(prefix="headsweep-proof-") as scratch:
            folder = options.folder or Path(scratch)
            lines = prove(folder.absolute(), options.seed, options.cores)
    except HeadsweepError as error:
        print(f"headsweep: error: {error}", file=sys.stderr)
        return 2
    return 0 if all(line.right for line in lines) else 1


def prove(folder: Path, seed: int | None, cores: int) -> list[Line]:
    """Plant, run, read, then open what was planted; print each step; return the comparison."""
    commitment = plant(folder, seed)
    print(f"planted; sha256 of the sealed file: {commitment}", flush=True)
    run(folder, cores)
    findings = read(resolve(load(folder / CONFIG)), folder)
    print(read_text(folder / "results" / RUN / "findings.txt"), flush=True)
    secret = opened(folder, commitment)
    print(f"opened: the sealed file has this sha256; its seed is {secret['seed']}")
    lines = judge(findings, secret)
    for line in lines:
        print(f"{'ok ' if line.right else 'NOT'}  {line.planted:<60}  {line.says}")
    return lines


def run(folder: Path, cores: int) -> None:
    """Make the planted run with the real workflow.

    Raises:
        ConfigError: the run fails.
    """
    options = ["--cores", str(cores), "--directory", str(folder)]
    if subprocess.run(command(folder / CONFIG, options), check=False).returncode:
        raise ConfigError(f"the planted run in {folder} has failed; what went wrong stands above")


if __name__ == "__main__":
    sys.exit(main())
