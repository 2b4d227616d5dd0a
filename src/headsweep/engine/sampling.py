"""The choice of the next token: greedy, or sampled with counter-based random numbers.

A sampled token depends on its logits and on one uniform number, which is a pure function of (seed,
question, sample, position): the SHA-256 of the first three keys a Philox generator (Salmon et al.,
2011), whose counter is the position. So a sample is the same whatever else is in the batch, in any
order, and after a restart. The inverse distribution function is evaluated in float64, with tokens
in the order of their ids, so that rounding moves a choice only at the edge of an interval.
"""

import hashlib
from typing import TYPE_CHECKING

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor

if TYPE_CHECKING:
    from headsweep.config import Decoding

_LOGIT_BYTES = 1 << 27
"""Logits, in float32, that are computed at once take no more; on a GPU 8 times it."""


def places_at_once(vocabulary: int, *, on_gpu: bool) -> int:
    """Return at how many places logits are computed at once."""
    return max(1, _LOGIT_BYTES * (8 if on_gpu else 1) // (4 * vocabulary))


def uniforms(seed: int, question_id: str, sample: int, count: int) -> Float[np.ndarray, " count"]:
    """Return the uniform numbers in [0, 1) of an answer's positions 0 to count - 1, float64.

    A larger count leaves the first numbers as they are.
    """
    name = f"{seed}\n{sample}\n{question_id}".encode()
    key = np.frombuffer(hashlib.sha256(name).digest()[:16], dtype="<u8")
    return np.random.Generator(np.random.Philox(key=key)).random(count)


def sample(
    logits: Float[Tensor, "batch vocabulary"],
    uniform: Float[Tensor, " batch"],
    decoding: "Decoding",
) -> Int[Tensor, " batch"]:
    """Sample one token a row, by one number in [0, 1) a row, float64; see `candidates`."""
    tokens, weights = candidates(logits, decoding)
    cumulative = weights.cumsum(-1)
    total = cumulative[:, -1:].contiguous()
    place = torch.searchsorted(cumulative, uniform[:, None] * total, right=True)
    # Where rounding takes the product up to the total, the last token of any weight is meant. Where
    # weights are no numbers every place lies after the last: the caller finds out by the logits.
    place = torch.minimum(place, torch.searchsorted(cumulative, total))
    place = place.clamp(max=cumulative.shape[-1] - 1)
    return tokens.gather(-1, place).squeeze(-1)


def candidates(
    logits: Float[Tensor, "batch vocabulary"], decoding: "Decoding"
) -> tuple[Int[Tensor, "batch candidates"], Float[Tensor, "batch candidates"]]:
    """Return the tokens to choose from, by ascending id, and their weights (float64).

    As transformers' warpers do: logits are divided by the temperature, above 0; of the `top_k` best
    tokens (None: of all), those outside the smallest set of probability `top_p` get weight 0.
    """
    vocabulary = logits.shape[-1]
    token_ids = torch.arange(vocabulary, device=logits.device).expand(logits.shape)
    if not decoding.top_k and decoding.top_p >= 1:  # nothing is left out: no order is needed
        return token_ids, (logits.double() / decoding.temperature).softmax(-1)
    best, tokens = logits.topk(min(decoding.top_k or vocabulary, vocabulary), dim=-1)
    weights = (best.double() / decoding.temperature).softmax(-1)
    if decoding.top_p < 1:
        before = weights.cumsum(-1) - weights
        before[:, 0] = -1.0  # the most probable token always stays
        weights = weights.where(before < decoding.top_p, 0.0)
    if best.shape[-1] == vocabulary:
        return token_ids, torch.zeros_like(weights).scatter_(-1, tokens, weights)
    tokens, order = tokens.sort(-1)
    return tokens, weights.gather(-1, order)
