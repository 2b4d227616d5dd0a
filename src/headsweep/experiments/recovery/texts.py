"""The texts that a decoder is pruned and trained on: read from files, as pieces of token ids."""

import hashlib
import re
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Bool, Int
from transformers import PreTrainedTokenizerBase

from headsweep.benchmarks.sources import file_rows
from headsweep.errors import ConfigError, ModelError

_MOST_HELD_OUT = 2000  # of a default: they narrow an interval enough, and four models read them
_JSON = (".jsonl", ".jsonl.gz")
_OTHERS = (".json", ".csv", ".tsv", ".parquet", ".gz", ".zip")
"""Endings of files that are not plain text."""
_MARKED = re.compile(r"\{%-?\s*generation\s*-?%\}")
"""How a chat template marks the assistant's turns, as transformers reads it."""

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
    counted: Bool[np.ndarray, " tokens"]  # which of them a loss counts

    @property
    def targets(self) -> int:
        """How many tokens are predicted and counted; nothing predicts the first one."""
        return int(self.counted[1:].sum())


def cut(
    texts: Sequence[Text],
    tokenizer: PreTrainedTokenizerBase,
    length: int,
    *,
    assistant_only: bool = False,
) -> list[Piece]:
    """Return texts as pieces of 2 to `length` tokens; a long text becomes several.

    Conversations are written by the tokenizer's chat template, other texts get its end token. With
    `assistant_only` there are conversations alone, losses count the assistant's turns with their
    end, and pieces without any are left out.

    Raises:
        ModelError: the tokenizer has no chat template, its template refuses a conversation, or the
            assistant's turns are not known.
    """
    pieces = []
    for number, text in enumerate(texts):
        if not isinstance(text, str):
            ids, counted = _conversation(text, tokenizer, assistant_only)
        elif assistant_only:
            raise ModelError(
                f"text {number + 1} has no turns of an assistant; give messages, or leave out "
                f"assistant-only"
            )
        else:
            ids = _token_ids(text, tokenizer)
            counted = np.ones(len(ids), bool)
        for start in range(0, len(ids), length):
            part = slice(start, start + length)
            piece = Piece(number, np.array(ids[part]), counted[part])
            if piece.targets:
                pieces.append(piece)
    return pieces


def _token_ids(text: str, tokenizer: PreTrainedTokenizerBase) -> list[int]:
    ids: list[int] = tokenizer(text, verbose=False).input_ids
    end = tokenizer.eos_token_id
    return ids if end is None or ids[-1:] == [end] else [*ids, end]


def _conversation(
    messages: Sequence[Mapping[str, str]], tokenizer: PreTrainedTokenizerBase, assistant_only: bool
) -> tuple[list[int], Bool[np.ndarray, " tokens"]]:
    """Return a conversation's token ids, and which of them count."""
    if tokenizer.chat_template is None:
        raise ModelError("the model's tokenizer has no chat template; give texts, not messages")
    write = partial(_written, tokenizer)
    text = write(messages)
    if assistant_only and not tokenizer.is_fast:
        raise ModelError(
            f"{type(tokenizer).__name__} does not tell where in a text its tokens stand, so the "
            f"assistant's turns are not known; leave out assistant-only"
        )
    if assistant_only and _MARKED.search(str(tokenizer.chat_template)):
        marked = tokenizer.apply_chat_template(
            list(messages), return_dict=True, return_assistant_tokens_mask=True
        )
        return marked["input_ids"], np.array(marked["assistant_masks"], bool)
    encoded = tokenizer(
        text, add_special_tokens=False, verbose=False, return_offsets_mapping=assistant_only
    )
    counted = np.full(len(encoded.input_ids), not assistant_only)
    if assistant_only:
        begins = np.array([begin for begin, _ in encoded.offset_mapping])
        for first, end in _assistant_turns(messages, text, write):
            counted |= (first <= begins) & (begins < end)
    return encoded.input_ids, counted


def _written(
    tokenizer: PreTrainedTokenizerBase, messages: Sequence[Mapping[str, str]], **options: bool
) -> str:
    """Return messages as the chat template writes them."""
    try:
        text: str = tokenizer.apply_chat_template(list(messages), tokenize=False, **options)
    except Exception as error:  # templates raise errors of any type
        reason = str(error).partition("\n")[0]
        raise ModelError(f"the model's chat template refuses messages ({reason})") from error
    return text


def _assistant_turns(
    messages: Sequence[Mapping[str, str]], text: str, write: Callable[..., str]
) -> list[tuple[int, int]]:
    """Return where the assistant's turns begin and end in a written conversation, in characters.

    A turn begins where the template asks for an answer to what was said before. Before a first turn
    nothing was said: it begins after the words with which the template asks.

    Raises:
        ModelError: the template writes turns in another way once something follows.
    """
    turns = []
    for number, message in enumerate(messages):
        if message["role"] != "assistant":
            continue
        before = write(messages[:number], add_generation_prompt=True) if number else ""
        after = write(messages[: number + 1])
        if not (after.startswith(before) and text.startswith(after)):
            raise ModelError(
                "the model's chat template writes a turn in another way once something follows, so "
                "the assistant's turns are not known; leave out assistant-only"
            )
        begin = len(before)
        if not number:
            asking = write(messages, add_generation_prompt=True).removeprefix(text)
            begin = text.find(asking) + len(asking) if asking in text else 0
        turns.append((begin, len(after)))
    return turns


def digest(pieces: Sequence[Piece]) -> str:
    """Return 16 hex digits that tell pieces from others."""
    whole = hashlib.sha256()
    for piece in pieces:
        whole.update(f"{piece.text} {len(piece.input_ids)} ".encode() + piece.input_ids.tobytes())
    return whole.hexdigest()[:16]
