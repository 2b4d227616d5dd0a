"""Prompts for tokenizers with and without a chat template."""

import pytest
from tokenizers import Tokenizer, models, pre_tokenizers, processors
from transformers import PreTrainedTokenizerFast

from headroom.config import SYSTEM_PROMPT, Decoding
from headroom.generation.prompts import encode_prompt, prompt_facts, prompt_text

QUESTION = "What is 2 + 3?"
TURNS = (
    "{{ bos_token }}{% for message in messages %}"
    "[{{ message['role'] }}]{{ message['content'] }}{% endfor %}"
    "{% if add_generation_prompt %}[assistant]{% endif %}"
)
NO_SYSTEM = (
    "{% if messages[0]['role'] == 'system' %}"
    "{{ raise_exception('System role not supported') }}{% endif %}" + TURNS
)


def tokenizer(
    *special: str, template: str | None = None, adds_bos: bool = False
) -> PreTrainedTokenizerFast:
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


def test_default_prompt_is_the_models_own_template() -> None:
    text = prompt_text(tokenizer(template=TURNS), QUESTION, Decoding(), "math")
    assert text == f"<s>[system]{SYSTEM_PROMPT}[user]{QUESTION}[assistant]"


def test_a_system_line_of_none_leaves_the_system_turn_out() -> None:
    text = prompt_text(tokenizer(template=TURNS), QUESTION, Decoding(system=None), "math")
    assert text == f"<s>[user]{QUESTION}[assistant]"


def test_a_template_that_refuses_a_system_role_gets_its_text_before_the_question() -> None:
    text = prompt_text(tokenizer(template=NO_SYSTEM), QUESTION, Decoding(), "math")
    assert text == f"<s>[user]{SYSTEM_PROMPT}\n\n{QUESTION}[assistant]"


def test_a_tokenizer_without_template_gets_plain_text() -> None:
    text = prompt_text(tokenizer(), QUESTION, Decoding(system="Think."), "math")
    assert text == f"Think.\n\nQuestion: {QUESTION}\nAnswer:"
    text = prompt_text(tokenizer(), QUESTION, Decoding(system=None), "math")
    assert text == f"Question: {QUESTION}\nAnswer:"


def test_authors_chatml_has_one_newline_more_after_the_system_turn() -> None:
    known = tokenizer("<|im_start|>", "<|im_end|>", template=TURNS)
    text = prompt_text(known, QUESTION, Decoding(prompt="authors"), "math")
    assert text == (
        "<|im_start|>system\nPlease reason step by step, and put your final answer within "
        "\\boxed{}.<|im_end|>\n\n<|im_start|>user\nWhat is 2 + 3?<|im_end|>\n"
        "<|im_start|>assistant\n"
    )


def test_authors_chatml_for_gsm8k_has_two_newlines_after_the_question() -> None:
    known = tokenizer("<|im_start|>", "<|im_end|>", template=TURNS)
    text = prompt_text(known, QUESTION, Decoding(prompt="authors"), "gsm8k")
    assert text == (
        "<|im_start|>system\nSolve the following question.<|im_end|>\n\n"
        "<|im_start|>user\nWhat is 2 + 3?\n\n<|im_end|>\n<|im_start|>assistant\n"
    )


def test_authors_llama_prompt_is_for_math_and_has_two_bos() -> None:
    headers = ("<|begin_of_text|>", "<|start_header_id|>", "<|end_header_id|>", "<|eot_id|>")
    known = tokenizer(*headers, template=TURNS)
    authors = Decoding(prompt="authors")
    text = prompt_text(known, QUESTION, authors, "math")
    assert text == (
        "<|begin_of_text|><|begin_of_text|><|start_header_id|>system<|end_header_id|>\n\n"
        "Please reason step by step, and put your final answer within \\boxed{}.<|eot_id|>"
        "<|start_header_id|>user<|end_header_id|>\n\n"
        "What is 2 + 3?<|eot_id|><|start_header_id|>assistant<|end_header_id|>"
    )
    ids = list(encode_prompt(known, text))
    assert ids[:2] == [known.convert_tokens_to_ids("<|begin_of_text|>")] * 2
    own = prompt_text(known, QUESTION, authors, "gsm8k")
    assert own == f"<s>[system]Solve the following question.[user]{QUESTION}[assistant]"


def test_authors_prompt_for_other_tokenizers() -> None:
    authors = Decoding(prompt="authors")
    plain = prompt_text(tokenizer(), QUESTION, authors, "math")
    assert plain == f"Question: {QUESTION}. Let's think step by step."
    own = prompt_text(tokenizer(template=TURNS), QUESTION, authors, "gsm8k")
    assert own == f"<s>[system]Solve the following question.[user]{QUESTION}[assistant]"


def test_braces_in_a_question_stay_as_they_are() -> None:
    question = r"What is \frac{1}{2} of {system}?"
    known = tokenizer("<|im_start|>", template=TURNS)
    assert question in prompt_text(known, question, Decoding(prompt="authors"), "math")
    assert question in prompt_text(tokenizer(), question, Decoding(), "math")


@pytest.mark.parametrize("adds_bos", [False, True])
def test_the_default_prompt_has_no_second_bos(adds_bos: bool) -> None:
    chat = tokenizer(template=TURNS, adds_bos=adds_bos)
    ids = encode_prompt(chat, prompt_text(chat, QUESTION, Decoding(), "math"))
    assert ids[0] == chat.bos_token_id
    assert ids.count(chat.bos_token_id) == 1
    plain = tokenizer(adds_bos=adds_bos)
    ids = encode_prompt(plain, prompt_text(plain, QUESTION, Decoding(), "math"))
    assert ids.count(plain.bos_token_id) == int(adds_bos)
    assert list(ids) == plain(prompt_text(plain, QUESTION, Decoding(), "math"))["input_ids"]


def test_facts_name_template_and_example_by_their_hashes() -> None:
    facts = prompt_facts(tokenizer(template=TURNS), Decoding(), "math")
    other = prompt_facts(tokenizer(template=NO_SYSTEM), Decoding(), "math")
    assert facts["chat_template_sha256"] != other["chat_template_sha256"]
    assert facts["example_sha256"] != other["example_sha256"]
    assert prompt_facts(tokenizer(), Decoding(), "math")["chat_template_sha256"] is None
