"""Compressions in the config: what is refused, what decides a key, what is planned."""

from functools import partial
from pathlib import Path
from typing import Any

import pytest

from example_config import VALUES
from example_config import changed as changes
from headroom.config import Config, parse
from headroom.errors import BenchmarkError, ConfigError
from headroom.planning.batches import arms, find_arm, find_solver
from headroom.planning.inputs import preflight, resolve
from headroom.planning.store import Store, data_key, solver_key

STUDIES: dict[str, Any] = {
    **VALUES,
    "problems": {
        "made": {"dataset": "generated", "n": 90},
        "asdiv": {"dataset": "asdiv_a", "file": "asdiv.jsonl", "revision": "5" * 64},
    },
    "solvers": {
        "tiny": {"profile": "tiny", "training": {"epochs": 9}},
        "base": {"encoder": {"source": "owner/base", "revision": "3" * 40}},
    },
    "compressions": {
        "words": {
            "solver": "tiny",
            "data": "made",
            "arms": ["baseline", "full", "small_from_scratch"],
            "variations": {"ratio_30": {"ratio": 0.3}},
            "seeds": [0, 4],
        },
        "own": {"model": "big", "train": "train", "test": "test"},
    },
}


changed = partial(changes, STUDIES)


@pytest.fixture
def config() -> Config:
    return parse(STUDIES)


WORDS = "compressions/words"


@pytest.mark.parametrize(
    ("path", "value", "message"),
    [
        (f"{WORDS}/solver", "huge", r"words.solver: 'huge' is not defined; there is tiny, base"),
        (f"{WORDS}/model", "big", r"give either `solver` with `data`, or `model`"),
        (f"{WORDS}/arms", ["whole"], r"arms: 'whole' is not known; there is baseline,"),
        (f"{WORDS}/seeds", [4, 4], r"seeds: '4' stands twice"),
        (f"{WORDS}/int8", ["random"], r"int8: 'random' is not known; there is baseline, full,"),
        (f"{WORDS}/variations", {"full": {}}, r"variations.full is an arm's name"),
        (f"{WORDS}/variations", {"a": {"speed": 1}}, r"variations.a.speed: unknown key"),
        (f"{WORDS}/variations", {"a": {"ratio": 2}}, r"variations.a.ratio: .* less than 1"),
        (f"{WORDS}/variations", {"a": {"ratio": 0.25}}, r"'a' does what 'full' does; remove one"),
        (f"{WORDS}/method", {"ratio": 0.04}, r"full: ratio 0.04 removes nothing of 24 heads"),
        (f"{WORDS}/method", {"ratio": 0.92}, r"leaves a layer without heads: of 24, 21 can go"),
        (f"{WORDS}/method/importance", {"a": 1}, r"unknown key '.*importance.a'; .*: alpha, batch"),
        ("compressions/own/arms", ["small_from_scratch"], r"a model has no recipe from scratch"),
        ("compressions/own/method", {"ratio": 0.01}, r"ratio 0.01 removes nothing of 336 heads, "),
        ("solvers/base/profile", "tiny", r"solvers.base: profile 'tiny' is an encoder from scra"),
        ("sweeps/compression_x", VALUES["sweeps"]["table"], r"is the table of compressions"),
    ],
)
def test_what_cannot_be_run_is_refused_in_one_line(path: str, value: Any, message: str) -> None:
    with pytest.raises(ConfigError, match=message) as error:
        parse(changed(path, value))
    assert "\n" not in str(error.value)


def test_a_profile_follows_its_dataset_and_is_changed_by_other_keys(config: Config) -> None:
    tiny = config.solvers["tiny"]
    assert (tiny.on("asdiv_a").depth, tiny.on("math23k").depth) == (4, 10)
    assert tiny.on("asdiv_a").training.epochs == 9
    assert tiny.on("asdiv_a").encoder.heads == 8
    resolved = resolve(config)
    assert parse(resolved.model_dump(mode="json")) == resolve(resolved) == resolved


def keys(values: dict[str, Any]) -> dict[str, str]:
    config = parse(values)
    found = {arm.name: arm.key for arm in arms(config, "words")}
    found["solver"] = solver_key(config, "tiny", "made")
    found["data"] = data_key(config, "made")
    found["asdiv"] = data_key(config, "asdiv")
    return found


@pytest.mark.parametrize(
    ("path", "value", "differing"),
    [
        (
            f"{WORDS}/method",
            {"importance": {"alpha": 0.4}},
            {"full", "small_from_scratch", "ratio_30"},
        ),
        (f"{WORDS}/method", {"training": {"patience": None, "checkpoint_steps": 7}}, set()),
        ("solvers/tiny/dropout", 0.3, {"solver"}),
        ("problems/made/seed", 1, {"data"}),
        ("problems/made/partition", {"ratios": [8, 1, 1]}, {"data"}),
        ("problems/made/partition", {"fold": 3}, set()),
        ("problems/asdiv/file", "elsewhere.jsonl", set()),
        ("problems/asdiv/revision", "6" * 64, {"asdiv"}),
    ],
)
def test_keys_follow_what_decides_the_content(path: str, value: Any, differing: set[str]) -> None:
    before, after = keys(STUDIES), keys(changed(path, value))
    assert {name for name in before if before[name] != after[name]} == differing


def test_settings_that_others_make_idle_are_in_no_key() -> None:
    for section, own, idle in (
        ("distillation", {"teacher": "none"}, {"temperature": 3.0}),
        ("importance", {"criterion": "random"}, {"alpha": 0.9}),
    ):
        first, second = (
            keys(changed(f"{WORDS}/method", {section: values}))["full"]
            for values in (own, own | idle)
        )
        assert first == second


def test_keys_lead_back_to_their_names(config: Config) -> None:
    arm = arms(config, "words")[1]
    assert find_arm(config, arm.subject, arm.data, arm.key) == arm
    assert Store(config).name("data", arm.data) == "made"
    settings, data = find_solver(config, arm.subject, arm.data)
    assert (settings.training.epochs, data) == (9, "made")
    for find, stale in (
        (lambda: find_arm(config, arm.subject, arm.data, "full-0"), "full-0"),
        (lambda: Store(config).name("data", "made-0"), "made-0"),
        (lambda: find_solver(config, "tiny-0", arm.data), "tiny-0"),
    ):
        with pytest.raises(ConfigError, match=stale):
            find()


def test_a_file_is_looked_at_before_the_first_job(
    config: Config, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    only = {"run": "mini", "problems": STUDIES["problems"]}
    with pytest.raises(BenchmarkError, match=r"problems.asdiv: asdiv.jsonl is missing"):
        preflight(resolve(parse(only)))
    Path("asdiv.jsonl").write_text("{}\n")
    with pytest.raises(BenchmarkError, match=r"problems.asdiv.revision: .* has sha256 .*, not 555"):
        preflight(resolve(parse(only)))


def test_what_comes_from_the_hub_is_pinned() -> None:
    for path, value, message in (
        ("solvers/base/encoder/revision", "main", r"base.encoder.revision: 'main' is not a commit"),
        (
            "problems/hub",
            {"dataset": "math23k", "revision": "main"},
            r"problems.hub.revision: 'main' is not a commit hash .*datasets/Gxg/Math23K HEAD",
        ),
    ):
        with pytest.raises(ConfigError, match=message):
            resolve(parse(changed(path, value)))
