"""Heads of a sweep that another sweep chooses on training questions; maps: `tests/maps`."""

import logging

import pandas as pd
import pytest

import simulation
from example_config import VALUES, changed
from headsweep import paths
from headsweep.analysis import jobs
from headsweep.config import parse
from headsweep.errors import ConfigError
from headsweep.planning.batches import pool
from headsweep.planning.inputs import resolve
from headsweep.planning.store import Store
from headsweep.planning.titles import title

CHOOSING = {"model": "reasoner", "questions": "math_train", "layers": [0, 2, 5]}
CHOSEN = {**CHOOSING, "questions": "math_test", "heads": {"sweep": "train", "top": 2}}


def asking(**chosen):
    return parse(simulation.DEMO | {"sweeps": {"train": CHOOSING, "primary": CHOSEN | chosen}})


def test_a_sweep_takes_the_heads_that_gained_most_on_training_questions(
    tmp_path, monkeypatch, caplog
):
    monkeypatch.chdir(tmp_path)
    with caplog.at_level(logging.WARNING):
        first = resolve(asking())
    assert [*first.sweeps] == ["train"]
    assert "sweeps.primary waits for sweeps.train" in caplog.text
    simulation.fill(first)
    jobs.write_controls(first, "train")
    table = pd.read_csv(Store(first).path(paths.CONTROLS, sweep="train", table="heads"))
    heads = table[table["head"].notna()].sort_values(["layer", "head"])
    best = heads.sort_values("gain", ascending=False, kind="stable")["variant"].tolist()
    second = resolve(asking())
    assert second.sweeps["primary"].heads.chosen == tuple(best[:2])
    assert [str(each) for each in pool(second, second.sweeps["primary"])] == sorted(best[:2])
    assert second.sweeps["train"] == first.sweeps["train"]
    assert "top 2 of sweep train" in title(second, "sweeps", "primary")
    (only,) = resolve(asking(layers=[5])).sweeps["primary"].heads.chosen[:1]
    assert only == next(variant for variant in best if variant.startswith("L05"))
    with pytest.raises(ConfigError, match=r"^sweeps.primary.heads: sweep 'train' has no gain of"):
        resolve(asking(layers=[1]))


@pytest.mark.parametrize(
    ("heads", "said"),
    [
        ({"map": "none", "top": 3}, "sweeps.table.heads.map: 'none' is not defined"),
        (
            {"map": "own", "top": 3},
            "map 'own' has questions of the sweep's own benchmark",
        ),
        ({"map": "small", "top": 3}, "sweeps.table.heads: map 'small' is of model 'tiny'"),
        ({"map": "known", "top": 0}, "sweeps.table.heads.top: Input should be greater"),
        ({"map": "known"}, "key 'sweeps.table.heads.top' is missing"),
        ({"map": "known", "top": 2, "n": 1}, "unknown key 'sweeps.table.heads.n'"),
        ({"top": 2}, "sweeps.table.heads: name either a map or a sweep"),
        ({"map": "known", "sweep": "other", "top": 2}, "name either a map or a sweep"),
        ({"sweep": "none", "top": 1}, "sweeps.table.heads.sweep: 'none' is not defined"),
        ({"sweep": "table", "top": 1}, "sweep 'table' has questions of the sweep's own benchmark"),
        ({"sweep": "small", "top": 1}, "sweep 'small' is of model 'tiny'"),
        ({"sweep": "chosen", "top": 1}, "sweep 'chosen' takes its own heads from another"),
    ],
)
def test_heads_that_nothing_can_choose_are_refused_in_one_line(heads, said):
    own = {"model": "big", "sampling": ["T0.6"]}
    maps = {"known": {**own, "questions": "train"}, "own": {**own, "questions": "test"}}
    maps["small"] = {**own, "model": "tiny", "questions": "train"}
    other = {"model": "big", "questions": "train", "layers": [3]}
    sweeps = VALUES["sweeps"] | {
        "other": other,
        "small": {**other, "model": "tiny"},
        "chosen": {**other, "heads": {"map": "own", "top": 2}},
    }
    asked = VALUES | {"maps": maps, "sweeps": sweeps}
    parse(changed(asked, "sweeps/table/heads", {"sweep": "other", "top": 1}))
    values = changed(asked, "sweeps/table/heads", heads)
    with pytest.raises(ConfigError) as refused:
        parse(values)
    assert said in str(refused.value)
