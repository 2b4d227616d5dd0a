"""Whatever befalls a run, the next one goes on and ends with the files of an undisturbed run.

`make faults` does rounds 0 to 199, `make faults FROM=7100 ROUNDS=12` those from 7100 to 7111, and
continuous integration one for each commit.
"""

import contextlib
import os
import random
import re
import shutil
import subprocess
import tempfile
import time
from dataclasses import dataclass
from functools import cache
from itertools import count, islice
from pathlib import Path

import psutil
import pytest

from comparing import assert_same
from headsweep.config import parse
from headsweep.errors import TableError
from headsweep.files import paths
from headsweep.files.record import RECORD, checked_file, find_record, read_facts
from headsweep.store.layout import Store
from headsweep.store.revisions import resolve
from mini import MINIATURE, REASONER, Snakemake, left_over
from processes import working_in

OPTIONS = ("--cores", "2", "--keep-going", "--rerun-incomplete", "--latency-wait", "1")
LONGEST = 600.0
"""Seconds after which a run counts as hung, or ten times those of an undisturbed one."""
ROUNDS = int(os.environ.get("HEADSWEEP_FAULTS") or 1)  # of those that this machine can do
FIRST = int(os.environ.get("HEADSWEEP_FAULTS_FROM") or 1)  # round 0 kills an engine, as others
NEEDED = {"fill the disk": "mount", "make a file immutable": "chattr", "move the clock": "faketime"}
SWEEP = {
    "run": "mini",
    "models": {"tiny": REASONER},
    "questions": {"test": MINIATURE["questions"]["test"]},
    "decodings": {"greedy": {"max_new_tokens": 60}},
    "sweeps": {"math": {"model": "tiny", "questions": "test", "layers": [1], "heads": [0, 3]}},
}


@dataclass
class Run:
    folder: Path
    target: str
    draw: random.Random
    """Chooses the moment of the fault and what it befalls."""
    seconds: float
    """What it takes undisturbed."""

    def __post_init__(self):
        self.patience = max(LONGEST, 10 * self.seconds)
        self._snakemake = Snakemake(self.folder, self.patience)

    def start(self, *before):
        """Start it, under a command that changes what it sees."""
        log = self.folder / "snakemake.log"
        return self._snakemake.start(SWEEP, *OPTIONS, self.target, log=log, before=before)

    @contextlib.contextmanager
    def disturbed(self, *before):
        """Start it, do something at some moment, and wait for its end."""
        process = self.start(*before)
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(self.draw.uniform(0.1, self.seconds))
        yield
        process.wait(self.patience)

    def finish(self):
        """Run to the end as a user does; return what had to go because a message said so."""
        removed = []
        for _ in range(4):
            if any((self.folder / ".snakemake/locks").glob("*")):
                self._snakemake(SWEEP, "--unlock")
            done = self._snakemake(SWEEP, *OPTIONS, self.target, check=False)
            said = done.stderr if done.returncode else "\n".join(self._unreadable())
            if not (done.returncode or said):
                made = (self.folder / self.target).exists()
                assert made, f"the run after the fault makes nothing:\n{done.stdout}\n{done.stderr}"
                gone = [file for file in removed if not (self.folder / file).exists()]
                assert not gone, f"{gone}: removed, and not made again"
                return removed
            advice = re.findall(r"(results/\S+) cannot be read .*?; remove (.+?) and run", said)
            words = [(file, word) for file, what in advice for word in what.split(" and ")]
            named = {file if word == "it" else word for file, word in words}
            assert named, f"the run after the fault fails:\n{done.stdout}\n{done.stderr}"
            for file in named:
                (self.folder / file).unlink(missing_ok=True)
            removed += sorted(named)
        raise AssertionError(f"after removing {removed} the run still fails")

    def _unreadable(self):
        """Yield what is said to whoever reads the files that no step of the run has read."""
        for file in self.results(checked):
            try:
                if file.name.endswith(RECORD):
                    read_facts(file)
                elif ".journal" not in file.parts:  # answers again what it cannot read
                    checked_file(file)
            except TableError as error:
                yield str(error).replace(f"{self.folder}/", "")

    def kill(self, *words):
        """Kill all processes in the folder whose command lines have some words."""
        found = working_in(self.folder, *words)
        for process in found:
            with contextlib.suppress(psutil.Error):
                process.kill()
        psutil.wait_procs(found, 20)

    def results(self, wanted):
        """Return the files of the results of some kind, in order."""
        return sorted(file for file in (self.folder / "results").rglob("*") if wanted(file))


UNREAD = {".tex", ".log", ".tmp", ".part"}
"""Suffixes of files that nothing reads."""


def checked(file):
    """Tell whether whoever reads a file would notice damage: all but the store's own notes."""
    places = paths.LOG, paths.STORE_USERS, paths.STORE_LOCKS, paths.RUN_LOCK
    own = {Path(place).name for place in places}
    return (
        file.is_file()
        and not own & {*file.parts}
        and file.suffix not in UNREAD
        and file.name != Path(paths.STORE_VERSION).name
    )


def kind_of(file):
    """Return what a file is, as far as its way of being read goes."""
    if file.name.endswith(RECORD):
        return "record"
    return "journal" if ".journal" in file.parts else f"{file.parent.parent.name}{file.suffix}"


def kill(run, *words):
    with run.disturbed(), contextlib.suppress(psutil.Error):
        if found := working_in(run.folder, *words):
            run.draw.choice(found).kill()


def kill_everything(run):
    with run.disturbed():
        run.kill()


def fill_the_disk(run):
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
        run.kill("sweep-engine")
        subprocess.run(["umount", "--lazy", str(results)], check=True)
    results.rmdir()
    kept.rename(results)


def make_immutable(run):
    """Make a file of the run unchangeable at some moment, until the run is over."""
    files = []
    try:
        with run.disturbed():
            if found := run.results(Path.is_file):
                files.append(run.draw.choice(found))
                subprocess.run(["chattr", "+i", *files], check=False, capture_output=True)
    finally:
        subprocess.run(["chattr", "-i", *files], check=False, capture_output=True)
    # The run could not drop a table's second name. The next run that has anything to do will; here
    # the next run may have nothing to do.
    for file in filter(Path.exists, files):
        names = [name for name in run.results(Path.is_file) if name.samefile(file)]
        for name in names[1:]:
            second = name if ".journal" in name.parts else names[0]
            second.unlink()


def damage(run):
    """Kill everything; cut a file of some kind short, or flip a bit of it."""
    kill_everything(run)
    if files := run.results(checked):
        kind = run.draw.choice(sorted({*map(kind_of, files)}))
        file = run.draw.choice([file for file in files if kind_of(file) == kind])
        content = bytearray(file.read_bytes())
        place = run.draw.randrange(len(content))
        if run.draw.random() < 0.5:
            del content[place:]
        else:
            content[place] ^= 1 << run.draw.randrange(8)
        file.write_bytes(content)


def move_the_clock(run):
    with run.disturbed("faketime", "-f", run.draw.choice(("-2d", "-30m", "+30m", "+2d"))):
        run.kill()


def start_two(run):
    first = run.start()
    time.sleep(run.draw.uniform(0, 3))
    for process in (run.start(), first):
        process.wait(run.patience)


FAULTS = {
    "kill Snakemake": lambda run: kill(run, "-m snakemake"),
    "kill a job": lambda run: kill(run, "headsweep", "--log"),
    "kill the engine": lambda run: kill(run, "sweep-engine"),
    "kill everything": kill_everything,
    "fill the disk": fill_the_disk,
    "make a file immutable": make_immutable,
    "damage a file": damage,
    "move the clock": move_the_clock,
    "start two workflows": start_two,
}
WITHOUT_KILLS = {"make a file immutable", "start two workflows"}
"""After these no temporary file is left; what is killed as it writes cannot remove its own."""


def fault_of(number):
    """Return the fault of a round: all in turn, in a seeded order."""
    order = random.Random(f"0 {number // len(FAULTS)}").sample(sorted(FAULTS), len(FAULTS))
    return order[number % len(FAULTS)]


@cache
def may_mount():
    """Tell whether this process may mount a folder; root of a container may not."""
    with tempfile.TemporaryDirectory() as folder:
        mount = ["mount", "-t", "tmpfs", "tmpfs", folder]
        if subprocess.run(mount, check=False, capture_output=True).returncode:
            return False
        subprocess.run(["umount", folder], check=True)
    return True


def can_befall(fault):
    if fault not in NEEDED:
        return True
    able = os.geteuid() == 0 and shutil.which(NEEDED[fault]) is not None
    return able and (fault != "fill the disk" or may_mount())


@pytest.mark.skipif(
    not os.environ.get("HEADSWEEP_FAULTS"), reason="faults: `make faults`; .ci/run does a round"
)
def test_no_fault_loses_or_spoils_anything(tmp_path, monkeypatch, capsys):
    assert FIRST >= 0 and ROUNDS > 0, f"{ROUNDS} rounds from {FIRST} are none"
    config = resolve(parse(SWEEP))
    target = str(Store(config).path(paths.CONTROLS, run="mini", sweep="math", table="heads"))
    quiet = tmp_path / "quiet"
    quiet.mkdir()
    begin = time.monotonic()
    Snakemake(quiet, cold=True)(SWEEP, "--cores", "2", target)
    seconds = time.monotonic() - begin
    whole = [file for file in sorted((quiet / "results").rglob("*")) if checked(file)]
    unknown = [file for file in whole if not (file.suffix == ".parquet" or find_record(file))]
    assert [file for file in unknown if not file.name.endswith(RECORD)] == []
    monkeypatch.setenv("PYTHONDONTWRITEBYTECODE", "1")  # what the quiet run has compiled is kept
    with capsys.disabled():
        print(f"\nmake faults FROM={FIRST} ROUNDS={ROUNDS}", flush=True)
        for fault in sorted(fault for fault in FAULTS if not can_befall(fault)):
            print(f"left out: {fault} needs root and {NEEDED[fault]}")
    possible = (number for number in count(FIRST) if can_befall(fault_of(number)))
    failed = []
    for number in islice(possible, ROUNDS):
        fault = fault_of(number)
        outcome = f"round {number}, {fault}: "
        folder = tmp_path / f"round{number}"
        folder.mkdir()
        run = Run(folder, target, random.Random(f"0 {number}"), seconds)
        try:
            FAULTS[fault](run)
            removed = run.finish()
            assert_same(quiet / "results", folder / "results")
            left = left_over(folder)
            if fault not in WITHOUT_KILLS:
                left = [file for file in left if not file.endswith(".tmp")]
            assert not left, f"left behind: {left}"
            outcome += "as undisturbed" + (f"; named as damaged: {removed}" if removed else "")
        except (AssertionError, subprocess.TimeoutExpired) as error:
            outcome += str(error)
            failed.append(outcome)
        with capsys.disabled():
            print(outcome, flush=True)
        run.kill()
        shutil.rmtree(folder)
    assert not failed, "\n".join(failed)
