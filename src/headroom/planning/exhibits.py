"""The figures and tables of a run.

A figure's declaration decides its files, the inputs and outputs of its rule, its place on the page,
and its title and caption on the page and in Snakemake's report.
"""

from collections.abc import Mapping
from typing import Any, Literal, NamedTuple

from headroom import paths

Subject = Literal["run", "sweep", "layer", "selector", "compression", "frontier"]
"""What a figure shows: there is one for each; layers are those of a sweep."""

Section = Literal["luck", "sampling", "question", "compression", "printed", ""]
"""Where the page shows a figure: in a collapsed section, among the papers' figures ("printed"), or
nowhere ("": it draws one of its own)."""

_FILES: dict[Subject, str] = {
    "run": "",
    "sweep": "_{sweep}",
    "layer": "_{sweep}_L{layer}",
    "selector": "_{selector}",
    "compression": "_{compression}",
    "frontier": "_{frontier}",
}


class Exhibit(NamedTuple):
    """A figure.

    Title and caption have placeholders that the run fills; ``{of}`` is the subject's name.
    """

    name: str
    per: Subject
    needs: str
    """The kind of data it is drawn from: `headroom.planning.shown.Shown.files` gives the files,
    `headroom.figures.draw.READERS` reads them."""
    draw: str
    """The function that draws it from that data."""
    section: Section
    title: str
    caption: str

    @property
    def path(self) -> str:
        """Path template of its files, with wildcards for run, subject and suffix."""
        return f"results/{{run}}/figures/{self.name}{_FILES[self.per]}.{{suffix}}"

    def template(self, run: str, of: str, layer: int = 0) -> str:
        """Return the path of its files with only the suffix left open."""
        names = dict.fromkeys(("sweep", "selector", "compression", "frontier"), of)
        return self.path.format(**names, run=run, layer=f"{layer:02d}", suffix="{suffix}")

    def words(self, of: str, facts: Mapping[str, object]) -> tuple[str, str]:
        """Return title and caption, their placeholders filled from a run's facts."""
        places = _Facts(facts, of=of)
        return self.title.format_map(places), self.caption.format_map(places)

    @property
    def heading(self) -> str:
        """Its title without its subject."""
        title = self.title.replace("{of}: ", "")
        return f"{title[0].upper()}{title[1:]}"

    @property
    def caption_file(self) -> str:
        """The caption in Snakemake's report, written before any run: values are left out."""
        caption = self.caption.format_map(_Facts())
        return f"{caption} JSON: the caption with its numbers; CSV: the data.\n"


class _Facts(dict[str, object]):
    """Values of placeholders; an unknown one is an ellipsis."""

    def __missing__(self, place: str) -> str:
        return "…"


EXHIBITS: tuple[Exhibit, ...] = (
    Exhibit(
        "violins",
        "run",
        "gains",
        "figures.gains:violins",
        "printed",
        "Gain from pruning one head",
        "A dot is a (subject, layer) pair: accuracy without a head minus the base model's. The "
        "best of a layer's heads is raised by selection, the median head is not; placebos prune "
        "nothing. Bars are medians; no interval, no test. n = {n} pairs.",
    ),
    Exhibit(
        "levels",
        "run",
        "gains",
        "figures.gains:levels",
        "luck",
        "Gain by difficulty",
        "Accuracy without a head minus the base model's, by MATH level. Dots: each layer's best "
        "head, chosen on one half of the questions and measured on the other, with 95% interval. "
        "Lines: medians of layers. Dotted: the most that errors leave. No test. n = {n} questions.",
    ),
    Exhibit(
        "agreement",
        "sweep",
        "accuracy",
        "figures.maps:agreement",
        "sampling",
        "{of}: agreement between heads",
        "Share of n = {n} questions on which two models, each without one of {heads} heads, are "
        "both right or both wrong; the base model comes first. Median of two heads: {median}; of "
        "independent models as accurate: {chance}. Standard error at most {error}; no interval, no "
        "test.",
    ),
    Exhibit(
        "heatmap",
        "layer",
        "accuracy",
        "figures.maps:heatmap",
        "printed",
        "{of}, layer {layer}: accuracy (%) without one head",
        "Rows: heads pruned. Colour: difference to the base model (No Prune) in the column; bold: "
        "best head, ties included. Triangles mark what differs: q < 0.05, exact McNemar test, "
        "Benjamini-Hochberg over all {heads} heads. No interval. n = {n}; each subject's is above.",
    ),
    Exhibit(
        "pass_at_n",
        "selector",
        "curves",
        "figures.pass_at_n:curves",
        "printed",
        "Pass@N: {of}",
        "Left: share of n = {n} test questions with a right answer among N, 95% bootstrap bands. "
        "Right: SPRINT minus each method, paired, 95% intervals over {covered}, uncorrected; they "
        "leave out zero where marks are filled. No further test.",
    ),
    Exhibit(
        "space",
        "selector",
        "points",
        "figures.maps:space",
        "question",
        "{of}: where heads and questions lie",
        "Test questions (dots, n = {questions}) and heads (diamonds with their layer, n = {heads}) "
        "in the selector's space, on two principal components ({kept} of the variance). The "
        "selector ranks heads by nearness in all dimensions. No interval, no test.",
    ),
    Exhibit(
        "families",
        "frontier",
        "frontier",
        "figures.frontier:frontier",
        "",
        "{of}: families of variants",
        "Left: questions solved by any answer, and right by vote, against tokens; members in the "
        "order that training questions chose. Right: each family minus sampling at equal tokens, "
        "paired, 95% intervals; marks are filled where Holm's test over families and outcomes "
        "finds a difference. n = {n} questions, {members} members a family.",
    ),
    Exhibit(
        "losses",
        "compression",
        "trial",
        "figures.losses:losses",
        "compression",
        "{of}: losses and heads",
        "Training of {arm}, {seeds}. Above: parts of the loss with their weights, mean of an "
        "epoch; lines break where a round has another teacher. Below: heads left, first seed; "
        "vertical lines are removals. n = {n} epochs; no interval, no test.",
    ),
)
"""The figures, in the order in which the page shows them."""

EMPTY = "An empty figure."
"""Start of the alternative text of a figure that has nothing to show."""

STUDY_FILES = (paths.STUDY_OUTCOMES, paths.HISTORIES, paths.MEASUREMENTS)
PRINTED_TABLES = ("table1", "table2", "table3a", "table3b", "table4")
"""The second paper's tables; they are written as LaTeX, too."""
COMPRESSION_TABLES = (*PRINTED_TABLES, "variations", "knee", "quantisation", "speed", "cost")
CONTROL_TABLES = ("gains", "heads", "spread", "placebos", "failures")
AUDIT_TABLES = ("pairs", "sprint", "compression")


def exhibits(per: Subject) -> list[Exhibit]:
    """Return the figures of one kind of subject."""
    return [each for each in EXHIBITS if each.per == per]


def find_exhibit(name: str) -> Exhibit:
    """Return a figure by its name."""
    return next(each for each in EXHIBITS if each.name == name)


def shown(file: str, caption: str, category: str, **labels: str) -> Any:
    """Mark a file for Snakemake's own report, with the caption of the given name."""
    from snakemake.io import report  # slow to import, and figure jobs import this module

    return report(file, caption=f"../report/{caption}.rst", category=category, labels=labels)
