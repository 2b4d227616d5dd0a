"""Keys and the paths made of them: what decides a file's content decides its name."""

from itertools import product
from pathlib import Path

import pytest

from example_config import STUDIES, VALUES, changed
from headsweep.config import parse
from headsweep.errors import ConfigError
from headsweep.files.tables import ACCURACY, ANSWERS, GRADED
from headsweep.models import gguf
from headsweep.models.source import local_folder
from headsweep.store.batches import Batch, all_arms, arms, batches, find, find_batch, solvers
from headsweep.store.keys import key, source_key, study_keys
from headsweep.store.layout import Store
from headsweep.store.revisions import resolve
from headsweep.variants import BASE

KINDS = {"model": "models", "questions": "questions", "data": "problems"}
KINDS |= {"decoding": "decodings", "embedder": "embedders"}
METHOD = "compressions/words/method"
CLUSTERS = {"sampling": "clusters", "embedder": "minilm"}
TRAIN = VALUES["questions"]["train"]
FIRST = TRAIN | {"sampling": "first"}
UNTAUGHT, DRAWN = {"teacher": "none"}, {"criterion": "random"}
REFERRING = changed(STUDIES, "embedders/own", {"model": "big"})
REFERRING = changed(REFERRING, "questions/clustered", TRAIN | CLUSTERS)
"""With an embedder of a model, and questions drawn by an embedder."""


@pytest.fixture
def config():
    return parse(STUDIES)


def keys(values):
    config = parse(values)
    found = {arm.name: arm.key for arm in arms(config, "words")}
    for kind in KINDS.values():
        found |= {f"{kind}/{n}": key(config, kind, n) for n in getattr(config, kind)}
    found |= {f"sources/{name}": source_key(config, name) for name in config.questions}
    return {**found, "solver": study_keys(config, config.compressions["words"])["subject"]}


@pytest.mark.parametrize(
    ("path", "value", "expected"),
    [
        ("models/big/revision", "2" * 40, "models/big embedders/own"),
        ("models/big/dtype", "float32", "models/big embedders/own"),
        ("models/big/attention", "eager", "models/big embedders/own"),
        ("models/big/device", "cpu", ""),
        ("models/big/batch_size", 3, ""),
        ("models/big/billions", 2.0, ""),
        # Sets of one split share its source whatever their draw.
        ("questions/train/n", 51, "questions/train"),
        ("questions/train/seed", 1, "questions/train"),
        ("questions/train/sampling", "first", "questions/train"),
        ("questions/train", TRAIN | CLUSTERS, "questions/train"),
        ("questions/test/seed", 5, ""),
        ("questions/test/sampling", "first", ""),
        ("decodings/T0.6/seed", 1, "decodings/T0.6"),
        ("decodings/greedy/seed", 5, ""),
        ("decodings/greedy/max_new_tokens", 65, "decodings/greedy"),
        ("embedders/minilm/revision", "2" * 40, "embedders/minilm questions/clustered"),
        (f"{METHOD}/importance", {"alpha": 0.4}, "full small_from_scratch ratio_30"),
        (f"{METHOD}/training", {"patience": None, "checkpoint_steps": 7}, ""),
        ("solvers/tiny/dropout", 0.3, "solver"),
        ("problems/made/seed", 1, "problems/made"),
        ("problems/made/partition", {"ratios": [8, 1, 1]}, "problems/made"),
        ("problems/made/partition", {"fold": 3}, ""),
        ("problems/asdiv/file", "elsewhere.jsonl", ""),
        ("problems/asdiv/revision", "6" * 64, "problems/asdiv"),
        # Two values.
        ("models/big/source", ("./here", "/moved/there"), ""),
        ("embedders/minilm/source", ("./here", "~/there"), ""),
        ("questions/train/file", ("a.jsonl", "b.jsonl.gz"), ""),
        # What other settings make idle.
        ("questions/train", (FIRST, FIRST | {"seed": 5}), ""),
        (f"{METHOD}/distillation", (UNTAUGHT, UNTAUGHT | {"temperature": 3.0}), ""),
        (f"{METHOD}/importance", (DRAWN, DRAWN | {"alpha": 0.9}), ""),
    ],
)
def test_keys_follow_what_decides_the_content(path, value, expected):
    first, second = value if isinstance(value, tuple) else (None, value)
    before = keys(changed(REFERRING, path, first) if first else REFERRING)
    after = keys(changed(REFERRING, path, second))
    assert {name for name in before if before[name] != after[name]} == set(expected.split())


def test_the_key_of_a_model_of_the_package_follows_its_content():
    def key_of(**origin):
        models = {"shipped": {**VALUES["models"]["tiny"], **origin}}
        values = {"run": "mini", "models": models}
        return key(resolve(parse(values)), "models", "shipped")

    named = key_of(source="builtin:reasoner")
    assert named == key_of(source=str(local_folder("builtin:reasoner")))
    assert named != key_of(source="builtin:reasoner", revision="0" * 16)
    with pytest.raises(ConfigError, match=r"'builtin:other' is not in .*; it has builtin:reasoner"):
        local_folder("builtin:other")


@pytest.mark.parametrize(
    ("origin", "is_another"),
    [
        ({"source": "owner/name", "gguf_file": "name.gguf"}, True),
        ({"source": "./name.gguf", "revision": "3" * 64}, True),
        ({"source": "owner/name"}, False),
        ({"source": "./name", "revision": "3" * 16}, False),
    ],
)
def test_the_key_of_a_gguf_file_and_no_other_follows_how_it_is_read(
    origin, is_another, monkeypatch
):
    changes = changed(REFERRING, "models/big", {**VALUES["models"]["big"], **origin})
    before = keys(changes)
    monkeypatch.setattr(gguf, "READING", gguf.READING + 1)
    after = keys(changes)
    differ = {name for name in before if before[name] != after[name]}
    assert differ == ({"models/big", "embedders/own"} if is_another else set())


def test_a_sweep_s_own_rules_have_files_of_their_own():
    config, run = parse(VALUES), Path("results/mini")
    sweep = {**VALUES["sweeps"]["table"], "grading": "authors"}
    both = parse(changed(VALUES, "sweeps/regraded", sweep))
    store = Store(both)
    own, other = store.of_sweep("table"), store.of_sweep("regraded")
    assert own == Store(config).of_sweep("table")
    assert own == next(iter(batches(Store(config)).values())).path(ACCURACY)
    assert other == run / "accuracy/authors" / own.relative_to(run / "accuracy")
    graded = store.of_sweep("regraded", GRADED)
    assert graded == run / "graded/authors" / own.relative_to(run / "accuracy")
    same = {store.of_sweep(n, ANSWERS, variant="base") for n in ("table", "regraded")}
    assert len(same) == 1
    variants_of = [
        {keys: batch.variants for keys, batch in batches(Store(each)).items()}
        for each in (both, config)
    ]
    assert variants_of[0] == variants_of[1]
    assert Store(parse({**VALUES, "grading": "authors"})).of_sweep("table") == own


def test_a_batch_is_found_by_its_keys_and_one_that_is_not_planned_is_the_base_model_s(config):
    store = Store(config)
    planned = batches(store)
    assert len(planned) > 1
    for keys, batch in planned.items():
        assert find_batch(store, keys) == batch
        assert batch.path(ANSWERS, variant="base").parts[-4:-1] == keys
    unplanned = Batch(store, "tiny", "authors", "train")
    assert unplanned.keys not in planned
    assert find_batch(store, unplanned.keys) == unplanned
    assert unplanned.variants == (BASE,)
    changed_since = unplanned.keys._replace(questions="train-00000000")
    with pytest.raises(ConfigError, match=r"no batch tiny-.*/train-00000000; it plans big-.*, "):
        find_batch(store, changed_since)


def test_a_key_leads_back_to_its_name_and_that_of_another_config_is_refused(config):
    store = Store(config)
    for wildcard, kind in KINDS.items():
        for name in STUDIES[kind]:
            assert store.name(wildcard, key(config, kind, name)) == name
    assert store.name("source", source_key(config, "test")) == "test"
    arm = arms(config, "words")[1]
    assert find(all_arms(config), (arm.subject, arm.data, arm.key)) == arm
    study = find(solvers(config), (arm.subject, arm.data))
    assert (config.solver_of(study).training.epochs, study.data) == (9, "made")
    with pytest.raises(ConfigError, match=r"has .*tiny-0"):
        find(solvers(config), ("tiny-0", arm.data))
    for wildcard, message in (
        ("model", r"models: .* no 'x'; it has tiny-\w{8}, big-\w{8}"),
        ("source", "questions: .* no 'x'; it has math500-test-"),
        ("data", r"problems: .* no 'x'; it has made-\w{8}, asdiv-\w{8}$"),
    ):
        with pytest.raises(ConfigError, match=message):
            store.name(wildcard, "x")


def test_a_system_line_that_a_prompt_does_not_use_is_no_part_of_a_key():
    key_of = {}
    for prompt, system in product(("default", "authors"), ("Think.", None)):
        decoding = {"prompt": prompt, "system": system}
        config = parse(changed(VALUES, "decodings/greedy", decoding))
        key_of[prompt, system] = key(config, "decodings", "greedy")
    assert key_of["authors", "Think."] == key_of["authors", None]
    assert key_of["default", "Think."] != key_of["default", None]
