import pytest

from example_config import VALUES, config
from headroom.config import parse
from headroom.errors import ConfigError
from headroom.models.source import local_folder
from headroom.planning.inputs import resolve
from headroom.planning.store import key, source_key


def changes(kind: str, name: str, first: dict, second: dict) -> bool:
    """Tell whether two settings of an entry give it different keys."""
    return key(config(**{kind: {name: first}}), kind, name) != key(
        config(**{kind: {name: second}}), kind, name
    )


@pytest.mark.parametrize(
    ("kind", "name", "setting"),
    [
        ("models", "big", {"revision": "2" * 40}),
        ("models", "big", {"dtype": "float32"}),
        ("models", "big", {"attention": "eager"}),
        ("questions", "train", {"n": 51}),
        ("questions", "train", {"seed": 1}),
        ("questions", "train", {"sampling": "first"}),
        ("questions", "train", {"sampling": "clusters", "embedder": "minilm"}),
        ("decodings", "T0.6", {"seed": 1}),
        ("decodings", "greedy", {"max_new_tokens": 65}),
        ("embedders", "minilm", {"revision": "2" * 40}),
    ],
)
def test_what_decides_the_content_changes_the_key(kind, name, setting):
    assert changes(kind, name, {}, setting)


@pytest.mark.parametrize(
    ("kind", "name", "first", "second"),
    [
        ("models", "big", {}, {"device": "cpu", "batch_size": 3, "billions": 2.0}),
        ("models", "big", {"source": "./here"}, {"source": "/moved/there"}),
        ("embedders", "minilm", {"source": "./here"}, {"source": "~/there"}),
        ("questions", "train", {"file": "a.jsonl"}, {"file": "b.jsonl.gz"}),
        ("questions", "train", {"sampling": "first"}, {"sampling": "first", "seed": 5}),
        ("questions", "test", {}, {"seed": 5, "sampling": "first"}),
        ("decodings", "greedy", {}, {"seed": 5}),
    ],
)
def test_what_does_not_decide_the_content_leaves_the_key(kind, name, first, second):
    assert not changes(kind, name, first, second)


def test_settings_of_what_is_referred_to_change_the_key():
    clustered = {"train": {"sampling": "clusters", "embedder": "minilm"}}
    first = config(questions=clustered)
    second = config(questions=clustered, embedders={"minilm": {"revision": "2" * 40}})
    assert key(first, "questions", "train") != key(second, "questions", "train")
    own = {"own": {"model": "big"}}
    first = config(embedders=own)
    second = config(embedders=own, models={"big": {"revision": "2" * 40}})
    assert key(first, "embedders", "own") != key(second, "embedders", "own")


def test_sets_of_one_split_share_its_source_whatever_their_draw():
    both = config(questions={"more": VALUES["questions"]["train"] | {"n": 99, "seed": 7}})
    assert source_key(both, "train") == source_key(both, "more")
    assert source_key(both, "train").startswith("math_train-train-")
    assert source_key(both, "test") != source_key(both, "train")


def test_a_model_of_the_package_is_named_as_builtin():
    assert (local_folder("builtin:reasoner") / "config.json").is_file()
    with pytest.raises(ConfigError, match=r"'builtin:other' is not in .*; it has builtin:reasoner"):
        local_folder("builtin:other")


def test_the_key_of_a_model_of_the_package_follows_its_content():
    def key_of(**origin: str) -> str:
        models = {"shipped": {**VALUES["models"]["tiny"], **origin}}
        values = {"run": "mini", "models": models}
        return key(resolve(parse(values)), "models", "shipped")

    named = key_of(source="builtin:reasoner")
    assert named == key_of(source=str(local_folder("builtin:reasoner")))
    assert named != key_of(source="builtin:reasoner", revision="0" * 16)
