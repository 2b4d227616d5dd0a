from contextlib import chdir

import pytest

import simulated_trials
import simulation
from headroom.analysis.compressions import tables
from headroom.analysis.published import conditions


@pytest.fixture(scope="session")
def run(tmp_path_factory):
    """Return the folder of a simulated run of a sweep and a selector, drawn once a session."""
    folder, config = tmp_path_factory.mktemp("run"), simulation.demo()
    with chdir(folder):
        simulation.fill(config)
        simulation.write_sweeps(config)
    return folder


@pytest.fixture(scope="session")
def compressed(tmp_path_factory):
    """Return the folder and config of a run of two simulated compressions."""
    folder, made = tmp_path_factory.mktemp("compressed"), simulation.trials()
    config = simulated_trials.config(**{trial.name: trial.study for trial in made})
    with chdir(folder):
        simulated_trials.fill(config, made)
        simulation.write_trials(config)
    return folder, config


@pytest.fixture(scope="session")
def made():
    """Return the tables of two solvers on Math23k, the second larger and with one seed."""
    least = simulated_trials.study(
        solver="big", arms=["baseline", "full"], variations={}, seeds=[3], int8=[]
    )
    second = simulated_trials.trial(least, name="second", examples=53, papers_data="Math23k")
    for history in second.histories["baseline"].values():
        history["parameters"] *= 3
    first = simulated_trials.trial(papers_data="Math23k")
    return tables([first, second], conditions(simulation.PUBLISHED))
