from contextlib import chdir
from pathlib import Path

import pytest

import simulated_trials
import simulation
from headroom.config import Config


@pytest.fixture(scope="session")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the folder of a simulated run of a sweep and a selector, drawn once a session."""
    folder, config = tmp_path_factory.mktemp("run"), simulation.demo()
    with chdir(folder):
        simulation.fill(config)
        simulation.write_sweeps(config)
    return folder


@pytest.fixture(scope="session")
def compressed(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Config]:
    """Return the folder and config of a run of two simulated compressions."""
    folder, made = tmp_path_factory.mktemp("compressed"), simulation.trials()
    config = simulated_trials.config(**{trial.name: trial.study for trial in made})
    with chdir(folder):
        simulated_trials.fill(config, made)
        simulation.write_trials(config)
    return folder, config
