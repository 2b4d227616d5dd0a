"""Does the question embedding matter? SPRINT compared with methods that ignore the question.

A selector that ranks heads by the question's embedding is compared with three that do not use the
question: itself with the questions' embeddings shuffled and all else equal; the greedy cover, which
takes the same heads for every question; and heads drawn from the pool.
"""

import numpy as np
import pandas as pd

from headroom.sprint.evaluation import estimated, points
from headroom.sprint.methods import COVER
from headroom.sprint.rankers import greedy_cover
from headroom.sprint.validation import Order, Z
from headroom.statistics.answers import pass_at_n_drawn, pass_at_n_ordered
from headroom.statistics.intervals import Bootstrap

COLUMNS = ["method", "questions", "pool", "heads", "against", "n", "sprint", "other"]
COLUMNS += ["difference", "low", "high", "p"]
"""Columns of the table: Pass@N of the method and of the other, their paired difference with its 95%
interval, and, against shuffled questions, the p-value. `n` is one of
`headroom.sprint.evaluation.POINTS` or its `MEAN`."""

SHUFFLED, DRAWN = "shuffled questions", "heads drawn from the pool"
ALL = "all heads"

_PERMUTATIONS = 10_000
_BLOCK = 500  # permutations at once; bounds memory


def compare(
    method: str,
    correct: Z,
    order: Order,
    train: Z,
    max_n: int,
    bootstrap: Bootstrap,
    seed: int,
) -> pd.DataFrame:
    """Compare a method with those that do not use the question: columns `COLUMNS`.

    `correct` is Z of the test questions, `order` the method's ranking for each of them; the greedy
    cover is that of Z of the training questions. The seed decides the permutations.
    """
    # Position of the first right head of each question (row) under the ranking of each (column);
    # all from max_n on count the same.
    place = np.argsort(order, axis=1).astype(np.int16)
    first = np.full((len(correct), len(order)), max_n, np.int16)
    for head, solved in enumerate(correct.T):
        first[solved] = np.minimum(first[solved], place[:, head])
    # Row: position of a ranking's first right head. Column: Pass@N of that ranking.
    labels, worth = points(np.triu(np.ones((max_n + 1, max_n))))
    own = worth[np.diagonal(first)]
    others = {
        # The mean over all rankings is the exact expectation over permutations.
        SHUFFLED: worth[first].mean(axis=1),
        COVER: points(pass_at_n_ordered(correct[:, greedy_cover(train)], max_n))[1],
        DRAWN: points(pass_at_n_drawn(correct, max_n))[1],
    }
    # A one-sided test: the share of permutations of the questions that score as well.
    draw, beyond, rows = np.random.default_rng(seed), 1, np.arange(len(first))
    for _ in range(_PERMUTATIONS // _BLOCK):
        shuffled = draw.permuted(np.broadcast_to(rows, (_BLOCK, len(rows))), axis=1)
        scored = worth[first[rows, shuffled]].sum(axis=1)
        beyond = beyond + (scored >= own.sum(axis=0) - 1e-9).sum(axis=0)
    tables = []
    for against, other in others.items():
        table = pd.DataFrame({"n": labels, "against": against, "method": method})
        table = table.assign(**estimated(own - other, bootstrap, "difference", "low", "high"))
        table["sprint"], table["other"] = own.mean(axis=0), other.mean(axis=0)
        table["p"] = beyond / (1 + _PERMUTATIONS) if against == SHUFFLED else np.nan
        tables.append(table.assign(questions="test", pool=ALL, heads=correct.shape[1]))
    return pd.concat(tables, ignore_index=True)[COLUMNS]
