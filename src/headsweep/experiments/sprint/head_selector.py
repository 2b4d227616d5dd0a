"""The head selector: a linear map of question embeddings and one vector for each head.

At inference, heads are ranked by their distance to the question.

The geometry decides how the paper's loss is read (see `headsweep.experiments.sprint.fitting`):

- ``literal``: points may lie anywhere, as the paper's formula says.
- ``ball``: a point u stands for u / √(1 + ‖u‖²), in the open unit ball.
- ``sphere``: a point u stands for u / ‖u‖, on the unit sphere, and squared distances, which are
  at most 4, are divided by a learned temperature.
"""

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import safetensors.torch
import torch
from jaxtyping import Float
from torch import Tensor, nn

from headsweep.config.experiments import Geometry
from headsweep.errors import TableError
from headsweep.experiments.sprint.validation import Order
from headsweep.files.record import read_tensors
from headsweep.files.safe_files import atomic

_FACTS = "headsweep"  # a single metadata entry, as safetensors writes several in no fixed order


@dataclass(frozen=True)
class Setting:
    """A selector's hyperparameters, as in `headsweep.config.Selector`, apart from its seed."""

    geometry: Geometry
    dimension: int  # p, of the space that questions and heads share
    diversity: float  # λ
    weight_decay: float  # of θ
    epochs: int
    learning_rate: float
    embedder: str  # config name of φ


def squared_distances(
    left: Float[Tensor, "*selectors left dimension"],
    right: Float[Tensor, "*selectors right dimension"],
) -> Float[Tensor, "*selectors left right"]:
    """Return ‖a − b‖² of every pair, from one matrix product."""
    squares = left.square().sum(dim=-1)[..., :, None] + right.square().sum(dim=-1)[..., None, :]
    return squares - 2 * left @ right.mT


class HeadSelector(nn.Module):
    """θ and v_1, ..., v_P; of the setting, geometry and dimension are used.

    Parameters of several selectors of one geometry may be stacked along a leading axis, which all
    results then have, too.
    """

    def __init__(self, embedding_dim: int, pool: int, setting: Setting, seed: int) -> None:
        super().__init__()
        self.setting = setting
        draw = torch.Generator().manual_seed(seed)
        # With standardised embeddings, questions and heads start at a norm of about 1.
        spread = setting.dimension**-0.5
        weight = torch.randn(setting.dimension, embedding_dim, generator=draw)
        self.theta_weight = nn.Parameter(weight * spread * embedding_dim**-0.5)
        self.theta_bias = nn.Parameter(torch.zeros(setting.dimension))
        self.heads = nn.Parameter(torch.randn(pool, setting.dimension, generator=draw) * spread)
        learned = setting.geometry == "sphere"
        temperature = torch.tensor(0.5 if learned else 1.0)
        self.log_temperature = nn.Parameter(temperature.log(), requires_grad=learned)

    def placed_heads(self) -> Float[Tensor, "*selectors pool dimension"]:
        """Return v_j, mapped into the geometry."""
        return self._place(self.heads)

    def distances(
        self, embeddings: Float[Tensor, "questions embedding_dim"]
    ) -> Float[Tensor, "*selectors questions pool"]:
        """Return ‖q_i − v_j‖², after mapping into the geometry."""
        return squared_distances(self.placed_questions(embeddings), self.placed_heads())

    def placed_questions(
        self, embeddings: Float[Tensor, "questions embedding_dim"]
    ) -> Float[Tensor, "*selectors questions dimension"]:
        """Return q_i, mapped into the geometry."""
        return self._place(embeddings @ self.theta_weight.mT + self.theta_bias.unsqueeze(-2))

    def _place(
        self, points: Float[Tensor, "*selectors points dimension"]
    ) -> Float[Tensor, "*selectors points dimension"]:
        match self.setting.geometry:
            case "sphere":
                return nn.functional.normalize(points, dim=-1)
            case "ball":
                return points * torch.rsqrt(1 + points.square().sum(dim=-1, keepdim=True))
            case "literal":
                return points


@torch.inference_mode()
def rank_heads(
    selector: HeadSelector, embeddings: Float[np.ndarray, "questions embedding_dim"]
) -> tuple[Order, Float[np.ndarray, "questions pool"]]:
    """Return head numbers, nearest first, and their squared distances, ascending.

    Heads at equal distance keep their order in the pool.
    """
    # Rounding may give less than 0.
    distances = selector.distances(torch.as_tensor(embeddings)).numpy().clip(0)
    order = np.argsort(distances, axis=1, kind="stable")
    return order, np.take_along_axis(distances, order, axis=1)


@torch.inference_mode()
def positions(
    selector: HeadSelector,
    heads: Sequence[str],
    questions: Sequence[str],
    embeddings: Float[np.ndarray, "questions embedding_dim"],
) -> pd.DataFrame:
    """Return the positions of heads and questions (`headsweep.files.tables.POSITIONS`)."""
    placed = selector.placed_heads(), selector.placed_questions(torch.as_tensor(embeddings))
    vectors = [*placed[0].numpy(), *placed[1].numpy()]
    kinds = ["head"] * len(heads) + ["question"] * len(questions)
    return pd.DataFrame({"kind": kinds, "name": [*heads, *questions], "vector": vectors})


def save_selector(path: Path, selector: HeadSelector, facts: dict[str, Any]) -> None:
    """Write a selector as safetensors, atomically, with its setting and `facts` as metadata."""
    metadata = json.dumps({**facts, "setting": asdict(selector.setting)}, sort_keys=True)
    with atomic(path) as temporary:
        safetensors.torch.save_file(selector.state_dict(), temporary, {_FACTS: metadata})


def load_selector(path: Path) -> tuple[HeadSelector, dict[str, Any]]:
    """Read a selector and its facts.

    Raises:
        TableError: the file is missing, damaged or not a selector.
    """
    metadata, state = read_tensors(path)
    try:
        facts: dict[str, Any] = json.loads(metadata[_FACTS])
        pool = len(state["heads"])
        embedding_dim = state["theta_weight"].shape[1]
        selector = HeadSelector(embedding_dim, pool, Setting(**facts["setting"]), seed=0)
        selector.load_state_dict(state)
    except (KeyError, TypeError, ValueError, RuntimeError) as error:
        raise TableError(f"{path} is not a head selector ({error}); remove it and rerun") from None
    return selector, facts
