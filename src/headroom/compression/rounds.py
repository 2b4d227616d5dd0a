"""Compression: heads go in rounds, and after each the others are trained.

Source: arXiv 2511.17577, Alg. 1 and 2. A round scores the heads as they stand, keeps a copy of the
learner as a teacher, removes the heads of lowest score for good, and trains the rest.
"""

import logging
from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any, Generic, TypeVar

import torch
from jaxtyping import Float
from torch import Tensor

from headroom.compression.choice import lowest_heads, smallest_unit
from headroom.compression.criteria import head_scores
from headroom.compression.distillation import (
    Teacher,
    distilled,
    without_attention_dropout,
)
from headroom.compression.footprint import parameters
from headroom.compression.history import History, Removal, Round
from headroom.compression.journal import Journal
from headroom.compression.resume import examples_key, restore_shape, shape_of
from headroom.compression.schedule import LiteralSchedule, heads_at, removed_by_round
from headroom.compression.training import Hook, Objective, task, train
from headroom.config.compression import Compression, Training
from headroom.errors import ModelError
from headroom.models.geometry import find_heads
from headroom.models.learner import Batch, Example, Learner, accuracy, copied
from headroom.models.removal import remove_heads
from headroom.variants import Variant

_LOG = logging.getLogger(__name__)
_L = TypeVar("_L", bound=Learner)


def compress(
    learner: _L,
    examples: Sequence[Example],
    dev: Sequence[Example],
    settings: Compression,
    seed: int,
    *,
    layout: Mapping[str, Sequence[int]] | None = None,
    journal: Path | None = None,
    device: str = "auto",
) -> tuple[_L, History]:
    """Remove heads of a learner's encoder and train the rest.

    Args:
        learner: trained, with all heads that are to be counted; it is left as it was.
        examples: the training part, prepared by the learner.
        dev: the development part; may be empty where nothing asks for it.
        settings: how.
        seed: decides the order of examples, dropout, random scores and weights from scratch.
        layout: with `scratch`: the heads to keep, as `resume.shape_of` has them of another
            compressed learner. Without it they are chosen as settings say, in one shot.
        journal: a folder in which what is done is kept; what is found there is gone on with. It
            stays: whoever calls removes it once the result is safe.
        device: auto (the GPU if there is one) or cpu.

    Returns:
        The smaller learner, and how it came about.

    Raises:
        ModelError: no head or too many would go, the encoder cannot be cut or has no eager
            attention, something needs a development part that is not there, or the journal is
            damaged or of another compression.
    """
    identity = {
        "seed": seed,
        "settings": settings.model_dump(mode="json"),
        "examples": examples_key(examples, dev),
        "layout": layout and {layer: list(heads) for layer, heads in layout.items()},
    }
    run = _Run(learner, examples, dev, settings, seed, device, Journal(journal, identity))
    if settings.rounds:
        run.to_the_end(layout)
    history = replace(run.before, rounds=tuple(run.rounds))
    for warning in history.warnings():
        _LOG.warning(warning)
    return run.learner, history


class _Run(Generic[_L]):
    """A compression under way."""

    def __init__(
        self,
        given: _L,
        examples: Sequence[Example],
        dev: Sequence[Example],
        settings: Compression,
        seed: int,
        device: str,
        journal: Journal,
    ) -> None:
        self._given, self._examples, self._dev = given, examples, dev
        self._settings, self._seed, self._device = settings, seed, device
        self._journal = journal
        self._geometry = find_heads(given.encoder)
        heads = sum(layer.query_heads for layer in self._geometry.layers)
        self._check(heads)
        self.before = History(accuracy(given, dev), heads, parameters(given.network), ())
        self._teacher: Teacher | None = None
        if settings.distillation.teacher != "none":
            self._teacher = Teacher.of(given, self._geometry)
        self._objective: Objective = task
        self._removals: list[Removal] = []
        self.learner = copied(given)
        self.rounds = journal.read(self.learner)
        self._geometry = find_heads(self.learner.encoder)
        self._steps = sum(each.fit.epochs[-1].steps for each in self.rounds)

    def to_the_end(self, layout: Mapping[str, Sequence[int]] | None) -> None:
        """Do what is not done yet."""
        in_one_training = self._settings.scratch or self._settings.schedule == "literal"
        if not in_one_training:
            self.by_rounds()
        elif not self.rounds:
            self.from_scratch(layout) if self._settings.scratch else self.step_by_step()

    def by_rounds(self) -> None:
        """Prune before each training, or before the first only."""
        settings = self._settings
        due = removed_by_round(
            self.before.heads,
            settings.ratio,
            settings.rounds,
            start=settings.start,
            exponent=settings.exponent,
        )
        if settings.schedule == "one_shot":
            due = due[-1:] * settings.rounds
        for number in range(len(self.rounds), len(due)):
            self._cut(due[number] - self._gone)
            epochs = settings.training.epochs
            share = epochs * (number + 1) // len(due) - epochs * number // len(due)
            self._train(settings.training.model_copy(update={"epochs": share}))

    def step_by_step(self) -> None:
        """Prune between the optimiser's steps, one head, or unit of heads, at a time."""
        settings, recipe = self._settings, self._settings.training
        schedule = LiteralSchedule(
            heads=self.before.heads,
            steps=recipe.epochs * -(-len(self._examples) // recipe.batch_size),
            target=settings.ratio,
            start=settings.start,
            exponent=settings.exponent,
            smallest=settings.smallest,
            largest_loss=settings.largest_loss,
        )
        unit = smallest_unit(self._geometry, settings.importance.unit)
        stopped = False

        def prune(step: int) -> bool:
            nonlocal stopped
            if stopped or not schedule.due(step, self._gone + unit - 1):
                return False
            left = parameters(self.learner.network)
            stopped = schedule.stopped(self._gone + unit - 1, left, self._lost_accuracy())
            if stopped:
                return False
            self._steps = step
            self._cut(unit)
            return True

        self._cut(0)
        self._train(recipe, prune)

    def from_scratch(self, layout: Mapping[str, Sequence[int]] | None) -> None:
        """Train a learner of the final shape from random weights."""
        own = self.learner.recipe
        assert own is not None  # `_check` asks for it
        if layout is None:
            self._cut(heads_at(self._settings.ratio, self.before.heads))
            layout = shape_of(self.learner.encoder)
        self.learner = self.learner.untrained(self._seed)
        encoder = self.learner.encoder
        restore_shape(encoder, {layer: list(heads) for layer, heads in layout.items()})
        self._geometry = find_heads(encoder)
        epochs = own.epochs + self._settings.training.epochs
        self._train(own.model_copy(update={"epochs": epochs}))

    def state(self) -> tuple[Mapping[str, Tensor], dict[str, Any]]:
        """Return what a training between whose steps heads go has to remember."""
        facts: dict[str, Any] = {"removals": [removal.as_json() for removal in self._removals]}
        if self._teacher is None or self._settings.distillation.teacher != "recursive":
            return {}, facts
        teacher = self._teacher.learner
        return teacher.network.state_dict(), {**facts, "teacher": shape_of(teacher.encoder)}

    def restore(self, tensors: Mapping[str, Tensor], facts: dict[str, Any]) -> None:
        """Go on with what `state` returned."""
        self._removals = list(map(Removal.of_json, facts["removals"]))
        self._geometry = find_heads(self.learner.encoder)
        if "teacher" in facts:
            teacher = copied(self._given)
            restore_shape(teacher.encoder, facts["teacher"])
            teacher.network.load_state_dict(tensors)
            self._teacher = Teacher.of(teacher, find_heads(teacher.encoder))
        self._aim()

    @property
    def _gone(self) -> int:
        """How many heads have gone."""
        return self.before.heads - sum(layer.query_heads for layer in self._geometry.layers)

    def _cut(self, count: int) -> None:
        """Remove the heads of lowest score; the teacher is the learner before, if recursive."""
        if self._settings.distillation.teacher == "recursive":
            self._teacher = Teacher.of(self.learner, self._geometry)
        if count:
            self._remove(count)
        self._aim()

    def _aim(self) -> None:
        """Let the objective follow from teacher and student as they stand."""
        if self._teacher is not None:
            settings = self._settings.distillation
            self._objective = distilled(self._teacher, self._geometry, settings)

    def _remove(self, count: int) -> None:
        learner, settings, before = self.learner, self._settings.importance, self._geometry
        seed = self._seed * 1_000_003 + self._steps
        scores = head_scores(learner, before, self._examples, self._dev, settings, seed)
        chosen = lowest_heads(scores, before, count, scope=settings.scope, unit=settings.unit)
        if not chosen:  # no whole unit is due
            return
        named = {
            Variant(layer.index, place): Variant(layer.index, number)
            for layer in before.layers
            for place, number in enumerate(layer.original_heads)
        }
        self._geometry = remove_heads(learner.encoder, before, chosen)
        noted = {
            named[Variant(layer, place)]: score
            for layer, values in scores.items()
            for place, score in enumerate(values.tolist())
        }
        heads = tuple(named[head] for head in chosen)
        left = self.before.heads - self._gone
        removed = ", ".join(map(str, heads))
        _LOG.info("heads removed: %s; %d of %d are left", removed, left, self.before.heads)
        self._removals.append(Removal(self._steps, heads, noted))

    def _train(self, recipe: Training, hook: Hook | None = None) -> None:
        number, before, encoder = len(self.rounds), self._steps, self.learner.encoder
        # In all arms that train what was trained before, so that they differ in their names only.
        own = nullcontext() if self._settings.scratch else without_attention_dropout(encoder)
        between: dict[str, Any] = {}
        if hook:
            between = {"after_step": hook, "remember": self.state, "recall": self.restore}
        with own:
            fit = train(
                self.learner,
                self._examples,
                self._dev,
                recipe,
                self._seed * 1009 + number,
                objective=self._minimised,
                checkpoint=self._journal.training(number),
                device=self._device,
                **between,
            )
        self._steps = before + fit.epochs[-1].steps
        removals, self._removals = tuple(self._removals), []
        heads = self.before.heads - self._gone
        self.rounds.append(Round(removals, heads, parameters(self.learner.network), fit))
        self._journal.write(self.learner, self.rounds)

    def _minimised(self, learner: Learner, batch: Batch) -> Mapping[str, Float[Tensor, ""]]:
        """The objective as it stands: it changes when heads go."""
        return self._objective(learner, batch)

    def _lost_accuracy(self) -> float:
        if self._settings.largest_loss is None:
            return 0.0
        return (self.before.dev_strict or 0.0) - (accuracy(self.learner, self._dev) or 0.0)

    def _check(self, heads: int) -> None:
        """Make sure, before anything is trained, that what is asked for can be done."""
        settings = self._settings
        count = heads_at(settings.ratio, heads)
        if settings.ratio and not count:
            raise ModelError(
                f"ratio {settings.ratio} removes none of {heads} heads; one of them is "
                f"{100 / heads:.2f}%"
            )
        if settings.scratch and self._given.recipe is None:
            raise ModelError(
                "this learner has no recipe from scratch; leave `scratch`, and arm "
                "small_from_scratch, out"
            )
        unit = settings.importance.unit
        if settings.ratio and count < (size := smallest_unit(self._geometry, unit)):
            raise ModelError(
                f"ratio {settings.ratio} removes {count} of {heads} heads, but with unit: {unit} "
                f"{size} go together; raise the ratio"
            )
        equal = {layer.index: torch.zeros(layer.query_heads) for layer in self._geometry.layers}
        lowest_heads(equal, self._geometry, count, scope=settings.importance.scope, unit=unit)
        wants = {
            "largest_loss": settings.largest_loss is not None,
            "criterion causal": settings.causal and self._given.known_drops(self._geometry) is None,
        }
        for name, wanted in wants.items():
            if wanted and not self._dev:
                raise ModelError(f"{name} needs a development part; give one, or leave it out")
