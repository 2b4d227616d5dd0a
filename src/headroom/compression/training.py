"""Training of learners, with checkpoints: a resumed training gives bit-identical results.

One process, on the GPU if there is one; accelerate handles mixed precision. Every step has its own
dropout seed, so that a resumed training draws the same masks as an uninterrupted one.
"""

import hashlib
import logging
import math
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from accelerate import Accelerator
from jaxtyping import Float
from pydantic import BaseModel
from torch import Tensor
from transformers import PreTrainedModel

from headroom.compression.checkpoint import moments_of, read_state, set_moments, write_state
from headroom.config.compression import Compression, Training
from headroom.errors import ModelError
from headroom.models.geometry import find_heads, kept_heads
from headroom.models.learner import Batch, Example, Learner, accuracy, move
from headroom.models.load import check_device
from headroom.models.removal import remove_heads
from headroom.variants import Variant

_LOG = logging.getLogger(__name__)
_SECONDS_BETWEEN_REPORTS = 30
_BUCKETS = 16  # batches whose texts are sorted by length together, for less padding

Objective = Callable[[Learner, Batch], Mapping[str, Float[Tensor, ""]]]
"""Returns the weighted parts of the loss on a batch; their sum is minimised, each is logged."""


class Epoch(BaseModel):
    """The results of an epoch."""

    epoch: int
    """From 1."""
    steps: int
    """Optimiser steps since the start of the training."""
    losses: dict[str, float]
    """Means over the epoch's steps, by part of the objective."""
    dev_strict: float | None
    """Share of the development part solved. Measured after every epoch with `patience`, otherwise
    after the last only; None if not measured or without a development part."""


class Fit(BaseModel):
    """The results of a training."""

    epochs: list[Epoch] = []
    best: int | None = None
    """The epoch whose weights were kept; None: the last."""

    @property
    def dev_strict(self) -> float | None:
        """Share of the development part solved with the weights kept; None without one."""
        return self.epochs[(self.best or 0) - 1].dev_strict


class Between:
    """What acts between the steps of a training; this base class does nothing."""

    def after_step(self, step: int) -> bool:
        """Act after an optimiser step, counted from 1.

        Returns whether parameters of the network were cut (`headroom.models.removal`), so that
        the optimiser must be rebuilt.
        """
        return False

    def state(self) -> tuple[dict[str, Any], dict[str, Tensor]]:
        """Return the state to keep in checkpoints: JSON facts, and tensors."""
        return {}, {}

    def restore(self, facts: dict[str, Any], tensors: dict[str, Tensor]) -> None:
        """Resume from a state that `state` returned; the network already has its shape of then."""


def task(learner: Learner, batch: Batch) -> dict[str, Float[Tensor, ""]]:
    """Return a learner's own loss: the objective without distillation."""
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

    With `patience`, the network gets the weights of the epoch that solved most of the development
    part (the first of equals).

    Args:
        learner: what to train.
        examples: the training part.
        dev: the development part; may be empty if there is no `patience`.
        settings: the recipe.
        seed: decides the order of examples and dropout.
        objective: the loss to minimise.
        between: may prune the network between steps; the best epoch is then chosen anew.
        checkpoint: file for the state of the training; an interrupted training resumes from it.
        device: auto (the GPU if there is one) or cpu.

    Raises:
        ModelError: the checkpoint is damaged or belongs to another training, `patience` is set
            without a development part, or the loss is not finite.
    """
    if settings.patience is not None and not dev:
        raise ModelError("patience needs a development part; give one, or set patience: null")
    devices = [torch.cuda.current_device()] if torch.cuda.is_available() else []
    with torch.random.fork_rng(devices):
        accelerator = Accelerator(mixed_precision=settings.precision, cpu=device == "cpu")
        own = identity(learner, settings, seed, examples, dev)
        act = between or Between()
        run = _Run(learner, examples, settings, seed, objective, act, accelerator, device)
        if checkpoint is not None and checkpoint.exists():
            run.resume(*read_checkpoint(checkpoint, learner, own))

        def save() -> None:
            if checkpoint is not None:
                facts, tensors = run.state()
                write_checkpoint(checkpoint, learner, facts | own, **tensors)

        return run.to_the_end(lambda: accuracy(learner, dev), save)


@dataclass
class _Run:
    """The state of a running training."""

    learner: Learner
    examples: Sequence[Example]
    settings: Training
    seed: int
    objective: Objective
    between: Between
    accelerator: Accelerator
    device: str

    def __post_init__(self) -> None:
        self.model = self.learner.network.to(check_device(self.device, "float32"))
        self.steps_per_epoch = math.ceil(len(self.examples) / self.settings.batch_size)
        self.total_steps = self.settings.epochs * self.steps_per_epoch
        self.steps = 0
        self.sums: dict[str, float] = {}
        self.fit = Fit()
        self.best: dict[str, Tensor] = {}
        self.optimizer, self.named = self.new_optimizer(), dict(self.model.named_parameters())

    def to_the_end(self, solved: Callable[[], float | None], save: Callable[[], None]) -> Fit:
        """Train; `solved` tests on the development part, `save` keeps the state."""
        settings, fit = self.settings, self.fit
        self.model.train()
        begin = reported = time.monotonic()
        first = self.steps
        while (done := len(fit.epochs)) < settings.epochs:
            if settings.patience is not None and done - (fit.best or done) >= settings.patience:
                break
            batches = epoch_batches(self.examples, settings.batch_size, self.seed, done)
            for indices in batches[self.steps % self.steps_per_epoch :]:
                self.step(indices)
                inside = self.steps % self.steps_per_epoch
                if inside and self.steps % settings.checkpoint_steps == 0:
                    save()
                now = time.monotonic()
                if inside and now - reported > _SECONDS_BETWEEN_REPORTS:
                    reported = now
                    left = (now - begin) / (self.steps - first) * (self.total_steps - self.steps)
                    told = self.steps, self.total_steps, _words(self.means(inside)), left
                    _LOG.info("step %d of %d, %s, %.0f s left", *told)
            # Testing may take longer than training, so it is done only where its result is used.
            wanted = settings.patience is not None or done + 1 == settings.epochs
            self.end_epoch(done + 1, solved() if wanted else None)
            save()
        if self.best:
            self.model.load_state_dict(self.best)
        self.model.eval()
        return fit

    def step(self, indices: Sequence[int]) -> None:
        settings, device = self.settings, self.learner.encoder.device
        for group in self.optimizer.param_groups:
            group["lr"] = settings.learning_rate * (1 - self.steps / self.total_steps)
        torch.manual_seed(self.seed * 1_000_003 + self.steps)
        pieces = [
            self.learner.collate([self.examples[index] for index in piece])
            for piece in np.array_split(indices, settings.micro_batches)
            if len(piece)
        ]
        judged = sum(piece.judged for piece in pieces)
        for piece in pieces:
            with self.accelerator.autocast():
                parts = self.objective(self.learner, move(piece, device))
                loss = torch.stack(list(parts.values())).sum() * (piece.judged / judged)
            self.accelerator.backward(loss)
            for name, part in parts.items():
                value = float(part.detach()) * piece.judged / judged
                if not math.isfinite(value):
                    raise ModelError(
                        f"the {name} part of the loss is {value} at step {self.steps + 1}; lower "
                        f"learning_rate, now {settings.learning_rate}"
                    )
                self.sums[name] = self.sums.get(name, 0.0) + value
        self.accelerator.clip_grad_norm_(self.model.parameters(), settings.clip)
        self.optimizer.step()
        self.optimizer.zero_grad()
        self.steps += 1
        if self.between.after_step(self.steps):
            self.accelerator.free_memory()
            self.take_moments()
            self.best, self.fit.best = {}, None

    def end_epoch(self, epoch: int, solved: float | None) -> None:
        losses, self.sums = self.means(self.steps_per_epoch), {}
        better = not self.fit.best or (solved or 0.0) > (self.fit.dev_strict or 0.0)
        done = Epoch(epoch=epoch, steps=self.steps, losses=losses, dev_strict=solved)
        self.fit.epochs.append(done)
        if self.settings.patience is not None and better:
            self.fit.best = epoch
            weights = self.model.state_dict().items()
            self.best = {name: tensor.detach().clone() for name, tensor in weights}
        of_dev = "" if solved is None else f"; {solved:.1%} of the development part solved"
        _LOG.info("epoch %d of %d: %s", epoch, self.settings.epochs, _words(losses) + of_dev)

    def means(self, steps: int) -> dict[str, float]:
        return {name: total / steps for name, total in self.sums.items()}

    def new_optimizer(self) -> torch.optim.Optimizer:
        trained = [parameter for parameter in self.model.parameters() if parameter.requires_grad]
        groups = decayed(trained, self.settings.weight_decay)
        optimizer = torch.optim.AdamW(groups, lr=self.settings.learning_rate, fused=True)
        return self.accelerator.prepare_optimizer(optimizer)

    def take_moments(self) -> None:
        """Make the optimiser again after parameters were cut; its moments are cut alike."""
        known, old = self.optimizer.state, self.named
        self.optimizer, self.named = self.new_optimizer(), dict(self.model.named_parameters())
        for name, parameter in self.named.items():
            moments = known.get(old[name], {})
            if parameter is not old[name]:
                axis, index = getattr(parameter, "taken")  # noqa: B009
                moments = {
                    key: value.index_select(axis, index) if value.ndim else value
                    for key, value in moments.items()
                }
            if moments:
                self.optimizer.state[parameter] = moments

    def state(self) -> tuple[dict[str, Any], dict[str, Mapping[str, Tensor]]]:
        facts, tensors = self.between.state()
        facts |= {"steps": self.steps, "sums": self.sums, "fit": self.fit.model_dump()}
        return facts, {
            "best": self.best,
            "moments": moments_of(self.optimizer),
            "between": tensors,
        }

    def resume(self, facts: dict[str, Any], tensors: dict[str, dict[str, Tensor]]) -> None:
        """Go on from a state that `state` returned; the learner is already that of then."""
        self.optimizer, self.named = self.new_optimizer(), dict(self.model.named_parameters())
        set_moments(self.optimizer, tensors["moments"])
        self.between.restore(facts, tensors["between"])
        self.best, self.steps, self.sums = tensors["best"], facts["steps"], facts["sums"]
        self.fit = Fit.model_validate(facts["fit"])
        _LOG.info("resuming after step %d", self.steps)


def decayed(parameters: Iterable[Tensor], weight_decay: float) -> list[dict[str, Any]]:
    """Return an optimiser's groups of parameters: only matrices have a weight decay."""
    kinds: tuple[list[Tensor], list[Tensor]] = ([], [])
    for each in parameters:
        kinds[each.ndim < 2].append(each)
    return [
        {"params": kind, "weight_decay": decay}
        for kind, decay in zip(kinds, (weight_decay, 0.0), strict=True)
    ]


def _words(losses: Mapping[str, float]) -> str:
    return "loss " + ", ".join(f"{name} {loss:.4g}" for name, loss in losses.items())


def epoch_batches(examples: Sequence[Example], size: int, seed: int, epoch: int) -> list[list[int]]:
    """Return the batches of an epoch as indices of examples; texts of similar length share one."""
    draw = torch.Generator().manual_seed(seed * 1_000_003 + epoch)
    order = torch.randperm(len(examples), generator=draw).tolist()
    batches = []
    for start in range(0, len(order), size * _BUCKETS):
        bucket = order[start : start + size * _BUCKETS]
        bucket.sort(key=lambda index: len(examples[index].input_ids))
        batches += [bucket[first : first + size] for first in range(0, len(bucket), size)]
    return [batches[place] for place in torch.randperm(len(batches), generator=draw).tolist()]


def identity(
    learner: Learner,
    settings: Training | Compression,
    seed: int,
    *parts: Sequence[Example],
) -> dict[str, Any]:
    """Return what identifies a training: settings, seed, hashes of weights and examples' ids."""
    ids = repr([[example.example_id for example in part] for part in parts])
    examples, weights = hashlib.sha256(ids.encode()), hashlib.sha256()
    for tensor in learner.network.state_dict().values():
        weights.update(tensor.detach().cpu().flatten().view(torch.uint8).numpy())
    whole = settings.model_dump(mode="json")
    return {
        "seed": seed,
        "settings": settings.decisive() if isinstance(settings, Compression) else whole,
        "examples": examples.hexdigest()[:16],
        "weights": weights.hexdigest()[:16],
    }


def write_checkpoint(
    path: Path, learner: Learner, facts: Mapping[str, Any], **more: Mapping[str, Tensor]
) -> None:
    """Write a learner's weights and heads, JSON facts and further tensors, atomically."""
    parts = {
        # Copied, since tied weights share memory.
        part: {
            name: each.detach().cpu().clone(memory_format=torch.contiguous_format)
            for name, each in tensors.items()
        }
        for part, tensors in {"model": learner.network.state_dict(), **more}.items()
    }
    write_state(path, {**facts, "shape": shape_of(learner.encoder)}, parts)


def read_checkpoint(
    path: Path, learner: Learner, own: Mapping[str, Any]
) -> tuple[dict[str, Any], dict[str, dict[str, Tensor]]]:
    """Restore a learner from a checkpoint, and return the facts and further tensors.

    Args:
        path: the checkpoint.
        learner: an unpruned learner; it loses the removed heads and gets the weights.
        own: facts that must equal those of the checkpoint (see `identity`).

    Raises:
        ModelError: the checkpoint is damaged or belongs to another training or model.
    """
    facts, parts = read_state(path)
    if differing := [name for name in own if facts.get(name) != own[name]]:
        raise ModelError(
            f"{path} is of a training with other {' and '.join(differing)}; remove it and run again"
        )
    restore_shape(learner.encoder, facts["shape"])
    learner.network.load_state_dict(parts["model"])
    return facts, parts


def shape_of(encoder: PreTrainedModel) -> dict[str, list[int]]:
    """Return the heads that a pruned encoder kept, by layer; empty for an unpruned one."""
    return {str(layer): list(heads) for layer, heads in kept_heads(encoder.config).items()}


def restore_shape(encoder: PreTrainedModel, shape: Mapping[str, Sequence[int]]) -> None:
    """Cut an unpruned encoder to the heads of `shape`, as returned by `shape_of`."""
    if shape == shape_of(encoder):
        return
    geometry = find_heads(encoder)
    gone = [
        Variant(layer.index, head)
        for layer in geometry.layers
        for head, number in enumerate(layer.original_heads)
        if number not in shape.get(str(layer.index), [number])
    ]
    remove_heads(encoder, geometry, gone)
