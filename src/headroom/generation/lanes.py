"""Batches of rows of like length: attention runs over as many columns as a batch's longest row has.

A row that has grown too long for its lane moves on to the next, whose rows may be twice as long.
There it waits until that lane is full: lanes of long rows run seldom, but with full batches.
"""

from collections import deque
from collections.abc import Iterable, Sequence

from headroom.config import Decoding
from headroom.generation.batch import Batch
from headroom.generation.cache import RowStates
from headroom.generation.forward import Forward
from headroom.generation.requests import Answer, Row

FIRST_LANE = 64
"""Rows of the first lane have fewer tokens than this; each further lane doubles it."""

_REFILL = 8
"""Prompts are prefilled when one row in this many is free: few at a time are dear."""


class _Lane:
    def __init__(self, batch: Batch) -> None:
        self.batch = batch
        self.waiting: deque[tuple[Row, RowStates]] = deque()

    def __bool__(self) -> bool:
        return bool(len(self.batch) or self.waiting)

    def fill(self) -> None:
        """Let waiting rows enter."""
        count = min(len(self.waiting), self.batch.free)
        if count:
            entering = [self.waiting.popleft() for _ in range(count)]
            self.batch.resume(*zip(*entering, strict=True))


class Lanes:
    """Decodes rows, each in the lane of its length.

    Args:
        forward: runs the model.
        decoding: how tokens are chosen.
        size: most rows in a lane.
    """

    def __init__(self, forward: Forward, decoding: Decoding, size: int) -> None:
        self._forward = forward
        self._decoding = decoding
        self._size = size
        self._lanes: list[_Lane] = []

    def __bool__(self) -> bool:
        return any(self._lanes)

    def room_for(self, length: int) -> int:
        """Return how many prompts of a length may enter now; none if too few for a prefill."""
        lane = self._lane(length)
        batch = lane.batch
        few = len(batch) and batch.free < self._size / _REFILL
        return 0 if few or lane.waiting else batch.free

    def hungry(self) -> bool:
        """Return whether the next step would run with rows missing."""
        return not self or self._next().batch.free > 0

    def enter(self, groups: Sequence[Sequence[Row]]) -> list[Answer]:
        """Prefill each group's prompt once, choose first tokens, return what is finished.

        Args:
            groups: rows with the same prompt and variant, the longest prompt first.
        """
        return self._lane(len(groups[0][0].request.prompt)).batch.enter(groups)

    def resume(self, rows: Iterable[Row], states: Iterable[RowStates]) -> None:
        """Let rows enter that are in the midst of their answers (see `Batch.resume`)."""
        self._move(zip(rows, states, strict=True))

    def step(self) -> list[Answer]:
        """Choose the next token of one lane's rows, return what is finished."""
        lane = self._next()
        answers = lane.batch.step()
        self._move(lane.batch.take(FIRST_LANE << self._lanes.index(lane)))
        return answers

    def _move(self, rows: Iterable[tuple[Row, RowStates]]) -> None:
        for row, states in rows:
            self._lane(row.length).waiting.append((row, states))

    def _next(self) -> _Lane:
        """Return the lane to be stepped: the longest that is full, else the shortest."""
        for lane in self._lanes:
            lane.fill()
        running = [lane for lane in self._lanes if lane]
        full = [lane for lane in running if not lane.batch.free]
        return full[-1] if full else running[0]

    def _lane(self, length: int) -> _Lane:
        place = (length // FIRST_LANE).bit_length()
        while len(self._lanes) <= place:
            self._lanes.append(_Lane(Batch(self._forward, self._decoding, self._size)))
        return self._lanes[place]
