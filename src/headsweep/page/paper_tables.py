"""The page's tables of compressions' costs and of the papers' numbers."""

from headsweep.files import paths
from headsweep.page.declarations import Marks, PageTable
from headsweep.results.facts import Cell

STUDY_COLUMNS: dict[str, Cell] = {
    "setting": Cell("arm"),
    "questions": Cell("stratum"),
    "ratio (%)": Cell("ratio", "part"),
    "alpha": Cell("alpha", "plain"),
    "taught": Cell("distilled"),
    "eight bits": Cell("quantised"),
    "heads gone": Cell("heads_removed", "count"),
    "right (%)": Cell("accuracy", "part", "low", "high"),
    "change": Cell("change", "points", "change_low", "change_high"),
    "against training as long": Cell(
        "change_trained", "points", "change_trained_low", "change_trained_high"
    ),
    "differs in": Cell("changed"),
    "tokens": Cell("tokens", "count"),
    "texts at once": Cell("batch", "count"),
    "against the method": Cell("gap", "points", "gap_low", "gap_high"),
    "faster (%)": Cell("faster", "part"),
    "bytes of a token's keys and values": Cell("cache_bytes", "count"),
    "parameters (%)": Cell("parameters_removed", "part"),
    "FLOPs (%)": Cell("flops_removed", "part"),
    "faster, largest batch (%)": Cell("faster_large", "part"),
    "time of the whole test (%)": Cell("test_time", "part"),
    "bytes (%)": Cell("weight_removed", "part"),
    "largest ratio (%)": Cell("knee", "part", "knee_low", "knee_high"),
    "published (%)": Cell("published_accuracy", "part"),
    "published change": Cell("published_change", "points"),
    "published parameters (%)": Cell("published_parameters", "part"),
    "published FLOPs (%)": Cell("published_flops", "part"),
    "published speed (%)": Cell("published_speedup", "part"),
    "published memory (%)": Cell("published_memory", "part"),
}
"""Columns of the second paper's tables; a table has only some of them."""

_DECIDED = ["holds", "fails"]
_EVERY_CLAIM = "Every claim that a number decides, and FLOPs"


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
    _saved("published_flops", "FLOPs", fold=_EVERY_CLAIM),
]
