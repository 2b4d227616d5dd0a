"""The texts that a decoder is pruned and trained on: read from files, as pieces of token ids."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Int
from transformers import PreTrainedTokenizerBase

from headsweep.benchmarks.sources import file_rows
from headsweep.errors import ConfigError, ModelError

Text = str | Sequence[Mapping[str, str]]
"""A text, or a conversation: messages with `role` and `content`."""


def read_texts(file: Path, fields: Sequence[str] = ()) -> list[Text]:
    """Return the texts of a file: `.jsonl` or `.jsonl.gz`, or plain text with one text a line.

    Empty lines are skipped. Of JSON objects, the fields are joined with an empty line between them;
    by default it is `text`, or `messages`, a list of messages with `role` and `content`.

    Raises:
        ConfigError: the file cannot be read, a line lacks a field, or there is no text.
        BenchmarkError: a file of JSON is damaged, or a line is no JSON object.
    """
    if not file.is_file():
        raise ConfigError(f"{file} is no file; name a file of texts")
    found: list[Text]
    if file.name.endswith((".jsonl", ".jsonl.gz")):
        found = [_text(row, fields, f"{file} {place}") for place, row in file_rows(file, None)]
    else:
        try:
            lines = file.read_text("utf-8").split("\n")
        except (OSError, UnicodeDecodeError) as error:
            raise ConfigError(f"{file} cannot be read ({error}); name a file of texts") from error
        found = [line for line in lines if line.strip()]
    if not found:
        raise ConfigError(f"{file} has no text; give one text a line")
    return found


def _text(row: Mapping[str, Any], fields: Sequence[str], where: str) -> Text:
    messages = row.get("messages")
    if not fields and "text" not in row and isinstance(messages, list):
        for each in messages or [None]:
            if not isinstance(each, dict) or not _filled(each, ("role", "content")):
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


class Piece(NamedTuple):
    """A part of a text, as long as a model is to see at once."""

    text: int  # its position among all texts
    input_ids: Int[np.ndarray, " tokens"]


def cut(texts: Sequence[Text], tokenizer: PreTrainedTokenizerBase, length: int) -> list[Piece]:
    """Return texts as pieces of 2 to `length` tokens; a long text becomes several.

    Conversations are written by the tokenizer's chat template, other texts get its end token.

    Raises:
        ModelError: the tokenizer has no chat template, or its template refuses a conversation.
    """
    found = []
    for number, text in enumerate(texts):
        ids = _token_ids(text, tokenizer)
        parts = [ids[start : start + length] for start in range(0, len(ids), length)]
        found += [Piece(number, np.array(part)) for part in parts if len(part) > 1]
    return found


def _token_ids(text: Text, tokenizer: PreTrainedTokenizerBase) -> list[int]:
    if isinstance(text, str):
        ids: list[int] = tokenizer(text, verbose=False).input_ids
        end = tokenizer.eos_token_id
        return ids if end is None or ids[-1:] == [end] else [*ids, end]
    if tokenizer.chat_template is None:
        raise ModelError("the model's tokenizer has no chat template; give texts, not messages")
    try:
        written = tokenizer.apply_chat_template(list(text), tokenize=False)
    except Exception as error:  # templates raise errors of any type
        reason = str(error).partition("\n")[0]
        raise ModelError(f"the model's chat template refuses messages ({reason})") from error
    return tokenizer(written, add_special_tokens=False, verbose=False).input_ids
