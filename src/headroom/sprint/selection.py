"""Inference: heads ranked for each question by their distance to it."""

from collections.abc import Sequence

import numpy as np
import pandas as pd
import torch
from jaxtyping import Float, Int
from torch import Tensor

from headroom.sprint.model import HeadSelector


@torch.inference_mode()
def rank(
    selector: HeadSelector, embeddings: Float[Tensor, "questions embedding_dim"]
) -> tuple[Int[np.ndarray, "questions pool"], Float[np.ndarray, "questions pool"]]:
    """Return head numbers, nearest first, and their squared distances, ascending.

    Heads at equal distance keep their order in the pool.
    """
    distances = selector.distances(embeddings).clamp_min(0).numpy()  # rounding may fall below 0
    order = np.argsort(distances, axis=1, kind="stable")
    return order, np.take_along_axis(distances, order, axis=1)


@torch.inference_mode()
def points(
    selector: HeadSelector,
    heads: Sequence[str],
    questions: Sequence[str],
    embeddings: Float[Tensor, "questions embedding_dim"],
) -> pd.DataFrame:
    """Return where the selector puts heads and questions (`headroom.tables.POINTS`)."""
    vectors = [*selector.placed_heads().numpy(), *selector.placed_questions(embeddings).numpy()]
    kinds = ["head"] * len(heads) + ["question"] * len(questions)
    return pd.DataFrame({"kind": kinds, "name": [*heads, *questions], "vector": vectors})
