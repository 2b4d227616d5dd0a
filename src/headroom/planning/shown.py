"""Inputs and outputs of the rules that make tables, figures and the report."""

from typing import Any

from headroom import paths
from headroom.config import Config
from headroom.planning.batches import pool
from headroom.planning.exhibits import (
    AUDIT_TABLES,
    COMPRESSION_TABLES,
    CONTROL_TABLES,
    EXHIBITS,
    STUDY_FILES,
    Exhibit,
    Subject,
    exhibits,
    shown,
)
from headroom.planning.store import Store

Inputs = dict[str, str | list[str]]
"""Named inputs of a rule."""

_SHORT = 3  # rounds of fewer epochs have no course that losses could show

_OF_SELECTOR = (
    *(paths.CHOICE, paths.CURVES, paths.PAIRED, paths.VOTES, paths.SENSITIVITY, paths.ABLATION),
    *(paths.SELECTOR_CARD, paths.EMBEDDING_VALUE, paths.DIVERSITY, paths.CHOOSING),
)


class Shown:
    """The tables, figures and report of a resolved config."""

    def __init__(self, config: Config) -> None:
        self.config = config
        self.store = Store(config)

    def files(self, need: str, name: str = "") -> list[str]:
        """Return the files that a figure is drawn from.

        Args:
            need: its `Exhibit.needs`.
            name: its sweep, selector, compression or frontier.
        """
        fill = self.store.fill
        match need:
            case "gains":
                return [fill(paths.CONTROLS, sweep=s, table="gains") for s in self.config.sweeps]
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
            case "frontier":
                tables = ("curves", "paired", "families")
                return [fill(paths.FRONTIER, frontier=name, table=each) for each in tables]
        return []

    def drawn_from(self, name: str, *kinds: Subject) -> list[str]:
        """Return the files that all figures of a subject are drawn from."""
        needs = dict.fromkeys(exhibit.needs for kind in kinds for exhibit in exhibits(kind))
        return list(dict.fromkeys(file for need in needs for file in self.files(need, name)))

    def drawn(self, *kinds: Subject, sweep: str = "{sweep}") -> list[Any]:
        """Return all files of the figures that a job draws; Snakemake's report shows the PNGs.

        Args:
            kinds: kinds of subjects.
            sweep: their sweep; other names stay wildcards.
        """
        files: list[Any] = []
        for exhibit in [each for each in EXHIBITS if each.per in kinds]:
            subject = sweep if exhibit.per in ("sweep", "layer") else f"{{{exhibit.per}}}"
            for layer in self.layers(sweep) if exhibit.per == "layer" else [0]:
                path = self.store.fill(exhibit.path, sweep=sweep, layer=f"{layer:02d}")
                label = exhibit.title.format(of=subject, layer=layer)
                png, *others = (
                    self.store.fill(path, suffix=suffix)
                    for suffix in ("png", "pdf", "svg", "csv", "json")
                )
                files += [*others, shown(png, exhibit.name, "Figures", figure=label)]
        return files

    def layers(self, sweep: str) -> list[int]:
        """Return the layers whose heads a sweep prunes."""
        heads = pool(self.config, self.config.sweeps[sweep])
        return sorted({head.layer for head in heads if head.layer is not None})

    def sweep_table(self, name: str, template: str = paths.ACCURACY) -> str:
        """Return the accuracy matrix of a sweep, or another file of its batch."""
        return str(self.store.of_sweep(name, template))

    def study_files(self, name: str) -> list[str]:
        """Return the result files of a compression."""
        return [self.store.fill(template, compression=name) for template in STUDY_FILES]

    def studied(self) -> list[str]:
        """Return the result files of all compressions."""
        return [file for name in self.config.compressions for file in self.study_files(name)]

    def judged(self) -> list[str]:
        """Return the run's files that the papers' claims are judged from."""
        paired = [self.store.fill(paths.PAIRED, selector=name) for name in self.config.selectors]
        swept = dict.fromkeys(map(self.sweep_table, self.config.sweeps))
        return [*swept, *paired, *self.studied()]

    def reported(self) -> list[str]:
        """Return all files that the run's report shows."""
        config, fill = self.config, self.store.fill
        files = [fill(paths.AUDIT_TABLE, paper=name) for name in AUDIT_TABLES]
        files += [fill(paths.CLAIMS), *self.judged()]
        for name in config.sweeps:
            files.append(fill(paths.TABLE, sweep=name, suffix="csv"))
            files += [fill(paths.CONTROLS, sweep=name, table=table) for table in CONTROL_TABLES]
        for name in config.selectors:
            files += [fill(template, selector=name) for template in _OF_SELECTOR]
        for name in config.frontiers:
            files += [fill(paths.FRONTIER, frontier=name, table=t) for t in paths.FRONTIER_TABLES]
        files += [fill(paths.COMPARISON, comparison=name) for name in config.comparisons]
        for table in COMPRESSION_TABLES if config.compressions else ():
            files.append(fill(paths.COMPRESSION_TABLE, exhibit=table, suffix="csv"))
        for exhibit in EXHIBITS:
            for template in self.pictures(exhibit):
                files += [template.format(suffix=suffix) for suffix in ("png", "json")]
        return list(dict.fromkeys(files))

    def pictures(self, exhibit: Exhibit) -> list[str]:
        """Return the paths of all pictures of a figure in the run, their suffix left open."""
        config = self.config
        trained = {name: study.method for name, study in config.compressions.items()}
        subjects = {
            "run": [""] * bool(config.sweeps),
            "sweep": config.sweeps,
            "layer": config.sweeps,
            "selector": config.selectors,
            "frontier": config.frontiers,
            "compression": [
                name
                for name, method in trained.items()
                if method.training.epochs >= _SHORT * method.rounds
            ],
        }
        return [
            exhibit.template(config.run, of, layer)
            for of in subjects[exhibit.per]
            for layer in (self.layers(of) if exhibit.per == "layer" else [0])
        ]
