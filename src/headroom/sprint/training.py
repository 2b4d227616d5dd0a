"""Training a head selector, and choosing its setting on held-out training questions."""

from collections.abc import Iterator
from dataclasses import asdict, dataclass
from itertools import product
from typing import Any

import numpy as np
import pandas as pd
import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from headroom.config import Selector
from headroom.errors import ConfigError
from headroom.sprint import loss
from headroom.sprint.model import HeadSelector, Setting
from headroom.sprint.selection import rank
from headroom.sprint.validation import Split, ranked_pass, splits

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
    options: Selector,
    seed: int,
) -> Fit:
    """Train a selector with AdamW on all questions in every step; no chance but in the start.

    Embeddings are standardised for the optimiser, feature by feature, and θ is changed at the end
    so that the selector takes them as they are.

    Args:
        embeddings: φ(x_i).
        correct: Z over the pool.
        setting: which reading of the loss.
        options: `epochs` and `learning_rate`.
        seed: decides the initial weights.

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
    weights = agreement if setting.geometry == "literal" else agreement / max(pairs, 1)
    centre, scale = embeddings.mean(dim=0), embeddings.std(dim=0, correction=0)
    constant = scale <= 1e-6 * embeddings.abs().amax(dim=0)  # but for rounding
    scale = torch.where(constant, 1.0, scale)
    inputs, targets = ((embeddings - centre) / scale)[aligned], correct[aligned]

    selector = HeadSelector(embeddings.shape[1], pool, setting, seed)
    groups: list[dict[str, Any]] = [
        {"params": [selector.theta_weight], "weight_decay": setting.weight_decay},
        {"params": [selector.theta_bias, selector.heads, selector.log_temperature]},
    ]
    optimiser = torch.optim.AdamW(groups, lr=options.learning_rate, weight_decay=0.0)

    def total() -> Tensor:
        distances = selector.distances(inputs) / selector.log_temperature.exp()
        apart = loss.separation(selector.placed_heads(), weights)
        return loss.alignment(distances, targets) - setting.diversity * apart

    def spread() -> float:
        everywhere = torch.ones(pool, pool) / max(pairs, 1)
        return loss.separation(selector.placed_heads(), everywhere).item()

    spread_half = spread()
    for epoch in range(options.epochs):
        if epoch == options.epochs // 2:
            spread_half = spread()
        optimiser.zero_grad()
        total().backward()
        optimiser.step()

    with torch.no_grad():
        final = total().item()
        selector.theta_weight.div_(scale)
        selector.theta_bias.sub_(selector.theta_weight @ centre)
        left_out = int((~aligned).sum())
        return Fit(selector, final, spread_half, spread(), left_out)


def choose(
    embeddings: Float[Tensor, "questions embedding_dim"],
    correct: Bool[Tensor, "questions pool"],
    options: Selector,
) -> tuple[Setting, pd.DataFrame]:
    """Choose geometry, dimension, λ and weight decay on held-out training questions.

    Every setting is trained on the other part of each split. The best mean score (see
    `headroom.sprint.validation`) wins; of equals, the first in the config's order. A setting that
    diverged has a result that depends on when it was stopped: it wins only if all diverged.

    Returns:
        The setting, and a table with a row for each setting and seed: Pass@1, Pass@4 and the score
        on the held-out part, and the facts of `Fit`.
    """
    z = correct.numpy()
    max_n = min(options.max_n, z.shape[1])
    parts = splits(len(z), options.validation, options.seeds)
    results: dict[Setting, pd.DataFrame] = {}
    for setting in _grid(options):
        rows = []
        for part in parts:
            trained = fit(embeddings[part.fit], correct[part.fit], setting, options, part.seed)
            order, _ = rank(trained.selector, embeddings[part.held_out])
            curve = ranked_pass(z[part.held_out], order, max_n)
            rows.append(
                {
                    **asdict(setting),
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
        results[setting] = pd.DataFrame(rows)

    def worse(setting: Setting) -> tuple[bool, float]:
        result = results[setting]
        return bool(result["diverged"].any()), -float(result["mean_pass"].mean())

    chosen = min(results, key=worse)
    table = pd.concat(
        [result.assign(chosen=setting == chosen) for setting, result in results.items()],
        ignore_index=True,
    )
    return chosen, table


def rank_held_out(
    embeddings: Float[Tensor, "questions embedding_dim"],
    correct: Bool[Tensor, "questions pool"],
    setting: Setting,
    options: Selector,
) -> Iterator[tuple[Split, Int[np.ndarray, "held_out pool"]]]:
    """Train a setting again without each held-out part, and rank the heads for that part.

    Yields:
        A split of the training questions, and head numbers for each of its held-out questions,
        nearest first.
    """
    for split in splits(len(correct), options.validation, options.seeds):
        part = fit(embeddings[split.fit], correct[split.fit], setting, options, split.seed)
        yield split, rank(part.selector, embeddings[split.held_out])[0]


def _grid(options: Selector) -> list[Setting]:
    grid = product(options.geometry, options.dimension, options.diversity, options.weight_decay)
    return [Setting(*values) for values in grid]
