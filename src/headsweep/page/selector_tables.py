"""The page's tables of selectors: what sampling reaches, and whether the question matters."""

import pandas as pd

from headsweep.experiments.sprint import methods
from headsweep.experiments.sprint.evaluation import MEAN, SHOWN_N
from headsweep.files import paths
from headsweep.files.tables import CURVES
from headsweep.page.declarations import DIFFERENCE, Facts, PageTable, difference_marks
from headsweep.results.facts import Cell


def _of_rival(table: pd.DataFrame, facts: Facts) -> pd.Series:
    """Return which row holds SPRINT against its rival, at the answers that both have."""
    return (table["method"] == facts.rival) & (table["n"] == facts.rival_n)


TABLES = [
    PageTable(
        section="sampling",
        path=paths.PAIRED,
        rows=lambda table, facts: (
            ((table["n"] == facts.most) | _of_rival(table, facts))
            & ~table["method"].isin(methods.ONE_ANSWER)
        ),
        marks=difference_marks("{method}"),
        columns={
            "difference": DIFFERENCE,
            "apart": Cell("difference_apart", "points", low="low_apart", high="high_apart"),
        },
        caption=(
            "{subject}. SPRINT's {most} answers minus each method's{fewer}, Pass@N. Filled: shown "
            "after Holm's correction. The verdict is on the rival alone, corrected over selectors "
            "and temperatures."
        ),
        notes={"apart": "Apart: on questions that resemble no training question."},
    ),
    PageTable(
        section="sampling",
        path=paths.VOTES,
        rows=lambda table, facts: table["n"] == facts.most,
        marks=difference_marks("{method}"),
        columns={
            "difference": DIFFERENCE,
            "apart": Cell("difference_apart", "points", low="low_apart", high="high_apart"),
        },
        caption="{subject}. One answer, by the vote of SPRINT's {most}, minus each; likewise.",
    ),
    PageTable(
        section="sampling",
        path=paths.TRANSFER,
        rows=lambda table, facts: table["n"] == MEAN,
        marks=difference_marks("minus {title}"),
        columns={
            "difference": DIFFERENCE,
            "learnt elsewhere (%)": Cell("elsewhere", "part"),
            "on the benchmark (%)": Cell("at_home", "part"),
        },
        caption=(
            "{subject}. SPRINT learnt from another benchmark, minus SPRINT learnt from the one it "
            "is asked; mean of Pass@N."
        ),
    ),
    PageTable(
        section="question",
        path=paths.EMBEDDING_VALUE,
        rows=lambda table, facts: (table["n"] == MEAN) & (table["method"] == methods.SPRINT),
        marks=difference_marks("{against}"),
        columns={
            "difference": DIFFERENCE,
        },
        caption=(
            "{subject}. SPRINT minus each that ignores the question, mean of Pass@N. The verdict's"
            " is shuffled questions. Filled: shown after Holm's correction."
        ),
    ),
    PageTable(
        section="sampling",
        fold="Pass@N and cost of every method",
        path=CURVES,
        rows=lambda table, facts: table["n"].isin(SHOWN_N),
        columns={
            "method": Cell("method"),
            "N": Cell("n", "count"),
            "solved (%)": Cell("pass_at_n", "part", low="low", high="high"),
            "majority (%)": Cell("majority", "part"),
            "distinct answers": Cell("distinct_answers", "ratio"),
            "tokens": Cell("tokens", "count"),
        },
        caption="{subject}.",
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
        caption="{subject}. What {most} answers cost a question.",
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
        caption="{subject}. On held-out training questions.",
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
        caption="{subject}. Test questions; all else as chosen.",
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
        caption="{subject}. Random heads: Pass@N of {most} drawn from a shortlist.",
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
        caption="{subject}.",
    ),
]
