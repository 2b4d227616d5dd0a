"""Solving problems: the expansion is driven by the solver's own judgement.

A value is judged strictly, and as ATHENA's release judges it.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Float

from headroom.athena.batches import Example, Rows, collate_texts, level, starts, tensor
from headroom.athena.expansion import Candidate, Expander
from headroom.athena.expressions import Op
from headroom.athena.networks import Athena, Progress
from headroom.models.learner import move

ACCEPTED_FROM = 0.5
"""Reason probability from which a candidate is accepted."""
ANSWERED_FROM = 0.95
"""Answer probability from which no further depth is expanded."""

_TOLERANCE = 1e-4
_MOST_PLACES = 4


@dataclass(frozen=True)
class Solution:
    """What the solver answers to a problem."""

    problem_id: str
    expression: str
    value: float
    """nan where the expression has none."""
    probability: float
    """That the answer judge gives."""
    depth: int
    """Last depth that was expanded."""
    strict: bool
    lenient: bool


class Search:
    """The expansion of a batch of problems by their solver, in evaluation mode.

    Args:
        athena: the solver's networks.
        examples: the problems. Their schedules are not looked at.
        constants: the values that the solver was built with.
        pad_token_id: of the encoder's tokenizer.
    """

    def __init__(
        self,
        athena: Athena,
        examples: Sequence[Example],
        constants: Sequence[float],
        pad_token_id: int,
    ) -> None:
        self._examples = examples
        self._device = next(athena.parameters()).device
        texts = move(collate_texts(examples, pad_token_id), self._device)
        self._progress = Progress(athena.head, athena.read(texts))
        self._expanders = [Expander(len(example.places), constants) for example in examples]
        self._first_number = starts([len(example.places) for example in examples])
        self._owners = np.empty(0, dtype=np.int64)  # of all thoughts, in order of acceptance
        self._thoughts = [self._owners] * len(examples)  # each problem's, among all
        self._depth = [0] * len(examples)

    def run(self, depth: int) -> list[Solution]:
        """Return the solutions, with nothing expanded beyond a depth.

        After each depth all thoughts are judged as answers. A problem is done when one of them
        reaches `ANSWERED_FROM`, when no thought is new, or at the last depth; its answer is the
        thought with the highest probability.
        """
        active = list(range(len(self._examples)))
        probabilities = np.empty(0)
        for reached in range(depth + 1):
            offered = {owner: self._expanders[owner].candidates() for owner in active}
            if any(offered.values()):
                self._accept(offered)
                probabilities = _sigmoid(self._progress.answers())
            for owner in active:
                self._depth[owner] = reached
            active = [owner for owner in active if not self._done(owner, probabilities)]
            if not active:
                break
        return [self._solution(owner, probabilities) for owner in range(len(self._examples))]

    def _accept(self, offered: dict[int, list[Candidate]]) -> None:
        """Judge candidates and accept those that are probable enough."""
        rows = [
            (op, *self._places(op, owner, left, right), owner, expression)
            for owner, candidates in offered.items()
            for op, left, right, expression in candidates
        ]
        rows.sort(key=lambda row: row[0])
        op, left, right, owner, expression = np.array(rows, dtype=np.int64).T
        candidates = move(level(op, left, right, owner), self._device)
        probability = _sigmoid(self._progress.judge(candidates))

        accepted = []
        for problem in offered:
            own = np.flatnonzero(owner == problem)
            kept = own[probability[own] >= ACCEPTED_FROM]
            if not len(kept) and not len(self._thoughts[problem]):
                kept = own
            room = self._expanders[problem].room
            kept = np.sort(kept[np.argsort(-probability[kept], kind="stable")[:room]])
            self._expanders[problem].accept(expression[kept].tolist())
            accepted.append(kept)
        index = np.concatenate(accepted)
        self._owners = np.concatenate([self._owners, owner[index]])
        self._thoughts = [
            np.flatnonzero(self._owners == problem) for problem in range(len(self._examples))
        ]
        all_rows = move(Rows.of(self._owners), self._device)
        self._progress.accept(tensor(index).to(self._device), all_rows)

    def _places(self, op: Op, owner: int, left: int, right: int) -> tuple[int, int]:
        """Return what a candidate takes, numbered over the batch."""
        if op == Op.CONSTANT:
            return left, right
        if op == Op.NUMBER:
            return left + self._first_number[owner], right + self._first_number[owner]
        return self._thoughts[owner][left], self._thoughts[owner][right]

    def _done(self, owner: int, probabilities: Float[np.ndarray, " thoughts"]) -> bool:
        best = probabilities[self._thoughts[owner]].max()
        return bool(best >= ANSWERED_FROM) or self._expanders[owner].exhausted

    def _solution(self, owner: int, probabilities: Float[np.ndarray, " thoughts"]) -> Solution:
        expander, problem = self._expanders[owner], self._examples[owner].problem
        own = probabilities[self._thoughts[owner]]
        best = int(own.argmax())
        value = expander.expressions.value(expander.thoughts[best], problem.numbers)
        return Solution(
            problem_id=problem.problem_id,
            expression=expander.expressions.text(expander.thoughts[best]),
            value=value,
            probability=float(own[best]),
            depth=self._depth[owner],
            strict=strict(value, problem.answer),
            lenient=lenient(value, problem.answer),
        )


def _sigmoid(logits: Float[torch.Tensor, " items"]) -> Float[np.ndarray, " items"]:
    return logits.float().sigmoid().cpu().numpy().astype(np.float64)


def strict(predicted: float, gold: float) -> bool:
    """Tell whether a value is within 1e-4 of the gold value, relative to it if that is above 1.

    What is not finite is wrong.
    """
    return math.isfinite(predicted) and abs(predicted - gold) <= _TOLERANCE * max(1, abs(gold))


def lenient(predicted: float, gold: float) -> bool:
    """Tell whether two values agree by the rule of ATHENA's release.

    They must be closer than 10^-k, where k is the smaller number of decimals that they print, at
    most 4. A whole number prints one (``5.0``), so whole answers may be off by 0.1. Failed
    arithmetic counts as 0.
    """
    if not math.isfinite(predicted):
        predicted = 0.0
    places = min(_places(predicted), _places(gold), _MOST_PLACES)
    return abs(predicted - gold) < 10.0**-places


def _places(value: float) -> int:
    return len(repr(float(value)).partition("e")[0].partition(".")[2])
