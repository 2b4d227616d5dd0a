"""Decoders lose groups of heads, learn from their own answers, and are graded as in a sweep."""

import json
from dataclasses import replace

import pandas as pd
import pytest
import torch
from small import same, save_decoder, weights

from headsweep.benchmarks.generated import generate
from headsweep.benchmarks.templates import box
from headsweep.config import Decoding
from headsweep.config.compression import Compression, Distillation, Importance
from headsweep.config.solvers import Training
from headsweep.engine.requests import Answer, Request
from headsweep.errors import ModelError
from headsweep.experiments.compression.criteria import head_scores
from headsweep.experiments.compression.decoder import DecoderLearner, to_answer, to_learn
from headsweep.experiments.compression.rounds import compress
from headsweep.models.geometry import find_heads
from headsweep.models.learner import copied
from headsweep.models.load import load_checkpoint, load_model
from headsweep.models.removal import remove_heads
from headsweep.variants import Variant

LAYERS, HEADS, KV_HEADS, NEW_TOKENS = 2, 6, 3, 5
GROUP = HEADS // KV_HEADS
NAMES = ("whole", "cut")
RECIPE = Training(epochs=2, patience=None, batch_size=3, learning_rate=3e-3)


@pytest.fixture(scope="module")
def questions():
    return generate("generated_math", "train", 7, seed=1, apart=False)


@pytest.fixture(scope="module")
def decoder(tmp_path_factory):
    folder = save_decoder(tmp_path_factory.mktemp("models") / "decoder")
    decoding = Decoding(max_new_tokens=NEW_TOKENS)
    return DecoderLearner(load_model(str(folder), device="cpu"), "made/up", decoding, "math")


@pytest.fixture(scope="module")
def lessons(decoder, questions):
    """Answers of 3 to 9 tokens."""
    return [
        row._replace(taught=tuple(range(20 + place, 23 + 2 * place)), ended=place != 2)
        for place, row in enumerate(to_answer(questions)[:4])
    ]


def compressed(learner, lessons, **settings):
    own = Compression(training=RECIPE, **{"rounds": 2, **settings})
    return compress(learner, learner.prepare(lessons), [], own, 3, device="cpu")


def test_right_answers_are_learned_with_their_end(questions):
    ids = questions["question_id"]
    answers = pd.DataFrame({"question_id": ids, "token_ids": [[n, 5] for n in range(7)]})
    answers["stop_reason"] = ["eos", "length"] + ["eos"] * 5
    correct = [True, True, False, False, True, False, False]
    graded = pd.DataFrame({"question_id": ids, "variant": "base", "correct": correct})
    graded = pd.concat([graded, graded.assign(variant="L00H01", correct=True)])
    rows = to_learn(questions, answers, graded)
    taught = [(row.taught, row.ended) for row in rows]
    assert taught == [((0, 5), True), ((1, 5), False), ((4, 5), True)]
    assert rows[2].gold == questions["answer"][4] and rows[2].subject == questions["subject"][4]
    with pytest.raises(ModelError, match="none of 7 training questions is answered correctly"):
        to_learn(questions, answers, graded.assign(correct=False))


def test_the_loss_is_that_of_each_answer_token_after_all_before_it(decoder, lessons):
    """Against the whole logits of each text alone, one token at a time."""
    examples = decoder.prepare(lessons)
    expected = []
    for row, example in zip(lessons, examples, strict=True):
        ids = example.input_ids.tolist()
        answer = [*row.taught, *([decoder.loaded.tokenizer.eos_token_id] if row.ended else [])]
        assert ids[example.prompt :] == answer
        with torch.no_grad():
            logits = decoder.network(torch.tensor([ids])).logits[0]
        for place, token in enumerate(answer, start=example.prompt):
            expected.append(-logits[place - 1].log_softmax(-1)[token].item())
    batch = decoder.collate(examples)
    output = decoder.run(batch)
    assert batch.judged == len(expected) == sum(len(row.taught) for row in lessons) + 3
    loss = decoder.task_loss(output, batch).item()
    assert loss == pytest.approx(sum(expected) / len(expected), rel=1e-4)
    assert output.attentions == ()
    other = copied(decoder)
    with torch.no_grad():
        other.network.get_input_embeddings().weight.mul_(5)
        own, taught = decoder.run(batch), other.run(batch)
    q, p = (torch.distributions.Categorical(logits=2 * one.logits) for one in (own, taught))
    expected = 0.25 * torch.distributions.kl_divergence(p, q).mean().item()
    loss = decoder.response_loss(own, taught, batch, temperature=0.5).item()
    assert loss == pytest.approx(expected, rel=1e-3) and loss > 0.01


@pytest.fixture
def smaller(decoder):
    """Without a key/value head of the second layer."""
    cut = copied(decoder)
    gone = [Variant(1, head) for head in range(GROUP, 2 * GROUP)]
    remove_heads(cut.network, find_heads(cut.network), gone)
    return cut


def test_answers_of_a_pruned_decoder_are_those_of_each_prompt_alone(smaller, questions):
    learner = replace(smaller, batch_size=3)
    examples = learner.prepare(to_answer(questions))
    assert len({example.prompt for example in examples}) > 3
    greedy = {"do_sample": False, "use_cache": False, "max_new_tokens": NEW_TOKENS}
    for example, answer in zip(examples, learner.answers(examples), strict=True):
        ids = torch.from_numpy(example.input_ids)[None]
        own = learner.network.generate(ids, attention_mask=torch.ones_like(ids), **greedy)[0]
        ends = learner.loaded.eos_token_ids
        made = [one for one in own[ids.shape[1] :].tolist() if one not in ends]
        assert list(answer.token_ids) == made


def test_verdicts_are_those_of_the_grader(decoder, questions, monkeypatch):
    texts = [f"so {box(gold)}" for gold in questions["answer"]]
    texts[2], texts[5] = r"\boxed{-123457}", "no box here"
    monkeypatch.setattr(
        type(decoder.loaded.tokenizer), "batch_decode", lambda self, ids, **_: texts[: len(ids)]
    )
    found = decoder.verdicts(decoder.prepare(to_answer(questions)))
    ids, strata, answers, *right = zip(*found, strict=True)
    assert right == [tuple(place not in (2, 5) for place in range(7))] * 2
    assert answers[2] == "-123457" and answers[5] is None
    assert strata == (*questions["subject"],) and ids == (*questions["question_id"],)


@pytest.mark.parametrize("stop_reason", ["length", "eos"])
def test_an_answer_that_is_cut_before_a_final_one_is_wrong(
    decoder, questions, monkeypatch, stop_reason
):
    def answers(_, examples):
        return [Answer(Request(one.example_id, (1,)), (2,), stop_reason, 1.0) for one in examples]

    asked = to_answer(questions.assign(answer=[str(place + 20) for place in range(7)]))
    texts = [f"then I get {place + 20}" for place in range(7)]
    texts[3] = r"so \boxed{23}, and"
    learner = replace(decoder, grader_name="gsm8k")
    tokenizer = decoder.loaded.tokenizer
    monkeypatch.setattr(DecoderLearner, "answers", answers)
    monkeypatch.setattr(type(tokenizer), "batch_decode", lambda self, ids, **_: texts[: len(ids)])
    found = learner.verdicts(learner.prepare(asked))
    right = [verdict.strict for verdict in found]
    assert right == [stop_reason == "eos" or place == 3 for place in range(7)]


@pytest.mark.parametrize(
    ("unit", "ratio", "gone", "form"),
    [("group", 0.45, 2 * GROUP, "uniform"), ("query", 0.4, KV_HEADS, "free")],
)
def test_groups_stay_equal_and_the_rest_can_be_saved(
    decoder, lessons, questions, tmp_path, unit, ratio, gone, form
):
    before = weights(decoder)
    importance = Importance(unit=unit, calibration=3)
    cut, history = compressed(decoder, lessons, ratio=ratio, importance=importance)
    geometry = find_heads(cut.network)
    removals = [removal for each in history.rounds for removal in each.removals]
    assert sum(len(removal.heads) for removal in removals) == gone
    assert geometry.heads == LAYERS * HEADS - gone
    assert all(layer.query_heads % layer.kv_heads == 0 for layer in geometry.layers)
    parts = {part for each in history.rounds for epoch in each.epochs for part in epoch.losses}
    assert parts == {"task", "response", "feature"}
    assert same(weights(decoder), before)

    cut.save(tmp_path / "cut")
    cut.save(tmp_path / "cut")  # takes the place of what a killed job had saved
    loaded = replace(decoder, loaded=load_model(str(tmp_path / "cut"), device="cpu"))
    examples = cut.prepare(to_answer(questions)[:3])
    assert loaded.answers(loaded.prepare(to_answer(questions)[:3])) == cut.answers(examples)
    again = find_heads(loaded.network).layers
    assert [replace(layer, kept=()) for layer in geometry.layers] == [
        replace(layer, kept=()) for layer in again
    ]
    assert json.loads((tmp_path / "cut/pruned_heads.json").read_text())["form"] == form


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_what_is_trained_in_float32_is_saved_and_tested_in_its_own_type(
    decoder, lessons, tmp_path, dtype
):
    own = replace(copied(decoder), dtype=dtype)
    cut, _ = compressed(own, lessons, ratio=0.5)
    assert {one.dtype for one in cut.network.parameters()} == {torch.float32}
    trained = weights(cut)
    cut = cut.finished()
    # A CPU computes float16 in float32, with the rounded weights.
    computed = torch.float32 if dtype == torch.float16 else dtype
    for name, one in cut.network.state_dict().items():
        assert one.dtype == computed
        assert torch.equal(one, trained[name].to(dtype).to(computed))
    assert len(cut.answers(cut.prepare(lessons))) == len(lessons)
    for learner, name in zip((own.finished(), cut), NAMES, strict=True):
        learner.save(tmp_path / name)
        loaded = load_checkpoint(str(tmp_path / name), device="cpu", dtype=None)
        stored = {key: one.to(computed) for key, one in loaded.state_dict().items()}
        assert {one.dtype for one in loaded.parameters()} == {dtype}
        assert same(stored, learner.network.state_dict())
    gone = own.network.num_parameters() - cut.network.num_parameters()
    whole, less = ((tmp_path / name / "model.safetensors").stat().st_size for name in NAMES)
    assert whole - less == pytest.approx(2 * gone, abs=600)  # the file's header differs


def test_causal_scores_are_the_drops_of_a_sweep_also_once_heads_are_gone(smaller):
    columns = {
        str(Variant(layer, head)): [1, int(head < 2), int(head < layer + 1)]
        for layer in range(LAYERS)
        for head in range(HEADS)
    }
    z = pd.DataFrame({"question_id": ["a", "b", "c"], "base": [1, 1, 1], **columns})
    cut = replace(smaller, matrix=z)
    scores = head_scores(cut, find_heads(cut.network), [], [], Importance(criterion="causal"), 0)
    thirds = {layer: (3 * values).tolist() for layer, values in scores.items()}
    assert thirds[0] == pytest.approx([0, 1, 2, 2, 2, 2])
    assert thirds[1] == pytest.approx([0, 0, 2, 2])


def test_a_decoder_that_lost_heads_before_is_ranked_and_described_by_its_own_numbers(
    smaller, lessons, tmp_path
):
    smaller.save(tmp_path / "source")
    source = replace(smaller, loaded=load_model(str(tmp_path / "source"), device="cpu"))
    # Of the second layer heads 0, 1, 4 and 5 are left: a sweep calls them 0 to 3.
    least = [Variant(1, 2), Variant(1, 3)]
    columns = {
        str(Variant(layer, head)): [int(Variant(layer, head) in least), 0, 0]
        for layer, heads in enumerate([HEADS, HEADS - GROUP])
        for head in range(heads)
    }
    z = pd.DataFrame({"question_id": ["a", "b", "c"], "base": [1, 1, 1], **columns})
    importance = Importance(criterion="causal")
    swept = replace(source, matrix=z)
    cut, _ = compressed(swept, lessons, ratio=0.2, rounds=1, importance=importance)
    assert [layer.original_heads for layer in find_heads(cut.network).layers][1] == (0, 1)
    cut.save(tmp_path / "cut")
    removed = json.loads((tmp_path / "cut/pruned_heads.json").read_text())["removed"]
    assert removed == [str(head) for head in least]


def test_the_literal_schedule_takes_whole_groups(decoder, lessons):
    alone = Distillation(teacher="none")
    _, history = compressed(decoder, lessons, ratio=0.5, schedule="literal", distillation=alone)
    # 4 steps: 6 heads at a linear pace, two at a time.
    sizes = [(removal.step, len(removal.heads)) for removal in history.rounds[0].removals]
    assert sizes == [(2, 2), (3, 2), (4, 2)]
