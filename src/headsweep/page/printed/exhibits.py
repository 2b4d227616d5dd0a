"""The tables and figures that the papers print, and the files they are made as.

To add one: a row here, and a function in `headsweep.page.printed.tables` or
`headsweep.page.printed.figures`. It gets the row and the `headsweep.page.printed.numbers.Numbers`,
and returns a `PrintedTable` or a `headsweep.page.figures.draw.Figure`; numbers of a new kind are
read in `headsweep.page.printed.numbers`.

The papers' other figures are schematic: they show no numbers, and are not drawn.
"""

from typing import Literal, NamedTuple

from headsweep.results.published import EXHIBITS as TABLE_OF_MODEL

Paper = Literal["sprint", "compression"]
"""arXiv 2506.03978 and arXiv 2511.17577."""

DOCUMENT = "results/{run}/tables/printed.tex"
"""A LaTeX document of all of them; `pdflatex printed.tex` in its folder makes a PDF."""


class PrintedExhibit(NamedTuple):
    """A table or figure of a paper."""

    paper: Paper
    place: str
    """Such as ``Table 3(a)``."""
    make: str
    """The module and function that make it, as in `headsweep.results.exhibits.Exhibit.draw`."""
    title: str
    """What it shows; ``{models}`` and ``{tested}`` stand for whose numbers these are."""
    of: str = ""
    """The paper's model that it is about; empty if there are several."""

    @property
    def is_table(self) -> bool:
        """Whether it is a table."""
        return self.place.startswith("Table")

    @property
    def name(self) -> str:
        """Its name, such as ``printed_table3a_compression``."""
        kept = "".join(letter for letter in self.place.lower() if letter.isalnum())
        return f"printed_{kept}_{self.paper}"

    def files(self, run: str) -> list[str]:
        """Return the paths of its files in a run."""
        if self.is_table:
            return [f"results/{run}/tables/{self.name}.{suffix}" for suffix in ("tex", "csv")]
        suffixes = ("pdf", "png", "svg", "csv", "json")  # those of every figure
        return [f"results/{run}/figures/{self.name}.{suffix}" for suffix in suffixes]


_TABLES_OF_MODELS = tuple(
    PrintedExhibit(
        paper="sprint",
        place=table,
        make="tables:head_pruning",
        title="Pass@1 of {models} on {tested} without one attention head of a layer",
        of=model,
    )
    for model, table in TABLE_OF_MODEL.items()
)

PRINTED: tuple[PrintedExhibit, ...] = (
    *_TABLES_OF_MODELS,
    PrintedExhibit(
        paper="sprint",
        place="Figure 2",
        make="figures:gains",
        title="Gain in accuracy of the best head of a layer, over all subjects and layers",
    ),
    PrintedExhibit(
        paper="sprint",
        place="Figure 4",
        make="figures:pass_at_n",
        title="Pass@N of SPRINT, sampling and random heads",
    ),
    PrintedExhibit(
        paper="sprint",
        place="Figure 5",
        make="figures:heatmap",
        title="Pass@1 of {models} on {tested} without one head of layer {layer}",
        of="Qwen2.5-Math-1.5B-Instruct",
    ),
    PrintedExhibit(
        paper="compression",
        place="Table 1",
        make="tables:ratios",
        title="Accuracy and savings by pruning ratio",
    ),
    PrintedExhibit(
        paper="compression",
        place="Table 2",
        make="tables:sizes",
        title="Accuracy and savings of solvers of two sizes",
    ),
    PrintedExhibit(
        paper="compression",
        place="Table 3(a)",
        make="tables:mixtures",
        title="Accuracy by alpha, the weight of the norm in a head's importance, {models}",
    ),
    PrintedExhibit(
        paper="compression",
        place="Table 3(b)",
        make="tables:strata",
        title="Accuracy by the complexity of problems, {models}",
    ),
    PrintedExhibit(
        paper="compression",
        place="Table 4",
        make="tables:arms",
        title="Ablation of pruning and distillation, {models}",
    ),
)
"""In the papers' order."""
