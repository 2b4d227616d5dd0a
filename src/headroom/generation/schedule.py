"""In which order an engine answers a batch of the plan: what is asked for first, then ahead.

Variants are taken in groups, the base model in the first: all of them answer a few questions, then
a few more. So the base model's states serve a whole group, its answers serve all, and the first
tables are complete long before the last.
"""

import math
from collections import deque
from typing import Any

from headroom.generation.work import Key, Unit, Work
from headroom.variants import BASE, Variant

_GROUP = 24
"""Pruned variants that answer together; some tables are complete when one group is."""

_QUESTIONS = 64
"""A worker takes so many at once at least, if there are: rows stand idle while a batch runs dry."""


class Schedule:
    """What is left of a batch of the plan, handed out unit by unit.

    Args:
        work: the batch.
        variants: what is answered ahead, until more is wanted.
        workers: how many share it.
    """

    def __init__(self, work: Work, variants: list[Variant], workers: int) -> None:
        self.work = work
        self.total = self.done = 0
        self._workers = workers
        self._base = work.base()
        self._pending: dict[Variant, set[Key]] = {}
        self._queue: deque[Variant] = deque()
        self._group: dict[str, list[tuple[Variant, Key]]] = {}
        for variant in reversed(variants):
            self.want(variant)

    def want(self, variant: Variant) -> bool:
        """Put a variant at the head of the queue if something of it is missing; tell whether."""
        if not self._pending.get(variant):
            missing = self.work.missing(variant)
            if not missing:
                return False
            self._pending[variant] = set(missing)
            self.total += len(missing)
            self._queue.appendleft(variant)
        elif variant in self._queue:
            self._queue.remove(variant)
            self._queue.appendleft(variant)
        return True

    def next(self) -> Unit | None:
        """Return the next requests; None if all are handed out."""
        if not self._group and self._queue:
            self._open_group()
        if not self._group:
            return None
        left = len(self._group)
        questions = max(left / (2 * self._workers), min(_QUESTIONS, left / self._workers))
        taken = [
            self._group.pop(question) for question in list(self._group)[: math.ceil(questions)]
        ]
        return self.work.unit([request for part in taken for request in part], self._base)

    def answered(self, variant: Variant, answer: dict[str, Any]) -> bool:
        """Take note of an answer; tell whether it completes its variant."""
        if variant == BASE and self.work.config.decodings[self.work.decoding].greedy:
            self._base[answer["question_id"]] = answer["token_ids"]
        pending = self._pending.get(variant, set())
        if not pending:
            return False
        self.done += 1
        pending.discard((answer["question_id"], answer["sample"]))
        return not pending

    def fail(self) -> None:
        """Forget all that is not answered."""
        self.total = self.done
        self._pending.clear()
        self._queue.clear()
        self._group.clear()

    def _open_group(self) -> None:
        variants = [BASE] if BASE in self._queue else []
        while self._queue and len(variants) <= _GROUP:
            variant = self._queue.popleft()
            if variant != BASE:
                variants.append(variant)
        for variant in variants:
            for key in sorted(self._pending[variant]):
                self._group.setdefault(key[0], []).append((variant, key))
