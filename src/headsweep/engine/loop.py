"""The engine's loop: schedule a pass, run it, take in what it has finished.

There are four kinds of passes, and the first that is due comes next: rows that verification has
parted from their draft join those that are decoded; prompts are prefilled; drafts are verified;
decoded rows take their next tokens. A pass may fail; how to go on then, `engine` decides.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial

from headsweep.engine.batch import DecodingBatch, Verifier
from headsweep.engine.in_progress import RowsInProgress
from headsweep.engine.plans import Plan
from headsweep.engine.requests import Answer, Drafted, Prompt, Row

_REFILL = 8  # prompts are prefilled when one row in this many is free: few at a time are expensive


class Loop:
    """Answers what is planned.

    Args:
        plan: is used up.
        batch: rows that are decoded; none yet.
        verifier: of drafts.
        in_progress: makes the rows.
        drafts: takes the base answers that others wait for, as they are found.
        most_prefilled: tokens of texts in a pass that prefills.
    """

    def __init__(
        self,
        plan: Plan,
        batch: DecodingBatch,
        verifier: Verifier,
        in_progress: RowsInProgress,
        drafts: dict[Prompt, Sequence[int]],
        *,
        most_prefilled: int,
    ) -> None:
        self._groups, self._drafted, self._waiting = plan
        self._batch, self._verifier = batch, verifier
        self._in_progress = in_progress
        self._drafts = drafts
        self._most_prefilled = most_prefilled

    def answers(self) -> Iterator[Answer]:
        """Yield answers as they finish, base answers that only serve as drafts among them."""
        while self._is_left():
            run = self._scheduled()
            finished = run()
            self._take_in(finished)
            yield from finished

    def _is_left(self) -> bool:
        return bool(self._verifier.ready or self._groups or self._drafted or len(self._batch))

    def _scheduled(self) -> Callable[[], list[Answer]]:
        """Return the next pass, which returns the answers that it finishes."""
        batch, verifier = self._batch, self._verifier
        if verifier.ready and batch.free:
            return partial(batch.join, verifier.take_ready(batch.free))
        if entering := self._entering():
            return partial(batch.enter, entering)
        if self._drafted and batch.free:
            return partial(verifier.verify, self._drafted)
        return batch.step

    def _entering(self) -> list[list[Row]]:
        """Take whole groups from the queue, if enough of the batch is free."""
        batch = self._batch
        taken = list[list[Row]]()
        free = batch.free
        if len(batch) and free < batch.size / _REFILL:
            return taken
        tokens = 0
        while self._groups and len(self._groups[0]) <= free:
            tokens += self._in_progress.text_length(self._groups[0][0])
            if taken and tokens > self._most_prefilled:
                break
            group = self._groups.popleft()
            free -= len(group)
            taken.append([self._in_progress.take(request) for request in group])
        return taken

    def _take_in(self, finished: Sequence[Answer]) -> None:
        """Queue the rows that waited for a base answer: it is their draft."""
        for answer in finished:
            prompt = answer.request.prompt
            if prompt in self._waiting and answer.request.variant.is_base:
                self._drafts[prompt] = answer.token_ids
                self._drafted.append(Drafted(answer.token_ids, self._waiting.pop(prompt)))
