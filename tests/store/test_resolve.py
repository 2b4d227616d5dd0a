import errno
import json
import os
import re
import shutil
import sys
from contextlib import nullcontext
from pathlib import Path
from types import SimpleNamespace

import pandas as pd
import pytest
import torch
import yaml
from safetensors.torch import save_file
from snakemake.exceptions import WorkflowError

from example_config import STUDIES, VALUES, changed, config
from headsweep.benchmarks.sources import PINNED, file_revision
from headsweep.cli import machine
from headsweep.cli import main as cli
from headsweep.config import parse
from headsweep.errors import BenchmarkError, ConfigError, HeadsweepError, ModelError
from headsweep.files import paths
from headsweep.files.safe_files import write_table
from headsweep.files.tables import EMBEDDINGS, QUESTIONS, SOURCE
from headsweep.machine import processors
from headsweep.models.source import BUILTIN, fingerprint
from headsweep.store import layout as store_of_run
from headsweep.store.batches import batches
from headsweep.store.layout import Store, mark_version, read_config, write_config
from headsweep.store.map_scores import score_files
from headsweep.store.revisions import resolve
from headsweep.workflow import session
from headsweep.workflow.preflight import check_devices, lacking, preflight

MATH_ROW = {"problem": "What is $1+1$?", "solution": "$\\boxed{2}$", "answer": "2"}
MATH_ROW |= {"subject": "Algebra", "level": 1}


@pytest.fixture(autouse=True)
def here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return tmp_path


def write_benchmark(rows=60):
    lines = [json.dumps(MATH_ROW | {"unique_id": f"test/algebra/{n}.json"}) for n in range(rows)]
    Path("test.jsonl").write_text("\n".join(lines) + "\n")


def write_model(folder):
    folder.mkdir()
    own = {"num_hidden_layers": 28, "num_attention_heads": 12, "num_key_value_heads": 2}
    (folder / "config.json").write_text(json.dumps({"model_type": "qwen2", **own}))
    (folder / "tokenizer.json").write_text("{}")
    save_file({"weight": torch.zeros(5, 3)}, folder / "model.safetensors")


def local():
    """Return a config whose benchmark, model and embedder lie in this folder."""
    write_benchmark()
    write_model(Path("big"))
    write_model(Path("minilm"))
    return config(
        questions={"test": {"file": "test.jsonl"}},
        models={"big": {"source": "./big", "revision": None}},
        embedders={"minilm": {"source": "./minilm", "revision": None}},
    )


def touch(file):
    Path(file).parent.mkdir(parents=True, exist_ok=True)
    Path(file).touch()


def test_every_revision_is_filled_in_once():
    resolved = resolve(local())
    assert resolved.questions["test"].revision == file_revision(Path("test.jsonl"))
    assert resolved.questions["train"].revision == PINNED["math_train"].revision
    assert resolved.models["big"].revision == fingerprint(Path("big"))
    assert resolved.models["tiny"].revision == fingerprint(BUILTIN["builtin:reasoner"])
    assert len(resolved.embedders["minilm"].revision or "") == 16
    for each in (resolved, resolve(parse(STUDIES))):
        assert parse(json.loads(each.model_dump_json())) == resolve(each) == each


@pytest.mark.parametrize(
    ("path", "keys", "message"),
    [
        (
            "questions/test",
            {"file": "absent.jsonl"},
            r": /.*/absent.jsonl is missing; .*`revi",
        ),
        ("models/big", {"source": "./absent", "revision": None}, r": source ./absent is"),
        ("models/big", {"revision": None}, r".revision: None is not a .* `git ls-remote .*owner/b"),
        ("models/big", {"source": "own/folder"}, r".source: .* write './own/folder'"),
        ("embedders/minilm", {"revision": None}, r".revision: None is not a commit hash"),
        ("questions/test", {"revision": "main"}, r".revision: 'main' is not a .*6e4ed1a2"),
        ("solvers/base/encoder", {"revision": "main"}, r".revision: 'main' is not a commit"),
        ("problems/hub", {"dataset": "math23k", "revision": "x"}, r".revision: 'x' .*Math23K HEAD"),
    ],
)
def test_what_cannot_be_named_by_content_is_refused(path, keys, message):
    Path("own/folder").mkdir(parents=True)
    values = STUDIES
    for name, value in keys.items():
        values = changed(values, f"{path}/{name}", value)
    with pytest.raises(HeadsweepError, match=f"^{path.replace('/', '.')}{message}") as caught:
        resolve(parse(values))
    assert "\n" not in str(caught.value)


def big(**keys):
    return {"models": {"big": keys}}


def asked(**keys):
    return {"questions": {"test": keys}}


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda: Path("test.jsonl").write_text(""), r"questions.test: test.jsonl has sha256"),
        (lambda: Path("test.jsonl").unlink(), r"questions.test: /.*/test.jsonl is missing"),
        (lambda: Path("big/model.safetensors").unlink(), r"models.big: big has no weights"),
        (lambda: Path("big/tokenizer.json").write_text("{ }"), r"models.big.revision: big has"),
        (lambda: Path("minilm/config.json").unlink(), r"embedders.minilm: minilm/config.json is"),
        (lambda: Path("results").write_text(""), r"results cannot be written"),
        (asked(file="test.jsonl", n=61), r"test.n: 61 .*test.jsonl has 60; lower n"),
        (asked(n=501), r"questions.test.n: 501 .*math500 has 500; lower n"),
        (big(source="./big", revision=None, heads=14), r"big: heads: 14 is stated, .* says 12"),
        (big(device="cpu", dtype="float16"), r"big.dtype: float16 needs a GPU"),
        (big(device="cpu", attention="flash_attention_2"), r"big.attention: flash.* needs a GPU"),
    ],
)
def test_what_changed_since_it_was_named_and_what_cannot_run_is_refused(change, message):
    resolved = resolve(local())
    if callable(change):
        change()
    else:
        resolved = resolve(config(**change))
    with pytest.raises(HeadsweepError, match=message) as error:
        preflight(Store(resolved))
    assert "\n" not in str(error.value)


def test_a_file_of_problems_is_looked_at_before_the_first_job():
    only = resolve(parse({"run": "mini", "problems": STUDIES["problems"]}))
    with pytest.raises(BenchmarkError, match=r"problems.asdiv: /.*/asdiv.jsonl is missing"):
        preflight(Store(only))
    Path("asdiv.jsonl").write_text("{}\n")
    with pytest.raises(BenchmarkError, match=r"problems.asdiv.revision: .* has sha256 .*, not 555"):
        preflight(Store(only))


def test_generated_problems_are_divided_before_the_first_job(capsys):
    values = {"run": "few", "problems": {"few": {"dataset": "generated", "n": 5}}}
    Path("few.yaml").write_text(yaml.safe_dump(values))
    assert cli.main(["check", "few.yaml"]) == 2
    refused = "problems.few: protocol random leaves the dev part of 5 problems empty"
    assert refused in capsys.readouterr().err
    with pytest.raises(WorkflowError, match=refused):
        session.checked(values, (), look=True)


def test_a_gpu_is_asked_for_at_the_start_only_and_not_where_slurm_is(here, monkeypatch):
    if any(Path("/dev").glob("nvidia[0-9]*")):
        pytest.skip("this machine has a GPU; runs on machines without one")
    monkeypatch.setenv("PATH", str(here))
    resolved = resolve(config(models={"big": {"device": "cuda:1"}}))
    preflight(Store(resolved))
    with pytest.raises(ModelError, match=r"models.big.device: 'cuda:1', but there is no GPU"):
        check_devices(Store(resolved))
    check_devices(Store(resolve(config())))
    (here / "sbatch").touch(mode=0o755)
    check_devices(Store(resolved))


def test_check_tells_what_the_machine_lacks_apart_from_what_the_config_lacks(
    here, monkeypatch, capsys
):
    if any(Path("/dev").glob("nvidia[0-9]*")):
        pytest.skip("this machine has a GPU; runs on machines without one")
    values = changed(VALUES, "models/big/dtype", "float16")
    Path("half.yaml").write_text(yaml.safe_dump(values))
    assert cli.main(["check", "half.yaml"]) == 0
    said = capsys.readouterr().out
    assert "this machine: models.big.dtype: float16 needs a GPU" in said
    assert said.endswith("can start, on a machine that has what this one lacks\n")
    (here / "sbatch").touch(mode=0o755)
    monkeypatch.setenv("PATH", str(here), prepend=os.pathsep)
    assert cli.main(["check", "half.yaml"]) == 0
    assert "this machine: models.big.dtype: float16 needs a GPU" in capsys.readouterr().out
    values = changed(VALUES, "models/big/revision", "main")
    Path("half.yaml").write_text(yaml.safe_dump(values))
    assert cli.main(["check", "half.yaml"]) == 2  # the config's own fault, wherever it is


@pytest.mark.parametrize("number", [errno.EACCES, errno.EPERM, errno.EROFS, errno.ENOSPC])
def test_a_linked_store_is_told_its_user_once_and_may_be_read_only(tmp_path, monkeypatch, number):
    mine, theirs = tmp_path / "mine/results", tmp_path / "theirs/store"
    mine.mkdir(parents=True)
    theirs.mkdir(parents=True)
    (mine / "store").symlink_to(theirs)
    mark_version(mine.parent)
    (user,) = (theirs / ".users").iterdir()
    assert user.read_text() == f"{mine}\n"
    user.unlink()

    def refuse(file, _):
        raise OSError(number, os.strerror(number), str(file))

    monkeypatch.setattr(store_of_run, "write_text", refuse)
    # Reading needs no leave to write.
    with pytest.raises(OSError, match="space") if number == errno.ENOSPC else nullcontext():
        mark_version(mine.parent)


def write_split(store, rows):
    cells = ["q", "dev", None, None, "How many?", "1", None, 0]
    table = pd.DataFrame([cells] * rows, columns=SOURCE.columns)
    write_table(store.path(SOURCE, source="test"), table, SOURCE)


def test_a_config_that_has_not_changed_keeps_its_date():
    resolved = resolve(config())
    file = Path(paths.CONFIG.format(run=resolved.run))
    write_config(Store(resolved))
    os.utime(file, (1, 1))
    write_config(Store(resolved))
    assert file.stat().st_mtime == 1
    file.write_text("{")
    write_config(Store(resolved))
    assert read_config(file).config == resolved
    other = resolved.model_copy(update={"papers": not resolved.papers})
    write_config(Store(other))
    assert read_config(file).config == other


def test_more_questions_than_a_split_in_the_store_has_are_refused():
    write_benchmark()
    resolved = resolve(config(questions={"test": {"file": "test.jsonl", "n": 2}}))
    mark_version()
    write_split(Store(resolved), 1)
    with pytest.raises(BenchmarkError, match=r"questions.test.n: 2 .* requested, but .* has 1"):
        preflight(Store(resolved))
    write_split(Store(resolved), 2)
    preflight(Store(resolved))


def test_an_archived_store_needs_no_model_embedder_or_benchmark_at_hand():
    resolved = resolve(local())
    store = Store(resolved)
    mark_version()
    Path("test.jsonl").unlink()
    write_split(store, 1)
    preflight(Store(resolved))  # a split needs no file
    for questions in resolved.questions:
        touch(store.path(QUESTIONS, questions=questions))
        touch(store.path(EMBEDDINGS, embedder="minilm", questions=questions))
    *others, last = [file for batch in batches(Store(resolved)).values() for file in batch.answers]
    for file in others:
        touch(file)
    store.path(SOURCE, source="test").unlink()
    for name in ("big/model.safetensors", "minilm/model.safetensors"):
        Path(name).unlink()
    with pytest.raises(ModelError, match=r"models.big: big has no weights"):
        preflight(Store(resolved))  # one file of answers is still to come
    touch(last)
    preflight(Store(resolved))
    check_devices(Store(resolved))


def mapped(**keys):
    """Return a config of nothing but a map of reference solutions."""
    values = {"run": "mini", "maps": {"pairs": {"model": "big", "questions": "train", **keys}}}
    values |= {section: VALUES[section] for section in ("questions", "decodings")}
    return values | {"models": {"big": VALUES["models"]["big"]}}


def test_a_map_s_model_is_looked_at_before_the_first_job_until_its_scores_are_there():
    write_model(Path("big"))
    local_model = VALUES["models"]["big"] | {"source": "./big", "revision": None}
    resolved = resolve(parse(changed(mapped(), "models/big", local_model)))
    preflight(Store(resolved))
    other = parse(changed(mapped(), "models/big", local_model | {"heads": 14}))
    with pytest.raises(ModelError, match=r"big: heads: 14 is stated, .* says 12"):
        preflight(Store(resolve(other)))
    Path("big/model.safetensors").unlink()
    with pytest.raises(ModelError, match=r"models.big: big has no weights"):
        preflight(Store(resolved))
    mark_version()
    for file in score_files(resolved, "pairs"):
        touch(file)
    preflight(Store(resolved))


@pytest.mark.parametrize(
    ("usable", "device", "refused"),
    [
        (0, "auto", True),
        (0, "cuda", True),
        (0, "cpu", False),
        (1, "auto", False),
        (None, "auto", False),  # it did not say
    ],
)
def test_a_gpu_that_pytorch_cannot_use_is_told_before_the_first_job(
    usable, device, refused, tmp_path, monkeypatch
):
    (tmp_path / "nvidia0").touch()
    monkeypatch.setattr(processors, "_DEVICES", tmp_path)
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    monkeypatch.setattr("headsweep.workflow.preflight.usable_gpu_count", lambda: usable)
    errors = [*lacking(Store(resolve(config(models={"big": {"device": device}}))))]
    assert len(errors) == refused
    message = rf"models.big.device: {device}, but .* no GPU .*cuda12\.txt .*or write device: cpu"
    assert all(re.match(message, str(error)) for error in errors)


@pytest.mark.parametrize(
    ("visible", "seen"),
    [
        ("", 0),
        ("-1", 0),
        ("NoDevFiles", 0),
        ("1", 1),
        ("GPU-a, MIG-b", 2),
        ("0,-1,1", 1),
        ("7,8,9", 2),
    ],
)
def test_gpus_are_those_that_cuda_may_see(visible, seen, pretended_gpu, monkeypatch):
    (processors._DEVICES / "nvidia1").touch()
    assert processors.gpu_count() == 2
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)
    assert processors.gpu_count() == seen


def test_how_many_gpus_pytorch_can_use_another_process_looks(monkeypatch, capsys):
    """What that process is to run is run here, where torch is imported."""

    def here(program, option, code):
        assert (program, option) == (sys.executable, "-c")
        exec(code, {})
        return capsys.readouterr().out.strip()

    monkeypatch.setattr(torch.cuda, "device_count", lambda: 3)
    monkeypatch.setattr(processors, "output_of", here)
    assert processors.usable_gpu_count() == 3


def test_programs_that_do_not_answer_are_not_taken_for_no_gpu(
    pretended_gpu, tmp_path, monkeypatch, capsys
):
    assert processors.PATIENCE >= 60  # a busy machine imports torch in half a minute
    silent = tmp_path / "silent"
    silent.write_text("#!/bin/sh\nexec sleep 60\n")
    silent.chmod(0o755)
    pretended_gpu.unlink()
    pretended_gpu.symlink_to(silent)
    monkeypatch.setattr(processors.sys, "executable", str(silent))
    monkeypatch.setattr(processors, "PATIENCE", 0.1)
    assert processors.usable_gpu_count() is None
    machine.describe()
    said = capsys.readouterr().out
    assert "GPUs of nvidia-smi: unknown" in said
    assert "GPUs that PyTorch can use: unknown" in said
    assert "no GPU" not in said


@pytest.mark.parametrize(
    ("model", "dtype", "said"),
    [
        ({"device": "cuda"}, None, r"models.big.device: 'cuda', but there is no GPU"),
        ({"dtype": "float16"}, None, r"models.big.dtype: float16 needs a GPU"),
        ({}, "float16", r"maps.pairs.dtype: float16 needs a GPU"),
        ({"dtype": "float16"}, "float32", ""),
        ({"backend": "vllm"}, None, ""),  # a map is scored by headsweep, whatever answers
    ],
)
def test_a_map_s_model_needs_what_scoring_needs(model, dtype, said, tmp_path, monkeypatch):
    monkeypatch.setattr(processors, "_DEVICES", tmp_path)
    values = changed(mapped(dtype=dtype), "models/big", VALUES["models"]["big"] | model)
    errors = [*lacking(Store(resolve(parse(values))))]
    assert len(errors) == bool(said)
    assert all(re.match(said, str(error)) for error in errors)


@pytest.mark.parametrize("copy", ["./test.jsonl", "again.jsonl"])
def test_training_questions_that_are_the_test_questions_by_another_name_are_refused(copy):
    write_benchmark()
    shutil.copy("test.jsonl", "again.jsonl")
    own = {"benchmark": "custom", "columns": {"question": "problem"}, "split": "all"}
    questions = {"test": own | {"file": "test.jsonl"}, "train": own | {"file": copy}}
    with pytest.raises(ConfigError, match="train 'train' and test 'test' are both drawn from"):
        preflight(Store(resolve(parse(changed(VALUES, "questions", questions)))))


def test_room_is_looked_for_where_the_store_lies(here, monkeypatch):
    (here / "results").mkdir()
    (here / "large disk").mkdir()
    (here / "results/store").symlink_to(here / "large disk")
    resolved = resolve(local())
    asked = []
    usage = SimpleNamespace(free=9e9)
    monkeypatch.setattr(shutil, "disk_usage", lambda at: asked.append(at) or usage)
    preflight(Store(resolved))
    assert asked == [here / "large disk"]
