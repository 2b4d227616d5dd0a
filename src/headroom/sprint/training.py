"""Training a head selector, and choosing its setting on held-out training questions."""

from dataclasses import asdict, dataclass
from itertools import product
from typing import Any

import numpy as np
import pandas as pd
import torch
from jaxtyping import Bool, Float
from torch import Tensor

from headroom.config import Selector
from headroom.errors import ConfigError
from headroom.sprint import loss
from headroom.sprint.model import HeadSelector, Setting
from headroom.sprint.selection import rank
from headroom.sprint.validation import ranked_pass, splits

_WIDEST = 4.0  # largest squared distance in the bounded geometries


@dataclass(frozen=True)
class Optimisation:
    """How a selector is trained: AdamW, the whole question set in every step."""

    learning_rate: float
    weight_decay: float
    """Of θ only."""
    epochs: int


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
    optimisation: Optimisation,
    seed: int,
) -> Fit:
    """Train a selector; the same arguments give the same selector.

    Embeddings are standardised for the optimiser, feature by feature, and θ is changed at the end
    so that the selector takes them as they are.

    Args:
        embeddings: φ(x_i).
        correct: Z over the pool.
        setting: which reading of the loss.
        optimisation: steps and rates.
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
    scale = torch.where(scale > 0, scale, 1.0)
    inputs, targets = ((embeddings - centre) / scale)[aligned], correct[aligned]

    selector = HeadSelector(embeddings.shape[1], pool, setting, seed)
    groups: list[dict[str, Any]] = [
        {"params": [selector.theta_weight], "weight_decay": optimisation.weight_decay},
        {"params": [selector.theta_bias, selector.heads, selector.log_temperature]},
    ]
    optimiser = torch.optim.AdamW(groups, lr=optimisation.learning_rate, weight_decay=0.0)

    def total() -> Tensor:
        distances = selector.distances(inputs) / selector.log_temperature.exp()
        apart = loss.separation(selector.placed_heads(), weights)
        return loss.alignment(distances, targets) - setting.diversity * apart

    def spread() -> float:
        everywhere = torch.ones(pool, pool) / max(pairs, 1)
        return loss.separation(selector.placed_heads(), everywhere).item()

    spread_half = spread()
    for epoch in range(optimisation.epochs):
        if epoch == optimisation.epochs // 2:
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
    """Choose geometry, dimension and λ on held-out training questions.

    Every setting is trained on the other part of each split. The best mean score (see
    `headroom.sprint.validation`) wins; of equals, the first in the config's order. A setting that
    diverged has a result that depends on when it was stopped: it wins only if all diverged.

    Returns:
        The setting, and a table of every setting and seed.
    """
    settings = [
        Setting(*values)
        for values in product(options.geometry, options.dimension, options.diversity)
    ]
    z = correct.numpy()
    rows = []
    for setting in settings:
        for split in splits(len(z), options.validation, options.seeds):
            trained = fit(
                embeddings[split.fit],
                correct[split.fit],
                setting,
                optimisation(options),
                split.seed,
            )
            order, _ = rank(trained.selector, embeddings[split.held_out])
            curve = ranked_pass(z[split.held_out], order, min(options.max_n, z.shape[1]))
            rows.append(
                {
                    **asdict(setting),
                    "seed": split.seed,
                    "pass_at_1": curve[0],
                    "pass_at_4": curve[min(4, len(curve)) - 1],
                    "mean_pass": curve.mean(),
                    "training_loss": trained.loss,
                    "spread_half": trained.spread_half,
                    "spread": trained.spread,
                    "diverged": trained.diverged,
                    "left_out": trained.left_out,
                }
            )
    table = pd.DataFrame(rows)
    keys = list(asdict(settings[0]))
    scores = table.groupby(keys, sort=False).agg(
        diverged=("diverged", "any"), mean_pass=("mean_pass", "mean")
    )
    best = scores.sort_values(
        ["diverged", "mean_pass"], ascending=[True, False], kind="stable"
    ).index[0]
    chosen = settings[list(scores.index).index(best)]
    table["chosen"] = [tuple(row) == best for row in table[keys].itertuples(index=False)]
    return chosen, table


def optimisation(options: Selector) -> Optimisation:
    """Return how a config's selector is trained."""
    return Optimisation(options.learning_rate, options.weight_decay, options.epochs)
