"""Config sections of word problems, solvers and their compression; profiles of small solvers."""

import math
from decimal import ROUND_CEILING, ROUND_FLOOR, Context, Decimal
from typing import Annotated, Any, Literal

from pydantic import Field, SerializerFunctionWrapHandler, model_serializer, model_validator

from headsweep.config.profiles import PROFILES
from headsweep.config.section import (
    Count,
    Fraction,
    NotNegative,
    Positive,
    Section,
    Seed,
    Share,
    merged,
    unquoted,
)

MATH23K = "Gxg/Math23K"
"""The dataset's hub id."""

CONTEXT = 512
"""Tokens that an encoder from scratch reads at most, special ones included."""
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


class Partition(Section):
    """How problems are divided into training, development and test parts."""

    protocol: Literal["random", "folds", "official"] = "random"
    """random: by `ratios`. folds: cross-validation over the dataset's own folds, or over five
    random ones. official: the dataset's own split. Random parts are stratified and keep problems
    with the same masked text together."""
    ratios: tuple[Count, Count, Count] = (7, 1, 2)
    """Relative sizes of the training, development and test parts."""
    fold: Annotated[int, Field(ge=0, le=4, strict=True)] = 0
    """The test fold; a tenth of the other folds is the development part."""
    seed: Seed = 0
    """Seed of every draw."""


class WordProblems(Section):
    """A dataset of word problems with equations."""

    dataset: Literal["math23k", "asdiv_a", "generated"]
    """The dataset; generated problems need no download."""
    file: str | None = None
    """Local .jsonl or .jsonl.gz in the dataset's own columns, instead of the hub."""
    revision: str | None = None
    """Hub: commit hash. File: its sha256, checked if given."""
    n: Count | None = None
    """generated: number of problems."""
    seed: Seed = 0
    """generated: seed of the problems."""
    title: str | None = None
    """What the report calls it; null: by its dataset or file."""
    partition: Partition = Partition()
    """How they are divided into training, development and test parts."""

    @property
    def generated(self) -> bool:
        """Whether the problems are made here, without download."""
        return self.dataset == "generated"

    @model_validator(mode="after")
    def _one_origin(self) -> "WordProblems":
        if self.generated and (self.file or self.revision or self.n is None):
            raise ValueError("generated problems take `n`, and no `file` or `revision`")
        if self.generated and self.partition.protocol == "official":
            raise ValueError(
                "generated problems have no official split; set `partition: {protocol: random}`"
            )
        if not self.generated and self.n is not None:
            raise ValueError(f"{self.dataset} is read whole: it takes no `n`")
        if self.dataset == "asdiv_a" and self.file is None:
            raise ValueError("asdiv_a is on no hub in this form; give `file`")
        if self.dataset == "math23k" and not (self.file or self.revision):
            raise ValueError("math23k from the hub: give its `revision`, or a `file`")
        return self


_SHAPE = {"layers", "width", "heads", "intermediate", "dropout", "min_count"}


class Encoder(Section):
    """The encoder of a solver: a pretrained one, or a small one from scratch."""

    source: str | None = None
    """Hub id or local folder."""
    revision: str | None = None
    """Hub: commit hash, pinned. Folder: its fingerprint."""
    layers: Count = 3
    """From scratch: layers."""
    width: Count = 128
    """From scratch: width of the residual stream."""
    heads: Count = 8
    """From scratch: attention heads a layer; divides `width`."""
    intermediate: Count = 256
    """From scratch: width of the feed-forward layers."""
    dropout: Share = 0.1
    """From scratch: dropout."""
    min_count: Count = 2
    """From scratch: words seen less often in training are unknown."""

    @model_validator(mode="after")
    def _possible(self) -> "Encoder":
        shape = sorted(_SHAPE & self.model_fields_set)
        if self.source is not None and shape:
            raise ValueError(f"`source` has a shape of its own; remove {', '.join(shape)}")
        if self.source is None and self.revision is not None:
            raise ValueError("`revision` belongs to `source`; an encoder from scratch has none")
        return self

    @model_serializer(mode="wrap")
    def _without_shape(self, serialise: SerializerFunctionWrapHandler) -> dict[str, Any]:
        """Leave out the shape of a pretrained encoder, which validation refuses."""
        idle = _SHAPE if self.source is not None else set()
        return {name: value for name, value in serialise(self).items() if name not in idle}


class Training(Section):
    """How a solver is trained: AdamW with a linearly falling learning rate."""

    epochs: Count = 30
    """Passes over the training part, at most."""
    patience: Count | None = 5
    """Training stops after this many epochs without better strict accuracy on the development
    part; null: it never stops early, and the last weights are kept."""
    batch_size: Count = 32
    """Problems per step."""
    micro_batches: Count = 1
    """Micro-batches over which a step's gradient is accumulated, to save memory."""
    learning_rate: Positive = 5e-5
    """Initial rate; falls linearly to zero at the last step of the last epoch."""
    weight_decay: NotNegative = 0.01
    """AdamW weight decay of weight matrices."""
    clip: Positive = 1.0
    """Maximum norm of the gradient."""
    precision: Annotated[Literal["no", "bf16", "fp16"], unquoted("no")] = "no"
    """Mixed precision: none (float32), bfloat16 or float16."""
    checkpoint_steps: Count = 200
    """Steps between checkpoints."""


class Solver(Section):
    """An ATHENA solver."""

    profile: Literal["fixture", "tiny", "small", "medium"] | None = None
    """Settings of a small solver from scratch, which the other keys change: fixture learns
    generated problems within seconds, medium should have a GPU."""
    encoder: Encoder = Encoder()
    """The encoder of the text."""
    depth: Count = 10
    """Largest depth that is expanded."""
    dropout: Share = 0.5
    """Dropout of the thought head."""
    training: Training = Training()
    """How it is trained."""

    @model_validator(mode="after")
    def _from_scratch(self) -> "Solver":
        if self.profile is not None and self.encoder.source is not None:
            raise ValueError(
                f"profile {self.profile!r} is an encoder from scratch; remove `profile`, or "
                f"encoder.source"
            )
        width, heads = self.encoder.width, self.encoder.heads
        if self.profile is not None:
            stated = self.encoder.model_fields_set
            width = width if "width" in stated else PROFILES[self.profile].width
            heads = heads if "heads" in stated else PROFILES[self.profile].heads
        if width % heads:
            raise ValueError(f"encoder.width {width} cannot be divided into {heads} heads")
        return self

    @model_serializer(mode="wrap")
    def _as_written(self, serialise: SerializerFunctionWrapHandler) -> dict[str, Any]:
        """Keep only a profile and its changes: the other values depend on the dataset."""
        if self.profile is None:
            return dict(serialise(self))
        values = {name: getattr(self, name) for name in sorted(self.model_fields_set)}
        return {
            name: value.model_dump(exclude_unset=True) if isinstance(value, Section) else value
            for name, value in values.items()
        }

    def on(self, dataset: str) -> "Solver":
        """Return the settings for a dataset: the profile's, with the changes of the other keys.

        Math23k has deeper equations than other datasets, and text for a stricter vocabulary.
        """
        if self.profile is None:
            return self
        profile = PROFILES[self.profile]
        large = dataset == "math23k"
        settings = {
            "encoder": {
                "width": profile.width,
                "layers": profile.layers,
                "heads": profile.heads,
                "intermediate": profile.intermediate,
                "dropout": profile.dropout,
                "min_count": 5 if large else 2,
            },
            "training": {
                "epochs": profile.epochs,
                "learning_rate": profile.learning_rate,
                "batch_size": profile.batch_size,
                "patience": None,
            },
            "dropout": profile.dropout,
            "depth": 10 if large else 4,
        }
        changed = merged(settings, self.model_dump())
        return Solver.model_validate({**changed, "profile": None})


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
