"""A changed digit or bit in any file of a run is noticed by whoever reads the file."""

import shutil
from pathlib import Path

import pytest

import headsweep
import simulation
from damage import damaged
from headsweep.cli import export
from headsweep.cli.compare import compare
from headsweep.config import load, parse
from headsweep.errors import HeadsweepError, TableError
from headsweep.experiments.sprint import head_selector
from headsweep.files import paths
from headsweep.files.record import Stopwatch, find_record, record_path, write_record
from headsweep.files.safe_files import write_json
from headsweep.page.figures import draw
from headsweep.page.report import write_report
from headsweep.results import jobs
from headsweep.store.layout import Store
from headsweep.store.revisions import resolve

RUN = Path("results/small")


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    """Return the folder and the config of a simulated run, with a record of each file."""
    config = resolve(parse(small()))
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(tmp_path_factory.mktemp("damage"))
        simulation.fill(config)
        store = Store(config)
        setting = head_selector.Setting("ball", 2, 0.0, 0.01, 200, 0.01, embedder="")
        selector = head_selector.HeadSelector(4, 8, setting, seed=0)
        file = store.path(paths.SELECTOR, selector="math")
        head_selector.save_selector(file, selector, {"heads": ["L00H00"]})
        write_record(file, Stopwatch(), {})
        write_json(store.path(paths.CONFIG), config.model_dump(mode="json"))
        simulation.record()
        simulation.write(config, figures=False)
        draw.draw(Store(config), "sweep", "demo")
        write_report(Store(config))
        yield config


def small():
    """Return the values of a config of every kind of result, with few of each."""
    values = simulation.whole().model_dump(mode="json", exclude_unset=True)
    for questions in values["questions"].values():
        questions["n"] = 40
    values["run"] = "small"
    values["problems"]["asdiv_a"]["revision"] = "0" * 64  # so that its file is not asked for
    values["sweeps"]["demo"]["layers"] = values["selectors"]["math"]["layers"] = [0]
    return values


def page(config):
    write_report(Store(config))


def controls(config):
    jobs.write_controls(Store(config), "demo")


def compressed(config):
    jobs.write_compression_tables(Store(config), simulation.PUBLISHED)


def exported(config):
    """Export the run, but for its compressions, whose arms were not trained."""
    values = config.model_dump(mode="json") | {"compressions": {}, "problems": {}, "solvers": {}}
    write_json(Path("results/others/config.json"), values)
    shutil.rmtree("out", ignore_errors=True)
    export.export(Path("results/others"), Path("out"))


def run(read):
    return lambda config: read(headsweep.load(RUN))


READ = {
    f"{RUN}/controls/demo/heads.csv": [run(lambda found: found.heads())],
    f"{RUN}/controls/demo/gains.csv": [lambda config: draw.draw(Store(config), "run")],
    f"{RUN}/tables/claims.csv": [page],
    f"{RUN}/sprint/math/pass_at_n.parquet": [page, run(lambda found: found.pass_at_n())],
    f"{RUN}/sprint/math/selector.safetensors": [run(lambda found: found.selector()), exported],
    f"{RUN}/frontier/math/families.csv.run.json": [page],
    f"{RUN}/compression/asdiv/histories.json": [compressed],
    f"{RUN}/compression/asdiv/measurements.csv": [compressed],
    f"{RUN}/figures/heatmap_demo_L00.svg": [page],
    f"{RUN}/figures/heatmap_demo_L00.json": [page],
    f"{RUN}/graded/*/greedy-*/math_test-*.parquet": [controls, lambda _: compare(RUN, RUN)],
    f"{RUN}/accuracy/*/greedy-*/math_test-*.parquet": [run(lambda found: found.z())],
    f"{RUN}/findings.txt": [run(lambda found: found.findings)],
    f"{RUN}/config.json": [run(lambda found: found.config), lambda _: load(RUN / "config.json")],
    "results/store/questions/math_test-*.parquet": [page, exported],
    "results/store/activations/*/greedy-*/math_test-*.parquet": [controls],
    "results/store/*/greedy-*/math_test-*/L00H01.parquet": [page, controls, exported],
}
"""Files of each kind, and who reads them; `test_architecture` holds that there is no other way."""


@pytest.mark.parametrize("form", READ)
def test_whoever_reads_a_damaged_file_refuses_and_names_it(form, finished):
    file = next(Path().glob(form))
    for read in READ[form]:
        with damaged(file), pytest.raises(HeadsweepError) as error:
            read(finished)
        assert str(file) in str(error.value) and "remove" in str(error.value)
        assert "\n" not in str(error.value)


def test_every_file_of_the_run_has_a_checksum(finished):
    files = [file for file in RUN.rglob("*") if file.is_file()]
    unknown = [
        file
        for file in files
        if not (file.suffix == ".parquet" or file.name.endswith(".run.json") or find_record(file))
    ]
    assert [file for file in unknown if file.suffix != ".tex"] == []


@pytest.mark.parametrize("content", ["[1]", '"text"', '{"sha256": "abc"}'])
def test_a_file_that_is_only_called_as_records_are_is_none(tmp_path, content):
    model = tmp_path / "models" / "weights.bin"
    model.parent.mkdir()
    model.write_bytes(b"weights")
    (tmp_path / "build.run.json").write_text(content)
    assert find_record(model) is None
    write_record(model, Stopwatch(), {})
    assert find_record(model) is not None
    (tmp_path / "build.run.json").write_text("{")  # it may have been the record of this file
    record_path(model).unlink()
    with pytest.raises(TableError, match=r"build\.run\.json cannot be read"):
        find_record(model)
