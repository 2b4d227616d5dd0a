"""Compression: heads go in rounds, and after each the others are trained.

Source: arXiv 2511.17577, Alg. 1 and 2. A round scores the heads as they stand, keeps a copy of the
learner as a teacher, removes the heads of lowest score for good, and trains the rest.
"""

import logging
from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import Any, Generic, TypeVar

import torch
from jaxtyping import Float
from pydantic import TypeAdapter
from torch import Tensor

from headroom.compression import journal
from headroom.compression.choice import heads_at, heads_due, lowest_heads, unit_size
from headroom.compression.criteria import head_scores
from headroom.compression.distillation import Teacher, distilled, without_attention_dropout
from headroom.compression.footprint import parameters
from headroom.compression.history import History, Removal, Round
from headroom.compression.journal import restore_shape, shape_of
from headroom.compression.training import Between, Objective, task, train
from headroom.config.compression import Compression, Training
from headroom.errors import ModelError
from headroom.models.geometry import find_heads
from headroom.models.learner import Batch, Example, Learner, accuracy, copied
from headroom.models.removal import remove_heads
from headroom.variants import Variant

_LOG = logging.getLogger(__name__)
_L = TypeVar("_L", bound=Learner)
_ROUNDS = TypeAdapter(list[Round])
_REMOVALS = TypeAdapter(list[Removal])
_STATE = "rounds.safetensors"


def compress(
    learner: _L,
    examples: Sequence[Example],
    dev: Sequence[Example],
    settings: Compression,
    seed: int,
    *,
    layout: Mapping[str, Sequence[int]] | None = None,
    folder: Path | None = None,
    device: str = "auto",
) -> tuple[_L, History]:
    """Remove heads of a learner's encoder and train the rest.

    Args:
        learner: trained, with all heads that are to be counted; it is left as it was.
        examples: the training part, prepared by the learner.
        dev: the development part; may be empty where nothing asks for it.
        settings: how.
        seed: decides the order of examples, dropout, random scores and weights from scratch.
        layout: with `scratch`: the heads to keep, as `journal.shape_of` has them of another
            compressed learner. Without it they are chosen as settings say, in one shot.
        folder: the journal, in which what is done is kept; what is found there is gone on with.
            It stays: whoever calls removes it once the result is safe.
        device: auto (the GPU if there is one) or cpu.

    Returns:
        The smaller learner, and how it came about.

    Raises:
        ModelError: no head or too many would go, the encoder cannot be cut or has no eager
            attention, something needs a development part that is not there, or the journal is
            damaged or of another compression.
    """
    run = _Run(learner, examples, dev, settings, seed, layout, folder, device)
    if settings.rounds:
        run.to_the_end()
    for warning in run.history.warnings():
        _LOG.warning(warning)
    return run.learner, run.history


class _Run(Between, Generic[_L]):
    """A compression under way."""

    def __init__(
        self,
        given: _L,
        examples: Sequence[Example],
        dev: Sequence[Example],
        settings: Compression,
        seed: int,
        layout: Mapping[str, Sequence[int]] | None,
        folder: Path | None,
        device: str,
    ) -> None:
        self._given, self._examples, self._dev = given, examples, dev
        self._settings, self._seed, self._layout = settings, seed, layout
        self._folder, self._device = folder, device
        self._identity = {
            "seed": seed,
            "settings": settings.model_dump(mode="json"),
            "examples": journal.examples_key(examples, dev),
            "layout": layout and {layer: list(heads) for layer, heads in layout.items()},
        }
        self._geometry = find_heads(given.encoder)
        heads = self._left
        self._check(heads)
        self.history = History(accuracy(given, dev), heads, parameters(given.network), [])
        self._teacher: Teacher | None = None
        if settings.distillation.teacher != "none":
            self._teacher = Teacher.of(given, self._geometry)
        self._objective: Objective = task
        self._removals: list[Removal] = []
        self._stopped = False
        self.learner = copied(given)
        if folder is not None and (folder / _STATE).exists():
            facts = journal.read(folder / _STATE, self.learner, self._identity).facts
            self.history.rounds = _ROUNDS.validate_python(facts["rounds"])
        self._geometry = find_heads(self.learner.encoder)
        self._steps = sum(each.epochs[-1].steps for each in self.history.rounds)

    def to_the_end(self) -> None:
        """Do what is not done yet."""
        in_one_training = self._settings.scratch or self._settings.schedule == "literal"
        if not in_one_training:
            self._by_rounds()
        elif not self.history.rounds:
            self._from_scratch() if self._settings.scratch else self._step_by_step()

    def _by_rounds(self) -> None:
        """Prune before each training, or before the first only."""
        settings, heads = self._settings, self.history.heads
        epochs, rounds = settings.training.epochs, settings.rounds
        one_shot = settings.schedule == "one_shot"
        for number in range(len(self.history.rounds), rounds):
            time = rounds if one_shot else number + 1
            self._cut(heads_due(settings, heads, time, rounds) - (heads - self._left))
            share = epochs * (number + 1) // rounds - epochs * number // rounds
            self._train(settings.training.model_copy(update={"epochs": share}))

    def _step_by_step(self) -> None:
        """Prune between the optimiser's steps, one head, or unit of heads, at a time."""
        self._cut(0)
        self._train(self._settings.training, between=self)

    def after_step(self, step: int) -> bool:
        """Remove a head, or unit of heads, if one is due and nothing says to stop."""
        settings, recipe = self._settings, self._settings.training
        steps = recipe.epochs * -(-len(self._examples) // recipe.batch_size)
        unit = self._unit
        gone = self.history.heads - self._left + unit
        if self._stopped or gone > heads_due(settings, self.history.heads, step, steps):
            return False
        smallest, largest_loss = settings.smallest, settings.largest_loss
        self._stopped = smallest is not None and parameters(self.learner.network) <= smallest
        if largest_loss is not None:
            solved = accuracy(self.learner, self._dev) or 0.0
            self._stopped |= (self.history.dev_strict or 0.0) - solved > largest_loss
        if not self._stopped:
            self._steps = step
            self._cut(unit)
        return not self._stopped

    def _from_scratch(self) -> None:
        """Train a learner of the final shape from random weights."""
        own = self.learner.recipe
        assert own is not None  # `_check` asks for it
        layout = self._layout
        if layout is None:
            self._cut(heads_at(self._settings.ratio, self.history.heads))
            layout = shape_of(self.learner.encoder)
        self.learner = self.learner.untrained(self._seed)
        restore_shape(self.learner.encoder, layout)
        self._geometry = find_heads(self.learner.encoder)
        epochs = own.epochs + self._settings.training.epochs
        self._train(own.model_copy(update={"epochs": epochs}))

    def state(self) -> tuple[Mapping[str, Tensor], dict[str, Any]]:
        """Return what a training between whose steps heads go has to remember."""
        facts: dict[str, Any] = {"removals": _REMOVALS.dump_python(self._removals)}
        if self._teacher is None or self._settings.distillation.teacher != "recursive":
            return {}, facts
        teacher = self._teacher.learner
        return teacher.network.state_dict(), {**facts, "teacher": shape_of(teacher.encoder)}

    def restore(self, tensors: Mapping[str, Tensor], facts: dict[str, Any]) -> None:
        """Go on with what `state` returned."""
        self._removals = _REMOVALS.validate_python(facts["removals"])
        self._geometry = find_heads(self.learner.encoder)
        if "teacher" in facts:
            teacher = copied(self._given)
            restore_shape(teacher.encoder, facts["teacher"])
            teacher.network.load_state_dict(tensors)
            self._teacher = Teacher.of(teacher, find_heads(teacher.encoder))
        self._aim()

    @property
    def _left(self) -> int:
        """How many heads are left."""
        return sum(layer.query_heads for layer in self._geometry.layers)

    @property
    def _unit(self) -> int:
        """How many heads go at once, at least."""
        unit = self._settings.importance.unit
        return min(unit_size(layer, unit) for layer in self._geometry.layers)

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
        self._geometry = remove_heads(learner.encoder, before, chosen)
        numbers = {layer.index: layer.original_heads for layer in before.layers}
        noted = {
            str(Variant(layer, numbers[layer][place])): score
            for layer, values in scores.items()
            for place, score in enumerate(values.tolist())
        }
        heads = [str(Variant(one.layer, numbers[one.layer or 0][one.head or 0])) for one in chosen]
        told = ", ".join(heads), self._left, self.history.heads
        _LOG.info("heads removed: %s; %d of %d are left", *told)
        self._removals.append(Removal(self._steps, heads, noted))

    def _train(self, recipe: Training, between: Between | None = None) -> None:
        number, before, encoder = len(self.history.rounds), self._steps, self.learner.encoder
        # In all arms that train what was trained before, so that they differ in their names only.
        own = nullcontext() if self._settings.scratch else without_attention_dropout(encoder)
        checkpoint = self._folder and self._folder / f"training_{number}.safetensors"
        with own:
            fit = train(
                self.learner,
                self._examples,
                self._dev,
                recipe,
                self._seed * 1009 + number,
                objective=self._minimised,
                between=between,
                checkpoint=checkpoint,
                device=self._device,
            )
        self._steps = before + fit.epochs[-1].steps
        whole = parameters(self.learner.network)
        self.history.rounds.append(Round(self._removals, self._left, whole, fit.epochs, fit.best))
        self._removals = []
        if self._folder is not None and checkpoint is not None:
            facts = {**self._identity, "rounds": _ROUNDS.dump_python(self.history.rounds)}
            journal.write(self._folder / _STATE, self.learner, facts)
            checkpoint.unlink(missing_ok=True)

    def _minimised(self, learner: Learner, batch: Batch) -> Mapping[str, Float[Tensor, ""]]:
        """The objective as it stands: it changes when heads go."""
        return self._objective(learner, batch)

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
        if settings.ratio and count < self._unit:
            raise ModelError(
                f"ratio {settings.ratio} removes {count} of {heads} heads, but with unit: {unit} "
                f"{self._unit} go together; raise the ratio"
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
