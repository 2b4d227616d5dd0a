"""What tables, figures and the report are made from, and the files that they become."""

from collections.abc import Iterable
from pathlib import Path
from typing import Any

from snakemake.io import report

from headroom import paths
from headroom.config import Config, Selector, Sweep
from headroom.planning.batches import find_batch, pool
from headroom.planning.store import Store

Inputs = dict[str, str | list[str]]
"""Named inputs of a rule."""

EXHIBITS = ("table1", "table2", "table3a", "table3b", "table4", "knee", "quantisation", "cost")
"""Tables of the compression paper."""
STUDY_FILES = (paths.STUDY_OUTCOMES, paths.HISTORIES, paths.MEASUREMENTS)
STUDY_FIGURES = (paths.PARETO, paths.IMPORTANCE, paths.LOSSES, paths.ALPHA)
SELECTOR_RESULTS = (
    *(paths.CHOICE, paths.CURVES, paths.PAIRED, paths.SENSITIVITY, paths.ABLATION),
    paths.SELECTOR_CARD,
)
SELECTOR_TABLES = (paths.EMBEDDING_VALUE, paths.DIVERSITY, paths.CHOOSING)
PAPERS = ("sprint", "compression")
CONTROL_TABLES = ("gains", "heads", "spread", "failures")

_BESIDE = ("pdf", "svg", "dark.svg", "csv", "json")


def shown(file: str, caption: str, category: str, **labels: str) -> Any:
    """Return a file for Snakemake's own report, with the caption of that name."""
    return report(file, caption=f"../report/{caption}.rst", category=category, labels=labels)


class Exhibits:
    """The tables, figures and report of a config."""

    def __init__(self, config: Config) -> None:
        """Show what a resolved config asks for."""
        self.config = config
        self.store = Store(config)

    def sweep_table(self, name: str, template: str = paths.ACCURACY) -> str:
        """Return the accuracy matrix of a sweep, or another file of its batch."""
        return str(self.store.of_sweep(name, template))

    def sweep_tables(self) -> list[str]:
        """Return the accuracy matrices of all sweeps."""
        return [self.sweep_table(name) for name in self.config.sweeps]

    def sweep_figures(self, name: str) -> list[str]:
        """Return the templates of a sweep's figures; only the suffix is left open."""
        heads = pool(self.config, self.config.sweeps[name])
        layers = sorted({head.layer for head in heads if head.layer is not None})
        heatmaps = [paths.HEATMAP.replace("{layer}", f"{layer:02d}") for layer in layers]
        templates = (paths.FOREST, paths.AGREEMENT, paths.COMPONENTS, paths.COST, *heatmaps)
        return [self.store.fill(template, sweep=name) for template in templates]

    def drawn_for_sweep(self, name: str) -> list[str]:
        """Return what the figures of a sweep are drawn from."""
        sweep: Sweep = self.config.sweeps[name]
        batch = find_batch(self.config, sweep.model, sweep.decoding, sweep.questions)
        return [
            self.sweep_table(name),
            *self._controls(name, ("heads", "spread")),
            *self.store.answers(batch),
        ]

    def drawn_for_selector(self, wildcards: Any) -> Inputs:
        """Return what the figures of a selector are drawn from."""
        selector = self._selector(wildcards)
        return {
            "curves": self.store.fill(paths.CURVES),
            "paired": self.store.fill(paths.PAIRED),
            "points": self.store.fill(paths.POINTS),
            "accuracy": self._table(paths.ACCURACY, selector, selector.test),
        }

    def study_files(self, name: str) -> list[str]:
        """Return what a compression has found."""
        return [self.store.fill(template, compression=name) for template in STUDY_FILES]

    def studied(self) -> list[str]:
        """Return what all compressions have found."""
        return [file for name in self.config.compressions for file in self.study_files(name)]

    def judged(self) -> list[str]:
        """Return the files of this run that claims are judged from."""
        files = []
        for name in self.config.sweeps:
            files += [self.sweep_table(name), *self._controls(name, ("gains",))]
        for name in self.config.selectors:
            files += [self.store.fill(t, selector=name) for t in (paths.CURVES, paths.PAIRED)]
        return files + self.studied()

    def png(self, template: str) -> str:
        """Return the figure that Snakemake's report shows."""
        return self.store.fill(template, suffix="png")

    def figure(self, template: str) -> Any:
        """Return a figure for Snakemake's report; the first word of its name names its caption."""
        name = Path(template).name.partition(".")[0]
        label = name.replace("_{", ", {")
        return shown(self.png(template), name.partition("_")[0], "Figures", figure=label)

    def beside(self, template: str, *suffixes: str) -> list[str]:
        """Return what a figure's job makes beside its PNG, or the files with given suffixes."""
        return [self.store.fill(template, suffix=suffix) for suffix in suffixes or _BESIDE]

    def reported(self) -> list[str]:
        """Return everything that the report of this run shows."""
        config, fill = self.config, self.store.fill
        files = self._pictures(paths.AUDIT)
        files += [fill(paths.AUDIT_TABLE, paper=paper, suffix="csv") for paper in PAPERS]
        files += self.beside(paths.CLAIMS, "csv", "md")
        if config.sweeps:
            files += self._pictures(paths.VIOLINS, paths.LEVELS)
        for name in config.sweeps:
            files += [self.sweep_table(name), fill(paths.TABLE, sweep=name, suffix="md")]
            files += self._controls(name, CONTROL_TABLES)
            files += self._pictures(*self.sweep_figures(name))
        for name in config.selectors:
            figures = self._pictures(paths.PASS_AT_N, paths.SPACE)
            results = (*SELECTOR_RESULTS, *SELECTOR_TABLES)
            for template in (*figures, *results):
                files.append(fill(template, selector=name, suffix="md"))
        for name in config.comparisons:
            files.append(fill(paths.COMPARISON, comparison=name, suffix="md"))
        if config.compressions:
            files += self.studied()
            for exhibit in EXHIBITS:
                files += [
                    fill(paths.COMPRESSION_TABLE, exhibit=exhibit, suffix=suffix)
                    for suffix in ("csv", "md")
                ]
        for name in config.compressions:
            files += [fill(file, compression=name) for file in self._pictures(*STUDY_FIGURES)]
        return files

    def _selector(self, wildcards: Any) -> Selector:
        return self.config.selectors[wildcards.selector]

    def _table(
        self, template: str, selector: Selector, questions: str, decoding: str | None = None
    ) -> str:
        """Return a table of a selector's model, on given questions."""
        names = {"model": selector.model, "questions": questions}
        return self.store.fill(template, decoding=decoding or selector.decoding, **names)

    def _controls(self, sweep: str, tables: Iterable[str]) -> list[str]:
        return [
            self.store.fill(paths.CONTROLS, sweep=sweep, table=table, suffix="csv")
            for table in tables
        ]

    def _pictures(self, *templates: str) -> list[str]:
        """Return the files of figures that the report shows; other wildcards stay open."""
        return [file for template in templates for file in self.beside(template, "png", "json")]
