"""Paths from config names, and back from the keys in them."""

from pathlib import Path

import pytest

from example_config import VALUES
from headroom import paths
from headroom.config import Config, parse
from headroom.errors import ConfigError
from headroom.planning.batches import batches
from headroom.planning.store import Store, key, source_key

KINDS = {
    "model": "models",
    "questions": "questions",
    "decoding": "decodings",
    "embedder": "embedders",
}


@pytest.fixture
def config() -> Config:
    return parse({**VALUES, "problems": {"made": {"dataset": "generated", "n": 90}}})


def test_a_path_is_filled_from_config_names(config: Config) -> None:
    store = Store(config)
    names = {"model": "tiny", "decoding": "T0.6", "questions": "train"}
    keys = [key(config, KINDS[wildcard], name) for wildcard, name in names.items()]
    answers = store.path(paths.ANSWERS, variant="L00H01", **names)
    assert answers == Path("results/store", *keys, "L00H01.parquet")
    assert str(store.path(paths.GRADED, **names)) == f"results/mini/graded/{'/'.join(keys)}.parquet"
    source = store.path(paths.SOURCE, source="train")
    assert source.name == f"{source_key(config, 'train')}.parquet"
    assert store.path(paths.CHOICE, selector="math") == Path("results/mini/sprint/math/choice.csv")
    assert store.path(paths.REPORT, run="other") == Path("results/other/report.html")


def test_a_sweep_s_own_rules_have_files_of_their_own(config: Config) -> None:
    sweep = {**VALUES["sweeps"]["table"], "grading": "authors"}
    both = parse({**VALUES, "sweeps": {"table": VALUES["sweeps"]["table"], "regraded": sweep}})
    store, run = Store(both), Path("results/mini")
    own, other = store.of_sweep("table"), store.of_sweep("regraded")
    assert own == Store(config).of_sweep("table")
    assert own == Store(config).path(paths.ACCURACY, **batches(config)[0].names)
    assert other == run / "accuracy/authors" / own.relative_to(run / "accuracy")
    graded = store.of_sweep("regraded", paths.GRADED)
    assert graded == run / "graded/authors" / own.relative_to(run / "accuracy")
    same = [store.of_sweep(n, paths.ANSWERS, variant="base") for n in ("table", "regraded")]
    assert same[0] == same[1]
    assert batches(both) == batches(config)
    assert Store(parse({**VALUES, "grading": "authors"})).of_sweep("table") == own


def test_a_key_leads_back_to_its_name(config: Config) -> None:
    store = Store(config)
    for wildcard, kind in KINDS.items():
        for name in VALUES[kind]:
            assert store.name(wildcard, key(config, kind, name)) == name
    assert store.name("source", source_key(config, "test")) == "test"
    assert store.name("data", store.key("data", "made")) == "made"


@pytest.mark.parametrize(
    ("wildcard", "message"),
    [
        ("model", r"models: this config has no 'big-00000000'; it has tiny-\w{8}, big-\w{8}"),
        ("source", r"questions: this config has no 'big-00000000'; it has math500-test-"),
        ("data", r"problems: this config has no 'big-00000000'; it has made-\w{8}$"),
    ],
)
def test_a_key_of_another_config_is_refused(config: Config, wildcard: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        Store(config).name(wildcard, "big-00000000")
