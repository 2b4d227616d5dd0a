"""The report of the papers' whole experiment: 500 questions, 504 heads, 28 heatmaps, 4 models."""

import os
import shutil
from functools import partial
from pathlib import Path

import chromium
import pandas as pd
import pytest
import simulation

from headroom import paths
from headroom.analysis.controls import GAINS, HEADS, SPREAD
from headroom.analysis.gains import read_z
from headroom.analysis.placebos import PLACEBOS
from headroom.analysis.sheet import write_csv
from headroom.analysis.verdict import FAILURES
from headroom.config import Config
from headroom.figures.draw import draw_exhibit
from headroom.figures.drawing import SUFFIXES
from headroom.planning.batches import batches, pool
from headroom.planning.exhibits import find_exhibit
from headroom.planning.shown import Shown
from headroom.report.page import write_report

# As long as an answer of a real model: 300 to 600 tokens.
ANSWER = "Let x be the number of apples that Natalia sold in May, and note that 3x = 48. " * 20
MOST_HEADS = 504
AVERAGE = "Llama-3-8B-Instruct"  # of the sweeps, by its heads in a layer


def fill(config: Config, finished: Path) -> None:
    """Write what the report reads, as large as at paper scale; one heatmap stands for all."""
    simulation.fill(config, text=ANSWER, alike=True)
    shutil.copytree(finished / "audit", f"results/{config.run}/audit")
    exhibit = find_exhibit("heatmap")
    drawn = draw_exhibit(exhibit, "drawn", AVERAGE, read_z(config, AVERAGE), [], layer=0)
    for sweep in config.sweeps:
        _controls(config, sweep)
        for layer in Shown(config).layers(sweep):
            for file, suffix in zip(drawn, SUFFIXES, strict=True):
                names = {"sweep": sweep, "layer": f"{layer:02d}", "suffix": suffix}
                link = Path(exhibit.path.format(run=config.run, **names))
                link.parent.mkdir(parents=True, exist_ok=True)
                os.link(file, link)


def _controls(config: Config, sweep: str) -> None:
    """Write controls of the right size; their numbers do not matter."""
    variants = pool(config, config.sweeps[sweep])
    template = partial(paths.CONTROLS.format, run=config.run, sweep=sweep, suffix="csv")
    groups = [("overall", "Overall"), *(("subject", name) for name in simulation.SUBJECTS)]
    groups += [("level", f"Level {level}") for level in range(1, 6)]
    layers = sorted({variant.layer for variant in variants})
    gains = pd.DataFrame([(*group, layer) for group in groups for layer in layers])
    gains.columns = ["by", "group", "layer"]
    heads = pd.DataFrame({"variant": ["base", *map(str, variants)]})
    heads["layer"] = [None, *(variant.layer for variant in variants)]
    heads["head"] = [None, *(variant.head for variant in variants)]
    spread = pd.DataFrame({"of": [f"layer {layer}" for layer in layers]})
    for name, table, columns in (
        ("gains", gains, GAINS),
        ("heads", heads, HEADS),
        ("spread", spread, SPREAD),
        ("failures", heads.head(21), list(FAILURES)),
        ("placebos", pd.DataFrame({"kind": ["head", "numeric"]}), PLACEBOS),
    ):
        write_csv(Path(template(table=name)), table.reindex(columns=columns, fill_value=0.25))


@pytest.mark.skipif(not chromium.BINARY, reason="no Chromium is installed")
def test_page_of_the_papers_opens_within_two_seconds(run, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    config = simulation.paper_scale()
    assert max(len(batch.variants) for batch in batches(config)) == MOST_HEADS + 1
    fill(config, run[0] / "results/simulated")
    write_report(config)
    written = Path(paths.REPORT.format(run=config.run))
    assert written.stat().st_size < 20e6

    with chromium.page(tmp_path / "profile") as page:
        page.resize(1200, 900)
        assert min(page.open(written.resolve()) for _ in range(5)) < 2  # the least loaded
        assert page.run("document.querySelectorAll('details[data-layer] img').length") == 28
        told = page.run("document.getElementById('answers').textContent")
        assert "those of the other" in told
        before = "performance.now()"
        start = page.run(before)
        page.run(
            "{ const one = document.querySelector('#filters [name=model]'); "
            "one.value = 'Wide-72B'; one.dispatchEvent(new Event('input', { bubbles: true })); }"
        )
        assert page.run(before) - start < 2000
        heads = "document.querySelectorAll('form.search output')[3].textContent"
        assert page.run(heads) == f"{MOST_HEADS} heads"
        shown = page.run("document.querySelector('article').innerText")
        assert "Natalia" in shown
        assert page.complaints() == []
