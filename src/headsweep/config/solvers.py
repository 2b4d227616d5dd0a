"""Config sections of word problems and of solvers, which are trained on them; their profiles."""

from typing import Annotated, Any, Literal

from pydantic import Field, SerializerFunctionWrapHandler, model_serializer, model_validator

from headsweep.config.profiles import PROFILES
from headsweep.config.section import (
    Count,
    Depth,
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

FETCH = {
    "asdiv_a": "git clone https://github.com/chaochun/nlu-asdiv-dataset data/asdiv",
    "math23k": (
        "git clone https://github.com/SCNU203/Math23k data/math23k && for part in train test; do "
        r"""jq -c ". + {split: \"$part\"}" data/math23k/math23k_$part.json; done """
        "> data/math23k.jsonl"
    ),
}
"""Commands that make the datasets' files: data/asdiv/dataset/ASDiv.xml and data/math23k.jsonl."""

CONTEXT = 512
"""Tokens that an encoder from scratch reads at most, special ones included."""


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
    """Local .jsonl or .jsonl.gz in the dataset's own columns, instead of the hub; of ASDiv also the
    public ASDiv.xml. Where the file is missing, an error says how to make it."""
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
    layers: Depth = 3
    """From scratch: layers."""
    width: Count = 128
    """From scratch: width of the residual stream."""
    heads: Depth = 8
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
            shape = PROFILES[self.profile]["encoder"]
            width = width if "width" in stated else shape["width"]
            heads = heads if "heads" in stated else shape["heads"]
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
        large = dataset == "math23k"
        of_dataset = {"depth": 10 if large else 4, "encoder": {"min_count": 5 if large else 2}}
        changed = merged(merged(PROFILES[self.profile], of_dataset), self.model_dump())
        return Solver.model_validate({**changed, "profile": None})
