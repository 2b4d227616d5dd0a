"""Compression in rounds: remove heads, then train the rest.

Source: arXiv 2511.17577, Alg. 1 and 2. A round scores the remaining heads, keeps a copy of the
learner as the teacher, removes the heads of lowest score for good and trains the rest.
"""

import logging
import math
from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Generic, TypeVar

from pydantic import BaseModel
from torch import Tensor

from headsweep.config.compression import Compression
from headsweep.config.solvers import Training
from headsweep.experiments.compression import checkpoint
from headsweep.experiments.compression.calibration import Scores
from headsweep.experiments.compression.criteria import head_scores
from headsweep.experiments.compression.distillation import (
    distilled,
    frozen,
    without_attention_dropout,
)
from headsweep.experiments.compression.heads_to_remove import (
    check_ratio,
    heads_due,
    lowest_heads,
    smallest_unit,
)
from headsweep.experiments.compression.savings import parameters
from headsweep.experiments.compression.training import Fit, Objective, TrainingCallback, task, train
from headsweep.experiments.compression.training_steps import derived_seed
from headsweep.models.geometry import HeadGeometry, find_heads, kept_heads
from headsweep.models.learner import Example, Learner, accuracy, copied
from headsweep.models.load import torch_device
from headsweep.models.removal import keep_heads, remove_heads
from headsweep.variants import Variant

_LOG = logging.getLogger(__name__)
_L = TypeVar("_L", bound=Learner)
_STATE = "rounds.safetensors"


class Removal(BaseModel):
    """Heads removed together, by their names in the original learner."""

    step: int  # optimiser steps done before it
    heads: list[str]
    scores: dict[str, float]  # of all heads present before it; the lowest were removed


def removal_of(
    chosen: Sequence[Variant], scores: Scores, geometry: HeadGeometry, step: int
) -> Removal:
    """Return the record of a removal; heads and scores are those of `geometry`."""
    names = {head: name for name, head in geometry.by_original_name().items()}
    noted = {
        names[Variant(layer, place)]: score
        for layer, values in scores.items()
        for place, score in enumerate(values.tolist())
    }
    return Removal(step=step, heads=[names[head] for head in chosen], scores=noted)


class Round(Fit):
    """One training, with the removals before or during it."""

    removals: list[Removal]
    heads: int  # left after the round
    parameters: int  # of the whole network after the round


class History(BaseModel):
    """A compression's record: which heads were removed when and why, how the rest was trained."""

    dev_strict: float | None  # share of the development part solved before; None without one
    heads: int
    parameters: int
    rounds: list[Round] = []

    @property
    def heads_left(self) -> int:
        """How many heads are left after the last round."""
        return self.rounds[-1].heads if self.rounds else self.heads

    def warnings(self) -> list[str]:
        """Return warnings for the user, one line each."""
        removed = self.heads - self.heads_left
        lower = "lower exponent, or learning_rate" if removed else "lower learning_rate"
        warnings = []
        for number, training in enumerate(self.rounds, start=1):
            first = sum(training.epochs[0].losses.values())
            last = sum(training.epochs[-1].losses.values())
            if last > first:
                warnings.append(
                    f"the loss rose in round {number}, from {first:.3g} to {last:.3g}; {lower}"
                )
        return warnings


def compress(
    learner: _L,
    examples: Sequence[Example],
    dev: Sequence[Example],
    settings: Compression,
    seed: int,
    *,
    layout: Mapping[str, list[int]] | None = None,
    folder: Path | None = None,
    device: str = "auto",
) -> tuple[_L, History]:
    """Remove heads of a learner's encoder and train the rest.

    The learner is trained, with all the heads that the ratio refers to, and left unchanged. The
    development part may be empty if no setting needs it. The seed decides the order of examples,
    dropout, random scores and weights from scratch; these have the heads of `layout`, by layer. An
    interrupted compression resumes from the journal `folder`, which the caller removes. The device
    is auto (the GPU if there is one) or cpu.

    Raises:
        ModelError: the ratio removes no head or too many, the encoder cannot be cut or has no
            eager attention, or the journal is damaged or belongs to another compression.
    """
    # A copy, moved before anything runs: the test before, all scoring and all training.
    learner = copied(learner)
    learner.network.to(torch_device(device, "float32"))
    whole = find_heads(learner.encoder)
    ranking = settings.importance
    check_ratio(whole, settings.ratio, ranking.unit, ranking.scope)
    run = _Run(learner, examples, dev, settings, seed, layout, folder, whole)
    if settings.rounds:
        run.to_the_end()
    for warning in run.history.warnings():
        _LOG.warning(warning)
    return run.learner, run.history


@dataclass
class _Run(TrainingCallback, Generic[_L]):
    """The state of a running compression."""

    learner: _L
    examples: Sequence[Example]
    dev: Sequence[Example]
    settings: Compression
    seed: int
    layout: Mapping[str, list[int]] | None
    folder: Path | None
    whole: HeadGeometry
    """The heads before any were removed."""

    def __post_init__(self) -> None:
        solved = accuracy(self.learner, self.dev)
        size = parameters(self.learner.network)
        self.history = History(dev_strict=solved, heads=self.whole.heads, parameters=size)
        taught = self.settings.distillation.teacher != "none"
        self.teacher: Learner | None = frozen(self.learner) if taught else None
        self.objective: Objective = task
        self.removals: list[Removal] = []
        self.stopped = False
        decisive = self.settings.decisive().non_defaults()
        identity = checkpoint.identity(self.learner, decisive, self.seed, self.examples, self.dev)
        self.identity = {**identity, "layout": self.layout}
        if self.folder is not None and (self.folder / _STATE).exists():
            facts, _ = checkpoint.read_checkpoint(self.folder / _STATE, self.learner, self.identity)
            self.history.rounds = [Round.model_validate(done) for done in facts["rounds"]]
        self.geometry = find_heads(self.learner.encoder)
        self.steps = sum(done.epochs[-1].steps for done in self.history.rounds)

    def to_the_end(self) -> None:
        """Do the remaining rounds."""
        settings = self.settings
        recipe = self.settings.training
        done = len(self.history.rounds)
        if settings.scratch or settings.schedule == "literal":  # all training is one round
            if not done and settings.scratch:
                self.from_scratch()
            elif not done:
                self.cut(0)
                self.train(recipe, callback=self)
            return
        for number in range(done, settings.rounds):
            time = settings.rounds if settings.schedule == "one_shot" else number + 1
            self.cut(self.due(time / settings.rounds) - self.whole.heads + self.geometry.heads)
            before = recipe.epochs * number // settings.rounds
            after = recipe.epochs * (number + 1) // settings.rounds
            self.train(recipe.model_copy(update={"epochs": after - before}))

    def due(self, done: float) -> int:
        """Return how many heads should be gone when a share of the steps or rounds is done."""
        settings = self.settings
        return heads_due(self.whole.heads, done, settings.ratio, settings.exponent, settings.start)

    def after_step(self, step: int) -> bool:
        """Remove one unit of heads if one is due and no stopping rule applies."""
        recipe = self.settings.training
        last_step = recipe.epochs * math.ceil(len(self.examples) / recipe.batch_size)
        removed = self.whole.heads - self.geometry.heads
        unit = smallest_unit(self.geometry, self.settings.importance.unit)
        if self.stopped or removed + unit > self.due(step / last_step):
            return False
        self.stopped = self._is_small_enough() or self._has_lost_too_much()
        if self.stopped:
            return False
        self.steps = step
        self.cut(unit)
        return True

    def _is_small_enough(self) -> bool:
        """Tell whether the network has no more parameters than the setting `smallest`."""
        smallest = self.settings.smallest
        return smallest is not None and parameters(self.learner.network) <= smallest

    def _has_lost_too_much(self) -> bool:
        """Tell whether accuracy on the development part fell by more than `largest_loss`."""
        largest_loss = self.settings.largest_loss
        if largest_loss is None:
            return False
        solved = accuracy(self.learner, self.dev) or 0.0
        return (self.history.dev_strict or 0.0) - solved > largest_loss

    def from_scratch(self) -> None:
        """Train a learner of the final shape from random weights."""
        self.learner, recipe = self.learner.untrained(self.seed)
        assert self.layout is not None
        keep_heads(self.learner.encoder, self.layout)
        self.geometry = find_heads(self.learner.encoder)
        settings = self.settings
        rate = settings.scratch_rate or recipe.learning_rate
        epochs = settings.scratch_times * (recipe.epochs + settings.training.epochs)
        self.train(recipe.model_copy(update={"epochs": epochs, "learning_rate": rate}))

    def state(self) -> tuple[dict[str, Any], dict[str, Tensor]]:
        """Return what checkpoints keep where heads are removed during a training."""
        removals = [removal.model_dump() for removal in self.removals]
        facts: dict[str, Any] = {"removals": removals, "stopped": self.stopped}
        if self.teacher is None or self.settings.distillation.teacher != "recursive":
            return facts, {}
        facts["taught_shape"] = kept_heads(self.teacher.encoder.config)
        return facts, self.teacher.network.state_dict()

    def restore(self, facts: dict[str, Any], tensors: dict[str, Tensor]) -> None:
        """Resume from a state that `state` returned."""
        self.removals = [Removal.model_validate(removal) for removal in facts["removals"]]
        self.stopped = facts["stopped"]
        self.geometry = find_heads(self.learner.encoder)
        if tensors:
            assert self.teacher is not None  # a copy of the unpruned learner until here
            keep_heads(self.teacher.encoder, facts["taught_shape"])
            self.teacher.network.load_state_dict(tensors)
        self.aim()

    def cut(self, count: int) -> None:
        """Remove the heads of lowest score; a recursive teacher becomes the learner before that."""
        if self.settings.distillation.teacher == "recursive":
            self.teacher = frozen(self.learner)
        learner = self.learner
        settings = self.settings.importance
        before = self.geometry
        chosen: list[Variant] = []
        if count:
            seed = derived_seed(self.seed, self.steps)
            scores = head_scores(learner, before, self.examples, self.dev, settings, seed)
            pairs = zip(self.whole.layers, before.layers, strict=True)
            gone = {old.index: old.query_heads - new.query_heads for old, new in pairs}
            scope, unit = settings.scope, settings.unit
            chosen = lowest_heads(scores, before, count, scope=scope, unit=unit, gone=gone)
        if chosen:  # a whole unit is due
            self.geometry = remove_heads(learner.encoder, before, chosen)
            removal = removal_of(chosen, scores, before, self.steps)
            names = ", ".join(removal.heads)
            left = self.geometry.heads
            _LOG.info("heads removed: %s; %d of %d are left", names, left, self.whole.heads)
            self.removals.append(removal)
        self.aim()

    def aim(self) -> None:
        """Set the objective for the present teacher and student."""
        if self.teacher is not None:
            settings = self.settings.distillation
            self.objective = distilled(self.teacher, self.geometry, settings)

    def train(self, recipe: Training, callback: TrainingCallback | None = None) -> None:
        number = len(self.history.rounds)
        before = self.steps
        encoder = self.learner.encoder
        file = self.folder and self.folder / f"training_{number}.safetensors"
        # In every arm that trains a pretrained learner, so that the arms remain comparable.
        with nullcontext() if self.settings.scratch else without_attention_dropout(encoder):
            fit = train(
                self.learner,
                self.examples,
                self.dev,
                recipe,
                self.seed * 1009 + number,  # by another factor than the steps' seeds
                # A lambda, because `aim` replaces the objective when heads are removed.
                objective=lambda learner, batch, share: self.objective(learner, batch, share),
                callback=callback,
                checkpoint_file=file,
            )
        self.steps = before + fit.epochs[-1].steps
        left = self.geometry.heads
        size = parameters(self.learner.network)
        done = Round(**dict(fit), removals=self.removals, heads=left, parameters=size)
        self.history.rounds.append(done)
        self.removals = []
        if self.folder is not None and file is not None:
            rounds = [done.model_dump() for done in self.history.rounds]
            facts = {**self.identity, "rounds": rounds}
            checkpoint.write_checkpoint(self.folder / _STATE, self.learner, facts)
            file.unlink(missing_ok=True)
