"""Config sections of the SPRINT paper's experiments and their controls."""

from typing import Annotated, Literal

from pydantic import BeforeValidator, Field

from headroom.config.questions import Preset
from headroom.config.section import Count, NotNegative, Positive, Section, Seed, Some

_LIST = BeforeValidator(lambda value: value if isinstance(value, list | tuple) else (value,))
"""Accepts a single value as a list of one."""

Geometry = Literal["sphere", "ball", "literal"]

Placebos = Literal["none", "numeric", "noise", "both", "replay", "all"]

Layers = Literal["all"] | tuple[Annotated[int, Field(ge=0, strict=True)], ...]


class Sweep(Section):
    """A sweep: heads are pruned one at a time; its table, violins and heatmaps are drawn."""

    model: str
    """Name under `models`."""
    questions: str
    """Name under `questions`."""
    decoding: str = "greedy"
    """Name under `decodings`; greedy."""
    layers: Layers
    """Layers whose heads are pruned, numbered from 0; or all."""
    heads: Layers = "all"
    """Query heads pruned in each layer, numbered from 0; or all."""
    grading: Preset | None = None
    """Rules that grade its answers; null: the run's. Sweeps that differ only in this share their
    answers."""
    placebos: Placebos = "none"
    """Controls that prune nothing; the gain of a layer's best head is compared with the best
    placebo's. numeric: the base model decoded again in other batches, without verification, as
    often as a layer has heads. noise: for each head, a random direction with the norm of what
    pruning the head removes, added at the same place; as many answers as the heads give. both:
    numeric and noise. replay: one per layer, the base model's answers verified as those of the
    layer's heads are. all: all three."""
    noise_placebos: Count | None = None
    """Noise placebos per layer; null: one per head. Fewer are spread over the layer's heads; the
    best head is then not compared with the best of them, which had fewer chances."""


class Selector(Section):
    """A SPRINT head selector: trained on one question set, tested on another."""

    model: str
    """Name under `models`."""
    train: str
    """Question set that the selector learns from."""
    test: str
    """Question set that it is tested on."""
    embedder: Annotated[Some[str], _LIST]
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
    geometry: Some[Geometry] = ("sphere", "ball")
    """Versions of the loss: on the unit sphere with learned temperature, in the unit ball, or
    literal, as printed; one, or several to choose from."""
    dimension: Some[Count] = (32,)
    """p, the dimension of the shared space."""
    diversity: Some[NotNegative] = (0.0, 1e-5, 1e-3, 0.1, 1.0)
    """lambda, the weight of the diversity term; 0 is the ablation. The term is a mean over pairs of
    heads on sphere and ball; in `literal` it is the paper's sum, which is far larger."""
    learning_rate: Annotated[Some[Positive], _LIST] = (1e-2,)
    """AdamW learning rate; one, or several to choose from."""
    weight_decay: Some[NotNegative] = (0.01, 3.0)
    """AdamW weight decay of theta."""
    epochs: Annotated[Some[Count], _LIST] = (200,)
    """Passes over the training questions; one number, or several to choose from."""
    validation: Annotated[float, Field(gt=0, lt=1)] = 0.2
    """Share of the training questions held out to choose among the settings above."""
    seeds: Some[Seed] = (0, 1, 2)
    """Seeds of initial weights and of the held-out part. Results are means over the seeds'
    selectors; the first seed's selector is kept."""
    redraws: Annotated[int, Field(ge=0)] = 10
    """Subsamples of two thirds of the training questions on which everything is trained again, to
    show how much a difference depends on the draw. They need no new answers."""
    redrawn_setting: Literal["anew", "fixed"] = "anew"
    """Whether the settings above are chosen anew on each redraw, or kept."""
    shortlist: Some[Count] = (16, 32)
    """K of the random-heads baseline, chosen on held-out training questions. If K is below max_n,
    the baseline's curve ends at K."""
    max_n: Count = 16
    """Largest N of the Pass@N curves."""
    bootstrap: Count = 2000
    """Bootstrap resamples of the questions for each interval."""
    versus: str | None = None
    """Method that the report's verdict holds SPRINT against: one of `sampling`, or greedy cover,
    best single head, random heads; null: the best of `sampling`, picked afterwards."""
    title: str | None = None
    """What the report calls it; null: as its test questions."""


class Frontier(Section):
    """Families of cheap variants of one model, compared with sampling at equal tokens."""

    model: str
    """Name under `models`."""
    train: str
    """Question set on which scales, temperature and order are chosen."""
    test: str
    """Question set on which families are compared."""
    families: Some[str] = ("head", "scaled", "skip", "weights", "noise")
    """head: heads pruned, one at a time. scaled: a head's output multiplied. skip: one or two
    layers left out. weights: Gaussian noise on all weights. noise: a random direction as strong as
    a head, at the same places as `head`."""
    scales: dict[str, tuple[Count, ...]] = Field({})
    """Scales to choose from: percent of scaled heads, 1e-4 of noise on weights; by default 50 and
    150, and 5 and 20."""
    sampling: tuple[str, ...] = ()
    """Sampling decodings, of which one is chosen, as a family of its own."""
    decoding: str = "greedy"
    """Decoding of all other families; greedy."""
    layers: Layers = "all"
    """Layers whose heads are changed; skipped layers come from the whole model."""
    members: Count = 8
    """M: members of each family, drawn by `seed`; fewer where a family has not as many."""
    max_n: Count = 8
    """Largest N of the curves."""
    seed: Seed = 0
    """Seed of the draws of members."""
    bootstrap: Count = 2000
    """Bootstrap resamples of the test questions for each interval."""
    title: str | None = None
    """What the report calls it; null: as its test questions."""


class Comparison(Section):
    """The authors' prompt and grading rules against the default ones, on the base model."""

    model: str
    """Name under `models`."""
    questions: str
    """Name under `questions`."""
    decodings: tuple[str, str] = ("greedy", "authors")
    """The two decodings; each is graded under both rules."""
