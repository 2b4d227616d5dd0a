from collections.abc import Callable, Iterator
from pathlib import Path

import chromium
import pytest

import simulated_runs
import simulated_trials
import simulation
from headroom import paths
from headroom.config import Config, parse
from headroom.frontier.job import compare
from headroom.report.page import write_report


def make(folder: Path, config: Config, trials: list[simulated_trials.Trial]) -> Path:
    """Make a simulated run whole and return its page."""
    with simulated_runs.inside(folder):
        simulation.fill(config)
        simulated_trials.fill(config, trials)
        for name in config.frontiers:
            compare(config, name)
        simulated_runs.draw_sweeps(config)
        if trials:
            simulated_runs.draw_trials(config)
        simulated_runs.audit(config)
        write_report(config)
    return folder / paths.REPORT.format(run=config.run)


def whole() -> Config:
    """Return a config of a sweep, a selector and two compressions."""
    studies = {trial.name: trial.study for trial in simulated_runs.trials()}
    compressed = simulated_trials.config(**studies).model_dump(mode="json", exclude_unset=True)
    parts = {part: compressed[part] for part in ("problems", "solvers", "compressions")}
    families = {"model": "reasoner", "train": "math_train", "test": "math_test"}
    frontiers = {"math": {**families, "sampling": ["T0.6"], "scales": {"weights": [20]}}}
    return parse(simulation.DEMO | parts | {"run": "whole", "frontiers": frontiers})


@pytest.fixture(scope="session")
def pages(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], tuple[Path, Config]]:
    """Return what makes the page of a kind of run, each once a session."""
    made: dict[str, tuple[Path, Config]] = {}

    def page(kind: str) -> tuple[Path, Config]:
        if kind not in made:
            folder = tmp_path_factory.mktemp(kind)
            config, trials = whole(), simulated_runs.trials()
            gone = {
                "sweep": ("selectors", "compressions", "frontiers"),
                "compression": ("selectors", "sweeps", "comparisons", "frontiers"),
            }
            config = config.model_copy(update={section: {} for section in gone.get(kind, ())})
            trials = trials if config.compressions else []
            made[kind] = make(folder, config, trials), config
        return made[kind]

    return page


@pytest.fixture(scope="session")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[chromium.Page]:
    if not chromium.BINARY:
        pytest.skip("no Chromium is installed")
    with chromium.page(tmp_path_factory.mktemp("profile")) as page:
        yield page
