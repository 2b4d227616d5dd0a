"""Config sections of the experiments: those of the SPRINT paper, their controls, compressions."""

from collections.abc import Mapping
from typing import Annotated, Any, Literal

from pydantic import Field, ValidationError, model_validator

from headsweep.config.compression import Compression
from headsweep.config.questions import Preset
from headsweep.config.section import (
    DISTINCT,
    ONE_OR_SEVERAL,
    Count,
    Name,
    NotNegative,
    Positive,
    Section,
    Seed,
    Some,
    first_problem,
    merged,
)

Geometry = Literal["sphere", "ball", "literal"]

Placebos = Literal["none", "numeric", "noise", "both"]

Layers = Literal["all"] | tuple[Annotated[int, Field(ge=0, strict=True)], ...]


class TopHeads(Section):
    """Heads that a map or another sweep of the run ranks highest, on other questions."""

    map: str | None = None
    """Name under `maps`; or give `sweep`."""
    sweep: str | None = None
    """Name under `sweeps`: the heads whose loss gained most there. With `top: 1` and training
    questions there, the sweep here is one test of one head, stated before its first answer."""
    top: Count
    """How many heads: those whose loss raises the outcome most, of all layers of the sweep."""
    outcome: Literal["likelihood", "preference", "solutions"] = "likelihood"
    """Of a map. likelihood: right samples; of the demo's heads it ranks the gains best. preference:
    right minus wrong samples. solutions: reference solutions."""
    chosen: tuple[str, ...] | None = None
    """Filled in from the table of the map or sweep, once the run has made it. Until then the sweep
    here is left out: the same command, given again, adds it."""

    @property
    def section(self) -> Literal["maps", "sweeps"]:
        """The section of the config that its source stands in."""
        return "maps" if self.sweep is None else "sweeps"

    @property
    def source(self) -> str:
        """The name of the map or sweep."""
        return str(self.map or self.sweep)


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
    heads: Layers | TopHeads = "all"
    """Query heads pruned in each layer, numbered from 0; or all; or those that a map or another
    sweep ranks highest, as in `{map: NAME, top: 8}` or `{sweep: NAME, top: 1}`."""
    grading: Preset | None = None
    """Rules that grade its answers; null: the run's. Sweeps that differ only in this share their
    answers."""
    placebos: Placebos = "none"
    """Controls that prune nothing; the gain of a layer's best head is compared with the best
    placebo's. numeric: the base model decoded again in other batches, without verification, as
    often as a layer has heads. noise: for each head, a random direction added at the same place,
    at each token with the norm of what pruning the head removes, measured behind the output
    projection; as many answers as the heads give. both: numeric and noise."""
    noise_placebos: Count | None = None
    """Noise placebos per layer; null: one per head. Fewer are spread over the layer's heads; the
    best head is then not compared with the best of them, which had fewer chances."""
    title: str | None = None
    """What the report calls it; null: what tells it from the others, or else its questions."""

    @model_validator(mode="after")
    def _has_noise(self) -> "Sweep":
        if self.noise_placebos is not None and self.placebos in ("none", "numeric"):
            raise ValueError(
                f"`noise_placebos` belongs to placebos noise or both, not {self.placebos}; "
                f"leave it out"
            )
        return self


class Selector(Section):
    """A SPRINT head selector: trained on one question set, tested on another."""

    model: str
    """Name under `models`."""
    train: str
    """Question set that the selector learns from."""
    test: str
    """Question set that it is tested on."""
    embedder: Annotated[Some[str], ONE_OR_SEVERAL]
    """Name under `embedders`; one, or several to choose from."""
    layers: Layers
    """Layers whose heads are in the pool."""
    heads: Layers = "all"
    """Query heads of each layer that are in the pool."""
    decoding: str = "greedy"
    """Name under `decodings`; greedy."""
    sampling: Annotated[tuple[str, ...], DISTINCT] = ()
    """Sampling decodings to compare with, on the test questions."""
    include_base: bool = False
    """Whether the base model is a member of the pool (not in the paper)."""
    geometry: Annotated[Some[Geometry], ONE_OR_SEVERAL] = ("sphere", "ball")
    """Versions of the loss: on the unit sphere with learned temperature, in the unit ball, or
    literal, as printed; one, or several to choose from."""
    dimension: Annotated[Some[Count], ONE_OR_SEVERAL] = (32,)
    """p, the dimension of the shared space."""
    diversity: Annotated[Some[NotNegative], ONE_OR_SEVERAL] = (0.0, 1e-5, 1e-3, 0.1, 1.0)
    """lambda, the weight of the diversity term; 0 is the ablation. The term is a mean over pairs of
    heads on sphere and ball; in `literal` it is the paper's sum, which is far larger."""
    learning_rate: Annotated[Some[Positive], ONE_OR_SEVERAL] = (1e-2,)
    """AdamW learning rate; one, or several to choose from."""
    weight_decay: Annotated[Some[NotNegative], ONE_OR_SEVERAL] = (0.01, 3.0)
    """AdamW weight decay of theta."""
    epochs: Annotated[Some[Count], ONE_OR_SEVERAL] = (200,)
    """Passes over the training questions; one number, or several to choose from."""
    validation: Annotated[float, Field(gt=0, lt=1)] = 0.2
    """Share of the training questions held out to choose among the settings above."""
    seeds: Some[Seed] = (0, 1, 2)
    """Seeds of initial weights and of the held-out part. Results are means over the seeds'
    selectors; the first seed's selector is kept."""
    redraws: Annotated[int, Field(ge=0, strict=True)] = 10
    """Subsamples of two thirds of the training questions on which everything is trained again, to
    show how much a difference depends on the draw. They need no new answers."""
    redrawn_setting: Literal["anew", "fixed"] = "anew"
    """Whether the settings above, and those of simpler methods that match questions with heads, are
    chosen anew on each redraw, or kept."""
    shortlist: Annotated[Some[Count], ONE_OR_SEVERAL] = (16, 32)
    """K of the random-heads baseline, chosen on held-out training questions. If K is below max_n,
    the baseline's curve ends at K."""
    max_n: Count = 16
    """Largest N of the Pass@N curves."""
    bootstrap: Count = 2000
    """Bootstrap resamples of the questions for each interval."""
    versus: str | None = None
    """Method that the report's verdict compares SPRINT with: one of `sampling`, or greedy cover,
    best single head, random heads; null: the best of `sampling`, picked afterwards."""
    title: str | None = None
    """What the report calls it; null: what tells it from the others, or else its questions."""


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
    a head behind the output projection, at the same places as `head`."""
    scales: dict[str, Some[Count]] = Field({})
    """Scales to choose from: percent of scaled heads, 1e-4 of noise on weights; by default 50 and
    150, and 5 and 20."""
    sampling: Annotated[tuple[str, ...], DISTINCT] = ()
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
    """What the report calls it; null: what tells it from the others, or else its questions."""


class Comparison(Section):
    """The authors' prompt and grading rules against the default ones, on the base model."""

    model: str
    """Name under `models`."""
    questions: str
    """Name under `questions`."""
    decodings: Annotated[tuple[str, str], DISTINCT] = ("greedy", "authors")
    """The two decodings; each is graded under both rules."""
    title: str | None = None
    """What the report calls it; null: what tells it from the others, or else its questions."""


_NO_TEACHER: Mapping[str, Any] = {"distillation": {"teacher": "none"}}
_ONE_SHOT: Mapping[str, Any] = {"schedule": "one_shot", "smallest": None, "largest_loss": None}

BASELINE, METHOD = "baseline", "full"
"""The arm without pruning, and the arm of which the others are variations."""

ARMS: Mapping[str, Mapping[str, Any]] = {
    BASELINE: {"ratio": 0.0, "start": 0.0, "rounds": 0, "scratch": False},
    "pruning_only": _NO_TEACHER,
    "without_entropy": {**_NO_TEACHER, "importance": {"alpha": 1.0}},
    "without_norm": {**_NO_TEACHER, "importance": {"alpha": 0.0}},
    "response_distillation": {"distillation": {"teacher": "original", "feature": "none"}},
    "feature_distillation": {"distillation": {"teacher": "original", "response": False}},
    "random": {**_ONE_SHOT, "importance": {"criterion": "random"}},
    "global": _ONE_SHOT,
    "attention_visualisation": {**_ONE_SHOT, "importance": {"criterion": "attention"}},
    "distillation_only": {"ratio": 0.0, "start": 0.0},
    METHOD: {},
    "joint_single_teacher": {"distillation": {"teacher": "original"}},
    "small_from_scratch": {**_NO_TEACHER, "scratch": True},
    "trained_on": {**_NO_TEACHER, "ratio": 0.0, "start": 0.0},
}
"""In the order of Table 4 of arXiv 2511.17577; the last three are ours. `joint_single_teacher` has
the losses of `full` without its recursion; `small_from_scratch` shows whether the large solver was
needed; `trained_on` makes the steps of a pruned arm with all heads and no teacher, so that the gain
of further training is not taken for a gain of pruning."""


def arm(name: str, method: Compression) -> Compression:
    """Return the settings of an arm of the ablation, given those of the arm `full`."""
    return changed(method, ARMS[name])


def changed(settings: Compression, changes: Mapping[str, Any]) -> Compression:
    """Return settings with changes; nested sections are merged.

    Raises:
        pydantic.ValidationError: the settings do not fit together.
    """
    return Compression.model_validate(merged(settings.model_dump(), changes))


class Study(Section):
    """A solver, or a model that reasons in words, compressed in several arms."""

    solver: str | None = None
    """Name under `solvers`: the solver, which is trained and then compressed."""
    data: str | None = None
    """With `solver`: name under `problems`. The solver is trained and tested on them."""
    model: str | None = None
    """Name under `models`: the model to compress, instead of a solver."""
    train: str | None = None
    """With `model`: name under `questions`. The model learns its own right answers to them."""
    test: str | None = None
    """With `model`: name under `questions`. The model is tested on them."""
    decoding: str = "greedy"
    """With `model`: name under `decodings`; greedy."""
    method: Compression = Compression()
    """The settings of arm `full`, which the other arms change."""
    arms: Annotated[tuple[str, ...], DISTINCT] = (BASELINE, "pruning_only", METHOD)
    """Arms of the ablation: baseline, pruning_only, without_entropy, without_norm,
    response_distillation, feature_distillation, random, global, attention_visualisation,
    distillation_only, full, joint_single_teacher, small_from_scratch, trained_on."""
    variations: dict[Name, dict[str, Any]] = Field({})
    """Further arms: settings that differ from those of `full`, or of the arm that `of` names."""
    int8: Annotated[tuple[str, ...], DISTINCT] = ()
    """Arms and variations that are also tested and measured with 8-bit weights."""
    seeds: Some[Seed] = (0, 1, 2)
    """Each arm is run with each seed, and so is the solver's training before."""
    measured: Some[str] | None = None
    """Arms and variations whose speed and memory are measured; null: all."""
    tokens: Some[Count] = (40, 512)
    """Lengths of the texts that are timed."""
    batches: Some[Count] = (1, 32)
    """Batch sizes that are timed."""
    repeats: Count = 50
    """How often each pass is timed."""
    title: str | None = None
    """What the report calls it; null: what tells it from the others, or else its questions."""

    @property
    def settings(self) -> dict[str, Compression]:
        """The settings of every arm, by name: arms, then variations."""
        settings_of_arms = {name: arm(name, self.method) for name in self.arms}
        return settings_of_arms | {name: self._varied(name) for name in self.variations}

    def pruned(self, settings: Compression) -> Compression:
        """Return the settings whose pruning decides which heads an arm from scratch has."""
        return settings.model_copy(
            update={"scratch": False, "distillation": self.method.distillation}
        )

    def _varied(self, name: str) -> Compression:
        changes = {key: value for key, value in self.variations[name].items() if key != "of"}
        return changed(arm(self.variations[name].get("of", METHOD), self.method), changes)

    @model_validator(mode="after")
    def _one_subject(self) -> "Study":
        if (self.solver is None) == (self.model is None):
            raise ValueError("give either `solver` with `data`, or `model` with `train` and `test`")
        subject = "solver" if self.solver else "model"
        for name, owner in (("data", "solver"), ("train", "model"), ("test", "model")):
            is_given = getattr(self, name) is not None
            if owner == subject and not is_given:
                raise ValueError(f"`{subject}` needs `{name}`")
            if owner != subject and is_given:
                raise ValueError(f"`{name}` belongs to `{owner}`")
        return self

    @model_validator(mode="after")
    def _arms_are_known_and_differ(self) -> "Study":
        self._check_arms()
        for name, changes in self.variations.items():
            self._check_variation(name, changes)
        name_of: dict[str, str] = {}  # by the settings that have an effect
        for name, settings in self.settings.items():
            first = name_of.setdefault(repr(settings.decisive()), name)
            if first != name:
                raise ValueError(f"{name!r} does what {first!r} does; remove one of them")
        return self

    def _check_arms(self) -> None:
        """Refuse names of no arm, and arms that do not fit the method."""
        arms = (*self.arms, *self.variations)
        if not arms:
            raise ValueError("`arms` and `variations` are both empty; name an arm")
        for key, names, allowed in (
            ("arms", self.arms, ARMS),
            ("int8", self.int8, arms),
            ("measured", self.measured or (), arms),
        ):
            for name in names:
                if name not in allowed:
                    raise ValueError(f"{key}: {name!r} is not known; there is {', '.join(allowed)}")
        for name in self.arms:
            try:
                arm(name, self.method)
            except ValidationError as error:
                problem = first_problem(error, Compression, "method")
                raise ValueError(f"arm {name!r}: {problem}") from None

    def _check_variation(self, name: str, changes: Mapping[str, Any]) -> None:
        """Refuse a variation that is called as an arm, or whose settings do not fit together."""
        where = f"variations.{name}"
        varied_arm = changes.get("of", METHOD)
        there = ", ".join(ARMS)
        if name in ARMS:
            raise ValueError(f"{where} is an arm's name; call it anything but {there}")
        if not isinstance(varied_arm, str) or varied_arm not in ARMS:
            raise ValueError(f"{where}.of: {varied_arm!r} is not known; there is {there}")
        try:
            self._varied(name)
        except ValidationError as error:
            raise ValueError(first_problem(error, Compression, where)) from None

    @model_validator(mode="after")
    def _a_model_learns_from_itself(self) -> "Study":
        if self.model is None:
            return self
        for name, settings in self.settings.items():
            if settings.scratch:
                raise ValueError(f"{name}: a model has no recipe from scratch; leave it out")
            if settings.training.patience is not None or settings.largest_loss is not None:
                raise ValueError(
                    f"{name}: a model has no development part; set patience and largest_loss to "
                    f"null"
                )
        return self
