"""How much a head matters: scores by a criterion, the lowest of which go first (see `choice`).

The score of arXiv 2511.17577 (eq. 1 to 4), `mixed`, is S = alpha w + (1 - alpha) H. Here w is the
size of a head's projections and H the entropy of its attention; `Importance` documents what the
equations leave open. To add a criterion, add an entry to `CRITERIA` and its name to
`Importance.criterion`.
"""

import itertools
from collections.abc import Callable, Iterable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, NamedTuple

import torch
from torch import Tensor, nn
from transformers import PreTrainedModel

from headsweep.config.compression import Importance
from headsweep.errors import ModelError
from headsweep.experiments.compression.calibration import (
    Scores,
    Texts,
    alone,
    calibrate,
    row_batches,
    weight_norms,
)
from headsweep.experiments.compression.heads_to_remove import check_finite
from headsweep.models.geometry import HeadGeometry, evaluating
from headsweep.models.learner import Example, Learner, move
from headsweep.models.masks import pruned
from headsweep.variants import BASE, Variant

if TYPE_CHECKING:
    import pandas as pd


@dataclass(frozen=True)
class RankingInputs:
    """A model whose heads are ranked, with the data that criteria may use."""

    model: PreTrainedModel  # in evaluation mode; criteria leave it unchanged
    geometry: HeadGeometry  # its remaining heads
    settings: Importance
    seed: int
    texts: Callable[[], Iterable[Texts]]  # returns batches of calibration texts
    drops: Callable[[], Scores]
    """Returns the measured loss of accuracy, or rise of the loss, without each head."""
    total: Callable[[Tensor], Tensor] = alone
    """Returns the sum of a tensor over the processes that share the texts."""

    def measured(self, name: str) -> Scores:
        """Return one of the statistics of `calibrate` on the texts."""
        return calibrate(self.model, self.geometry, self.texts(), total=self.total)[name]


class Criterion(NamedTuple):
    """A way to rank the heads of a model."""

    about: str  # for the model card; may contain `{alpha}` and `{seed}`
    scores: Callable[[RankingInputs], Scores]
    needs: Literal["texts", "accuracy"] | None = None  # an option of `headsweep prune`


def _norm(ranked: RankingInputs) -> Scores:
    return weight_norms(ranked.model, ranked.geometry)


def _mixed(ranked: RankingInputs) -> Scores:
    settings = ranked.settings
    by_activations = settings.norm == "activations"
    statistics = calibrate(
        ranked.model,
        ranked.geometry,
        ranked.texts(),
        activations=by_activations,
        total=ranked.total,
    )
    norm = statistics["activations"] if by_activations else _norm(ranked)
    return mixed(norm, statistics[settings.entropy], settings)


def _random(ranked: RankingInputs) -> Scores:
    draw = torch.Generator().manual_seed(ranked.seed)
    return {
        layer.index: torch.rand(layer.query_heads, generator=draw)
        for layer in ranked.geometry.layers
    }


CRITERIA = {
    "norm": Criterion("smallest mean absolute weights", _norm),
    "entropy": Criterion(
        "lowest entropy of attention", lambda ranked: ranked.measured("normalised"), "texts"
    ),
    "mixed": Criterion(
        "lowest mixture of weight norm and attention entropy, alpha {alpha}", _mixed, "texts"
    ),
    "attention": Criterion(
        "lowest largest attention weight, mean over queries",
        lambda ranked: ranked.measured("peak"),
        "texts",
    ),
    "causal": Criterion(
        "smallest loss of accuracy on training questions",
        lambda ranked: ranked.drops(),
        "accuracy",
    ),
    "random": Criterion("random draw with seed {seed}", _random),
}
"""The criteria by name."""


def named(name: str) -> Criterion:
    """Return a criterion; ModelError if there is none of that name."""
    if name not in CRITERIA:
        raise ModelError(f"criterion {name!r} is not known; use {', '.join(CRITERIA)}")
    return CRITERIA[name]


def head_scores(
    learner: Learner,
    geometry: HeadGeometry,
    examples: Sequence[Example],
    dev: Sequence[Example],
    settings: Importance,
    seed: int,
) -> Scores:
    """Return the importance of each head of a learner's encoder, in evaluation mode.

    Calibration examples are drawn from the training part; `causal` uses the development part unless
    the learner knows its drops; the seed is that of `random`.

    Raises:
        ModelError: the encoder has no eager attention.
    """
    encoder, size = learner.encoder, learner.at_once

    def drops() -> Scores:
        measured = learner.known_drops(geometry)
        if measured is not None:
            return measured
        assert dev
        parts = (dev[start : start + size] for start in range(0, len(dev), size))
        whole = [move(learner.collate(part), encoder.device) for part in parts]
        judged = sum(batch.judged for batch in whole)

        def loss() -> float:
            losses = (
                learner.task_loss(learner.run(batch), batch) * batch.judged for batch in whole
            )
            return sum(map(float, losses)) / judged

        with torch.no_grad():
            return loss_rises(encoder, geometry, loss)

    def texts() -> Iterable[Texts]:
        rows = [example.input_ids for example in calibration(examples, settings)]
        return row_batches(rows, settings.batch_size or size, encoder.device)

    with evaluating(learner.network):
        ranked = RankingInputs(encoder, geometry, settings, seed, texts, drops)
        return CRITERIA[settings.criterion].scores(ranked)


def calibration(examples: Sequence[Example], settings: Importance) -> list[Example]:
    """Return the training examples that scores are measured on, the same for every seed."""
    order = torch.randperm(len(examples), generator=torch.Generator().manual_seed(0))
    return [examples[index] for index in sorted(order[: settings.calibration].tolist())]


def mixed(norm: Scores, entropy: Scores, settings: Importance) -> Scores:
    """Return S = alpha w + (1 - alpha) H of norm and entropy (eq. 4), scaled if settings say so."""
    if settings.scale == "min_max":
        norm, entropy = _min_max(norm), _min_max(entropy)
    share = settings.entropy_sign * (1 - settings.alpha)
    return {layer: settings.alpha * norm[layer] + share * entropy[layer] for layer in norm}


def _min_max(scores: Scores) -> Scores:
    """Scale scores over the heads of all layers to 0 to 1, and equal ones to 0."""
    check_finite(scores)  # of one that is not, all others would become nan, too
    values = torch.cat(list(scores.values()))
    low = values.min()
    width = values.max() - values.min()
    return {layer: (score - low) / (width if width > 0 else 1) for layer, score in scores.items()}


def accuracy_drops(
    z: "pd.DataFrame", geometry: HeadGeometry, swept_geometry: HeadGeometry
) -> Scores:
    """Return how much accuracy a swept model loses without each of the heads that remain.

    Layers without any head in the accuracy matrix get no score.

    Args:
        z: the accuracy matrix (`headsweep.files.tables.ACCURACY`), one row per training question,
        0/1
            columns for `base` and each head.
        geometry: the remaining heads.
        swept_geometry: the heads when the model was swept. The sweep numbers them as they were
            then, even if the model had lost others before.

    Raises:
        ModelError: the matrix lacks the base model, some heads of a layer, or all heads.
    """
    swept_heads = swept_geometry.by_original_name()
    names = {
        layer.index: [
            str(swept_heads[str(Variant(layer.index, head))]) for head in layer.original_heads
        ]
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
    drops = z[str(BASE)].mean() - z.mean(numeric_only=True)
    return {
        layer: torch.tensor(drops[heads].to_numpy(), dtype=torch.float32)
        for layer, heads in swept.items()
    }


def loss_rises(
    model: nn.Module, geometry: HeadGeometry, loss: Callable[[], float], *, groups: bool = False
) -> Scores:
    """Return how much a loss on a fixed set rises when each head of a model is masked.

    With `groups`, heads that share a key/value head are masked together and get the same score.
    """
    base = loss()
    scores = {}
    for layer in geometry.layers:
        size = layer.query_heads // layer.kv_heads if groups else 1
        rises = []
        for first in range(0, layer.query_heads, size):
            with ExitStack() as masks:
                for head in range(first, first + size):
                    masks.enter_context(pruned(model, geometry, Variant(layer.index, head)))
                rises += [loss() - base] * size
        scores[layer.index] = torch.tensor(rises)
    return scores
