"""What a pilot's rates foretell, and what it decides for a run."""

import pytest
import yaml

from example_config import VALUES, changed, config
from headsweep.config import parse
from headsweep.errors import ConfigError, TableError
from headsweep.planning import cards
from headsweep.planning.batches import PlannedBatch
from headsweep.planning.forecast import _JOB_SECONDS, Habits, Software, Speed, model_seconds
from headsweep.planning.pilot_settings import settings_file, unpiloted, write_settings
from headsweep.planning.revisions import resolve
from headsweep.planning.rows_at_once import questions_of_unit
from headsweep.record import Stopwatch
from headsweep.variants import Variant
from mini import REASONER

SPEED = Speed(rows=16, prefill=1000.0, decode=40.0, narrow=5.0)
HABITS = Habits(prompt=30.0, length=24.0, longest=64.0, verified=0.75)


def test_a_step_s_fixed_part_is_what_one_row_takes_beyond_a_row_of_many():
    # 16 rows: 0.4 s; one row: 0.2 s; so a row takes 0.2 / 15 s.
    assert SPEED.fixed == pytest.approx(0.2 - 0.2 / 15)
    assert SPEED._replace(rows=1).fixed == 0.0
    assert SPEED._replace(narrow=1e9).fixed == 0.0  # a row of many takes longer than one alone


def test_a_unit_of_work_is_half_of_what_is_left_for_each_worker_and_64_questions_at_least():
    assert [questions_of_unit(left, 2) for left in (500, 375, 200, 128, 64, 3, 1)] == [
        125,
        94,
        64,
        64,
        32,
        2,
        1,
    ]
    assert questions_of_unit(70, 1) == 64


def test_seconds_are_prompts_and_decoding_less_what_is_verified_and_the_end_of_each_unit():
    shape = {"layers": 28, "heads": 12, "kv_heads": 2}
    planned = config(models={"big": shape}, questions={"test": {"n": 7}})
    like = PlannedBatch("big", "greedy", "test", (Variant.parse("base"),))
    software = Software(SPEED, 2)

    def seconds(*variants, software=software):
        batch = PlannedBatch("big", "greedy", "test", tuple(map(Variant.parse, variants)))
        jobs = len(variants) * _JOB_SECONDS / software.workers
        return model_seconds(planned, like, [batch], HABITS, software) - jobs

    # Units of 4, 2, 1 questions; each ends with 64 - 24 steps of few rows.
    dry = 3 * (64 - 24) * SPEED.fixed / 2
    base = 7 * (30 / 1000 + 24 / 40) / 2
    assert seconds("base") == pytest.approx(base + dry)
    # Three quarters are verified above the layer, of 28; a quarter is decoded.
    head = 7 * ((30 + 18) * (1 - 7 / 28) / 1000 + 6 / 40) / 2
    assert seconds("base", "L07H03") == pytest.approx(base + head + dry)
    assert seconds("base", "placebo01") == pytest.approx(2 * base + dry)
    alone = Software(SPEED, 2, verifies=False)
    assert seconds("base", "L07H03", software=alone) == pytest.approx(2 * base + dry)


def test_samples_share_a_prompt_and_other_benchmarks_answers_are_as_much_longer_as_planned():
    values = changed(VALUES, "questions/other", {"benchmark": "gsm8k", "split": "test", "n": 5})
    planned = parse(changed(values, "decodings/greedy/max_new_tokens", 2048))
    like = PlannedBatch("big", "greedy", "test", (Variant.parse("base"),))
    software = Software(SPEED, 1)
    other = PlannedBatch("big", "greedy", "other", like.variants)
    assert planned.questions["test"].benchmark == "math500"
    length, longest = 24 * 300 / 550, 64 * 300 / 550
    assert questions_of_unit(5, 1) == 5  # one unit
    expected = 5 * (30 / 1000 + length / 40) + (longest - length) * SPEED.fixed + _JOB_SECONDS
    assert model_seconds(planned, like, [other], HABITS, software) == pytest.approx(expected)
    sampled = planned.decodings["T0.6"]
    drawn = PlannedBatch("big", "T0.6", "other", like.variants)
    seconds = model_seconds(planned, like, [drawn], HABITS, software)
    short = min(length, sampled.max_new_tokens)
    assert sampled.samples > 1
    tokens = sampled.samples * short
    dry = (min(longest, sampled.max_new_tokens) - short) * SPEED.fixed
    assert seconds == pytest.approx(5 * (30 / 1000 + tokens / 40) + dry + _JOB_SECONDS)


@pytest.fixture
def gpu(pretended_gpu, tmp_path, monkeypatch):
    """A machine with a GPU, in a folder of its own; what tells its card."""
    monkeypatch.chdir(tmp_path)
    return pretended_gpu


def of_tiny(**model):
    return resolve(parse(changed(MINE, "models/tiny", {**REASONER, "device": "auto", **model})))


MINE = yaml.safe_load(
    """
    run: mine
    models: {tiny: {}}
    questions: {test: {benchmark: generated_math, split: test, n: 60}}
    decodings: {greedy: {max_new_tokens: 30}}
    sweeps: {math: {model: tiny, questions: test, layers: [1, 4]}}
    """
)


def test_a_run_takes_what_its_pilot_chose_unless_the_config_states_it_or_has_another_model(gpu):
    before = of_tiny()
    write_settings(before, {"tiny": {"backend": "vllm", "graphs": "auto"}}, Stopwatch())
    after = of_tiny()
    assert before.models["tiny"].backend == "headsweep"
    assert after.models["tiny"].backend == "vllm"
    assert (before.models["tiny"].graphs, after.models["tiny"].graphs) == ("off", "auto")
    assert of_tiny(graphs="off").models["tiny"].graphs == "off"
    assert resolve(after) == after
    assert of_tiny(backend="headsweep").models["tiny"].backend == "headsweep"
    assert of_tiny(dtype="bfloat16").models["tiny"].backend == "headsweep"
    write_settings(after, {"tiny": {"backend": "headsweep"}}, Stopwatch())  # a second pilot
    assert of_tiny().models["tiny"].backend == "headsweep"
    file = settings_file(before)
    file.write_text(file.read_text().replace("headsweep", "vllm"))
    with pytest.raises(TableError):
        of_tiny()


def test_a_run_on_a_gpu_without_a_pilot_says_so_in_one_line(gpu):
    planned = of_tiny()
    (line,) = unpiloted(planned)
    assert line.startswith("no pilot of run 'mine' has tried tiny on Card X: `headsweep pilot")
    assert [*unpiloted(of_tiny(device="cpu"))] == []
    write_settings(planned, {"tiny": {"backend": "headsweep"}}, Stopwatch())
    assert [*unpiloted(of_tiny())] == []
    assert len([*unpiloted(of_tiny(dtype="bfloat16"))]) == 1
    gpu.write_text("#!/bin/sh\necho Card Y\n")
    (line,) = unpiloted(planned)
    assert "on Card Y" in line
    assert [*unpiloted(planned, local=False)] == []  # which card a cluster gives is not known here


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
def test_gpus_are_those_that_cuda_may_see(visible, seen, gpu, monkeypatch):
    (cards._DEVICES / "nvidia1").touch()
    assert cards.gpu_count() == 2
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)
    assert cards.gpu_count() == seen


def test_without_a_gpu_nothing_is_said_but_of_a_cluster_s(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(cards, "_DEVICES", tmp_path)
    planned = of_tiny()
    assert [*unpiloted(planned)] == []
    (line,) = unpiloted(planned, local=False)
    assert "has tried tiny on its GPUs" in line


def test_what_a_pilot_chose_is_checked_against_the_config_of_today(gpu):
    write_settings(of_tiny(), {"tiny": {"backend": "vllm"}}, Stopwatch())
    placebos = changed(MINE, "models/tiny", {**REASONER, "device": "auto"})
    placebos = parse(changed(placebos, "sweeps/math/placebos", "noise"))
    said = r"^results/mine/pilot\.json has models\.tiny\.backend: vllm; .*: sweeps\.math\.placebos"
    with pytest.raises(ConfigError, match=said):
        resolve(placebos)
