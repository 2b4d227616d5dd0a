"""The table of choosing as text: how much of Pass@N is left where nobody knows the right answer."""

from pathlib import Path
from typing import Any

import pandas as pd

from headroom.figures.listing import listing, rows_of
from headroom.figures.tables import read_csv
from headroom.figures.text import percent, points

COLUMNS = ["method", "rule", "n", "accuracy", "low", "high"]
COLUMNS += ["recovered", "recovered_low", "recovered_high"]
COLUMNS += ["over_majority", "over_low", "over_high"]
"""Columns of the table, see `headroom.sprint.choosing`."""

RULES = {
    "oracle": "oracle (Pass@N)",
    "first": "first answer",
    "majority": "majority",
    "agreement": "majority, by agreement",
    "verifier": "verifier",
}
"""The rules, as tables name them."""

CAPTION = (
    "One answer chosen among N without an oracle, in percent of the questions, with 95% bootstrap "
    "intervals over questions. Recovered: of Pass@N, the questions that one of the N answers "
    "solves. First answer: that of the nearest head; a single sample. Majority: most votes; of "
    "equals the nearest head's, of samples any. By agreement: a vote counts as much as its head "
    "agreed with the others on training questions. Verifier: a logistic regression on votes, rank "
    "and length, fitted to held-out training questions. Right answers count as equal however they "
    "are written."
)
"""What the table shows."""

_SHOWN_N = 8


def read_choosing(path: Path) -> pd.DataFrame:
    """Read how much of Pass@N the rules recover.

    Raises:
        TableError: the file is missing or has other columns.
    """
    return read_csv(path, COLUMNS)


def choosing_sentence(table: pd.DataFrame) -> str:
    """Say what choosing among SPRINT's heads costs, and whether the verifier beats the majority.

    At N = 8, or at the largest N where there are fewer.

    Args:
        table: columns `COLUMNS`.
    """
    own = table[table["method"] == table["method"].iloc[0]]
    n = max(value for value in own["n"] if value <= _SHOWN_N)
    at = {row.rule: row for row in rows_of(own[own["n"] == n])}
    majority, first, verifier = at["majority"], at["first"], at["verifier"]
    clear = verifier.over_low > 0 or verifier.over_high < 0
    verdict = (
        ("better" if verifier.over_majority > 0 else "worse") if clear else "no difference is shown"
    )
    return (
        f"Without an oracle, the majority of the {n} nearest heads answers "
        f"{percent(majority.accuracy)} of the questions ({percent(majority.low)} to "
        f"{percent(majority.high)}), {percent(majority.recovered)} of Pass@{n}, the nearest head "
        f"alone {percent(first.accuracy)}; a verifier fitted to training questions changes the "
        f"majority's by {points(verifier.over_majority)} points (95% interval "
        f"{points(verifier.over_low)} to {points(verifier.over_high)}): {verdict}."
    )


def choosing_text(table: pd.DataFrame, selector: str) -> dict[str, str]:
    """Return how much of Pass@N the rules recover as text, by suffix: md, tex."""
    header = ["answers of", "chosen by", "N", "right (%)", "95% interval"]
    header += ["recovered (%)", "95% interval", "over majority", "95% interval"]
    rows = [
        [
            row.method,
            RULES[row.rule],
            str(row.n),
            *_percentages(row.accuracy, row.low, row.high),
            *_percentages(row.recovered, row.recovered_low, row.recovered_high),
            points(row.over_majority),
            f"{points(row.over_low)} to {points(row.over_high)}",
        ]
        for row in rows_of(table)
    ]
    texts = listing(header, rows, f"{selector}: {CAPTION}", texts=2)
    return texts | {"md": f"{choosing_sentence(table)}\n\n{texts['md']}"}


def _percentages(value: Any, low: Any, high: Any) -> tuple[str, str]:
    return percent(value)[:-1], f"{percent(low)[:-1]} to {percent(high)[:-1]}"
