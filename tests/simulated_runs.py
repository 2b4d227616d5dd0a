"""Simulated runs on disk: tables, figures, claims."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import simulated_trials
import simulation
from headroom.analysis import jobs
from headroom.config import Config
from headroom.figures import draw
from simulation import PUBLISHED


@contextmanager
def inside(folder: Path) -> Iterator[None]:
    """Work in a folder."""
    before = Path.cwd()
    os.chdir(folder)
    try:
        yield
    finally:
        os.chdir(before)


def draw_sweeps(config: Config) -> None:
    """Write tables and figures of a filled run's sweep and selector."""
    for sweep in config.sweeps:
        jobs.write_tables(config, sweep, PUBLISHED)
        jobs.write_controls(config, sweep)
        draw.draw_sweep(config, sweep)
    if config.sweeps:
        draw.draw_run(config)
    for selector in config.selectors:
        draw.draw_selector(config, selector)


def draw_trials(config: Config) -> None:
    """Write tables and figures of a filled run's compressions."""
    jobs.write_compression_tables(config, PUBLISHED)
    for compression in config.compressions:
        draw.draw_compression(config, compression)


def audit(config: Config) -> None:
    """Write what a run says of published numbers."""
    jobs.write_audit(config, PUBLISHED)
    jobs.write_claims(config, PUBLISHED)


def trials() -> list[simulated_trials.Trial]:
    """Return two simulated compressions, one with one seed."""
    least = simulated_trials.study(arms=["baseline", "full"], variations={}, seeds=[3], int8=[])
    lone = simulated_trials.trial(least, name="lone", examples=53)
    return [simulated_trials.trial(), lone]


def swept(folder: Path) -> tuple[Path, Config]:
    """Make a run of a sweep and a selector."""
    config = simulation.demo()
    with inside(folder):
        simulation.fill(config)
        draw_sweeps(config)
        audit(config)
    return folder, config


def compressed(folder: Path) -> tuple[Path, Config]:
    """Make a run of two compressions."""
    made = trials()
    config = simulated_trials.config(**{trial.name: trial.study for trial in made})
    with inside(folder):
        simulated_trials.fill(config, made)
        draw_trials(config)
        audit(config)
    return folder, config
