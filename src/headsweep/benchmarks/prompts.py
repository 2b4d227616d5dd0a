r"""From a question to the token ids of its prompt.

- `default`: the model's own chat template with the system line and the question, then the opening
  of the assistant's turn. A template that refuses a system role gets the system line in front of
  the question. A tokenizer without chat template gets plain text:
  ``{system}\n\nQuestion: {question}\nAnswer:``. A `template` of the user's takes the place of all
  that.
- `authors`: the prompts that the paper's public code writes by hand (HieuNT91/attention_pruning at
  ded32c1): ChatML for tokenizers that know ``<|im_start|>``, with one newline more after the
  system turn than Qwen's own template, and for GSM8K two after the question; for MATH the Llama 3
  format for those that know ``<|start_header_id|>``, without the two newlines that its own template
  puts after the assistant's header, and with the second BOS that the tokenizer puts there; for
  tokenizers without chat template, the one line that it gives to base models. The authors wrote no
  other prompts, none for Llama on GSM8K: these models get their own template with the authors'
  system line.
"""

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

from jinja2 import TemplateError
from transformers import PreTrainedTokenizerBase

from headsweep.config import SYSTEM_PROMPT, Decoding, GraderName
from headsweep.config.questions import QUESTION
from headsweep.errors import BenchmarkError, ModelError, cause_of
from headsweep.files.plain_files import read_plain
from headsweep.machine.limited import within_limits
from headsweep.models.chat_templates import rendered
from headsweep.models.checkpoints import stated_config
from headsweep.models.geometry import most_tokens
from headsweep.models.load import load_tokenizer
from headsweep.models.source import BUILTIN, tokenizer_files

_AROUND = 1000  # tokens of a chat template around a text, at most
_NAMED = 10  # questions in an error
_EXAMPLE = "What is 1 + 1?"
# of CPU time that a stranger's template and tokenizer may take, and for each prompt
_SECONDS, _SECONDS_EACH = 60.0, 0.05
_AUTHORS_GSM8K = "Solve the following question."
_CHATML = (
    "<|im_start|>system\n{system}<|im_end|>\n\n"
    "<|im_start|>user\n{question}{end}<|im_end|>\n"
    "<|im_start|>assistant\n"
)
_LLAMA3 = (
    "<|begin_of_text|><|begin_of_text|><|start_header_id|>system<|end_header_id|>\n\n{system}<|eot_id|>"
    "<|start_header_id|>user<|end_header_id|>\n\n{question}<|eot_id|>"
    "<|start_header_id|>assistant<|end_header_id|>"
)
_AUTHORS_PLAIN = "Question: {question}. Let's think step by step."
_PLAIN = "{system}Question: {question}\nAnswer:"


def prompt_text(
    tokenizer: PreTrainedTokenizerBase, question: str, decoding: Decoding, grader_name: GraderName
) -> str:
    """Return the whole prompt, special tokens written out (BOS only where a template has one)."""
    if decoding.template is not None:
        return decoding.template.replace(QUESTION, question)
    if decoding.prompt == "default":
        return _own_prompt(tokenizer, question, decoding.system)
    system, end = (_AUTHORS_GSM8K, "\n\n") if grader_name == "gsm8k" else (SYSTEM_PROMPT, "")
    vocabulary = tokenizer.get_vocab()
    if "<|im_start|>" in vocabulary:
        template = _CHATML
    elif "<|start_header_id|>" in vocabulary:
        template = "" if grader_name == "gsm8k" else _LLAMA3
    else:
        template = _AUTHORS_PLAIN if tokenizer.chat_template is None else ""
    if not template:
        return _own_prompt(tokenizer, question, system)
    return template.format(system=system, question=question, end=end)


def encode_prompt(
    tokenizer: PreTrainedTokenizerBase, question: str, decoding: Decoding, grader_name: GraderName
) -> tuple[int, ...]:
    """Return a prompt's token ids, with the BOS that the tokenizer asks for, added once.

    Raises:
        BenchmarkError: the question has no text, as in a set that was exported without texts.
    """
    if not question.strip():
        raise BenchmarkError(
            "a question has no text, so no model can be asked: its set was exported without texts; "
            "give the benchmark's `file` or `dataset` in the config, and remove the set's file in "
            "results/store/questions"
        )
    text = prompt_text(tokenizer, question, decoding, grader_name)
    ids = tokenizer(text, add_special_tokens=False)["input_ids"]
    is_plain = tokenizer.chat_template is None or decoding.template is not None
    if is_plain and ids[:1] != [tokenizer.bos_token_id]:
        # Plain text: whatever the tokenizer puts before an empty text, usually BOS or nothing.
        opening = tokenizer("")["input_ids"]
        ids = [token for token in opening if token == tokenizer.bos_token_id] + ids
    return tuple(ids)


def check_prompts(
    folder: Path, texts: Mapping[str, str], decoding: Decoding, grader_name: GraderName
) -> None:
    """Refuse questions that a model cannot read, all at once and before the first is answered.

    Args:
        folder: the model's.
        texts: of the questions, by their ids.
        decoding: says how prompts are written.
        grader_name: likewise.

    Raises:
        ModelError: prompts have as many tokens as the model reads in all, or more; or the model's
            template or tokenizer fails, or takes too much time or memory.
        BenchmarkError: see `encode_prompt`.
    """
    most = most_tokens(stated_config(folder))
    # A token has at least a byte, so that the package's own model need not be asked.
    written = decoding.template or decoding.system or ""
    longest = max(map(_size, texts.values()), default=0) + _size(written)
    if _is_ours(folder) and (most is None or longest < most):
        return
    prompts = encode_within_limits(folder, [*texts.values()], decoding, grader_name).prompts
    too_long = [
        question
        for question, prompt in zip(texts, prompts, strict=True)
        if most is not None and len(prompt) >= most
    ]
    if too_long:
        raise ModelError(
            f"the prompts of {len(too_long)} questions have {most} tokens or more, which is all "
            f"that the model reads: {', '.join(too_long[:_NAMED])}; leave them out, or use a "
            f"model with more positions"
        )


class Encoded(NamedTuple):
    """The token ids of prompts, and of texts that stand alone, in order."""

    prompts: list[list[int]]
    texts: list[list[int]]


def encode_within_limits(
    folder: Path,
    questions: Sequence[str],
    decoding: Decoding,
    grader_name: GraderName,
    texts: Sequence[str] = (),
) -> Encoded:
    """Return the token ids of questions' prompts and of other texts, by a stranger's tokenizer.

    Raises:
        ModelError: the model has no tokenizer; its template or tokenizer fails or never ends.
        BenchmarkError: see `encode_prompt`.
    """

    def encode() -> Encoded:
        tokenizer = load_tokenizer(folder)
        return Encoded(
            [[*encode_prompt(tokenizer, each, decoding, grader_name)] for each in questions],
            [
                tokenizer(text, add_special_tokens=False)["input_ids"] if text else []
                for text in texts
            ],
        )

    seconds = _SECONDS + _SECONDS_EACH * (len(questions) + len(texts))
    return Encoded(*within_limits(encode, f"the chat template in {folder}", seconds))


def check_reading(folder: Path, decodings: Iterable[Decoding]) -> None:
    """Refuse a model whose config, tokenizer or template fails, or takes too much time or memory.

    Raises:
        ModelError: see `within_limits`.
    """

    def read() -> None:
        stated_config(folder)
        tokenizer = load_tokenizer(folder)
        for decoding in decodings:
            for grader_name in ("math", "gsm8k"):
                encode_prompt(tokenizer, _EXAMPLE, decoding, grader_name)

    if not _is_ours(folder):
        within_limits(read, f"the config or tokenizer in {folder}", _SECONDS)


def _is_ours(folder: Path) -> bool:
    """Tell whether a folder has the tokenizer and the template of a model of the package."""
    for own in BUILTIN.values():
        files = tokenizer_files(own)
        if [file.name for file in files] == [file.name for file in tokenizer_files(folder)]:
            return all(read_plain(file) == read_plain(folder / file.name) for file in files)
    return False


def _size(text: str) -> int:
    """Return how many tokens a text has at most, with what a chat template writes around it."""
    return len(text.encode()) + _AROUND


def prompt_facts(
    tokenizer: PreTrainedTokenizerBase, decoding: Decoding, grader_name: GraderName
) -> dict[str, Any]:
    """Return what a record says of the prompt: its example, and hashes of template and example."""
    example_request = tokenizer, _EXAMPLE, decoding, grader_name
    example = prompt_text(*example_request)
    template = tokenizer.chat_template
    return {
        "preset": decoding.prompt,
        "chat_template_sha256": None if template is None else _sha256(str(template)),
        "example": example,
        "example_tokens": list(encode_prompt(*example_request)),
        "example_sha256": _sha256(example),
    }


def _own_prompt(tokenizer: PreTrainedTokenizerBase, question: str, system: str | None) -> str:
    if tokenizer.chat_template is None:
        return _PLAIN.format(system=f"{system}\n\n" if system else "", question=question)
    user = {"role": "user", "content": question}
    try:
        if system is None:
            return rendered(tokenizer, [user])
        with suppress(TemplateError):  # it may know no system's turn
            return rendered(tokenizer, [{"role": "system", "content": system}, user])
        return rendered(tokenizer, [{"role": "user", "content": f"{system}\n\n{question}"}])
    except TemplateError as error:
        raise ModelError(
            f"the chat template of {tokenizer.name_or_path} refuses a question "
            f"({cause_of(error, 200)}); correct it, or use another model: templates have no "
            f"filters `random` and `pprint` here, and no `lipsum`"
        ) from error


def _sha256(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()
