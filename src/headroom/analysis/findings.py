"""What a run found, in numbers and computed sentences."""

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
import pandas as pd

from headroom.analysis.controls import helping, hurting
from headroom.analysis.sheet import Sheet, in_percent, interval, name, number
from headroom.analysis.text import percent, points
from headroom.sprint.methods import ORACLE, SPRINT
from headroom.variants import BASE, Variant


@dataclass(frozen=True)
class Finding:
    """One headline number."""

    label: str
    value: str
    note: str


PASS_AT_N_CAPTION = (
    "Percent of questions with a right answer among N, with 95% bootstrap intervals over "
    "questions. The last columns are at the largest N of the method: accuracy of the majority "
    "answer, mean number of distinct answers, pairwise agreement, tokens a question."
)
"""What the table of Pass@N shows."""

_COVERED = {
    "by_questions": "test questions",
    "by_draw": "draws of training questions",
    "by_seed": "seeds",
}


def covered(paired: pd.DataFrame) -> str:
    """Say what the intervals of paired differences cover (see `headroom.sprint.evaluation`)."""
    known = [text for of, text in _COVERED.items() if of in paired and paired[of].any()]
    *others, last = known or ["test questions"]
    return f"{', '.join(others)} and {last}" if others else last


def told(numbers: Iterable[int]) -> list[int]:
    """Return the N of which differences are told: 1, 4 and the largest, where there are answers."""
    there = set(numbers)
    return sorted({1, 4, max(there, default=0)} & there)


def largest_n(table: pd.DataFrame) -> int:
    """Return the largest N of SPRINT, or of any method where SPRINT is missing."""
    own = table[table["method"] == SPRINT]
    return int((own if len(own) else table)["n"].max())


def findings(cells: pd.DataFrame) -> list[Finding]:
    """Return the headline numbers of a sweep: base, best, median and worst head.

    Args:
        cells: as `headroom.analysis.gains.cells` returns them.
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


def selector_sentences(table: pd.DataFrame, paired: pd.DataFrame) -> list[str]:
    """Say what the Pass@N curves say, at some N.

    Args:
        table: rows of `headroom.tables.CURVES`.
        paired: SPRINT minus each method, see `headroom.sprint.evaluation.PAIRED`.
    """
    limit = largest_n(table)
    found = [sentence(table, paired, n) for n in told(n for n in paired["n"] if n <= limit)]
    return [text for text in found if text]


def pass_at_n_sheet(table: pd.DataFrame) -> Sheet:
    """Return the Pass@N curves as text, at powers of two; SPRINT is bold.

    Args:
        table: rows of `headroom.tables.CURVES`.
    """
    limit = largest_n(table)
    shown = [n for n in (1, 2, 4, 8, 16) if n <= limit]
    within = table[(table["n"] <= limit) | (table.groupby("method")["n"].transform("min") > limit)]
    wide = within.sort_values("n").groupby("method", sort=False).tail(1).set_index("method")
    for n in shown:
        at = table[table["n"] == n].set_index("method")
        for end in ("", "_low", "_high"):
            wide[f"at_{n}{end}"] = at[end.strip("_") or "pass_at_n"]
    wide = wide.loc[table["method"].unique()].reset_index()
    columns = (
        ("method", name("method")),
        *((f"N = {n}", interval(f"at_{n}", form=in_percent)) for n in shown),
        ("majority (%)", in_percent("majority")),
        ("distinct", number("distinct_answers", ".2f")),
        ("agreement", number("agreement", ".2f")),
        ("tokens", number("tokens", ".0f")),
    )
    bold = np.repeat([[method == SPRINT] for method in wide["method"]], len(columns), axis=1)
    return Sheet.of(wide, columns, PASS_AT_N_CAPTION, bold=bold)


def sentence(table: pd.DataFrame, paired: pd.DataFrame, n: int) -> str:
    """Say how SPRINT compares with the best other method at N, whichever wins.

    A lead is claimed only when the 95% interval of the paired difference leaves out zero. Returns
    an empty sentence where SPRINT or every other method is missing.
    """
    found = _contest(table, paired, n)
    if found is None:
        return ""
    own, best, difference = found
    text = (
        f"At N = {n}, SPRINT answers {percent(own['pass_at_n'])} of the questions "
        f"({percent(own['low'])} to {percent(own['high'])}); the best other method, "
        f"{best.name}, answers {percent(best['pass_at_n'])}"
    )
    if difference is None:
        return f"{text}; no paired interval was computed."
    interval = (
        f"{points(difference['difference'])} points, 95% interval over {covered(paired)} "
        f"{points(difference['low'])} to {points(difference['high'])}"
    )
    apart = _apart(difference) if n == paired["n"].max() else ""
    return f"{text}. Difference {interval}: {_winner(difference)}.{_sources(difference)}{apart}"


def short_sentence(table: pd.DataFrame, paired: pd.DataFrame) -> str:
    """Say in few words how SPRINT compares with the best other method at the largest N."""
    n = largest_n(table)
    found = _contest(table, paired, n)
    if found is None:
        return ""
    own, best, difference = found
    return (
        f"at N = {n} SPRINT answers {percent(own['pass_at_n'])} of the questions, the best other "
        f"method, {best.name}, {percent(best['pass_at_n'])}"
        + ("." if difference is None else f": {_winner(difference)}.")
    )


def sweep_sentence(cells: pd.DataFrame, heads: pd.DataFrame) -> str:
    """Say what the loss of a head does, at best and at worst, and how often it is shown to.

    Args:
        cells: as `headroom.analysis.gains.cells` returns them.
        heads: see `headroom.analysis.controls.HEADS`.
    """
    overall = cells[cells["by"] == "overall"]
    pruned = overall[overall["variant"] != str(BASE)].sort_values("correct", kind="stable")
    base = overall[overall["variant"] == str(BASE)].iloc[0]
    worst, best = (
        f"{Variant.parse(row['variant']).words} ({percent(row['accuracy'])})"
        for row in (pruned.iloc[0], pruned[pruned["correct"] == pruned["correct"].max()].iloc[0])
    )
    helps, hurts = (len(found(heads)) or "none" for found in (helping, hurting))
    return (
        f"the base model answers {percent(base['accuracy'])} of {base['n']} questions; the best to "
        f"lose is {best}, the worst {worst}; of {len(pruned)} heads {helps} can be shown to help "
        f"when pruned and {hurts} to hurt."
    )


def _contest(
    table: pd.DataFrame, paired: pd.DataFrame, n: int
) -> tuple[pd.Series, pd.Series, pd.Series | None] | None:
    """Return the rows of SPRINT and of the best other method at N, and of their difference."""
    at = table[table["n"] == n].set_index("method")
    others = at.drop(index=[SPRINT, ORACLE], errors="ignore")
    if SPRINT not in at.index or others.empty:
        return None
    best = others.sort_values("pass_at_n", kind="stable").iloc[-1]
    found = paired[(paired["method"] == best.name) & (paired["n"] == n)]
    return at.loc[[SPRINT]].iloc[0], best, None if found.empty else found.iloc[0]


def _sources(difference: pd.Series) -> str:
    """Say how much of the chance in a difference comes from what, where more than one is known."""
    named = {"by_questions": "questions", "by_draw": "draw", "by_seed": "seeds"}
    known = [
        f"{text} {100 * difference[of]:.1f}"
        for of, text in named.items()
        if pd.notna(difference.get(of))
    ]
    return f" Standard errors in points: {', '.join(known)}." if len(known) > 1 else ""


def _apart(difference: pd.Series) -> str:
    """Say what is left on test questions that resemble no training question."""
    alike = difference.get("resembling", 0)
    if not alike:
        return ""
    text = f" {alike} test questions resemble a training question (overlap.csv)"
    if pd.isna(difference["difference_apart"]):
        return f"{text}: too few are left without them."
    return (
        f"{text}; without them the difference is {points(difference['difference_apart'])} "
        f"({points(difference['low_apart'])} to {points(difference['high_apart'])})."
    )


def _winner(difference: pd.Series) -> str:
    """Say who is ahead, if the interval of a difference leaves out zero."""
    if difference["low"] > 0 or difference["high"] < 0:
        return "SPRINT is ahead" if difference["low"] > 0 else "SPRINT is behind"
    return "neither is shown to be better"


def _extreme(label: str, tied: pd.DataFrame, note: str, heads: int) -> Finding:
    first = tied.iloc[0]
    more = f" and {len(tied) - 1} more" if len(tied) > 1 else ""
    return Finding(
        label,
        percent(first["accuracy"]),
        f"{first['variant']}{more}: {points(first['gain'])} points; {note} over {heads} heads",
    )
