"""A store, a run, an export and a gallery of version 1, as they were written, read today.

`version_1.tar.xz` has a miniature run without its figures and weights, its export, and files of the
real model's gallery; `version_1_keys.json` the keys that version 1 gave to shipped configs.
"""

import json
import re
import shutil
import tarfile
from pathlib import Path

import pandas as pd
import pytest

import headsweep
from headsweep import cli, paths
from headsweep.config import load
from headsweep.errors import ConfigError
from headsweep.planning.batches import batches
from headsweep.planning.revisions import resolve
from headsweep.planning.store import Store, check_version
from headsweep.record import checked_file, read_record
from headsweep.safe_files import read_metadata, read_table
from headsweep.tables import QUESTIONS
from headsweep.tool import former_keys, upgrade
from headsweep.tool.export import files_of
from mini import ROOT, Snakemake, planned

HERE = Path(__file__).parent / "upgrade"
FORMER_KEYS = json.loads((HERE / "version_1_keys.json").read_text(encoding="utf-8"))
FOLDERS = {"run": ("", []), "export": ("exported", ["config.json"])}
FOLDERS["gallery"] = ("gallery", ["config.json"])


@pytest.fixture(scope="session")
def unpacked(tmp_path_factory):
    folder = tmp_path_factory.mktemp("version_1")
    with tarfile.open(HERE / "version_1.tar.xz") as archive:
        archive.extractall(folder, filter="data")
    return folder


@pytest.fixture
def before(unpacked, tmp_path, monkeypatch):
    """A copy of the folder of version 1, which is the working directory."""
    folder = shutil.copytree(unpacked, tmp_path / "before")
    monkeypatch.chdir(folder)
    return folder


def tree(folder="results"):
    """The files of a folder and their content."""
    return {file: file.read_bytes() for file in Path(folder).rglob("*") if file.is_file()}


def answers(folder):
    """The answers in a store, by model, decoding, question set and variant, without digests."""
    found = {}
    for file in Path(folder).glob("results/store/*-*/*/*/*.parquet"):
        parts = file.relative_to(Path(folder, paths.STORE)).with_suffix("").parts
        found[tuple(re.sub("-[0-9a-f]{8}$", "", part) for part in parts)] = file
    return found


@pytest.mark.parametrize("kind", FOLDERS)
def test_what_version_1_made_is_read_after_one_command(kind, before, unpacked, monkeypatch, capsys):
    folder, configs = FOLDERS[kind]
    monkeypatch.chdir(before / folder)
    assert cli.main(["store"]) == 2
    assert "`headsweep store --upgrade`" in capsys.readouterr().err
    assert cli.main(["store", "--upgrade", *configs]) == 0
    assert not re.search("not renamed|no config", capsys.readouterr().out)
    now, old = answers("."), answers(unpacked / folder)
    noise = {each for each in old if re.fullmatch(r"L\d+N\d+", each[-1])}
    assert noise
    assert now.keys() == old.keys() - noise
    for each, file in now.items():
        pd.testing.assert_frame_equal(pd.read_parquet(file), pd.read_parquet(old[each]))
        assert {**read_metadata(file), "split": ""}.keys() == read_metadata(file).keys()
    # The files are those that a config of today looks for, and are what their records say.
    config = resolve(load(Path(configs[0] if configs else "results/mini/config.json")))
    store = Store(config)
    looked_for = {Path(each) for batch in batches(config) for each in store.answers(batch)}
    assert {*now.values()} <= looked_for
    assert store.path(QUESTIONS, questions=next(iter(config.questions))).exists()
    described = 0
    for record in Path("results").rglob("*.run.json"):
        if ".trash" not in record.parts:
            file = Path(str(record).removesuffix(".run.json"))
            described += len(read_record(checked_file(file))) > 0
    assert described > len(now)
    kept = {file: content for file, content in tree().items() if ".trash" not in file.parts}
    assert not [file for file, content in kept.items() if b"headroom" in content]
    assert cli.main(["store"]) == 0
    # Again, it changes nothing.
    before_again = tree()
    assert cli.main(["store", "--upgrade", *configs]) == 0
    assert tree() == before_again


def test_a_run_of_version_1_is_used_as_one_of_today(before, unpacked, capsys):
    with pytest.raises(ConfigError, match="store --upgrade"):
        _ = headsweep.load("results/mini").config
    assert cli.main(["store", "--upgrade"]) == 0
    run = headsweep.load("results/mini")
    (z,) = unpacked.glob("results/mini/accuracy/*/greedy-*/test-*.parquet")
    pd.testing.assert_frame_equal(run.z(), pd.read_parquet(z))
    assert list(run.selector()[1]["heads"]) == ["L01H00", "L01H03"]
    assert cli.main(["compare", "mini", "mini"]) == 0
    # All that a config needs and version 1 had is there, trained arms too.
    old = {file.name for file in unpacked.glob("results/store/compressed/*/*/*/0/history.json")}
    found = [file for file in files_of(run.config) if file.name in old]
    assert len(found) == 3
    assert all(file.exists() for file in found)
    # A run generates the noise again, and no other answer.
    jobs = planned(Snakemake(before)(Path("results/mini/config.json"), "-n"))
    assert (jobs["generate"], jobs["grade"]) == (2, 1)
    assert not jobs.keys() & {"questions", "embed", "compress", "teacher"}


@pytest.mark.parametrize("stopped_after", [1, 4, 9, 30, 61])
def test_an_interrupted_upgrade_goes_on(stopped_after, before, monkeypatch):
    whole = shutil.copytree(before, before.parent / "whole")
    monkeypatch.chdir(whole)
    upgrade.upgrade([])
    expected = tree()
    monkeypatch.chdir(before)
    steps = iter(range(stopped_after))

    def stopping(function):
        def step(*arguments):
            if next(steps, None) is None:
                raise KeyboardInterrupt
            return function(*arguments)

        return step

    with monkeypatch.context() as patch:
        for name in ("_write", "_write_record", "remove_empty"):
            patch.setattr(upgrade, name, stopping(getattr(upgrade, name)))
        with pytest.raises(KeyboardInterrupt):
            upgrade.upgrade([])
    with pytest.raises(ConfigError, match="--upgrade"):
        check_version()
    upgrade.upgrade([])
    assert tree() == expected


@pytest.mark.parametrize("which", ["*/greedy-*/test-*/L01H00.parquet", "models/*/model.json"])
def test_a_damaged_file_stays_and_is_named(which, before, capsys):
    (file,) = Path(paths.STORE).glob(which)
    content = file.read_bytes()
    file.write_bytes(content[:60] + bytes([content[60] ^ 1]) + content[61:])
    assert cli.main(["store", "--upgrade"]) == 0
    assert f"not renamed: {file} is damaged: its checksum differs" in capsys.readouterr().out
    assert file.exists()


def test_files_of_a_config_that_is_not_known_wait_for_it(before, capsys):
    config = Path("results/mini/config.json").rename("mine.json")
    assert cli.main(["store", "--upgrade"]) == 2
    assert "name the configs" in capsys.readouterr().err
    Path("latin.yaml").write_bytes("run: für\n".encode("latin-1"))
    assert cli.main(["store", "--upgrade", "latin.yaml"]) == 2
    assert "--upgrade: latin.yaml cannot be read: 'utf-8'" in capsys.readouterr().err
    other = json.loads(config.read_text(encoding="utf-8"))
    other["decodings"]["T0.6"]["seed"] = 3
    Path("other.json").write_text(json.dumps(other), encoding="utf-8")
    assert cli.main(["store", "--upgrade", "other.json"]) == 0
    said = capsys.readouterr().out
    assert re.search(r"2 files belong to no config .*, such as \S+/T0.6-\w+/\S+;", said)
    for place in ("store", "store/.journal"):  # of maps, which are newer
        scores = Path("results", place, "scores/mine-0123abcd/L00.parquet")
        scores.parent.mkdir(parents=True)
        scores.touch()
    assert cli.main(["store", "--upgrade", str(config)]) == 0
    assert "no config" not in capsys.readouterr().out


SINCE = {"qwen2.5-math-1.5b-94cb68d2"}  # the second embedder of sprint.yaml


FORMER_SIZES = {"frontier-laptop": {"asdiv_test": 60}}
"""Questions of sets that have more of them now."""


@pytest.mark.parametrize("name", FORMER_KEYS)
def test_former_keys_are_those_of_version_1(name):
    """Configs may have got entries since, whose former keys no store has."""
    config = load(ROOT / "config" / f"{name}.yaml")
    pinned = {
        kind: {
            name: section.model_copy(update={"revision": "0" * 64}) if section.file else section
            for name, section in getattr(config, kind).items()
        }
        for kind in ("problems", "questions")  # files of the user's
    }
    for questions, n in FORMER_SIZES.get(name, {}).items():
        section = pinned["questions"][questions]
        pinned["questions"][questions] = section.model_copy(update={"n": n})
    found = former_keys.renamed(resolve(config.model_copy(update=pinned)))
    written = json.dumps(FORMER_KEYS[name])
    frozen = set(re.findall(r"[\w.]+(?:-[\w.]+)*-[0-9a-f]{8}(?=[/\"])", written))
    assert found.keys() - SINCE == frozen


def test_questions_of_version_1_keep_their_templates(before):
    assert cli.main(["store", "--upgrade"]) == 0
    config = headsweep.load("results/mini").config
    assert {each.templates for each in config.questions.values()} == {"shared"}
    questions = read_table(
        Store(config).path(QUESTIONS, questions="test"), headsweep.tables.QUESTIONS
    )
    assert len(questions) == 15
