"""The jobs of a compression, one after the other, on a decoder.

Those of a solver: `tests/workflow/test_compression.py`.
"""

import json
import os
from dataclasses import replace
from pathlib import Path

import pandas as pd
import pytest
import yaml
from small import save_decoder

from damage import damaged
from headsweep.answers import prepare
from headsweep.config import parse
from headsweep.errors import BenchmarkError, HeadsweepError, ModelError, TableError
from headsweep.experiments.athena.generated import generate
from headsweep.experiments.athena.problems import divide
from headsweep.experiments.compression import arm_jobs, arm_measurements
from headsweep.files import paths
from headsweep.files.record import read_record
from headsweep.files.safe_files import read_table, write_table
from headsweep.files.tables import ANSWERS, OUTCOMES, QUESTIONS, STUDY_OUTCOMES
from headsweep.results import jobs
from headsweep.store.batches import arms, solvers
from headsweep.store.layout import Store

SEED = 3
CONFIG = parse(
    yaml.safe_load(
        """
        run: jobs
        models: {decoder: {source: ./decoder, layers: 2, heads: 6, kv_heads: 3, billions: 0.0001,
                           dtype: float32, device: cpu}}
        questions:
          train: &own {benchmark: generated_math, sampling: first, split: train, n: 13}
          test: {<<: *own, split: test, n: 7}
        decodings: {greedy: {max_new_tokens: 4}}
        compressions:
          own:
            {model: decoder, train: train, test: test, seeds: [3], tokens: [9], batches: [1, 3],
             repeats: 2, arms: [baseline, full], measured: [baseline, full], int8: [full],
             method: {ratio: 0.4, rounds: 2, importance: {criterion: causal},
                      training: {epochs: 2, batch_size: 11}},
             variations: {mixed: {importance: {criterion: mixed}}}}
        """
    )
)
FULL = arms(CONFIG, "own")[1]


@pytest.fixture(scope="module", autouse=True)
def done(tmp_path_factory):
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(tmp_path_factory.mktemp("jobs"))
        prepare_decoder()
        for arm in arms(CONFIG, "own"):
            arm_jobs.compress_arm(Store(CONFIG), **arm.wildcards, seed=SEED)
        arm_jobs.quantise(Store(CONFIG), **FULL.wildcards, seed=SEED)
        jobs.gather(Store(CONFIG), "own")
        patch.setattr(arm_measurements, "_MORE_SECONDS", 0.5)
        arm_measurements.measure(Store(CONFIG), "own")
        yield


def prepare_decoder():
    """Write down what it would know after years; the first two heads make no difference."""
    save_decoder(Path("decoder"))
    prepare.prepare_model(Store(CONFIG), "decoder")
    for name in CONFIG.questions:
        prepare.store_split(Store(CONFIG), name)
        prepare.draw_questions(Store(CONFIG), name)
    questions = read_table(Store(CONFIG).path(QUESTIONS, questions="train"), QUESTIONS)
    batch = FULL.answered(Store(CONFIG))
    for variant, output in zip(batch.variants, batch.answers, strict=True):
        wrong = str(variant) not in ("base", "L00H01", "L00H00")
        table = questions[["question_id"]].assign(
            sample=0,
            token_ids=[[5, 6, 7]] * len(questions),
            text=[rf"\boxed{{{'no' if wrong else answer}}}" for answer in questions["answer"]],
            stop_reason="eos",
            margin=1.0,
        )
        write_table(Path(output), table, ANSWERS)


def test_outcomes_are_of_the_test_part_and_gathered_in_the_arms_order():
    for arm in arms(CONFIG, "own"):
        file = Path(arm.file(OUTCOMES.path, SEED))
        rows = read_table(file, OUTCOMES)
        assert len(rows) == 7 and not rows["quantised"].any()
        assert read_record(file)["strict"] == rows["strict"].mean()
    rows = pd.read_parquet(STUDY_OUTCOMES.path.format(run="jobs", compression="own"))
    pairs = list(dict.fromkeys(zip(rows["arm"], rows["quantised"], strict=True)))
    assert pairs == [("baseline", False), ("full", False), ("full", True), ("mixed", False)]
    assert set(rows["seed"]) == {SEED}
    file = Path(paths.HISTORIES.format(run="jobs", compression="own"))
    seeds = [(name, *runs) for name, runs in json.loads(file.read_text()).items()]
    assert seeds == [(name, str(SEED)) for name in ("baseline", "full", "mixed")]


def test_a_model_learns_its_own_right_answers_without_the_heads_that_they_do_without():
    own = json.loads(Path(FULL.file(paths.HISTORY, SEED)).read_text())
    assert own["rounds"][0]["removals"][0]["heads"] == ["L00H00", "L00H01"]
    assert own["dev_strict"] is None
    assert own["tokens"] > 2 * 13 * 3
    assert own["heads"] - own["rounds"][-1]["heads"] == 4
    assert not Path("results/store/.journal").exists()


def test_measurements_are_of_the_models_that_were_left():
    rows = pd.read_csv(paths.MEASUREMENTS.format(run="jobs", compression="own"))
    assert rows["arm"].tolist() == ["baseline"] * 2 + ["full"] * 4
    assert rows["batch"].tolist() == [1, 3] * 3
    assert rows["heads"].tolist() == [12] * 2 + [8] * 4
    # Two of six key/value heads of two layers are gone.
    assert rows["cache_bytes"].tolist() == [2 * 6 * 40] * 2 + [2 * 4 * 40] * 4
    base, full, quantised = rows["parameters"].iloc[::2]
    gone = 2 * (20 * 21 + 2 * 10 * 21 + 20 * 20)  # two groups: queries, keys and values, output
    assert base - full == gone and quantised == full
    assert rows["weight_bytes"].iloc[::2].is_monotonic_decreasing
    times = rows.dropna(subset="test_time").set_index(["arm", "quantised"])
    held = times["peak_bytes"] - times["weight_bytes"]  # what a pass holds beside the weights
    assert 0 < held["full", False] <= held["baseline", False]
    assert times["batch"].tolist() == [3, 3, 3]
    seconds, ratio = times["end_to_end_seconds"], times["test_time"]
    assert ratio.tolist() == pytest.approx((seconds / seconds.iloc[0]).tolist(), rel=1e-4)
    for inside in (times["test_time_low"] < ratio, ratio < times["test_time_high"]):
        assert inside.tolist() == [False, True, True]


def test_a_test_question_too_long_for_the_model_is_refused_before_the_first_step(monkeypatch):
    monkeypatch.setattr(arm_jobs, "compress", None)  # which is called at the first step
    file = Store(CONFIG).path(QUESTIONS, questions="test")
    questions = read_table(file, QUESTIONS)
    long = questions.assign(question=[*questions["question"][:5], *["one " * 3000] * 2])
    monkeypatch.setattr(
        arm_jobs,
        "read_table",
        lambda path, table: long if path == file else read_table(path, table),
    )
    named = ", ".join(questions["question_id"][5:])
    with pytest.raises(ModelError, match=f"prompts of 2 questions have .* or more, .*: {named};"):
        arm_jobs.compress_arm(Store(CONFIG), **FULL.wildcards, seed=SEED)


SOLVED = parse(
    yaml.safe_load(
        """
        run: solved
        problems: {made: {dataset: generated, n: 84}}
        solvers: {small: {profile: fixture, encoder: {width: 24, intermediate: 20, heads: 3}}}
        compressions: {made: {solver: small, data: made}}
        """
    )
)


def test_a_test_problem_too_long_for_a_solver_is_refused_before_its_training(monkeypatch):
    monkeypatch.setattr(arm_jobs, "train", None)
    parts = divide(generate(84, seed=0), SOLVED.problems["made"].partition)
    long = [replace(one, text=f"{'one ' * 2000}{one.text}") for one in parts.test[:2]]
    monkeypatch.setattr(arm_jobs, "read_parts", lambda _: parts._replace(test=[*parts.test, *long]))
    ((solver, data),) = solvers(SOLVED)
    with pytest.raises(BenchmarkError, match=rf"^2 problems .*{long[0].problem_id}: 20.. tokens"):
        arm_jobs.train_teacher(Store(SOLVED), solver, data, SEED)


def learner():
    return arm_jobs.learner_of(Store(CONFIG), FULL, SEED)


READ = {
    paths.HISTORY: [learner, lambda: jobs.gather(Store(CONFIG), "own")],
    OUTCOMES.path: [lambda: jobs.gather(Store(CONFIG), "own")],
    f"{paths.COMPRESSED}/model.safetensors": [learner],
    f"{paths.COMPRESSED}/config.json": [learner],
    f"{paths.COMPRESSED}/tokenizer.json": [learner],
    f"{paths.HISTORY}.run.json": [learner, lambda: jobs.gather(Store(CONFIG), "own")],
}


@pytest.mark.parametrize("template", READ)
def test_a_damaged_file_of_an_arm_is_refused(template):
    file = Path(FULL.file(template, SEED))
    for read in READ[template]:
        with damaged(file), pytest.raises(HeadsweepError, match="remove") as error:
            read()
        assert file.name in str(error.value)


def test_damaged_notes_of_attempts_are_refused(tmp_path):
    arm_jobs.begin_attempt(tmp_path)
    with damaged(tmp_path / "attempts.json"), pytest.raises(TableError, match="remove it and run"):
        arm_jobs.begin_attempt(tmp_path)


def test_seconds_are_those_of_all_attempts(tmp_path):
    journal, file = tmp_path / "journal", tmp_path / "journal/attempts.json"
    assert arm_jobs.begin_attempt(journal) == 0
    for checkpoint, expected in ((70, 70), (30, 100)):  # seconds after the attempt began
        begun = json.loads(file.read_text())["begun"]
        (journal / "training_0.safetensors").touch()
        for each in journal.iterdir():
            os.utime(each, (begun + checkpoint, begun + checkpoint))
        assert arm_jobs.begin_attempt(journal) == pytest.approx(expected, abs=0.1)
