"""The importance of a solver's heads, by the criterion that the settings name."""

import dataclasses
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import partial

import torch
from jaxtyping import Float
from torch import Tensor

from headroom.athena.batches import Batch, Example, collate, collate_texts, move
from headroom.athena.networks import Athena
from headroom.athena.objective import task_loss
from headroom.athena.solver import MathSolver
from headroom.compression.choice import Scores
from headroom.compression.effects import loss_rises, random_scores, taylor
from headroom.compression.importance import Mixture, Texts, calibrate, mixed, weight_norms
from headroom.config.compression import Importance
from headroom.errors import ModelError
from headroom.models.geometry import HeadGeometry

_BATCH = 64


def head_scores(
    solver: MathSolver,
    geometry: HeadGeometry,
    examples: Sequence[Example],
    dev: Sequence[Example],
    settings: Importance,
    seed: int,
) -> Scores:
    """Return how important each head of a solver's encoder is, in evaluation mode.

    Args:
        solver: as it stands; it is left as it was.
        geometry: its encoder's heads as they stand.
        examples: the training part, of which the calibration problems are drawn.
        dev: the development part, which `causal` looks at.
        settings: the criterion.
        seed: of `random`.

    Raises:
        ModelError: the encoder has no eager attention, or `causal` no development part.
    """
    athena, padding = solver.athena, solver.tokenizer.pad_token_id
    encoder = athena.encoder
    with _evaluating(athena):
        match settings.criterion:
            case "random":
                return random_scores(geometry, seed)
            case "causal":
                if not dev:
                    raise ModelError(
                        "criterion causal needs a development part; give one, or use mixed"
                    )
                batches = list(_batches(dev, padding, encoder.device))
                return loss_rises(encoder, geometry, partial(_mean_loss, athena, batches))
            case "taylor":
                drawn = _batches(calibration(examples, settings), padding, encoder.device)
                return taylor(encoder, geometry, drawn, partial(_summed_loss, athena))
        found = calibrate(
            encoder, geometry, _texts(calibration(examples, settings), padding, encoder.device)
        )
        if settings.criterion == "attention":
            return found.peak
        weights = settings.norm == "weights"
        norm = weight_norms(encoder, geometry) if weights else found.activation_norms
        entropy = found.raw_entropy if settings.entropy == "raw" else found.entropy
        return mixed(norm, entropy, settings.alpha, _mixture(settings))


def calibration(examples: Sequence[Example], settings: Importance) -> list[Example]:
    """Return the training problems that scores are measured on: always the same."""
    order = torch.randperm(len(examples), generator=torch.Generator().manual_seed(0))
    return [examples[index] for index in sorted(order[: settings.calibration].tolist())]


def _mixture(settings: Importance) -> Mixture:
    names = {field.name for field in dataclasses.fields(Mixture)}
    return Mixture(**settings.model_dump(include=names))


def _pieces(examples: Sequence[Example]) -> Iterator[Sequence[Example]]:
    for start in range(0, len(examples), _BATCH):
        yield examples[start : start + _BATCH]


def _batches(examples: Sequence[Example], padding: int, device: torch.device) -> Iterator[Batch]:
    for piece in _pieces(examples):
        yield move(collate(piece, padding), device)


def _texts(examples: Sequence[Example], padding: int, device: torch.device) -> Iterator[Texts]:
    for piece in _pieces(examples):
        texts = move(collate_texts(piece, padding), device)
        yield {"input_ids": texts.input_ids, "attention_mask": texts.attention_mask}


def _summed_loss(athena: Athena, batch: Batch) -> Float[Tensor, ""]:
    return task_loss(athena(batch), batch) * batch.judged


@torch.no_grad()
def _mean_loss(athena: Athena, batches: Sequence[Batch]) -> float:
    total = sum(float(_summed_loss(athena, batch)) for batch in batches)
    return total / sum(batch.judged for batch in batches)


@contextmanager
def _evaluating(athena: Athena) -> Iterator[None]:
    training = athena.training
    athena.eval()
    try:
        yield
    finally:
        athena.train(training)
