"""The criteria by which `headroom prune` and compressions rank heads.

Each criterion scores every head of a model; the lowest are removed first. The score of
arXiv 2511.17577 (eq. 1 to 4), `mixed`, is S = alpha w + (1 - alpha) H, where w is the size of a
head's projections and H the entropy of its attention; `Importance` documents what the equations
leave open. To add a criterion, add an entry to `CRITERIA` and its name to `Importance.criterion`.
"""

import itertools
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Literal

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn
from transformers import PreTrainedModel
from transformers.pytorch_utils import Conv1D

from headroom.compression.choice import Scores
from headroom.config.compression import Importance
from headroom.errors import ModelError
from headroom.models.attention import attention_maps, eager_attention
from headroom.models.geometry import HeadGeometry, evaluating
from headroom.models.learner import Batch, Example, Learner, move
from headroom.models.masks import pruned
from headroom.models.removal import find_readers
from headroom.variants import BASE, Variant

if TYPE_CHECKING:
    import pandas as pd

Texts = Mapping[str, Tensor]
"""A model's inputs: input_ids and attention_mask [batch, tokens], padded on either side."""


@dataclass(frozen=True)
class Ranked:
    """A model whose heads are ranked, with the data that criteria may use."""

    model: PreTrainedModel
    """In evaluation mode; criteria leave it unchanged."""
    geometry: HeadGeometry
    """Its remaining heads."""
    settings: Importance
    seed: int
    texts: Callable[[], Iterable[Texts]]
    """Returns batches of calibration texts."""
    drops: Callable[[], Scores]
    """Returns the measured loss of accuracy, or rise of the loss, without each head."""

    def calibration(self) -> "Calibration":
        """Return the statistics of the heads on the texts."""
        return calibrate(self.model, self.geometry, self.texts())


@dataclass(frozen=True)
class Criterion:
    """A way to rank the heads of a model."""

    about: str
    """Text for the model card; may contain `{alpha}` and `{seed}`."""
    scores: Callable[[Ranked], Scores]
    needs: Literal["texts", "accuracy"] | None = None
    """The option of `headroom prune` that it requires."""


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
    """Return the importance of each head of a learner's encoder, in evaluation mode.

    Args:
        learner: the learner, left unchanged.
        geometry: the remaining heads of its encoder.
        examples: the training part, from which the calibration examples are drawn.
        dev: the development part, used by `causal` unless the learner knows its drops.
        settings: the criterion.
        seed: seed of `random`.

    Raises:
        ModelError: the encoder has no eager attention, or `causal` has no development part.
    """
    encoder = learner.encoder

    def batches(examples: Sequence[Example]) -> Iterator[Batch]:
        for start in range(0, len(examples), learner.at_once):
            part = examples[start : start + learner.at_once]
            yield move(learner.collate(part), encoder.device)

    def loss(batch: Batch) -> Float[Tensor, ""]:
        return learner.task_loss(learner.run(batch), batch) * batch.judged

    def drops() -> Scores:
        known = learner.known_drops(geometry)
        if known is not None:
            return known
        if not dev:
            raise ModelError("criterion causal needs a development part; give one, or use mixed")
        whole = list(batches(dev))
        judged = sum(batch.judged for batch in whole)
        with torch.no_grad():
            return loss_rises(
                encoder, geometry, lambda: sum(float(loss(batch)) for batch in whole) / judged
            )

    drawn = calibration(examples, settings)
    with evaluating(learner.network):
        ranked = Ranked(
            encoder,
            geometry,
            settings,
            seed,
            texts=lambda: (batch.inputs for batch in batches(drawn)),
            drops=drops,
        )
        return CRITERIA[settings.criterion].scores(ranked)


def calibration(examples: Sequence[Example], settings: Importance) -> list[Example]:
    """Return the training examples that scores are measured on, the same for every seed."""
    order = torch.randperm(len(examples), generator=torch.Generator().manual_seed(0))
    return [examples[index] for index in sorted(order[: settings.calibration].tolist())]


def mixed(norm: Scores, entropy: Scores, settings: Importance) -> Scores:
    """Return S = alpha w + (1 - alpha) H of norm and entropy (eq. 4), scaled if settings say so."""
    if settings.scale == "min_max":
        norm, entropy = min_max(norm), min_max(entropy)
    share = settings.entropy_sign * (1 - settings.alpha)
    return {layer: settings.alpha * norm[layer] + share * entropy[layer] for layer in norm}


def min_max(scores: Scores) -> Scores:
    """Scale scores to 0 to 1 over the heads of all layers; if all are equal, they become 0."""
    values = torch.cat(list(scores.values()))
    low, width = values.min(), values.max() - values.min()
    return {layer: (score - low) / (width if width > 0 else 1) for layer, score in scores.items()}


def weight_norms(model: PreTrainedModel, geometry: HeadGeometry) -> Scores:
    """Return each head's mean absolute weight, summed over query, key and value (eq. 1).

    Heads that share a key/value head share its term.
    """

    def mean(name: str) -> Float[Tensor, " rows"]:
        module = model.get_submodule(name)
        weight = module.get_parameter("weight").detach().float().abs().cpu()
        return weight.mean(0 if isinstance(module, Conv1D) else 1)

    return _head_sums(model, geometry, mean)


def _head_sums(
    model: PreTrainedModel,
    geometry: HeadGeometry,
    mean: Callable[[str], Float[Tensor, " rows"]],
) -> Scores:
    """Return for each head the sum over its projections of the mean of its rows.

    `mean` gets a projection's module name and returns a value for each of its rows.
    """
    scores, readers = {}, find_readers(model, geometry)
    for layer in geometry.layers:
        sums = torch.zeros(layer.query_heads)
        for name, read in readers[layer.index].items():
            sums += mean(name) @ read.float()
        scores[layer.index] = sums / layer.head_dim
    return scores


@dataclass(frozen=True)
class Calibration:
    """Statistics of a model's heads on calibration texts."""

    raw_entropy: Scores
    """Entropy of the attention over keys in nats (eq. 3), mean over queries."""
    entropy: Scores
    """The same, each query's divided by the logarithm of its number of visible keys."""
    peak: Scores
    """Largest attention weight over keys, mean over queries: the paper's score for attention
    visualisation."""
    activation_norms: Scores
    """Mean absolute activation over tokens, summed over query, key and value projections."""


def calibrate(
    model: PreTrainedModel, geometry: HeadGeometry, batches: Iterable[Texts]
) -> Calibration:
    """Return statistics of the heads of a model on texts, in evaluation mode.

    All non-padding tokens have equal weight; attention statistics skip queries that see one key.

    Args:
        model: an encoder or decoder, left unchanged.
        geometry: its heads.
        batches: texts.

    Raises:
        ModelError: the model has no eager attention whose weights can be read, or no text has two
            tokens.
    """
    layers = geometry.layers
    sums = {each.index: torch.zeros(3, each.query_heads, dtype=torch.float64) for each in layers}
    rows: dict[str, Tensor] = {}
    tokens: Counter[str] = Counter()
    queries, valid = 0, torch.empty(0)

    def add(name: str, _: nn.Module, __: tuple[Tensor, ...], output: Tensor) -> None:
        if output.shape[:-1] == valid.shape:  # skip projections of anything but the tokens
            rows[name] = rows.get(name, 0.0) + output[valid].abs().double().sum(0).cpu()
            tokens[name] += int(valid.sum())

    with ExitStack() as stack, torch.no_grad():
        stack.enter_context(eager_attention(model))
        for name in itertools.chain.from_iterable(find_readers(model, geometry).values()):
            hook = model.get_submodule(name).register_forward_hook(partial(add, name))
            stack.callback(hook.remove)
        stack.enter_context(evaluating(model))
        for batch in batches:
            valid = batch["attention_mask"].bool()
            keys = visible_keys(valid, causal=geometry.keeps_cache)
            counted = valid & (keys > 1)
            maps = model(**batch, output_attentions=True).attentions
            for layer, attention in zip(layers, attention_maps(model, maps), strict=True):
                nats = entropy(attention, valid)
                share = nats / keys.clamp(min=2).log()[:, None]
                most = (attention.float() * valid[:, None, None]).amax(-1)
                each = torch.stack([nats, share, most]).movedim(2, 1)  # 3, heads, batch, queries
                sums[layer.index] += each[..., counted].double().sum(-1).cpu()
            queries += int(counted.sum())
    if not queries:
        raise ModelError("no text to calibrate on has two tokens; give longer ones")
    raw, relative, peak = (
        {layer: (each[kind] / queries).float() for layer, each in sums.items()} for kind in range(3)
    )
    norms = _head_sums(model, geometry, lambda name: (rows[name] / tokens[name]).float())
    return Calibration(raw, relative, peak, norms)


def entropy(
    attention: Float[Tensor, "batch query_heads queries keys"], valid: Bool[Tensor, "batch keys"]
) -> Float[Tensor, "batch query_heads queries"]:
    """Return the entropy in nats of the attention over non-padding keys (eq. 3)."""
    attention = attention.float() * valid[:, None, None]
    return -torch.xlogy(attention, attention).sum(-1)


def visible_keys(valid: Bool[Tensor, "batch tokens"], *, causal: bool) -> Tensor:
    """Return how many keys each query sees, [batch, queries]: all, or if causal, up to its own."""
    return valid.cumsum(1) if causal else valid.sum(1, keepdim=True).expand(valid.shape)


def accuracy_drops(z: "pd.DataFrame", geometry: HeadGeometry) -> Scores:
    """Return how much accuracy the base model loses without each head.

    Args:
        z: accuracy matrix of training questions (`headroom.tables.ACCURACY`): one row per
            question, 0/1 columns for `base` and each head.
        geometry: the model's remaining heads; layers without any head in the matrix get no score.

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
    base = z[str(BASE)].mean()
    return {
        layer: torch.tensor(base - z[heads].mean().to_numpy(), dtype=torch.float32)
        for layer, heads in swept.items()
    }


def loss_rises(model: nn.Module, geometry: HeadGeometry, loss: Callable[[], float]) -> Scores:
    """Return how much a loss on a fixed set rises when each head of a model is masked."""
    base = loss()
    scores = {}
    for layer in geometry.layers:
        rises = []
        for head in range(layer.query_heads):
            with pruned(model, geometry, Variant(layer.index, head)):
                rises.append(loss() - base)
        scores[layer.index] = torch.tensor(rises)
    return scores
