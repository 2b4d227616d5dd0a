import json
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file

from example_config import config
from headroom import paths
from headroom.benchmarks.sources import PINNED, file_revision
from headroom.config import Config, parse
from headroom.errors import BenchmarkError, ConfigError, HeadroomError, ModelError
from headroom.models.source import BUILTIN, fingerprint
from headroom.planning.batches import batches
from headroom.planning.inputs import check_devices, preflight, resolve
from headroom.planning.store import Store, key, source_key

MATH_ROW = {
    "problem": "What is $1+1$?",
    "solution": "$\\boxed{2}$",
    "answer": "2",
    "subject": "Algebra",
    "level": 1,
}


@pytest.fixture(autouse=True)
def here(tmp_path, monkeypatch) -> Path:
    """Run in an empty folder, where results/ will be."""
    monkeypatch.chdir(tmp_path)
    return tmp_path


def write_benchmark(file: Path, rows: int = 60) -> Path:
    lines = [
        json.dumps(MATH_ROW | {"unique_id": f"test/algebra/{row}.json"}) for row in range(rows)
    ]
    file.write_text("\n".join(lines) + "\n")
    return file


def write_model(folder: Path) -> Path:
    """Write a folder that looks like a model of the example's geometry."""
    folder.mkdir()
    own = {"num_hidden_layers": 28, "num_attention_heads": 12, "num_key_value_heads": 2}
    (folder / "config.json").write_text(json.dumps({"model_type": "qwen2", **own}))
    (folder / "tokenizer.json").write_text("{}")
    save_file({"weight": torch.zeros(5, 3)}, folder / "model.safetensors")
    return folder


def local() -> Config:
    """Return a config whose benchmark, model and embedder lie in this folder."""
    write_benchmark(Path("test.jsonl"))
    write_model(Path("big"))
    write_model(Path("minilm"))
    return config(
        questions={"test": {"file": "test.jsonl"}},
        models={"big": {"source": "./big", "revision": None}},
        embedders={"minilm": {"source": "./minilm", "revision": None}},
    )


def touch(template: str, **keys: str) -> None:
    file = Path(template.format(**keys))
    file.parent.mkdir(parents=True, exist_ok=True)
    file.touch()


def test_every_revision_is_filled_in():
    resolved = resolve(local())
    assert resolved.questions["test"].revision == file_revision(Path("test.jsonl"))
    assert resolved.questions["train"].revision == PINNED["math_train"].revision
    assert resolved.models["big"].revision == fingerprint(Path("big"))
    assert resolved.models["tiny"].revision == fingerprint(BUILTIN["builtin:reasoner"])
    assert len(resolved.embedders["minilm"].revision or "") == 16


def test_resolving_twice_changes_nothing_and_saves_as_json():
    resolved = resolve(local())
    assert resolve(resolved) == resolved
    assert parse(json.loads(resolved.model_dump_json())) == resolved


@pytest.mark.parametrize(
    ("section", "name", "keys", "message"),
    [
        ("questions", "test", {"file": "absent.jsonl"}, r": absent.jsonl is missing; .*`revision`"),
        (
            "models",
            "big",
            {"source": "./absent", "revision": None},
            r": source ./absent is",
        ),
        (
            "models",
            "big",
            {"revision": None},
            r".revision: None is not a commit hash of .* `git ls-remote .*owner/big",
        ),
        ("embedders", "minilm", {"revision": None}, r".revision: None is not a commit hash"),
        ("questions", "test", {"revision": "main"}, r".revision: 'main' is not a .*6e4ed1a2"),
    ],
)
def test_what_cannot_be_named_by_content_is_refused(section, name, keys, message):
    with pytest.raises(HeadroomError, match=f"^{section}.{name}{message}") as caught:
        resolve(config(**{section: {name: keys}}))
    assert "\n" not in str(caught.value)


def test_a_folder_written_like_a_hub_id_is_pointed_out():
    Path("owner/big").mkdir(parents=True)
    with pytest.raises(ConfigError, match=r"models.big.source: .* write './owner/big'"):
        resolve(config())


@pytest.mark.parametrize(
    ("spoil", "message"),
    [
        (lambda: Path("test.jsonl").write_text(""), r"questions.test: test.jsonl has sha256"),
        (lambda: Path("test.jsonl").unlink(), r"questions.test: test.jsonl is missing"),
        (lambda: Path("big/model.safetensors").unlink(), r"models.big: big has no weights"),
        (lambda: Path("big/tokenizer.json").write_text("{ }"), r"models.big.revision: big has"),
        (lambda: Path("minilm/config.json").unlink(), r"embedders.minilm: minilm/config.json is"),
        (lambda: Path("results").write_text(""), r"results cannot be written"),
    ],
)
def test_what_changed_since_it_was_named_is_refused(spoil, message):
    resolved = resolve(local())
    spoil()
    with pytest.raises(HeadroomError, match=message) as error:
        preflight(resolved)
    assert "\n" not in str(error.value)


def test_more_questions_than_there_are_are_refused_before_any_job():
    write_benchmark(Path("test.jsonl"), rows=60)
    with pytest.raises(BenchmarkError, match=r"questions.test.n: 61 .*test.jsonl has 60; lower n"):
        preflight(resolve(config(questions={"test": {"file": "test.jsonl", "n": 61}})))
    with pytest.raises(BenchmarkError, match=r"questions.test.n: 501 .*math500 has 500; lower n"):
        preflight(resolve(config(questions={"test": {"n": 501}})))


def test_another_geometry_than_the_models_own_is_refused():
    local()
    stated_wrong = config(models={"big": {"source": "./big", "revision": None, "heads": 14}})
    with pytest.raises(ModelError, match=r"models.big: heads: 14 is stated, .* says 12"):
        preflight(resolve(stated_wrong))


def test_a_gpu_is_asked_for_at_the_start_only_and_not_where_slurm_is(here, monkeypatch):
    with pytest.raises(ModelError, match=r"models.big.attention: flash.* needs a GPU"):
        preflight(
            resolve(config(models={"big": {"device": "cpu", "attention": "flash_attention_2"}}))
        )
    if any(Path("/dev").glob("nvidia[0-9]*")):
        pytest.skip("this machine has a GPU; runs on machines without one")
    monkeypatch.setenv("PATH", str(here))
    resolved = resolve(config(models={"big": {"device": "cuda:1"}}))
    preflight(resolved)
    with pytest.raises(ModelError, match=r"models.big.device: 'cuda:1', but there is no GPU"):
        check_devices(resolved)
    check_devices(resolve(config()))
    (here / "sbatch").touch(mode=0o755)
    check_devices(resolved)


def test_an_archived_store_needs_no_model_embedder_or_benchmark_at_hand():
    resolved = resolve(local())
    keys = {name: key(resolved, "questions", name) for name in resolved.questions}
    for questions in keys.values():
        touch(paths.QUESTIONS, questions=questions)
        embedder = key(resolved, "embedders", "minilm")
        touch(paths.EMBEDDINGS, embedder=embedder, questions=questions)
    *others, last = [file for batch in batches(resolved) for file in Store(resolved).answers(batch)]
    for file in others:
        touch(file)
    for name in ("test.jsonl", "big/model.safetensors", "minilm/model.safetensors"):
        Path(name).unlink()
    with pytest.raises(ModelError, match=r"models.big: big has no weights"):
        preflight(resolved)  # one file of answers is still to come
    touch(last)
    preflight(resolved)
    check_devices(resolved)


def test_a_split_in_the_store_needs_no_file():
    resolved = resolve(local())
    Path("test.jsonl").unlink()
    touch(paths.SOURCE, source=source_key(resolved, "test"))
    preflight(resolved)
