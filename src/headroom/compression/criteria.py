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
from typing import TYPE_CHECKING, Literal, NamedTuple

import torch
from jaxtyping import Float
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

    def measured(self, name: str) -> Scores:
        """Return one of the statistics of `calibrate` on the texts."""
        return calibrate(self.model, self.geometry, self.texts())[name]


class Criterion(NamedTuple):
    """A way to rank the heads of a model."""

    about: str
    """Text for the model card; may contain `{alpha}` and `{seed}`."""
    scores: Callable[[Ranked], Scores]
    needs: Literal["texts", "accuracy"] | None = None
    """The option of `headroom prune` that it requires."""


def _mixed(of: Ranked) -> Scores:
    found = calibrate(of.model, of.geometry, of.texts())
    found["weights"] = weight_norms(of.model, of.geometry)
    return mixed(found[of.settings.norm], found[of.settings.entropy], of.settings)


def _random(of: Ranked) -> Scores:
    draw = torch.Generator().manual_seed(of.seed)
    layers = of.geometry.layers
    return {layer.index: torch.rand(layer.query_heads, generator=draw) for layer in layers}


CRITERIA = {
    "norm": Criterion(
        "smallest mean absolute weights", lambda of: weight_norms(of.model, of.geometry)
    ),
    "entropy": Criterion(
        "lowest entropy of attention", lambda of: of.measured("normalised"), "texts"
    ),
    "mixed": Criterion(
        "lowest mixture of weight norm and attention entropy, alpha {alpha}", _mixed, "texts"
    ),
    "attention": Criterion(
        "lowest largest attention weight, mean over queries",
        lambda of: of.measured("peak"),
        "texts",
    ),
    "causal": Criterion(
        "smallest loss of accuracy on training questions", lambda of: of.drops(), "accuracy"
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

    Calibration examples are drawn from the training part; `causal` uses the development part unless
    the learner knows its drops; the seed is that of `random`.

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


def calibrate(
    model: PreTrainedModel, geometry: HeadGeometry, batches: Iterable[Texts]
) -> dict[str, Scores]:
    """Return statistics of the heads of a model on texts, in evaluation mode.

    All non-padding tokens have equal weight; attention statistics skip queries that see one key.

    Returns:
        ``raw``: entropy of the attention over keys in nats (eq. 3), mean over queries.
        ``normalised``: the same, each query's divided by the logarithm of its number of visible
        keys. ``peak``: largest attention weight over keys, mean over queries, the paper's score for
        attention visualisation. ``activations``: mean absolute activation over tokens, summed over
        query, key and value projections.

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
            # How many keys each query sees: all, or in a decoder those up to its own.
            keys = valid.cumsum(1) if geometry.keeps_cache else valid.sum(1, True).expand_as(valid)
            counted = valid & (keys > 1)
            maps = model(**batch, output_attentions=True).attentions
            for layer, attention in zip(layers, attention_maps(model, maps), strict=True):
                seen = attention.float() * valid[:, None, None]
                nats = -torch.xlogy(seen, seen).sum(-1)
                share = nats / keys.clamp(min=2).log()[:, None]
                each = torch.stack([nats, share, seen.amax(-1)]).movedim(
                    2, 1
                )  # 3, heads, batch, queries
                sums[layer.index] += each[..., counted].double().sum(-1).cpu()
            queries += int(counted.sum())
    if not queries:
        raise ModelError("no text to calibrate on has two tokens; give longer ones")
    found = {
        name: {layer: (each[kind] / queries).float() for layer, each in sums.items()}
        for kind, name in enumerate(("raw", "normalised", "peak"))
    }
    means = {name: (total / tokens[name]).float() for name, total in rows.items()}
    return found | {"activations": _head_sums(model, geometry, means.__getitem__)}


def accuracy_drops(z: "pd.DataFrame", geometry: HeadGeometry) -> Scores:
    """Return how much accuracy the base model loses without each head.

    The accuracy matrix (`headroom.tables.ACCURACY`) has one row per training question, 0/1 columns
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
