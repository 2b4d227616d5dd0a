"""What a run found, in numbers and computed sentences."""

from dataclasses import dataclass
from typing import Any

import pandas as pd

from headroom.figures.curves import ORACLE, SPRINT, largest_n, told
from headroom.figures.text import percent, points
from headroom.variants import BASE


@dataclass(frozen=True)
class Finding:
    """One headline number."""

    label: str
    value: str
    note: str


@dataclass(frozen=True)
class PassAtN:
    """Pass@N as the page shows it: a sentence at some N, and a table at powers of two."""

    sentences: list[str]
    shown: list[int]
    rows: list[dict[str, Any]]


def findings(cells: pd.DataFrame) -> list[Finding]:
    """Return the headline numbers of a sweep: base, best, median and worst head.

    Args:
        cells: as `headroom.figures.gains.cells` returns them.
    """
    overall = cells[cells["by"] == "overall"]
    base = overall[overall["variant"] == str(BASE)].iloc[0]
    pruned = overall[overall["variant"] != str(BASE)]
    median = float(pruned["gain"].median())
    best, worst = pruned["correct"].max(), pruned["correct"].min()
    return [
        Finding(
            "Base model",
            percent(base["accuracy"]),
            f"{base['correct']} of {base['n']} questions right, nothing pruned",
        ),
        Finding(
            "Median head pruned",
            percent(float(pruned["accuracy"].median())),
            f"{points(median)} points; free of selection ({len(pruned)} heads)",
        ),
        _extreme("Best head pruned", pruned[pruned["correct"] == best], "a maximum", len(pruned)),
        _extreme("Worst head pruned", pruned[pruned["correct"] == worst], "a minimum", len(pruned)),
    ]


def pass_at_n(table: pd.DataFrame, paired: pd.DataFrame) -> PassAtN:
    """Return what the Pass@N curves say.

    Args:
        table: rows of `headroom.tables.CURVES`.
        paired: SPRINT minus each method, see `headroom.figures.curves.PAIRED_COLUMNS`.
    """
    limit = largest_n(table)
    sentences = [sentence(table, paired, n) for n in told(n for n in paired["n"] if n <= limit)]
    shown = [n for n in (1, 2, 4, 8, 16) if n <= limit]
    rows = []
    for method, part in table.groupby("method", sort=False):
        part = part.set_index("n")
        last = part.loc[max(n for n in part.index if n <= max(limit, part.index.min()))]
        values = [part.loc[n] if n in part.index else None for n in shown]
        rows.append(
            {
                "method": method,
                "points": [
                    None if value is None else (value["pass_at_n"], value["low"], value["high"])
                    for value in values
                ],
                **{
                    column: None if pd.isna(last[column]) else float(last[column])
                    for column in ("majority", "distinct_answers", "agreement", "tokens")
                },
            }
        )
    return PassAtN([text for text in sentences if text], shown, rows)


def sentence(table: pd.DataFrame, paired: pd.DataFrame, n: int) -> str:
    """Say how SPRINT compares with the best other method at N, whichever wins.

    A lead is claimed only when the 95% interval of the paired difference leaves out zero. Returns
    an empty sentence where SPRINT or every other method is missing.
    """
    at = table[table["n"] == n].set_index("method")
    others = at.drop(index=[SPRINT, ORACLE], errors="ignore")
    if SPRINT not in at.index or others.empty:
        return ""
    own = at.loc[[SPRINT]].iloc[0]
    best = others.sort_values("pass_at_n", kind="stable").iloc[-1]
    text = (
        f"At N = {n}, SPRINT answers {percent(own['pass_at_n'])} of the questions "
        f"({percent(own['low'])} to {percent(own['high'])}); the best other method, "
        f"{best.name}, answers {percent(best['pass_at_n'])}"
    )
    found = paired[(paired["method"] == best.name) & (paired["n"] == n)]
    if found.empty:
        return f"{text}; no paired interval was computed."
    difference, low, high = (float(found[c].iloc[0]) for c in ("difference", "low", "high"))
    result = "neither is shown to be better"
    if low > 0 or high < 0:
        result = "SPRINT is ahead" if low > 0 else "SPRINT is behind"
    interval = f"{points(difference)} points, 95% interval {points(low)} to {points(high)}"
    return f"{text}. Difference {interval}: {result}."


def _extreme(label: str, tied: pd.DataFrame, note: str, heads: int) -> Finding:
    first = tied.iloc[0]
    more = f" and {len(tied) - 1} more" if len(tied) > 1 else ""
    return Finding(
        label,
        percent(first["accuracy"]),
        f"{first['variant']}{more}: {points(first['gain'])} points; {note} over {heads} heads",
    )
