"""Texts, and what is measured on them: perplexity beside transformers' own loss."""

import gzip
import json
import math

import numpy as np
import pytest
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer
from words import TEXTS

from headroom.errors import HeadroomError
from headroom.recovery.evaluation import Losses, generated_per_second, perplexity, text_losses
from headroom.recovery.texts import cut, read_texts

CHAT = [{"role": "user", "content": "w1 w2"}, {"role": "assistant", "content": "w3"}]
ROWS = [
    {"text": "w1 w2\nw3", "problem": "w4", "solution": "w5 w6"},
    {"text": "w7", "problem": "w8", "solution": "w9"},
]


def test_every_kind_of_file_gives_its_texts(tmp_path):
    lines = "\n\n".join(map(json.dumps, ROWS))
    (tmp_path / "a.jsonl").write_text(lines)
    (tmp_path / "b.jsonl.gz").write_bytes(gzip.compress(lines.encode()))
    (tmp_path / "c.txt").write_text("w1 w2\n\n w3\n")
    (tmp_path / "d.jsonl").write_text(json.dumps({"messages": CHAT}))
    assert read_texts(tmp_path / "a.jsonl") == ["w1 w2\nw3", "w7"]
    joined = read_texts(tmp_path / "b.jsonl.gz", ["problem", "solution"])
    assert joined == ["w4\n\nw5 w6", "w8\n\nw9"]
    assert read_texts(tmp_path / "c.txt") == ["w1 w2", " w3"]
    assert read_texts(tmp_path / "d.jsonl") == [CHAT]


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (None, "is no file"),
        ("\n \n", "has no text"),
        ('{"text": "a"}\n{', "line 2 is not JSON"),
        ("[1]", r"line 1 is \[1\], not an object"),
        ('{"title": "a", "n": 3}', "line 1 has no text in the field text, only in: title"),
        ('{"text": " "}', "line 1 has no text in the field text"),
        ('{"messages": [{"role": "user"}]}', "each of the messages needs the texts role and con"),
        ('{"messages": []}', "each of the messages needs"),
    ],
)
def test_what_is_wrong_is_said_with_its_line(content, message, tmp_path):
    file = tmp_path / "texts.jsonl"
    if content is not None:
        file.write_text(content)
    with pytest.raises(HeadroomError, match=message):
        read_texts(file)


def test_pieces_hold_every_token_once(llama):
    tokenizer = AutoTokenizer.from_pretrained(llama)
    pieces = cut(TEXTS, tokenizer, length=4)
    assert max(len(piece.input_ids) for piece in pieces) == 4
    for number, text in enumerate(TEXTS):
        joined = [int(each) for one in pieces if one.text == number for each in one.input_ids]
        ids = [*tokenizer(text).input_ids, tokenizer.eos_token_id]
        assert joined == ids[: len(joined)]
        assert len(ids) - len(joined) == (len(ids) % 4 == 1)  # a last token alone predicts nothing


def test_conversations_are_written_by_the_chat_template(llama):
    tokenizer = AutoTokenizer.from_pretrained(llama)
    (piece,) = cut([CHAT], tokenizer, length=30)
    expected = tokenizer.apply_chat_template(CHAT, tokenize=True, return_dict=True)["input_ids"]
    assert piece.input_ids.tolist() == expected
    assert tokenizer.decode(expected) == "user w1 w2 [END] assistant w3 [END]"


@pytest.mark.parametrize("at_once", [1, 5])
def test_the_loss_of_a_text_is_that_of_its_pieces(at_once, llama):
    model = AutoModelForCausalLM.from_pretrained(llama)
    pieces = cut(TEXTS, AutoTokenizer.from_pretrained(llama), length=5)
    found = text_losses(model, pieces, at_once)
    for number in range(len(TEXTS)):
        own = [torch.from_numpy(each.input_ids)[None] for each in pieces if each.text == number]
        with torch.no_grad():
            losses = [float(model(ids, labels=ids).loss) * (ids.shape[1] - 1) for ids in own]
        assert found.nats[number] == pytest.approx(sum(losses), rel=1e-5)
        assert found.tokens[number] == sum(ids.shape[1] - 1 for ids in own)


def test_intervals_of_perplexity_cover_what_they_claim():
    draw, covered, narrower = np.random.default_rng(0), 0, 0
    for _ in range(200):
        tokens = draw.integers(5, 60, size=40)
        nats = tokens * (2.0 + draw.normal(0, 0.6, size=40))
        harder = Losses(nats + 0.1 * tokens + draw.normal(0, 1, size=40), tokens)
        own, ratio = perplexity(Losses(nats, tokens)), perplexity(harder, Losses(nats, tokens))
        assert own.low < own.value < own.high
        assert ratio.value == pytest.approx(perplexity(harder).value / own.value)
        covered += ratio.low <= math.exp(0.1) <= ratio.high
        narrower += math.log(ratio.high / ratio.low) < 0.5 * math.log(own.high / own.low)
    assert 0.88 < covered / 200 < 0.99
    assert narrower == 200  # the same texts: their difficulty cancels


def test_generation_is_timed_at_its_full_length(llama, monkeypatch):
    model = AutoModelForCausalLM.from_pretrained(llama)
    made, generate = [], model.generate
    monkeypatch.setattr(model, "generate", lambda **o: made.append(generate(**o)) or made[-1])
    (speed,) = generated_per_second([model])
    assert {tuple(each.shape) for each in made} == {(1, 48), (8, 48)}
    assert set(speed) == {"tokens_per_second_batch_1", "tokens_per_second_batch_8"}
    assert min(speed.values()) > 0
