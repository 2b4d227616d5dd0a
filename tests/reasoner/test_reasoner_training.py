"""A miniature reasoner: loads like any model, learns, and comes out the same each time."""

import logging
import math
import re
from pathlib import Path

import pytest
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer, PreTrainedTokenizerBase

from headroom.benchmarks import generated
from headroom.config import SYSTEM_PROMPT
from headroom.reasoner import training
from headroom.reasoner.training import ASSISTANT, END, PAD, USER

MINIATURE = training.Settings(
    layers=2,
    hidden=44,
    query_heads=6,
    kv_heads=3,
    head_dim=8,
    intermediate=50,
    vocabulary=301,
    steps=30,
    batch_size=7,
    seed=5,
)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    output = tmp_path_factory.mktemp("reasoner")
    training.train_reasoner(output, MINIATURE)
    return output


@pytest.fixture(scope="module")
def tokenizer(folder: Path) -> PreTrainedTokenizerBase:
    return AutoTokenizer.from_pretrained(folder)


def test_it_loads_like_any_model_with_the_shape_asked_for(folder, tokenizer):
    model = AutoModelForCausalLM.from_pretrained(folder)
    attention = model.model.layers[0].self_attn
    assert len(model.model.layers) == 2
    assert attention.q_proj.weight.shape == (6 * 8, 44)
    assert attention.k_proj.weight.shape == (3 * 8, 44)
    assert attention.o_proj.weight.shape == (44, 6 * 8)
    assert model.model.layers[0].mlp.up_proj.weight.shape == (50, 44)
    assert model.lm_head.weight.shape == (301, 44)
    assert model.lm_head.weight is model.model.embed_tokens.weight
    end = tokenizer.convert_tokens_to_ids(END)
    assert model.generation_config.eos_token_id == tokenizer.eos_token_id == end
    assert model.generation_config.pad_token_id == tokenizer.convert_tokens_to_ids(PAD) != end


def test_the_same_settings_give_the_same_files_and_another_seed_does_not(folder, tmp_path):
    again, other = tmp_path / "again", tmp_path / "other"
    torch.manual_seed(99)  # no part of training may draw from the global generator
    training.train_reasoner(again, MINIATURE)
    training.train_reasoner(other, MINIATURE._replace(seed=6))
    files = {path.name: path.read_bytes() for path in folder.iterdir()}
    assert files == {path.name: path.read_bytes() for path in again.iterdir()}
    assert files["model.safetensors"] != (other / "model.safetensors").read_bytes()


def test_the_loss_falls_progress_is_reported_and_the_process_is_left_as_it_was(
    tmp_path, caplog, monkeypatch
):
    monkeypatch.setattr(training, "_SECONDS_BETWEEN_REPORTS", 0)
    state = torch.get_rng_state()
    with caplog.at_level(logging.INFO):
        training.train_reasoner(tmp_path, MINIATURE)
    assert torch.equal(torch.get_rng_state(), state)
    lines = re.findall(r"step (\d+) of 30, loss (\S+), \d+ s left", caplog.text)
    losses = [float(loss) for _, loss in lines]
    assert [int(step) for step, _ in lines] == list(range(1, 31))
    assert losses[0] == pytest.approx(math.log(301), rel=0.05)
    assert sum(losses[-5:]) / 5 < 0.7 * losses[0]


def test_only_the_solution_is_learned_and_every_document_once(tokenizer):
    documents = list(generated.corpus(150, seed=11))
    solutions = []
    for ids, labels in training._batches(documents, tokenizer, MINIATURE):
        assert ids.shape == labels.shape
        for tokens, targets in zip(ids, labels, strict=True):
            learned = targets >= 0
            assert torch.equal(tokens[1:][learned[:-1]], targets[learned])
            solutions.append(tokenizer.decode(targets[learned]))
    assert sorted(solutions) == sorted(document.solution + END for document in documents)


def test_the_loss_equals_that_of_transformers(folder, tokenizer):
    model = AutoModelForCausalLM.from_pretrained(folder)
    documents = list(generated.corpus(7, seed=13))
    ((ids, labels),) = training._batches(documents, tokenizer, MINIATURE)
    unshifted = torch.cat([torch.full((7, 1), -100), labels[:, :-1]], dim=1)
    mask = ids != tokenizer.pad_token_id
    with torch.inference_mode():
        expected = model(input_ids=ids, attention_mask=mask, labels=unshifted).loss
        assert training._loss(model, ids, labels).item() == pytest.approx(expected.item(), rel=1e-5)


def test_digits_are_single_and_any_text_survives_the_tokenizer(tokenizer):
    assert len(tokenizer) == MINIATURE.vocabulary
    assert tokenizer.tokenize("$1907$") == ["$", "1", "9", "0", "7", "$"]
    for text in ["$\\frac{3}{4}$ of 120", "naïve 漢字 🙂\n\ttabs  and  spaces", "\\boxed{-7}"]:
        assert tokenizer.decode(tokenizer(text)["input_ids"]) == text


def test_the_chat_template_renders_questions_and_answers_without_the_system_text(tokenizer):
    system = {"role": "system", "content": SYSTEM_PROMPT}
    user = {"role": "user", "content": "What is 2?"}
    assistant = {"role": "assistant", "content": "It is 2."}

    def render(*messages: dict[str, str], prompt: bool = False) -> str:
        return tokenizer.apply_chat_template(
            list(messages), tokenize=False, add_generation_prompt=prompt
        )

    assert render(user, prompt=True) == f"{USER}What is 2?{ASSISTANT}"
    assert render(system, user, prompt=True) == render(user, prompt=True)
    assert render(system, user, assistant) == render(user, prompt=True) + f"It is 2.{END}"
