"""Compression as a whole: every arm by settings alone, teachers, schedules, what is noted, how one
that is killed goes on to the same bits, and which settings do not go together.
"""

from functools import cache

import pytest
import torch
from pydantic import ValidationError
from small import killed_at, same, weights
from torch.nn.modules.module import register_module_forward_pre_hook

from headsweep.config.compression import Compression, Distillation, Importance
from headsweep.config.experiments import ARMS, arm, changed
from headsweep.config.solvers import Encoder, Solver, Training, WordProblems
from headsweep.errors import ModelError
from headsweep.experiments.athena.generated import generate
from headsweep.experiments.athena.solver import load_solver, new_solver
from headsweep.experiments.compression import rounds, training
from headsweep.experiments.compression.rounds import History, Round, compress
from headsweep.experiments.compression.savings import parameters
from headsweep.experiments.compression.training import Epoch
from headsweep.models.geometry import find_heads, kept_heads
from headsweep.models.learner import accuracy
from headsweep.variants import Variant

LAYERS, HEADS, WIDTH = 2, 4, 20
N, DEV, BATCH = 17, 3, 7  # 3 steps an epoch
SMALL = Solver(
    encoder=Encoder(layers=LAYERS, width=WIDTH, heads=HEADS, intermediate=28, min_count=1),
    depth=2,
    dropout=0.1,
    training=Training(epochs=2, patience=None, batch_size=BATCH, learning_rate=1e-3),
)
METHOD = Compression(
    ratio=0.5,
    rounds=2,
    training=Training(epochs=3, patience=None, batch_size=BATCH, learning_rate=1e-3),
)
NO_TEACHER = Distillation(teacher="none")
GONE = 4  # half of the 8 heads, two a round
A_HEAD = 4 * WIDTH * 5 + 3 * 5  # parameters
LAYOUT = {"0": [1], "1": [0, 2, 3]}


@pytest.fixture(scope="module")
def solver():
    return new_solver(SMALL, generate(N, seed=5), 1)


@pytest.fixture(scope="module")
def examples(solver):
    return solver.prepare(generate(N, seed=5))


@pytest.fixture
def run(solver, examples):
    def run(settings, *, seed=3, dev=DEV, **more):
        return compress(solver, examples, examples[:dev], settings, seed, device="cpu", **more)

    return run


def removed(history):
    return [head for each in history.rounds for removal in each.removals for head in removal.heads]


def method(**changes):
    return METHOD.model_copy(update=changes)


PARTS = {
    "response_distillation": "task response",
    "feature_distillation": "task feature",
    **dict.fromkeys(["pruning_only", "small_from_scratch"], "task"),
}
ALONE, ONE_SHOT = {"distillation": NO_TEACHER}, {"schedule": "one_shot"}
AS_ANOTHER = {  # arms that run through what others run through
    "without_entropy": {**ALONE, "importance": Importance(alpha=1.0)},
    "without_norm": {**ALONE, "importance": Importance(alpha=0.0)},
    "global": ONE_SHOT,
    "attention_visualisation": {**ONE_SHOT, "importance": Importance(criterion="attention")},
    "trained_on": {**ALONE, "ratio": 0.0},
}


def test_an_arm_that_runs_as_another_one_does_differs_in_its_settings():
    for name, changes in AS_ANOTHER.items():
        assert arm(name, METHOD) == method(**changes), name


@pytest.fixture
def taught(solver, monkeypatch):
    """Each teacher with its student's heads; the solver's weights before and after trainings."""
    pairs, trained = [], [weights(solver)]
    distilled, train = rounds.distilled, rounds.train

    def training(solver, *rest, **more):
        fit = train(solver, *rest, **more)
        trained.append(weights(solver))
        return fit

    monkeypatch.setattr(rounds, "distilled", lambda *own: pairs.append(own) or distilled(*own))
    monkeypatch.setattr(rounds, "train", training)
    return pairs, trained


TEACHERS = {"full": [8, 6], "joint_single_teacher": [8, 8], "distillation_only": [8, 8]}
"""Their heads in each round: of a recursive one, those of the student before the last pruning."""


@pytest.mark.parametrize("name", [name for name in ARMS if name not in AS_ANOTHER])
def test_every_arm_is_a_matter_of_settings(solver, run, taught, name):
    before = weights(solver)
    settings = arm(name, METHOD)
    smaller, history = run(settings, layout=LAYOUT if settings.scratch else None)
    assert same(before, weights(solver)) and not kept_heads(solver.encoder.config)
    gone = 0 if name in ("baseline", "distillation_only") else GONE
    geometry = find_heads(smaller.encoder)
    assert geometry.heads == LAYERS * HEADS - gone
    lost = parameters(solver.network) - parameters(smaller.network)
    assert lost == gone * A_HEAD
    assert len(removed(history)) == (0 if settings.scratch else gone)
    kept = {str(Variant(one.index, h)) for one in geometry.layers for h in one.original_heads}
    assert not kept & set(removed(history))
    assert (history.heads, history.parameters) == (LAYERS * HEADS, parameters(solver.network))

    epochs = [epoch for each in history.rounds for epoch in each.epochs]
    scratch = SMALL.training.epochs if name == "small_from_scratch" else 0
    assert len(epochs) == (0 if name == "baseline" else METHOD.training.epochs + scratch)
    parts = set(PARTS.get(name, "task response feature").split())
    assert all(set(epoch.losses) == parts for epoch in epochs)
    assert same(before, weights(smaller)) == (name == "baseline")
    last = history.rounds[-1] if history.rounds else history
    assert last.dev_strict == accuracy(smaller, smaller.prepare(generate(DEV, 5)))

    pairs, trained = taught
    assert bool(pairs) == (settings.distillation.teacher != "none" and name != "baseline")
    if name in TEACHERS:
        assert [find_heads(teacher.encoder).heads for teacher, *_ in pairs] == TEACHERS[name]
        assert [own.heads for _, own, _ in pairs] == [one.heads for one in history.rounds]
        recursive = settings.distillation.teacher == "recursive"
        for number, (teacher, *_) in enumerate(pairs):
            assert same(weights(teacher), trained[number if recursive else 0])


@pytest.mark.parametrize(
    ("settings", "teachers", "students"),
    [
        (arm("global", METHOD), [8, 4], [4, 4]),
        (method(schedule="literal"), [8, 8, 7, 6, 5], [8, 7, 6, 5, 4]),
    ],
)
def test_other_schedules_have_recursive_teachers_too(run, taught, settings, teachers, students):
    pairs, trained = taught
    run(settings)
    assert [find_heads(teacher.encoder).heads for teacher, *_ in pairs] == teachers
    assert [geometry.heads for _, geometry, _ in pairs] == students
    if settings.schedule != "literal":
        for (teacher, *_), before in zip(pairs, trained, strict=False):
            assert same(weights(teacher), before)


def test_each_round_ranks_the_heads_that_are_left_as_they_are_by_then(run, tmp_path, examples):
    smaller, history = run(METHOD)
    left = {str(Variant(layer, head)) for layer in range(LAYERS) for head in range(HEADS)}
    seen = []
    for number, each in enumerate(history.rounds):
        (removal,) = each.removals
        assert set(removal.scores) == left
        others = left - set(removal.heads)
        worst = max(removal.scores[head] for head in removal.heads)
        # A layer's last head would stay though its score is low; it is not so here.
        assert len(removal.heads) == 2 and worst <= min(removal.scores[one] for one in others)
        assert each.heads == len(others)
        assert removal.step == [0, 3][number]  # one epoch of three steps, then two
        left = others
        seen.append(removal.scores)
    assert any(seen[1][head] != seen[0][head] for head in seen[1])
    smaller.save(tmp_path / "smaller")
    loaded = load_solver(tmp_path / "smaller")
    assert same(weights(loaded), weights(smaller))
    assert loaded.answers(examples) == smaller.answers(examples)
    assert not same(weights(smaller), weights(run(METHOD, seed=4)[0]))


def test_every_pass_runs_on_the_device(solver, examples, monkeypatch):
    """There is no GPU here: this one notes which modules were sent to it."""

    def send(module, place):
        for each in module.modules():
            each.place = str(place)
        return module

    def check(module, _):
        assert getattr(module, "place", "cpu") == "cuda"

    monkeypatch.setattr(torch.cuda, "device_count", lambda: 1)
    monkeypatch.setattr(torch.nn.Module, "to", send)
    causal = method(importance=Importance(criterion="causal"))
    with register_module_forward_pre_hook(check):
        for own in (arm("baseline", METHOD), METHOD, causal):
            smaller, _ = compress(solver, examples, examples[:DEV], own, 3)
            smaller.verdicts(examples)


def test_layers_ranked_apart_end_equal(run, monkeypatch):
    """Though one layer's scores are the lowest at every removal."""

    def scores(learner, geometry, *_):
        return {one.index: torch.rand(one.query_heads) + one.index for one in geometry.layers}

    monkeypatch.setattr(rounds, "head_scores", scores)
    own = method(schedule="literal", importance=Importance(scope="layer"))
    smaller, history = run(own)
    assert len([removal for each in history.rounds for removal in each.removals]) >= 3
    assert [one.query_heads for one in find_heads(smaller.encoder).layers] == [2, 2]


LITERAL = method(schedule="literal", exponent=2.0, distillation=NO_TEACHER)


def test_the_literal_schedule_takes_one_head_after_a_step(run):
    _, history = run(LITERAL)
    (only,) = history.rounds
    # 9 steps: the k-th head goes after the first step t with 4 (t / 9)^2 >= k.
    found = [(one.step, len(one.heads), len(one.scores)) for one in only.removals]
    assert found == [(5, 1, 8), (7, 1, 7), (8, 1, 6), (9, 1, 5)]
    assert [epoch.steps for epoch in only.epochs] == [3, 6, 9]


def test_a_loss_without_each_head_is_measured_anew_in_each_round(run):
    _, history = run(method(importance=Importance(criterion="causal", scale="raw")))
    first, second = (each.removals[0].scores for each in history.rounds)
    assert second.keys() < first.keys()
    assert any(abs(score - first[head]) > 1e-6 for head, score in second.items())


def test_the_literal_schedule_stops_at_a_size_or_a_loss_of_accuracy(run, solver, monkeypatch):
    size = parameters(solver.network) - 2 * A_HEAD
    _, history = run(LITERAL.model_copy(update={"smallest": size}))
    assert len(removed(history)) == 2
    shares = iter([0.8, 0.8, 0.7, 0.4])  # before anything, then before each head
    monkeypatch.setattr(rounds, "accuracy", lambda *_: next(shares))
    _, history = run(LITERAL.model_copy(update={"largest_loss": 0.2}))
    assert len(removed(history)) == 2


def test_a_stop_outlives_a_kill(run, tmp_path, monkeypatch):
    """Before the first head accuracy is low, so no head goes; killed, it is high from then on."""
    step = training._Run.step

    def stopped_run(count, shares):
        monkeypatch.setattr(training._Run, "step", lambda *own: (step(*own), count()))
        monkeypatch.setattr(rounds, "accuracy", lambda *_: shares.pop(0) if shares else 0.8)
        settings = {"schedule": "literal", "training": LONGER, "largest_loss": 0.2}
        return run(method(**settings), folder=tmp_path)

    killed_at(7, lambda count: stopped_run(count, [0.8, 0.1]))
    _, history = stopped_run(lambda: None, [])
    assert removed(history) == []


def test_what_is_trained_from_scratch_has_a_layout_a_rate_and_a_length_of_its_own(
    run, solver, monkeypatch
):
    recipes, train = [], rounds.train
    monkeypatch.setattr(
        rounds, "train", lambda *own, **more: recipes.append(own[3]) or train(*own, **more)
    )
    settings = arm("small_from_scratch", METHOD)
    longer = settings.model_copy(update={"scratch_rate": 7e-4, "scratch_times": 2})
    for own, epochs, rate in ((longer, 10, 7e-4), (settings, 5, 1e-3)):
        scratch, history = run(own, layout=LAYOUT)
        assert (recipes[-1].epochs, recipes[-1].learning_rate) == (epochs, rate)
        assert len(history.rounds[0].epochs) == epochs
    assert kept_heads(scratch.encoder.config) == LAYOUT
    known = solver.network.state_dict()
    for name, own in scratch.network.state_dict().items():
        if own.numel() > 99 and own.shape == known[name].shape:
            both = torch.stack([own.flatten(), known[name].flatten()])
            assert torch.corrcoef(both)[0, 1] < 0.5, name


def test_what_cannot_be_done_is_said_before_anything_is_trained(run, monkeypatch):
    monkeypatch.delattr(rounds, "train")
    few = "ratio 0.1 removes nothing of 8 heads, of which 1 go at once; raise it"
    many = "7 heads cannot go: 6 can, as each of 2 layers keeps 1 of its own; lower the ratio"
    for ratio, message in ((0.1, few), (0.9, many)):
        with pytest.raises(ModelError, match=f"^{message}$"):
            run(method(ratio=ratio), dev=0)


def test_a_loss_that_rose_is_told_with_what_to_lower(run, monkeypatch, caplog):
    def round_of(left, first, last):
        epochs = [
            Epoch(epoch=n, steps=3 * n, losses={"a": loss, "b": 1.0}, dev_strict=None)
            for n, loss in enumerate((first, last), start=1)
        ]
        return Round(epochs=epochs, best=2, removals=[], heads=left, parameters=90)

    for left, lower in ((7, "exponent, or learning_rate"), (8, "learning_rate")):
        rounds = [round_of(8, 2.0, 1.0), round_of(left, 1.0, 3.0), round_of(left, 3.0, 3.0)]
        history = History(dev_strict=0.5, heads=8, parameters=99, rounds=rounds)
        told = f"the loss rose in round 2, from 2 to 4; lower {lower}"
        assert history.warnings() == [told]
    monkeypatch.setattr(History, "warnings", lambda _: [told])
    run(arm("baseline", METHOD))
    assert caplog.messages == [told]


LONGER = METHOD.training.model_copy(update={"epochs": 4, "checkpoint_steps": 2})
JOURNALLED = {
    "recursive": method(training=LONGER),
    "original": method(
        training=LONGER.model_copy(update={"patience": 3}),
        distillation=Distillation(teacher="original"),
        importance=Importance(criterion="random"),
    ),
    "literal": method(training=LONGER, schedule="literal"),
    "scratch": method(training=LONGER, scratch=True, distillation=NO_TEACHER),
}


def layout_of(name):
    return LAYOUT if name == "scratch" else None


@pytest.fixture(scope="module")
def undisturbed(solver, examples):
    """Return what runs a compression without a kill, once: weights and history."""

    @cache
    def finish(name):
        own = {"layout": layout_of(name), "device": "cpu"}
        whole, history = compress(solver, examples, examples[:DEV], JOURNALLED[name], 3, **own)
        return weights(whole), history

    return finish


@pytest.mark.parametrize(
    ("name", "after", "repeated"),
    [
        # Rounds of 6 steps: killed in the second one, after the checkpoint of its 4th step.
        ("recursive", 11, 2),
        ("original", 5, 8),
        # Heads go after steps 3, 6, 9 and 12: the teacher of step 9 is not the one of step 6.
        ("literal", 11, 2),
        ("literal", 8, 6),  # moments that were cut at step 6 are cut again at step 9
        ("scratch", 5, 15),
    ],
)
def test_a_killed_compression_goes_on_to_the_same_bits(
    run, undisturbed, tmp_path, monkeypatch, name, after, repeated
):
    step = training._Run.step

    def counting(count):
        monkeypatch.setattr(training._Run, "step", lambda *own: (step(*own), count()))

    own = {"settings": JOURNALLED[name], "layout": layout_of(name)}
    whole, wanted = undisturbed(name)
    killed_at(after, lambda count: (counting(count), run(**own, folder=tmp_path)))
    steps = []
    counting(lambda: steps.append(1))
    for expected in (repeated, 0):  # what is done is not done again
        steps.clear()
        resumed, history = run(**own, folder=tmp_path)
        assert len(steps) == expected
        assert history == wanted
        assert same(whole, weights(resumed))
    assert [file.name for file in tmp_path.iterdir()] == ["rounds.safetensors"]


def test_a_journal_of_another_compression_or_a_damaged_one_is_refused(
    run, solver, examples, tmp_path
):
    own = JOURNALLED["original"]
    run(own, folder=tmp_path)
    with pytest.raises(ModelError, match="of a training with other seed; remove it"):
        run(own, folder=tmp_path, seed=4)
    faster = own.training.model_copy(update={"checkpoint_steps": 5})
    run(own.model_copy(update={"training": faster}), folder=tmp_path)
    with pytest.raises(ModelError, match="of a training with other weights; remove it"):
        other = solver.untrained(8)[0]
        compress(other, examples, examples[:DEV], own, 3, folder=tmp_path, device="cpu")
    (tmp_path / "rounds.safetensors").write_bytes(b"half")
    with pytest.raises(ModelError, match=r"is damaged .*; remove it and run again"):
        run(own, folder=tmp_path)


def test_all_arms_go_with_the_literal_reading():
    reading = {"importance": {"entropy": "raw", "scale": "raw"}, "schedule": "literal"}
    started = method(start=0.1, smallest=1000, importance=Importance(entropy_sign=-1))
    literal = changed(started, reading)
    assert literal.importance.scale == "raw" and literal.importance.entropy_sign == -1
    assert literal.schedule == "literal" and literal.training == METHOD.training
    assert [arm(name, literal).schedule for name in ARMS].count("one_shot") == 3


def test_what_decides_nothing_is_not_decisive():
    def keyed(**changes):
        return Compression(**{"ratio": 0.4, **changes}).decisive()

    fewer = {"batch_size": 3}
    assert keyed(importance=fewer) == keyed(training={"checkpoint_steps": 7}) == keyed()
    assert keyed(scratch_rate=1e-3, scratch_times=2) == keyed()  # of an arm that is pruned
    lone = {"scratch": True, "distillation": {"teacher": "none"}}
    assert keyed(**lone, scratch_times=2) != keyed(**lone) != keyed(**lone, scratch_rate=1e-3)


@pytest.mark.parametrize(
    ("section", "settings", "message"),
    [
        (Compression, {"ratio": 0.2, "start": 0.3}, "start 0.3 is above ratio 0.2"),
        (Compression, {"rounds": 0}, "0 rounds remove nothing"),
        (Compression, {"training": {"epochs": 3}}, "3 epochs cannot be divided over 4 rounds"),
        (Compression, {"smallest": 5}, "need `schedule: literal`"),
        (Compression, {"largest_loss": 0.0}, "need `schedule: literal`"),
        (Compression, {"scratch": True}, "weights from scratch have no teacher"),
        (Distillation, {"response": False, "feature": "none"}, "the teacher teaches nothing"),
        (Encoder, {"source": "roberta-base", "width": 64}, "shape of its own; remove width"),
        (Solver, {"encoder": {"width": 100, "heads": 3}}, "cannot be divided into 3 heads"),
        (Encoder, {"revision": "abc"}, "`revision` belongs to `source`"),
        (WordProblems, {"dataset": "asdiv_a"}, "give `file`"),
        (WordProblems, {"dataset": "math23k"}, "give its `revision`"),
        (WordProblems, {"dataset": "generated"}, "take `n`"),
    ],
)
def test_settings_that_do_not_go_together_are_refused(section, settings, message):
    with pytest.raises(ValidationError, match=message):
        section(**settings)
