import re
import shutil
from dataclasses import replace
from pathlib import Path

import pytest
import yaml

from example_config import VALUES as EXAMPLE
from headsweep.cli import main as cli
from headsweep.cli import pilot
from headsweep.cli.pilot_trial import Trial
from headsweep.config import parse
from headsweep.errors import EngineError
from headsweep.store.batches import batches
from headsweep.store.layout import Store, check_version
from headsweep.workflow import preflight
from headsweep.workflow.detectable_gain import Rates
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


@pytest.fixture(autouse=True)
def config(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    file = tmp_path / "mine.yaml"
    file.write_text(yaml.safe_dump(VALUES))
    return file


def test_a_pilot_measures_base_and_two_heads_and_projects_the_whole(config, capsys):
    assert cli.main(["pilot", str(config), "--cores", "2"]) == 0
    said = capsys.readouterr().out
    row = re.search(r"^tiny +60 +([\d,]+) +(\d+) +([\d,]+) +([\d.]+) min$", said, re.M)
    assert row, said  # 3 variants × 20 questions
    tokens, cut, rate, minutes = (float(cell.replace(",", "")) for cell in row.groups())
    assert 60 < tokens <= 60 * 30 and 0 < cut < 60
    assert rate > 0 and minutes >= 0
    assert re.search(r"^tiny: [\d.]+ min on cpu, path dense$", said, re.M)
    assert "backend" not in said  # no GPU: nothing to choose
    (seen,) = re.findall(r"^math +8 +60 +(\d+)% +(\d+)% +(\S+) points +([\d,]+)$", said, re.M)
    right, changed, gain, needed = (float(cell.replace(",", "")) for cell in seen)
    assert "outcomes changed are those of the pilot" in said
    assert right % 5 == 0  # of 20 questions
    assert changed <= 100
    assert 0 < gain < 60
    assert needed > 60
    assert not list(Path("results").glob("pilot*"))
    assert not list(Path("results/store").glob("tiny-*"))  # the run generates its answers itself
    check_version()  # the run that follows takes the store for one of today


def of_pilot(base, head, questions=7, **facts):
    """What a trial measures: so many seconds an answer."""
    answers = {
        variant: [
            {"question_id": f"q{number}", "token_ids": [5, 6], "stop_reason": "eos"}
            for number in range(questions)
        ]
        for variant in ("base", "L01H00", "L04H03")
    }
    return Trial(7.5, base, head, answers, {"device": "cuda:0", **facts})


def test_the_whole_is_extrapolated_by_answers_of_the_base_and_of_heads():
    frontier = {"model": "tiny", "train": "train", "test": "test", "families": ["skip", "weights"]}
    frontier |= {"sampling": ["T0.6"], "layers": [2], "members": 1, "max_n": 1}
    values = {
        **VALUES,
        "decodings": {
            "greedy": {"max_new_tokens": 30},
            "T0.6": {"temperature": 0.6, "samples": 3, "max_new_tokens": 15},
        },
        "questions": {
            "test": VALUES["questions"]["test"],
            "train": {"benchmark": "generated_math", "split": "train", "n": 11},
        },
        "frontiers": {"mine": frontier},
    }
    whole = parse(values)
    batch = pilot.piloted_batches(Store(whole))["tiny"]
    seconds = 7.5  # of the start, once
    kinds = set()
    for planned in batches(Store(whole)).values():
        n = {"test": 60, "train": 11}[planned.questions]
        for variant in planned.variants:
            kinds.add(variant.kind)
            if planned.decoding == "T0.6":  # each sample is a whole answer, of half the tokens
                seconds += n * 3 * 15 / 30 * 2.0
            else:
                seconds += n * (0.25 if variant.kind in ("head", "skip") else 2.0)
    assert kinds >= {"head", "skip", "weights"}
    found = pilot._hours(batch, of_pilot(2.0, 0.25))
    assert found == pytest.approx(seconds / 3600)


def test_a_map_takes_as_much_longer_than_planned_as_the_answers(monkeypatch):
    plain = parse(VALUES)
    whole = parse({**VALUES, "maps": {"math": {"model": "tiny", "questions": "test"}}})
    batch = pilot.piloted_batches(Store(whole))["tiny"]
    monkeypatch.setattr(pilot, "generation_seconds", lambda *_: 40.0)
    monkeypatch.setattr(pilot, "map_seconds", lambda *_: 10.0)
    trial = of_pilot(2.0, 0.25)._replace(start=0.0)
    hours = [pilot._hours(replace(batch, store=Store(each)), trial) for each in (plain, whole)]
    assert hours[1] == pytest.approx(hours[0] * (1 + 10 / 40))


@pytest.fixture
def gpu(pretended_gpu, monkeypatch):
    """A machine with a GPU, on which vLLM seems to be installed."""
    for module in (pilot, preflight):
        monkeypatch.setattr(module, "find_spec", lambda name: name)


CHECK = {"audited": 16, "worst": 0.02}


@pytest.mark.parametrize(
    ("seconds", "values", "chosen", "said"),
    [
        # Heads count: there are eight, which the engine verifies.
        (
            {"headsweep": (4.0, 1.0), "vllm": (2.0, 2.0)},
            {},
            "headsweep",
            "vllm: ",
        ),
        ({"headsweep": (4.0, 1.0), "vllm": (0.9, 0.9)}, {}, "vllm", "vllm: "),
        ({"headsweep": (4.0, 1.0)}, {}, "headsweep", "vllm: CUDA is too old"),
        ({"vllm": (9.0, 9.0)}, {}, "vllm", "headsweep: CUDA is too old"),
        (
            {"headsweep": (4.0, 1.0)},
            {"placebos": "noise"},
            "headsweep",
            "left out: vllm: it cannot answer all of the run",
        ),
    ],
)
def test_on_a_gpu_the_pilot_says_what_works_and_is_faster(
    config, gpu, monkeypatch, capsys, seconds, values, chosen, said
):
    tried = []

    def attempt(little, _):
        backend = little.config.models["tiny"].backend
        tried.append(backend)
        if backend not in seconds:
            raise EngineError(f"{backend}: CUDA is too old")
        return of_pilot(*seconds[backend], path="flash", check=CHECK)

    monkeypatch.setattr(pilot, "attempt", attempt)
    monkeypatch.setattr(pilot, "_rates", lambda *_: Rates(0.5, 0.1))
    asked = {**VALUES, "models": {"tiny": {**REASONER, "device": "auto"}}}
    asked["sweeps"] = {"math": {**VALUES["sweeps"]["math"], **values}}
    config.write_text(yaml.safe_dump(asked))
    assert cli.main(["pilot", str(config), "--cores", "1"]) == 0
    printed = capsys.readouterr().out
    assert said in printed
    assert tried == (["headsweep"] if values else ["headsweep", "vllm"])
    assert f"on cuda:0, path flash, check {CHECK}" in printed
    assert ("tiny: write backend: vllm into its section" in printed) == (chosen == "vllm")


def test_what_the_config_states_is_the_only_one_tried(config, gpu, monkeypatch):
    tried = []

    def attempt(little, _):
        tried.append(little.config.models["tiny"].backend)
        return of_pilot(1.0, 1.0)

    monkeypatch.setattr(pilot, "attempt", attempt)
    monkeypatch.setattr(pilot, "_rates", lambda *_: Rates(0.5, 0.1))
    model = {**REASONER, "device": "auto", "backend": "vllm"}
    asked = {**VALUES, "models": {"tiny": model}}
    config.write_text(yaml.safe_dump(asked))
    assert cli.main(["pilot", str(config)]) == 0
    assert tried == ["vllm"]


def test_where_nothing_answers_the_pilot_says_why(config, gpu, monkeypatch, capsys):
    def attempt(little, _):
        raise EngineError(f"{little.config.models['tiny'].backend}: no kernel image")

    monkeypatch.setattr(pilot, "attempt", attempt)
    values = {**VALUES, "models": {"tiny": {**REASONER, "device": "auto"}}}
    config.write_text(yaml.safe_dump(values))
    assert cli.main(["pilot", str(config)]) == 2
    (line,) = capsys.readouterr().err.strip().splitlines()[-1:]
    assert "headsweep: no kernel image; " in line and "vllm: no kernel image" in line


def test_a_config_without_heads_has_nothing_to_pilot(config, capsys):
    config.write_text(yaml.safe_dump({**VALUES, "sweeps": {}}))
    assert cli.main(["pilot", str(config)]) == 2
    assert "no model of this config answers greedily without heads" in capsys.readouterr().err


def test_heads_of_the_model_stand_for_families_without_any():
    frontier = {"model": "tiny", "train": "train", "test": "test", "families": ["skip", "scaled"]}
    frontier |= {"sampling": ["T0.6"], "layers": [2], "members": 1, "max_n": 1}
    questions = {"train": {**ONE, "split": "train"}, "test": ONE}
    config = parse(
        {**VALUES, "questions": questions, "sweeps": {}, "frontiers": {"families": frontier}}
    )
    batch = pilot.piloted_batches(Store(config))["tiny"]
    assert not [variant for variant in batch.variants if variant.kind == "head"]
    graded_otherwise = Store(config.model_copy(update={"grading": "authors"}))
    assert pilot.little_config(replace(batch, store=graded_otherwise)).grading == "authors"
    (little,) = batches(Store(pilot.little_config(batch))).values()
    assert [str(variant) for variant in little.variants] == ["base", "L00H00", "L05H03"]


def test_a_pilot_asks_no_more_questions_than_a_file_has_and_draws_them_without_clusters(tmp_path):
    rows = "".join(f"what is {number},{number}\n" for number in range(12))
    (tmp_path / "mine.csv").write_text(f"question,answer\n{rows}")
    mine = {"benchmark": "custom", "split": "test", "file": "mine.csv"}
    clustered = {"n": 11, "sampling": "clusters", "clusters": 5, "embedder": "phi"}
    for drawn, count in (({}, 12), (clustered, 11)):
        values = {"questions": {"test": mine | drawn}, "embedders": {"phi": {"model": "tiny"}}}
        config = parse(VALUES | values)
        little = pilot.little_config(pilot.piloted_batches(Store(config))["tiny"])
        asked = parse(little.model_dump(mode="json")).questions["test"]
        assert (asked.n, asked.sampling, asked.embedder) == (count, "first", None)


def test_a_pilot_asks_of_every_stratum_where_the_config_does():
    drawn = {"benchmark": "math500", "split": "test", "n": 60, "sampling": "stratified"}
    config = parse(VALUES | {"questions": {"test": drawn}})
    little = pilot.little_config(pilot.piloted_batches(Store(config))["tiny"])
    assert (little.questions["test"].n, little.questions["test"].sampling) == (20, "stratified")


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
