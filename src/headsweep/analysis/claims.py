"""Which claims of the papers hold, in their own tables and in a run.

A claim is a row of ``*_claims.csv``. Where one number decides it, the row says which: the rows it
is about (``table`` and ``filter``), the ``column``, what it states, in percent, and its ``kind``,
which names the judge. Others have a judge of their own (`headsweep.analysis.judges` and
`headsweep.analysis.compression_judges`). A claim
without either is not judged, only counted.

The tables of the papers' numbers and of a run's have the same form. Numbers are fractions. ``of``
names what a row is about, alike in the paper's and the run's row. A column may have its interval
(``_low``, ``_high``) beside it.
"""

from collections.abc import Mapping, Set
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from headsweep.analysis import compression_judges
from headsweep.analysis import published as papers
from headsweep.analysis.compression_evidence import of_run, printed
from headsweep.analysis.evidence import Rules, evidence
from headsweep.analysis.facts import read_csv, rows_of
from headsweep.analysis.judges import JUDGES, OPEN, Evidence, Judge, Judgement
from headsweep.config import Config
from headsweep.text import percent

COLUMNS = ["paper", "claim", "value", "where", "stated", "published", "published_why"]
COLUMNS += ["published_value", "published_low", "published_high"]
COLUMNS += ["prompt", "grading", "run", "run_why", "run_value", "run_low", "run_high"]
"""Columns: the claim and where it stands; the verdict by the paper's own numbers and by the run's
under a prompt and grading rules, each with why and the deciding number with its interval, as a
fraction (for ``no later`` the N; of a share of rows what open ones leave possible)."""

UNMEASURED = Judgement(OPEN, "nothing was measured of it")
UNDECIDED = Judgement(OPEN, "no number decides it")
"""Said of a claim of which the run, or the paper, has no number, and of one without a judge."""

_CLAIM = ["claim", "value", "where", "kind", "table", "filter", "column", "stated", "tolerance"]

Tables = Mapping[str, pd.DataFrame]


def claims(config: Config, published: Path) -> pd.DataFrame:
    """Judge the papers' claims by a folder of their own tables and by a run: columns `COLUMNS`.

    There is a row for each claim and each prompt and grading under which the run measured something
    of it, or one row if it measured nothing.

    Raises:
        TableError: a table is missing or damaged.
    """
    own = evidence(config, published)
    paper = own.pop(("", ""))
    compressions = printed(papers.conditions(published)), of_run(config)
    rows: list[dict[str, Any]] = []
    for of, file in papers.CLAIMS.items():
        for claim in rows_of(read_csv(published / file, _CLAIM)):
            said = {"paper": of} | {name: getattr(claim, name) for name in _CLAIM[:3]}
            found: dict[Rules, dict[str, Any]] = {}
            theirs = UNDECIDED.cells()
            if claim.claim in JUDGES:
                theirs, found = _decided(JUDGES[claim.claim], paper, own)
            elif claim.claim in compression_judges.JUDGES:
                decide = compression_judges.JUDGES[claim.claim]
                one, two = (compression_judges.judged(decide, each) for each in compressions)
                theirs = (one or UNMEASURED).cells()
                found = {("", ""): (two or UNMEASURED).cells()}
            elif not pd.isna(claim.kind):
                said["stated"] = claim.stated / (1 if claim.kind == "no later" else 100)
                asked = _rows_about(paper.tables, claim)
                theirs = judge(claim, asked)
                wanted = set(asked["of"])
                about = ((how, _rows_about(each.tables, claim)) for how, each in own.items())
                found = {how: judge(claim, part, wanted) for how, part in about if len(part)}
                found = found or {("", ""): judge(claim, asked.head(0))}
            said |= {f"published{name}": value for name, value in theirs.items()}
            for (prompt, grading), ours in (found or {("", ""): UNDECIDED.cells()}).items():
                here = {f"run{name}": value for name, value in ours.items()}
                rows.append({**said, "prompt": prompt, "grading": grading, **here})
    return pd.DataFrame(rows).reindex(columns=COLUMNS)


def _decided(
    decide: Judge, paper: Evidence, own: Mapping[Rules, Evidence]
) -> tuple[dict[str, Any], dict[Rules, dict[str, Any]]]:
    """Return what a judge says of a claim by the paper's numbers, and by the run's, by rules."""
    theirs = decide(paper) or UNMEASURED
    found = {how: decide(each) for how, each in own.items()}
    ours = {how: judgement.cells() for how, judgement in found.items() if judgement}
    return theirs.cells(), ours or {("", ""): UNMEASURED.cells()}


def _rows_about(tables: Tables, claim: Any) -> pd.DataFrame:
    found = tables.get(claim.table, pd.DataFrame({"of": []}))
    return found if pd.isna(claim.filter) or found.empty else found.query(claim.filter)


def judge(claim: Any, rows: pd.DataFrame, wanted: Set[str] = frozenset()) -> dict[str, Any]:
    """Judge a claim by rows, each of which bears it out, contradicts it or leaves it open.

    A claim about every row is refuted by one, but confirmed only by all that the paper has;
    `wanted` is what these are about (``of``).

    Returns:
        The verdict (key ""), ``_why``, and the deciding number: ``_value``, and its interval
        ``_low`` and ``_high``.
    """
    names = [f"{claim.column}{end}" for end in ("", "_low", "_high")]
    numbers = rows.reindex(columns=names).set_axis(["value", "low", "high"], axis=1)
    exact = numbers["low"].isna()
    numbers = numbers.assign(
        **{end: numbers[end].fillna(numbers["value"]) for end in ("low", "high")}
    )
    rows = rows.assign(**numbers, exact=exact).dropna(subset="value")
    if rows.empty:
        return UNMEASURED.cells()
    shown, refuted = _sides(claim, rows)
    needed = claim.stated / 100 if claim.kind == "share" else 1.0
    least = shown.mean()
    possible = 1 - refuted.mean()
    word = "holds" if least >= needed else "fails" if possible < needed else OPEN
    left = (~shown & ~refuted).sum()
    why = f"true of {shown.sum()} of {len(rows)}{f', open for {left}' if left else ''}"
    last = rows.iloc[int(rows["high"].argmax())]
    found = {f"_{name}": last[name] for name in ("value", "low", "high")}
    if last["exact"]:
        found |= {"_low": np.nan, "_high": np.nan}
    if claim.kind == "share":
        why += f"; taken: at least {claim.stated:g}%"
        found = {"_value": least, "_low": least, "_high": possible}
    elif claim.kind != "no later":
        interval = "" if last["exact"] else f" ({percent(last['low'])} to {percent(last['high'])})"
        why = f"{percent(last['value'])}{interval}" + f" at most; {why}" * (len(rows) > 1)
    lacking = ", ".join(sorted(wanted - set(rows["of"])))
    if lacking and needed == 1 and word != "fails":
        word = OPEN
        why = f"nothing on {lacking}; {why}"
    return {"": word, "_why": why, **found}


def _sides(claim: Any, rows: pd.DataFrame) -> tuple[pd.Series, pd.Series]:
    """Return which rows bear a claim out, and which contradict it.

    A printed number may differ from the stated one by the tolerance; a measured one's interval must
    contain it, and if it also contains zero, an effect is neither shown nor excluded.
    """
    low = rows["low"]
    high = rows["high"]
    stated = claim.stated / 100
    slack = 0.0 if pd.isna(claim.tolerance) else claim.tolerance / 100
    match claim.kind:
        case "states":
            within = np.where(rows["exact"], slack, 0)
            refuted = (stated < low - within) | (stated > high + within)
            return ~refuted & (rows["exact"] | (low > 0) | (high < 0)), refuted
        case "at most":
            return low <= stated, low > stated
        case "share":
            return low > -slack, high <= -slack
        case _:  # the N of the largest lead, and the lead
            early = (high <= claim.stated) & (rows["lead_low"] > 0)
            return early, (low > claim.stated) | (rows["lead_high"] < 0)
