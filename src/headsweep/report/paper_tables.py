"""The page's tables of compressions' costs and of the papers' numbers."""

from headsweep import paths
from headsweep.analysis.facts import Cell
from headsweep.report.declarations import Marks, PageTable

_DECIDED = ["holds", "fails"]
_EVERY_CLAIM = "Every claim that a number decides, and speeds"


def _saved(column: str, saving: str, fold: str = "") -> PageTable:
    """Return the table of a published saving, beside the most that arithmetic allows."""
    at_most = f"{column}_at_most"
    return PageTable(
        section="published",
        fold=fold,
        path=paths.AUDIT_TABLE,
        table="compression",
        marks=Marks(
            label="{published_model}, {data}, {ratio:.0%}",
            drawn={"ring": at_most, "dot": column},
            low=at_most,
            high=column,
        ),
        columns={"published": Cell(column, "part"), "possible": Cell(at_most, "part")},
        caption=(
            f"Second paper, {saving} saved in percent: ● as published, ○ the most that arithmetic "
            f"allows for the heads removed."
        ),
    )


TABLES = [
    PageTable(
        section="published",
        path=paths.AUDIT_TABLE,
        table="sprint",
        marks=Marks(
            label="{exhibit}: {model}",
            drawn={"bar": "by_chance", "dot": "gain"},
            low="chance_low",
            high="chance_high",
        ),
        columns={
            "published": Cell("gain", "points"),
            "luck alone": Cell("by_chance", "points", low="chance_low", high="chance_high"),
            "beat chance": Cell("beyond", "count"),
            "by luck": Cell("luck", "ratio"),
            "up to": Cell("luck_high", "count"),
            "of": Cell("pairs", "count"),
        },
        caption=(
            "SPRINT's median gain of a best head, in points: ● as published; line and | luck "
            "alone. So many beat chance; by luck: so many on average, up to so many in 95% of"
            " draws."
        ),
    ),
    _saved("published_parameters", "parameters"),
    PageTable(
        section="compression",
        fold="Costs, and what to look at",
        path=paths.COMPRESSION_TABLE,
        table="cost",
        columns={
            "compression": Cell("title"),
            "setting": Cell("arm"),
            "rounds": Cell("rounds", "count"),
            "epochs": Cell("epochs", "count"),
            "tokens": Cell("tokens", "count"),
            "seconds": Cell("seconds", "count"),
            "look at": Cell("warned"),
        },
        caption="",
    ),
    PageTable(
        section="published",
        fold=_EVERY_CLAIM,
        path=paths.CLAIMS,
        rows=lambda table, facts: table["published"].isin(_DECIDED) | table["run"].isin(_DECIDED),
        columns={
            "paper": Cell("paper"),
            "claim": Cell("claim"),
            "said": Cell("value"),
            "in the paper": Cell("published"),
            "because": Cell("published_why"),
            "in this run": Cell("run"),
            "because ": Cell("run_why"),
        },
        caption="",
    ),
    _saved("published_speedup", "speed", fold=_EVERY_CLAIM),
]
