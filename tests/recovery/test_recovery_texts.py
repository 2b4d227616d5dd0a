"""Texts: what a file holds, and the pieces of token ids that a model sees."""

import gzip
import json

import pytest
from transformers import AutoTokenizer
from words import TEXTS

from headroom.errors import HeadroomError
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
    assert read_texts(tmp_path / "b.jsonl.gz", ["problem", "solution"]) == [
        "w4\n\nw5 w6",
        "w8\n\nw9",
    ]
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
