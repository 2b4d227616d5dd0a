"""Faults that befall a run: each takes a running workflow and leaves it broken, to be run again."""

import contextlib
import itertools
import random
import re
import shutil
import subprocess
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil
import pyarrow as pa

from headroom.errors import TableError
from headroom.record import intact, record_path
from headroom.tables import read_arrow
from mini import Snakemake
from processes import working_in

OPTIONS = ("--cores", "2", "--keep-going", "--rerun-incomplete", "--latency-wait", "1")
LONGEST = 600.0
"""Seconds after which a run counts as hung, or ten times those of an undisturbed one."""


@dataclass
class Run:
    """A run of the workflow in a folder, towards one file."""

    folder: Path
    values: dict[str, Any]
    target: str
    draw: random.Random
    """Chooses the moment of the fault and what it befalls."""
    seconds: float
    """What it takes undisturbed."""

    def __post_init__(self) -> None:
        self.patience = max(LONGEST, 10 * self.seconds)
        self._snakemake = Snakemake(self.folder, self.patience)

    def start(self, *before: str) -> subprocess.Popen[bytes]:
        """Start it, under a command that changes what it sees."""
        log = self.folder / "snakemake.log"
        return self._snakemake.start(self.values, *OPTIONS, self.target, log=log, before=before)

    @contextlib.contextmanager
    def disturbed(self, *before: str) -> Iterator[None]:
        """Start it, do something at some moment, and wait for its end."""
        process = self.start(*before)
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(self.draw.uniform(0.1, self.seconds))
        yield
        process.wait(self.patience)

    def finish(self) -> list[str]:
        """Run to the end as a user does; return what had to go because a message said so."""
        removed: list[str] = []
        for _ in range(4):
            if any((self.folder / ".snakemake/locks").glob("*")):
                self._snakemake(self.values, "--unlock")
            done = self._snakemake(self.values, *OPTIONS, self.target, *removed, check=False)
            said = done.stderr if done.returncode else "\n".join(self._unreadable())
            if not (done.returncode or said):
                made = (self.folder / self.target).exists()
                assert made, f"the run after the fault makes nothing:\n{done.stdout}\n{done.stderr}"
                return removed
            advice = re.findall(r"(results/\S+) cannot be read .*?; remove (\S+) and run", said)
            named = {file if what == "it" else what for file, what in advice}
            assert named, f"the run after the fault fails:\n{done.stdout}\n{done.stderr}"
            for file in named:
                (self.folder / file).unlink()
            removed += sorted(named)
        raise AssertionError(f"after removing {removed} the run still fails")

    def _unreadable(self) -> Iterator[str]:
        """Yield what is said to whoever reads the files that no step of the run has read."""
        for file in self.results(checked):
            try:
                if file.suffix == ".parquet":
                    read_arrow(file, pa.schema([]), exact=False)
                else:
                    intact(file)
            except TableError as error:
                yield str(error).replace(f"{self.folder}/", "")

    def kill(self, *words: str) -> None:
        """Kill all processes in the folder whose command lines have some words."""
        found = working_in(self.folder, *words)
        for process in found:
            with contextlib.suppress(psutil.Error):
                process.kill()
        psutil.wait_procs(found, 20)

    def results(self, wanted: Callable[[Path], bool]) -> list[Path]:
        """Return the files of the results of some kind, in order."""
        return sorted(file for file in (self.folder / "results").rglob("*") if wanted(file))


def checked(file: Path) -> bool:
    """Tell whether whoever reads a file would notice damage."""
    of_a_result = file.suffix == ".parquet" or record_path(file).exists()
    return file.is_file() and (of_a_result or file.suffix == ".safetensors")


def kill(run: Run, *words: str) -> None:
    """Kill a process of the run at some moment."""
    with run.disturbed(), contextlib.suppress(psutil.Error):
        if found := working_in(run.folder, *words):
            run.draw.choice(found).kill()


def kill_everything(run: Run) -> None:
    with run.disturbed():
        run.kill()


def fill_the_disk(run: Run) -> None:
    """Run on a disk that is too small; it is full before the end."""
    results, kept = run.folder / "results", run.folder / "kept"
    results.mkdir()
    size = run.draw.randint(40, 400)
    mount = ["mount", "-t", "tmpfs", "-o", f"size={size}k", "tmpfs", str(results)]
    subprocess.run(mount, check=True)
    try:
        run.start().wait(run.patience)
        shutil.copytree(results, kept, symlinks=True)
    finally:
        run.kill("headroom.generation.server")
        subprocess.run(["umount", "--lazy", str(results)], check=True)
    results.rmdir()
    kept.rename(results)


def make_immutable(run: Run) -> None:
    """Make a file of the run unchangeable at some moment, until the run is over."""
    files: list[Path] = []
    try:
        with run.disturbed():
            if found := run.results(Path.is_file):
                files.append(run.draw.choice(found))
                subprocess.run(["chattr", "+i", *files], check=False, capture_output=True)
    finally:
        subprocess.run(["chattr", "-i", *files], check=False, capture_output=True)


def damage(run: Run) -> None:
    """Kill everything; cut a table or a file with a record short, or flip a bit of it."""
    kill_everything(run)
    if files := run.results(checked):
        file = run.draw.choice(files)
        content = bytearray(file.read_bytes())
        place = run.draw.randrange(len(content))
        if run.draw.random() < 0.5:
            del content[place:]
        else:
            content[place] ^= 1 << run.draw.randrange(8)
        file.write_bytes(content)


def move_the_clock(run: Run) -> None:
    """Run part of the way in another time."""
    with run.disturbed("faketime", "-f", run.draw.choice(("-2d", "-30m", "+30m", "+2d"))):
        run.kill()


def start_two(run: Run) -> None:
    """Start the workflow twice in one folder."""
    first = run.start()
    time.sleep(run.draw.uniform(0, 3))
    for process in (run.start(), first):
        process.wait(run.patience)


FAULTS: dict[str, Callable[[Run], None]] = {
    "kill Snakemake": lambda run: kill(run, "-m snakemake"),
    "kill a job": lambda run: kill(run, "headroom", "--log"),
    "kill the engine": lambda run: kill(run, "headroom.generation.server"),
    "kill everything": kill_everything,
    "fill the disk": fill_the_disk,
    "make a file immutable": make_immutable,
    "damage a file": damage,
    "move the clock": move_the_clock,
    "start two workflows": start_two,
}


def rounds(seed: int) -> Iterator[tuple[int, str]]:
    """Yield a number and a fault for each round, without end: all in turn, in a seeded order."""
    draw = random.Random(seed)
    numbers = itertools.count()
    while True:
        for name in draw.sample(sorted(FAULTS), len(FAULTS))[::-1]:
            yield next(numbers), name
