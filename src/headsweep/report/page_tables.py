"""The tables that the page declares, in the order in which each section shows them."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from string import Formatter

import pandas as pd

from headsweep import paths
from headsweep.analysis.facts import Cell
from headsweep.sprint import methods
from headsweep.sprint.evaluation import MEAN, POINTS
from headsweep.tables import CURVES, FileKind


@dataclass(frozen=True)
class Facts:
    """What captions and the choice of rows may name of a table's subject."""

    of: str = ""
    """The title of the sweep, selector, frontier or comparison."""
    rival: str = ""
    """Of a selector: the method that it is held against."""
    most: int = 0
    """Of a selector: the largest number of answers."""
    budget: int | None = None
    """Of a frontier: the tokens of its test, as a multiple of an answer's."""


@dataclass(frozen=True)
class Marks:
    """Rows of marks with an interval each, in place of a plain table."""

    label: str
    """Label of a row: text with columns in braces."""
    drawn: Mapping[str, str]
    """Columns by the class of their mark; `sign` is coloured by the interval."""
    low: str
    high: str
    """Columns of the interval."""
    corrected: str = ""
    """Column of the interval's corrected p-value, if it has one."""

    @property
    def columns(self) -> list[str]:
        """The columns that the marks and their labels need."""
        labels = [name for _, name, _, _ in Formatter().parse(self.label) if name]
        ends = [name for name in (self.low, self.high, self.corrected) if name]
        return labels + list(self.drawn.values()) + ends


DIFFERENCE = Cell("difference", "points", low="low", high="high")


def differences(label: str, corrected: str = "adjusted") -> Marks:
    """Return marks of paired differences, coloured where the corrected test shows one."""
    return Marks(label, {"sign": "difference"}, low="low", high="high", corrected=corrected)


@dataclass(frozen=True)
class PageTable:
    """A table of the page, made of a table of the run."""

    section: str
    """Anchor of the section (`headsweep.report.page.SECTIONS`)."""
    path: FileKind
    """The table's file, as `headsweep.tables` or `headsweep.paths` has it."""
    columns: Mapping[str, Cell]
    """Cells by the title of their column; beside marks, if there are any."""
    caption: str
    """May name `Facts` in braces."""
    table: str = ""
    """Name of the table, where a template is that of several."""
    fold: str = ""
    """Title of the folded block that it stands in; the section itself has the others."""
    rows: Callable[[pd.DataFrame, Facts], pd.Series] | None = None
    """Which rows it shows, as a mask; all by default."""
    marks: Marks | None = None

    @property
    def needed_columns(self) -> set[str]:
        """The columns that it names in cells, marks and labels."""
        names = {name for cell in self.columns.values() for name in cell.columns}
        return names.union(self.marks.columns if self.marks else [])


_DECIDED = ["holds", "fails"]


def _tested(table: pd.DataFrame) -> pd.Series:
    """Return which rows of a frontier's differences are tested: those with an adjusted p-value."""
    by_any_answer = (table["outcome"] == "pass") & (table["order"] == "ordered")
    return by_any_answer & table["adjusted"].notna()


PAGE_TABLES = [
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
            "{of}. The best head of a layer, in points over the whole model: ○ as picked, ● "
            "on held-out questions with 95% interval; ◇ best placebo, | luck alone."
        ),
    ),
    PageTable(
        section="sampling",
        path=paths.PAIRED,
        rows=lambda table, facts: (
            (table["n"] == facts.most) & ~table["method"].isin([methods.BASE, methods.SINGLE])
        ),
        marks=differences("{method}"),
        columns={
            "difference": DIFFERENCE,
            "apart": Cell("difference_apart", "points", low="low_apart", high="high_apart"),
        },
        caption=(
            "{of}. SPRINT with {most} answers minus each method with as many, Pass@N. Filled:"
            " shown after Holm's correction. Apart: on questions that resemble no training "
            "question."
        ),
    ),
    PageTable(
        section="sampling",
        path=paths.VOTES,
        rows=lambda table, facts: table["n"] == facts.most,
        marks=differences("{method}"),
        columns={
            "difference": DIFFERENCE,
            "apart": Cell("difference_apart", "points", low="low_apart", high="high_apart"),
        },
        caption="{of}. One answer, by the vote of SPRINT's {most}, minus each; likewise.",
    ),
    PageTable(
        section="sampling",
        path=paths.TRANSFER,
        rows=lambda table, facts: table["n"] == MEAN,
        marks=differences("minus {title}"),
        columns={
            "difference": DIFFERENCE,
            "learnt elsewhere (%)": Cell("sprint", "part"),
            "on the benchmark (%)": Cell("other", "part"),
        },
        caption=(
            "{of}. SPRINT learnt from another benchmark, minus SPRINT learnt from the one it "
            "is asked; mean of Pass@N."
        ),
    ),
    PageTable(
        section="question",
        path=paths.EMBEDDING_VALUE,
        rows=lambda table, facts: (table["n"] == MEAN) & (table["method"] == methods.SPRINT),
        marks=differences("{against}"),
        columns={
            "difference": DIFFERENCE,
        },
        caption=(
            "{of}. SPRINT minus each that ignores the question, mean of Pass@N. Filled: shown"
            " after Holm's correction."
        ),
    ),
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
    PageTable(
        section="published",
        path=paths.AUDIT_TABLE,
        table="compression",
        marks=Marks(
            label="{published_model}, {data}, {ratio:.0%}",
            drawn={"ring": "published_parameters_at_most", "dot": "published_parameters"},
            low="published_parameters_at_most",
            high="published_parameters",
        ),
        columns={
            "published": Cell("published_parameters", "part"),
            "possible": Cell("published_parameters_at_most", "part"),
        },
        caption=(
            "Second paper, parameters saved in percent: ● as published, ○ the most that "
            "arithmetic allows for the heads removed."
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
            "q": Cell("q", "p"),
            "shows from": Cell("shows", "part"),
            "no answer (%)": Cell("no_answer", "part"),
            "cut off (%)": Cell("truncated", "part"),
            "near a tie (%)": Cell("fragile", "part"),
            "tokens": Cell("tokens", "count"),
        },
        caption="{of}.",
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
        caption="{of}.",
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
        caption="{of}.",
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
            "{of}. Standard deviations in points: observed, of equal heads, and what is left."
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
        caption="{of}.",
    ),
    PageTable(
        section="sampling",
        fold="Pass@N and cost of every method",
        path=CURVES,
        rows=lambda table, facts: table["n"].isin(POINTS),
        columns={
            "method": Cell("method"),
            "N": Cell("n", "count"),
            "solved (%)": Cell("pass_at_n", "part", low="low", high="high"),
            "majority (%)": Cell("majority", "part"),
            "distinct answers": Cell("distinct_answers", "ratio"),
            "tokens": Cell("tokens", "count"),
        },
        caption="{of}.",
    ),
    PageTable(
        section="sampling",
        fold="Pass@N and cost of every method",
        path=paths.DIVERSITY,
        rows=lambda table, facts: (
            (table["n"] == facts.most)
            & table["method"].isin([methods.SPRINT, methods.COVER, methods.BASE, facts.rival])
        ),
        columns={
            "method": Cell("method"),
            "solved (%)": Cell("pass_at_n", "part"),
            "distinct answers": Cell("distinct_answers", "ratio"),
            "tokens generated": Cell("tokens", "count"),
            "computed": Cell("computed", "count"),
        },
        caption="{of}. What {most} answers cost a question.",
    ),
    PageTable(
        section="sampling",
        fold="One answer chosen among N",
        path=paths.CHOOSING,
        columns={
            "answers of": Cell("method"),
            "chosen by": Cell("rule"),
            "N": Cell("n", "count"),
            "right (%)": Cell("accuracy", "part", low="low", high="high"),
            "over the majority": Cell("over_majority", "points", low="over_low", high="over_high"),
            "after Holm": Cell("over_adjusted", "p"),
        },
        caption="{of}.",
    ),
    PageTable(
        section="sampling",
        fold="How the settings were chosen",
        path=paths.CHOICE,
        rows=lambda table, facts: table["chosen"].astype(bool),
        columns={
            "geometry": Cell("geometry"),
            "dimension": Cell("dimension", "count"),
            "λ": Cell("diversity", "plain"),
            "weight decay": Cell("weight_decay", "plain"),
            "learning rate": Cell("learning_rate", "plain"),
            "epochs": Cell("epochs", "count"),
            "embedder": Cell("embedder"),
            "seed": Cell("seed", "plain"),
            "Pass@1 (%)": Cell("pass_at_1", "part"),
            "Pass@4 (%)": Cell("pass_at_4", "part"),
            "mean of Pass@N (%)": Cell("mean_pass", "part"),
        },
        caption="{of}. On held-out training questions.",
    ),
    PageTable(
        section="sampling",
        fold="How the settings were chosen",
        path=paths.ABLATION,
        rows=lambda table, facts: table["n"] == MEAN,
        columns={
            "reading": Cell("reading"),
            "mean of Pass@N (%)": Cell("pass_at_n", "part"),
            "minus": Cell("against"),
            "difference": DIFFERENCE,
            "p": Cell("p", "p"),
            "after Holm": Cell("adjusted", "p"),
        },
        caption="{of}. Test questions; all else as chosen.",
    ),
    PageTable(
        section="sampling",
        fold="How the settings were chosen",
        path=paths.SENSITIVITY,
        rows=lambda table, facts: table["n"] == facts.most,
        columns={
            "shortlist by": Cell("criterion"),
            "heads": Cell("k", "count"),
            "held out (%)": Cell("held_out", "part"),
            "test (%)": Cell("test", "part"),
            "chosen": Cell("chosen"),
            "minus the chosen": DIFFERENCE,
            "p": Cell("p", "p"),
            "after Holm": Cell("adjusted", "p"),
        },
        caption="{of}. Random heads: Pass@N of {most} drawn from a shortlist.",
    ),
    PageTable(
        section="question",
        fold="Other methods",
        path=paths.EMBEDDING_VALUE,
        rows=lambda table, facts: table["n"] == MEAN,
        columns={
            "method": Cell("method"),
            "against": Cell("against"),
            "difference": DIFFERENCE,
            "p": Cell("p", "p"),
            "after Holm": Cell("adjusted", "p"),
        },
        caption="{of}.",
    ),
    PageTable(
        section="families",
        path=paths.FRONTIER,
        table="paired",
        rows=lambda table, facts: _tested(table) & (table["versus"] == "sampling"),
        marks=differences("{family_title}"),
        columns={
            "difference": DIFFERENCE,
        },
        caption=(
            "{of}. Each family minus sampling, solved by any answer, with the tokens of "
            "{budget} answers. Filled: shown after Holm's correction."
        ),
    ),
    PageTable(
        section="families",
        path=paths.FRONTIER,
        table="paired",
        rows=lambda table, facts: _tested(table) & (table["versus"] != "sampling"),
        marks=differences("minus {versus_title}"),
        columns={
            "difference": DIFFERENCE,
        },
        caption="{of}. Heads minus each other family, likewise.",
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
        caption="{of}.",
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
        caption=("{of}. Not reached: by resampled questions; above 5% a difference is left out."),
    ),
    PageTable(
        section="families",
        fold="Other numbers of tokens, pairs of families",
        path=paths.FRONTIER,
        table="complement",
        columns={
            "family": Cell("family"),
            "other": Cell("other"),
            "better": Cell("better"),
            "alone (%)": Cell("alone", "part"),
            "both (%)": Cell("both", "part"),
            "difference": DIFFERENCE,
            "correlation": Cell("correlation", "ratio"),
        },
        caption=(
            "{of}. N answers of the better, chosen on training questions, against N/2 of each."
        ),
    ),
    PageTable(
        section="families",
        fold="Members and scales",
        path=paths.FRONTIER,
        table="members",
        columns={
            "member": Cell("member"),
            "family": Cell("family"),
            "right (%)": Cell("accuracy", "part"),
            "in training (%)": Cell("train_accuracy", "part"),
            "no answer (%)": Cell("no_answer", "part"),
            "as the base model (%)": Cell("agreement", "part"),
            "tokens": Cell("tokens", "count"),
        },
        caption="{of}.",
    ),
    PageTable(
        section="families",
        fold="Members and scales",
        path=paths.FRONTIER,
        table="scales",
        columns={
            "family": Cell("family"),
            "scale": Cell("scale"),
            "members": Cell("members", "count"),
            "in training (%)": Cell("train_pass", "part"),
            "tokens": Cell("train_tokens", "count"),
            "chosen": Cell("chosen"),
        },
        caption=("{of}. Mean of Pass@N over N of drawn members, by which the scale is chosen."),
    ),
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
        fold="Every claim that a number decides, and speeds",
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
    PageTable(
        section="published",
        fold="Every claim that a number decides, and speeds",
        path=paths.AUDIT_TABLE,
        table="compression",
        marks=Marks(
            label="{published_model}, {data}, {ratio:.0%}",
            drawn={"ring": "published_speedup_at_most", "dot": "published_speedup"},
            low="published_speedup_at_most",
            high="published_speedup",
        ),
        columns={
            "published": Cell("published_speedup", "part"),
            "possible": Cell("published_speedup_at_most", "part"),
        },
        caption=(
            "Second paper, speed saved in percent: ● as published, ○ the most that arithmetic"
            " allows for the heads removed."
        ),
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
            "verdicts that differ": Cell("differ_from_default", "count"),
        },
        caption="{of}.",
    ),
    PageTable(
        section="heads",
        fold="Every head",
        path=paths.MAP,
        table="foretold",
        columns={
            "gains on": Cell("title"),
            "outcome": Cell("outcome"),
            "estimate": Cell("estimate"),
            "heads": Cell("heads", "count"),
            "rank correlation": Cell("correlation", "nats", low="low", high="high"),
            "of the best": Cell("best_hits", "count"),
            "of the worst": Cell("worst_hits", "count"),
            "by luck": Cell("by_chance", "ratio"),
            "top quarter": Cell("top", "count"),
            "best gain": Cell("best_gain", "points"),
            "best gain in the map's top": Cell("best_found", "points"),
        },
        caption=(
            "{of}. The map's outcomes against measured gains: rank correlation with 95% interval, "
            "and how many of the truly best and worst heads are in the map's top quarter, and in "
            "its last. First order: one backward pass."
        ),
    ),
    PageTable(
        section="heads",
        fold="Every head",
        path=paths.MAP,
        table="layers",
        columns={
            "layer": Cell("layer", "count"),
            "outcome": Cell("outcome"),
            "heads shown": Cell("shown", "count"),
            "lowest": Cell("lowest", "nats"),
            "highest": Cell("highest", "nats"),
            "noise": Cell("noise", "nats", low="noise_low", high="noise_high"),
        },
        caption=(
            "{of}. Changes in nats (preference) and nats a token, beside noise as strong as a head."
        ),
    ),
]
"""All of them. `headsweep.report.blocks.fill` makes them."""
