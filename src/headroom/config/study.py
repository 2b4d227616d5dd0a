"""A compression in several arms: which solver or model, on which data, with which settings.

The arms are those of the ablation in Table 4 of arXiv 2511.17577, and three more. Each changes the
method only in what its name says.
"""

from collections.abc import Mapping
from typing import Any

from pydantic import Field, ValidationError, model_validator

from headroom.config.compression import Compression
from headroom.config.section import Count, Name, Section, Seed, Some, merged

_NO_TEACHER: Mapping[str, Any] = {"distillation": {"teacher": "none"}}
_ONE_SHOT: Mapping[str, Any] = {"schedule": "one_shot", "smallest": None, "largest_loss": None}

ARMS: Mapping[str, Mapping[str, Any]] = {
    "baseline": {"ratio": 0.0, "start": 0.0, "rounds": 0},
    "pruning_only": _NO_TEACHER,
    "without_entropy": {**_NO_TEACHER, "importance": {"alpha": 1.0}},
    "without_norm": {**_NO_TEACHER, "importance": {"alpha": 0.0}},
    "response_distillation": {"distillation": {"teacher": "original", "feature": "none"}},
    "feature_distillation": {"distillation": {"teacher": "original", "response": False}},
    "random": {**_ONE_SHOT, "importance": {"criterion": "random"}},
    "global": _ONE_SHOT,
    "attention_visualisation": {**_ONE_SHOT, "importance": {"criterion": "attention"}},
    "distillation_only": {"ratio": 0.0, "start": 0.0},
    "full": {},
    "joint_single_teacher": {"distillation": {"teacher": "original"}},
    "small_from_scratch": {**_NO_TEACHER, "scratch": True},
    "trained_on": {**_NO_TEACHER, "ratio": 0.0, "start": 0.0},
}
"""In the order of the paper's table; the last three are ours. `joint_single_teacher` has the losses
of `full` without its recursion; `small_from_scratch` shows whether the large solver was needed;
`trained_on` makes the steps of a pruned arm with all heads and no teacher, so that the gain of
further training is not taken for a gain of pruning."""


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
    arms: tuple[str, ...] = ("baseline", "pruning_only", "full")
    """Arms of the ablation: baseline, pruning_only, without_entropy, without_norm,
    response_distillation, feature_distillation, random, global, attention_visualisation,
    distillation_only, full, joint_single_teacher, small_from_scratch, trained_on."""
    variations: dict[Name, dict[str, Any]] = Field({})
    """Further arms: settings that differ from those of `full`, or of the arm that `of` names."""
    int8: tuple[str, ...] = ()
    """Arms and variations that are also tested and measured with 8-bit weights."""
    seeds: Some[Seed] = (0, 1, 2)
    """Each arm is run with each seed, and so is the solver's training before."""
    measured: tuple[str, ...] | None = None
    """Arms and variations whose speed and memory are measured; null: all."""
    tokens: Some[Count] = (40, 512)
    """Lengths of the texts that are timed."""
    batches: Some[Count] = (1, 32)
    """Batch sizes that are timed."""
    repeats: Count = 50
    """How often each pass is timed."""

    @property
    def settings(self) -> dict[str, Compression]:
        """The settings of every arm, by name: arms, then variations."""
        found = {name: arm(name, self.method) for name in self.arms}
        return found | {name: self._varied(name) for name in self.variations}

    def pruned(self, settings: Compression) -> Compression:
        """Return the settings whose pruning decides which heads an arm from scratch has."""
        return settings.model_copy(
            update={"scratch": False, "distillation": self.method.distillation}
        )

    def _varied(self, name: str) -> Compression:
        changes = {key: value for key, value in self.variations[name].items() if key != "of"}
        return changed(arm(self.variations[name].get("of", "full"), self.method), changes)

    @model_validator(mode="after")
    def _one_subject(self) -> "Study":
        if (self.solver is None) == (self.model is None):
            raise ValueError("give either `solver` with `data`, or `model` with `train` and `test`")
        own = "solver" if self.solver else "model"
        for name, of in (("data", "solver"), ("train", "model"), ("test", "model")):
            if (of == own) == (getattr(self, name) is None):
                raise ValueError(
                    f"`{own}` needs `{name}`" if of == own else f"`{name}` belongs to `{of}`"
                )
        return self

    @model_validator(mode="after")
    def _arms_are_known_and_differ(self) -> "Study":
        own, seeds = (*self.arms, *self.variations), tuple(map(str, self.seeds))
        for key, names, known in (
            ("seeds", seeds, seeds),
            ("arms", self.arms, ARMS),
            ("int8", self.int8, own),
            ("measured", self.measured or (), own),
        ):
            for name in names:
                if names.count(name) > 1:
                    raise ValueError(f"{key}: {name!r} stands twice; name it once")
                if name not in known:
                    raise ValueError(f"{key}: {name!r} is not known; there is {', '.join(known)}")
        for name, changes in self.variations.items():
            where, of, there = f"variations.{name}", changes.get("of", "full"), ", ".join(ARMS)
            if name in ARMS:
                raise ValueError(f"{where} is an arm's name; call it anything but {there}")
            if of not in ARMS:
                raise ValueError(f"{where}.of: {of!r} is not known; there is {there}")
            try:
                self._varied(name)
            except ValidationError as error:
                problem = error.errors()[0]
                key = ".".join([where, *map(str, problem["loc"])])
                message = problem["msg"].removeprefix("Value error, ")
                if problem["type"] == "extra_forbidden":
                    message = "unknown key"
                raise ValueError(f"{key}: {message}") from None
        alike: dict[str, str] = {}
        for name, settings in self.settings.items():
            other = alike.setdefault(repr(settings.decisive()), name)
            if other != name:
                raise ValueError(f"{name!r} does what {other!r} does; remove one of them")
        return self

    @model_validator(mode="after")
    def _a_model_learns_from_itself(self) -> "Study":
        for name, own in self.settings.items() if self.model is not None else ():
            if own.scratch:
                raise ValueError(f"{name}: a model has no recipe from scratch; leave it out")
            if own.training.patience is not None or own.largest_loss is not None:
                raise ValueError(
                    f"{name}: a model has no development part; set patience and largest_loss to "
                    f"null"
                )
        return self
