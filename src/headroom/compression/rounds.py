"""Compression: heads go in rounds, and after each the others are trained.

Source: arXiv 2511.17577, Alg. 1 and 2. A round scores the heads as they stand, keeps a copy of the
learner as a teacher, removes the heads of lowest score for good, and trains the rest.
"""

import logging
from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from dataclasses import replace
from typing import Generic, TypeVar

import torch
from jaxtyping import Float
from torch import Tensor

from headroom.compression.choice import lowest_heads
from headroom.compression.criteria import head_scores
from headroom.compression.distillation import (
    Teacher,
    distilled,
    without_attention_dropout,
)
from headroom.compression.history import History, Removal, Round
from headroom.compression.measurement import parameters
from headroom.compression.resume import restore_shape, shape_of
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
        device: auto (the GPU if there is one) or cpu.

    Returns:
        The smaller learner, and how it came about.

    Raises:
        ModelError: no head or too many would go, the encoder cannot be cut or has no eager
            attention, or something needs a development part that is not there.
    """
    run = _Run(copied(learner), examples, dev, settings, seed, device)
    if not settings.rounds:
        rounds = []
    elif settings.scratch:
        rounds = [run.from_scratch(layout)]
    elif settings.schedule == "literal":
        rounds = [run.step_by_step()]
    else:
        rounds = run.by_rounds()
    history = replace(run.before, rounds=tuple(rounds))
    for warning in history.warnings():
        _LOG.warning(warning)
    return run.learner, history


class _Run(Generic[_L]):
    """A compression under way."""

    def __init__(
        self,
        learner: _L,
        examples: Sequence[Example],
        dev: Sequence[Example],
        settings: Compression,
        seed: int,
        device: str,
    ) -> None:
        self.learner, self._examples, self._dev = learner, examples, dev
        self._settings, self._seed, self._device = settings, seed, device
        self._geometry = find_heads(learner.encoder)
        heads = sum(layer.query_heads for layer in self._geometry.layers)
        self._check(heads)
        self.before = History(accuracy(learner, dev), heads, parameters(learner.network), ())
        self._teacher: Teacher | None = None
        if settings.distillation.teacher != "none":
            self._teacher = Teacher.of(learner, self._geometry)
        self._objective: Objective = task
        self._steps = 0
        self._removals: list[Removal] = []

    def by_rounds(self) -> list[Round]:
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
        gone, rounds = 0, []
        for number, total in enumerate(due):
            self._cut(total - gone)
            gone = total
            epochs = settings.training.epochs
            share = epochs * (number + 1) // len(due) - epochs * number // len(due)
            recipe = settings.training.model_copy(update={"epochs": share})
            rounds.append(self._train(recipe, number))
        return rounds

    def step_by_step(self) -> Round:
        """Prune between the optimiser's steps, one head at a time."""
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
        removed, stopped = 0, False

        def prune(step: int) -> bool:
            nonlocal removed, stopped
            if stopped or not schedule.due(step, removed):
                return False
            left = parameters(self.learner.network)
            stopped = schedule.stopped(removed, left, self._lost_accuracy())
            if stopped:
                return False
            self._steps = step
            self._cut(1)
            removed += 1
            return True

        self._cut(0)
        return self._train(recipe, 0, prune)

    def from_scratch(self, layout: Mapping[str, Sequence[int]] | None) -> Round:
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
        return self._train(own.model_copy(update={"epochs": epochs}), 0)

    def _cut(self, count: int) -> None:
        """Remove the heads of lowest score; the teacher is the learner before, if recursive."""
        learner, settings = self.learner, self._settings.distillation
        if settings.teacher == "recursive":
            self._teacher = Teacher.of(learner, self._geometry)
        if count:
            self._removals.append(self._remove(count))
        if self._teacher is not None:
            self._objective = distilled(self._teacher, learner, self._geometry, settings)

    def _remove(self, count: int) -> Removal:
        learner, settings, before = self.learner, self._settings.importance, self._geometry
        seed = self._seed * 1_000_003 + self._steps
        scores = head_scores(learner, before, self._examples, self._dev, settings, seed)
        chosen = lowest_heads(scores, before, count, scope=settings.scope)
        named = {
            Variant(layer.index, place): Variant(layer.index, number)
            for layer in before.layers
            for place, number in enumerate(layer.original_heads)
        }
        self._geometry = remove_heads(learner.encoder, before, chosen)
        return Removal(
            self._steps,
            tuple(named[head] for head in chosen),
            {
                named[Variant(layer, place)]: score
                for layer, values in scores.items()
                for place, score in enumerate(values.tolist())
            },
        )

    def _train(self, recipe: Training, number: int, hook: Hook | None = None) -> Round:
        before, encoder = self._steps, self.learner.encoder
        # In all arms that train what was trained before, so that they differ in their names only.
        own = nullcontext() if self._settings.scratch else without_attention_dropout(encoder)
        with own:
            fit = train(
                self.learner,
                self._examples,
                self._dev,
                recipe,
                self._seed * 1009 + number,
                objective=self._minimised,
                after_step=hook,
                device=self._device,
            )
        self._steps = before + fit.epochs[-1].steps
        removals, self._removals = tuple(self._removals), []
        heads = sum(layer.query_heads for layer in self._geometry.layers)
        return Round(removals, heads, parameters(self.learner.network), fit)

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
        if settings.scratch and self.learner.recipe is None:
            raise ModelError(
                "this learner has no recipe from scratch; leave `scratch`, and arm "
                "small_from_scratch, out"
            )
        equal = {layer.index: torch.zeros(layer.query_heads) for layer in self._geometry.layers}
        lowest_heads(equal, self._geometry, count, scope=settings.importance.scope)
        wants = {
            "largest_loss": settings.largest_loss is not None,
            "criterion causal": settings.importance.criterion == "causal",
        }
        for name, wanted in wants.items():
            if wanted and not self._dev:
                raise ModelError(f"{name} needs a development part; give one, or leave it out")
