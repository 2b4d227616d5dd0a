"""A finished run as Python objects: `headsweep.load("results/demo")`."""

from collections.abc import Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

import pandas as pd

from headsweep.config import Config
from headsweep.config import load as load_config
from headsweep.errors import ConfigError
from headsweep.files import paths
from headsweep.files.record import read_text
from headsweep.files.safe_files import read_table
from headsweep.files.tables import ACCURACY, ANSWERS, CURVES, QUESTIONS, FileKind
from headsweep.grading.foreign_answers import SUFFIXES
from headsweep.results.exhibits import EXHIBITS, RunFiles
from headsweep.results.facts import read_csv
from headsweep.store.layout import Store, check_version

CONFIG = Path(paths.CONFIG).name
"""The file that makes a folder a run's."""

_NAMED = 8  # runs that a message names


def find(given: str) -> Path:
    """Return a run's folder, given that, its name under results/, or a folder that holds one run.

    Raises:
        ConfigError: there is no such run, or the folder holds several.
    """
    match _found(given):
        case [folder]:
            if not folder.name or ".." in folder.parts:
                folder = folder.resolve()  # the store is found by the names above it
            check_version(folder.absolute().parent.parent)
            return folder
        case [_, *_] as several:
            raise ConfigError(f"{given!r} holds several runs; name one: {_listed(several)}")
    here = runs_here()
    none = f"there is none in {Path.cwd()}: name its folder"
    choice = f"name one: {_listed(here)}" if here else none
    raise ConfigError(
        f"{given!r} is not a run: neither it nor {Path(paths.RESULTS, given)} is a folder with a "
        f"{CONFIG}, or holds one in {paths.RESULTS}/; {choice}"
    )


def report_of(folder: Path) -> Path | None:
    """Return the report of a run, given its folder, unless its config is another since."""
    report = folder / Path(paths.REPORT).name
    if report.exists() and report.stat().st_mtime >= (folder / CONFIG).stat().st_mtime:
        return report
    return None


def runs(folder: Path) -> list[Path]:
    """Return the folders of the runs that lie in a folder's results/, or in it if it is that."""
    if folder.resolve().name != paths.RESULTS:
        folder /= paths.RESULTS
    return sorted(file.parent for file in folder.glob(f"*/{CONFIG}"))


def runs_here() -> list[Path]:
    """Return the folders of the runs in this folder's results/, then in those of folders in it.

    A sweep or a map that is typed here works in a folder of its own.
    """
    below = Path().glob(f"*/{paths.RESULTS}/*/{CONFIG}")
    return [*runs(Path()), *sorted(file.parent for file in below)]


def is_foreign(given: str) -> bool:
    """Return whether a file, a folder or a table's name is no run where `find` looks for one."""
    is_named = Path(given).exists() or Path(given).suffix in SUFFIXES
    return is_named and not _found(given)


def _found(given: str) -> list[Path]:
    """Return the runs that a text names, of which there should be one."""
    for folder in (Path(given), Path(paths.RESULTS, given)):
        is_export = (folder / paths.RESULTS).is_dir()  # its config is not in a run's folder
        found = [folder] if (folder / CONFIG).is_file() and not is_export else runs(folder)
        if found:
            return found
    return []


def _listed(folders: Sequence[Path]) -> str:
    """Return the first of some folders, and how many more there are."""
    more = len(folders) - _NAMED
    return ", ".join(map(str, folders[:_NAMED])) + (f" and {more} more" if more > 0 else "")


class Run:
    """The results of a run; files are read on demand.

    Names of sweeps, selectors and question sets are those of the run's config; a name may be left
    out where there is only one.

    Args:
        folder: the run's own, such as ``results/demo``, with the store beside it; its name; or the
            folder around its ``results``, if that holds no other run.

    Raises:
        ConfigError: there is no such run.
    """

    def __init__(self, folder: str | Path) -> None:
        self.folder = find(str(folder))

    @property
    def config(self) -> Config:
        """The resolved config that the run was made with."""
        return self.store.config

    @cached_property
    def store(self) -> Store:
        """The files of that config; their paths start from `root`."""
        return Store(load_config(self.folder / CONFIG))

    @property
    def root(self) -> Path:
        """The folder that the run's relative paths start from."""
        return self.folder.absolute().parent.parent

    def path(self, kind: FileKind, **names: object) -> Path:
        """Return the path of a file of a kind (`headsweep.files.tables`,
        `headsweep.files.paths`).
        """
        return self.root / self.store.path(kind, run=self.folder.name, **names)

    def z(self, sweep: str | None = None) -> pd.DataFrame:
        """Return the accuracy matrix Z of a sweep: one row per question, a 0/1 column per variant.

        The first columns are question id, subject and level. Besides the base model and the pruned
        heads there may be placebos (see `headsweep.variants`).
        """
        return read_table(self._of_sweep(ACCURACY, sweep), ACCURACY)

    def answers(self, variant: str = "base", sweep: str | None = None) -> pd.DataFrame:
        """Return what one variant, such as ``L05H03``, answered in a sweep: tokens and text."""
        return read_table(self._of_sweep(ANSWERS, sweep, variant=variant), ANSWERS)

    def questions(self, name: str | None = None) -> pd.DataFrame:
        """Return a question set with its gold answers."""
        path = self.path(QUESTIONS, questions=self.one("questions", name))
        return read_table(path, QUESTIONS)

    def heads(self, sweep: str | None = None) -> pd.DataFrame:
        """Return a sweep's heads: accuracy, gain with its interval, exact test, failures."""
        name = self.one("sweeps", sweep)
        return read_csv(self.path(paths.CONTROLS, sweep=name, table="heads"))

    def pass_at_n(self, selector: str | None = None) -> pd.DataFrame:
        """Return Pass@N of a selector and its baselines, with intervals."""
        return read_table(self.path(CURVES, selector=self.one("selectors", selector)), CURVES)

    def selector(self, name: str | None = None) -> tuple[Any, dict[str, Any]]:
        """Return a trained selector (a torch module) and the facts that it was saved with."""
        from headsweep.experiments.sprint.head_selector import load_selector

        return load_selector(self.path(paths.SELECTOR, selector=self.one("selectors", name)))

    @property
    def figures(self) -> dict[str, Path]:
        """The PNGs of the figures, by name; PDF, SVG, numbers and caption are beside them.

        Those of experiments that the config no longer has are left out.
        """
        of_run = RunFiles(self.store)
        every = [Path(file) for exhibit in EXHIBITS for file in of_run.pictures(exhibit)]
        pngs = {file.stem: self.folder / "figures" / f"{file.stem}.png" for file in every}
        return {name: pngs[name] for name in sorted(pngs) if pngs[name].exists()}

    @property
    def findings(self) -> list[str]:
        """The verdicts of the run's report, one line per question; empty without a report."""
        file = self.path(paths.FINDINGS)
        return read_text(file).splitlines() if file.exists() else []

    def __repr__(self) -> str:
        config = self.config
        sweeps = (f"sweep {n!r}: {s.model} on {s.questions}" for n, s in config.sweeps.items())
        selectors = (f"selector {n!r}: {s.train} → {s.test}" for n, s in config.selectors.items())
        lines = [f"run {config.run!r} in {self.folder}", *sweeps, *selectors]
        return "\n  ".join([*lines, f"{len(self.figures)} figures"])

    def _of_sweep(self, kind: FileKind, sweep: str | None, **names: object) -> Path:
        file_of = self.store.of_sweep
        run = self.folder.name
        return self.root / file_of(self.one("sweeps", sweep), kind, run=run, **names)

    def one(self, kind: str, name: str | None) -> str:
        """Return the given name of a config section's entry, or by default its only one.

        Raises:
            ConfigError: the name is not defined, or none is given and there are several.
        """
        defined: list[str] = list(getattr(self.config, kind))
        if not defined:
            raise ConfigError(f"the run has no {kind}; name a run whose config has some")
        if name is None and len(defined) != 1:
            raise ConfigError(f"the run has {len(defined)} {kind}; name one: {', '.join(defined)}")
        if name not in (None, *defined):
            raise ConfigError(f"{name!r} is none of the run's {kind}: {', '.join(defined)}")
        return name or defined[0]
