"""Faults that befall a run: each takes a running workflow and leaves it broken, to be run again."""

import contextlib
import itertools
import os
import random
import re
import shutil
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
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


class HungError(Exception):
    """A run that does not end."""


class Run:
    """A run of the workflow in a folder, towards one file.

    `draw` chooses the moment of the fault and what it befalls; undisturbed, it takes `seconds`.
    """

    def __init__(
        self,
        folder: Path,
        values: dict[str, Any],
        target: str,
        draw: random.Random,
        seconds: float,
    ) -> None:
        self.folder, self.draw = folder, draw
        self._values, self._target, self._seconds = values, target, seconds
        self.patience = max(LONGEST, 10 * seconds)
        self._snakemake = Snakemake(folder, self.patience)

    def start(self, *before: str) -> subprocess.Popen[bytes]:
        """Start it, under a command that changes what it sees."""
        log = self.folder / "snakemake.log"
        return self._snakemake.start(self._values, *OPTIONS, self._target, log=log, before=before)

    def wait_for_the_moment(self, process: subprocess.Popen[bytes]) -> None:
        """Sleep until some moment of the run."""
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(self.draw.uniform(0.1, self._seconds))

    def finish(self) -> list[str]:
        """Run to the end as a user does; return what had to go because a message said so."""
        removed: list[str] = []
        for _ in range(4):
            try:
                if any((self.folder / ".snakemake/locks").glob("*")):
                    self._snakemake(self._values, "--unlock")
                done = self._snakemake(self._values, *OPTIONS, self._target, *removed, check=False)
            except subprocess.TimeoutExpired:
                raise HungError("the run after the fault does not end") from None
            said = done.stderr if done.returncode else "\n".join(self._unreadable())
            if not (done.returncode or said):
                made = (self.folder / self._target).exists()
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
        for file in results(self, checked):
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


def ended(run: Run, process: subprocess.Popen[bytes]) -> None:
    try:
        process.wait(run.patience)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        raise HungError("the run with the fault does not end") from None


def kill(run: Run, *words: str) -> None:
    """Kill a process of the run at some moment."""
    process = run.start()
    run.wait_for_the_moment(process)
    victims = working_in(run.folder, *words)
    if victims:
        with contextlib.suppress(psutil.Error):
            run.draw.choice(victims).kill()
    ended(run, process)


def kill_everything(run: Run) -> None:
    """Kill all processes of the run at some moment."""
    process = run.start()
    run.wait_for_the_moment(process)
    run.kill()
    ended(run, process)


def fill_the_disk(run: Run) -> None:
    """Run on a disk that is too small; it is full before the end."""
    results = run.folder / "results"
    results.mkdir()
    size = run.draw.randint(40, 400)
    mount = ["mount", "-t", "tmpfs", "-o", f"size={size}k", "tmpfs", str(results)]
    subprocess.run(mount, check=True)
    try:
        ended(run, run.start())
        kept = run.folder / "kept"
        shutil.copytree(results, kept, symlinks=True)
    finally:
        run.kill("headroom.generation.server")
        subprocess.run(["umount", "--lazy", str(results)], check=True)
    results.rmdir()
    kept.rename(results)


def make_immutable(run: Run) -> None:
    """Make a file of the run unchangeable at some moment, until the run is over."""

    def chattr(how: str) -> None:
        if file:
            subprocess.run(["chattr", how, str(file)], check=False, capture_output=True)

    process = run.start()
    run.wait_for_the_moment(process)
    file = choose(run, Path.is_file)
    try:
        chattr("+i")
        ended(run, process)
    finally:
        chattr("-i")


def damage(run: Run) -> None:
    """Kill everything; cut a table or a file with a record short, or flip a bit of it."""
    kill_everything(run)
    file = choose(run, checked)
    if file:
        content = bytearray(file.read_bytes())
        place = run.draw.randrange(len(content))
        if run.draw.random() < 0.5:
            del content[place:]
        else:
            content[place] ^= 1 << run.draw.randrange(8)
        file.write_bytes(content)


def move_the_clock(run: Run) -> None:
    """Run part of the way in another time."""
    days = run.draw.choice(("-2d", "-30m", "+30m", "+2d"))
    process = run.start("faketime", "-f", days)
    run.wait_for_the_moment(process)
    run.kill()
    ended(run, process)


def start_two(run: Run) -> None:
    """Start the workflow twice in one folder."""
    first = run.start()
    time.sleep(run.draw.uniform(0, 3))
    second = run.start()
    ended(run, first)
    ended(run, second)


def choose(run: Run, wanted: Callable[[Path], bool]) -> Path | None:
    """Choose a file of the results."""
    files = results(run, wanted)
    return run.draw.choice(files) if files else None


def results(run: Run, wanted: Callable[[Path], bool]) -> list[Path]:
    """Return the files of the results of some kind, in order."""
    return sorted(file for file in (run.folder / "results").rglob("*") if wanted(file))


def checked(file: Path) -> bool:
    """Tell whether whoever reads a file would notice damage."""
    of_a_result = file.suffix == ".parquet" or record_path(file).exists()
    return file.is_file() and (of_a_result or file.suffix == ".safetensors")


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
