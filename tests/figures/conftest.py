import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import simulated_trials
import simulation
from simulation import PUBLISHED

from headroom.analysis import jobs
from headroom.config import Config
from headroom.figures import draw
from headroom.report.page import write_report


@contextmanager
def inside(folder: Path) -> Iterator[None]:
    before = Path.cwd()
    os.chdir(folder)
    try:
        yield
    finally:
        os.chdir(before)


@pytest.fixture(scope="session")
def run(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Config]:
    """Return the folder and config of a simulated run, drawn once for the whole session."""
    folder, config = tmp_path_factory.mktemp("run"), simulation.demo()
    with inside(folder):
        simulation.fill(config)
        draw.draw_violins(config)
        draw.draw_levels(config)
        jobs.write_tables(config, "demo", PUBLISHED)
        jobs.write_comparison(config, "prompts")
        jobs.write_controls(config, "demo")
        draw.draw_sweep(config, "demo")
        draw.draw_selector(config, "math")
        draw.draw_audit(config, PUBLISHED)
        jobs.write_claims(config, PUBLISHED)
        write_report(config)
    return folder, config


@pytest.fixture(scope="session")
def compressed(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Config]:
    """Return the folder and config of a run of two simulated compressions, one with one seed."""
    folder = tmp_path_factory.mktemp("compressed")
    least = simulated_trials.study(arms=["baseline", "full"], variations={}, seeds=[3], int8=[])
    lone = simulated_trials.trial(least, name="lone", examples=53)
    trials = [simulated_trials.trial(), lone]
    config = simulated_trials.config(**{trial.name: trial.study for trial in trials})
    with inside(folder):
        simulated_trials.fill(config, trials)
        jobs.write_compression_tables(config, PUBLISHED)
        draw.draw_compression(config, "asdiv")
        draw.draw_audit(config, PUBLISHED)
        jobs.write_claims(config, PUBLISHED)
        write_report(config)
    return folder, config
