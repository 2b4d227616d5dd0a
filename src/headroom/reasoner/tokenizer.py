"""The embedded reasoner's tokenizer: Qwen2's byte-level BPE in small, and a chat template."""

from collections.abc import Iterator

from transformers import Qwen2Tokenizer

USER, ASSISTANT, END, PAD = "<|user|>", "<|assistant|>", "<|end|>", "<|pad|>"

CHAT_TEMPLATE = (
    "{% for message in messages %}"
    "{% if message['role'] == 'user' %}" + USER + "{{ message['content'] }}"
    "{% elif message['role'] == 'assistant' %}"
    + (ASSISTANT + "{{ message['content'] }}" + END)
    + "{% endif %}"
    "{% endfor %}"
    "{% if add_generation_prompt %}" + ASSISTANT + "{% endif %}"
)
"""Jinja chat template. System messages render nothing: the reasoner knows one task only, and
every token costs time."""


def train_tokenizer(texts: Iterator[str], vocabulary: int) -> Qwen2Tokenizer:
    """Train the tokenizer on questions and solutions.

    It is of Qwen2's class, which splits digits, so that `AutoTokenizer` finds the same class
    beside a Qwen2 model, whatever its version.

    Args:
        texts: what to learn merges from.
        vocabulary: number of entries, the 256 bytes and 4 special tokens included.
    """
    untrained = Qwen2Tokenizer(
        unk_token=PAD,
        pad_token=PAD,
        eos_token=END,
        additional_special_tokens=[USER, ASSISTANT],
        padding_side="left",
    )
    tokenizer = untrained.train_new_from_iterator(texts, vocabulary, show_progress=False)
    tokenizer.chat_template = CHAT_TEMPLATE
    return tokenizer
