"""A random-weight classifier on disk, as a reward model: its scores are those of transformers."""

from pathlib import Path

import pytest
import torch
from transformers import (
    AutoModelForSequenceClassification,
    AutoTokenizer,
    BertConfig,
    BertForSequenceClassification,
    LlamaConfig,
    LlamaForSequenceClassification,
    PreTrainedModel,
)

import headroom
from headroom.errors import ModelError
from headroom.models.load import word_tokenizer

WORDS = ["what", "is", "three", "times", "seven", "it", "twenty", "one", "two", "no", "user", ":"]
QUESTION = "what is three times seven"
TEXTS = ["it is twenty one", "no", "twenty two it is twenty two it is"]
SHAPE = {
    "vocab_size": 30,
    "hidden_size": 24,
    "num_hidden_layers": 2,
    "num_attention_heads": 3,
    "intermediate_size": 20,
    "max_position_embeddings": 40,
}
CHAT = "{% for m in messages %}{{ m['role'] }} : {{ m['content'] }} {% endfor %}"


def save(kind: type[PreTrainedModel], config, folder: Path, chat: str | None = None) -> Path:
    with torch.random.fork_rng(devices=[]), torch.no_grad():
        torch.manual_seed(5)
        model = kind(config)
        for parameter in model.parameters():
            parameter.normal_(std=0.4)
    model.save_pretrained(folder)
    tokenizer = word_tokenizer(WORDS, 1)
    tokenizer.chat_template = chat
    tokenizer.save_pretrained(folder)
    return folder


def expected(folder: Path, *texts: tuple[str, ...], special: bool = True) -> torch.Tensor:
    """Return the logits of texts or pairs of texts, by transformers alone."""
    model = AutoModelForSequenceClassification.from_pretrained(folder).eval()
    tokenizer = AutoTokenizer.from_pretrained(folder)
    options = {"return_tensors": "pt", "add_special_tokens": special}
    with torch.no_grad():
        return torch.cat([model(**tokenizer(*each, **options)).logits for each in texts])


@pytest.mark.parametrize("labels", [1, 2])
def test_question_and_answer_are_scored_as_a_pair(labels: int, tmp_path: Path) -> None:
    config = BertConfig(**SHAPE, num_labels=labels)
    folder = save(BertForSequenceClassification, config, tmp_path / "reward")
    logits = expected(folder, *((QUESTION, text) for text in TEXTS))
    wanted = logits[:, 0] if labels == 1 else logits[:, 1] - logits[:, 0]
    scores = headroom.RewardModel(folder, device="cpu")(QUESTION, TEXTS)
    assert scores == pytest.approx(wanted.tolist(), abs=1e-5)
    assert len(set(scores)) == 3
    swapped = headroom.RewardModel(folder, device="cpu")(TEXTS[0], [QUESTION])
    assert swapped[0] != pytest.approx(scores[0], abs=1e-3)


def test_a_decoder_with_a_chat_template_reads_messages(tmp_path: Path) -> None:
    config = LlamaConfig(**SHAPE, num_key_value_heads=1, num_labels=1, pad_token_id=None)
    folder = save(LlamaForSequenceClassification, config, tmp_path / "reward", CHAT)
    messages = [f"user : {QUESTION} assistant : {text} " for text in TEXTS]
    logits = expected(folder, *((message,) for message in messages), special=False)
    scores = headroom.RewardModel(folder, device="cpu")(QUESTION, TEXTS)
    assert scores == pytest.approx(logits[:, 0].tolist(), abs=1e-5)
    assert len(set(scores)) == 3


def test_what_is_too_long_is_cut(tmp_path: Path) -> None:
    folder = save(BertForSequenceClassification, BertConfig(**SHAPE, num_labels=1), tmp_path / "r")
    tokenizer = AutoTokenizer.from_pretrained(folder)
    tokenizer.model_max_length = 40
    tokenizer.save_pretrained(folder)
    reward = headroom.RewardModel(folder, device="cpu")
    long = " ".join([*["one"] * 50, "two"])
    assert reward(QUESTION, [long]) == reward(QUESTION, [f"{long} no"])


def test_what_is_no_reward_model_is_refused(llama: Path, tmp_path: Path) -> None:
    with pytest.raises(ModelError, match="holds a LlamaForCausalLM, not a reward model"):
        headroom.RewardModel(llama, device="cpu")
    many = save(BertForSequenceClassification, BertConfig(**SHAPE, num_labels=5), tmp_path / "5")
    with pytest.raises(ModelError, match="has 5 labels"):
        headroom.RewardModel(many, device="cpu")
