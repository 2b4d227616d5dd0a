"""The jobs of a compression, one after the other, on word problems and a decoder."""

import json
import os
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from headroom import paths
from headroom.athena.problems import read_data, read_parts
from headroom.benchmarks.generated import corpus
from headroom.compression import arm_jobs, arm_measurements, arm_tables
from headroom.config import Config, parse
from headroom.generation import prepare
from headroom.planning.batches import Arm, all_arms, arms
from headroom.planning.store import Store, data_key, key
from headroom.reasoner.training import Settings, new_model, train_tokenizer
from headroom.record import read_record
from headroom.tables import ANSWERS, OUTCOMES, QUESTIONS, read_table, write_table

SEED = 3
TRAINING = {"epochs": 2, "batch_size": 11}
METHOD = {"ratio": 0.4, "rounds": 2, "training": TRAINING}
MEASURED = {"seeds": [SEED], "tokens": [9], "batches": [1, 3], "repeats": 2}
QUESTIONS_OF = {"benchmark": "generated_math", "sampling": "first"}
VALUES: dict[str, Any] = {
    "run": "jobs",
    "problems": {"words": {"dataset": "generated", "n": 42, "partition": {"ratios": [4, 1, 1]}}},
    "solvers": {
        "small": {
            "profile": "fixture",
            "encoder": {"width": 24, "intermediate": 20, "heads": 3},
            "training": TRAINING,
        }
    },
    "models": {
        "decoder": {
            "source": "./decoder",
            "layers": 2,
            "heads": 6,
            "kv_heads": 3,
            "billions": 0.0001,
            "dtype": "float32",
            "device": "cpu",
        }
    },
    "questions": {
        "train": {**QUESTIONS_OF, "split": "train", "n": 13},
        "test": {**QUESTIONS_OF, "split": "test", "n": 7},
    },
    "decodings": {"greedy": {"max_new_tokens": 4}},
    "compressions": {
        "words": {
            **MEASURED,
            "solver": "small",
            "data": "words",
            "method": METHOD,
            "arms": ["baseline", "small_from_scratch"],
            "int8": ["baseline"],
        },
        "decoder": {
            **MEASURED,
            "model": "decoder",
            "train": "train",
            "test": "test",
            "method": {**METHOD, "importance": {"criterion": "causal"}},
            "arms": ["baseline", "full"],
            "variations": {"mixed": {"importance": {"criterion": "mixed"}}},
            "measured": ["baseline", "full"],
        },
    },
}


@pytest.fixture(scope="module")
def config() -> Config:
    return parse(VALUES)


@pytest.fixture(scope="module", autouse=True)
def done(config: Config, tmp_path_factory: pytest.TempPathFactory) -> Any:
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(tmp_path_factory.mktemp("jobs"))
        # A process of its own measures it: see test_footprint.
        patch.setattr(arm_measurements, "peak_bytes", lambda folders, *_: [7] * len(folders))
        read_data(config, data_key(config, "words"))
        prepare_decoder(config)
        for arm in sorted(all_arms(config).values(), key=lambda arm: arm.settings.scratch):
            keys = arm.wildcards
            teacher = Path(arm.file(paths.TEACHER, SEED))
            if arm.study.model is None and not teacher.exists():
                arm_jobs.train_teacher(config, keys["subject"], keys["data"], SEED)
            arm_jobs.compress_arm(config, **keys, seed=SEED)
        arm_jobs.quantise(config, **arms(config, "words")[0].wildcards, seed=SEED)
        for name in config.compressions:
            arm_tables.gather(config, name)
            arm_measurements.measure(config, name)
        yield


def prepare_decoder(config: Config) -> None:
    """Make a model that knows nothing, and write down what it would know after years.

    Heads 1 of layer 0 and 4 of layer 1 do without: they answer wrong where they are removed.
    """
    shape = Settings(
        layers=2, hidden=20, query_heads=6, kv_heads=3, head_dim=10, intermediate=28, vocabulary=300
    )
    tokenizer = train_tokenizer((text for one in corpus(60, 1) for text in one[:2]), 300)
    for part in (new_model(shape, tokenizer), tokenizer):
        part.save_pretrained("decoder")
    prepare.prepare_model(config, "decoder")
    for name in config.questions:
        prepare.read_source(config, name)
        prepare.draw_questions(config, name)
    file = paths.QUESTIONS.format(questions=key(config, "questions", "train"))
    questions = read_table(Path(file), QUESTIONS)
    full = by_name(config, "decoder")["full"]
    batch = full.answered(config)
    for variant, output in zip(batch.variants, Store(config).answers(batch), strict=True):
        wrong = str(variant) not in ("base", "L00H01", "L00H00")
        table = questions[["question_id"]].assign(
            sample=0,
            token_ids=[[5, 6, 7]] * len(questions),
            text=[rf"\boxed{{{'no' if wrong else answer}}}" for answer in questions["answer"]],
            stop_reason="eos",
            margin=1.0,
        )
        write_table(Path(output), table, ANSWERS)


def by_name(config: Config, compression: str) -> dict[str, Arm]:
    return {arm.name: arm for arm in arms(config, compression)}


def history(arm: Arm) -> dict[str, Any]:
    return json.loads(Path(arm.file(paths.HISTORY, SEED)).read_text())


def removed(arm: Arm) -> list[str]:
    removals = [one for each in history(arm)["rounds"] for one in each["removals"]]
    return [head for one in removals for head in one["heads"]]


def test_outcomes_are_of_the_test_part_and_gathered_in_the_arms_order(config):
    sizes = {"words": len(read_parts(data_key(config, "words")).test), "decoder": 7}
    for compression, size in sizes.items():
        for arm in arms(config, compression):
            file = Path(arm.file(paths.OUTCOMES, SEED))
            rows = read_table(file, OUTCOMES)
            assert len(rows) == size
            assert not rows["quantised"].any()
            assert read_record(file)["strict"] == rows["strict"].mean()
    rows = pd.read_parquet(paths.STUDY_OUTCOMES.format(run="jobs", compression="words"))
    pairs = list(dict.fromkeys(zip(rows["arm"], rows["quantised"], strict=True)))
    assert pairs == [("baseline", False), ("baseline", True), ("small_from_scratch", False)]
    assert set(rows["seed"]) == {SEED}
    file = paths.HISTORIES.format(run="jobs", compression="decoder")
    histories = json.loads(Path(file).read_text())
    assert list(histories) == ["baseline", "full", "mixed"]
    assert list(histories["full"]) == [str(SEED)]


def test_an_arm_from_scratch_has_the_heads_that_full_kept(config):
    scratch = by_name(config, "words")["small_from_scratch"]
    full = scratch.layout()
    assert full is not None
    assert len(removed(full)) == 2
    assert removed(scratch) == []
    assert history(scratch)["rounds"][-1]["heads"] == history(full)["rounds"][-1]["heads"] == 4
    assert len(history(scratch)["rounds"][0]["epochs"]) == 4  # of solver and method


def test_a_model_learns_its_own_right_answers_without_the_heads_that_they_do_without(config):
    full = by_name(config, "decoder")["full"]
    assert removed(full)[:2] == ["L00H00", "L00H01"]
    own = history(full)
    assert own["dev_strict"] is None
    assert own["tokens"] > 2 * 13 * 3
    assert own["heads"] - own["rounds"][-1]["heads"] == 4
    assert not Path("results/store/.journal").exists()


def test_measurements_are_of_the_models_that_were_left(config):
    rows = pd.read_csv(paths.MEASUREMENTS.format(run="jobs", compression="decoder"))
    assert rows["arm"].unique().tolist() == ["baseline", "full"]
    assert rows["batch"].tolist() == [1, 3, 1, 3]
    assert rows["heads"].tolist() == [12, 12, 8, 8]
    gone = 2 * (20 * 21 + 2 * 10 * 21 + 20 * 20)  # two groups: queries, keys and values, output
    assert rows["tokens_per_second"].gt(0).all()
    # Two of six key/value heads of two layers are gone.
    assert rows.drop_duplicates("arm")["cache_bytes"].tolist() == [2 * 6 * 40, 2 * 4 * 40]
    base, full = rows.drop_duplicates("arm")["parameters"]
    assert base - full == gone
    times = rows.dropna(subset="test_time").set_index("arm")
    assert times["batch"].tolist() == [3, 3]
    assert times.loc["baseline", "test_time":"test_time_high"].tolist() == [1, 1, 1]
    ratio = times.loc["full", "end_to_end_seconds"] / times.loc["baseline", "end_to_end_seconds"]
    assert times.loc["full", "test_time"] == pytest.approx(ratio, rel=1e-4)
    assert times.loc["full", "test_time_low"] < ratio < times.loc["full", "test_time_high"]
    rows = pd.read_csv(paths.MEASUREMENTS.format(run="jobs", compression="words"))
    assert rows[["tokens_per_second", "cache_bytes"]].isna().all(axis=None)
    bits = rows[rows["arm"] == "baseline"].drop_duplicates("quantised").set_index("quantised")
    assert bits.loc[True, "weight_bytes"] < bits.loc[False, "weight_bytes"]
    assert bits.loc[True, "parameters"] == bits.loc[False, "parameters"]


def test_seconds_are_those_of_all_attempts(tmp_path):
    journal, file = tmp_path / "journal", tmp_path / "journal/attempts.json"
    assert arm_jobs.earlier_seconds(journal) == 0
    for checkpoint, expected in ((70, 70), (30, 100)):  # seconds after the attempt began
        begun = json.loads(file.read_text())["begun"]
        (journal / "training_0.safetensors").touch()
        for each in journal.iterdir():
            os.utime(each, (begun + checkpoint, begun + checkpoint))
        assert arm_jobs.earlier_seconds(journal) == pytest.approx(expected, abs=0.1)
