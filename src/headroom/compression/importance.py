"""How important a head is, by what it holds and where it looks: arXiv 2511.17577, eq. 1 to 4.

The score of a head mixes the size of its projections with the entropy of its attention,
S = alpha w + (1 - alpha) H, and low scores go first. The equations leave gaps; `Importance` says
how each is filled.
"""

from collections import Counter
from collections.abc import Iterable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial

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
from headroom.models.readers import Readers, find_readers

Texts = Mapping[str, Tensor]
"""What a model reads: input_ids and attention_mask [batch, tokens], padded on either side."""


def mixed(norm: Scores, entropy: Scores, settings: Importance) -> Scores:
    """Return S = alpha w + (1 - alpha) H (eq. 4).

    Args:
        norm: w of each head.
        entropy: H of each head.
        settings: alpha, scale and sign.
    """
    if settings.scale == "min_max":
        norm, entropy = min_max(norm), min_max(entropy)
    share = settings.entropy_sign * (1 - settings.alpha)
    return {layer: settings.alpha * norm[layer] + share * entropy[layer] for layer in norm}


def min_max(scores: Scores) -> Scores:
    """Stretch scores to 0 to 1 over the heads of all layers; equal scores become 0."""
    values = torch.cat(list(scores.values()))
    low, width = values.min(), values.max() - values.min()
    return {layer: (score - low) / (width if width > 0 else 1) for layer, score in scores.items()}


def weight_norms(model: PreTrainedModel, geometry: HeadGeometry) -> Scores:
    """Return the sum over queries, keys and values of the mean absolute weight of a head (eq. 1).

    Heads that share keys and values share their part of the sum.
    """
    readers = find_readers(model, geometry)
    means = {}
    for name in (name for names in readers.values() for name in names):
        module = model.get_submodule(name)
        weight: Tensor = module.get_parameter("weight").detach().float().abs().cpu()
        means[name] = weight.mean(0 if isinstance(module, Conv1D) else 1)
    return _head_sums(geometry, readers, means)


def _head_sums(
    geometry: HeadGeometry,
    readers: Mapping[int, Readers],
    means: Mapping[str, Float[Tensor, " rows"]],
) -> Scores:
    """Return the sum over a head's projections of the mean over its rows."""
    scores = {}
    for layer in geometry.layers:
        sums = torch.zeros(layer.query_heads)
        for name, read in readers[layer.index].items():
            sums += means[name] @ read.float()
        scores[layer.index] = sums / layer.head_dim
    return scores


@dataclass(frozen=True)
class Calibration:
    """What the heads of a model do on some texts."""

    raw_entropy: Scores
    """Entropy of the attention over keys, in nats (eq. 3): mean over queries."""
    entropy: Scores
    """The same, divided for each query by the logarithm of the number of its visible keys."""
    peak: Scores
    """Largest attention weight over keys: mean over queries. The score of the attention
    visualisation."""
    activation_norms: Scores
    """Sum over queries, keys and values of the mean absolute entry: mean over tokens."""


def calibrate(
    model: PreTrainedModel, geometry: HeadGeometry, batches: Iterable[Texts]
) -> Calibration:
    """Watch the heads of a model on texts, in evaluation mode.

    Every token that is not padding counts alike, but for queries that see one key only.

    Args:
        model: an encoder or decoder; it is left as it was.
        geometry: its heads.
        batches: texts.

    Raises:
        ModelError: the model has no eager attention whose weights can be read, or no text has two
            tokens.
    """
    readers = find_readers(model, geometry)
    sums = {
        layer.index: torch.zeros(3, layer.query_heads, dtype=torch.float64)
        for layer in geometry.layers
    }
    rows: dict[str, Tensor] = {}
    tokens: Counter[str] = Counter()
    queries, valid = 0, torch.empty(0)

    def add(name: str, _: nn.Module, __: tuple[Tensor, ...], output: Tensor) -> None:
        if output.shape[:-1] == valid.shape:  # not what is projected beside the tokens
            rows[name] = rows.get(name, 0.0) + output[valid].abs().double().sum(0).cpu()
            tokens[name] += int(valid.sum())

    with ExitStack() as stack, torch.no_grad():
        stack.enter_context(eager_attention(model))
        for name in (name for names in readers.values() for name in names):
            hook = model.get_submodule(name).register_forward_hook(partial(add, name))
            stack.callback(hook.remove)
        stack.enter_context(evaluating(model))
        for batch in batches:
            valid = batch["attention_mask"].bool()
            keys = visible_keys(valid, causal=geometry.keeps_cache)
            counted = valid & (keys > 1)
            maps = model(**batch, output_attentions=True).attentions
            for layer, attention in zip(geometry.layers, attention_maps(model, maps), strict=True):
                raw = entropy(attention, valid)
                relative = raw / keys.clamp(min=2).log()[:, None]
                peak = (attention.float() * valid[:, None, None]).amax(-1)
                each = torch.stack([raw, relative, peak]).movedim(
                    2, 1
                )  # [3, heads, batch, queries]
                sums[layer.index] += each[..., counted].double().sum(-1).cpu()
            queries += int(counted.sum())
    if not queries:
        raise ModelError("no text to calibrate on has two tokens; give longer ones")
    raw_entropy, relative_entropy, peaks = (
        {layer: (each[kind] / queries).float() for layer, each in sums.items()} for kind in range(3)
    )
    means = {name: (total / tokens[name]).float() for name, total in rows.items()}
    norms = _head_sums(geometry, readers, means)
    return Calibration(raw_entropy, relative_entropy, peaks, norms)


def entropy(
    attention: Float[Tensor, "batch query_heads queries keys"], valid: Bool[Tensor, "batch keys"]
) -> Float[Tensor, "batch query_heads queries"]:
    """Return the entropy in nats of the attention over keys that are not padding (eq. 3)."""
    attention = attention.float() * valid[:, None, None]
    return -torch.xlogy(attention, attention).sum(-1)


def visible_keys(valid: Bool[Tensor, "batch tokens"], *, causal: bool) -> Tensor:
    """Return how many keys each query sees, [batch, queries]: all, or those up to its own."""
    return valid.cumsum(1) if causal else valid.sum(1, keepdim=True).expand(valid.shape)
