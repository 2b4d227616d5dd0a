"""The sections of a config for the first paper's experiments, and what is beside them."""

from typing import Annotated, Literal

from pydantic import BeforeValidator, Field

from headroom.config.questions import Preset
from headroom.config.section import Count, Section, Seed

_LIST = BeforeValidator(lambda value: value if isinstance(value, list | tuple) else (value,))
"""Takes a single value for a list of one."""

Geometry = Literal["sphere", "ball", "literal"]

Placebos = Literal["none", "numeric", "noise", "both", "replay", "all"]

Layers = Literal["all"] | tuple[Annotated[int, Field(ge=0, strict=True)], ...]


class Sweep(Section):
    """A sweep whose table, violins and heatmaps are drawn: heads pruned one at a time."""

    model: str
    """Name under `models`."""
    questions: str
    """Name under `questions`."""
    decoding: str = "greedy"
    """Name under `decodings`; greedy."""
    layers: Layers
    """Layers whose heads are pruned, from 0; or all."""
    heads: Layers = "all"
    """Query heads pruned in each layer, from 0; or all."""
    grading: Preset | None = None
    """Rules that grade its answers; null: the run's. Two sweeps that differ in nothing else share
    their answers."""
    placebos: Placebos = "none"
    """Variants that prune nothing, as many as heads in a layer: what the best head of a layer
    gains is held against the best placebo. numeric: the base model decoded again in other batches,
    without verification. noise: for each head a random direction of the norm that pruning the head
    takes away, added at the same place; as many answers as the heads give. both: both. replay: one
    a layer, the base model's answers verified as those of the layer's heads are. all: all three."""
    noise_placebos: Count | None = None
    """Noise placebos a layer; null: as many as heads. Fewer are spread over the layer's heads, and
    the best head is not held against the best of them, which had fewer chances."""


class Selector(Section):
    """A SPRINT head selector: trained on one question set, tested on another."""

    model: str
    """Name under `models`."""
    train: str
    """Question set that the selector learns from."""
    test: str
    """Question set that it is tested on."""
    embedder: Annotated[tuple[str, ...], Field(min_length=1), _LIST]
    """Name under `embedders`; one, or several to choose from."""
    layers: Layers
    """Layers whose heads are in the pool."""
    heads: Layers = "all"
    """Query heads of each layer that are in the pool."""
    decoding: str = "greedy"
    """Name under `decodings`; greedy."""
    sampling: tuple[str, ...] = ()
    """Sampling decodings to compare with, on the test questions."""
    include_base: bool = False
    """Whether the base model is a member of the pool (not in the paper)."""
    geometry: Annotated[tuple[Geometry, ...], Field(min_length=1)] = (
        "sphere",
        "ball",
    )
    """Readings of the loss: unit sphere with learned temperature, unit ball, or as printed."""
    dimension: Annotated[tuple[Count, ...], Field(min_length=1)] = (32,)
    """p, the dimension of the shared space."""
    diversity: Annotated[tuple[Annotated[float, Field(ge=0)], ...], Field(min_length=1)] = (
        0.0,
        1e-5,
        1e-3,
        0.1,
        1.0,
    )
    """lambda, the weight of the diversity term; 0 is the ablation. It weighs a mean over pairs of
    heads in the bounded geometries, in `literal` the paper's sum, which is far larger."""
    learning_rate: Annotated[
        tuple[Annotated[float, Field(gt=0)], ...], Field(min_length=1), _LIST
    ] = (1e-2,)
    """AdamW learning rate; one, or several to choose from."""
    weight_decay: Annotated[tuple[Annotated[float, Field(ge=0)], ...], Field(min_length=1)] = (
        0.01,
        3.0,
    )
    """AdamW weight decay of theta."""
    epochs: Annotated[tuple[Count, ...], Field(min_length=1), _LIST] = (200,)
    """Passes over the training questions; one number, or several to choose from."""
    validation: Annotated[float, Field(gt=0, lt=1)] = 0.2
    """Share of the training questions held out to choose among the settings above."""
    seeds: Annotated[tuple[Seed, ...], Field(min_length=1)] = (0, 1, 2)
    """Seeds of initial weights and of the held-out part. Results are means over selectors trained
    from each; the first one's selector is kept."""
    redraws: Annotated[int, Field(ge=0)] = 10
    """Subsamples of two thirds of the training questions on which all is trained again: how much
    of a difference hangs on the draw. No answer is generated for them."""
    redrawn_setting: Literal["anew", "fixed"] = "anew"
    """Whether the settings above are chosen anew on each redraw, or kept."""
    shortlist: Annotated[tuple[Count, ...], Field(min_length=1)] = (16, 32)
    """K of the random-heads baseline; chosen on held-out training questions. Where K is below
    max_n, the baseline's curve ends at K."""
    max_n: Count = 16
    """Largest N of the Pass@N curves."""
    bootstrap: Count = 2000
    """Resamples over questions behind each interval."""


class Comparison(Section):
    """The authors' prompt and grading rules against the default ones, on the base model."""

    model: str
    """Name under `models`."""
    questions: str
    """Name under `questions`."""
    decodings: tuple[str, str] = ("greedy", "authors")
    """The two decodings; each is graded under both rules."""
