r"""Training a head selector, and choosing its setting on held-out training questions.

The SPRINT loss (arXiv 2506.03978, section 4). With q_i = θ(φ(x_i)) for question i, one vector v_j
for each head j, M⁺_i = {j : z_ij = 1} and s_jk = mean_i 1[z_ij = z_ik]:

.. math::

    L = \mathrm{mean}_i -\log \frac{\sum_{j \in M^+_i} e^{-\lVert q_i - v_j \rVert^2}}
                                   {\sum_j e^{-\lVert q_i - v_j \rVert^2}}
        - \lambda \sum_{j<k} s_{jk} \lVert v_j - v_k \rVert^2

The first term draws a question to the heads that solve it. The second, subtracted with the sign
that the paper prints, rewards distance between heads that agree: the N nearest heads then tend to
differ in what they solve.

Where the formula leaves a choice, the code does this (see also
`headsweep.experiments.sprint.head_selector`):

- A question that no head solves has an empty M⁺_i and an infinite loss. It is left out of the first
  term and its mean, but counts in s_jk. A question that all heads solve stays: its loss is 0.
- The second term has no lower bound while points may lie anywhere: for every λ > 0 the minimum is
  at infinity. The geometry `literal` leaves it so. `sphere` and `ball` keep all points within
  distance 2 of each other.
- A sum over pairs grows with the square of the pool, the first term does not. The bounded
  geometries use the mean over pairs, so that λ means the same for pools of any size.

Several selectors are trained at once: their tensors have a leading axis.
"""

from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from copy import deepcopy
from dataclasses import asdict, replace
from functools import partial
from itertools import product
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
import torch
from jaxtyping import Bool, Float
from torch import Tensor
from torch.optim.adamw import adamw

from headsweep.config import Selector
from headsweep.experiments.sprint import validation
from headsweep.experiments.sprint.head_selector import (
    HeadSelector,
    Setting,
    rank_heads,
    squared_distances,
)
from headsweep.experiments.sprint.methods import SPRINT
from headsweep.experiments.sprint.rankers import EmbeddedQuestions
from headsweep.experiments.sprint.validation import Order, Z, reading_of

_WIDEST = 4.0  # largest squared distance in the bounded geometries


def alignment(
    distances: Float[Tensor, "*selectors questions pool"], correct: Bool[Tensor, "questions pool"]
) -> Float[Tensor, "*selectors"]:
    """Return the first term of the loss.

    Args:
        distances: ‖q_i − v_j‖², divided by the temperature if there is one.
        correct: Z; every question is solved by some head.
    """
    solving = torch.logsumexp(-distances.masked_fill(~correct, torch.inf), dim=-1)
    return (torch.logsumexp(-distances, dim=-1) - solving).mean(dim=-1)


def agreement(correct: Bool[Tensor, "questions pool"]) -> Float[Tensor, "pool pool"]:
    """Return s_jk, the share of questions on which two heads are both right or both wrong."""
    right, wrong = correct.float(), (~correct).float()
    return (right.T @ right + wrong.T @ wrong) / len(correct)


def separation(
    heads: Float[Tensor, "*selectors pool dimension"], weights: Float[Tensor, "pool pool"]
) -> Float[Tensor, "*selectors"]:
    """Return how far apart the heads of a pool lie: Σ_{j<k} w_jk ‖v_j − v_k‖², w symmetric.

    With w = s it is the sum of the second term; with w = 2 s / (P (P − 1)) its mean over the pairs
    of a pool of P heads.
    """
    return (weights * squared_distances(heads, heads)).sum(dim=(-2, -1)) / 2


class FittedSelector(NamedTuple):
    """A trained selector and how its training went."""

    selector: HeadSelector
    training_loss: float
    """Loss at the end of training; it falls without bound if the diversity term does."""
    diverged: bool
    """Whether heads are wider apart than a bounded geometry allows, and their mean squared distance
    still doubled in the second half of the epochs."""


def fit(
    vectors: Float[np.ndarray, "questions embedding_dim"],
    z: Z,
    settings: Sequence[Setting],
    seeds: Sequence[int],
) -> list[FittedSelector]:
    """Train selectors with full-batch AdamW; only the initial weights are random.

    They are trained at once, each as it would be alone but for rounding. Embeddings are
    standardised for the optimiser, feature by feature; at the end θ is rescaled so that a selector
    takes raw embeddings. If no head solves any question, only the second term is trained.

    Args:
        vectors: φ(x_i).
        z: Z over the pool.
        settings: settings that differ only in λ and weight decay.
        seeds: seeds of the initial weights, one for each setting.
    """
    embeddings, correct = torch.as_tensor(vectors), torch.tensor(z)
    aligned = correct.any(dim=1)
    pool = correct.shape[1]
    epochs = settings[0].epochs
    pairs = max(pool * (pool - 1) / 2, 1)
    weights = agreement(correct) / (1 if settings[0].geometry == "literal" else pairs)
    centre = embeddings.mean(dim=0)
    scale = embeddings.std(dim=0, correction=0)
    constant = scale <= 1e-6 * embeddings.abs().amax(dim=0)  # constant but for rounding
    scale = torch.where(constant, 1.0, scale)
    inputs = ((embeddings - centre) / scale)[aligned]
    targets = correct[aligned]

    selectors = [
        HeadSelector(embeddings.shape[1], pool, setting, seed)
        for setting, seed in zip(settings, seeds, strict=True)
    ]
    stack = deepcopy(selectors[0])
    for name, parameter in stack.named_parameters():
        parameter.data = torch.stack([selector.get_parameter(name).data for selector in selectors])
    diversity = torch.tensor([setting.diversity for setting in settings])
    step = _adamw(stack, settings)

    def total() -> Float[Tensor, " selectors"]:
        temperature = stack.log_temperature.exp()[:, None, None]
        apart = separation(stack.placed_heads(), weights)
        if not len(targets):
            return -diversity * apart
        return alignment(stack.distances(inputs) / temperature, targets) - diversity * apart

    def spread() -> list[float]:
        return separation(stack.placed_heads(), torch.ones(pool, pool) / pairs).tolist()

    for epoch in range(epochs):
        if epoch == epochs // 2:
            spread_half = spread()
        step(total().sum())

    with torch.no_grad():
        final = total().tolist()
        stack.theta_weight.div_(scale)
        stack.theta_bias.sub_(stack.theta_weight @ centre)
        for number, selector in enumerate(selectors):
            state = {name: stacked[number] for name, stacked in stack.state_dict().items()}
            selector.load_state_dict(state)
    return [
        FittedSelector(selector, loss, end > max(_WIDEST, 2 * half) or not np.isfinite(loss))
        for selector, loss, half, end in zip(selectors, final, spread_half, spread(), strict=True)
    ]


def _adamw(stack: HeadSelector, settings: Sequence[Setting]) -> Callable[[Float[Tensor, ""]], None]:
    """Return a function that takes an AdamW step, with each selector's own weight decay of θ.

    `torch.optim.AdamW` has one decay for the whole stack, and imports torch's compiler.
    """
    rate = settings[0].learning_rate
    learnt: list[Tensor] = [
        parameter for parameter in stack.parameters() if parameter.requires_grad
    ]
    means = [torch.zeros_like(parameter) for parameter in learnt]
    squares = [torch.zeros_like(parameter) for parameter in learnt]
    steps = [torch.tensor(0.0) for _ in learnt]
    kept = torch.tensor([1 - rate * setting.weight_decay for setting in settings])[:, None, None]
    adam = partial(adamw, lr=rate, beta1=0.9, beta2=0.999, eps=1e-8, weight_decay=0.0)

    def step(total: Float[Tensor, ""]) -> None:
        # The second term alone does not depend on θ: its gradient is zero.
        gradients = list(torch.autograd.grad(total, learnt, materialize_grads=True))
        with torch.no_grad():
            stack.theta_weight.mul_(kept)
            adam(learnt, gradients, means, squares, [], steps, amsgrad=False, maximize=False)

    return step


class _Tried(NamedTuple):
    """A setting, and what selectors trained with it reach on held-out training questions."""

    setting: Setting
    rows: list[dict[str, Any]]
    """Of the table, one for each split."""
    score: float
    """The mean over splits."""
    diverged: bool
    """Whether any of the selectors did."""


def choose(
    embeddings: Mapping[str, Float[np.ndarray, "questions embedding_dim"]],
    correct: Z,
    options: Selector,
) -> tuple[Setting, pd.DataFrame]:
    """Choose embedder, geometry, dimension, λ and all other options on held-out training questions.

    Every setting is trained on the other part of each split. The best mean score (see
    `headsweep.experiments.sprint.validation`) wins; ties go to the first in the config's order. The
    result of a setting that diverged depends on when training stopped: it wins only if all
    diverged.

    Returns:
        The setting, and a table with a row for each setting and seed: the setting; Pass@1, Pass@4
        and the score on the held-out part; the loss, and whether it diverged.
    """
    splits = validation.splits(len(correct), options)  # one for each seed
    tried: list[_Tried] = []
    for alike in _settings(options):
        vectors = embeddings[alike[0].embedder]
        fits_of_splits = [
            fit(vectors[fit_rows], correct[fit_rows], alike, [seed] * len(alike))
            for seed, (fit_rows, _) in zip(options.seeds, splits, strict=True)
        ]
        for setting, *fits in zip(alike, *fits_of_splits, strict=True):
            rows = []
            for seed, fitted, (_, held_out) in zip(options.seeds, fits, splits, strict=True):
                row = _tested(fitted, vectors[held_out], correct[held_out], options.max_n)
                rows.append({**asdict(setting), "seed": seed, **row})
            score = float(np.mean([row["mean_pass"] for row in rows]))
            tried.append(_Tried(setting, rows, score, any(row["diverged"] for row in rows)))
    # `min` takes the first of equals.
    best = min(tried, key=lambda candidate: (candidate.diverged, -candidate.score))
    rows = [{**row, "chosen": candidate is best} for candidate in tried for row in candidate.rows]
    return best.setting, pd.DataFrame(rows)


def _settings(options: Selector) -> Iterator[list[Setting]]:
    """Yield a config's settings in its order, those together that are trained at once."""
    for embedder, geometry, dimension, epochs, rate in product(
        options.embedder,
        options.geometry,
        options.dimension,
        options.epochs,
        options.learning_rate,
    ):
        yield [
            Setting(geometry, dimension, diversity, decay, epochs, rate, embedder)
            for diversity, decay in product(options.diversity, options.weight_decay)
        ]


def _tested(
    fitted: FittedSelector,
    vectors: Float[np.ndarray, "questions embedding_dim"],
    correct: Z,
    max_n: int,
) -> dict[str, Any]:
    """Return what a selector reaches on questions that it was not trained on."""
    max_n = min(max_n, correct.shape[1])
    order, _ = rank_heads(fitted.selector, vectors)
    curve = validation.ranked_pass(correct, order, max_n)
    return {
        "pass_at_1": curve[0],
        "pass_at_4": curve[min(4, max_n) - 1],
        "mean_pass": curve.mean(),
        "training_loss": fitted.training_loss,
        "diverged": fitted.diverged,
    }


class Ranking(NamedTuple):
    """How a method ranks the heads for some questions, after one training."""

    method: str
    """Or the name of a reading of the loss."""
    training: str
    """Which training questions it learnt from, by its name in
    `headsweep.experiments.sprint.validation`."""
    seed: int
    question_ids: Sequence[str]
    heads: Order
    """The heads' numbers for each of these questions, nearest first."""


def rank_again(
    train: EmbeddedQuestions,
    correct: Z,
    test: EmbeddedQuestions,
    setting: Setting,
    options: Selector,
) -> Iterator[Ranking]:
    """Train selectors from every seed on every redraw, and rank with them for the test questions.

    On a redraw the setting is chosen anew if the options say so. Every reading of the loss is
    trained from every seed on every redraw, too; of its rankings only the first `max_n` heads are
    kept.
    """
    # Of one embedder and geometry, readings are trained at once.
    alike = defaultdict[tuple[str, str], list[tuple[str, Setting]]](list)
    for name, reading in validation.readings(options, reading_of(asdict(setting))).items():
        its_setting = replace(
            setting,
            geometry=reading.geometry,
            diversity=reading.diversity,
            embedder=reading.embedder,
        )
        alike[reading.geometry, reading.embedder].append((name, its_setting))
    for draw, rows in validation.redraws(len(correct), options).items():
        own = setting
        if draw != validation.ALL and options.redrawn_setting == "anew":
            own, _ = choose(train.of(rows).embeddings, correct[rows], options)
        for together in [[(SPRINT, own)], *alike.values()]:
            planned = [(name, one, seed) for name, one in together for seed in options.seeds]
            names, settings, seeds = zip(*planned, strict=True)
            embedder = settings[0].embedder
            fits = fit(train.embeddings[embedder][rows], correct[rows], settings, seeds)
            for name, seed, fitted in zip(names, seeds, fits, strict=True):
                heads, _ = rank_heads(fitted.selector, test.embeddings[embedder])
                if name != SPRINT:
                    heads = heads[:, : options.max_n]
                yield Ranking(name, draw, seed, test.ids, heads)
