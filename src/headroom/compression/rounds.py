"""Compression of a solver: heads go in rounds, and after each the others are trained.

Source: arXiv 2511.17577, Alg. 1 and 2. A round scores the heads as they stand, keeps a copy of the
solver as a teacher, removes the heads of lowest score for good, and trains the rest.
"""

import copy
import logging
from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from dataclasses import replace

import torch
from jaxtyping import Float
from torch import Tensor, nn
from transformers import AutoModel, PreTrainedModel

from headroom.athena.batches import Batch, Example
from headroom.athena.networks import Athena
from headroom.athena.objective import Objective, task
from headroom.athena.solver import MathSolver
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
from headroom.compression.training import Hook, train
from headroom.config.compression import Compression, Training
from headroom.errors import ModelError
from headroom.models.geometry import find_heads
from headroom.models.removal import remove_heads
from headroom.variants import Variant

_LOG = logging.getLogger(__name__)


def compress(
    solver: MathSolver,
    examples: Sequence[Example],
    dev: Sequence[Example],
    settings: Compression,
    seed: int,
    *,
    layout: Mapping[str, Sequence[int]] | None = None,
    device: str = "auto",
) -> tuple[MathSolver, History]:
    """Remove heads of a solver's encoder and train the rest.

    Args:
        solver: trained, with all heads that are to be counted; it is left as it was.
        examples: the training part, prepared by the solver.
        dev: the development part; may be empty where nothing asks for it.
        settings: how.
        seed: decides the order of problems, dropout, random scores and weights from scratch.
        layout: with `scratch`: the heads to keep, as `resume.shape_of` has them of another
            compressed solver. Without it they are chosen as settings say, in one shot.
        device: auto (the GPU if there is one) or cpu.

    Returns:
        The smaller solver, and how it came about.

    Raises:
        ModelError: no head or too many would go, the encoder cannot be cut or has no eager
            attention, or something needs a development part that is not there.
    """
    solver = replace(solver, athena=copy.deepcopy(solver.athena))
    run = _Run(solver, examples, dev, settings, seed, device)
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
    return solver, history


class _Run:
    """A compression under way."""

    def __init__(
        self,
        solver: MathSolver,
        examples: Sequence[Example],
        dev: Sequence[Example],
        settings: Compression,
        seed: int,
        device: str,
    ) -> None:
        self._solver, self._examples, self._dev = solver, examples, dev
        self._settings, self._seed, self._device = settings, seed, device
        self._geometry = find_heads(solver.athena.encoder)
        heads = sum(layer.query_heads for layer in self._geometry.layers)
        self._check(heads)
        self.before = History(self._solved(), heads, parameters(solver.athena), ())
        self._teacher: Teacher | None = None
        if settings.distillation.teacher != "none":
            self._teacher = Teacher.of(solver.athena, self._geometry)
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
            left = parameters(self._solver.athena)
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
        """Train a solver of the final shape from random weights."""
        athena, own = self._solver.athena, self._solver.settings.training
        if layout is None:
            self._cut(heads_at(self._settings.ratio, self.before.heads))
            layout = shape_of(athena.encoder)
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(self._seed)
            athena.encoder = _new_weights(athena.encoder)
            _forget(athena)
        restore_shape(athena.encoder, {layer: list(heads) for layer, heads in layout.items()})
        self._geometry = find_heads(athena.encoder)
        epochs = own.epochs + self._settings.training.epochs
        return self._train(own.model_copy(update={"epochs": epochs}), 0)

    def _cut(self, count: int) -> None:
        """Remove the heads of lowest score; the teacher is the solver before, if recursive."""
        athena, settings = self._solver.athena, self._settings
        if settings.distillation.teacher == "recursive":
            self._teacher = Teacher.of(athena, self._geometry)
        if count:
            self._removals.append(self._remove(count))
        if self._teacher is not None:
            self._objective = distilled(
                self._teacher, athena, self._geometry, settings.distillation
            )

    def _remove(self, count: int) -> Removal:
        solver, settings, before = self._solver, self._settings.importance, self._geometry
        seed = self._seed * 1_000_003 + self._steps
        scores = head_scores(solver, before, self._examples, self._dev, settings, seed)
        chosen = lowest_heads(scores, before, count, scope=settings.scope)
        named = {
            Variant(layer.index, place): Variant(layer.index, number)
            for layer in before.layers
            for place, number in enumerate(layer.original_heads)
        }
        self._geometry = remove_heads(solver.athena.encoder, before, chosen)
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
        before, encoder = self._steps, self._solver.athena.encoder
        # In all arms that train what was trained before, so that they differ in their names only.
        own = nullcontext() if self._settings.scratch else without_attention_dropout(encoder)
        with own:
            fit = train(
                self._solver,
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
        return Round(removals, heads, parameters(self._solver.athena), fit)

    def _minimised(self, athena: Athena, batch: Batch) -> Mapping[str, Float[Tensor, ""]]:
        """The objective as it stands: it changes when heads go."""
        return self._objective(athena, batch)

    def _solved(self) -> float | None:
        if not self._dev:
            return None
        solutions = self._solver.solve(self._dev)
        return sum(solution.strict for solution in solutions) / len(solutions)

    def _lost_accuracy(self) -> float:
        if self._settings.largest_loss is None:
            return 0.0
        return (self.before.dev_strict or 0.0) - (self._solved() or 0.0)

    def _check(self, heads: int) -> None:
        """Make sure, before anything is trained, that what is asked for can be done."""
        settings = self._settings
        count = heads_at(settings.ratio, heads)
        if settings.ratio and not count:
            raise ModelError(
                f"ratio {settings.ratio} removes none of {heads} heads; one of them is "
                f"{100 / heads:.2f}%"
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


def _new_weights(encoder: PreTrainedModel) -> PreTrainedModel:
    """Return an encoder of the same architecture, with all heads and random weights."""
    config = copy.deepcopy(encoder.config)
    config.get_text_config().kept_heads = {}
    new = AutoModel.from_config(config)
    if getattr(new, "pooler", None) is not None:
        new.pooler = None
    return new.to(encoder.device)


def _forget(athena: Athena) -> None:
    """Give the thought head random weights."""
    for module in athena.head.modules():
        if isinstance(module, nn.Linear | nn.LayerNorm):
            module.reset_parameters()
    nn.init.normal_(athena.head.constants)
