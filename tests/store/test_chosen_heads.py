"""Heads of a sweep that another sweep chooses on training questions; maps: `tests/maps`."""

import logging
from contextlib import chdir
from pathlib import Path

import pandas as pd
import pytest

import simulation
from example_config import VALUES, changed
from headsweep.config import parse
from headsweep.config.titles import title
from headsweep.errors import ConfigError
from headsweep.files import paths
from headsweep.results import jobs
from headsweep.store.batches import pool
from headsweep.store.layout import Store
from headsweep.store.revisions import resolve
from headsweep.workflow.preflight import preflight

CHOOSING = {"model": "reasoner", "questions": "math_train", "layers": [0, 2, 5]}
CHOSEN = {**CHOOSING, "questions": "math_test", "heads": {"sweep": "train", "top": 2}}


SWEEPS_ALONE = simulation.DEMO | {"selectors": {}, "comparisons": {}, "embedders": {}}


def asking(train=CHOOSING, **chosen):
    return parse(SWEEPS_ALONE | {"sweeps": {"train": train, "primary": CHOSEN | chosen}})


@pytest.fixture(scope="module")
def whole_run(tmp_path_factory):
    """A folder with a run whose sweep on training questions has its tables, and its config."""
    folder = tmp_path_factory.mktemp("run")
    with chdir(folder):
        config = resolve(asking())
        simulation.fill(config)
        jobs.write_controls(Store(config), "train")
    return folder, config


@pytest.fixture
def trained(whole_run, enter_copy):
    """The config of such a run, which the current folder holds."""
    folder, config = whole_run
    enter_copy(folder)
    return config


def test_a_sweep_waits_for_that_on_training_questions(tmp_path, monkeypatch, caplog):
    monkeypatch.chdir(tmp_path)
    with caplog.at_level(logging.WARNING):
        waits = resolve(asking())
    assert [*waits.sweeps] == ["train"]
    assert "sweeps.primary waits for sweeps.train" in caplog.text


def test_a_sweep_takes_the_heads_that_gained_most_on_training_questions(trained):
    table = pd.read_csv(Store(trained).path(paths.CONTROLS, sweep="train", table="heads"))
    heads = table[table["head"].notna()].sort_values(["layer", "head"])
    best = heads.sort_values("gain", ascending=False, kind="stable")["variant"].tolist()
    second = resolve(asking())
    assert second.sweeps["primary"].heads.chosen == tuple(best[:2])
    assert [str(each) for each in pool(second, second.sweeps["primary"])] == sorted(best[:2])
    assert second.sweeps["train"] == trained.sweeps["train"]
    assert "top 2 of sweep train" in title(second, "sweeps", "primary")
    (only,) = resolve(asking(layers=[5])).sweeps["primary"].heads.chosen[:1]
    assert only == next(variant for variant in best if variant.startswith("L05"))


def with_questions(**change):
    questions = simulation.DEMO["questions"]
    train = {"math_train": questions["math_train"] | change}
    sweeps = {"train": CHOOSING, "primary": CHOSEN}
    return parse(SWEEPS_ALONE | {"sweeps": sweeps, "questions": questions | train})


@pytest.mark.parametrize(
    "stale",
    [
        lambda: with_questions(n=240),
        lambda: with_questions(seed=5),
        lambda: asking(decoding="authors").model_copy(update={"grading": "authors"}),
        lambda: asking(train={**CHOOSING, "heads": [0, 1]}),
        lambda: asking(train={**CHOOSING, "decoding": "authors"}),
    ],
    ids=["more questions", "other questions", "other grading", "fewer heads", "other prompt"],
)
def test_a_table_of_other_settings_chooses_no_head(trained, stale):
    assert resolve(asking()).waiting == {}
    waits = resolve(stale())
    assert [*waits.sweeps] == ["train"]
    assert [*waits.waiting] == ["primary"]


def test_a_table_that_a_kill_left_without_its_record_chooses_none_and_stops_nothing(trained):
    file = Store(trained).path(paths.CONTROLS, sweep="train", table="heads")
    file.write_text(file.read_text().replace("L00", "L02"))
    assert [*resolve(asking()).waiting] == ["primary"]


def test_what_waits_stays_in_the_run_s_own_config(trained):
    file = Store(trained).path(paths.CONTROLS, sweep="train", table="heads")
    shown = Path(f"{file}.kept")
    file.rename(shown)
    waits = resolve(asking())
    saved = parse(waits.model_dump(mode="json"))
    assert [*resolve(saved).waiting] == ["primary"]
    shown.rename(file)
    assert [*resolve(saved).sweeps] == ["train", "primary"]


def test_titles_that_will_clash_are_refused_before_the_choice(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    sweeps = {"train": CHOOSING, "one": CHOSEN, "two": CHOSEN}
    config = resolve(parse(simulation.DEMO | {"sweeps": sweeps}))
    with pytest.raises(ConfigError, match="both called"):
        preflight(Store(config))


@pytest.mark.parametrize(
    ("heads", "said"),
    [
        ({"map": "none", "top": 3}, "sweeps.table.heads.map: 'none' is not defined"),
        (
            {"map": "own", "top": 3},
            "map 'own' and the sweep have questions drawn from math500 test",
        ),
        ({"map": "small", "top": 3}, "sweeps.table.heads: map 'small' is of model 'tiny'"),
        ({"map": "known", "top": 0}, "sweeps.table.heads.top: Input should be greater"),
        ({"map": "known"}, "key 'sweeps.table.heads.top' is missing"),
        ({"map": "bare", "top": 1}, "outcome: 'likelihood' is of samples, and map 'bare' scores"),
        ({"map": "bare", "top": 1, "outcome": "preference"}, "write `outcome: solutions`, or"),
        ({"map": "known", "top": 2, "n": 1}, "unknown key 'sweeps.table.heads.n'"),
        ({"top": 2}, "sweeps.table.heads: name either a map or a sweep"),
        ({"map": "known", "sweep": "other", "top": 2}, "name either a map or a sweep"),
        ({"sweep": "none", "top": 1}, "sweeps.table.heads.sweep: 'none' is not defined"),
        ({"sweep": "table", "top": 1}, "sweep 'table' and the sweep have questions drawn from"),
        ({"sweep": "small", "top": 1}, "sweep 'small' is of model 'tiny'"),
        ({"sweep": "chosen", "top": 1}, "sweep 'chosen' takes its own heads from another"),
        ({"sweep": "apart", "top": 1}, "sweep 'apart' has none of these layers"),
        ({"sweep": "other", "top": 25}, "top: 25, but sweep 'other' has 24 heads"),
        ({"sweep": "other", "top": 1, "chosen": []}, "[] are not 1 heads of sweep 'other'"),
        ({"sweep": "other", "top": 1, "chosen": ["L01H01"]}, "['L01H01'] are not 1 heads of"),
        ({"sweep": "other", "top": 2, "chosen": ["L00H01"] * 2}, "are not 2 heads of sweep"),
    ],
)
def test_heads_that_nothing_can_choose_are_refused_in_one_line(heads, said):
    own = {"model": "big", "sampling": ["T0.6"]}
    maps = {"known": {**own, "questions": "train"}, "own": {**own, "questions": "test"}}
    maps["small"] = {**own, "model": "tiny", "questions": "train"}
    maps["bare"] = {"model": "big", "questions": "train"}
    other = {"model": "big", "questions": "train", "layers": [0, 3, 27]}
    sweeps = VALUES["sweeps"] | {
        "apart": {**other, "layers": [3]},
        "other": other,
        "small": {**other, "model": "tiny", "layers": [3]},
        "chosen": {**other, "heads": {"map": "own", "top": 2}},
    }
    asked = changed(VALUES | {"maps": maps, "sweeps": sweeps}, "sweeps/table/layers", [0, 27])
    parse(changed(asked, "sweeps/table/heads", {"sweep": "other", "top": 1}))
    solutions = {"map": "bare", "top": 1, "outcome": "solutions"}
    parse(changed(asked, "sweeps/table/heads", solutions))
    values = changed(asked, "sweeps/table/heads", heads)
    with pytest.raises(ConfigError) as refused:
        parse(values)
    assert said in str(refused.value)
