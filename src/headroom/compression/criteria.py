"""The importance of a learner's heads, by the criterion that the settings name."""

import dataclasses
from collections.abc import Iterator, Sequence
from functools import partial

import torch
from jaxtyping import Float
from torch import Tensor

from headroom.compression.choice import Scores
from headroom.compression.effects import loss_rises, random_scores, taylor
from headroom.compression.importance import Mixture, calibrate, mixed, weight_norms
from headroom.config.compression import Importance
from headroom.errors import ModelError
from headroom.models.evaluation import evaluating
from headroom.models.geometry import HeadGeometry
from headroom.models.learner import Batch, Example, Learner, move


def head_scores(
    learner: Learner,
    geometry: HeadGeometry,
    examples: Sequence[Example],
    dev: Sequence[Example],
    settings: Importance,
    seed: int,
) -> Scores:
    """Return how important each head of a learner's encoder is, in evaluation mode.

    Args:
        learner: as it stands; it is left as it was.
        geometry: its encoder's heads as they stand.
        examples: the training part, of which the calibration examples are drawn.
        dev: the development part, which `causal` looks at unless the learner's drops are known.
        settings: the criterion.
        seed: of `random`.

    Raises:
        ModelError: the encoder has no eager attention, or `causal` no development part.
    """
    encoder = learner.encoder
    with evaluating(learner.network):
        match settings.criterion:
            case "random":
                return random_scores(geometry, seed)
            case "causal":
                known = learner.known_drops(geometry)
                if known is not None:
                    return known
                if not dev:
                    raise ModelError(
                        "criterion causal needs a development part; give one, or use mixed"
                    )
                loss = partial(_mean_loss, learner, list(_batches(learner, dev)))
                return loss_rises(encoder, geometry, loss)
        drawn = _batches(learner, calibration(examples, settings))
        if settings.criterion == "taylor":
            return taylor(encoder, geometry, drawn, partial(_summed_loss, learner))
        found = calibrate(encoder, geometry, (batch.inputs for batch in drawn))
        if settings.criterion == "attention":
            return found.peak
        weights = settings.norm == "weights"
        norm = weight_norms(encoder, geometry) if weights else found.activation_norms
        entropy = found.raw_entropy if settings.entropy == "raw" else found.entropy
        return mixed(norm, entropy, settings.alpha, _mixture(settings))


def calibration(examples: Sequence[Example], settings: Importance) -> list[Example]:
    """Return the training examples that scores are measured on: always the same."""
    order = torch.randperm(len(examples), generator=torch.Generator().manual_seed(0))
    return [examples[index] for index in sorted(order[: settings.calibration].tolist())]


def _mixture(settings: Importance) -> Mixture:
    names = {field.name for field in dataclasses.fields(Mixture)}
    return Mixture(**settings.model_dump(include=names))


def _batches(learner: Learner, examples: Sequence[Example]) -> Iterator[Batch]:
    size = learner.at_once
    for start in range(0, len(examples), size):
        yield move(learner.collate(examples[start : start + size]), learner.encoder.device)


def _summed_loss(learner: Learner, batch: Batch) -> Float[Tensor, ""]:
    return learner.task_loss(learner.run(batch), batch) * batch.judged


@torch.no_grad()
def _mean_loss(learner: Learner, batches: Sequence[Batch]) -> float:
    total = sum(float(_summed_loss(learner, batch)) for batch in batches)
    return total / sum(batch.judged for batch in batches)
