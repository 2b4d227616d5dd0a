"""How many heads are gone when: the pruning schedule of arXiv 2511.17577, eq. 5 and Alg. 2."""

import math
from dataclasses import dataclass

_ROUNDING = 1e-9
"""0.29 * 100 is 28.999999999999996 in floating point, and means 29."""


def ratio_at(
    time: float, end: float, target: float, *, start: float = 0.0, exponent: float = 1.0
) -> float:
    """Return the ratio of heads to be gone at a time: p_min + (p_max - p_min) (t / T)^n (eq. 5).

    Args:
        time: t, an optimizer step or a round.
        end: T, its last value; later times count as the last.
        target: p_max, the final ratio.
        start: p_min, the ratio at time 0.
        exponent: n; above 1 the pruning comes late, below 1 early.
    """
    return start + (target - start) * min(time / end, 1.0) ** exponent


def heads_at(ratio: float, heads: int) -> int:
    """Return how many of the original heads a ratio is, rounded down."""
    return math.floor(ratio * heads + _ROUNDING)


def removed_by_round(
    heads: int, target: float, rounds: int = 4, *, start: float = 0.0, exponent: float = 1.0
) -> list[int]:
    """Return how many heads are gone after each round, in all: floor(p(r) H0).

    Never falls, and ends at floor(p_max H0).

    Args:
        heads: H0, the heads of the model before anything was pruned.
        target: p_max, the final ratio.
        rounds: R.
        start: p_min.
        exponent: n.
    """
    ratios = (
        ratio_at(number, rounds, target, start=start, exponent=exponent)
        for number in range(1, rounds + 1)
    )
    return [heads_at(ratio, heads) for ratio in ratios]


@dataclass(frozen=True)
class LiteralSchedule:
    """The schedule as it is written: t is an optimizer step, and heads go one at a time.

    It ends at the target ratio, or before it at a size or at a loss of accuracy. Nothing here
    depends on an input at inference.
    """

    heads: int
    """H0, the heads of the model before anything was pruned."""
    steps: int
    """T."""
    target: float
    """p_max: the first stop rule."""
    start: float = 0.0
    """p_min."""
    exponent: float = 1.0
    """n."""
    smallest: int | None = None
    """Parameters at which to stop: the second rule, if given."""
    largest_loss: float | None = None
    """Loss of accuracy, as a part of 1, above which to stop: the third rule, if given."""

    def due(self, step: int, removed: int) -> bool:
        """Tell whether a head is to go at a step, if so many are gone already."""
        ratio = ratio_at(step, self.steps, self.target, start=self.start, exponent=self.exponent)
        return removed < heads_at(ratio, self.heads)

    def stopped(self, removed: int, parameters: int, loss: float) -> bool:
        """Tell whether no head is to go any more.

        Args:
            removed: heads that are gone.
            parameters: what the model has left.
            loss: accuracy that it has lost, as a part of 1.
        """
        return (
            removed >= heads_at(self.target, self.heads)
            or (self.smallest is not None and parameters <= self.smallest)
            or (self.largest_loss is not None and loss > self.largest_loss)
        )
