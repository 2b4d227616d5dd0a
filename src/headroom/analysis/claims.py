"""Which claims of the papers hold: in their own tables, and in a run.

A claim is a row of ``*_claims.csv``: what it is about (``table`` and ``filter``, see
`headroom.analysis.claims_tables`), which ``column`` decides it, what it states, in percent, and its
``kind``, which names the judge. One without a kind cannot be judged by numbers.
"""

from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pandas as pd

from headroom.analysis.claims_tables import WANTED, Tables, measured, printed
from headroom.analysis.published import COMPRESSION_CLAIMS, SPRINT_CLAIMS
from headroom.analysis.sheet import Sheet, joined, name, percentage, read_csv, rows_of
from headroom.config import Config

COLUMNS = ["paper", "claim", "value", "where", "published", "published_why"]
COLUMNS += ["prompt", "grading", "run", "run_why"]
"""Columns: the claim, what it states and where; what the paper's own numbers say of it, and why;
what the run's say under which prompt and grading rules (empty where it measured nothing of it)."""

_PAPERS = {
    "SPRINT": (SPRINT_CLAIMS, "SPRINT (arXiv 2506.03978)"),
    "compression": (
        COMPRESSION_CLAIMS,
        "Dynamic pruning and distillation (arXiv 2511.17577)",
    ),
}
_ABOVE = {"kept": "not below", "of_errors": "per error of the base model above"}
_NO_NUMBER = "no number decides it"
_FEW = 4  # rows that a reason lists
_JUDGED = ["kind", "table", "filter", "column", "stated", "tolerance"]

Word = Literal["holds", "fails", "cannot be judged"]
Verdict = tuple[Word, str]
"""Whether a claim holds, and why."""


def claims(config: Config, folder: Path) -> pd.DataFrame:
    """Judge every claim of both papers.

    Args:
        config: of the run.
        folder: where the published tables lie.

    Returns:
        One row a claim, prompt and grading rules, with `COLUMNS`.

    Raises:
        TableError: a table is missing or damaged.
    """
    paper = printed(folder)
    own = measured(config, paper)
    rows = []
    for of, (file, _) in _PAPERS.items():
        for claim in rows_of(read_csv(folder / file, ["claim", "value", "where", *_JUDGED])):
            printed_verdict: Verdict = "cannot be judged", _NO_NUMBER
            here = {("", ""): printed_verdict}
            if not pd.isna(claim.kind):
                asked = _asked(paper, claim)
                if len(asked):
                    printed_verdict = judge(claim, asked, asked, "the paper prints")
                found = {how: _asked(tables, claim) for how, tables in own.items()}
                found = {how: table for how, table in found.items() if len(table)} or {
                    ("", ""): _asked({}, claim)
                }
                here = {how: judge(claim, t, asked, "the run has") for how, t in found.items()}
            said = of, claim.claim, claim.value, claim.where, *printed_verdict
            rows += [(*said, *how, *verdict) for how, verdict in here.items()]
    return pd.DataFrame(rows, columns=COLUMNS)


def judge(claim: Any, rows: pd.DataFrame, paper: pd.DataFrame, where: str) -> Verdict:
    """Judge a claim.

    Args:
        claim: a row of the claims.
        rows: what there is about it.
        paper: what the paper has about it.
        where: whose rows these are, as a sentence starts that says what is not there.
    """
    own, asked = set(rows["of"]), list(dict.fromkeys(paper["of"]))
    lacking = [of for of in asked if of not in own]
    every = claim.kind in _OF_ALL + _OF_EACH
    lacks = f"{where} no {' and no '.join(lacking) if every and lacking else WANTED[claim.table]}"
    decide = _JUDGES[claim.kind]
    if rows.empty or (lacking and claim.kind in _OF_ALL):
        return "cannot be judged", lacks
    places = {of: place for place, of in enumerate(asked)}
    if claim.kind in _OF_ALL:  # in the order in which the claim states them
        rows = rows[rows["of"].isin(asked)].sort_values(
            "of", key=lambda of: of.map(places), kind="stable"
        )
    verdict, why = decide(claim, rows)
    if lacking and claim.kind in _OF_EACH and verdict != "fails":
        return "cannot be judged", f"{lacks}; {why}"
    return verdict, why


def claims_sheets(table: pd.DataFrame, run: str) -> dict[str, Sheet]:
    """Return the claims that numbers decide as text, a table a paper; the others are counted.

    Args:
        table: as `claims` returns it.
        run: name of the run.
    """
    decided = table[(table[["published_why", "run_why"]] != _NO_NUMBER).any(axis=1)]
    others = len(table) - len(decided)
    columns = (
        ("claim", name("claim")),
        ("stated", name("value")),
        ("in the paper's own numbers", joined(name("published"), ": ", name("published_why"))),
        (f"in run {run}", lambda row: f"{row.run}: {_under(row)}{row.run_why}"),
    )
    caption = (
        "{}. Claims that numbers decide: whether they hold in the paper's own tables (and, for the "
        "second paper, in arithmetic), and in this run. Intervals are 95%. Where the paper names "
        "no number, the one taken is stated. A claim about a model holds only as measured on that "
        "model, on MATH-500, under the prompt and grading rules that are named; the paper's are "
        "those of the authors. The best of many heads gains by selection alone, and noise alone "
        f"raises some heads above their base model. {others} claims of both papers cannot be "
        "judged by numbers."
    )
    return {
        title: Sheet.of(
            decided[decided["paper"] == of],
            columns,
            caption.format(title),
            texts=4,
            widths=(0.24, 0.13, 0.26, 0.26),
        )
        for of, (_, title) in _PAPERS.items()
    }


def _under(claim: Any) -> str:
    """Say under which prompt and grading rules a claim is judged."""
    known = not pd.isna(claim.prompt) and claim.prompt
    return f"(prompt {claim.prompt}, grading {claim.grading}) " if known else ""


def _asked(tables: Tables, claim: Any) -> pd.DataFrame:
    """Return the rows that a claim is about; none where the table is not there."""
    found = tables.get(claim.table, pd.DataFrame({"of": []}))
    return found if pd.isna(claim.filter) or found.empty else found.query(claim.filter)


def _states(claim: Any, rows: pd.DataFrame) -> Verdict:
    """Judge: these numbers stand in the rows, each in its own cell, or one of them in all.

    A printed number may differ by the tolerance; the interval of a measured one has to hold what is
    stated. An interval that also holds no effect leaves the claim open.
    """
    columns = claim.column.split()
    value, low, high, null, most = (
        _cells(rows, [f"{column}{end}" for column in columns])
        for end in ("", "_low", "_high", "_null", "_most")
    )
    stated = np.array(_numbers(claim.stated)) * np.ones(len(value))
    spread = np.where(np.isnan(low), _numbers(claim.tolerance)[0], 0)
    low, high = (np.where(np.isnan(low), value, end) for end in (low, high))
    why = _listed(np.repeat(rows["name"], len(columns)), value, low, high)
    beyond = value > most
    if beyond.any():
        limits = ", ".join(f"{percentage(limit)}%" for limit in most[beyond])
        return "fails", f"{why}; removing these heads saves at most {limits} (arithmetic)"
    if ((stated < low - spread) | (stated > high + spread)).any():
        return "fails", why
    if np.isnan(value).any():
        return "cannot be judged", f"{why}: not all was measured"
    if ((low <= null) & (null <= high)).any():
        return "cannot be judged", f"{why}: no effect and what is stated are both possible"
    return "holds", why


def _at_most(claim: Any, rows: pd.DataFrame) -> Verdict:
    """Judge: no row is shown to be above the stated number."""
    bound = _numbers(claim.stated)[0]
    value, low, high = (_cells(rows, [f"{claim.column}{end}"]) for end in ("", "_low", "_high"))
    why = f"{_listed(rows['name'], value, low, high)}; taken: at most {100 * bound:g}%"
    return "fails" if (low > bound).any() else "holds", why


def _share(claim: Any, rows: pd.DataFrame) -> Verdict:
    """Judge: columns are above the stated number in at least these shares of the rows.

    A row whose interval holds the number counts for neither side; all rows, where no share is said.
    """
    bound = _numbers(claim.stated)[0]
    columns = claim.column.split()
    least = [1.0] if pd.isna(claim.tolerance) else _numbers(claim.tolerance)
    whys, words = [], []
    for column, share in zip(columns, least, strict=True):
        value, low, high = (_cells(rows, [f"{column}{end}"]) for end in ("", "_low", "_high"))
        may_be = (low <= bound) & (bound <= high)  # not so where there is no interval
        low, high = (np.where(np.isnan(low), value, end) for end in (low, high))
        above = low > bound
        may_be |= above
        needed = share * len(rows)
        words.append(_word(above.sum() >= needed, may_be.sum() < needed))
        why = f"{_ABOVE.get(column, 'above')} {100 * bound:g}% in {above.sum()} of {len(rows)}"
        if len(rows) <= _FEW:
            why += f" ({_listed(rows['name'], value, low, high)})"
        elif share == 1 and not may_be.all():
            why += f", not in {rows['name'].iloc[may_be.argmin()]}"
        if (may_be & ~above).any():
            why += f", open in {(may_be & ~above).sum()}"
        whys.append(f"{why}; taken: at least {100 * share:g}%" if share < 1 else why)
    worst: Sequence[Word] = ("fails", "cannot be judged")
    return next((word for word in worst if word in words), "holds"), "; ".join(whys)


def _no_later(claim: Any, rows: pd.DataFrame) -> Verdict:
    """Judge: each lead is largest at the stated N or before, and there shown to be one."""
    bound = int(claim.stated)
    early = (rows["peak_high"] <= bound) & (rows["difference_low"] > 0)
    late = (rows["peak_low"] > bound) | (rows["difference_high"] < 0)
    why = "; ".join(
        f"{row.name} largest at N = {row.peak:g} ({row.peak_low:g} to {row.peak_high:g}), there "
        f"{percentage(row.difference)}% ({percentage(row.difference_low)}% to "
        f"{percentage(row.difference_high)}%)"
        for row in rows_of(rows)
    )
    return _word(bool(early.all()), bool(late.any())), why


_JUDGES: dict[str, Callable[[Any, pd.DataFrame], Verdict]] = {
    "states": _states,
    "above": _share,
    "at most": _at_most,
    "every": _share,
    "share": _share,
    "no later": _no_later,
}
_OF_ALL = ("states", "above")
"""Judges that need every row that the paper has."""
_OF_EACH = ("at most", "every")
"""Judges that one row can prove wrong, and only every row of the paper can prove right."""


def _word(holds: bool, fails: bool) -> Word:
    return "fails" if fails else "holds" if holds else "cannot be judged"


def _cells(rows: pd.DataFrame, columns: Sequence[str]) -> np.ndarray:
    """Return the numbers of some columns, row by row; NaN where there is none."""
    return rows.reindex(columns=list(columns)).to_numpy(float).ravel()


def _numbers(text: object) -> list[float]:
    """Return numbers in percent as parts of 1."""
    return [float(number) / 100 for number in str(text).split()]


def _listed(names: Iterable[str], value: np.ndarray, low: np.ndarray, high: np.ndarray) -> str:
    """Name rows with their numbers and intervals."""
    found: dict[str, list[str]] = {}
    for of, *cell in zip(names, value, low, high, strict=True):
        own, *ends = (percentage(number) for number in cell)
        shown = f"{own}%" if own == ends[0] or not np.isfinite(cell[1:]).all() else ""
        found.setdefault(of, []).append(shown or f"{own}% ({ends[0]}% to {ends[1]}%)")
    return "; ".join(f"{of} {', '.join(cells)}" for of, cells in found.items())
