"""Draws of questions from a benchmark's split."""

import hashlib

import numpy as np
import pandas as pd

from headsweep.config import Questions
from headsweep.errors import BenchmarkError


def draw(source: pd.DataFrame, questions: Questions, vectors: np.ndarray | None) -> pd.DataFrame:
    """Draw the n questions that a config asks for, in the order of the source.

    Each method orders the split and takes the first n, so growing n keeps those drawn before.

    - ``first``: the first n.
    - ``uniform``: the n with the smallest hash of seed and id. The order of the split does not
      matter, so hub and file give the same questions.
    - ``clusters``: k-means over question embeddings; its clusters then take turns, each with its
      next question in the order of ``uniform``. All thus give the same number where they can, as in
      the authors' code (HieuNT91/attention_pruning, ``cluster_and_subsample.py``), which chooses
      within a cluster by a determinantal point process that is not published.
    - ``stratified``: of every subject and level its share of n, to within one question; inside
      them in the order of ``uniform``.

    Args:
        source: a split, in the columns of `tables.QUESTIONS`.
        questions: n, sampling, clusters and seed.
        vectors: question embeddings [questions, embedding_dim], needed by ``clusters``.

    Raises:
        BenchmarkError: the split has fewer than n questions, or not a row that is left out.
    """
    n = questions.n
    if questions.leave_out:
        rows = source["source_row"]
        if missing := set(questions.leave_out) - set(rows):
            raise BenchmarkError(
                f"leave_out: there is no row {min(missing)} in {questions.origin}; choose from "
                f"0 to {rows.max()}"
            )
        left = ~rows.isin(questions.leave_out).to_numpy()
        source = source[left].reset_index(drop=True)
        vectors = None if vectors is None else vectors[left]
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
            members = pd.Series(_clusters(vectors, questions)[order])
            turn = members.groupby(members).cumcount()
            order = order[np.lexsort((members, turn))]
        elif questions.sampling == "stratified":
            order = order[_by_share(source[["subject", "level"]].iloc[order])]
    return source.iloc[np.sort(order[:n])].reset_index(drop=True)


def _by_share(strata: pd.DataFrame) -> np.ndarray:
    """Return an order of rows of which every first part has each stratum's share.

    The k-th row of a stratum of s rows comes where (k - 1/2) / s of all rows have been taken.
    """
    grouped = strata.groupby(list(strata.columns), dropna=False)
    size = grouped.transform("size")
    share = (grouped.cumcount() + 0.5) / size
    return np.argsort(share.to_numpy(), kind="stable")


def _clusters(vectors: np.ndarray, questions: Questions) -> np.ndarray:
    from sklearn.cluster import KMeans  # slow to import
    from threadpoolctl import threadpool_limits

    count = min(questions.clusters, len(vectors))
    model = KMeans(n_clusters=count, random_state=questions.seed)
    with threadpool_limits(1):  # the order in which threads sum would change the last digits
        return model.fit_predict(np.asarray(vectors, dtype=np.float64))
