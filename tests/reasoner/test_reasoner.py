"""A miniature reasoner learns as it should; the shipped one is and answers as its record says."""

import json
import math
import os
from functools import partial

import pytest
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

from comparing import NEAR_TIE
from headsweep.benchmarks import generated
from headsweep.benchmarks.prompts import encode_prompt
from headsweep.config import SYSTEM_PROMPT, Decoding
from headsweep.engine.engine import Engine, Request
from headsweep.experiments import reasoner
from headsweep.experiments.reasoner import ASSISTANT, END, PAD, USER
from headsweep.files.record import checked_file, read_record
from headsweep.models.load import load_model
from headsweep.models.source import fetch_model, fingerprint

SHAPE = {"layers": 2, "hidden": 44, "query_heads": 6, "kv_heads": 3, "head_dim": 8}
SIZES = {"intermediate": 50, "vocabulary": 301}
NIGHT = "HEADSWEEP_NIGHTLY" in os.environ
MINIATURE = reasoner.Settings(**SHAPE, **SIZES, steps=30, batch_size=7, seed=5)


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    output = tmp_path_factory.mktemp("reasoner")
    return output, reasoner.train_reasoner(output, MINIATURE)


@pytest.fixture(scope="module")
def folder(trained):
    return trained[0]


@pytest.fixture(scope="module")
def tokenizer(folder):
    return AutoTokenizer.from_pretrained(folder)


def test_it_loads_like_any_model_with_the_shape_asked_for(folder, tokenizer):
    model = AutoModelForCausalLM.from_pretrained(folder)
    first, second = model.model.layers
    parts = (model.lm_head, first.self_attn.q_proj, second.self_attn.k_proj, second.mlp.up_proj)
    assert [part.weight.shape for part in parts] == [(301, 44), (6 * 8, 44), (3 * 8, 44), (50, 44)]
    assert model.lm_head.weight is model.model.embed_tokens.weight
    end, pad = tokenizer.convert_tokens_to_ids([END, PAD])
    assert model.generation_config.eos_token_id == tokenizer.eos_token_id == end
    assert model.generation_config.pad_token_id == pad != end


def test_the_same_settings_give_the_same_files_and_another_seed_does_not(tmp_path):
    settings, made = MINIATURE._replace(steps=3), {}
    for name, seed in (("once", 5), ("again", 5), ("other", 6)):
        torch.manual_seed(len(made))  # no part of training may draw from the global generator
        state = torch.get_rng_state()
        reasoner.train_reasoner(tmp_path / name, settings._replace(seed=seed))
        assert torch.equal(torch.get_rng_state(), state)
        made[name] = {path.name: path.read_bytes() for path in (tmp_path / name).iterdir()}
    assert made["once"] == made["again"]
    assert made["once"]["model.safetensors"] != made["other"]["model.safetensors"]


def test_a_training_learns(trained):
    _, losses = trained
    assert len(losses) == 30
    assert losses[0] == pytest.approx(math.log(301), rel=0.05)
    assert sum(losses[-5:]) / 5 < 0.7 * losses[0]


def test_only_the_solution_is_learned_and_every_document_once(tokenizer):
    documents = list(generated.corpus(150, seed=11))
    solutions = []
    for ids, labels in reasoner._batches(documents, tokenizer, MINIATURE):
        assert ids.shape == labels.shape
        for tokens, targets in zip(ids, labels, strict=True):
            learned = targets >= 0
            assert torch.equal(tokens[1:][learned[:-1]], targets[learned])
            solutions.append(tokenizer.decode(targets[learned]))
    assert sorted(solutions) == sorted(document.solution + END for document in documents)


def test_the_loss_equals_that_of_transformers(folder, tokenizer):
    model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)
    documents = list(generated.corpus(7, seed=13))
    ((ids, labels),) = reasoner._batches(documents, tokenizer, MINIATURE)
    unshifted = torch.cat([torch.full((7, 1), -100), labels[:, :-1]], dim=1)
    mask = ids != tokenizer.pad_token_id
    with torch.inference_mode():
        expected = model(input_ids=ids, attention_mask=mask, labels=unshifted).loss
        assert reasoner._loss(model, ids, labels).item() == pytest.approx(expected.item(), rel=1e-5)


def test_the_tokenizer_keeps_any_text_and_its_template_leaves_out_the_system_text(tokenizer):
    assert len(tokenizer) == MINIATURE.vocabulary
    assert AutoTokenizer.from_pretrained(reasoner.FOLDER).chat_template == tokenizer.chat_template
    assert tokenizer.tokenize("$1907$") == ["$", "1", "9", "0", "7", "$"]
    for text in ["$\\frac{3}{4}$ of 120", "naïve 漢字 🙂\n\ttabs  and  spaces", "\\boxed{-7}"]:
        assert tokenizer.decode(tokenizer(text)["input_ids"]) == text
    roles = {"system": SYSTEM_PROMPT, "user": "What is 2?", "assistant": "It is 2."}
    system, user, assistant = ({"role": role, "content": said} for role, said in roles.items())
    render = partial(tokenizer.apply_chat_template, tokenize=False)
    asked = render([user], add_generation_prompt=True)
    assert asked == f"{USER}What is 2?{ASSISTANT}"
    assert render([system, user], add_generation_prompt=True) == asked
    assert render([system, user, assistant]) == f"{asked}It is 2.{END}"


WEIGHTS = reasoner.FOLDER / "model.safetensors"


def test_its_files_are_those_of_its_record():
    record = read_record(checked_file(WEIGHTS))
    assert record["fingerprint"] == fingerprint(reasoner.FOLDER)
    assert record["settings"] == reasoner.SETTINGS._asdict()
    assert WEIGHTS.stat().st_size < 2_200_000  # half precision
    assert fetch_model("builtin:reasoner", record["fingerprint"]) == reasoner.FOLDER
    assert len(record["losses"]) == reasoner.SETTINGS.steps / 50
    assert record["losses"][-1] < 0.1 * record["losses"][0]


def test_the_engine_gives_the_recorded_answers():
    lines = (reasoner.FOLDER / "answers.jsonl").read_text(encoding="utf-8").splitlines()
    recorded = [json.loads(line) for line in lines]
    loaded = load_model(str(reasoner.FOLDER), dtype="float32", device="cpu")
    questions = generated.generate(
        "generated_math", "test", reasoner.QUESTIONS, seed=0, apart=False
    )
    assert [answer["question_id"] for answer in recorded] == questions["question_id"].tolist()
    asked = questions if NIGHT else questions[:60]
    prompts = [
        encode_prompt(loaded.tokenizer, text, Decoding(), "math") for text in asked["question"]
    ]
    requests = [*map(Request, asked["question_id"], prompts)]
    engine = Engine(loaded, Decoding(max_new_tokens=reasoner.LONGEST), 64)
    found = {answer.request.question_id: answer for answer in engine.run(requests, {})}
    assert len(found) == len(asked)
    sound = [answer for answer in recorded if answer["margin"] > NEAR_TIE]
    assert len(sound) >= 0.9 * len(recorded)
    for answer in (answer for answer in sound if answer["question_id"] in found):
        given = found[answer["question_id"]]
        assert list(given.token_ids) == answer["token_ids"], answer["question_id"]
        assert given.margin == pytest.approx(answer["margin"], abs=NEAR_TIE)
    right = reasoner.right(recorded)
    assert right == read_record(WEIGHTS)["right"] > 0.6 * len(recorded)


def test_it_is_made_as_its_record_says(tmp_path, monkeypatch):
    monkeypatch.setattr(reasoner, "QUESTIONS", 3)
    monkeypatch.setattr(reasoner, "LONGEST", 5)
    reasoner.make(tmp_path, MINIATURE._replace(steps=2))
    made, kept = ({file.name for file in each.iterdir()} for each in (tmp_path, reasoner.FOLDER))
    assert made == kept
    record = read_record(checked_file(tmp_path / "model.safetensors"))
    assert record["fingerprint"] == fingerprint(tmp_path)
    assert record["test_questions"] == 3
    lines = (tmp_path / "answers.jsonl").read_text(encoding="utf-8").splitlines()
    assert all(len(json.loads(line)["token_ids"]) <= 5 for line in lines)


@pytest.mark.skipif(not NIGHT, reason="nightly: trains for minutes")
def test_training_again_gives_the_same_tokenizer_and_reaches_the_same_accuracy(tmp_path):
    reasoner.make(tmp_path)
    again, shipped = (AutoTokenizer.from_pretrained(one) for one in (tmp_path, reasoner.FOLDER))
    assert shipped.get_vocab() == again.get_vocab()
    found, kept = read_record(tmp_path / "model.safetensors"), read_record(WEIGHTS)
    assert found["right"] == pytest.approx(kept["right"], abs=0.07 * kept["test_questions"])
