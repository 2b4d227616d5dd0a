"""The reasoner that ships with the package is what its record says, and answers as recorded."""

import json
import os

import pytest
import torch
from transformers import AutoTokenizer

from headroom.benchmarks import generated
from headroom.config import Decoding
from headroom.generation.engine import Engine, Request
from headroom.models.load import load_model
from headroom.models.source import fetch_model, fingerprint
from headroom.reasoner import shipped
from headroom.reasoner.training import _TOKENIZER_DOCUMENTS, train_tokenizer
from headroom.record import intact, read_record

SMALLEST_MARGIN = 1e-3
"""Below it, another order of summation may change a token, and with it the rest of an answer."""
WEIGHTS = shipped.FOLDER / "model.safetensors"


def test_its_files_are_those_of_its_record():
    record = read_record(intact(WEIGHTS))
    assert record["fingerprint"] == fingerprint(shipped.FOLDER)
    assert record["settings"] == shipped.SETTINGS._asdict()
    assert WEIGHTS.stat().st_size < 2_200_000  # half precision
    assert fetch_model("builtin:reasoner", record["fingerprint"]) == shipped.FOLDER


def test_its_tokenizer_is_trained_on_the_corpus_alone():
    documents = generated.corpus(_TOKENIZER_DOCUMENTS, shipped.SETTINGS.seed)
    texts = (text for document in documents for text in document[:2])
    again = train_tokenizer(texts, shipped.SETTINGS.vocabulary)
    kept = AutoTokenizer.from_pretrained(shipped.FOLDER)
    assert kept.get_vocab() == again.get_vocab()
    assert kept.chat_template == again.chat_template


def test_its_loss_curve_has_a_row_a_step_and_falls():
    rows = (shipped.FOLDER / "loss.csv").read_text(encoding="utf-8").splitlines()
    losses = [float(row.split(",")[1]) for row in rows[1:]]
    assert len(losses) == shipped.SETTINGS.steps
    assert sum(losses[-50:]) < 0.1 * sum(losses[:50])


def test_the_engine_gives_the_recorded_answers():
    recorded = shipped.recorded()
    loaded = load_model(str(shipped.FOLDER), dtype="float32", device="cpu")
    questions = generated.generate("generated_math", "test", shipped.QUESTIONS, seed=0)
    assert [answer["question_id"] for answer in recorded] == questions["question_id"].tolist()
    requests = []
    for question, text in zip(questions["question_id"], questions["question"], strict=True):
        chat = [{"role": "user", "content": text}]
        prompt = loaded.tokenizer.apply_chat_template(chat, add_generation_prompt=True)
        requests.append(Request(question, tuple(prompt["input_ids"])))
    engine = Engine(loaded, Decoding(max_new_tokens=shipped.LONGEST), 64)
    found = {answer.request.question_id: answer for answer in engine.run(requests, {})}
    sound = [answer for answer in recorded if answer["margin"] > SMALLEST_MARGIN]
    assert len(sound) >= 0.9 * len(recorded)
    for answer in sound:
        given = found[answer["question_id"]]
        assert list(given.token_ids) == answer["token_ids"], answer["question_id"]
        assert given.margin == pytest.approx(answer["margin"], abs=SMALLEST_MARGIN)


def test_its_record_says_how_many_of_the_recorded_answers_are_right():
    recorded = shipped.recorded()
    right = shipped.right(recorded)
    assert right == read_record(WEIGHTS)["right"]
    assert right > 0.6 * len(recorded)


def test_it_is_made_as_its_record_says(tmp_path, monkeypatch):
    monkeypatch.setattr(shipped, "QUESTIONS", 3)
    monkeypatch.setattr(shipped, "LONGEST", 5)
    small = {"layers": 2, "hidden": 24, "query_heads": 3, "kv_heads": 1, "head_dim": 8}
    settings = shipped.SETTINGS._replace(**small, steps=2, intermediate=20, vocabulary=300)
    shipped.make(tmp_path, settings)
    assert {file.name for file in tmp_path.iterdir()} == {
        file.name for file in shipped.FOLDER.iterdir()
    }
    record = read_record(intact(tmp_path / "model.safetensors"))
    assert record["fingerprint"] == fingerprint(tmp_path)
    assert record["test_questions"] == 3
    loaded = load_model(str(tmp_path), dtype="float32", device="cpu")
    assert loaded.model.dtype == torch.float32
    lines = (tmp_path / "answers.jsonl").read_text(encoding="utf-8").splitlines()
    assert all(len(json.loads(line)["token_ids"]) <= 5 for line in lines)


@pytest.mark.skipif("HEADROOM_NIGHTLY" not in os.environ, reason="nightly: trains for minutes")
def test_training_again_reaches_the_same_accuracy(tmp_path):
    shipped.make(tmp_path)
    found, kept = read_record(tmp_path / "model.safetensors"), read_record(WEIGHTS)
    assert found["right"] == pytest.approx(kept["right"], abs=0.07 * kept["test_questions"])
