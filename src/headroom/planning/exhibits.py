"""What a run shows: its figures, a declaration each, and its tables.

From the declaration of a figure follow its files, what its rule reads and makes, its place on the
page, and its title and caption, there and in Snakemake's report.
"""

import re
from dataclasses import dataclass
from typing import Any, Literal

from headroom import paths

Subject = Literal["run", "sweep", "layer", "selector", "compression"]
"""What there is one figure of; a layer is one of a sweep."""

Section = Literal["controls", "embedding", "compression", "cost", "published", "figures"]
"""A section of the page that shows figures, as `report/templates` names it."""

_FILES: dict[Subject, str] = {
    "run": "",
    "sweep": "_{sweep}",
    "layer": "_{sweep}_L{layer}",
    "selector": "_{selector}",
    "compression": "_{compression}",
}


@dataclass(frozen=True)
class Exhibit:
    """A figure.

    Title and caption hold places for what the run fills in, see `words`; ``{of}`` is the subject.
    """

    name: str
    per: Subject
    needs: tuple[str, ...]
    """What it is drawn from, by names in `headroom.figures.draw.READERS`; its rule reads the files
    behind them, see `headroom.planning.shown.Shown.files`."""
    draw: str
    """The function that draws it, of what it needs and a theme."""
    section: Section
    title: str
    caption: str

    @property
    def path(self) -> str:
        """The path of its files; the names of run and subject, and the suffix, are left open."""
        return f"results/{{run}}/figures/{self.name}{_FILES[self.per]}.{{suffix}}"


EXHIBITS: tuple[Exhibit, ...] = (
    Exhibit(
        "violins",
        "run",
        ("placebo_gains",),
        "figures.violins:violins",
        "figures",
        "Gain from pruning one head",
        "Each dot is one (subject, layer) pair: accuracy of a variant minus accuracy of the base "
        "model, on the same questions. The best head is the maximum over the heads of the layer, "
        "which selection alone raises even if pruning does nothing; {placebo}the median head is "
        "free of that. Bars and numbers are medians over pairs; no interval and no test is shown. "
        "{numbers}.",
    ),
    Exhibit(
        "levels",
        "run",
        ("gains",),
        "figures.levels:levels",
        "figures",
        "Gain by difficulty",
        "Accuracy with one head pruned minus accuracy of the base model, by MATH level. Small dots "
        "are layers, lines join their medians. The best head is a maximum over a layer's heads and "
        "raised by selection; the fewer the questions, the more so. The median head is free of "
        "that. No gain can pass the dotted ceiling (drawn where it is in view), the base model's "
        "errors at that level. No interval and no test is shown. {numbers}.",
    ),
    Exhibit(
        "agreement",
        "sweep",
        ("agreement", "variants", "sweep", "questions"),
        "figures.agreement:agreement_map",
        "figures",
        "{of}: agreement between heads",
        "{of}: share of n = {n} questions on which two models, each with one of {heads} query "
        "heads pruned, are both right or both wrong (s_jk of the SPRINT paper); heads are ordered "
        "by layer and number, the base model comes first. Median over pairs {median}; independent "
        "models of the same accuracies would agree on {chance}. Agreement below {lowest} has the "
        "palest colour. The standard error of a share is at most {error}; no interval and no test "
        "is shown.",
    ),
    Exhibit(
        "heatmap",
        "layer",
        ("cells", "sweep", "layer"),
        "figures.heatmap:heatmap",
        "figures",
        "{of}, layer {layer}: accuracy (%) without one head",
        "{of}, layer {layer}: accuracy in percent with one query head pruned (rows) on the "
        "questions of a subject (columns). Colour is the difference to the base model (No Prune) "
        "in the same column; bold is the best head of a column, ties included. Triangles mark "
        "heads that differ from base: exact McNemar test, q < 0.05 after Benjamini and Hochberg "
        "over the {heads} heads of the sweep (Overall) and over its {pairs} pairs of head and "
        "subject. No interval is shown. n: {sizes}.",
    ),
    Exhibit(
        "forest",
        "sweep",
        ("heads", "sweep"),
        "figures.forest:forest",
        "controls",
        "{of}: every head against the base model",
        "{of}: accuracy with one query head pruned minus accuracy of the base model on the same "
        "{n} questions, with 95% intervals for paired proportions (Bonett and Price 2012), each "
        "for its own head. Filled marks: the exact McNemar test against base has q < 0.05 after "
        "Benjamini and Hochberg over all {heads} heads. Arrows are heads below the range, with "
        "their value.",
    ),
    Exhibit(
        "components",
        "sweep",
        ("spread", "sweep", "questions"),
        "figures.components:components",
        "controls",
        "{of}: spread between heads, and noise",
        "{of}: standard deviation of accuracy between pruned heads (dots; how many in brackets) "
        "beside what heads of equal accuracy would show on the same n = {n} questions (bars), on a "
        "scale that is logarithmic above one point. The share of the variance that is more than "
        "noise is a variance component of the two-way layout head × question, cut off at zero; "
        "filled dots: Cochran's Q test of equal heads has p < 0.05, not corrected for the number "
        "of rows. No interval is shown. Heads that surely hurt: one-sided exact test at 5%, "
        "Bonferroni over the heads of a layer.",
    ),
    Exhibit(
        "cost",
        "sweep",
        ("cost", "sweep"),
        "figures.cost:cost_figure",
        "cost",
        "{of}: what a sweep need not decode",
        "{of}: answers of pruned models (n = {n}). Left: mean tokens of an answer, split at its "
        "first difference from the base model's answer to the same question. {saved} of all tokens "
        "come before it and need not be decoded one at a time. Right: share of answers that are "
        "the base answer, token by token. Counts, not estimates: no interval and no test is shown. "
        "What is not computed below the pruned layer comes on top. Times are in the records beside "
        "the answers.",
    ),
    Exhibit(
        "pass_at_n",
        "selector",
        ("curves", "paired", "selector", "test_questions"),
        "figures.curves:curves",
        "figures",
        "Pass@N: {of}",
        "Left: share of {n} test questions with at least one right answer among N. Bands are 95% "
        "bootstrap intervals over questions; sampling uses the unbiased estimator; single models "
        "and the oracle over all heads of the pool are flat references. SPRINT is the mean over "
        "selectors of all seeds. Right: SPRINT minus each method on the same questions, with 95% "
        "intervals over {covered}; a filled mark means that the interval leaves out zero. "
        "Intervals are not corrected for their number.",
    ),
    Exhibit(
        "space",
        "selector",
        ("placed", "kept", "selector"),
        "figures.space:space",
        "embedding",
        "{of}: where heads and questions lie",
        "{of}: test questions (left, n = {questions}) and heads (right, n = {heads}) in the space "
        "that the trained selector puts both in, projected on the first two principal components "
        "of all points, which keep {kept} of the variance; small grey marks repeat the other "
        "panel. The selector asks the heads nearest to a question, by all dimensions: nearness in "
        "the plane is a part of that. Test questions took no part in training. No interval and no "
        "test is shown.",
    ),
    Exhibit(
        "pareto",
        "compression",
        ("trial",),
        "figures.compression.pareto:pareto",
        "compression",
        "{of}: accuracy against parameters",
        "{of}: accuracy against the parameters that are left, with 95% bootstrap intervals: the "
        "method at every ratio, then arm by arm; hollow marks have weights of eight bits.",
    ),
    Exhibit(
        "alpha",
        "compression",
        ("trial", "published"),
        "figures.compression.alpha:alpha",
        "compression",
        "{of}: what ranks the heads",
        "{of}: change of accuracy over alpha, the weight of the norm in the score, with and "
        "without distillation; faint: what is published.",
    ),
    Exhibit(
        "importance",
        "compression",
        ("trial",),
        "figures.compression.importance:importance",
        "compression",
        "{of}: importance of the heads",
        "{of}: score of every head before any went; numbers are the rounds that took heads.",
    ),
    Exhibit(
        "losses",
        "compression",
        ("trial",),
        "figures.compression.losses:losses",
        "compression",
        "{of}: losses and heads",
        "{of}: parts of the loss and heads left over the optimiser steps of all rounds.",
    ),
    Exhibit(
        "audit",
        "run",
        ("audit",),
        "figures.audit:audit_figure",
        "published",
        "Published gains, and what chance alone gives",
        "The SPRINT paper's Figure 2 from its own Tables 1-4, and the same from its Figure 5: "
        "maximum over heads of accuracy minus No Prune, for each (subject, layer) pair with at "
        "least half of its heads legible. Beside it the same maximum where pruning does nothing. "
        "Bars are medians over pairs; the vertical line is the 95% interval of the median by "
        "chance, the grey violin holds the inner 98% of chance. {method} Pairs read: {pairs}.",
    ),
)
"""The figures, in the order in which a section of the page shows them."""

COMPRESSION_TABLES = (
    *("table1", "table2", "table3a", "table3b", "table4"),
    *("knee", "quantisation", "cost"),
)
STUDY_FILES = (paths.STUDY_OUTCOMES, paths.HISTORIES, paths.MEASUREMENTS)
SELECTOR_RESULTS = (
    *(paths.CHOICE, paths.CURVES, paths.PAIRED, paths.VOTES, paths.SENSITIVITY, paths.ABLATION),
    paths.SELECTOR_CARD,
)
SELECTOR_TABLES = (paths.EMBEDDING_VALUE, paths.DIVERSITY, paths.CHOOSING)
PAPERS = ("sprint", "compression")
CONTROL_TABLES = ("gains", "heads", "spread", "failures")


def exhibits(per: Subject, section: Section | None = None) -> list[Exhibit]:
    """Return the figures of a kind of subject: all, or those of a section of the page."""
    return [each for each in EXHIBITS if each.per == per and section in (None, each.section)]


def find_exhibit(name: str) -> Exhibit:
    """Return a figure by its name."""
    return next(each for each in EXHIBITS if each.name == name)


def words(name: str, **facts: object) -> tuple[str, str]:
    """Return title and caption of a figure, with what a run has for their places."""
    exhibit = find_exhibit(name)
    return exhibit.title.format_map(facts), exhibit.caption.format_map(facts)


def caption_file(exhibit: Exhibit) -> str:
    """Return what Snakemake's report says below a figure, before there is a run."""
    caption = exhibit.caption
    if caption.startswith("{of}"):  # the label names it
        caption = caption.partition(": ")[2]
    text = re.sub(r"\{\w+\}", "…", caption)
    text = re.sub(r"(?<=\.) …\.?(?= |$)", "", text)  # sentences of their own
    return f"{text[0].upper()}{text[1:]} Caption with numbers, source data: JSON and CSV.\n"


def shown(file: str, caption: str, category: str, **labels: str) -> Any:
    """Return a file for Snakemake's own report, with the caption of that name."""
    from snakemake.io import report  # slow to import; jobs that draw read this module, too

    return report(file, caption=f"../report/{caption}.rst", category=category, labels=labels)
