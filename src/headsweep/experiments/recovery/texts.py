"""The texts that a decoder is pruned and trained on: read from files, as pieces of token ids."""

import hashlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Int
from transformers import PreTrainedTokenizerBase

from headsweep.benchmarks.sources import file_rows
from headsweep.errors import ConfigError, ModelError

_MOST_HELD_OUT = 2000  # of a default: they narrow an interval enough, and four models read them
_JSON = (".jsonl", ".jsonl.gz")
_OTHERS = (".json", ".csv", ".tsv", ".parquet", ".gz", ".zip")
"""Endings of files that are not plain text."""

Text = str | Sequence[Mapping[str, str]]
"""A text, or a conversation: messages with `role` and `content`."""


def read_texts(file: Path, fields: Sequence[str] = ()) -> list[Text]:
    """Return the texts of a file: `.jsonl` or `.jsonl.gz`, or plain text with one text a line.

    Empty lines are skipped. Of JSON objects, the fields are joined with an empty line between them;
    by default it is `text`, or `messages`, a list of messages with `role` and `content`.

    Raises:
        ConfigError: the file is of another kind or cannot be read, a line lacks a field, fields are
            named of plain text, or there is no text.
        BenchmarkError: a file of JSON is damaged, or a line is no JSON object.
    """
    if not file.is_file():
        raise ConfigError(f"{file} is no file; name a file of texts")
    texts: list[Text]
    name = file.name.lower()
    if name.endswith(_JSON):
        texts = [_text(row, fields, f"{file} {place}") for place, row in file_rows(file, None)]
    elif name.endswith(_OTHERS):
        raise ConfigError(
            f"{file} is neither .jsonl, .jsonl.gz nor plain text such as .txt; convert it to one "
            f"JSON object a line"
        )
    elif fields:
        raise ConfigError(
            f"{file} is plain text, which has no fields; leave out --fields, or give .jsonl"
        )
    else:
        try:
            lines = file.read_text("utf-8-sig").split("\n")
        except (OSError, UnicodeDecodeError) as error:
            raise ConfigError(f"{file} cannot be read ({error}); name a file of texts") from error
        texts = [line for line in lines if line.strip()]
    if not texts:
        raise ConfigError(f"{file} has no text; give one text a line")
    return texts


def _text(row: Mapping[str, Any], fields: Sequence[str], where: str) -> Text:
    messages = row.get("messages")
    if not fields and "text" not in row and isinstance(messages, list):
        for message in messages or [None]:
            if not isinstance(message, dict) or not _filled(message, ("role", "content")):
                raise ConfigError(f"{where}: each of the messages needs the texts role and content")
        return messages
    fields = fields or ("text",)
    if not _filled(row, fields):
        has = ", ".join(name for name in row if _filled(row, [name])) or "no field"
        named = " or ".join(fields)
        raise ConfigError(f"{where} has no text in the field {named}, only in: {has}")
    return "\n\n".join(row[field] for field in fields)


def _filled(row: Mapping[str, object], fields: Sequence[str]) -> bool:
    return all(isinstance(text := row.get(name), str) and text.strip() for name in fields)


def tenth(texts: Sequence[Text]) -> tuple[list[Text], list[Text]]:
    """Return a tenth of the texts, at most 2,000, always the same, to hold out, and the others."""
    if len(texts) < 20:
        raise ModelError(f"a tenth of {len(texts)} texts is too few to hold out; give others")
    order = np.random.default_rng(0).permutation(len(texts))
    count = min(len(texts) // 10, _MOST_HELD_OUT)
    return [texts[row] for row in order[:count]], [texts[row] for row in order[count:]]


class Piece(NamedTuple):
    """A part of a text, as long as a model is to see at once."""

    text: int  # its position among all texts
    input_ids: Int[np.ndarray, " tokens"]

    @property
    def targets(self) -> int:
        """How many tokens are predicted; nothing predicts the first one."""
        return len(self.input_ids) - 1


def cut(texts: Sequence[Text], tokenizer: PreTrainedTokenizerBase, length: int) -> list[Piece]:
    """Return texts as pieces of 2 to `length` tokens; a long text becomes several.

    Conversations are written by the tokenizer's chat template, other texts get its end token.

    Raises:
        ModelError: the tokenizer has no chat template, or its template refuses a conversation.
    """
    pieces = []
    for number, text in enumerate(texts):
        if isinstance(text, str):
            ids = _token_ids(text, tokenizer)
        else:
            ids = _conversation(text, tokenizer)
        for start in range(0, len(ids), length):
            piece = Piece(number, np.array(ids[start : start + length]))
            if piece.targets:
                pieces.append(piece)
    return pieces


def _token_ids(text: str, tokenizer: PreTrainedTokenizerBase) -> list[int]:
    ids: list[int] = tokenizer(text, verbose=False).input_ids
    end = tokenizer.eos_token_id
    return ids if end is None or ids[-1:] == [end] else [*ids, end]


def _conversation(
    messages: Sequence[Mapping[str, str]], tokenizer: PreTrainedTokenizerBase
) -> list[int]:
    if tokenizer.chat_template is None:
        raise ModelError("the model's tokenizer has no chat template; give texts, not messages")
    try:
        text = tokenizer.apply_chat_template(list(messages), tokenize=False)
    except Exception as error:  # templates raise errors of any type
        reason = str(error).partition("\n")[0]
        raise ModelError(f"the model's chat template refuses messages ({reason})") from error
    ids: list[int] = tokenizer(text, add_special_tokens=False, verbose=False).input_ids
    return ids


def digest(pieces: Sequence[Piece]) -> str:
    """Return 16 hex digits that tell pieces from others."""
    whole = hashlib.sha256()
    for piece in pieces:
        whole.update(f"{piece.text} {len(piece.input_ids)} ".encode() + piece.input_ids.tobytes())
    return whole.hexdigest()[:16]
