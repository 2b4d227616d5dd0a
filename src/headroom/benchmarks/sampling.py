"""Drawing a question set from a split.

Each method orders the split and takes the first n, so growing n keeps the questions drawn before.
"""

import hashlib

import numpy as np
import pandas as pd

from headroom.config import Questions
from headroom.errors import BenchmarkError

CLUSTERS = 7
"""Number of clusters: one for each subject of MATH, as in the SPRINT authors' code."""


def draw(source: pd.DataFrame, questions: Questions, vectors: np.ndarray | None) -> pd.DataFrame:
    """Draw the n questions that a config asks for, in the order of the source.

    - ``first``: the first n.
    - ``uniform``: the n with the smallest hash of seed and id. The order of the split does not
      matter, so hub and file give the same questions.
    - ``clusters``: k-means over question embeddings; the clusters then take turns, each with its
      next question in the order of ``uniform``. All thus give the same number where they can, as in
      the authors' code (HieuNT91/attention_pruning, ``cluster_and_subsample.py``), which chooses
      within a cluster by a determinantal point process that is not published.

    Args:
        source: a split, in the columns of `tables.QUESTIONS`.
        questions: n, sampling and seed.
        vectors: question embeddings [questions, embedding_dim], needed by ``clusters``.

    Raises:
        BenchmarkError: the split has fewer than n questions.
    """
    n = questions.n
    if n is None:
        return source
    if n > len(source):
        raise BenchmarkError(
            f"n: {n} questions are requested, but {questions.benchmark}/{questions.split} has "
            f"{len(source)}; lower n"
        )
    if questions.sampling == "first":
        order = np.arange(len(source))
    else:
        names = (f"{questions.seed}/{question_id}" for question_id in source["question_id"])
        order = np.argsort([hashlib.sha256(name.encode()).hexdigest() for name in names])
        if questions.sampling == "clusters":
            assert vectors is not None
            members = pd.Series(_clusters(vectors, questions.seed)[order])
            turn = members.groupby(members).cumcount()
            order = order[np.lexsort((members, turn))]
    return source.iloc[np.sort(order[:n])].reset_index(drop=True)


def _clusters(vectors: np.ndarray, seed: int) -> np.ndarray:
    from sklearn.cluster import KMeans  # slow to import
    from threadpoolctl import threadpool_limits

    model = KMeans(n_clusters=min(CLUSTERS, len(vectors)), random_state=seed)
    with threadpool_limits(1):  # the order in which threads sum would change the last digits
        return model.fit_predict(np.asarray(vectors, dtype=np.float64))
