from math import ceil
from types import SimpleNamespace

import pytest

from batch_of import batch_of
from example_config import STUDIES, VALUES, changed, config
from headsweep.answers.schedule import questions_of_unit
from headsweep.config import Questions, parse
from headsweep.config.compression import Importance
from headsweep.engine.sizing import cpu_memory
from headsweep.engine.weights import _COPIED_SHARE
from headsweep.machine import processors
from headsweep.machine.host import host_cores
from headsweep.models import footprint
from headsweep.statistics.power import questions_for, smallest_gain
from headsweep.store.batches import Batch, arms, batches, family_members, placebos
from headsweep.store.layout import Store
from headsweep.store.map_scores import texts_key
from headsweep.variants import BASE
from headsweep.workflow import cost, resources
from headsweep.workflow.detectable_gain import Rates, detectable_gains, leaves_room
from headsweep.workflow.memory import training_memory
from headsweep.workflow.plan import describe
from headsweep.workflow.resources import Resources
from headsweep.workflow.wildcards import WildcardLookup

ARMS = ("baseline", "full")


def asked(planned, kind, **wildcards):
    """Return the GPUs, megabytes and minutes that a job requests at its first attempt."""
    wanted = SimpleNamespace(**wildcards)
    functions = getattr(Resources(WildcardLookup(Store(planned)), 1, local=False), kind)
    return functions["gpu"](wanted), functions["mem_mb"](wanted, 1), functions["runtime"](wanted, 1)


def asked_to_generate(planned):
    """Return what a job requests that needs the model of the config's first batch."""
    return asked(planned, "generation", **next(iter(batches(Store(planned))))._asdict())


def asked_to_score(planned, name):
    """Return what a job requests that scores the texts of a map."""
    return asked(planned, "scoring", texts=texts_key(planned, name))


SEVENTY = {"billions": 70.0, "layers": 80, "heads": 64, "kv_heads": 8}


@pytest.mark.parametrize(
    ("spread", "gpus"),
    [({"device": "balanced"}, 3), ({"backend": "vllm", "tensor_parallel": 4}, 4)],
)
def test_a_model_that_cards_share_is_planned_on_all_of_them(spread, gpus):
    mapped = {"model": "big", "questions": "train", "layers": [0]}
    planned = config(
        models={"big": SEVENTY | spread},
        maps={"solutions": mapped},
        selectors={"math": {"layers": [0]}},
    )
    assert asked_to_generate(planned)[0] == asked_to_score(planned, "solutions")[0] == gpus
    assert f"Weights of big: 140.0 GB on {gpus} GPUs" in describe(Store(planned)).splitlines()


@pytest.mark.parametrize("billions", [0.1, 1.5, 70.0])
def test_a_cpu_s_job_asks_for_what_the_engine_s_shares_of_the_memory_need(billions):
    half, single = (
        config(models={"big": {"billions": billions, "device": "cpu", "dtype": dtype}}).models[
            "big"
        ]
        for dtype in ("bfloat16", "float32")
    )
    copied = 4 * billions  # GB in float32
    assert copied < _COPIED_SHARE * footprint.host_megabytes(half) / 1e3
    megabytes = footprint.host_megabytes(single)
    assert 1e3 * 2 * copied + cpu_memory(megabytes, 1) < megabytes


@pytest.mark.parametrize(
    ("device", "dtype", "megabytes"),
    [
        ("auto", None, 4000 + 2500 * 3),
        ("auto", "float32", 4000 + 2500 * 6),
        ("cpu", None, 4000 + 6000 * 3),  # with a copy in float32
        ("cpu", "float32", 4000 + 2700 * 6),
    ],
)
def test_a_map_s_jobs_ask_for_memory_of_the_dtype_in_which_they_score(device, dtype, megabytes):
    mapped = {"model": "big", "questions": "train", "dtype": dtype}
    planned = config(models={"big": {"device": device}}, maps={"solutions": mapped})
    assert asked_to_score(planned, "solutions")[1] == megabytes
    if dtype is None:
        assert asked_to_generate(planned)[1] == megabytes


@pytest.mark.parametrize(
    ("cores", "gigabytes", "gpus", "threads"),
    [(2, 24, 0, 2), (2, 48, 0, 1), (8, 24, 0, 8), (8, 48, 0, 4), (64, 200, 0, 6), (8, 24, 1, 1)],
)
def test_scorings_here_share_the_cores_as_the_memory_holds_their_models(
    cores, gigabytes, gpus, threads, monkeypatch
):
    monkeypatch.setattr(processors, "gpu_count", lambda: gpus)
    monkeypatch.setattr(resources, "host_memory", lambda: gigabytes * 10**9)
    mapped = {"model": "big", "questions": "train", "dtype": "float32"}
    planned = config(
        models={"big": {"billions": 1.8, "device": "auto"}}, maps={"solutions": mapped}
    )
    # 2.7 times 7.2 GB: 1, 2 or 10 of them.
    own = SimpleNamespace(texts=texts_key(planned, "solutions"))
    for local, expected in ((True, threads), (False, 1)):
        found = Resources(WildcardLookup(Store(planned)), cores, local=local)
        assert found.scoring_threads(own) == expected


def test_a_map_s_jobs_ask_for_the_time_of_the_layer_that_takes_longest():
    mapped = {"maps": {"solutions": {"model": "big", "questions": "train"}}}
    mapped["sweeps"] = {"table": {"heads": "all"}}
    whole = config(models={"big": {"billions": 70.0}}, **mapped)
    counts = {"layers": 28, "layer_heads": [1, *[12] * 27]}
    narrow = config(models={"big": {"billions": 70.0, **counts}}, **mapped)
    longest = cost.scoring_seconds(narrow, "solutions", 1, processors.GPU)
    minutes = asked_to_score(narrow, "solutions")[2]
    assert minutes == ceil(5 + 2 * longest / 60)
    assert minutes < asked_to_score(whole, "solutions")[2]


def test_an_arm_s_time_counts_its_test_and_its_scoring():
    planned = config(compressions={"own": {"model": "big", "train": "train", "test": "test"}})
    study, card = planned.compressions["own"], processors.GPU
    base = Batch(Store(planned), "big", "greedy", "test")
    test = cost.generation_seconds(base, card)
    baseline, pruned, full = (
        cost.training_seconds(planned, study, study.settings[name], card) for name in study.arms
    )
    assert baseline == test > 0
    assert pruned == full
    unscored = study.method.model_copy(update={"ratio": 0.0})
    scored = full - cost.training_seconds(planned, study, unscored, card)
    # Four rounds; a pass takes two operations a weight and token.
    # A text has 120 tokens of a prompt and 550 of an answer, cut at the decoding's 64.
    tokens = 50 * (120 + 64)
    assert scored == pytest.approx(4 * 2 * 1.5e9 * tokens / card.training)
    of_arms = {arm.name: {**arm.wildcards, "seed": "0"} for arm in arms(planned, "own")}
    minutes = [asked(planned, "training", **of_arms[name])[2] for name in ARMS]
    assert 10 < minutes[0] < minutes[1]
    # All tests, five times.
    assert asked(planned, "training", compression="own")[2] > minutes[0]
    # 8-bit weights run on a CPU, where the same test takes far longer.
    gpus, megabytes, quantised = asked(planned, "quantisation", **of_arms["full"])
    assert (gpus, megabytes) == (0, 8000 + 30 * 1500) and quantised > 10 * minutes[0]
    seconds = cost.arm_test_seconds(planned, study, processors.CORE)
    of_threads = Resources(WildcardLookup(Store(planned)), 1, local=False).quantisation["runtime"]
    for threads in (1, 3):
        expected = 2 * ceil(10 + 2 * seconds / threads / 60)
        assert of_threads(SimpleNamespace(**of_arms["full"]), 2, threads) == expected


@pytest.mark.parametrize(("changes", "scorings"), [({}, 4), ({"scratch": True}, 0)])
def test_heads_are_scored_in_each_round(changes, scorings):
    planned = parse(changed(STUDIES, "compressions/fetched/arms", ["full"]))
    study, card = planned.compressions["fetched"], processors.GPU
    some, more = (
        study.method.model_copy(
            update={**changes, "importance": Importance(criterion="attention", calibration=count)}
        )
        for count in (10, 20)
    )
    difference = cost.training_seconds(planned, study, more, card)
    difference -= cost.training_seconds(planned, study, some, card)
    assert difference == pytest.approx(scorings * 10 * cost._text_seconds(planned, study, card))


def test_a_model_trains_on_prompts_with_answers_and_a_solver_on_word_problems():
    values = changed(STUDIES, "decodings/greedy/max_new_tokens", 2048)
    values = changed(values, "compressions/fetched/arms", ["baseline", "full"])
    planned = parse(values)
    own, fetched = planned.compressions["own"], planned.compressions["fetched"]
    epochs = sum(arm.training.epochs for arm in own.settings.values() if arm.rounds)
    tokens = cost.training_cost(planned, "own").tokens
    assert tokens == len(own.seeds) * epochs * 50 * (120 + 550) > 0
    epochs = planned.solvers["base"].training.epochs + fetched.settings["full"].training.epochs
    tokens = cost.training_cost(planned, "fetched").tokens
    assert tokens == len(fetched.seeds) * epochs * 90 * 35


def test_the_plan_says_what_weights_and_scoring_take():
    own = {"model": "big", "train": "train", "test": "test"}
    studies = {"own": own, "few": own | {"method": {"importance": {"batch_size": 3}}}}
    models = {"big": {"billions": 30.0}}
    lines = describe(Store(config(models=models, compressions=studies))).splitlines()
    assert "Weights of big: 60.0 GB" in lines
    # Weights, three maps of 12 heads and six states of 12 heads of 128, for 120 + 64 tokens.
    scoring = [line for line in lines if line.startswith("Scoring")]
    for line, name, rows in zip(scoring, studies, (16, 3), strict=True):
        maps, states = 3 * rows * 12 * 184**2, 6 * rows * 184 * 12 * 128
        gigabytes = 4e-9 * (30e9 + maps + states)
        assert line.startswith(f"Scoring the heads of {name}: at most {gigabytes:.1f} GB")
        assert f"{rows} texts of 184 tokens" in line


def test_the_plan_says_what_training_takes():
    training = {"batch_size": 32, "micro_batches": 16, "precision": "bf16"}
    own = {"model": "big", "train": "train", "test": "test", "method": {"training": training}}
    own |= {"arms": ["baseline", "full", "trained_on"]}
    shape = {"billions": 1.54, "layers": 28, "heads": 12, "kv_heads": 2}
    limits = {"greedy": {"max_new_tokens": 2048}}
    planned = config(models={"big": shape}, compressions={"own": own}, decodings=limits)
    lines = describe(Store(planned)).splitlines()
    study = planned.compressions["own"]
    peak = training_memory(planned, study, study.method)
    assert peak.weights == pytest.approx((16 + 2) * 1.54) and peak.teacher == pytest.approx(6.16)
    # Two texts of 120 + 2048 tokens: the weights of 12 heads in 28 layers, 10 bytes each.
    assert peak.maps == pytest.approx(2 * 2168**2 * 12 * 28 * 10 / 1e9)
    (line,) = (line for line in lines if line.startswith("Training own"))
    assert line.startswith(f"Training own: at most {sum(peak):.1f} GB") and "above 16 fewer" in line
    untrained = planned.model_copy(
        update={"compressions": {"own": study.model_copy(update={"arms": ["baseline"]})}}
    )
    assert "Training own" not in describe(Store(untrained))
    alone = training_memory(planned, study, study.settings["trained_on"])
    assert (alone.teacher, alone.maps) == (0, 0) and alone.states == peak.states


def test_an_arm_from_scratch_has_the_batches_of_its_solver_s_recipe():
    planned = parse(changed(STUDIES, "solvers/tiny/training", {"batch_size": 96}))
    study = planned.compressions["words"]
    assert study.method.training.batch_size == 32
    scratch, full = (
        training_memory(planned, study, study.settings[arm])
        for arm in ("small_from_scratch", "full")
    )
    assert scratch.states == pytest.approx(3 * full.states)


def test_the_questions_of_a_file_of_ones_own_are_counted(tmp_path):
    file = tmp_path / "own.csv"
    rows = [f"{number} + 1,{number + 1},{'test' if number < 5 else 'train'}" for number in range(7)]
    file.write_text("\n".join(["question,answer,part", *rows]))
    own = {"benchmark": "custom", "columns": {"split": "part"}, "split": "test"}
    assert cost.question_count(Questions(**own, file=str(file))) == 5
    assert cost.question_count(Questions(**own, file=str(file), n=3)) == 3
    assert cost.question_count(Questions(**own, file=str(tmp_path / "elsewhere.csv"))) == 1000


def test_a_batch_takes_its_tokens_and_prompts_at_the_rate_of_what_computes_it():
    planned = config(models={"big": {"device": "cpu", "billions": 1.5}})
    batch = next(iter(batches(Store(planned)).values()))
    tokens = cost.generation_cost(batch).tokens
    questions = cost.question_count(planned.questions[batch.questions])
    prompts = questions * 120 * (1 + (len(batch.variants) - 1) / 2)  # half a pass for a head
    for card in (processors.GPU, processors.CORE):
        seconds = cost.generation_seconds(batch, card)
        assert seconds == pytest.approx(2 * 1.5e9 * (tokens + prompts) / card.flops)
    gpus, _, minutes = asked_to_generate(planned)
    assert (gpus, minutes) == (0, ceil(5 + 2 * seconds / len(batch.variants) / 60))


def test_a_device_is_a_gpu_where_there_is_one_and_a_cluster_s_job_has_one_core(monkeypatch):
    of_cpu = processors.CORE.flops * host_cores()
    for gpus, here in ((0, of_cpu), (2, processors.GPU.flops)):
        monkeypatch.setattr(processors, "gpu_count", lambda gpus=gpus: gpus)
        assert processors.card_of("auto").flops == here
        assert processors.card_of("cpu").flops == of_cpu
        assert processors.card_of("auto", local=False) == processors.GPU
        assert processors.card_of("cpu", local=False) == processors.CORE


def test_a_map_s_texts_are_counted_with_each_layer_s_rows_from_that_layer_on():
    shape = {"billions": 1.5, "layers": 28, "heads": 12, "kv_heads": 2, "dtype": "float32"}
    mapped = {"model": "big", "questions": "train", "sampling": ["T0.6"], "n": 40}
    maps = {"pairs": {**mapped, "layers": [0, 21], "noise_placebos": 3}}
    maps["solutions"] = {**mapped, "sampling": []}
    planned = config(models={"big": shape}, maps=maps)
    texts = cost.scored_texts(planned, "pairs")
    assert texts == (40 * 3, 120 + 550)
    assert cost.scored_texts(planned, "solutions").number == 40
    counted = cost.scoring_cost(planned, "pairs")
    assert (counted.jobs, counted.tokens) == (4, 120 * 670 * 2 * (12 + 3 + 1))
    maps["pairs"] = {**maps["pairs"], "noise_placebos": 500}  # a head has one at most
    many = config(models={"big": shape}, maps=maps)
    assert cost.scoring_cost(many, "pairs").tokens == 120 * 670 * 2 * (12 + 12 + 1)
    card = processors.GPU
    a_pass = 120 * 670 * 2 * 1.5e9 / card.flops
    first = cost.scoring_seconds(planned, "pairs", 0, card)
    last = cost.scoring_seconds(planned, "pairs", 21, card)
    assert first == pytest.approx((1 + 16) * a_pass)
    assert last == pytest.approx((1 + 16 / 4) * a_pass)
    assert cost.map_seconds(planned, "pairs", card) == pytest.approx(first + last)
    minutes = asked_to_score(planned, "pairs")[2]
    assert minutes == pytest.approx(5 + 2 * (1 + 16) * 120 * 670 * 3e9 / card.flops / 60, abs=1)
    rows = [line.split() for line in describe(Store(planned)).splitlines()]
    assert ["pairs", "map", "4", "0", "2.6", "0.00"] in rows


FIVE = {"heads": [11, 9, 4, 2, 0]}


@pytest.mark.parametrize(
    ("kind", "besides", "expected"),
    [
        ("none", {}, ""),
        ("numeric", {}, "placebo01 placebo02"),
        ("noise", {}, "L00N04 L00N11 L27N04 L27N11"),
        ("both", {}, "L00N04 L00N11 L27N04 L27N11 placebo01 placebo02"),
        # Fewer are spread over the heads of each layer.
        ("noise", {**FIVE, "noise_placebos": 2}, "L00N00 L00N04 L27N00 L27N04"),
        (
            "noise",
            {**FIVE, "noise_placebos": 9},
            "L00N00 L00N02 L00N04 L00N09 L00N11 L27N00 L27N02 L27N04 L27N09 L27N11",
        ),
    ],
)
def test_a_sweep_asks_for_as_many_placebos_of_a_kind_as_a_layer_has_heads(kind, besides, expected):
    sweep = {"layers": [27, 0], "heads": [11, 4], "placebos": kind, **besides}
    planned = config(sweeps={"table": sweep})
    assert " ".join(map(str, placebos(planned, planned.sweeps["table"]))) == expected


def test_members_of_families_answer_training_and_test_questions():
    values = {"model": "big", "train": "train", "test": "test", "sampling": ["T0.6"]}
    values |= {"layers": [2, 5], "members": 4, "max_n": 4}
    planned = parse(changed(VALUES, "frontiers/math", values))
    members = family_members(planned, planned.frontiers["math"])
    assert " ".join(f"{kind}{scale}" for kind, scale in members) == (
        "head0 scaled50 scaled150 skip0 weights5 weights20 noise0"
    )
    assert all(len(set(each)) == 4 for each in members.values())
    heads = [(each.layer, each.head) for each in members["head", 0]]
    assert {layer for layer, _ in heads} <= {2, 5}
    for family in (("scaled", 50), ("scaled", 150), ("noise", 0)):
        assert [(each.layer, each.head) for each in members[family]] == heads
    every = {variant for each in members.values() for variant in each}
    assert every <= set(batch_of(planned, "big", "greedy", "train").variants)
    assert batch_of(planned, "big", "T0.6", "test").variants == (BASE,)


def test_the_plan_says_what_each_sweep_could_see_and_what_it_assumes():
    sweeps = {"one": {"model": "big", "questions": "test", "layers": [3], "heads": [0, 1, 2]}}
    planned = config(sweeps=sweeps)
    lines = describe(Store(planned)).splitlines()
    (row,) = [line for line in lines if line.startswith("one ")]
    heads, questions, right, changed, gain, _, needed = row.split()[1:]
    assert (heads, right, changed) == ("3", "60%", "15%")
    assert float(gain) == pytest.approx(100 * smallest_gain(int(questions), 0.15, 3), abs=0.051)
    assert needed == f"{questions_for(0.02, 0.15, 3):,}"
    assert any("with probability 0.8" in line for line in lines)
    assert any("outcomes changed are assumed" in line for line in lines)
    # A model that is right on all but a twentieth cannot gain as much as the test would need.
    able = detectable_gains(planned, {"big": Rates(accuracy=0.95, changed=0.15)})
    assert {tuple(row[5:]) for row in able[1:]} == {("none", "none")}
    # Of a quarter that is wrong, heads that change a tenth by chance leave a fifth to gain.
    rates = Rates(accuracy=0.75, changed=0.1)
    assert [leaves_room(gain, rates) for gain in (0.19, 0.21)] == [True, False]
    assert detectable_gains(planned, {"another": Rates(accuracy=0.5, changed=0.1)}) == []
    # A pilot of one question, whose outcome no head has changed, says nothing of a sweep.
    told = detectable_gains(planned, {"big": Rates(accuracy=1.0, changed=0.0)})[1:]
    assert {tuple(row[5:]) for row in told} == {("too few to tell", "unknown")}


def test_the_plan_assumes_no_length_of_answers_where_there_are_none():
    trained = {name: STUDIES[name] for name in ("run", "problems", "solvers")}
    trained["compressions"] = {"words": STUDIES["compressions"]["words"]}
    assert "tokens on average" not in describe(Store(parse(trained)))
    assert " tokens on average; 100 TFLOP/s " in describe(Store(config()))


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
