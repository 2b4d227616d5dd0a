"""What a run prints: the jobs done, the time left, and causes of failure in full.

A logger plugin of Snakemake, chosen by ``logger: headroom`` in the profiles. Jobs print their own
progress; this adds a line a few seconds apart for the whole run, and leaves out what Snakemake says
of its own work. A dry run is printed as usual.
"""

import logging
import sys
import time
from typing import Any

from snakemake_interface_logger_plugins.base import LogHandlerBase
from snakemake_interface_logger_plugins.common import LogEvent

from snakemake_logger_plugin_headroom.pace import Pace

SECONDS_BETWEEN_LINES = 5

_CHATTER = (
    "Assuming unrestricted",
    "Building DAG",
    "Complete log",
    "Elapsed time",
    "Execute ",
    "Rules claiming",
    "Provided ",
    "Select jobs",
    "Using shell",
    "host:",
)


class LogHandler(LogHandlerBase):
    """Prints a run's progress to standard error."""

    writes_to_stream = True
    writes_to_file = False
    has_filter = True
    has_formatter = False
    needs_rulegraph = False

    def __post_init__(self) -> None:
        self._start = time.monotonic()
        self._printed = self._start
        self._pace = Pace({})

    def emit(self, record: logging.LogRecord) -> None:
        """Print a record of Snakemake, or what is worth saying of it."""
        text = self._text(record)
        if text:
            print(text, file=sys.stderr, flush=True)

    def _text(self, record: logging.LogRecord) -> str | None:
        if record.levelno < logging.INFO:
            return None
        if self.common_settings.dryrun:
            return self.format(record)
        match getattr(record, "event", None):
            case LogEvent.RUN_INFO:
                return self._jobs(getattr(record, "stats", {}))
            case LogEvent.JOB_INFO:
                self._pace.start(record.jobid, record.rule_name, time.monotonic())  # type: ignore[attr-defined]
            case LogEvent.JOB_FINISHED:
                self._pace.finish(record.job_id, time.monotonic())  # type: ignore[attr-defined]
            case LogEvent.PROGRESS:
                return self._progress(record.done, record.total)  # type: ignore[attr-defined]
            case None | LogEvent.ERROR | LogEvent.JOB_ERROR | LogEvent.GROUP_ERROR:
                text = self.format(record)
                return None if text.startswith(_CHATTER) else text
        return None

    def _jobs(self, stats: dict[str, Any]) -> str:
        counts = {rule: count for rule, count in stats.items() if rule not in ("total", "all")}
        self._pace = Pace(counts)
        return f"{sum(counts.values())} jobs: " + ", ".join(
            f"{n} {rule}" for rule, n in counts.items()
        )

    def _progress(self, done: int, total: int) -> str | None:
        now = time.monotonic()
        if done < total and now - self._printed < SECONDS_BETWEEN_LINES:
            return None
        self._printed = now
        line = f"{done} of {total} jobs done after {_clock(now - self._start)}"
        left = self._pace.left()
        return line if done == total or left is None else f"{line}, about {_clock(left)} left"


def _clock(seconds: float) -> str:
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02d}:{rest:02d}" if hours else f"{minutes}:{rest:02d}"
