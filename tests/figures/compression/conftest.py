import os
from collections.abc import Iterator
from pathlib import Path

import pytest
import simulated_trials

from headroom.analysis import jobs
from headroom.config import Config
from headroom.figures import draw
from headroom.report.page import write_report

PUBLISHED = Path(__file__).parents[3] / "config" / "published"


@pytest.fixture(scope="session")
def compressed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Path, Config]]:
    """Yield the folder and config of a run of two simulated compressions, one with one seed."""
    folder = tmp_path_factory.mktemp("compressed")
    every = simulated_trials.trial()
    least = simulated_trials.study(arms=["baseline", "full"], variations={}, seeds=[3], int8=[])
    trials = [every, simulated_trials.trial(least, name="lone", examples=53)]
    config = simulated_trials.config(**{trial.name: trial.study for trial in trials})
    before = Path.cwd()
    os.chdir(folder)
    try:
        simulated_trials.fill(config, trials)
        jobs.write_compression_tables(config, PUBLISHED)
        draw.draw_compression(config, "asdiv", PUBLISHED)
        draw.draw_audit(config, PUBLISHED)
        jobs.write_claims(config, PUBLISHED)
        write_report(config)
    finally:
        os.chdir(before)
    yield folder, config
