"""Config sections of compression: how heads are ranked, removed and their loss distilled away."""

import math
from decimal import ROUND_CEILING, ROUND_FLOOR, Context, Decimal
from typing import Annotated, Any, Literal

from pydantic import Field, model_validator

from headsweep.config.section import (
    Count,
    Fraction,
    NotNegative,
    Positive,
    Section,
    Share,
)
from headsweep.config.solvers import Training

NOTABLE = 0.015
"""Loss of accuracy (0 to 1) above which a user is warned."""

NARROW = 0.05
"""Relative half-width of the interval of a ratio of times above which no sentence speaks of it."""


def is_narrow(ratio: float, high: float) -> bool:
    """Return whether the interval of a ratio of times, up to `high`, is no wider than ±`NARROW`.

    Its logarithm's interval is symmetric. Of a time that was not measured (NaN) it is not.
    """
    return high <= (1 + NARROW) * ratio


SCORED_AT_ONCE = 16
"""Texts that a model is scored on together, if `Importance.batch_size` does not say."""


def advised(removed: int, criterion: str) -> str:
    """Return what to try where a training that removed some heads, or none, lost accuracy."""
    if not removed:
        return "no head was removed; train for fewer epochs, or lower learning_rate"
    return "look at alpha, or lower the ratio" if criterion == "mixed" else "lower the ratio"


def unit_size(heads: int, kv_heads: int, unit: str) -> int:
    """Return how many heads of a layer are removed together, by `Importance.unit`."""
    shared = heads // kv_heads
    return {"group": shared, "query": kv_heads if shared > 1 else 1, "head": 1}[unit]


def heads_at(ratio: float, heads: int) -> int:
    """Return the number of heads that a ratio of the original heads means, rounded down."""
    return math.floor(ratio * heads + 1e-9)  # 0.29 * 100 is 28.999999999999996


class Importance(Section):
    """How heads are ranked; heads with the lowest scores are pruned first.

    Only the encoder's heads are ranked. ATHENA's thought head has attention, too, but a merge sees
    two keys, the answer judge mostly one and the reason judge a few. Entropy over so few keys says
    little, and by it these heads, which do the reasoning, would be pruned first.
    """

    criterion: Literal["mixed", "attention", "causal", "random"] = "mixed"
    """mixed: alpha w + (1 - alpha) H, of weight norm w and attention entropy H. attention: largest
    attention weight, mean over queries. causal: rise of the loss on the development part without
    the head; for a model, loss of accuracy on its training questions, taken once, before the first
    round, where the others are measured before each. random: a uniform draw."""
    alpha: Fraction = 0.5
    """mixed: weight of the norm."""
    norm: Literal["weights", "activations"] = "weights"
    """mixed: mean absolute entry of a head's weights, or of its queries, keys and values."""
    entropy: Literal["raw", "normalised"] = "normalised"
    """mixed: entropy in nats, or as a fraction of its maximum."""
    scale: Literal["raw", "min_max"] = "min_max"
    """mixed: both terms as measured, or each scaled to [0, 1] over all heads."""
    entropy_sign: Literal[1, -1] = 1
    """mixed: 1 prunes focused heads first, as published; -1 prunes diffuse heads first."""
    scope: Literal["all", "layer"] = "all"
    """Rank all heads together, or those of each layer; then all layers lose equally many."""
    unit: Literal["group", "query"] = "group"
    """What is pruned together where query heads share key/value heads: a key/value head with all
    its query heads, or one query head of every group of a layer."""
    calibration: Count | None = 512
    """Number of training problems, always the same, on which scores are measured; null: all."""
    batch_size: Count | None = None
    """Texts scored together, which changes only memory and rounding; null: 16 for a model, 64 for
    a solver. `headsweep plan` says what scoring a model takes."""


class Distillation(Section):
    """What the pruned solver learns from a teacher with more heads."""

    teacher: Literal["recursive", "original", "none"] = "recursive"
    """recursive: the solver before each round's pruning. original: the unpruned solver in all
    rounds. none: only the solver's own objective."""
    response: bool = True
    """Whether the student learns its teacher's judgements of candidates and answers."""
    feature: Literal["matched", "mean", "none"] = "matched"
    """Attention maps that the student learns: those of the same heads, the means over the heads of
    each layer, or none."""
    reduction: Literal["keys", "literal"] = "keys"
    """Squared differences of attention: summed over keys, or averaged over all entries."""
    temperature: Positive = 2.0
    """Temperature of the teacher's and the student's logits."""
    beta: Positive = 1.0
    """Weight of the attention maps relative to the logits."""
    distill_weight: Positive = 0.5
    """Weight of the distillation loss."""
    task_weight: NotNegative = 0.5
    """Weight of the solver's own objective, if there is a teacher."""

    @model_validator(mode="after")
    def _teaches(self) -> "Distillation":
        if self.teacher != "none" and not self.response and self.feature == "none":
            raise ValueError("the teacher teaches nothing; set `response` or `feature`")
        return self


class Compression(Section):
    """How attention heads are pruned, and how the rest is trained."""

    ratio: Share = 0.25
    """Fraction of all query heads to prune, rounded down to what `importance.unit` takes."""
    start: Share = 0.0
    """p_min: fraction of the heads to prune at once."""
    exponent: Positive = 1.0
    """n: above 1 most heads are pruned late, below 1 early."""
    schedule: Literal["rounds", "one_shot", "literal"] = "rounds"
    """When heads are pruned. rounds: some before each round of training. one_shot: all before the
    first round. literal: one at a time between optimiser steps; all training is one round."""
    rounds: Annotated[int, Field(ge=0, strict=True)] = 4
    """R, the number of rounds; 0 leaves the solver as it is."""
    smallest: Count | None = None
    """literal: stop pruning at this number of parameters."""
    largest_loss: Share | None = None
    """literal: stop pruning once strict accuracy on the development part has fallen by more than
    this."""
    scratch: bool = False
    """Reset all weights after pruning, and train by the solver's recipe, for the epochs of solver
    and rounds together."""
    scratch_rate: Positive | None = None
    """scratch: initial learning rate; null: the solver's. A pretrained solver's is too low."""
    scratch_times: Count = 1
    """scratch: trains this many times as long."""
    importance: Importance = Importance()
    """How heads are ranked."""
    distillation: Distillation = Distillation()
    """What the remaining heads learn from a teacher."""
    training: Training = Training(patience=None)
    """The recipe; its epochs are divided over the rounds. `patience` defaults to null here, so that
    all arms of a comparison make equally many steps."""

    @model_validator(mode="before")
    @classmethod
    def _as_many_steps(cls, values: Any) -> Any:
        if isinstance(values, dict) and isinstance(values.get("training"), dict):
            return {**values, "training": {"patience": None, **values["training"]}}
        return values

    @model_validator(mode="after")
    def _possible(self) -> "Compression":
        literal = self.schedule == "literal"
        if self.start > self.ratio:
            raise ValueError(f"start {self.start} is above ratio {self.ratio}")
        if not self.rounds and self.ratio:
            raise ValueError("0 rounds remove nothing; set `ratio: 0`, or `rounds`")
        if self.rounds > self.training.epochs and not (literal or self.scratch):
            raise ValueError(
                f"{self.training.epochs} epochs cannot be divided over {self.rounds} rounds"
            )
        if not literal and (self.smallest or self.largest_loss is not None):
            raise ValueError("`smallest` and `largest_loss` need `schedule: literal`")
        if self.scratch and not self.rounds:
            raise ValueError(
                "0 rounds leave the solver as it is; set `rounds`, or `scratch: false`"
            )
        if self.scratch and self.distillation.teacher != "none":
            raise ValueError("weights from scratch have no teacher; set `teacher: none`")
        return self

    def check_shape(self, layers: int, heads: int, kv_heads: int) -> None:
        """Refuse a ratio that removes nothing, or that would leave a layer without heads.

        Raises:
            ValueError: one line.
        """
        unit = unit_size(heads, kv_heads, self.importance.unit)
        whole = layers * heads
        due = heads_at(self.ratio, whole)
        largest = layers * (heads - unit)
        if self.ratio > 0 and largest == 0:
            raise ValueError(
                f"ratio {self.ratio} leaves a layer without heads: {unit} of {heads} go at once; "
                f"set it to 0"
            )
        if self.ratio > 0 and due < unit:
            least = Context(prec=3, rounding=ROUND_CEILING).divide(Decimal(unit), Decimal(whole))
            raise ValueError(
                f"ratio {self.ratio} removes nothing of {whole} heads, of which {unit} go at once; "
                f"raise it to {least} at least"
            )
        if due > largest:
            most = Context(prec=3, rounding=ROUND_FLOOR).divide(Decimal(largest), Decimal(whole))
            raise ValueError(
                f"ratio {self.ratio} leaves a layer without heads: of {whole}, {largest} can go; "
                f"lower it to {most}"
            )

    @property
    def causal(self) -> bool:
        """Whether heads are pruned, and ranked by what their removal costs."""
        return self.ratio > 0 and self.importance.criterion == "causal"

    def decisive(self) -> "Compression":
        """Return the settings with those that have no effect at their defaults, and unchecked.

        So equal ones give equal results.
        """
        if not self.rounds:
            return Compression(rounds=0, ratio=0.0)
        importance = self.importance.reset("batch_size")
        if importance.criterion != "mixed":
            importance = importance.reset("alpha", "norm", "entropy", "scale", "entropy_sign")
        if importance.criterion in ("random", "causal"):
            importance = importance.reset("calibration")
        distillation = self.distillation
        if distillation.teacher == "none":
            distillation = Distillation(teacher="none")
        training = self.training.reset("checkpoint_steps")
        nested = {"importance": importance, "distillation": distillation, "training": training}
        idle = {"rounds"} if self.schedule == "literal" else {"smallest", "largest_loss"}
        if self.schedule == "one_shot":
            idle |= {"start", "exponent"}
        if not self.ratio:
            idle |= {"start", "exponent", "importance"}
        if not self.scratch:
            idle |= {"scratch_rate", "scratch_times"}
        return self.model_copy(update=nested).reset(*idle)
