"""Training of learners, with checkpoints: a resumed training gives bit-identical results.

One process, on the GPU if there is one; accelerate handles mixed precision. Every step has its own
dropout seed, so that a resumed training draws the same masks as an uninterrupted one.
"""

import logging
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from accelerate import Accelerator
from jaxtyping import Float
from pydantic import BaseModel
from torch import Tensor

from headsweep.config.solvers import Training
from headsweep.experiments.compression import checkpoint
from headsweep.experiments.compression.training_steps import (
    Reports,
    begin_step,
    check_finite,
    decay_groups,
    epoch_batches,
    loss_words,
)
from headsweep.models.learner import (
    WHOLE,
    Batch,
    Example,
    Learner,
    Terms,
    accuracy,
    move,
    shares,
)

_LOG = logging.getLogger(__name__)

Objective = Callable[[Learner, Batch, Terms], Mapping[str, Float[Tensor, ""]]]
"""Returns the weighted parts of the loss on a piece of a step's batch, which has such shares of its
terms; the sum over parts and pieces is minimised, each part is logged."""


class Epoch(BaseModel):
    """The results of an epoch."""

    epoch: int  # from 1
    steps: int  # optimiser steps since the start of the training
    losses: dict[str, float]  # means over the epoch's steps, by part of the objective
    dev_strict: float | None
    """Share of the development part solved. Measured after every epoch with `patience`, otherwise
    after the last only; None if not measured or without a development part."""


class Fit(BaseModel):
    """The results of a training."""

    epochs: list[Epoch] = []
    best: int | None = None  # the epoch whose weights were kept; None: the last

    @property
    def dev_strict(self) -> float | None:
        """Share of the development part solved with the weights kept; None without one."""
        return self.epochs[(self.best or 0) - 1].dev_strict


class TrainingCallback:
    """Callback of a training: it may prune the network after a step and keeps its state.

    This base class does nothing.
    """

    def after_step(self, step: int) -> bool:
        """Act after an optimiser step, from 1; return whether parameters of the network were cut.

        The optimiser is then made again.
        """
        return False

    def state(self) -> tuple[dict[str, Any], dict[str, Tensor]]:
        """Return the state to keep in checkpoints: JSON facts, and tensors."""
        return {}, {}

    def restore(self, facts: dict[str, Any], tensors: dict[str, Tensor]) -> None:
        """Resume from a state that `state` returned; the network already has its shape of then."""


def task(learner: Learner, batch: Batch, share: Terms = WHOLE) -> dict[str, Float[Tensor, ""]]:
    """Return a learner's own loss: the objective without distillation."""
    return {"task": learner.task_loss(learner.run(batch), batch) * share.judged}


def train(
    learner: Learner,
    examples: Sequence[Example],
    dev: Sequence[Example],
    settings: Training,
    seed: int,
    *,
    objective: Objective = task,
    callback: TrainingCallback | None = None,
    checkpoint_file: Path | None = None,
) -> Fit:
    """Train a learner's network, in place and on its device.

    With `patience`, the network gets the weights of the epoch that solved most of the development
    part (the first of equals); without, that part may be empty. The seed decides the order of
    examples and dropout. `callback` may prune the network between steps; the best epoch is then
    chosen anew. An interrupted training resumes from `checkpoint_file`.

    Raises:
        ModelError: the checkpoint is damaged or belongs to another training, or the loss is not
            finite.
    """
    assert dev or settings.patience is None
    devices = [torch.cuda.current_device()] if torch.cuda.is_available() else []
    with torch.random.fork_rng(devices):
        run = _Run(
            learner,
            examples,
            dev,
            settings,
            seed,
            objective=objective,
            callback=callback or TrainingCallback(),
            checkpoint_file=checkpoint_file,
        )
        return run.to_the_end()


@dataclass
class _Run:
    """The state of a running training."""

    learner: Learner
    examples: Sequence[Example]
    dev: Sequence[Example]
    settings: Training
    seed: int
    objective: Objective
    callback: TrainingCallback
    checkpoint_file: Path | None

    def __post_init__(self) -> None:
        settings, learner, file = self.settings, self.learner, self.checkpoint_file
        # Where there is no GPU anyhow, `cpu=True` would have accelerate look for other processes.
        on_cpu = torch.cuda.is_available() and learner.encoder.device.type == "cpu"
        self.accelerator = Accelerator(mixed_precision=settings.precision, cpu=on_cpu)
        recipe = settings.model_dump(mode="json")
        self.identity = checkpoint.identity(learner, recipe, self.seed, self.examples, self.dev)
        self.model = learner.network
        self.steps_per_epoch = math.ceil(len(self.examples) / settings.batch_size)
        self.total_steps = settings.epochs * self.steps_per_epoch
        self.steps = 0
        self.sums: dict[str, float] = {}
        self.fit = Fit()
        self.best: dict[str, Tensor] = {}
        facts = None
        if file is not None and file.exists():
            facts, tensors = checkpoint.read_checkpoint(file, learner, self.identity)
        self.new_optimizer()
        if facts is not None:
            checkpoint.set_moments(self.optimizer, tensors["moments"])
            self.callback.restore(facts, tensors["between"])
            self.best, self.steps, self.sums = tensors["best"], facts["steps"], facts["sums"]
            self.fit = Fit.model_validate(facts["fit"])
            _LOG.info("resuming after step %d", self.steps)

    def save(self) -> None:
        if self.checkpoint_file is None:
            return
        facts, tensors = self.callback.state()
        facts |= {"steps": self.steps, "sums": self.sums, "fit": self.fit.model_dump()}
        moments = checkpoint.moments_of(self.optimizer)
        parts = {"best": self.best, "moments": moments, "between": tensors}
        checkpoint.write_checkpoint(
            self.checkpoint_file, self.learner, facts | self.identity, **parts
        )

    def to_the_end(self) -> Fit:
        settings, fit = self.settings, self.fit
        self.model.train()
        report = Reports(self.steps, self.total_steps)
        while (done := len(fit.epochs)) < settings.epochs:
            if settings.patience is not None and done - (fit.best or done) >= settings.patience:
                break
            batches = epoch_batches(self.examples, settings.batch_size, self.seed, done)
            for indices in batches[self.steps % self.steps_per_epoch :]:
                self.step(indices)
                inside = self.steps % self.steps_per_epoch
                if inside and self.steps % settings.checkpoint_steps == 0:
                    self.save()
                if inside:
                    report(self.steps, self.means(inside))
            self.end_epoch(done + 1)
            self.save()
        if self.best:
            self.model.load_state_dict(self.best)
        self.model.eval()
        return fit

    def step(self, indices: Sequence[int]) -> None:
        settings = self.settings
        device = self.learner.encoder.device
        rate = settings.learning_rate * (1 - self.steps / self.total_steps)
        begin_step(self.optimizer, rate, self.seed, self.steps)
        pieces = [
            self.learner.collate([self.examples[index] for index in piece])
            for piece in np.array_split(indices, settings.micro_batches)
            if len(piece)
        ]
        for piece, share in zip(pieces, shares(pieces), strict=True):
            with self.accelerator.autocast():
                parts = self.objective(self.learner, move(piece, device), share)
                loss = torch.stack(list(parts.values())).sum()
            self.accelerator.backward(loss)
            for name, part in parts.items():
                self.sums[name] = self.sums.get(name, 0.0) + float(part.detach())
        check_finite(self.sums, self.steps + 1, f"learning_rate, now {settings.learning_rate}")
        self.accelerator.clip_grad_norm_(self.model.parameters(), settings.clip)
        self.optimizer.step()
        self.optimizer.zero_grad()
        self.steps += 1
        if self.callback.after_step(self.steps):
            self.accelerator.free_memory()
            self.take_moments()
            self.best = {}
            self.fit.best = None

    def end_epoch(self, epoch: int) -> None:
        # Testing may take longer than training, so it is done only where its result is used.
        wanted = self.settings.patience is not None or epoch == self.settings.epochs
        solved = accuracy(self.learner, self.dev) if wanted else None
        losses = self.means(self.steps_per_epoch)
        self.sums = {}
        better = not self.fit.best or (solved or 0.0) > (self.fit.dev_strict or 0.0)
        done = Epoch(epoch=epoch, steps=self.steps, losses=losses, dev_strict=solved)
        self.fit.epochs.append(done)
        if self.settings.patience is not None and better:
            self.fit.best = epoch
            weights = self.model.state_dict().items()
            self.best = {name: tensor.detach().clone() for name, tensor in weights}
        said = loss_words(losses)
        if solved is not None:
            said += f"; {solved:.1%} of the development part solved"
        _LOG.info("epoch %d of %d: %s", epoch, self.settings.epochs, said)

    def means(self, steps: int) -> dict[str, float]:
        return {name: total / steps for name, total in self.sums.items()}

    def new_optimizer(self) -> None:
        """Make an optimiser without moments for what is trained; keep the names of parameters."""
        self.parameters_by_name = dict(self.model.named_parameters())
        trained = [
            parameter for parameter in self.parameters_by_name.values() if parameter.requires_grad
        ]
        groups = decay_groups(trained, self.settings.weight_decay)
        optimizer = torch.optim.AdamW(groups, lr=self.settings.learning_rate, fused=True)
        self.optimizer = self.accelerator.prepare_optimizer(optimizer)

    def take_moments(self) -> None:
        """Make the optimiser again after parameters were cut; its moments are cut alike."""
        old_moments = self.optimizer.state
        old_parameters = self.parameters_by_name
        self.new_optimizer()
        for name, parameter in self.parameters_by_name.items():
            old = old_parameters[name]
            moments = old_moments.get(old, {})
            if parameter is not old:
                axis, index = getattr(parameter, "taken")  # noqa: B009
                moments = {
                    key: value.index_select(axis, index) if value.ndim else value
                    for key, value in moments.items()
                }
            if moments:
                self.optimizer.state[parameter] = moments
