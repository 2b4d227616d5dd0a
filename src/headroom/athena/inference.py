"""Solving problems: the solver's own judgements drive the expansion.

A value is graded strictly, and leniently by the rule of ATHENA's released code.
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
"""The lowest reason probability at which a candidate is accepted."""
ANSWERED_FROM = 0.95
"""The lowest answer probability that ends a problem's expansion."""

_TOLERANCE = 1e-4
_MOST_PLACES = 4


@dataclass(frozen=True)
class Solution:
    """The solver's answer to a problem."""

    problem_id: str
    expression: str
    value: float
    """nan if the expression has none."""
    probability: float
    """Probability given by the answer judge."""
    depth: int
    """The last depth expanded."""
    strict: bool
    lenient: bool


class Search:
    """The expansion of a batch of problems by their solver, in evaluation mode.

    Args:
        athena: the solver's networks.
        examples: the problems; their schedules are ignored.
        constants: the constants that the solver was built with.
        pad_token_id: the padding token of the encoder's tokenizer.
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
        """Return the solutions, expanding to `depth` at most.

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
        """Judge candidates, and accept those of at least `ACCEPTED_FROM`, the most probable first.

        A problem without thoughts accepts all its candidates if none is probable enough.
        """
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
        """Return a candidate's operands, numbered over the batch."""
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
    """Return whether a value is finite and within 1e-4 max(1, |gold|) of the gold value."""
    return math.isfinite(predicted) and abs(predicted - gold) <= _TOLERANCE * max(1, abs(gold))


def lenient(predicted: float, gold: float) -> bool:
    """Return whether two values agree by the rule of ATHENA's released code.

    They must differ by less than 10^-k, where k is the smaller of their numbers of printed
    decimals, at most 4. A whole number prints one decimal (``5.0``), so whole answers may be off
    by almost 0.1. Failed arithmetic counts as 0.
    """
    if not math.isfinite(predicted):
        predicted = 0.0
    places = min(_places(predicted), _places(gold), _MOST_PLACES)
    return abs(predicted - gold) < 10.0**-places


def _places(value: float) -> int:
    return len(repr(float(value)).partition("e")[0].partition(".")[2])
