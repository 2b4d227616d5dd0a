"""Settings of word problems, of the solver and of its compression; profiles without download."""

from typing import Annotated, Any, Literal

from pydantic import (
    Field,
    SerializerFunctionWrapHandler,
    model_serializer,
    model_validator,
)

from headroom.config.section import Count, Section, Seed, given, merged

MATH23K = "Gxg/Math23K"
"""The dataset's hub id."""

Share = Annotated[float, Field(ge=0, lt=1)]
Positive = Annotated[float, Field(gt=0)]


class Partition(Section):
    """How problems are divided into training, development and test part."""

    protocol: Literal["random", "folds", "official"] = "random"
    """random: by `ratios`. folds: cross-validation over the dataset's own folds, or over five drawn
    ones. official: the dataset's own split. Random parts keep the shares of strata and never
    divide problems with the same masked text."""
    ratios: tuple[Count, Count, Count] = (7, 1, 2)
    """Training, development and test part, as shares of their sum."""
    fold: Annotated[int, Field(ge=0, le=4, strict=True)] = 0
    """The fold that is tested; a tenth of the others is the development part."""
    seed: Seed = 0
    """Seed of every draw."""


class WordProblems(Section):
    """A dataset of word problems with equations."""

    dataset: Literal["math23k", "asdiv_a", "generated"]
    """Which dataset; generated ones need no download."""
    file: str | None = None
    """Local .jsonl or .jsonl.gz in the dataset's own columns, instead of the hub."""
    revision: str | None = None
    """Hub: commit hash. File: its sha256, checked where given."""
    n: Count | None = None
    """Problems to generate."""
    seed: Seed = 0
    """Seed of generated problems."""
    partition: Partition = Partition()
    """Which of them are trained on, looked at and tested."""

    @property
    def generated(self) -> bool:
        """Whether the problems are made here, without download."""
        return self.dataset == "generated"

    @model_validator(mode="after")
    def _one_origin(self) -> "WordProblems":
        if self.generated and (self.file or self.revision or self.n is None):
            raise ValueError("generated problems take `n`, and no `file` or `revision`")
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
        if self.width % self.heads:
            raise ValueError(f"width {self.width} cannot be divided into {self.heads} heads")
        return self

    @model_serializer(mode="wrap")
    def _without_shape(self, serialise: SerializerFunctionWrapHandler) -> dict[str, Any]:
        """Leave out what is said of encoders from scratch, as validation asks."""
        values: dict[str, Any] = serialise(self)
        left_out = _SHAPE if self.source is not None else set()
        return {name: value for name, value in values.items() if name not in left_out}


class Training(Section):
    """How a solver is trained: AdamW with linearly falling rate."""

    epochs: Count = 30
    """Passes over the training part, at most."""
    patience: Count | None = 5
    """Epochs without better strict accuracy on the development part before training ends; null:
    never, and the last weights are kept."""
    batch_size: Count = 32
    """Problems a step."""
    micro_batches: Count = 1
    """Pieces that a step's gradient is accumulated over, to save memory."""
    learning_rate: Positive = 5e-5
    """At the start; falls linearly to zero at the last step of the last epoch."""
    weight_decay: Annotated[float, Field(ge=0)] = 0.01
    """AdamW weight decay of matrices."""
    clip: Positive = 1.0
    """Largest norm of the gradient."""
    precision: Literal["no", "bf16", "fp16"] = "no"
    """Mixed precision: none (float32), bfloat16 or float16."""
    checkpoint_steps: Count = 200
    """Steps between checkpoints."""


class Solver(Section):
    """An ATHENA solver."""

    profile: Literal["fixture", "tiny", "small", "medium"] | None = None
    """A small solver from scratch that the other keys change: fixture learns generated problems
    within seconds, medium wants a GPU."""
    encoder: Encoder = Encoder()
    """Reads the text."""
    depth: Count = 10
    """Last depth that is expanded."""
    goal: Literal["end", "question"] = "end"
    """What the answer judge attends to: the question's last token, or all of its tokens."""
    targets: Literal["tree", "multi"] = "tree"
    """Right candidates: the steps of the gold equation; multi: sums and products of some of a
    step's terms too."""
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
        return self

    @model_serializer(mode="wrap")
    def _as_written(self, serialise: SerializerFunctionWrapHandler) -> dict[str, Any]:
        """Keep a profile with what changes it: the rest depends on the dataset."""
        values: dict[str, Any] = given(self) if self.profile else serialise(self)
        return values

    def on(self, dataset: str) -> "Solver":
        """Return the settings on a dataset: those of the profile, changed as the other keys say."""
        if self.profile is None:
            return self
        changes = {name: value for name, value in given(self).items() if name != "profile"}
        return Solver.model_validate(merged(profile(self.profile, dataset).model_dump(), changes))


class Importance(Section):
    """How heads are ranked; those of lowest score go first.

    They are the encoder's. ATHENA's thought head attends, too, but a merge sees two keys, the
    answer judge mostly one and the reason judge a few: entropies over so few keys are no measure,
    and by them these heads, which do the reasoning, would go first.
    """

    criterion: Literal["mixed", "attention", "causal", "random"] = "mixed"
    """mixed: alpha w + (1 - alpha) H, weight norm and attention entropy. attention: largest
    attention weight, mean over queries. causal: rise of the loss on the development part without
    the head. random: a uniform draw."""
    alpha: Annotated[float, Field(ge=0, le=1)] = 0.5
    """mixed: weight of the norm."""
    norm: Literal["weights", "activations"] = "weights"
    """mixed: mean absolute entry of a head's weights, or of its queries, keys and values."""
    entropy: Literal["raw", "normalised"] = "normalised"
    """mixed: in nats, or as a part of the largest possible."""
    scale: Literal["raw", "min_max"] = "min_max"
    """mixed: both terms as measured, or each stretched to 0 to 1 over all heads."""
    entropy_sign: Literal[1, -1] = 1
    """mixed: 1 lets heads that focus go first, as published; -1 those that look everywhere."""
    scope: Literal["all", "layer"] = "all"
    """Rank all heads together, or those of each layer, which then lose equal numbers."""
    unit: Literal["group", "query"] = "group"
    """Where query heads share key/value heads: a key/value head goes with all of its query heads,
    or one query head of every group of a layer."""
    calibration: Count | None = 512
    """Training problems, always the same, that scores are measured on; null: all of them."""


class Distillation(Section):
    """What the heads that are left learn from a teacher, which is larger."""

    teacher: Literal["recursive", "original", "none"] = "recursive"
    """recursive: in each round the solver as it was before the round's pruning. original: in all
    rounds the unpruned solver. none: the solver's own objective alone."""
    response: bool = True
    """Whether the student is to judge candidates and answers as its teacher does."""
    feature: Literal["matched", "mean", "none"] = "matched"
    """Attention maps that are compared: those of the same heads, the means over the heads of each
    layer, or none."""
    reduction: Literal["keys", "literal"] = "keys"
    """Squared differences of attention: summed over keys, or averaged over all entries."""
    temperature: Positive = 2.0
    """Softens the logits of both."""
    beta: Positive = 1.0
    """Weight of the attention maps beside the logits."""
    distill_weight: Positive = 0.5
    """Weight of what the teacher says."""
    task_weight: Annotated[float, Field(ge=0)] = 0.5
    """Weight of the solver's own objective, where there is a teacher."""

    @model_validator(mode="after")
    def _teaches(self) -> "Distillation":
        if self.teacher != "none" and not self.response and self.feature == "none":
            raise ValueError("the teacher teaches nothing; set `response` or `feature`")
        return self


class Compression(Section):
    """How a solver loses attention heads and learns to do without them."""

    ratio: Share = 0.25
    """Part of the encoder's heads that goes, in all; rounded down to whole heads."""
    start: Share = 0.0
    """p_min: part of the heads that goes at once."""
    exponent: Positive = 1.0
    """n: above 1 heads go late, below 1 early."""
    schedule: Literal["rounds", "one_shot", "literal"] = "rounds"
    """rounds: some heads before each round of training. one_shot: all before the first round.
    literal: one at a time between optimiser steps, and all training is one round."""
    rounds: Annotated[int, Field(ge=0, strict=True)] = 4
    """R; 0 leaves the solver as it is."""
    smallest: Count | None = None
    """literal: stop at so many parameters."""
    largest_loss: Share | None = None
    """literal: stop once strict accuracy on the development part has fallen by more."""
    scratch: bool = False
    """Forget all weights once the heads are gone, and train for the epochs of solver and rounds
    together, by the solver's recipe."""
    importance: Importance = Importance()
    """Which heads go."""
    distillation: Distillation = Distillation()
    """What the others learn."""
    training: Training = Training(patience=None)
    """The recipe; its epochs are divided over the rounds. `patience` is null where it is not given:
    every run of a comparison makes as many steps."""

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
        if self.scratch and self.distillation.teacher != "none":
            raise ValueError("weights from scratch have no teacher; set `teacher: none`")
        return self

    def check_shape(self, layers: int, heads: int, kv_heads: int) -> None:
        """Refuse a ratio that removes nothing, or that would leave a layer without heads.

        Args:
            layers: of the encoder or decoder.
            heads: query heads a layer.
            kv_heads: key/value heads a layer.

        Raises:
            ValueError: one line.
        """
        unit = heads // kv_heads if self.importance.unit == "group" else kv_heads
        if heads == kv_heads:
            unit = 1
        whole, largest = layers * heads, layers * (heads - unit)
        if 0 < self.ratio * whole < unit:
            raise ValueError(
                f"ratio {self.ratio} removes nothing of {whole} heads, of which {unit} go at once; "
                f"raise it to {unit / whole:.3g} at least"
            )
        if self.ratio * whole >= largest + 1:
            raise ValueError(
                f"ratio {self.ratio} leaves a layer without heads: of {whole}, {largest} can go; "
                f"lower it to {largest / whole:.3g}"
            )

    @property
    def causal(self) -> bool:
        """Whether heads are ranked by what their removal costs; where none goes, none is ranked."""
        return self.ratio > 0 and self.importance.criterion == "causal"

    def decisive(self) -> dict[str, Any]:
        """Return the settings that decide what comes out: none that others make idle."""
        if not self.rounds:
            return {"rounds": 0}
        values = self.model_dump(mode="json")
        del values["training"]["checkpoint_steps"]
        idle = {"rounds"} if self.schedule == "literal" else {"smallest", "largest_loss"}
        if self.schedule == "one_shot":
            idle |= {"start", "exponent"}
        if not self.ratio:
            idle |= {"start", "exponent", "importance"}
        if self.distillation.teacher == "none":
            values["distillation"] = {"teacher": "none"}
        if self.importance.criterion != "mixed":
            for name in ("alpha", "norm", "entropy", "scale", "entropy_sign"):
                del values["importance"][name]
        if self.importance.criterion in ("random", "causal"):
            del values["importance"]["calibration"]
        return {name: value for name, value in values.items() if name not in idle}


_PROFILES: dict[str, tuple[int, int, int, int, float, int, float, int]] = {
    "fixture": (64, 2, 4, 128, 0.0, 7, 2e-3, 16),
    "tiny": (128, 3, 8, 256, 0.2, 50, 1e-3, 32),
    "small": (256, 4, 8, 512, 0.2, 30, 1e-3, 32),
    "medium": (512, 6, 8, 1024, 0.3, 40, 5e-4, 32),
}
"""Width, layers, heads, intermediate and dropout; epochs, learning rate and batch size of the
training: from generated problems within seconds up to what wants an accelerator."""


def profile(name: str, dataset: str) -> Solver:
    """Return the settings of a profile for a dataset.

    Math23k has deeper equations than the others, and enough text for a stricter vocabulary.
    """
    width, layers, heads, intermediate, dropout, epochs, rate, batch_size = _PROFILES[name]
    large = dataset == "math23k"
    encoder = {"width": width, "layers": layers, "heads": heads, "intermediate": intermediate}
    training = {"epochs": epochs, "learning_rate": rate, "batch_size": batch_size}
    return Solver.model_validate(
        {
            "encoder": {**encoder, "dropout": dropout, "min_count": 5 if large else 2},
            "training": {**training, "patience": None},
            "dropout": dropout,
            "depth": 10 if large else 4,
        }
    )
