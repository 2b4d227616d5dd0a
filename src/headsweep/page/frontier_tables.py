"""The page's tables of frontiers: families of variants at equal tokens."""

import pandas as pd

from headsweep.files import paths
from headsweep.page.declarations import DIFFERENCE, PageTable, difference_marks
from headsweep.results.facts import Cell


def _tested(table: pd.DataFrame) -> pd.Series:
    """Return which rows of a frontier's differences are tested: those with an adjusted p-value."""
    by_any_answer = (table["outcome"] == "pass") & (table["order"] == "ordered")
    return by_any_answer & table["adjusted"].notna()


TABLES = [
    PageTable(
        section="families",
        path=paths.FRONTIER,
        table="paired",
        rows=lambda table, facts: _tested(table) & (table["versus"] == "sampling"),
        marks=difference_marks("{family_title}"),
        columns={
            "difference": DIFFERENCE,
        },
        caption=(
            "{subject}. Each family minus sampling, solved by any answer, with the tokens of "
            "{budget} answers. Filled: shown after Holm's correction."
        ),
    ),
    PageTable(
        section="families",
        path=paths.FRONTIER,
        table="paired",
        rows=lambda table, facts: _tested(table) & (table["versus"] != "sampling"),
        marks=difference_marks("minus {versus_title}"),
        columns={
            "difference": DIFFERENCE,
        },
        caption="{subject}. Heads minus each other family, likewise.",
    ),
    PageTable(
        section="families",
        path=paths.FRONTIER,
        table="families",
        columns={
            "family": Cell("title"),
            "scale": Cell("scale"),
            "members": Cell("members", "count"),
            "right (%)": Cell("accuracy", "part"),
            "solved by any (%)": Cell("oracle", "part"),
            "no answer (%)": Cell("no_answer", "part"),
            "tokens an answer": Cell("tokens", "count"),
            "computed": Cell("computed", "count"),
        },
        caption="{subject}.",
    ),
    PageTable(
        section="families",
        fold="Other numbers of tokens, pairs of families",
        path=paths.FRONTIER,
        table="paired",
        rows=lambda table, facts: table["order"] == "ordered",
        columns={
            "family": Cell("family_title"),
            "minus": Cell("versus_title"),
            "counted": Cell("outcome"),
            "answers' tokens": Cell("budget", "count"),
            "difference": DIFFERENCE,
            "p": Cell("p", "p"),
            "after Holm": Cell("adjusted", "p"),
            "not reached (%)": Cell("unreached", "part"),
        },
        caption=(
            "{subject}. Not reached: by resampled questions; above 5% a difference is left out."
        ),
    ),
]
