import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest
import yaml

from example_config import VALUES as EXAMPLE
from headsweep import cli
from headsweep.config import parse
from headsweep.errors import EngineError
from headsweep.generation import client
from headsweep.planning import preflight
from headsweep.planning.batches import batches
from headsweep.planning.detectable_gain import Rates
from headsweep.planning.forecast import Software, Speed
from headsweep.planning.pilot_settings import settings_file, unpiloted
from headsweep.planning.revisions import resolve
from headsweep.planning.store import Store, check_version
from headsweep.safe_files import read_arrow
from headsweep.tables import ANSWERS
from headsweep.tool import pilot, pilot_slurm
from headsweep.tool.pilot import Answered
from headsweep.tool.trial import Trial
from headsweep.tool.without_snakemake import answer
from mini import REASONER

VALUES = yaml.safe_load(
    """
    run: mine
    questions: {test: {benchmark: generated_math, split: test, n: 60}}
    decodings: {greedy: {max_new_tokens: 30}, T0.6: {temperature: 0.6}}
    sweeps: {math: {model: tiny, questions: test, layers: [1, 4]}}
    """
)
VALUES["models"] = {"tiny": REASONER}
ONE = {**VALUES["questions"]["test"], "n": 1}
BESIDE = {"math": {"model": "tiny", "questions": "test", "layers": [1], "heads": [2]}}
SBATCH = """
import os, sys, pathlib
pathlib.Path("asked").write_text("\\n".join(sys.argv[1:]))
(out,) = [word[9:] for word in sys.argv if word.startswith("--output=")]
pathlib.Path(out).write_text("tiny 57\\n")
sys.exit(int(os.environ["STATUS"]))
"""


@pytest.fixture(autouse=True)
def config(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    file = tmp_path / "mine.yaml"
    file.write_text(yaml.safe_dump(VALUES))
    return file


def test_a_pilot_measures_base_and_two_heads_and_projects_the_whole(config, capsys, monkeypatch):
    small = resolve(parse({**VALUES, "questions": {"test": ONE}, "sweeps": BESIDE}))
    client.begin_run()
    monkeypatch.setattr(client, "IDLE_SECONDS", 3600.0)  # however slow the pilot is
    answer(small, 1, stay=True)  # a run beside it has an engine of the same model here
    (of_run,) = (file.parent.name for file in Path("results/store").glob("tiny-*/*/*/base.parquet"))
    beside = os.environ["HEADSWEEP_RUN"]
    assert cli.main(["pilot", str(config), "--cores", "1"]) == 0
    said = capsys.readouterr().out
    row = re.search(r"^tiny +60 +([\d,]+) +\d+ +(\d+) +([\d,]+) +([\d,]+) +([\d.]+) +", said, re.M)
    assert row  # 3 variants × 20 questions
    tokens, rows, _, _, gigabytes = (float(cell.replace(",", "")) for cell in row.groups())
    written = [
        read_arrow(file, ANSWERS).column("token_ids").to_pylist()
        for file in Path("results/store").glob("tiny-*/*/*/*.parquet")
        if file.parent.name != of_run
    ]
    assert tokens == sum(map(len, (ids for table in written for ids in table)))
    assert rows == 64
    assert 0.2 < gigabytes < 20
    answers = sorted(file.stem for file in Path("results/store").glob("tiny-*/*/*/L*.parquet"))
    assert answers == ["L01H00", "L01H02", "L04H03"]
    assert "tiny: headsweep ran on cpu, path dense" in said
    assert not settings_file(resolve(parse(VALUES))).exists()  # no GPU: nothing to choose
    (seen,) = re.findall(r"^math +8 +60 +(\d+)% +(\d+)% +(\S+) points +([\d,]+)$", said, re.M)
    right, changed, gain, needed = (float(cell.replace(",", "")) for cell in seen)
    assert "outcomes changed are those of the pilot" in said
    assert right % 5 == 0  # of 20 questions
    assert changed <= 100
    assert 0 < gain < 60
    assert needed > 60
    bundle = json.loads(Path("results/pilot/bundle.json").read_text())
    assert "for a report of a fault: results/pilot/bundle.json" in said
    assert bundle["engines"]["tiny"]["device"] == "cpu"
    assert bundle["engines"]["tiny"]["path"] == "dense"
    assert bundle["rates"]["tiny"]["answers"] == "60"
    trial = bundle["trials"]["tiny"]["headsweep"]
    assert (trial["workers"], trial["rows"]) == (1, 64)
    assert [f"{trial[name]:,.0f}" for name in ("prefill", "decode")] == [row[3], row[4]]
    assert "torch" in bundle["versions"]
    assert not Path("results/pilot/config.json").exists()
    check_version()  # the run that follows takes the store for one of today
    assert [engine["model"][:4] for engine in client.status()] == ["tiny"]  # not the pilot's to end
    monkeypatch.setenv("HEADSWEEP_RUN", beside)
    client.end_run()
    assert cli.main(["engine", "status"]) == 0
    assert "no engine runs" in capsys.readouterr().out


@pytest.fixture
def gpu(pretended_gpu, monkeypatch):
    """A machine with a GPU, on which vLLM seems to be installed."""
    for module in (pilot, preflight):
        monkeypatch.setattr(module, "find_spec", lambda name: name)


TOLD = {"device": "cuda:0", "prompt_tokens": 21.0, "start": 7.5}


def trial(decode, verifies, **facts):
    speed = Speed(rows=16, prefill=9e4, decode=decode, narrow=50.0)
    return Trial(Software(speed, 1, verifies), {**TOLD, **facts})


def answered(config, _):
    """Answers of 12 tokens, of which a head repeats nine and six."""
    base = {"question_id": "q", "token_ids": [*range(12)], "stop_reason": "length"}
    heads = [{**base, "token_ids": [*range(same), *[99] * (12 - same)]} for same in (9, 6)]
    return Answered(
        [[base], *([head] for head in heads)], {"device": "cuda:0"}, 2.0, Rates(0.5, 0.1)
    )


CHECK = {"audited": 16, "worst": 0.02}


@pytest.mark.parametrize(
    ("decode", "values", "chosen", "said"),
    [
        # A head's answer is verified for five eighths: vLLM has to decode faster than that.
        ({"headsweep": 500.0, "vllm": 2000.0}, {}, "vllm", "the whole config by headsweep "),
        ({"headsweep": 500.0, "vllm": 800.0}, {}, "headsweep", ", by vllm "),
        ({"headsweep": 500.0}, {}, "headsweep", "vllm is left out: vllm: CUDA is too old"),
        ({"vllm": 9.0}, {}, "vllm", "headsweep is left out: headsweep: CUDA is too old"),
        (
            {"headsweep": 9.0},
            {"placebos": "noise"},
            "headsweep",
            "vllm is left out: it cannot answer all of the run",
        ),
    ],
)
def test_on_a_gpu_what_works_and_is_faster_goes_into_the_run_s_settings(
    config, gpu, monkeypatch, capsys, decode, values, chosen, said
):
    tried = []

    def attempt(little, _):
        backend = little.models["tiny"].backend
        (batch,) = batches(little)
        tried.append((backend, len(batch.variants)))
        if little.models["tiny"].graphs == "auto":
            tried.pop()
            raise EngineError(f"{backend}: operation not permitted when stream is capturing")
        if backend not in decode:
            raise EngineError(f"{backend}: CUDA is too old")
        return trial(decode[backend], backend == "headsweep", path="flash", check=CHECK)

    monkeypatch.setattr(pilot, "attempt", attempt)
    monkeypatch.setattr(pilot, "_answered", answered)
    asked = {**VALUES, "models": {"tiny": {**REASONER, "device": "auto"}}}
    asked["sweeps"] = {"math": {**VALUES["sweeps"]["math"], **values}}
    config.write_text(yaml.safe_dump(asked))
    assert cli.main(["pilot", str(config), "--cores", "1"]) == 0
    printed = capsys.readouterr().out
    assert said in printed
    both = ["headsweep"] if values else ["headsweep", "vllm"]
    assert tried == [(backend, 3) for backend in both]
    assert f"tiny: {chosen} ran on cuda:0, path flash, check {CHECK}" in printed
    assert "what answers in the run: results/mine/pilot.json" in printed
    run = resolve(parse(asked))
    assert run.models["tiny"].backend == chosen
    assert [*unpiloted(run)] == []
    bundle = json.loads(Path("results/pilot/bundle.json").read_text())
    assert bundle["cards"] == ["Card X"]
    assert bundle["trials"]["tiny"].keys() == decode.keys()
    assert bundle["trials"]["tiny"][chosen]["decode"] == decode[chosen]
    lacking = {"headsweep", "vllm"} - decode.keys()
    if "headsweep" in decode:
        lacking |= {"graphs"}
        assert "tiny: graphs is left out: headsweep: operation not permitted when" in printed
    assert run.models["tiny"].graphs == "off"
    assert bundle["dropped"]["tiny"].keys() == lacking


@pytest.mark.parametrize(
    ("path", "decode", "stated", "graphs", "why"),
    [
        ("flash in graphs", 900.0, {}, "auto", None),
        ("flash in graphs", 400.0, {}, "off", "400 tokens/s with them, 500 without"),
        ("flash", 900.0, {}, "off", "flash in graphs to flash: other logits"),
        ("flash in graphs", 900.0, {"graphs": "off"}, "off", "the config states 'off'"),
        ("flash in graphs", 400.0, {"graphs": "auto"}, "auto", None),
    ],
    ids=["faster", "slower", "fallen", "stated off", "stated auto"],
)
def test_graphs_are_on_in_a_run_whose_pilot_saw_them_pass_and_be_faster(
    config, gpu, monkeypatch, capsys, path, decode, stated, graphs, why
):
    def attempt(little, _):
        if little.models["tiny"].backend == "vllm":
            raise EngineError("it is too old")
        if little.models["tiny"].graphs == "off":
            return trial(500.0, True, path="flash")
        falls = {} if path != "flash" else {"falls": ["flash in graphs to flash: other logits"]}
        return trial(decode, True, path=path, **falls)

    monkeypatch.setattr(pilot, "attempt", attempt)
    monkeypatch.setattr(pilot, "_answered", answered)
    asked = {**VALUES, "models": {"tiny": {**REASONER, "device": "auto", **stated}}}
    config.write_text(yaml.safe_dump(asked))
    for _ in range(2):  # a second pilot tries both again
        assert cli.main(["pilot", str(config), "--cores", "1"]) == 0
        assert resolve(parse(asked)).models["tiny"].graphs == graphs
        bundle = json.loads(Path("results/pilot/bundle.json").read_text())
        assert bundle["dropped"]["tiny"].get("graphs") == why
        assert bundle["trials"]["tiny"]["headsweep"]["decode"] == (500.0 if why else decode)
    printed = capsys.readouterr().out
    assert ("graphs is left out" in printed) == bool(why)
    assert f"graphs is left out: {why}" in printed or why is None


def test_what_the_config_states_or_has_answers_by_is_the_only_one_tried(
    config, gpu, monkeypatch, capsys
):
    tried = []

    def attempt(little, _):
        backend = little.models["tiny"].backend
        tried.append(backend)
        return trial(10.0, backend == "headsweep")

    monkeypatch.setattr(pilot, "attempt", attempt)
    monkeypatch.setattr(pilot, "_answered", answered)
    asked = {**VALUES, "models": {"tiny": {**REASONER, "device": "auto", "backend": "vllm"}}}
    config.write_text(yaml.safe_dump(asked))
    assert cli.main(["pilot", str(config)]) == 0
    assert tried == ["vllm"]
    Path("results/mine/pilot.json").unlink()
    del asked["models"]["tiny"]["backend"]
    run = resolve(parse(asked))
    (batch,) = batches(run)
    file = Path(Store(run).answers(batch)[3])
    file.parent.mkdir(parents=True)
    file.touch()
    config.write_text(yaml.safe_dump(asked))
    assert cli.main(["pilot", str(config)]) == 0
    assert tried == ["vllm", "headsweep"]
    assert "others is left out: the run has answers by headsweep already" in capsys.readouterr().out


def test_where_nothing_answers_the_pilot_says_why_and_leaves_the_bundle(
    config, gpu, monkeypatch, capsys
):
    def attempt(little, _):
        raise EngineError(f"{little.models['tiny'].backend}: no kernel image")

    monkeypatch.setattr(pilot, "attempt", attempt)
    values = {**VALUES, "models": {"tiny": {**REASONER, "device": "auto"}}}
    config.write_text(yaml.safe_dump(values))
    assert cli.main(["pilot", str(config)]) == 2
    (line,) = capsys.readouterr().err.strip().splitlines()[-1:]
    assert "headsweep: no kernel image; vllm: no kernel image" in line
    assert "results/pilot/bundle.json" in line
    bundle = json.loads(Path("results/pilot/bundle.json").read_text())
    assert bundle["dropped"]["tiny"].keys() == {"headsweep", "vllm"}
    assert not Path("results/mine/pilot.json").exists()


@pytest.mark.parametrize(("device", "gigabytes"), [("cpu", 0.0), ("auto", 84.9)])
def test_the_memory_of_a_cpu_s_model_is_not_that_of_the_gpus_beside_it(
    device, gigabytes, gpu, monkeypatch
):
    kept = SimpleNamespace(answers=lambda _: ["base"], to_pylist=list)
    monkeypatch.setattr(pilot, "output_of", lambda *_: "80000\n1000\n")  # MiB, all users'
    monkeypatch.setattr(pilot, "answer", lambda *_, **__: kept)
    monkeypatch.setattr(pilot, "read_arrow", lambda *_: kept)
    monkeypatch.setattr(pilot, "read_record", lambda _: {})
    monkeypatch.setattr(pilot, "_rates", lambda *_: Rates(0.5, 0.1))
    monkeypatch.setattr(client, "status", list)
    little = parse({**VALUES, "models": {"tiny": {**REASONER, "device": device}}})
    assert pilot._answered(little, 1).gigabytes == pytest.approx(gigabytes, abs=0.05)


def test_the_start_of_the_engine_counts_once(config):
    whole = resolve(parse(VALUES))
    batch = batches(whole)[0]
    tables = answered(whole, 1).tables
    habits = pilot._habits(tables, 21.0)
    hours = [pilot._hours(whole, batch, habits, trial(9.0, True, start=s)) for s in (0.0, 7.5)]
    assert hours[1] - hours[0] == pytest.approx(7.5 / 3600)


def test_slurm_runs_it_in_one_allocation(config, monkeypatch, capsys):
    tmp_path = config.parent
    monkeypatch.setenv("PATH", "")
    assert cli.main(["pilot", str(config), "--slurm"]) == 2
    assert "there is no sbatch on the path" in capsys.readouterr().err
    stub = tmp_path / "bin" / "sbatch"
    stub.parent.mkdir()
    stub.write_text(f"#!{sys.executable}\n{SBATCH}")
    stub.chmod(0o755)
    profile = tmp_path / "workflow/profiles/slurm/config.yaml"
    profile.parent.mkdir(parents=True)
    resources = {"slurm_partition": "gpus", "slurm_account": "CHANGE-ME"}
    profile.write_text(yaml.safe_dump({"default-resources": resources}))
    monkeypatch.setenv("PATH", f"{stub.parent}{os.pathsep}{os.defpath}")
    monkeypatch.setenv("STATUS", "0")
    assert cli.main(["pilot", str(config), "--slurm"]) == 0
    assert "tiny 57" in capsys.readouterr().out
    asked = Path("asked").read_text().splitlines()
    assert asked[0] == "--wait"
    assert "--partition=gpus" in asked
    assert not [word for word in asked if "account" in word or "gres" in word]  # a CPU's model
    assert not [word for word in asked if word.startswith("--gpus")]
    assert "--time=16" in asked  # a small model's pilot
    assert asked[-1].endswith(f"-m headsweep pilot {config}")
    big = {**REASONER, "device": "balanced", "billions": 70.0, "dtype": "float16"}
    config.write_text(yaml.safe_dump({**VALUES, "models": {"tiny": big}}))
    assert cli.main(["pilot", str(config), "--slurm"]) == 0
    words = dict(word.partition("=")[::2] for word in Path("asked").read_text().splitlines())
    assert int(words["--gpus"]) == 3  # 140 GB of weights on cards of 80: as the executor asks
    assert "--gres" not in words
    config.write_text(yaml.safe_dump(VALUES))
    monkeypatch.setenv("STATUS", "1")
    assert cli.main(["pilot", str(config), "--slurm"]) == 2
    assert "the job has failed (tiny 57)" in capsys.readouterr().err
    assert cli.main(["pilot", str(config), "--slurm", "--cores", "2"]) == 2
    assert "--cores would be ignored: the allocation of --slurm has 8" in capsys.readouterr().err
    config.write_text(yaml.safe_dump({**VALUES, "sweeps": {}}))
    Path("asked").unlink()
    for options in ([], ["--slurm"]):
        assert cli.main(["pilot", str(config), *options]) == 2
        assert "no model of this config answers greedily without heads" in capsys.readouterr().err
    assert not Path("asked").exists()


@pytest.mark.parametrize(
    ("printed", "gigabytes"), [("76294\n9\n", 80.01), ("[N/A]", 0.0), ("", 0.0)]
)
def test_memory_of_gpus_is_read_in_mebibytes_where_they_say_it(printed, gigabytes, monkeypatch):
    monkeypatch.setattr(pilot, "output_of", lambda *_: printed)
    monkeypatch.setattr(client, "status", list)  # no engine is here
    assert pilot._gigabytes_in_use(of_gpus=True) == pytest.approx(gigabytes, abs=0.01)


def test_a_refused_allocation_is_said_without_a_former_pilot_s_log(config, monkeypatch, capsys):
    log = Path("results/pilot/logs/slurm.log")
    log.parent.mkdir(parents=True)
    log.write_text("tiny 57\n")
    monkeypatch.setattr(shutil, "which", lambda name: name)
    refused = subprocess.CompletedProcess([], 1, "", "sbatch: error: invalid account\n")
    monkeypatch.setattr(pilot_slurm.subprocess, "run", lambda *_, **__: refused)
    assert cli.main(["pilot", str(config), "--slurm"]) == 2
    said = capsys.readouterr()
    assert "tiny 57" not in said.out + said.err
    assert "sbatch has failed (sbatch: error: invalid account), and no job has run" in said.err


def test_heads_of_the_model_stand_for_families_without_any():
    frontier = {"model": "tiny", "train": "train", "test": "test", "families": ["skip", "scaled"]}
    frontier |= {"sampling": ["T0.6"], "layers": [2], "members": 1, "max_n": 1}
    questions = {"train": {**ONE, "split": "train"}, "test": ONE}
    config = parse(
        {**VALUES, "questions": questions, "sweeps": {}, "frontiers": {"families": frontier}}
    )
    batch = pilot.piloted_batches(config)["tiny"]
    assert not [variant for variant in batch.variants if variant.kind == "head"]
    graded_otherwise = config.model_copy(update={"grading": "authors"})
    assert pilot.little_config(graded_otherwise, batch).grading == "authors"
    (little,) = batches(pilot.little_config(config, batch))
    assert [str(variant) for variant in little.variants] == ["base", "L00H00", "L05H03"]
    assert pilot_slurm._minutes(config)


def test_a_pilot_asks_no_more_questions_than_a_file_has_and_draws_them_without_clusters(tmp_path):
    rows = "".join(f"what is {number},{number}\n" for number in range(12))
    (tmp_path / "mine.csv").write_text(f"question,answer\n{rows}")
    mine = {"benchmark": "custom", "split": "test", "file": "mine.csv"}
    clustered = {"n": 11, "sampling": "clusters", "clusters": 5, "embedder": "phi"}
    for drawn, count in (({}, 12), (clustered, 11)):
        values = {"questions": {"test": mine | drawn}, "embedders": {"phi": {"model": "tiny"}}}
        config = parse(VALUES | values)
        little = pilot.little_config(config, pilot.piloted_batches(config)["tiny"])
        asked = parse(little.model_dump(mode="json")).questions["test"]
        assert (asked.n, asked.sampling, asked.embedder) == (count, "first", None)


def test_a_pilot_asks_of_every_stratum_where_the_config_does():
    drawn = {"benchmark": "math500", "split": "test", "n": 60, "sampling": "stratified"}
    config = parse(VALUES | {"questions": {"test": drawn}})
    little = pilot.little_config(config, pilot.piloted_batches(config)["tiny"])
    assert (little.questions["test"].n, little.questions["test"].sampling) == (20, "stratified")


@pytest.mark.parametrize("device", ["cpu", "auto"])
def test_an_allocation_has_time_for_each_trial_of_a_model(device):
    planned = parse({**VALUES, "models": {"tiny": {**REASONER, "device": device}}})
    minutes = pilot_slurm._minutes(planned)
    assert minutes == {"cpu": 16, "auto": 10 + 3 * 5 + 1}[device]


def test_the_doctor_says_what_runs_where_and_check_what_is_not_fetched(config, capsys):
    assert cli.main(["doctor"]) == 0
    said = capsys.readouterr().out
    for word in ("python 3", "torch", "snakemake", "cores", "GB free", "HF_HUB_OFFLINE", "SLURM"):
        assert word in said
    assert list(config.parent.iterdir()) == [config]

    config.write_text(yaml.safe_dump(EXAMPLE))
    assert cli.main(["check", str(config)]) == 0
    said = capsys.readouterr().out
    for name in ("models.big (owner/big)", "embedders.minilm", "questions.test (math500)"):
        assert f"missing: {name}" in said
    assert "models.tiny" not in said  # in the package
    assert "is sound: run 'mini' can start" in said


def test_a_cached_gguf_file_of_any_commit_is_not_said_to_be_missing(
    config, monkeypatch, tmp_path, capsys
):
    models = {"big": EXAMPLE["models"]["big"] | {"gguf_file": "big.gguf", "revision": "5a" * 32}}
    config.write_text(yaml.safe_dump(EXAMPLE | {"models": EXAMPLE["models"] | models}))
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path / "cache"))
    snapshot = tmp_path / f"cache/models--owner--big/snapshots/{'7' * 40}"
    snapshot.mkdir(parents=True)
    for name, missing in {"other.gguf": True, "big.gguf": False}.items():
        (snapshot / name).touch()
        assert cli.main(["check", str(config)]) == 0
        assert ("missing: models.big" in capsys.readouterr().out) is missing


def test_too_small_a_disk_is_said_in_one_line(config, monkeypatch, capsys):
    usage = shutil.disk_usage(".")._replace(free=1 << 20)
    monkeypatch.setattr(shutil, "disk_usage", lambda _: usage)
    assert cli.main(["check", str(config)]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert re.search(r"error: .* has 0\.0 GB free, .* needs about", line)
