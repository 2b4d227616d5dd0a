"""Training of whatever can learn.

One process, on the GPU if there is one; accelerate brings mixed precision. Every step draws its
dropout from a seed of its own, so that a training that was killed goes on as if nothing had been.
"""

import logging
import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import torch
from accelerate import Accelerator
from jaxtyping import Float
from torch import Tensor

from headroom.compression import journal
from headroom.compression.history import Epoch, Fit
from headroom.config.compression import Training
from headroom.errors import ModelError
from headroom.models.learner import Batch, Example, Learner, accuracy, move

_LOG = logging.getLogger(__name__)
_SECONDS_BETWEEN_REPORTS = 30
_BUCKETS = 16  # batches sorted by length together: less padding

Objective = Callable[[Learner, Batch], Mapping[str, Float[Tensor, ""]]]
"""Returns the parts of the loss on a batch, weighted; their sum is minimised, each is logged."""


class Between:
    """What acts between the steps of a training; this one does nothing."""

    def after_step(self, step: int) -> bool:
        """Act after an optimiser step, counted from 1.

        Returns whether parameters of the network were exchanged, so that the optimiser has to be
        built again.
        """
        return False

    def state(self) -> tuple[Mapping[str, Tensor], dict[str, Any]]:
        """Return what has to be remembered, tensors and JSON values: checkpoints keep it."""
        return {}, {}

    def restore(self, tensors: Mapping[str, Tensor], facts: dict[str, Any]) -> None:
        """Go on with what `state` returned; the network has its shape of then."""


def task(learner: Learner, batch: Batch) -> dict[str, Float[Tensor, ""]]:
    """The objective that is a learner's own loss."""
    return {"task": learner.task_loss(learner.run(batch), batch)}


def train(
    learner: Learner,
    examples: Sequence[Example],
    dev: Sequence[Example],
    settings: Training,
    seed: int,
    *,
    objective: Objective = task,
    between: Between | None = None,
    checkpoint: Path | None = None,
    device: str = "auto",
) -> Fit:
    """Train a learner's network, in place.

    With `patience`, it ends with the weights of the epoch that solved most of the development part
    (the first of equals).

    Args:
        learner: what to train.
        examples: the training part.
        dev: the development part; may be empty if there is no `patience`.
        settings: the recipe.
        seed: decides the order of examples and dropout.
        objective: what is minimised.
        between: may prune the network between steps; earlier epochs then no longer count as best.
        checkpoint: where the state of the training is kept; what is found there is gone on with.
        device: auto (the GPU if there is one) or cpu.

    Raises:
        ModelError: the checkpoint is damaged or of another training, `patience` has no
            development part to look at, or the loss is no longer a number.
    """
    if settings.patience is not None and not dev:
        raise ModelError("patience needs a development part; give one, or set patience: null")
    devices = [torch.cuda.current_device()] if torch.cuda.is_available() else []
    with torch.random.fork_rng(devices):
        run = _Run(learner, examples, dev, settings, seed, objective, between, checkpoint, device)
        return run.to_the_end()


class _Run:
    """A training under way."""

    def __init__(
        self,
        learner: Learner,
        examples: Sequence[Example],
        dev: Sequence[Example],
        settings: Training,
        seed: int,
        objective: Objective,
        between: Between | None,
        checkpoint: Path | None,
        device: str,
    ) -> None:
        self._learner, self._examples, self._dev = learner, examples, dev
        self._settings, self._seed, self._objective = settings, seed, objective
        self._between, self._checkpoint = between or Between(), checkpoint
        self._identity = {
            "seed": seed,
            "settings": settings.model_dump(mode="json"),
            "examples": journal.examples_key(examples, dev),
        }
        self._accelerator = Accelerator(mixed_precision=settings.precision, cpu=device == "cpu")
        self._model = learner.network.to(self._accelerator.device)
        self._steps_per_epoch = math.ceil(len(examples) / settings.batch_size)
        self._total_steps = settings.epochs * self._steps_per_epoch
        self._steps = 0
        self._sums: dict[str, float] = {}
        self._fit = Fit()
        self._best: dict[str, Tensor] = {}
        self._optimizer = self._new_optimizer()

    def to_the_end(self) -> Fit:
        if self._checkpoint is not None and self._checkpoint.exists():
            self._go_on(self._checkpoint)
        self._model.train()
        begin = reported = time.monotonic()
        first, size = self._steps, self._settings.batch_size
        while not self._over():
            epoch, done = divmod(self._steps, self._steps_per_epoch)
            for indices in epoch_batches(self._examples, size, self._seed, epoch)[done:]:
                self._step(indices)
                inside = self._steps % self._steps_per_epoch
                if inside and self._steps % self._settings.checkpoint_steps == 0:
                    self._save()
                now = time.monotonic()
                if inside and now - reported > _SECONDS_BETWEEN_REPORTS:
                    reported = now
                    left = (now - begin) / (self._steps - first) * (self._total_steps - self._steps)
                    losses = _words(self._means(inside))
                    told = (self._steps, self._total_steps, losses, left)
                    _LOG.info("step %d of %d, %s, %.0f s left", *told)
            self._end_epoch(epoch + 1)
            self._save()
        if self._best:
            self._model.load_state_dict(self._best)
        self._model.eval()
        return self._fit

    def _over(self) -> bool:
        done, patience = len(self._fit.epochs), self._settings.patience
        tired = patience is not None and done - (self._fit.best or done) >= patience
        return tired or done == self._settings.epochs

    def _step(self, indices: Sequence[int]) -> None:
        settings = self._settings
        for group in self._optimizer.param_groups:
            group["lr"] = settings.learning_rate * (1 - self._steps / self._total_steps)
        torch.manual_seed(self._seed * 1_000_003 + self._steps)
        pieces = [
            self._learner.collate([self._examples[index] for index in piece])
            for piece in np.array_split(indices, settings.micro_batches)
            if len(piece)
        ]
        judged = sum(piece.judged for piece in pieces)
        for piece in pieces:
            with self._accelerator.autocast():
                parts = self._objective(self._learner, move(piece, self._accelerator.device))
                loss = torch.stack(list(parts.values())).sum() * (piece.judged / judged)
            self._accelerator.backward(loss)
            for name, part in parts.items():
                value = float(part.detach()) * piece.judged / judged
                if not math.isfinite(value):
                    raise ModelError(
                        f"the {name} part of the loss is {value} at step {self._steps + 1}; lower "
                        f"learning_rate, now {settings.learning_rate}"
                    )
                self._sums[name] = self._sums.get(name, 0.0) + value
        self._accelerator.clip_grad_norm_(self._model.parameters(), settings.clip)
        self._optimizer.step()
        self._optimizer.zero_grad()
        self._steps += 1
        if self._between.after_step(self._steps):
            self._accelerator.free_memory()
            self._optimizer = self._new_optimizer()
            self._best, self._fit.best = {}, None

    def _end_epoch(self, epoch: int) -> None:
        losses, self._sums = self._means(self._steps_per_epoch), {}
        # Answering may take longer than learning: it is done where something follows from it.
        patient = self._settings.patience is not None
        wanted = patient or epoch == self._settings.epochs
        solved = accuracy(self._learner, self._dev) if wanted else None
        best = self._fit.taken.dev_strict if self._fit.best else None
        self._fit.epochs.append(Epoch(epoch, self._steps, losses, solved))
        if patient and (best is None or (solved or 0.0) > best):
            self._fit.best = epoch
            self._best = {
                name: tensor.detach().clone() for name, tensor in self._model.state_dict().items()
            }
        of_dev = "" if solved is None else f"; {solved:.1%} of the development part solved"
        _LOG.info("epoch %d of %d: %s", epoch, self._settings.epochs, _words(losses) + of_dev)

    def _means(self, steps: int) -> dict[str, float]:
        return {name: total / steps for name, total in self._sums.items()}

    def _new_optimizer(self) -> torch.optim.Optimizer:
        trained = [parameter for parameter in self._model.parameters() if parameter.requires_grad]
        decayed, others = (
            [parameter for parameter in trained if (parameter.ndim > 1) is matrices]
            for matrices in (True, False)
        )
        groups = [
            {"params": decayed, "weight_decay": self._settings.weight_decay},
            {"params": others, "weight_decay": 0.0},
        ]
        optimizer = torch.optim.AdamW(groups, lr=self._settings.learning_rate, fused=True)
        return self._accelerator.prepare_optimizer(optimizer)

    def _save(self) -> None:
        if self._checkpoint is None:
            return
        memory, remembered = self._between.state()
        done = {"steps": self._steps, "sums": self._sums, "fit": asdict(self._fit)}
        journal.write(
            self._checkpoint,
            self._learner,
            {**self._identity, **done, "memory": remembered},
            optimizer=self._optimizer,
            best=self._best,
            memory=memory,
        )

    def _go_on(self, checkpoint: Path) -> None:
        facts, moments, self._best, memory = journal.read(checkpoint, self._learner, self._identity)
        self._optimizer = self._new_optimizer()
        parameters = dict(self._model.named_parameters())
        for name, tensor in moments.items():
            parameter, _, key = name.rpartition("/")
            own = parameters[parameter]
            self._optimizer.state[own][key] = tensor.to(own.device)
        self._between.restore(memory, facts["memory"])
        self._steps, self._sums = facts["steps"], facts["sums"]
        epochs = [Epoch(**epoch) for epoch in facts["fit"]["epochs"]]
        self._fit = Fit(epochs, facts["fit"]["best"])
        _LOG.info("going on after step %d", self._steps)


def _words(losses: Mapping[str, float]) -> str:
    return "loss " + ", ".join(f"{name} {loss:.4g}" for name, loss in losses.items())


def epoch_batches(examples: Sequence[Example], size: int, seed: int, epoch: int) -> list[list[int]]:
    """Return the batches of an epoch, as places among the examples.

    Texts of like length share a batch.
    """
    draw = torch.Generator().manual_seed(seed * 1_000_003 + epoch)
    order = torch.randperm(len(examples), generator=draw).tolist()
    batches = []
    for start in range(0, len(order), size * _BUCKETS):
        bucket = order[start : start + size * _BUCKETS]
        bucket.sort(key=lambda index: len(examples[index].input_ids))
        batches += [bucket[first : first + size] for first in range(0, len(bucket), size)]
    return [batches[place] for place in torch.randperm(len(batches), generator=draw).tolist()]
