"""The page's tables of sweeps, maps and comparisons of prompts: heads, luck, and the prompt."""

from headsweep.files import paths
from headsweep.page.declarations import Marks, PageTable
from headsweep.results.facts import Cell

TABLES = [
    PageTable(
        section="luck",
        path=paths.CONTROLS,
        table="gains",
        rows=lambda table, facts: table["by"] == "overall",
        marks=Marks(
            label="Layer {layer}",
            drawn={"bar": "by_chance", "diamond": "placebo", "ring": "gain", "dot": "held_out"},
            low="low",
            high="high",
        ),
        columns={
            "held out": Cell("held_out", "points", low="low", high="high"),
        },
        caption=(
            "{subject}. The best head of a layer, in points over the whole model: ○ as picked, ● "
            "on held-out questions with 95% interval; ◇ best placebo, | luck alone."
        ),
    ),
    PageTable(
        section="heads",
        fold="Every head",
        path=paths.CONTROLS,
        table="heads",
        columns={
            "head": Cell("variant"),
            "right (%)": Cell("accuracy", "part"),
            "gain": Cell("gain", "points", low="low", high="high"),
            "won": Cell("gained", "count"),
            "lost": Cell("lost", "count"),
            "p over all": Cell("adjusted", "p"),
            "q": Cell("q", "p"),
            "no answer (%)": Cell("no_answer", "part"),
            "cut off (%)": Cell("truncated", "part"),
            "near a tie (%)": Cell("fragile", "part"),
            "tokens": Cell("tokens", "count"),
        },
        caption="{subject}.",
    ),
    PageTable(
        section="heads",
        fold="How heads that hurt fail",
        path=paths.CONTROLS,
        table="failures",
        columns={
            "head": Cell("variant"),
            "gain": Cell("gain", "points"),
            "most fail by": Cell("mode"),
            "of what it loses (%)": Cell("mode_share", "part"),
            "ends in a loop (%)": Cell("loops", "part"),
            "share of the norm (%)": Cell("norm_share", "part"),
            "rank in its layer": Cell("norm_rank", "count"),
        },
        caption="{subject}.",
    ),
    PageTable(
        section="luck",
        fold="Gains by subject, level and layer",
        path=paths.CONTROLS,
        table="gains",
        columns={
            "questions": Cell("group"),
            "layer": Cell("layer", "count"),
            "n": Cell("n", "count"),
            "best head": Cell("gain", "points"),
            "by luck": Cell("by_chance", "points"),
            "q": Cell("q", "p"),
            "placebo": Cell("placebo", "points"),
            "held out": Cell("held_out", "points", low="low", high="high"),
        },
        caption="{subject}.",
    ),
    PageTable(
        section="luck",
        fold="Spread between heads, and placebos",
        path=paths.CONTROLS,
        table="spread",
        columns={
            "between": Cell("of"),
            "heads": Cell("heads", "count"),
            "spread": Cell("spread", "points"),
            "noise": Cell("noise", "points"),
            "left": Cell("component", "points"),
            "p": Cell("p", "p"),
        },
        caption=(
            "{subject}. Standard deviations in points: observed, of equal heads, and what is left."
        ),
    ),
    PageTable(
        section="luck",
        fold="Spread between heads, and placebos",
        path=paths.CONTROLS,
        table="placebos",
        columns={
            "pruned or placebo": Cell("kind"),
            "layer": Cell("layer", "count"),
            "variants": Cell("variants", "count"),
            "answers changed (%)": Cell("changed", "part"),
            "verdicts changed (%)": Cell("outcome", "part"),
            "mean gain": Cell("gain", "points"),
            "best gain": Cell("best", "points"),
        },
        caption="{subject}.",
    ),
    PageTable(
        section="trust",
        fold="Does the prompt matter?",
        path=paths.COMPARISON,
        columns={
            "prompt": Cell("decoding"),
            "grading": Cell("grading"),
            "n": Cell("n", "count"),
            "right (%)": Cell("accuracy", "part"),
            "verdicts unlike the first row's": Cell("differ_from_first", "count"),
        },
        caption="{subject}.",
    ),
    PageTable(
        section="heads",
        fold="Every head",
        path=paths.MAP,
        table="foretold",
        columns={
            "gains on": Cell("title"),
            "outcome": Cell("outcome"),
            "heads": Cell("heads", "count"),
            "rank correlation": Cell("correlation", "correlation", low="low", high="high"),
            "of the best": Cell("best_hits", "plain"),
            "of the worst": Cell("worst_hits", "plain"),
            "by luck": Cell("by_chance", "ratio"),
            "top quarter": Cell("top", "count"),
            "best gain": Cell("best_gain", "points"),
            "best gain in the map's top": Cell("best_found", "points"),
        },
        caption=(
            "{subject}. The map's outcomes against measured gains: rank correlation with 95% "
            "interval, and how many of the heads that measured best and worst are in the map's top "
            "quarter, and in its last."
        ),
    ),
]
