"""Prompts for tokenizers with and without a chat template."""

import pytest
from tokenizers import Tokenizer, models, pre_tokenizers, processors
from transformers import PreTrainedTokenizerFast

from headsweep.benchmarks.prompts import encode_prompt, prompt_text
from headsweep.config import SYSTEM_PROMPT, Decoding
from headsweep.errors import BenchmarkError

QUESTION = r"What is \frac{1}{2} of {system}?"
TURNS = (
    "{{ bos_token }}{% for message in messages %}"
    "[{{ message['role'] }}]{{ message['content'] }}{% endfor %}"
    "{% if add_generation_prompt %}[assistant]{% endif %}"
)
NO_SYSTEM = (
    "{% if messages[0]['role'] == 'system' %}"
    "{{ raise_exception('System role not supported') }}{% endif %}" + TURNS
)


def tokenizer(*special, template=None, adds_bos=False):
    """A byte-level tokenizer that knows nothing but bytes and special tokens."""
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    vocabulary = {token: number for number, token in enumerate(["<s>", *alphabet])}
    inner = Tokenizer(models.BPE(vocabulary, []))
    inner.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    if adds_bos:
        inner.post_processor = processors.TemplateProcessing("<s> $A", special_tokens=[("<s>", 0)])
    return PreTrainedTokenizerFast(
        tokenizer_object=inner,
        bos_token="<s>",
        additional_special_tokens=list(special),
        chat_template=template,
    )


CHAT, PLAIN, STRICT = tokenizer(template=TURNS), tokenizer(), tokenizer(template=NO_SYSTEM)
QWEN = tokenizer("<|im_start|>", "<|im_end|>", template=TURNS)
LLAMA = tokenizer(
    *("<|begin_of_text|>", "<|start_header_id|>", "<|end_header_id|>", "<|eot_id|>"), template=TURNS
)
AUTHORS = Decoding(prompt="authors")
STEPS = "Please reason step by step, and put your final answer within \\boxed{}."
SOLVE = "Solve the following question."
OF_GSM8K = f"<s>[system]{SOLVE}[user]{QUESTION}[assistant]"
# One newline more after the system's turn; a second BOS.
OF_QWEN = (
    "<|im_start|>system\n{}<|im_end|>\n\n<|im_start|>user\n{}<|im_end|>\n<|im_start|>assistant\n"
)
OF_LLAMA = (
    "<|begin_of_text|><|begin_of_text|><|start_header_id|>system<|end_header_id|>\n\n{}<|eot_id|>"
    "<|start_header_id|>user<|end_header_id|>\n\n{}<|eot_id|>"
    "<|start_header_id|>assistant<|end_header_id|>"
)


@pytest.mark.parametrize(
    ("known", "decoding", "family", "expected"),
    [
        # The model's own template; without the system's turn; the line before the question.
        (CHAT, Decoding(), "math", f"<s>[system]{SYSTEM_PROMPT}[user]{QUESTION}[assistant]"),
        (CHAT, Decoding(system=None), "math", f"<s>[user]{QUESTION}[assistant]"),
        (STRICT, Decoding(), "math", f"<s>[user]{SYSTEM_PROMPT}\n\n{QUESTION}[assistant]"),
        # Without a template.
        (PLAIN, Decoding(system="Think."), "math", f"Think.\n\nQuestion: {QUESTION}\nAnswer:"),
        (PLAIN, Decoding(system=None), "math", f"Question: {QUESTION}\nAnswer:"),
        # The authors', with two newlines after GSM8K's question; their own template with their
        # system line where they wrote no prompt.
        (QWEN, AUTHORS, "math", OF_QWEN.format(STEPS, QUESTION)),
        (QWEN, AUTHORS, "gsm8k", OF_QWEN.format(SOLVE, f"{QUESTION}\n\n")),
        (LLAMA, AUTHORS, "math", OF_LLAMA.format(STEPS, QUESTION)),
        (LLAMA, AUTHORS, "gsm8k", OF_GSM8K),
        (CHAT, AUTHORS, "gsm8k", OF_GSM8K),
        (PLAIN, AUTHORS, "math", f"Question: {QUESTION}. Let's think step by step."),
    ],
)
def test_the_prompt_is_that_of_tokenizer_decoding_and_family(known, decoding, family, expected):
    assert prompt_text(known, QUESTION, decoding, family) == expected


@pytest.mark.parametrize("adds_bos", [False, True])
def test_a_template_of_ones_own_is_plain_text_whatever_the_model_s_own_is(adds_bos):
    chat = tokenizer(template=TURNS, adds_bos=adds_bos)
    own = Decoding(template="Q: {question}\nA:", system="unused")
    assert prompt_text(chat, QUESTION, own, "math") == f"Q: {QUESTION}\nA:"
    text = chat(f"Q: {QUESTION}\nA:", add_special_tokens=False)["input_ids"]
    opening = [chat.bos_token_id] if adds_bos else []
    assert encode_prompt(chat, QUESTION, own, "math") == (*opening, *text)


@pytest.mark.parametrize("adds_bos", [False, True])
def test_the_default_prompt_has_no_second_bos(adds_bos):
    chat = tokenizer(template=TURNS, adds_bos=adds_bos)
    ids = encode_prompt(chat, QUESTION, Decoding(), "math")
    assert ids[0] == chat.bos_token_id
    assert ids.count(chat.bos_token_id) == 1
    turns = [{"role": "system", "content": SYSTEM_PROMPT}, {"role": "user", "content": QUESTION}]
    assert chat.apply_chat_template(turns, add_generation_prompt=True)["input_ids"] == list(ids)
    plain = tokenizer(adds_bos=adds_bos)
    ids = encode_prompt(plain, QUESTION, Decoding(), "math")
    assert ids.count(plain.bos_token_id) == int(adds_bos)
    assert list(ids) == plain(prompt_text(plain, QUESTION, Decoding(), "math"))["input_ids"]


@pytest.mark.parametrize("question", ["", " \n"])
def test_a_question_without_text_is_never_asked(question):
    """Sets that were exported without texts have none; models would answer all the same."""
    with pytest.raises(BenchmarkError, match=r"no text.* remove the set's file in results/store"):
        encode_prompt(tokenizer(), question, Decoding(), "math")
