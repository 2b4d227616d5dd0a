"""The rest of a batch of the plan, handed out to the workers of an engine."""

import math
import os
import time
from collections import defaultdict, deque
from collections.abc import Mapping
from typing import Any

from headsweep.answers.work import Work
from headsweep.engine.unit import Begun, Key, Unit
from headsweep.files.locks import Locks
from headsweep.store.batches import batches
from headsweep.variants import BASE, Variant

UNIT_VARIANTS = 25
"""Variants that answer together; some tables are complete when one group of these is."""

_UNIT_QUESTIONS = 64
"""A worker takes so many at once at least, if there are: rows stand idle while a batch runs dry."""


def questions_of_unit(left: int, workers: int) -> int:
    """Return how many of the questions that are left for a group a worker takes at once."""
    questions = max(left / (2 * workers), min(_UNIT_QUESTIONS, left / workers))
    return math.ceil(questions)


def planned_part(work: Work, variant: Variant) -> str:
    """Name the part of a batch that one engine answers: all, or a group in a SLURM job."""
    if "SLURM_JOB_ID" not in os.environ:
        return "all"
    return work.batch.groups.get(variant, "not planned")


class Schedule:
    """What is left of a batch of the plan, handed out unit by unit.

    What is asked for comes first, then what is worked ahead. Variants are taken in groups, the base
    model in the first: all of them answer a few questions, then a few more. So the base model's
    states serve a whole group, its answers serve all, and the first tables are complete long before
    the last. The given variants are answered ahead; so many workers share them.

    Engines of several hosts may share a store: a variant is answered under its lock, which is taken
    when its group is. What another engine answers is looked at again until it is done, or dies.
    """

    def __init__(self, work: Work, variants: list[Variant], workers: int, locks: Locks) -> None:
        self.work = work
        self.total = self.done = 0
        self.started = 0.0
        """When the first unit was handed out, by `time.monotonic`; 0 before."""
        self.elsewhere: list[Variant] = []
        """What another engine answers, or writes."""
        self._workers, self._locks = workers, locks
        self._base = work.base()
        self._pending: dict[Variant, set[Key]] = {}
        self._begun: dict[tuple[Variant, Key], Begun] = {}
        self._queue: deque[Variant] = deque()
        self._wanted: set[Variant] = set()
        self._group: dict[str, list[tuple[Variant, Key]]] = {}
        for variant in variants:
            missing = set(work.unanswered(variant))
            if missing:  # of which it is given what other draws have when its group is taken
                missing -= work.answered_elsewhere(variant)
            if missing:
                self._pending[variant] = missing
                self._queue.append(variant)
                self.total += len(missing)

    @property
    def seconds(self) -> float:
        """Time since the first unit was handed out; 0 before."""
        return time.monotonic() - self.started if self.started else 0.0

    def want(self, variant: Variant) -> bool:
        """Tell whether a variant is complete; if not, have it answered before others.

        If it is, its lock is held from now on, until `release`.
        """
        self._wanted.add(variant)
        if variant in self._queue:
            self._queue.remove(variant)
        elif variant in self.elsewhere or self._pending.get(variant):
            return False  # another engine answers, or this one
        if not self._claim(variant):
            return False
        if self._pending[variant]:
            self._queue.appendleft(variant)
            return False
        return True

    def next(self) -> Unit | None:
        """Return the next requests; None if all are handed out."""
        if not self._group:
            self._take_group()
        if not self._group:
            return None
        self.started = self.started or time.monotonic()
        questions = questions_of_unit(len(self._group), self._workers)
        requests = []
        for question in list(self._group)[:questions]:
            requests += self._group.pop(question)
        begun = {what: self._begun[what] for what in requests if what in self._begun}
        return self.work.unit(requests, self._base, begun)

    def answered(self, variant: Variant, answer: dict[str, Any]) -> bool:
        """Take note of an answer; tell whether it completes its variant."""
        if variant == BASE and self.work.decoding.greedy:
            self._base[answer["question_id"]] = answer["token_ids"]
        pending = self._pending.get(variant, set())
        key = (answer["question_id"], answer["sample"])
        if key not in pending:  # of a unit that was handed out before its batch failed
            return False
        self.done += 1
        pending.remove(key)
        return not pending

    def begun_records(
        self, begun: Mapping[tuple[Variant, Key], Begun]
    ) -> dict[Variant, list[dict[str, Any]]]:
        """Return a journal's records of answers that have begun, of those that are missing."""
        records = defaultdict[Variant, list[dict[str, Any]]](list)
        for (variant, key), tokens in begun.items():
            if key in self._pending.get(variant, set()):
                question, sample = key
                record = {"question_id": question, "sample": sample, **tokens._asdict()}
                records[variant].append(record)
        return records

    def look_elsewhere(self) -> list[Variant]:
        """Return what other engines have completed since; queue what they have left.

        The locks of what is returned are held, until `release`.
        """
        again = self.elsewhere
        self.elsewhere = []
        complete = []
        for variant in again:
            if not self._claim(variant):  # which notes it again
                continue
            if not self._pending[variant]:
                complete.append(variant)
            elif variant in self._wanted:
                self._queue.appendleft(variant)
            else:
                self._queue.append(variant)
        return complete

    def release(self, variant: Variant) -> None:
        """Let go of a variant's lock: it is written, or nobody here waits for it."""
        self._locks.release(self.work.lock(variant))

    def forget(self) -> None:
        """Forget all that is not answered, and let go of its locks."""
        for variant in self._pending:
            self.release(variant)
        self.total = self.done
        self._pending.clear()
        self._queue.clear()
        self._group.clear()
        self.elsewhere.clear()

    def _take_group(self) -> None:
        """Take the lock of the first variants that others do not answer; group their questions."""
        if BASE in self._queue:
            self._queue.remove(BASE)
            self._queue.appendleft(BASE)
        taken = 0
        while self._queue and taken < UNIT_VARIANTS:
            variant = self._queue.popleft()
            if not self._claim(variant):
                continue
            if not self._pending[variant]:  # and no job waits: it would have found that out
                self.release(variant)
                continue
            taken += 1
            for key in sorted(self._pending[variant]):
                self._group.setdefault(key[0], []).append((variant, key))

    def _claim(self, variant: Variant) -> bool:
        """Take a variant's lock and note what is missing still; False if another engine has it."""
        if not self._locks.take(self.work.lock(variant)):
            self.elsewhere.append(variant)
            return False
        self.work.take_over(variant)
        missing = set(self.work.unanswered(variant))
        self.total += len(missing) - len(self._pending.get(variant, ()))
        self._pending[variant] = missing
        begun = self.work.begun(variant)
        self._begun |= {(variant, key): begun[key] for key in missing & begun.keys()}
        if variant == BASE:  # other engines, or other draws, may have given some of its answers
            self._base = self.work.base()
        return True


def is_done(model: str, schedules: Mapping[tuple[str, ...], Schedule]) -> bool:
    """Tell whether all is answered that batches of a model lack tables of, in schedules' configs.

    Schedules are by the keys of their batch and the part of it.
    """
    works = (
        Work(batch)
        for schedule in schedules.values()
        for keys, batch in batches(schedule.work.batch.store).items()
        if keys.model == model
    )
    lacking = {work.batch.keys for work in works if work.lacking}
    return (
        bool(schedules)
        and lacking <= {keys[:-1] for keys in schedules}  # of any part
        and all(schedule.done == schedule.total for schedule in schedules.values())
    )
