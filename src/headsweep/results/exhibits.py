"""The figures and tables of a run, and the files that they need and make.

A figure's declaration decides its files, the inputs and outputs of its rule, its place on the page,
and its title and caption on the page and in Snakemake's report.
"""

from collections import defaultdict
from collections.abc import Mapping
from typing import Literal, NamedTuple, assert_never

from headsweep.files import paths
from headsweep.files.tables import ACCURACY, CURVES, POSITIONS, STUDY_OUTCOMES, FileKind
from headsweep.store.batches import pool
from headsweep.store.layout import Store
from headsweep.store.looks import looked_into, looks_file

Subject = Literal["run", "sweep", "layer", "map", "selector", "compression", "frontier"]
"""What a figure shows: there is one for each; layers are those of a sweep."""

Need = Literal["gains", "accuracy", "curves", "map", "points", "results", "frontier"]
"""The kinds of data that figures are drawn from."""
Section = Literal["heads", "luck", "sampling", "question", "families", "compression", "printed"]
"""Where the page shows a figure: folded in a section, unfolded among those of "families", or among
the papers' figures ("printed"). Of every sweep the page has "heads" and "luck"; "sampling" and
"question" come with selectors."""

_SHORT = 3  # rounds of fewer epochs have no course that losses could show


class Exhibit(NamedTuple):
    """A figure.

    Title and caption have placeholders that the run fills; ``{of}`` is the subject's name.
    """

    name: str
    per: Subject
    needs: Need
    """The kind of data it is drawn from: `RunFiles.figure_data` gives the files,
    `headsweep.page.figures.draw.READERS` reads them."""
    draw: str
    """The module and function that draw it from that data, as ``gains:violins``. It is a
    name because importing the function would load matplotlib for every command that reads this."""
    section: Section
    title: str
    caption: str

    def template(self, run: str, subject: str, layer: int = 0) -> str:
        """Return the path of its files with only the suffix left open."""
        parts = {"run": [], "layer": [subject, f"L{layer:02d}"]}.get(self.per, [subject])
        return f"results/{run}/figures/{'_'.join([self.name, *parts])}.{{suffix}}"

    def words(self, of: str, facts: Mapping[str, object]) -> tuple[str, str]:
        """Return title and caption, their placeholders filled from a run's facts."""
        places: dict[str, object] = defaultdict(lambda: "…", facts, of=of)
        return self.title.format_map(places), self.caption.format_map(places)

    @property
    def heading(self) -> str:
        """Its title without its subject."""
        title = self.title.replace("{of}: ", "")
        return f"{title[0].upper()}{title[1:]}"

    @property
    def caption_file(self) -> str:
        """The caption in Snakemake's report, written before any run: values are left out."""
        caption = self.caption.format_map(defaultdict(lambda: "…"))
        return f"{caption} JSON: the caption with its numbers; CSV: the data.\n"


EXHIBITS: tuple[Exhibit, ...] = (
    Exhibit(
        name="violins",
        per="run",
        needs="gains",
        draw="gains:violins",
        section="printed",
        title="Gain from pruning one head",
        caption=(
            "A dot is a (subject, layer) pair: accuracy without its best head minus the base "
            "model's, and what luck and placebos give. Bars: medians. Right: exact tests, false "
            "discovery rate q; band: 95% interval of a held-out gain. n = {n} pairs."
        ),
    ),
    Exhibit(
        name="levels",
        per="run",
        needs="gains",
        draw="gains:levels",
        section="luck",
        title="Gain by difficulty",
        caption=(
            "Accuracy without a head minus the base model's, by level. Dots: each layer's best "
            "head, chosen on half the questions and measured on the other, with 95% interval. "
            "Lines: medians of layers. Dotted: the most that errors leave. No test. n = {n} "
            "questions, summed over sweeps."
        ),
    ),
    Exhibit(
        name="agreement",
        per="sweep",
        needs="accuracy",
        draw="heatmaps:agreement",
        section="sampling",
        title="{of}: agreement between heads",
        caption=(
            "Share of n = {n} questions on which two models, each without one of {heads} heads, "
            "are both right or both wrong; the base model comes first. Median of two heads: "
            "{median}; of independent models as accurate: {chance}. Standard error at most "
            "{error}; no interval, no test."
        ),
    ),
    Exhibit(
        name="heatmap",
        per="layer",
        needs="accuracy",
        draw="heatmaps:heatmap",
        section="printed",
        title="{of}: accuracy (%) without one head of layer {layer}",
        caption=(
            "Rows: heads pruned. Colour: difference to No Prune, alike in all layers; a tenth "
            "exceeds it. Triangles (bold: the best gain): q < 0.05, exact McNemar test, "
            "Benjamini-Hochberg over all {heads} heads, and over subjects. No interval. n = {n}."
        ),
    ),
    Exhibit(
        name="map",
        per="map",
        needs="map",
        draw="heatmaps:scored_map",
        section="heads",
        title="{of}: a map of every head",
        caption=(
            "Change of known texts' log-probability without each of {heads} heads; last column: "
            "noise as strong as a head. A tenth of heads exceeds the colours. Triangles: p < 0.05 "
            "over all heads (maxT), against no change and noise. Samples lose likelihood under "
            "nearly any change. n = {n} questions."
        ),
    ),
    Exhibit(
        name="pass_at_n",
        per="selector",
        needs="curves",
        draw="curves:curves",
        section="printed",
        title="Pass@N: {of}",
        caption=(
            "Left: share of n = {n} test questions with a right answer among N, 95% bootstrap "
            "bands. Right: SPRINT minus each method, paired, 95% intervals over {covered}, "
            "uncorrected. Marks are filled where the difference is shown after Holm's correction "
            "over all methods."
        ),
    ),
    Exhibit(
        name="space",
        per="selector",
        needs="points",
        draw="heatmaps:space",
        section="question",
        title="{of}: where heads and questions lie",
        caption=(
            "Test questions (dots, n = {questions}) and heads (diamonds with their layer, or their "
            "number if all share one, n = {heads}) in the selector's space, on two principal "
            "components ({kept} of the variance). The selector ranks heads by nearness in all "
            "dimensions. No interval, no test."
        ),
    ),
    Exhibit(
        name="families",
        per="frontier",
        needs="frontier",
        draw="curves:frontier",
        section="families",
        title="{of}: families of variants",
        caption=(
            "Left: questions solved by any answer, and right by vote, against tokens; members in "
            "the order that training questions chose. Right: each family minus sampling at equal "
            "tokens, paired, 95% intervals; marks are filled where Holm's test over families and "
            "outcomes finds a difference. n = {n} questions, {members} members a family."
        ),
    ),
    Exhibit(
        name="losses",
        per="compression",
        needs="results",
        draw="curves:losses",
        section="compression",
        title="{of}: losses and heads",
        caption=(
            "Training of {arm}, {seeds}. Above: parts of the loss with their weights, mean of an "
            "epoch; lines break where a round has another teacher. Below: heads left, first "
            "seed; vertical lines are removals. n = {n} epochs; no interval, no test."
        ),
    ),
)
"""The figures, in the order in which the page shows them."""

EMPTY = "An empty figure."
"""Start of the alternative text of a figure that has nothing to show."""

JUDGED_TABLES = ("table1", "table3a", "table3b", "table4", "variations")
"""Those that the second paper's claims are judged by, and that are printed in its form."""
_PRINTED_TABLES = ("table1", "table2", "table3a", "table3b", "table4")
COMPRESSION_TABLES = (*_PRINTED_TABLES, "variations", "knee", "quantisation", "speed", "cost")
CONTROL_TABLES = ("gains", "heads", "spread", "placebos", "failures")
AUDIT_TABLES = ("pairs", "sprint", "total", "compression")
SELECTOR_FILES = (
    paths.CHOICE,
    CURVES,
    paths.PAIRED,
    paths.VOTES,
    paths.SENSITIVITY,
    paths.ABLATION,
    paths.SELECTOR_CARD,
    paths.EMBEDDING_VALUE,
    paths.DIVERSITY,
    paths.OVERLAP,
    paths.TRANSFER,
)
"""Files of a selector that the report shows."""


def find_exhibit(name: str) -> Exhibit:
    """Return a figure by its name."""
    return next(exhibit for exhibit in EXHIBITS if exhibit.name == name)


class RunFiles:
    """The files of a resolved config's tables, figures and report."""

    def __init__(self, store: Store) -> None:
        self.config = store.config
        self.store = store

    def figure_data(self, need: Need, name: str = "") -> list[str]:
        """Return the files that a figure is drawn from, by its `Exhibit.needs` and its subject."""
        fill = self.store.fill
        match need:
            case "gains":
                return [fill(paths.CONTROLS, sweep=s, table="gains") for s in self.config.sweeps]
            case "accuracy":
                return [self.sweep_table(name)]
            case "curves":
                return [fill(CURVES, selector=name), fill(paths.PAIRED, selector=name)]
            case "map":
                return [fill(paths.MAP, map=name, table="heads")]
            case "points":
                selector = self.config.selectors[name]
                z = fill(
                    ACCURACY,
                    model=selector.model,
                    decoding=selector.decoding,
                    questions=selector.test,
                )
                return [fill(POSITIONS, selector=name), z]
            case "results":
                return self.study_files(name)
            case "frontier":
                tables = ("curves", "paired", "families")
                return [fill(paths.FRONTIER, frontier=name, table=table) for table in tables]
            case _:
                assert_never(need)

    def layers(self, sweep: str) -> list[int]:
        """Return the layers whose heads a sweep prunes."""
        heads = pool(self.config, self.config.sweeps[sweep])
        return sorted({head.layer for head in heads if head.layer is not None})

    def sweep_table(self, name: str, kind: FileKind = ACCURACY) -> str:
        """Return the accuracy matrix of a sweep, or another file of its batch."""
        return str(self.store.of_sweep(name, kind))

    def study_files(self, name: str) -> list[str]:
        """Return the result files of a compression."""
        files = (STUDY_OUTCOMES, paths.HISTORIES, paths.MEASUREMENTS)
        return [self.store.fill(template, compression=name) for template in files]

    def studied(self) -> list[str]:
        """Return the result files of all compressions."""
        return [file for name in self.config.compressions for file in self.study_files(name)]

    def judged(self) -> list[str]:
        """Return the run's files that the papers' claims are judged from."""
        files = list(dict.fromkeys(map(self.sweep_table, self.config.sweeps)))
        for template in (paths.PAIRED, paths.DIVERSITY):
            files += [self.store.fill(template, selector=name) for name in self.config.selectors]
        if self.config.compressions:
            files += [self._compression_table(table) for table in JUDGED_TABLES]
        return files + self.studied()

    def reported(self) -> list[str]:
        """Return all files that the run's report shows."""
        config = self.config
        fill = self.store.fill
        files = []
        if config.papers:
            files += [fill(paths.AUDIT_TABLE, paper=name) for name in AUDIT_TABLES]
            files.append(fill(paths.CLAIMS))
        files += self.judged()
        for name in config.sweeps:
            files.append(fill(paths.TABLE, sweep=name, suffix="csv"))
            files += [fill(paths.CONTROLS, sweep=name, table=table) for table in CONTROL_TABLES]
        files += [str(looks_file(self.store, name)) for name in looked_into(self.store)]
        for name in config.selectors:
            files += [fill(template, selector=name) for template in SELECTOR_FILES]
        for name in config.maps:
            files += [fill(paths.MAP, map=name, table=table) for table in paths.MAP_TABLES]
        for name in config.frontiers:
            for table in paths.FRONTIER_TABLES:
                files.append(fill(paths.FRONTIER, frontier=name, table=table))
        files += [fill(paths.COMPARISON, comparison=name) for name in config.comparisons]
        if config.compressions:
            files += [self._compression_table(table) for table in COMPRESSION_TABLES]
        for exhibit in EXHIBITS:
            for template in self.pictures(exhibit):
                files += [template.format(suffix="png"), template.format(suffix="json")]
        return list(dict.fromkeys(files))

    def _compression_table(self, name: str) -> str:
        return self.store.fill(paths.COMPRESSION_TABLE, exhibit=name, suffix="csv")

    def pictures(self, exhibit: Exhibit) -> list[str]:
        """Return the paths of all pictures of a figure in the run, their suffix left open."""
        config = self.config
        names: list[str] = []
        match exhibit.per:
            case "run":
                names = [""] if config.sweeps else []
            case "sweep":
                names = [*config.sweeps]
            case "selector":
                names = [*config.selectors]
            case "map":
                names = [*config.maps]
            case "frontier":
                names = [*config.frontiers]
            case "compression":
                for name, study in config.compressions.items():
                    if study.method.training.epochs >= _SHORT * study.method.rounds:
                        names.append(name)
            case "layer":
                return [
                    exhibit.template(config.run, name, layer)
                    for name in config.sweeps
                    for layer in self.layers(name)
                ]
        return [exhibit.template(config.run, name) for name in names]
