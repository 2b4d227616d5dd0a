"""The settings of a recovery: which heads are removed, and how the rest is trained.

Nothing heavy is imported, so that the command line, which is made of them, starts fast.
"""

from typing import Annotated, Any, Literal

from pydantic import Field, ValidationError, model_validator

from headsweep.config.section import (
    Count,
    Fraction,
    Positive,
    Section,
    Seed,
    Share,
    first_problem,
)
from headsweep.errors import ConfigError


class Recovery(Section):
    """How heads are removed from a decoder, and how the rest is trained."""

    ratio: Share = 0.25
    """Share of all heads to remove; 0 trains without removing any, for comparison."""
    criterion: str = "causal"
    """Score whose lowest heads are removed: causal, the rise of the loss on the calibration texts
    without the head, or its group; mixed, the paper's; norm, entropy, attention or random."""
    alpha: Fraction = 0.5
    """mixed: weight of the norm"""
    scope: Literal["all", "layer"] = "all"
    """rank all heads together, or those of each layer"""
    unit: Literal["group", "query"] = "group"
    """grouped-query attention: remove whole groups, or one query head of each"""
    uniform: bool = False
    """remove equally many heads of every layer, so that plain from_pretrained loads the result"""
    seed: Seed = 0
    """Decides random scores, the order of texts and what dropout leaves out."""
    rounds: Count = 4
    """rounds of removal and training"""
    exponent: Positive = 1.0
    """above 1 most heads go in late rounds"""
    calibration: Count = 32
    """pieces of text that heads are scored on"""
    steps: Count = 1000
    """training steps of all rounds together"""
    batch_size: Count = 16
    """pieces of text a step"""
    micro_batch: Count = 2
    """pieces that each process has in memory at once"""
    length: Annotated[int, Field(ge=2, strict=True)] = 512
    """tokens of a piece of text, at most"""
    learning_rate: Positive | None = None
    """highest rate of AdamW, reached after a tenth of a round, falling to zero over all (5e-5, with
    LoRA 2e-4)"""
    teacher: Literal["previous", "original", "none"] = "previous"
    """the model before the round, as published, the unpruned one, or the texts alone"""
    temperature: Positive = 2.0
    """divides the logits of teacher and student"""
    distill_weight: Fraction = 0.5
    """weight of the teacher in the loss; the texts have the rest"""
    lora: Count | None = None
    """train LoRA matrices of this rank only, beside all linear layers; needs the package peft"""
    gradient_checkpointing: bool = False
    """less memory, a third more time"""
    precision: Literal["auto", "no", "bf16"] = "auto"
    """bf16: passes in bfloat16, trained weights in float32; auto: where a GPU has it"""

    @model_validator(mode="after")
    def _fits(self) -> "Recovery":
        if self.steps < self.rounds:
            raise ValueError(f"{self.steps} steps cannot be divided over {self.rounds} rounds")
        return self

    @property
    def decisive(self) -> dict[str, Any]:
        """The settings that decide the result, as JSON: not those that only spare memory."""
        return self.model_dump(mode="json", exclude={"micro_batch", "gradient_checkpointing"})

    @property
    def rate(self) -> float:
        """The highest learning rate."""
        return self.learning_rate or (2e-4 if self.lora else 5e-5)


def recovery(**settings: object) -> Recovery:
    """Return checked settings.

    Raises:
        ConfigError: one line naming the setting, its value and what is allowed.
    """
    try:
        return Recovery.model_validate(settings)
    except ValidationError as error:
        raise ConfigError(first_problem(error, Recovery)) from None


PRUNING = (
    "ratio",
    "criterion",
    "alpha",
    "scope",
    "unit",
    "uniform",
    "seed",
)
"""The settings that pruning without training has, too."""
TRAINING = tuple(name for name in Recovery.model_fields if name not in PRUNING)
"""The settings that only recovery has."""
