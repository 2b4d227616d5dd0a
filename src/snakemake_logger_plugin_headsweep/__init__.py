"""Prints a run's stages, results, time left, and causes of failure in full.

This is a logger plugin of Snakemake, chosen by ``logger: headsweep`` in the profiles. It sets
HEADSWEEP_QUIET, so that jobs leave the terminal to it, and prints the results and warnings of each
job's log when the job ends. Snakemake's messages about its own work are left out. Dry runs and runs
with ``--verbose`` are printed as usual.
"""

import logging
import os
import sys
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from snakemake_interface_logger_plugins.base import LogHandlerBase
from snakemake_interface_logger_plugins.common import LogEvent

from headsweep.text import counted
from headsweep.words import (
    STAGES,
    TARGETS,
    clock,
    doing,
    progress,
    stage_of,
)
from snakemake_logger_plugin_headsweep.pace import Pace, Planned
from snakemake_logger_plugin_headsweep.screen import Screen

_CHATTER = (
    "Assuming unrestricted",
    "Building DAG",
    "Complete log",
    "Conda environments:",
    "Elapsed time",
    "Execute ",
    "Group jobs:",
    "Rules claiming",
    "Provided ",
    "Select jobs",
    "Singularity containers:",
    "Using shell",
    "host:",
)
_INTERRUPTED = ("Terminating processes on user request", "Will exit after finishing currently")
_ENDED_BY_INTERRUPT = ("exit status 130.", "died with <Signals.SIGINT: 2>.")  # of a command
_KEPT = "Interrupted; what is finished is kept: give the same command again to go on"
_SHOWN = {"RESULT": "  {message}", "WARNING": "  warning, {doing}: {message}"}
_MOST = 3  # jobs in the status line
_TAIL = 2000  # bytes at the end of a log that are searched for progress
_SECONDS_BETWEEN_LOOKS = 1.0


@dataclass(frozen=True)
class _Job:
    doing: str
    log: Path | None


class LogHandler(LogHandlerBase):
    """Prints a run's progress to standard error."""

    writes_to_stream = True
    writes_to_file = False
    has_filter = True
    has_formatter = False
    needs_rulegraph = False

    def __post_init__(self) -> None:
        self._plain = self.common_settings.dryrun or self.common_settings.verbose
        if not self._plain:
            # Jobs inherit both, and so print neither log lines nor progress bars.
            os.environ |= {"HEADSWEEP_QUIET": "1", "HF_HUB_DISABLE_PROGRESS_BARS": "1"}
        self.begin(Screen(sys.stderr, time.monotonic()), time.monotonic())
        self._ended = threading.Event()

    def begin(self, screen: Screen, now: float) -> None:
        """Start printing to a screen; `now` is in seconds."""
        self._screen = screen
        self._start = now
        self._pace = Pace({})
        self._jobs: dict[int, _Job] = {}
        self._stages: set[str] = set()
        self._done = self._total = self._targets = 0  # targets: jobs without commands
        self._interrupted = False
        self._commands_interrupted: list[str] = []  # as Snakemake tells of each
        self._failed = False  # other than by an interrupt

    def emit(self, record: logging.LogRecord) -> None:
        """Print a record of Snakemake, or the parts of it that matter to the user."""
        if record.levelno < logging.INFO:
            return
        if self._plain:
            self._say(self.format(record))
        else:
            self.note(record, time.monotonic())

    def note(self, record: Any, now: float) -> None:
        """Print the parts of a record that matter to the user; `now` is in seconds."""
        if hasattr(record, "planned"):
            jobs = {number: Planned(*job) for number, job in record.planned.items()}
            self._pace = Pace(jobs, record.cores, now)
            threading.Thread(target=self._look, daemon=True).start()
            return
        match getattr(record, "event", None):
            case LogEvent.RUN_INFO:
                self._targets = sum(record.stats.get(rule, 0) for rule in TARGETS)
                self._total = record.stats.get("total", 0) - self._targets
                self._say(_summary(record.stats))
            case LogEvent.JOB_INFO:
                self._begin_job(record, now)
            case LogEvent.JOB_FINISHED:
                self._pace.finish(record.job_id, now)
                self._end_job(record.job_id)
            case LogEvent.PROGRESS:
                # The record's total has the jobs that `--until` leaves out, too.
                self._done = min(record.done, self._total)
                if record.done == self._total + self._targets:
                    self._screen.clear()
                    finished = counted(self._total, "job")
                    self._say(f"{finished} done after {clock(now - self._start)}")
                else:
                    self.show(now)
            case None | LogEvent.ERROR | LogEvent.JOB_ERROR | LogEvent.GROUP_ERROR:
                if hasattr(record, "jobid"):
                    self._pace.finish(record.jobid, now, failed=True)
                    self._jobs.pop(record.jobid, None)
                self._tell(record)

    def _tell(self, record: Any) -> None:
        """Print a message of Snakemake, unless it is chatter or what an interrupt has caused."""
        text = self.format(record)
        if text.startswith(_CHATTER):
            return
        is_error = getattr(record, "event", None) is not None
        if is_error and text.rstrip().endswith(_ENDED_BY_INTERRUPT):
            self._interrupted = True
            self._commands_interrupted.append(text)
            return
        command = getattr(record, "shellcmd", None)
        if command and any(command in told for told in self._commands_interrupted):
            return
        self._interrupted |= text.startswith(_INTERRUPTED)
        at_the_end = getattr(record, "exception", None) == "WorkflowError"
        if at_the_end and self._interrupted and not self._failed:
            self._screen.clear()
            text = _KEPT
        self._failed |= is_error
        self._say(text)

    def show(self, now: float) -> None:
        """Update the status line."""
        if not self._total or self._done == self._total:
            return
        shown: dict[str, str] = {}
        for number, job in self._jobs.items():
            if job.doing not in shown and len(shown) < _MOST:
                done = progress(_end_of(job.log, _TAIL))
                shown[job.doing] = done
                self._pace.said(number, done, now)
        left = self._pace.left(now)
        text = f"{self._done} of {self._total} jobs after {clock(now - self._start)}"
        if left is not None:
            text += f", about {clock(left)} left"
        work = "; ".join(f"{what}, {done}" if done else what for what, done in shown.items())
        self._screen.status(f"{text}: {work}" if work else text, now)

    def close(self) -> None:
        """Stop updating, and remove the status line."""
        self._ended.set()
        self._screen.clear()
        super().close()

    def _look(self) -> None:
        while not self._ended.wait(_SECONDS_BETWEEN_LOOKS):
            with self.lock:  # type: ignore[union-attr]
                if not self._ended.is_set():
                    self.show(time.monotonic())

    def _begin_job(self, record: Any, now: float) -> None:
        self._pace.start(record.jobid, now)
        stage = stage_of(record.rule_name)
        if record.rule_name not in TARGETS and stage not in self._stages:
            self._stages.add(stage)
            self._say(stage)
        log = Path(record.log[0]) if record.log else None
        self._jobs[record.jobid] = _Job(doing(record.rule_name, record.wildcards), log)

    def _end_job(self, number: int) -> None:
        """Print the results and warnings in a job's log."""
        job = self._jobs.pop(number, None)
        if job is None:
            return
        for line in _end_of(job.log).splitlines():
            words = line.split(" ", 3)  # date, time, level, message
            if len(words) == 4 and words[2] in _SHOWN:
                self._say(_SHOWN[words[2]].format(doing=job.doing, message=words[3]))

    def _say(self, text: str) -> None:
        if text:
            self._screen.say(text)


def _summary(stats: Mapping[str, int]) -> str:
    """Return the number of jobs, in all and by stage."""
    counts = dict.fromkeys(STAGES, 0)
    for rule, count in stats.items():
        if rule not in ("total", *TARGETS):
            counts[stage_of(rule)] += count
    listed = ", ".join(f"{stage.lower()} {count}" for stage, count in counts.items() if count)
    return f"{counted(sum(counts.values()), 'job')}: {listed}"


def _end_of(log: Path | None, most: int | None = None) -> str:
    """Return the last `most` bytes of a log, or all of it; empty if there is no log yet."""
    if log is None:
        return ""
    try:
        with log.open("rb") as stream:
            if most is not None:
                size = stream.seek(0, os.SEEK_END)
                stream.seek(max(0, size - most))
            return stream.read().decode(errors="replace")
    except OSError:
        return ""
