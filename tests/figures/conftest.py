import os
from collections.abc import Iterator
from pathlib import Path

import pytest
import simulation

from headroom.analysis import jobs
from headroom.config import Config
from headroom.figures import draw
from headroom.report.page import write_report

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
    finally:
        os.chdir(before)
    yield folder, config
