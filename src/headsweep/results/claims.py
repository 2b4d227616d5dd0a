"""Which claims of the papers hold, in their own tables and in a run.

A claim is a row of ``*_claims.csv``: its words, where they stand, its kind, and the numbers that it
states, in percent. Its kind names the judge (`KINDS`); a claim without one is counted, but not
judged. Claims that one column of numbers decides are judged here: by the rows that they are about
(``table`` and ``filter``), the ``column`` and the value ``stated``.

The tables of the papers' numbers and those of a run have the same form. Numbers are fractions.
``of`` names what a row is about, in the same words for the paper and for the run. A column may have
an interval beside it (``_low``, ``_high``).
"""

from collections.abc import Mapping, Set
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from headsweep.results import compression_judges, judges
from headsweep.results import published as papers
from headsweep.results.evidence import NO_RULES, evidence
from headsweep.results.facts import read_csv, rows_of, widened
from headsweep.results.judges import OPEN, Evidence, Judge, Judgement
from headsweep.statistics.intervals import Estimate
from headsweep.store.layout import Store
from headsweep.text import percent, with_interval

COLUMNS = [
    "paper",
    "claim",
    "value",
    "where",
    "stated",
    "published",  # the verdict by the paper's own numbers
    "published_why",
    "published_value",  # the deciding number, see below
    "published_low",
    "published_high",
    "prompt",
    "grading",
    "run",  # the verdict by the run's numbers under that prompt and these grading rules
    "run_why",
    "run_value",
    "run_low",
    "run_high",
]
"""The deciding number is a fraction, with its interval; for ``no later`` it is the N, of a share of
rows the interval is what open ones leave possible."""

UNMEASURED = Judgement(OPEN, "nothing was measured of it")
UNDECIDED = Judgement(OPEN, "no number decides it")
"""Said of a claim of which the run, or the paper, has no number, and of one without a judge."""

_CLAIM = ["claim", "value", "where", "kind", "table", "filter", "column", "stated", "tolerance"]

Tables = Mapping[str, pd.DataFrame]


def claims(store: Store, published: Path) -> pd.DataFrame:
    """Judge the papers' claims by a folder of their own tables and by a run: columns `COLUMNS`.

    There is a row for each claim and each prompt and grading under which the run measured something
    of it, or one row if it measured nothing.

    Raises:
        TableError: a table is missing or damaged.
    """
    of_paper, of_run = evidence(store, published)
    rows: list[dict[str, Any]] = []
    for paper, file in papers.CLAIM_FILES.items():
        for claim in rows_of(read_csv(published / file, _CLAIM)):
            about = {"paper": paper} | {name: getattr(claim, name) for name in _CLAIM[:3]}
            theirs = UNDECIDED
            ours = {NO_RULES: UNDECIDED}
            if not pd.isna(claim.kind):
                decide = KINDS[claim.kind]
                theirs = decide(claim, of_paper) or UNMEASURED
                judged = {rules: decide(claim, found) for rules, found in of_run.items()}
                ours = {rules: judgement for rules, judgement in judged.items() if judgement}
            if claim.kind in BY_NUMBERS:
                about["stated"] = float(claim.stated) / (1 if claim.kind == "no later" else 100)
            about |= theirs.columns("published")
            for (prompt, grading), judgement in (ours or {NO_RULES: UNMEASURED}).items():
                of_rules = {"prompt": prompt, "grading": grading, **judgement.columns("run")}
                rows.append(about | of_rules)
    return pd.DataFrame(rows).reindex(columns=COLUMNS)


def _by_numbers(claim: Any, evidence: Evidence) -> Judgement | None:
    """Judge a claim by one column of numbers."""
    rows = _rows_about(evidence.tables, claim)
    if rows.empty:
        return None
    return judge(claim, rows, set(_rows_about(evidence.beside, claim)["of"]))


def _rows_about(tables: Tables, claim: Any) -> pd.DataFrame:
    table = tables.get(claim.table, pd.DataFrame({"of": []}))
    return table if pd.isna(claim.filter) or table.empty else table.query(claim.filter)


def judge(claim: Any, rows: pd.DataFrame, wanted: Set[str] = frozenset()) -> Judgement:
    """Judge a claim by rows, each of which bears it out, contradicts it or leaves it open.

    A claim about every row is refuted by one, but confirmed only by all that the paper has;
    `wanted` is what these are about (``of``).
    """
    rows = _with_numbers(rows, claim.column)
    if rows.empty:
        return UNMEASURED
    shown, refuted = _sides(claim, rows)
    needed = float(claim.stated) / 100 if claim.kind == "share" else 1.0
    least = shown.mean()
    possible = 1 - refuted.mean()
    word = OPEN
    if least >= needed:
        word = "holds"
    elif possible < needed:
        word = "fails"
    left = (~shown & ~refuted).sum()
    counted = f"true of {shown.sum()} of {len(rows)}{f', open for {left}' if left else ''}"
    largest = _largest(rows)
    match claim.kind:
        case "share":
            number = Estimate(least, least, possible)
            why = f"{counted}; taken: at least {float(claim.stated):g}%"
        case "no later":
            number = largest
            why = counted
        case _:
            number = largest
            why = _estimate_text(largest)
            if len(rows) > 1:
                why += f" at most; {counted}"
    lacking = ", ".join(sorted(wanted - set(rows["of"])))
    if lacking and needed == 1 and word != "fails":
        return Judgement(OPEN, f"nothing on {lacking}; {why}", number)
    return Judgement(word, why, number)


def _with_numbers(rows: pd.DataFrame, column: str) -> pd.DataFrame:
    """Return the rows that have a number: columns ``value``, ``low`` and ``high``.

    Without an interval it is ``exact``, and both ends are the number.
    """
    names = [column, f"{column}_low", f"{column}_high"]
    numbers = rows.reindex(columns=names).set_axis(["value", "low", "high"], axis=1)
    value = numbers["value"]
    exact = numbers["low"].isna()
    low, high = (numbers[end].fillna(value) for end in ("low", "high"))
    return rows.assign(value=value, low=low, high=high, exact=exact).dropna(subset="value")


def _largest(rows: pd.DataFrame) -> Estimate:
    """Return the number that reaches highest; an exact one has no interval."""
    row = rows.iloc[int(rows["high"].argmax())]
    if row["exact"]:
        return Estimate(row["value"], np.nan, np.nan)
    return Estimate(row["value"], row["low"], row["high"])


def _estimate_text(number: Estimate) -> str:
    if np.isnan(number.low):
        return percent(number.value)
    return with_interval(percent, number.value, number.low, number.high)


def _sides(claim: Any, rows: pd.DataFrame) -> tuple[pd.Series, pd.Series]:
    """Return which rows bear a claim out, and which contradict it.

    A printed number may differ from the stated one by the tolerance; a measured one's interval must
    contain it, and if it also contains zero, an effect is neither shown nor excluded. What is at
    most the stated number has its whole interval there. One row refutes the claim, so the intervals
    that contradict it hold for all rows at once.
    """
    low = rows["low"]
    high = rows["high"]
    measured = int((~rows["exact"]).sum())
    least, most = widened(low, high, max(1, measured))
    stated = float(claim.stated) / 100
    slack = 0.0 if pd.isna(claim.tolerance) else claim.tolerance / 100
    match claim.kind:
        case "states":
            within = np.where(rows["exact"], slack, 0)
            refuted = (stated < least - within) | (stated > most + within)
            return ~refuted & (rows["exact"] | (low > 0) | (high < 0)), refuted
        case "at most":
            return high <= stated, least > stated
        case "share":
            return low > -slack, high <= -slack
        case _:  # the N of the largest lead, and the lead
            latest = float(claim.stated)
            early = (high <= latest) & (rows["lead_low"] > 0)
            return early, (low > latest) | (rows["lead_high"] < 0)


BY_NUMBERS = ("states", "at most", "share", "no later")
KINDS: Mapping[str, Judge] = {
    **dict.fromkeys(BY_NUMBERS, _by_numbers),
    **judges.JUDGES,
    **compression_judges.JUDGES,
}
"""The judge of each kind of claim."""
