"""Solving problems: the solver's own judgements drive the expansion.

A value is graded strictly, and leniently by the rule of ATHENA's released code.
"""

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import torch
from jaxtyping import Float

from headroom.athena.batches import Example, Rows, collate_texts, level, starts, tensor
from headroom.athena.expressions import Expander, Op
from headroom.athena.networks import Athena, Progress
from headroom.models.learner import move

ACCEPTED_FROM = 0.5
"""The lowest reason probability at which a candidate is accepted."""
ANSWERED_FROM = 0.95
"""The lowest answer probability that ends a problem's expansion."""

_TOLERANCE = 1e-4
_MOST_PLACES = 4


class Solution(NamedTuple):
    """The solver's answer to a problem."""

    expression: str
    value: float
    """nan if the expression has none."""


def solve(
    athena: Athena,
    examples: Sequence[Example],
    constants: Sequence[float],
    pad_token_id: int,
    depth: int,
) -> list[Solution]:
    """Solve a batch of problems, expanding to `depth` at most.

    At each depth candidates of at least `ACCEPTED_FROM` become thoughts, the most probable first;
    a problem without thoughts takes all its candidates if none is probable enough. Then all
    thoughts are judged as answers. A problem is done when one of them reaches `ANSWERED_FROM`, when
    no thought is new, or at the last depth; its answer is the thought with the highest probability.

    Args:
        athena: the solver's networks, in evaluation mode.
        examples: the problems; their schedules are ignored.
        constants: the constants that the solver was built with.
        pad_token_id: the padding token of the encoder's tokenizer.
        depth: the last depth to expand.
    """
    device = next(athena.parameters()).device
    progress = Progress(
        athena.head, athena.read(move(collate_texts(examples, pad_token_id), device))
    )
    expanders = [Expander(len(example.places), constants) for example in examples]
    first_number = starts([len(example.places) for example in examples])
    active = list(range(len(examples)))
    owners = np.empty(0, dtype=np.int64)  # of all thoughts, in order of acceptance
    thoughts = [owners] * len(examples)  # each problem's, among all
    probabilities = np.empty(0)

    def place(op: Op, owner: int, index: int) -> int:
        """Return an operand's number over the batch."""
        if op == Op.CONSTANT:
            return index
        return index + first_number[owner] if op == Op.NUMBER else thoughts[owner][index]

    for _ in range(depth + 1):
        offered = [
            (op, place(op, owner, left), place(op, owner, right), owner, expression)
            for owner in active
            for op, left, right, expression in expanders[owner].candidates()
        ]
        if offered:
            offered.sort(key=lambda candidate: candidate[0])
            op, left, right, owner, expression = np.array(offered, dtype=np.int64).T
            candidates = move(level(op, left, right, owner), device)
            probability = _sigmoid(progress.judge(candidates))
            accepted = []
            for problem in active:
                own = np.flatnonzero(owner == problem)
                kept = own[probability[own] >= ACCEPTED_FROM]
                if not len(kept) and not len(thoughts[problem]):
                    kept = own
                best_first = np.argsort(-probability[kept], kind="stable")
                kept = np.sort(kept[best_first[: expanders[problem].room]])
                expanders[problem].accept(expression[kept].tolist())
                accepted.append(kept)
            index = np.concatenate(accepted)
            owners = np.concatenate([owners, owner[index]])
            thoughts = [np.flatnonzero(owners == problem) for problem in range(len(examples))]
            progress.accept(tensor(index).to(device), move(Rows.of(owners), device))
            probabilities = _sigmoid(progress.answers())
        active = [
            problem
            for problem in active
            if probabilities[thoughts[problem]].max() < ANSWERED_FROM
            and not expanders[problem].exhausted
        ]
        if not active:
            break
    found = []
    for example, expander, own in zip(examples, expanders, thoughts, strict=True):
        best = expander.thoughts[int(probabilities[own].argmax())]
        nodes = expander.expressions
        found.append(Solution(nodes.text(best), nodes.value(best, example.problem.numbers)))
    return found


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
