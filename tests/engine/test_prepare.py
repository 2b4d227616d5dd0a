"""A model that ships with the package, where the package may not be written."""

import os
import shutil
import time
from pathlib import Path
from unittest.mock import Mock

import pytest

from example_config import VALUES, changed
from headsweep.answers import prepare
from headsweep.cli import without_snakemake
from headsweep.config import parse
from headsweep.errors import ModelError
from headsweep.files import paths
from headsweep.files.locks import Locks
from headsweep.files.record import Stopwatch, first_damaged_file, record_path
from headsweep.files.safe_files import write_json
from headsweep.models import source
from headsweep.store.layout import Store
from headsweep.store.revisions import resolve
from processes import wait_until

MODEL = "tiny"


@pytest.fixture
def config(tmp_path, monkeypatch):
    """The demo's config, where the shipped model lies in a package that may only be read."""
    monkeypatch.chdir(tmp_path)
    package = shutil.copytree(source.BUILTIN["builtin:reasoner"], tmp_path / "package")
    for file in package.iterdir():
        file.chmod(0o444)
    package.chmod(0o555)
    monkeypatch.setitem(source.BUILTIN, "builtin:reasoner", package)
    only = {"run": "one", "models": {MODEL: VALUES["models"][MODEL]}}
    yield resolve(parse(only))
    package.chmod(0o755)


@pytest.mark.parametrize("at", ["write_json", "write_record"])
def test_a_job_killed_behind_its_copy_of_a_read_only_model_is_made_up_for(config, monkeypatch, at):
    def killed(*_):
        raise KeyboardInterrupt

    def make():  # as `headsweep sweep` does
        without_snakemake.once(output, prepare.prepare_model, Store(config), MODEL)

    output = Store(config).path(paths.MODEL, model=MODEL)
    copy = Store(config).path(paths.CHECKPOINT, model=MODEL)
    with monkeypatch.context() as patch:
        patch.setattr(prepare, at, killed)
        with pytest.raises(KeyboardInterrupt):
            make()
    assert all(file.stat().st_mode & 0o200 for file in (copy, *copy.iterdir()))
    for file in copy.iterdir():  # as copies of copies may be
        file.chmod(0o444)
    copy.chmod(0o555)
    make()
    assert record_path(output).exists()
    assert first_damaged_file(output) is None
    assert all(file.stat().st_mode & 0o200 for file in (copy, *copy.iterdir()))


def test_a_model_that_another_process_makes_ready_is_awaited_and_not_made_again(
    config, monkeypatch
):
    output = Store(config).path(paths.MODEL, model=MODEL)
    Path(paths.STORE_LOCKS).parent.mkdir(parents=True)
    (read, write), waits = os.pipe(), []
    maker = os.fork()
    if not maker:
        locks = Locks(Path(paths.STORE_LOCKS))
        assert locks.take(str(output))
        os.write(write, b"+")
        wait_until(Path("awaited").exists)
        prepare.write_json(output, {"folder": "made by another"})
        prepare.write_record(output, Stopwatch(), {})
        os._exit(0)
    os.read(read, 1)

    def wait(seconds):
        waits.append(seconds)
        Path("awaited").touch()
        time.sleep(0.01)

    monkeypatch.setattr(prepare, "time", Mock(sleep=wait))
    prepare.prepare_model(Store(config), MODEL)
    os.waitpid(maker, 0)
    assert waits and "made by another" in output.read_text()
    record_path(output).unlink()  # it was killed: then the model is made here
    prepare.prepare_model(Store(config), MODEL)
    assert "made by another" not in output.read_text()
    os.close(read)
    os.close(write)


def test_a_local_model_is_loaded_from_where_the_config_has_it_today(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for folder in ("before/model", "moved"):
        Path(folder).mkdir(parents=True)
    values = changed(VALUES, "models/big", VALUES["models"]["big"] | {"source": "./before/model"})
    before = Store(parse(values))
    after = Store(parse(changed(values, "models/big/source", "./moved")))
    file = before.path(paths.MODEL, model="big")
    assert file == after.path(paths.MODEL, model="big")  # of the content, not of the place
    write_json(file, {"folder": "before/model"})
    assert before.model_folder("big") == Path("before/model")
    assert after.model_folder("big") == Path("moved")
    Path("moved").rmdir()
    assert after.model_folder("big") == Path("before/model")  # what the store says
    Path("before/model").rmdir()
    with pytest.raises(ModelError, match=r"^before/model, which .*model\.json names, is gone; "):
        after.model_folder("big")
