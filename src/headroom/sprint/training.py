"""Training a head selector, and choosing its setting on held-out training questions."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from copy import deepcopy
from dataclasses import asdict, dataclass, replace
from functools import partial
from itertools import groupby, product
from typing import Any

import numpy as np
import pandas as pd
import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor
from torch.optim.adamw import adamw

from headroom.config import Selector
from headroom.errors import ConfigError
from headroom.sprint import loss
from headroom.sprint.model import HeadSelector, Setting, rank
from headroom.sprint.validation import (
    ALL,
    folds,
    ranked_pass,
    reading,
    readings,
    splits,
    trainings,
    without,
)

_WIDEST = 4.0  # largest squared distance in the bounded geometries


@dataclass(frozen=True)
class Fit:
    """A trained selector and how its training went."""

    selector: HeadSelector
    loss: float
    """At the end; it falls without bound if the diversity term does."""
    spread_half: float
    """Mean ‖v_j − v_k‖² over pairs of heads, after half of the epochs."""
    spread: float
    """The same at the end."""
    left_out: int
    """Questions that no head solves."""

    @property
    def diverged(self) -> bool:
        """Whether heads fly apart: wider than any bounded geometry, and still doubling."""
        return not np.isfinite(self.loss) or self.spread > max(_WIDEST, 2 * self.spread_half)


def fit(
    embeddings: Float[Tensor, "questions embedding_dim"],
    correct: Bool[Tensor, "questions pool"],
    setting: Setting,
    seed: int,
) -> Fit:
    """Train one selector; otherwise as `fit_together`."""
    return fit_together(embeddings, correct, [setting], [seed])[0]


def fit_together(
    embeddings: Float[Tensor, "questions embedding_dim"],
    correct: Bool[Tensor, "questions pool"],
    settings: Sequence[Setting],
    seeds: Sequence[int],
) -> list[Fit]:
    """Train selectors with AdamW on all questions in every step; no chance but in the start.

    They learn side by side, each what it would learn alone but for rounding. Embeddings are
    standardised for the optimiser, feature by feature, and θ is changed at the end so that a
    selector takes them as they are.

    Args:
        embeddings: φ(x_i).
        correct: Z over the pool.
        settings: which readings of the loss; alike but for λ and weight decay.
        seeds: of the initial weights, one a setting.

    Raises:
        ConfigError: no question is solved by any head.
    """
    aligned = loss.solvable(correct)
    if not aligned.any():
        raise ConfigError(
            f"no head solves any of the {len(correct)} training questions, so there is nothing to "
            "learn; choose easier training questions or a longer max_new_tokens"
        )
    pool = correct.shape[1]
    pairs = pool * (pool - 1) / 2
    agreement = loss.agreement(correct)
    weights = agreement if settings[0].geometry == "literal" else agreement / max(pairs, 1)
    centre, scale = embeddings.mean(dim=0), embeddings.std(dim=0, correction=0)
    constant = scale <= 1e-6 * embeddings.abs().amax(dim=0)  # but for rounding
    scale = torch.where(constant, 1.0, scale)
    inputs, targets = ((embeddings - centre) / scale)[aligned], correct[aligned]

    selectors = [
        HeadSelector(embeddings.shape[1], pool, each, seed)
        for each, seed in zip(settings, seeds, strict=True)
    ]
    stack = deepcopy(selectors[0])
    for name, parameter in stack.named_parameters():
        parameter.data = torch.stack([each.get_parameter(name).data for each in selectors])
    diversity = torch.tensor([each.diversity for each in settings])
    step = _adamw(stack, settings)

    def total() -> Float[Tensor, " selectors"]:
        temperature = stack.log_temperature.exp()[:, None, None]
        apart = loss.separation(stack.placed_heads(), weights)
        near = loss.alignment(stack.distances(inputs) / temperature, targets)
        return near - diversity * apart

    def spread() -> list[float]:
        everywhere = torch.ones(pool, pool) / max(pairs, 1)
        return loss.separation(stack.placed_heads(), everywhere).tolist()

    spread_half = spread()
    epochs = settings[0].epochs
    for epoch in range(epochs):
        if epoch == epochs // 2:
            spread_half = spread()
        step(total().sum())

    with torch.no_grad():
        final = total().tolist()
        stack.theta_weight.div_(scale)
        stack.theta_bias.sub_(stack.theta_weight @ centre)
        for number, each in enumerate(selectors):
            each.load_state_dict({name: part[number] for name, part in stack.state_dict().items()})
        left_out = int((~aligned).sum())
        facts = zip(selectors, final, spread_half, spread(), strict=True)
        return [Fit(*each, left_out) for each in facts]


def _adamw(stack: HeadSelector, settings: Sequence[Setting]) -> Callable[[Float[Tensor, ""]], None]:
    """Return what makes a step of AdamW, with a weight decay of θ for each selector.

    `torch.optim.AdamW` has one for all, and loads torch's compiler when it is made.
    """
    learning_rate = settings[0].learning_rate
    learnt: list[Tensor] = [each for each in stack.parameters() if each.requires_grad]
    means, squares = ([torch.zeros_like(each) for each in learnt] for _ in range(2))
    steps = [torch.tensor(0.0) for _ in learnt]
    kept = torch.tensor([1 - learning_rate * each.weight_decay for each in settings])
    adam = partial(
        adamw,
        lr=learning_rate,
        beta1=0.9,
        beta2=0.999,
        eps=1e-8,
        weight_decay=0.0,
        amsgrad=False,
        maximize=False,
    )

    def step(total: Float[Tensor, ""]) -> None:
        gradients = list(torch.autograd.grad(total, learnt))
        with torch.no_grad():
            stack.theta_weight.mul_(kept[:, None, None])
            adam(learnt, gradients, means, squares, [], steps)

    return step


Embedded = Mapping[str, Float[Tensor, "questions embedding_dim"]]
"""Embeddings of some questions by embedder."""


def tensors(embeddings: Mapping[str, Float[np.ndarray, "questions embedding_dim"]]) -> Embedded:
    """Return embeddings for torch."""
    return {name: torch.tensor(each) for name, each in embeddings.items()}


def choose(
    embeddings: Embedded,
    correct: Bool[Tensor, "questions pool"],
    options: Selector,
) -> tuple[Setting, pd.DataFrame]:
    """Choose embedder, geometry, dimension, λ and all else on held-out training questions.

    Every setting is trained on the other part of each split. The best mean score (see
    `headroom.sprint.validation`) wins; of equals, the first in the config's order. A setting that
    diverged has a result that depends on when it was stopped: it wins only if all diverged.

    Returns:
        The setting, and a table with a row for each setting and seed: λ as a weight of the mean
        over pairs (`per_pair`: the literal reading weighs their sum), Pass@1, Pass@4 and the score
        on the held-out part, and the facts of `Fit`.
    """
    z = correct.numpy()
    max_n = min(options.max_n, z.shape[1])
    parts = splits(len(z), options.validation, options.seeds)
    rows: dict[Setting, list[dict[str, Any]]] = {setting: [] for setting in grid(options)}
    for part in parts:
        for together in _alike(rows):
            own = embeddings[together[0].embedder]
            seeds = [part.seed] * len(together)
            fits = fit_together(own[part.fit], correct[part.fit], together, seeds)
            for setting, trained in zip(together, fits, strict=True):
                order, _ = rank(trained.selector, own[part.held_out])
                curve = ranked_pass(z[part.held_out], order, max_n)
                rows[setting].append(
                    {
                        **asdict(setting),
                        "per_pair": setting.per_pair(z.shape[1]),
                        "seed": part.seed,
                        "pass_at_1": curve[0],
                        "pass_at_4": curve[min(4, max_n) - 1],
                        "mean_pass": curve.mean(),
                        "training_loss": trained.loss,
                        "spread_half": trained.spread_half,
                        "spread": trained.spread,
                        "diverged": trained.diverged,
                        "left_out": trained.left_out,
                    }
                )
    results = {setting: pd.DataFrame(of_setting) for setting, of_setting in rows.items()}

    def worse(setting: Setting) -> tuple[bool, float]:
        result = results[setting]
        return bool(result["diverged"].any()), -float(result["mean_pass"].mean())

    chosen = min(results, key=worse)
    table = pd.concat(
        [result.assign(chosen=setting == chosen) for setting, result in results.items()],
        ignore_index=True,
    )
    return chosen, table


def grid(options: Selector) -> Iterator[Setting]:
    """Yield every setting that a config asks for, in its order; those alike in turn."""
    for embedder, geometry, dimension, epochs, rate in product(
        options.embedder,
        options.geometry,
        options.dimension,
        options.epochs,
        options.learning_rate,
    ):
        for diversity, decay in product(options.diversity, options.weight_decay):
            yield Setting(geometry, dimension, diversity, decay, epochs, rate, embedder)


def _alike(settings: Iterable[Setting]) -> Iterator[list[Setting]]:
    """Yield the settings that can be trained side by side."""
    for _, alike in groupby(settings, key=lambda each: replace(each, diversity=0, weight_decay=0)):
        yield list(alike)


def rank_again(
    embeddings: Embedded,
    correct: Bool[Tensor, "questions pool"],
    test: Embedded,
    setting: Setting,
    options: Selector,
) -> Iterator[tuple[str, int, Int[np.ndarray, "ranked pool"]]]:
    """Train selectors from every seed, on every redraw and without each fold, and rank with them.

    Setting and λ are chosen anew on a redraw, unless the options fix them.

    Args:
        embeddings: of the training questions.
        correct: Z of the training questions over the pool.
        test: embeddings of the test questions.
        setting: the chosen one.
        options: of the selector.

    Yields:
        What a selector was trained on (`ALL`, `drawn(i)`, `without(i)`; `reading(...)` on all
        with another geometry and λ), its seed, and head numbers, nearest first, for each test
        question, or for each question of the fold.
    """
    for name, rows in trainings(len(correct), options.redraws).items():
        part = {each: vectors[rows] for each, vectors in embeddings.items()}
        anew = name != ALL and options.redrawn_setting == "anew"
        found = choose(part, correct[rows], options)[0] if anew else setting
        again = [found] * len(options.seeds)
        fits = fit_together(part[found.embedder], correct[rows], again, options.seeds)
        for seed, trained in zip(options.seeds, fits, strict=True):
            yield name, seed, rank(trained.selector, test[found.embedder])[0]
    own, asked = embeddings[setting.embedder], test[setting.embedder]
    for number, split in enumerate(folds(len(correct), options.validation, options.seeds[0])):
        trained = fit(own[split.fit], correct[split.fit], setting, split.seed)
        yield without(number), split.seed, rank(trained.selector, own[split.held_out])[0]
    others = (
        replace(setting, geometry=geometry, diversity=diversity)
        for geometry, diversity in readings(options).values()
    )
    for together in _alike(others):
        seed = options.seeds[0]
        fits = fit_together(own, correct, together, [seed] * len(together))
        for other, trained in zip(together, fits, strict=True):
            yield reading(other.geometry, other.diversity), seed, rank(trained.selector, asked)[0]
