"""Encoders that classify texts or answer questions learn, lose heads, and are judged."""

import math
from pathlib import Path

import pytest
import torch
from transformers import BertConfig, BertForSequenceClassification, BertModel

from headroom.compression import learners
from headroom.compression.criteria import head_scores
from headroom.compression.learners.texts import TextLearner, new_text_learner
from headroom.compression.resume import shape_of
from headroom.compression.rounds import compress
from headroom.compression.training import train
from headroom.config.arms import arm
from headroom.config.compression import Compression, Encoder, Importance, Solver, Training
from headroom.errors import ModelError
from headroom.models.encoders import word_tokenizer
from headroom.models.geometry import find_heads
from headroom.models.learner import Learner, accuracy, copied
from headroom.texts.generated import generate
from headroom.texts.scoring import exact_match, f1
from headroom.texts.text import Text

LAYERS, HEADS = 2, 4
SMALL = Solver(
    encoder=Encoder(layers=LAYERS, width=32, heads=HEADS, intermediate=48, dropout=0.0),
    training=Training(epochs=2, patience=None, batch_size=16, learning_rate=3e-3),
)
METHOD = Compression(
    ratio=0.5,
    rounds=2,
    importance=Importance(calibration=20),
    training=Training(epochs=2, patience=None, batch_size=16, learning_rate=1e-3),
)
TASKS = ("classification", "question_answering")
PARTS = {task: generate(task, 60, seed=1) for task in TASKS}


@pytest.fixture(scope="module", params=TASKS)
def learner(request: pytest.FixtureRequest) -> TextLearner:
    return new_text_learner(SMALL, PARTS[request.param][0], seed=2)


def rows(learner: TextLearner) -> list[Text]:
    return PARTS[learner.task][0]


def test_it_is_a_learner(learner: TextLearner) -> None:
    found: Learner = learner
    assert found.encoder is found.network and found.recipe == SMALL.training
    assert learners.new(SMALL, rows(learner), 2).labels == learner.labels


@pytest.mark.parametrize("task", TASKS)
def test_an_encoder_from_scratch_learns_generated_texts(task: str) -> None:
    train_rows, _, test = generate(task, 400, seed=0)
    recipe = SMALL.training.model_copy(update={"epochs": 8})
    learner = new_text_learner(SMALL, train_rows, seed=0)
    train(learner, learner.prepare(train_rows), [], recipe, seed=0, device="cpu")
    assert accuracy(learner, learner.prepare(test)) >= 0.9


def test_the_loss_is_that_of_each_text_alone(learner: TextLearner) -> None:
    """Against the losses that transformers computes from labels."""
    examples = learner.prepare(rows(learner)[:9])
    assert len({len(example.input_ids) for example in examples}) > 1
    expected = []
    for example in examples:
        ids = torch.from_numpy(example.input_ids)[None]
        with torch.no_grad():
            if learner.task == "classification":
                label = torch.tensor(example.targets)
                loss = learner.network(input_ids=ids, labels=label).loss
            else:
                output = learner.network(input_ids=ids)
                options = torch.from_numpy(example.spans[:, 0] >= 0)
                options[0] = True
                loss = sum(
                    -logits[0][options].log_softmax(0)[int(options[:place].sum())] / 2
                    for logits, place in zip(
                        (output.start_logits, output.end_logits), example.targets, strict=True
                    )
                )
        expected.append(loss.item())
    batch = learner.collate(examples)
    loss = learner.task_loss(learner.run(batch), batch).item()
    assert loss == pytest.approx(sum(expected) / len(expected), rel=1e-4)
    assert batch.judged == 9 * (1 if learner.task == "classification" else 2)


def test_the_response_is_a_divergence_for_each_choice(learner: TextLearner) -> None:
    batch = learner.collate(learner.prepare(rows(learner)[:3]))
    other = copied(learner)
    with torch.no_grad():
        for parameter in other.network.parameters():
            parameter.add_(0.2 * torch.randn(parameter.shape, generator=torch.manual_seed(1)))
        own, taught = learner.run(batch), other.run(batch)
    total, choices = 0.0, 0
    for a, b in zip(own.logits.flatten(0, 1), taught.logits.flatten(0, 1), strict=True):
        q, p = ([math.exp(x / 2) for x in row if x > -1e4] for row in (a.tolist(), b.tolist()))
        total += sum(
            y / sum(p) * math.log(y / sum(p) / (x / sum(q))) for x, y in zip(q, p, strict=True)
        )
        choices += 1
    loss = learner.response_loss(own, taught, batch, 2.0).item()
    assert loss == pytest.approx(4 * total / choices, rel=1e-3) and loss > 1e-3
    assert learner.response_loss(own, own, batch, 2.0).item() == 0.0


def test_tokens_and_characters_of_an_answer_belong_together() -> None:
    learner = new_text_learner(SMALL, PARTS["question_answering"][0], seed=2)
    for row, example in zip(
        PARTS["question_answering"][0], learner.prepare(rows(learner)), strict=True
    ):
        first, last = example.targets
        assert row.text[example.spans[first, 0] : example.spans[last, 1]] == row.answers[0]
        assert example.spans[0, 0] == -1  # the first token is none of the context
    long = Text("x", "ada " * 600 + "ben", "who ?", ("ben",), (4 * 600,))
    (cut,) = learner.prepare([long])
    assert cut.targets == (0, 0) and len(cut.input_ids) == learner.tokenizer.model_max_length


def test_the_best_span_is_that_of_all_pairs() -> None:
    learner = new_text_learner(SMALL, PARTS["question_answering"][0], seed=2)
    test = PARTS["question_answering"][2]
    examples = learner.prepare(test)
    for example, verdict in zip(examples, learner.verdicts(examples), strict=True):
        with torch.no_grad():
            output = learner.network(input_ids=torch.from_numpy(example.input_ids)[None])
        start, end = output.start_logits[0], output.end_logits[0]
        inside = [place for place, (at, _) in enumerate(example.spans.tolist()) if at >= 0]
        pairs = [(s, e) for s in inside for e in inside if s <= e < s + 30]
        first, last = max(pairs, key=lambda pair: (start[pair[0]] + end[pair[1]]).item())
        words = example.row.text[example.spans[first, 0] : example.spans[last, 1]]
        assert verdict.answer == words
        assert verdict.strict == exact_match(words, example.row.answers)
        assert verdict.lenient == (f1(words, example.row.answers) >= 0.5)
        assert verdict[:2] == (example.example_id, example.row.stratum)


def test_a_label_that_training_texts_lack_is_wrong_and_costs_nothing() -> None:
    learner = new_text_learner(SMALL, PARTS["classification"][0], seed=2)
    known = PARTS["classification"][2][0]
    foreign = Text("x", known.text, None, ("green",))
    examples = learner.prepare([known, foreign])
    verdicts = learner.verdicts(examples)
    assert verdicts[1].answer in learner.labels and not verdicts[1].strict
    both, alone = (learner.collate(some) for some in (examples, examples[:1]))
    losses = [learner.task_loss(learner.run(one), one).item() for one in (both, alone)]
    assert losses[0] == pytest.approx(losses[1], rel=1e-5)


def test_it_loses_heads_in_rounds_and_can_be_kept(learner: TextLearner, tmp_path: Path) -> None:
    examples = learner.prepare(rows(learner))
    smaller, history = compress(
        learner, examples, examples[:4], arm("full", METHOD), 3, device="cpu"
    )
    geometry = find_heads(smaller.encoder)
    assert sum(layer.query_heads for layer in geometry.layers) == LAYERS * HEADS // 2
    assert {part for epoch in history.rounds[1].fit.epochs for part in epoch.losses} == {
        "task",
        "response",
        "feature",
    }
    smaller.save(tmp_path)
    loaded = learners.load(tmp_path)
    assert isinstance(loaded, TextLearner) and loaded.settings == SMALL
    assert loaded.verdicts(loaded.prepare(rows(learner))) == smaller.verdicts(examples)
    assert shape_of(loaded.encoder) == shape_of(smaller.encoder)
    assert len(smaller.quantised().verdicts(examples)) == len(examples)
    again = smaller.untrained(5)
    assert not shape_of(again.encoder)
    (tmp_path / "texts.json").write_text("{}")
    with pytest.raises(ModelError, match="is no encoder of texts"):
        learners.load(tmp_path)
    with pytest.raises(ModelError, match="holds none of "):
        learners.load(tmp_path / "nowhere")


@pytest.mark.parametrize("criterion", ["mixed", "attention", "taylor", "causal", "random"])
def test_every_criterion_scores_its_heads(learner: TextLearner, criterion: str) -> None:
    examples = learner.prepare(rows(learner)[:9])
    settings = Importance(criterion=criterion)
    geometry = find_heads(learner.encoder)
    scores = head_scores(learner, geometry, examples, examples[:5], settings, 0)
    assert [score.shape for score in scores.values()] == [(HEADS,)] * LAYERS
    assert all(len(set(score.tolist())) > 1 for score in scores.values())


def test_a_pretrained_encoder_gets_a_layer_that_chooses(tmp_path: Path) -> None:
    """A BERT without task; its two token types tell the texts of a pair apart."""
    pairs = [Text(str(i), f"red box {i % 3}", f"blue {i % 2}", (str(i % 3),)) for i in range(6)]
    tokenizer = word_tokenizer([f"{one.text} {one.second}" for one in pairs], 1)
    tokenizer.save_pretrained(tmp_path)
    config = BertConfig(
        vocab_size=len(tokenizer),
        hidden_size=24,
        num_attention_heads=3,
        num_hidden_layers=2,
        intermediate_size=20,
        max_position_embeddings=40,
    )
    BertModel(config, add_pooling_layer=False).save_pretrained(tmp_path)
    settings = Solver(encoder=Encoder(source=str(tmp_path)))
    one, same, other = (new_text_learner(settings, pairs, seed) for seed in (1, 1, 2))
    assert isinstance(one.network, BertForSequenceClassification)
    assert one.network.classifier.out_features == 3 == len(one.labels)
    weights = [x.network.classifier.weight for x in (one, same, other)]
    assert torch.equal(weights[0], weights[1]) and not torch.equal(weights[0], weights[2])
    assert torch.equal(
        one.network.bert.embeddings.word_embeddings.weight,
        other.network.bert.embeddings.word_embeddings.weight,
    )
    batch = one.collate(one.prepare(pairs))
    assert "token_type_ids" in batch.inputs and one.tokenizer.model_max_length == 40
    with pytest.raises(ModelError, match="cannot be loaded for classification"):
        (tmp_path / "config.json").write_text('{"model_type": "unheard"}')
        new_text_learner(settings, pairs, 1)
