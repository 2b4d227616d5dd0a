"""Estimates a run's time left, from the expected costs of its jobs and those measured so far."""

import heapq
import re
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import count
from statistics import geometric_mean
from typing import NamedTuple

SECONDS: Mapping[str, float] = {
    "train_selector": 15.0,
    "evaluate": 10.0,
    "compress": 8.0,
    "quantise": 8.0,
    "measure_compression": 60.0,
    "draw_compression": 6.0,
    "report_page": 5.0,
}
"""Approximate core seconds of a rule's job, in addition to its planned seconds."""

_ANSWERED = re.compile(r"(\d+) of (\d+) answers")
_USUAL = 2.5  # core seconds of every other rule's job
_COLLECTING = 0.5  # core seconds of a job that shares another's work
_ON_ALL_CORES = {"generate", "measure_compression"}
_FIRM = 5.0  # weight of the prior scale, in expected seconds
_SAID = 0.05  # share of a unit's work from which its reported progress is used
_FIRST = 3  # units that must be done before there is an estimate
_LONG = 600.0  # core seconds; a unit that takes longer is not guessed before its rule is measured
_LATE = 4.0
"""A unit that has taken so many times its expected seconds and reported nothing is not guessed
before its rule is measured: nobody plans how long a download takes."""


class Planned(NamedTuple):
    """A job as planned."""

    rule: str
    unit: str
    """Name of the work that it shares with other jobs, such as a batch of answers."""
    seconds: float
    """Planned core seconds of generation or training."""
    after: list[int]
    """The jobs that it waits for."""


@dataclass(eq=False)
class Unit:
    """Jobs that share their work; times are core seconds."""

    rule: str
    seconds: float
    jobs: int = 0
    left: int = 0
    spent: float = 0.0
    done: float = 0.0
    """Share of the work that is done, as its jobs report."""
    reported: float = 0.0
    """What was spent when that share was reported first."""
    running: set[int] = field(default_factory=set)
    after: set["Unit"] = field(default_factory=set)

    @property
    def measured(self) -> float:
        """Share of the work whose time is known; all of it once it takes longer than planned."""
        if not self.left or (self.done < _SAID and self.spent > self.seconds):
            return 1.0
        return self.done if self.done >= _SAID else 0.0

    @property
    def is_late(self) -> bool:
        """Whether it is far beyond its plan, and has not said how much of its work is done."""
        return self.done < _SAID and self.spent > _LATE * self.seconds


class Pace:
    """Tracks the core seconds that units have used, and estimates the time left.

    Args:
        planned: the jobs, by Snakemake's number.
        cores: number of cores.
        now: the time in seconds.
    """

    def __init__(self, planned: Mapping[int, Planned], cores: int = 1, now: float = 0.0) -> None:
        self._cores, self._now = cores, now
        named: dict[str, Unit] = {}
        for job in planned.values():
            unit = named.setdefault(job.unit, Unit(job.rule, expected(job.rule, job.seconds)))
            unit.seconds += _COLLECTING if unit.jobs else 0.0
            unit.jobs += 1
            unit.left += 1
        self._of = {number: named[job.unit] for number, job in planned.items()}
        for number, job in planned.items():
            unit = self._of[number]
            unit.after |= {self._of[other] for other in job.after if other in self._of} - {unit}
        self._units = list(named.values())

    def start(self, job: int, now: float) -> None:
        """Note that a job starts."""
        self._pass(now)
        if job in self._of:
            self._of[job].running.add(job)

    def finish(self, job: int, now: float, *, failed: bool = False) -> None:
        """Note that a job has ended."""
        self._pass(now)
        if job in self._of and job in self._of[job].running:
            self._of[job].running.remove(job)
            if not failed:
                self._of[job].left -= 1

    def said(self, job: int, progress: str, now: float) -> None:
        """Note a job's reported progress, such as `3 of 40 answers`; other words say nothing."""
        self._pass(now)
        counted = _ANSWERED.fullmatch(progress)
        if counted and job in self._of:
            unit = self._of[job]
            done, total = map(int, counted.groups())
            share = done / max(total, 1)
            if share != unit.done:
                unit.done = share
                unit.reported = unit.spent

    def left(self, now: float) -> float | None:
        """Return the estimated seconds left; None while too little is measured, and at the end."""
        self._pass(now)
        open_units = [unit for unit in self._units if unit.left]
        if not open_units or len(self._units) - len(open_units) < _FIRST:
            return None
        rules: dict[str, list[Unit]] = defaultdict(list)
        for unit in self._units:
            if unit.measured:
                rules[unit.rule].append(unit)
        # Each rule counts once: a long training predicts little about many short jobs.
        seen = [max(_scale(units, 1.0), 0.05) for units in rules.values()]
        overall = geometric_mean([1.0, *seen])
        scales = {unit.rule: _scale(rules.get(unit.rule, ()), overall) for unit in open_units}
        left = {unit: _left(unit, scales[unit.rule]) for unit in open_units}
        if any(unit.rule not in rules and seconds > _LONG for unit, seconds in left.items()):
            return None
        ended = {unit.rule for unit in self._units if not unit.left}
        if any(unit.is_late and unit.rule not in ended for unit in open_units):
            return None
        return self._replay(left)

    def _replay(self, left: Mapping[Unit, float]) -> float:
        """Return the seconds until all is done, if each unit starts as soon as cores are free."""
        now = 0.0
        free = self._cores
        awaited = {unit: sum(before in left for before in unit.after) for unit in left}
        ready = sorted((u for u in left if not awaited[u]), key=lambda unit: not unit.running)
        followers: dict[Unit, list[Unit]] = defaultdict(list)
        for unit in left:
            for before in unit.after:
                followers[before].append(unit)
        ends: list[tuple[float, int, Unit]] = []
        order = count()  # units are not compared
        while ready or ends:
            for unit in list(ready):
                cores = self._cores if unit.rule in _ON_ALL_CORES else 1
                if cores <= free:
                    ready.remove(unit)
                    free -= cores
                    heapq.heappush(ends, (now + left[unit] / cores, next(order), unit))
                if not free:
                    break
            now, *_, ended = heapq.heappop(ends)
            free += self._cores if ended.rule in _ON_ALL_CORES else 1
            for unit in followers[ended]:
                awaited[unit] -= 1
                if not awaited[unit]:
                    ready.append(unit)
        return now

    def _pass(self, now: float) -> None:
        running = [unit for unit in self._units if unit.running]
        whole = [unit for unit in running if unit.rule in _ON_ALL_CORES]
        single = len(running) - len(whole)
        for unit in running:
            share = min(1.0, self._cores / len(running))
            if unit in whole:
                share = max(share, (self._cores - single) / len(whole))
            unit.spent += share * (now - self._now)
        self._now = now


def expected(rule: str, planned: float = 0.0) -> float:
    """Return the expected core seconds of a rule's job, including its planned seconds."""
    return SECONDS.get(rule, _USUAL) + planned


def _scale(seen: Sequence[Unit], before: float) -> float:
    """Return the ratio of spent to expected time of some units, shrunk towards `before`."""
    spent = sum(unit.spent for unit in seen)
    planned = sum(unit.seconds * unit.measured for unit in seen)
    return (spent + _FIRM * before) / (planned + _FIRM)


def _left(unit: Unit, scale: float) -> float:
    """Return the core seconds that a unit still takes.

    Between two reports they run down. When a batch takes longer than they promised, its longest
    answers are left: they grow with the time that nothing was reported.
    """
    if unit.done >= _SAID and unit.spent:
        promised = unit.reported * (1 / unit.done - 1)
        silent = unit.spent - unit.reported
        rest = max(promised - silent, silent / 2)
        return rest + scale * _COLLECTING * unit.left
    whole = scale * unit.seconds
    return min(max(whole - unit.spent, unit.spent / 10), whole * unit.left / unit.jobs)
