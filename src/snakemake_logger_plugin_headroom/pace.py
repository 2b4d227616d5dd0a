"""How long a run will still take, by what the finished jobs of each rule have cost."""

from collections import Counter
from collections.abc import Mapping
from statistics import median

FEW = 10
"""A rule's first jobs are not like its others: one waits for an engine that answers for all."""


class Pace:
    """Shares out the time that passes among the jobs that run, and remembers it by rule.

    A job's cost is its part of the wall time, so that costs add up whatever runs side by side.

    Args:
        counts: how many jobs of each rule there are.
    """

    def __init__(self, counts: Mapping[str, int]) -> None:
        self._left = Counter(counts)
        self._finished: Counter[str] = Counter()
        self._seconds: dict[str, float] = {}
        self._running: dict[int, tuple[str, float]] = {}
        self._now = 0.0

    def start(self, job: int, rule: str, now: float) -> None:
        """Note that a job starts."""
        self._pass(now)
        self._running[job] = (rule, 0.0)

    def finish(self, job: int, now: float) -> None:
        """Note that a job is done."""
        self._pass(now)
        if job in self._running:
            rule, seconds = self._running.pop(job)
            self._left[rule] -= 1
            self._finished[rule] += 1
            self._seconds[rule] = self._seconds.get(rule, 0.0) + seconds

    def left(self) -> float | None:
        """Return the seconds left; None while too little is known of the rule most jobs are of.

        Of a rule none of whose jobs is done, a job is taken to cost what is usual among the rules.
        """
        jobs = self._left.total()
        for rule, count in self._left.items():
            if count > max(FEW, jobs / 2) and self._finished[rule] < FEW:
                return None
        mean = {rule: seconds / self._finished[rule] for rule, seconds in self._seconds.items()}
        if not mean:
            return None
        usual = median(mean.values())
        return sum(count * mean.get(rule, usual) for rule, count in self._left.items())

    def _pass(self, now: float) -> None:
        for job, (rule, seconds) in self._running.items():
            self._running[job] = (rule, seconds + (now - self._now) / len(self._running))
        self._now = now
