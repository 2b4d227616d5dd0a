"""Inputs and outputs of the rules that make tables, figures and the report."""

from collections.abc import Iterable
from typing import Any

from headroom import paths
from headroom.config import Config
from headroom.planning.batches import pool
from headroom.planning.exhibits import (
    COMPRESSION_TABLES,
    CONTROL_TABLES,
    EXHIBITS,
    PAPERS,
    SELECTOR_RESULTS,
    SELECTOR_TABLES,
    STUDY_FILES,
    Exhibit,
    Subject,
    exhibits,
    shown,
)
from headroom.planning.store import Store

Inputs = dict[str, str | list[str]]
"""Named inputs of a rule."""

_BESIDE = ("pdf", "svg", "csv", "json")


class Shown:
    """The tables, figures and report of a resolved config."""

    def __init__(self, config: Config) -> None:
        self.config = config
        self.store = Store(config)

    def files(self, need: str, name: str = "") -> list[str]:
        """Return the files that a figure is drawn from; none for published numbers.

        Args:
            need: its `Exhibit.needs`.
            name: its sweep, selector or compression.
        """
        fill = self.store.fill
        match need:
            case "gains":
                return list(dict.fromkeys(self.sweep_tables()))
            case "accuracy":
                return [self.sweep_table(name)]
            case "curves":
                return [fill(paths.CURVES, selector=name), fill(paths.PAIRED, selector=name)]
            case "points":
                selector = self.config.selectors[name]
                names = {"decoding": selector.decoding, "questions": selector.test}
                z = fill(paths.ACCURACY, model=selector.model, **names)
                return [fill(paths.POINTS, selector=name), z]
            case "trial":
                return self.study_files(name)
        return []

    def drawn_from(self, name: str, *kinds: Subject) -> list[str]:
        """Return the files that all figures of a sweep, selector or compression are drawn from."""
        needs = dict.fromkeys(exhibit.needs for kind in kinds for exhibit in exhibits(kind))
        return list(dict.fromkeys(file for need in needs for file in self.files(need, name)))

    def drawn(self, *of: str, sweep: str = "{sweep}") -> list[Any]:
        """Return all files of the figures that a job draws; Snakemake's report shows the PNGs.

        Args:
            of: names of figures, or kinds of subjects.
            sweep: their sweep; names of selectors and compressions stay wildcards.
        """
        files: list[Any] = []
        for exhibit in [each for each in EXHIBITS if {each.name, each.per} & set(of)]:
            subject = sweep if exhibit.per in ("sweep", "layer") else f"{{{exhibit.per}}}"
            for layer in self.layers(sweep) if exhibit.per == "layer" else [0]:
                path = self.store.fill(exhibit.path, sweep=sweep, layer=f"{layer:02d}")
                label = exhibit.title.format(of=subject, layer=layer)
                files += self.beside(path)
                png = self.store.fill(path, suffix="png")
                files.append(shown(png, exhibit.name, "Figures", figure=label))
        return files

    def layers(self, sweep: str) -> list[int]:
        """Return the layers whose heads a sweep prunes."""
        heads = pool(self.config, self.config.sweeps[sweep])
        return sorted({head.layer for head in heads if head.layer is not None})

    def sweep_table(self, name: str, template: str = paths.ACCURACY) -> str:
        """Return the accuracy matrix of a sweep, or another file of its batch."""
        return str(self.store.of_sweep(name, template))

    def sweep_tables(self) -> list[str]:
        """Return the accuracy matrices of all sweeps."""
        return [self.sweep_table(name) for name in self.config.sweeps]

    def study_files(self, name: str) -> list[str]:
        """Return the result files of a compression."""
        return [self.store.fill(template, compression=name) for template in STUDY_FILES]

    def studied(self) -> list[str]:
        """Return the result files of all compressions."""
        return [file for name in self.config.compressions for file in self.study_files(name)]

    def judged(self) -> list[str]:
        """Return the run's files that the papers' claims are judged from."""
        paired = [self.store.fill(paths.PAIRED, selector=name) for name in self.config.selectors]
        return [*self.sweep_tables(), *paired, *self.studied()]

    def beside(self, template: str, *suffixes: str) -> list[str]:
        """Return a template's files with the given suffixes; by default, a figure's without PNG."""
        return [self.store.fill(template, suffix=suffix) for suffix in suffixes or _BESIDE]

    def reported(self) -> list[str]:
        """Return all files that the run's report shows."""
        config, fill = self.config, self.store.fill
        files = [fill(paths.AUDIT_TABLE, paper=paper, suffix="csv") for paper in PAPERS]
        files += self.beside(paths.CLAIMS, "csv", "md")
        for exhibit in exhibits("run"):
            if config.sweeps or exhibit.needs == "published":
                files += self._pictures(exhibit)
        for name in config.sweeps:
            files += [self.sweep_table(name), fill(paths.TABLE, sweep=name, suffix="md")]
            files += self._controls(name, CONTROL_TABLES)
            files += self._pictures(*exhibits("sweep"), sweep=name)
            for layer in self.layers(name):
                files += self._pictures(*exhibits("layer"), sweep=name, layer=f"{layer:02d}")
        for name in config.selectors:
            files += self._pictures(*exhibits("selector"), selector=name)
            for template in (*SELECTOR_RESULTS, *SELECTOR_TABLES):
                files.append(fill(template, selector=name, suffix="md"))
        for name in config.comparisons:
            files.append(fill(paths.COMPARISON, comparison=name, suffix="md"))
        for table in COMPRESSION_TABLES if config.compressions else ():
            files += self.beside(fill(paths.COMPRESSION_TABLE, exhibit=table), "csv", "md")
        for name in config.compressions:
            files += self.study_files(name)
            files += self._pictures(*exhibits("compression"), compression=name)
        return files

    def _controls(self, sweep: str, tables: Iterable[str]) -> list[str]:
        return [
            self.store.fill(paths.CONTROLS, sweep=sweep, table=table, suffix="csv")
            for table in tables
        ]

    def _pictures(self, *figures: Exhibit, **names: str) -> list[str]:
        """Return the files of figures that the report shows."""
        fill = self.store.fill
        return [fill(each.path, suffix=s, **names) for each in figures for s in ("png", "json")]
