"""The criteria that heads are ranked by, in `headroom prune` and in compressions.

Each gives a score to each head of a model, and the lowest go first. A criterion of one's own is one
more entry of `CRITERIA`; a config names it once `Importance.criterion` lists it.
"""

import itertools
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, Literal

import torch
from jaxtyping import Float
from torch import Tensor, nn
from transformers import PreTrainedModel

from headroom.compression.choice import Scores
from headroom.compression.importance import Calibration, Texts, calibrate, mixed, weight_norms
from headroom.config.compression import Importance
from headroom.errors import ModelError
from headroom.models.geometry import AttentionLayer, HeadGeometry, evaluating
from headroom.models.learner import Batch, Example, Learner, move
from headroom.models.masks import pruned
from headroom.variants import BASE, Variant

if TYPE_CHECKING:
    import pandas as pd


@dataclass(frozen=True)
class Ranked:
    """A model whose heads are ranked, and all that a criterion may look at."""

    model: PreTrainedModel
    """In evaluation mode; criteria leave it as it was."""
    geometry: HeadGeometry
    """Its heads as they stand."""
    settings: Importance
    seed: int
    texts: Callable[[], Iterable[Texts]]
    """Returns what the model reads, batch by batch."""
    losses: Callable[[], tuple[Iterable[Any], Callable[[Any], Tensor]]]
    """Returns batches, and what computes the sum of the losses of a batch's rows."""
    drops: Callable[[], Scores]
    """Returns what is lost without each head, measured."""

    def calibration(self) -> Calibration:
        """Return what the heads do on the texts."""
        return calibrate(self.model, self.geometry, self.texts())


@dataclass(frozen=True)
class Criterion:
    """A way to rank the heads of a model."""

    about: str
    """For the model card; may name `{alpha}` and `{seed}`."""
    scores: Callable[[Ranked], Scores]
    needs: Literal["texts", "accuracy"] | None = None
    """What `headroom prune` has to be given for it."""


def _mixed(of: Ranked) -> Scores:
    settings, found = of.settings, of.calibration()
    by_weights = settings.norm == "weights"
    norm = weight_norms(of.model, of.geometry) if by_weights else found.activation_norms
    entropy = found.raw_entropy if settings.entropy == "raw" else found.entropy
    return mixed(norm, entropy, settings)


def _random(of: Ranked) -> Scores:
    draw = torch.Generator().manual_seed(of.seed)
    layers = of.geometry.layers
    return {layer.index: torch.rand(layer.query_heads, generator=draw) for layer in layers}


CRITERIA = {
    "norm": Criterion(
        "smallest mean absolute weights", lambda of: weight_norms(of.model, of.geometry)
    ),
    "entropy": Criterion(
        "lowest entropy of attention", lambda of: of.calibration().entropy, needs="texts"
    ),
    "mixed": Criterion(
        "lowest mixture of weight norm and attention entropy, alpha {alpha}", _mixed, needs="texts"
    ),
    "attention": Criterion(
        "lowest largest attention weight, mean over queries",
        lambda of: of.calibration().peak,
        needs="texts",
    ),
    "taylor": Criterion(
        "smallest |gradient x mask| of the language modelling loss",
        lambda of: taylor(of.model, of.geometry, *of.losses()),
        needs="texts",
    ),
    "causal": Criterion(
        "smallest loss of accuracy on training questions", lambda of: of.drops(), needs="accuracy"
    ),
    "random": Criterion("random draw with seed {seed}", _random),
}
"""The criteria by name."""


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

    def batches(examples: Sequence[Example]) -> Iterator[Batch]:
        for start in range(0, len(examples), learner.at_once):
            part = examples[start : start + learner.at_once]
            yield move(learner.collate(part), encoder.device)

    def drawn() -> Iterator[Batch]:
        return batches(calibration(examples, settings))

    def loss(batch: Batch) -> Float[Tensor, ""]:
        return learner.task_loss(learner.run(batch), batch) * batch.judged

    @torch.no_grad()
    def mean_loss(whole: Sequence[Batch]) -> float:
        return sum(float(loss(batch)) for batch in whole) / sum(batch.judged for batch in whole)

    def drops() -> Scores:
        known = learner.known_drops(geometry)
        if known is not None:
            return known
        if not dev:
            raise ModelError("criterion causal needs a development part; give one, or use mixed")
        return loss_rises(encoder, geometry, partial(mean_loss, list(batches(dev))))

    with evaluating(learner.network):
        ranked = Ranked(
            encoder,
            geometry,
            settings,
            seed,
            texts=lambda: (batch.inputs for batch in drawn()),
            losses=lambda: (drawn(), loss),
            drops=drops,
        )
        return CRITERIA[settings.criterion].scores(ranked)


def calibration(examples: Sequence[Example], settings: Importance) -> list[Example]:
    """Return the training examples that scores are measured on: always the same."""
    order = torch.randperm(len(examples), generator=torch.Generator().manual_seed(0))
    return [examples[index] for index in sorted(order[: settings.calibration].tolist())]


def accuracy_drops(z: "pd.DataFrame", geometry: HeadGeometry) -> Scores:
    """Return how much accuracy the base model loses without each head.

    Args:
        z: accuracy matrix of training questions (`headroom.tables.ACCURACY`): one row a question,
            columns of 0 and 1 for `base` and for each head.
        geometry: the model's heads, if some are gone those that are left; layers of which the
            matrix has no head get no score.

    Raises:
        ModelError: the matrix lacks the base model, or some heads of a layer.
    """
    names = {
        layer.index: [str(Variant(layer.index, head)) for head in layer.original_heads]
        for layer in geometry.layers
    }
    swept = {layer: heads for layer, heads in names.items() if set(heads) & set(z.columns)}
    needed = [str(BASE), *itertools.chain.from_iterable(swept.values())]
    missing = [name for name in needed if name not in z.columns]
    if missing or not swept:
        raise ModelError(
            f"the accuracy matrix lacks {missing[0] if missing else 'all heads of the model'}; "
            f"sweep whole layers, or use another criterion"
        )
    base = z[str(BASE)].mean()
    return {
        layer: torch.tensor(base - z[heads].mean().to_numpy(), dtype=torch.float32)
        for layer, heads in swept.items()
    }


def loss_rises(model: nn.Module, geometry: HeadGeometry, loss: Callable[[], float]) -> Scores:
    """Return how much a loss rises when each head is masked.

    Args:
        model: a model, or the encoder within a solver.
        geometry: its heads.
        loss: computes the loss of whatever the model serves on a fixed set, in evaluation mode.
    """
    base = loss()
    scores = {}
    for layer in geometry.layers:
        rises = []
        for head in range(layer.query_heads):
            with pruned(model, geometry, Variant(layer.index, head)):
                rises.append(loss() - base)
        scores[layer.index] = torch.tensor(rises)
    return scores


def taylor(
    model: nn.Module,
    geometry: HeadGeometry,
    batches: Iterable[Any],
    loss: Callable[[Any], Tensor],
) -> Scores:
    """Return the mean over rows of |gradient x mask|, the loss that a head's removal would cost
    were the loss linear in its mask (Michel et al., arXiv 1905.10650, eq. 2).

    Args:
        model: a model, or the encoder within a solver.
        geometry: its heads.
        batches: what the loss is computed on.
        loss: the sum over a batch's rows of their losses. Gradients of parameters are not touched.

    Raises:
        ModelError: there is no batch.
    """
    totals = {layer.index: torch.zeros(layer.query_heads) for layer in geometry.layers}
    rows = 0
    masks: dict[int, Tensor] = {}

    def mask(layer: AttentionLayer, _: nn.Module, inputs: tuple[Tensor, ...]) -> tuple[Any, ...]:
        joined, *rest = inputs
        ones = joined.new_ones(len(joined), 1, layer.query_heads, 1, requires_grad=True)
        masks[layer.index] = ones
        return ((joined.unflatten(-1, (layer.query_heads, -1)) * ones).flatten(-2), *rest)

    with ExitStack() as hooks, torch.enable_grad():
        for layer in geometry.layers:
            projection = geometry.output_projection(model, layer.index)
            hooks.callback(projection.register_forward_pre_hook(partial(mask, layer)).remove)
        for batch in batches:
            gradients = torch.autograd.grad(loss(batch), list(masks.values()))
            for index, gradient in zip(masks, gradients, strict=True):
                totals[index] += gradient.abs().sum((0, 1, 3)).float().cpu()
            rows += len(gradients[0])
            masks.clear()
    if not rows:
        raise ModelError("there is no text to compute gradients on; give some")
    return {layer: total / rows for layer, total in totals.items()}
