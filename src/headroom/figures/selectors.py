"""The tables of a selector as text: whether the question embedding matters, diversity and cost."""

from pathlib import Path
from typing import Any

import pandas as pd

from headroom.figures.listing import listing, rows_of
from headroom.figures.tables import read_csv
from headroom.figures.text import percent, points

EMBEDDING = ["method", "questions", "pool", "heads", "against", "n", "sprint", "other"]
EMBEDDING += ["difference", "low", "high", "p"]
"""Columns of whether the embedding matters, see `headroom.sprint.matching`."""

DIVERSITY = ["method", "n", "pass_at_n", "distinct_answers", "distinct_low", "distinct_high"]
DIVERSITY += ["agreement", "agreement_low", "agreement_high", "tokens", "longest"]
"""Columns of diversity and cost, see `headroom.sprint.evaluation`."""

EMBEDDING_CAPTION = (
    "Pass@N of SPRINT, in percent, beside what does not know the question: SPRINT with the "
    "questions' embeddings shuffled (exact mean over all permutations; p: one-sided, 10,000 "
    "permutations), the greedy cover, which is the same heads for every question, and heads drawn "
    "from the pool. Differences in percentage points with paired 95% bootstrap intervals over "
    "questions. Held-out training questions: the chosen setting trained again without them; it was "
    "chosen on them, which favours SPRINT. Heads as accurate as base: exact McNemar test on "
    "training questions, p ≥ 0.05. Mean: over N = 1 to the largest."
)
"""What the table of the embedding shows."""

DIVERSITY_CAPTION = (
    "Diversity and cost of N answers, means over questions: distinct final answers by value and "
    "share of pairs that agree, with 95% bootstrap intervals; generated tokens of all answers, and "
    "of the longest: the steps that N answers take side by side. A method with fewer answers than "
    "N stays at its last value."
)
"""What the table of diversity shows."""

_ALPHA = 0.05


def read_embedding(path: Path) -> pd.DataFrame:
    """Read whether the embedding matters.

    Raises:
        TableError: the file is missing or has other columns.
    """
    return read_csv(path, EMBEDDING).astype({"n": str})


def read_diversity(path: Path) -> pd.DataFrame:
    """Read diversity and cost.

    Raises:
        TableError: the file is missing or has other columns.
    """
    return read_csv(path, DIVERSITY)


def embedding_sentence(table: pd.DataFrame) -> str:
    """Say in one sentence whether the question embedding matters on the test questions.

    Judged by the mean of Pass@1..max_n, one number, so that no N is picked.

    Args:
        table: columns `EMBEDDING`.
    """
    mean = table[(table["questions"] == "test") & (table["n"] == "mean")]
    simpler = _simpler(mean)
    mean = mean[mean["method"] == "SPRINT"]
    of_all = mean[mean["pool"] == "all heads"].set_index("against")
    shuffled, cover = (_row(of_all, name) for name in ("shuffled questions", "greedy cover"))
    matters = shuffled.p < _ALPHA and shuffled.low > 0
    verdict = "the question embedding matters" if matters else "no effect of it is shown"
    text = (
        f"Ranking heads by a question's own embedding, not another question's, changes the mean of "
        f"Pass@N by {_difference(shuffled)}, permutation p = {shuffled.p:.3f}: {verdict}; against "
        f"the same heads for every question (greedy cover) it changes by {_difference(cover)}"
    )
    equal = mean[mean["pool"] == "heads as accurate as base"].set_index("against")
    if equal.empty:
        return f"{text}.{simpler}"
    kept = _row(equal, "shuffled questions")
    return (
        f"{text}; among the {kept.heads} heads that are as accurate as base the embedding changes "
        f"{_difference(kept)}, p = {kept.p:.3f}.{simpler}"
    )


def _simpler(mean: pd.DataFrame) -> str:
    """Say what simpler methods on the same questions reach, by the mean of Pass@1..max_n."""
    shown = mean[(mean["pool"] == "all heads") & (mean["against"] == "shuffled questions")]
    told = [
        f"{row.method} {percent(row.sprint)} ({points(row.difference)} over shuffled questions, "
        f"p = {row.p:.3f})"
        for row in rows_of(shown)
    ]
    return f" Means of Pass@N: {'; '.join(told)}." if len(told) > 1 else ""


def embedding_text(table: pd.DataFrame, selector: str) -> dict[str, str]:
    """Return whether the embedding matters as text, by suffix: md, tex."""
    header = ["method", "questions", "pool", "against", "heads", "N", "own", "other", "difference"]
    header += ["95% interval", "p"]
    rows = [
        [
            row.method,
            row.questions,
            row.pool,
            row.against,
            str(row.heads),
            row.n,
            percent(row.sprint)[:-1],
            percent(row.other)[:-1],
            points(row.difference),
            f"{points(row.low)} to {points(row.high)}",
            "–" if pd.isna(row.p) else f"{row.p:.3f}",
        ]
        for row in rows_of(table)
    ]
    texts = listing(header, rows, f"{selector}: {EMBEDDING_CAPTION}", texts=4)
    return texts | {"md": f"{embedding_sentence(table)}\n\n{texts['md']}"}


def diversity_text(table: pd.DataFrame, selector: str) -> dict[str, str]:
    """Return diversity and cost as text, by suffix: md, tex."""
    header = ["method", "N", "Pass@N (%)", "distinct answers", "95% interval", "agreement (%)"]
    header += ["95% interval", "tokens", "longest"]
    rows = [
        [
            row.method,
            str(row.n),
            percent(row.pass_at_n)[:-1],
            f"{row.distinct_answers:.2f}",
            f"{row.distinct_low:.2f} to {row.distinct_high:.2f}",
            *_agreement(row),
            f"{row.tokens:.0f}",
            f"{row.longest:.0f}",
        ]
        for row in rows_of(table)
    ]
    return listing(header, rows, f"{selector}: {DIVERSITY_CAPTION}", texts=1)


def _agreement(row: Any) -> tuple[str, str]:
    if pd.isna(row.agreement):
        return "–", "–"
    low, high = percent(row.agreement_low)[:-1], percent(row.agreement_high)[:-1]
    return percent(row.agreement)[:-1], f"{low} to {high}"


def _row(table: pd.DataFrame, against: str) -> Any:
    (row,) = rows_of(table.loc[[against]])
    return row


def _difference(row: Any) -> str:
    return f"{points(row.difference)} points (95% interval {points(row.low)} to {points(row.high)})"
