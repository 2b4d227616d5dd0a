"""A run as Python objects: which folder it is, and which figures are its own."""

from pathlib import Path

import headsweep
import simulation
from headsweep.config import parse
from headsweep.files.safe_files import write_json
from headsweep.store.layout import mark_version


def test_a_run_is_found_from_within_and_its_store_too(tmp_path, monkeypatch):
    config = parse(simulation.DEMO)
    folder = tmp_path / "results" / config.run
    monkeypatch.chdir(tmp_path)
    mark_version()
    write_json(folder / "config.json", config.model_dump(mode="json"))
    (folder / "figures").mkdir()
    for place, given in ((folder, "."), (folder / "figures", ".."), (tmp_path, config.run)):
        monkeypatch.chdir(place)
        run = headsweep.load(given)
        assert run.root == tmp_path and run.folder.absolute() == folder


def test_figures_of_an_experiment_that_is_gone_are_not_the_run_s(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    config = parse(simulation.DEMO)
    mark_version()
    folder = Path("results") / config.run
    write_json(folder / "config.json", config.model_dump(mode="json"))
    sweep = next(iter(config.sweeps))
    (folder / "figures").mkdir()
    for name in (f"agreement_{sweep}", f"agreement_{sweep}_before"):
        (folder / "figures" / f"{name}.png").touch()
    assert [*headsweep.load(config.run).figures] == [f"agreement_{sweep}"]
