"""Which heads are removed and when: scores by a criterion, lowest first, and the schedule.

The score of arXiv 2511.17577 (eq. 1 to 4), `mixed`, is S = alpha w + (1 - alpha) H. Here w is the
size of a head's projections and H the entropy of its attention; `Importance` documents what the
equations leave open. To add a criterion, add an entry to `CRITERIA` and its name to
`Importance.criterion`. Heads are removed in units, so that the remaining ones can still be cut from
the weights.
"""

import itertools
import math
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, NamedTuple

import torch
from torch import Tensor, nn
from transformers import PretrainedConfig, PreTrainedModel

from headsweep.compression.calibration import (
    Scores,
    Texts,
    alone,
    calibrate,
    row_batches,
    weight_norms,
)
from headsweep.config.compression import Compression, Importance, unit_size
from headsweep.errors import ModelError
from headsweep.models.checkpoints import allows
from headsweep.models.geometry import AttentionLayer, HeadGeometry, evaluating
from headsweep.models.learner import Example, Learner, move
from headsweep.models.masks import pruned
from headsweep.models.removal import without
from headsweep.variants import BASE, Variant

if TYPE_CHECKING:
    import pandas as pd

Scope = Literal["all", "layer"]
"""Whether all heads are ranked together, or those of each layer, which then lose equal numbers."""
Unit = Literal["group", "query", "head"]
"""Heads removed together where query heads share key/value heads. group: a key/value head with all
its query heads; query: one query head of every group of a layer; head: single heads, which can be
zeroed but not cut."""


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
        ModelError: the encoder has no eager attention, or `causal` has no development part.
    """
    encoder, size = learner.encoder, learner.at_once

    def drops() -> Scores:
        measured = learner.known_drops(geometry)
        if measured is not None:
            return measured
        if not dev:
            raise ModelError("criterion causal needs a development part; give one, or use mixed")
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
    _check_finite(scores)  # of one that is not, all others would become nan, too
    values = torch.cat(list(scores.values()))
    low = values.min()
    width = values.max() - values.min()
    return {layer: (score - low) / (width if width > 0 else 1) for layer, score in scores.items()}


def _check_finite(scores: Scores) -> None:
    """Raise a ModelError if a score is nan or infinite: no order of heads follows from it."""
    for layer, values in scores.items():
        spoiled = values[~values.isfinite()]
        if len(spoiled):
            raise ModelError(
                f"layer {layer}: a head's score is {float(spoiled[0])}, so heads cannot be ranked; "
                f"look for such numbers in the model's weights, or use the criterion random"
            )


def accuracy_drops(z: "pd.DataFrame", geometry: HeadGeometry) -> Scores:
    """Return how much accuracy the base model loses without each head.

    The accuracy matrix (`headsweep.tables.ACCURACY`) has one row per training question, 0/1 columns
    for `base` and each head. Layers without any head in it get no score.

    Raises:
        ModelError: the matrix lacks the base model, some heads of a layer, or all heads.
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


def heads_at(ratio: float, heads: int) -> int:
    """Return the number of heads that a ratio of the original heads means, rounded down."""
    return math.floor(ratio * heads + 1e-9)  # 0.29 * 100 is 28.999999999999996


def heads_due(settings: Compression, heads: int, time: int, end: int) -> int:
    """Return how many of `heads` original heads should be gone by a time: floor(p(t) H0), where
    p(t) = p_min + (p_max - p_min) (t / T)^n (arXiv 2511.17577, eq. 5).

    p_min is `start`, p_max `ratio` and n `exponent` (above 1 removes late); t is an optimizer step
    or a round, T its last value. It never falls over time and ends at floor(p_max H0).
    """
    rise = (settings.ratio - settings.start) * (time / end) ** settings.exponent
    return heads_at(settings.start + rise, heads)


class _Unit(NamedTuple):
    """Heads of one layer that are removed together. The unit that sorts first is removed first."""

    lost: int
    """With the scope `layer`, the number of heads that the layer loses before this unit; else 0."""
    score: float
    """The mean of its heads' scores."""
    heads: list[Variant]

    @property
    def layer(self) -> int | None:
        """The layer of its heads."""
        return self.heads[0].layer


def lowest_heads(
    scores: Scores,
    geometry: HeadGeometry,
    count: int,
    *,
    scope: Scope = "all",
    unit: Unit = "group",
    gone: Mapping[int, int] | None = None,
) -> list[Variant]:
    """Return the heads of lowest score among the remaining ones, sorted.

    A unit of several heads is scored by their mean; as many units go as fit into the count. Layers
    without scores lose nothing, and every layer keeps at least one unit. With the scope `layer`,
    `gone` says how many heads each layer has lost before, so that losses end equal.

    Raises:
        ModelError: the layers do not have that many heads to spare, or a score is not finite.
    """
    _check_finite(scores)
    before = gone or {}
    units: list[_Unit] = []
    for layer in geometry.layers:
        if layer.index not in scores:
            continue
        lost = before.get(layer.index, 0)
        for of_layer in _units(layer, scores[layer.index].tolist(), unit):
            if scope == "layer":
                units.append(of_layer._replace(lost=lost))
                lost += len(of_layer.heads)
            else:
                units.append(of_layer)
    left = Counter(candidate.layer for candidate in units)  # units, by layer
    sizes = {candidate.layer: len(candidate.heads) for candidate in units}
    removable = sum((left[index] - 1) * size for index, size in sizes.items())
    if count > removable:
        raise ModelError(
            f"{count} heads cannot go: {removable} can, as each of {len(left)} layers keeps "
            f"{max(sizes.values(), default=1)} of its own; lower the ratio"
        )
    chosen: list[Variant] = []
    for candidate in sorted(units):
        if left[candidate.layer] > 1 and len(chosen) + len(candidate.heads) <= count:
            left[candidate.layer] -= 1
            chosen += candidate.heads
    return sorted(chosen)


def unprotected(scores: Scores, geometry: HeadGeometry, layers: Sequence[int]) -> Scores:
    """Return scores without those of some layers, whose heads so stay; -1 is the last layer.

    Raises:
        ModelError: there is no such layer, or none is left.
    """
    indices = [layer.index for layer in geometry.layers]
    protected = set()
    for number in layers:
        if -len(indices) <= number < 0:
            protected.add(indices[number])
        else:
            protected.add(geometry.layer(number).index)
    if protected == {*indices}:
        raise ModelError("every layer is protected, so that no head can go; protect fewer")
    return {layer: score for layer, score in scores.items() if layer not in protected}


def check_ratio(
    geometry: HeadGeometry, ratio: float, unit: Unit, scope: Scope, protected: Sequence[int] = ()
) -> None:
    """Refuse a ratio that removes nothing, or more than the layers can lose that are free to.

    Raises:
        ModelError: one line.
    """
    equal = {layer.index: torch.zeros(layer.query_heads) for layer in geometry.layers}
    free = unprotected(equal, geometry, protected)
    gone = lowest_heads(free, geometry, heads_at(ratio, geometry.heads), scope=scope, unit=unit)
    if ratio and not gone:
        raise ModelError(
            f"ratio {ratio} removes nothing of {geometry.heads} heads, of which "
            f"{smallest_unit(geometry, unit)} go at once; raise it"
        )


def even_count(ratio: float, geometry: HeadGeometry, unit: Unit, config: PretrainedConfig) -> int:
    """Return how many heads go if a ratio takes equally many of every layer, rounded down.

    The `config` is the model's: not every number of heads fits it.

    Raises:
        ModelError: layers differ, or none can go; the message names the ratios that remove some.
    """
    shapes = {(layer.query_heads, layer.kv_heads) for layer in geometry.layers}
    if len(shapes) > 1:
        numbers = ", ".join(str(heads) for heads, _ in sorted(shapes))
        raise ModelError(
            f"layers have {numbers} heads; a uniform model is made of one whose layers have "
            f"equally many: prune the model from which this one was made"
        )
    ((heads, kv_heads),) = shapes
    layers = len(geometry.layers)
    size = unit_size(heads, kv_heads, unit)
    equal = {layer.index: torch.zeros(heads) for layer in geometry.layers}

    def left(count: int) -> HeadGeometry:
        gone = lowest_heads(equal, geometry, count * layers, scope="layer", unit=unit)
        return without(geometry, gone)

    counts = [count for count in range(size, heads, size) if allows(config, left(count))]
    if fitting := [count for count in counts if count <= heads_at(ratio, heads)]:
        return fitting[-1] * layers
    ratios = ", ".join(f"{math.ceil(1000 * count / heads) / 1000:g}" for count in counts)
    raise ModelError(
        f"ratio {ratio} leaves no uniform model: of a layer's {heads} heads {size} go at once, and "
        f"transformers takes not every rest; use {ratios or 'another unit, or the form free'}"
    )


def smallest_unit(geometry: HeadGeometry, unit: Unit) -> int:
    """Return the smallest number of heads that are removed together."""
    return min(unit_size(layer.query_heads, layer.kv_heads, unit) for layer in geometry.layers)


def _units(layer: AttentionLayer, scores: Sequence[float], unit: Unit) -> list[_Unit]:
    """Return the units of a layer, the lowest mean score first."""
    size = 1 if unit == "head" else layer.query_heads // layer.kv_heads
    together = [list(range(start, start + size)) for start in range(0, layer.query_heads, size)]
    if unit == "query" and size > 1:  # the lowest of each group, the second lowest of each, ...
        ranked = [sorted(group, key=lambda head: (scores[head], head)) for group in together]
        together = [[group[place] for group in ranked] for place in range(size)]
    units = []
    for heads in together:
        mean = sum(scores[head] for head in heads) / len(heads)
        units.append(_Unit(0, mean, [Variant(layer.index, head) for head in heads]))
    return sorted(units)
