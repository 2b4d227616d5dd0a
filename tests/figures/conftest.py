import os
from collections.abc import Iterator
from pathlib import Path

import pytest
import simulation

from headroom.config import Config
from headroom.figures import job

PUBLISHED = Path(__file__).parents[2] / "config" / "published"


@pytest.fixture(scope="session")
def run(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Path, Config]]:
    """Yield the folder and config of a simulated run, drawn once for the whole session."""
    folder = tmp_path_factory.mktemp("run")
    config = simulation.demo()
    before = Path.cwd()
    os.chdir(folder)
    try:
        simulation.fill(config)
        job.draw_violins(config)
        job.draw_levels(config)
        job.draw_heatmap(config, "demo", 5)
        job.draw_curves(config, "math")
        job.write_tables(config, "demo", PUBLISHED)
        job.write_comparison(config, "prompts")
        job.write_controls(config, "demo")
        job.draw_forest(config, "demo")
        job.draw_audit(config, PUBLISHED)
        job.write_claims(config, PUBLISHED)
        job.write_report(config)
    finally:
        os.chdir(before)
    yield folder, config
