"""A miniature reasoner: loads like any model, learns, and comes out the same each time."""

import logging
import math
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer, PreTrainedTokenizerBase

from headroom.benchmarks import generated
from headroom.config import SYSTEM_PROMPT, Reasoner
from headroom.reasoner import training
from headroom.reasoner.training import ASSISTANT, END, PAD, USER, Muon, orthogonal

MINIATURE = Reasoner(
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
    training.train_reasoner(output, MINIATURE, threads=3)
    return output


@pytest.fixture(scope="module")
def tokenizer(folder: Path) -> PreTrainedTokenizerBase:
    return AutoTokenizer.from_pretrained(folder)


def test_it_loads_like_any_model_with_the_shape_asked_for(folder: Path) -> None:
    model = AutoModelForCausalLM.from_pretrained(folder)
    attention = model.model.layers[0].self_attn
    assert len(model.model.layers) == 2
    assert attention.q_proj.weight.shape == (6 * 8, 44)
    assert attention.k_proj.weight.shape == (3 * 8, 44)
    assert attention.o_proj.weight.shape == (44, 6 * 8)
    assert model.model.layers[0].mlp.up_proj.weight.shape == (50, 44)
    assert model.lm_head.weight.shape == (301, 44)
    assert model.lm_head.weight is model.model.embed_tokens.weight


def test_generation_stops_at_the_end_of_the_answer(
    folder: Path, tokenizer: PreTrainedTokenizerBase
) -> None:
    model = AutoModelForCausalLM.from_pretrained(folder)
    end = tokenizer.convert_tokens_to_ids(END)
    assert model.generation_config.eos_token_id == tokenizer.eos_token_id == end
    assert model.generation_config.pad_token_id == tokenizer.convert_tokens_to_ids(PAD) != end


def test_the_same_settings_give_the_same_files_and_another_seed_does_not(
    folder: Path, tmp_path: Path
) -> None:
    again, other = tmp_path / "again", tmp_path / "other"
    torch.manual_seed(99)  # no part of training may draw from the global generator
    training.train_reasoner(again, MINIATURE, threads=3)
    training.train_reasoner(other, MINIATURE.model_copy(update={"seed": 6}), threads=3)
    files = {path.name: path.read_bytes() for path in folder.iterdir()}
    assert files == {path.name: path.read_bytes() for path in again.iterdir()}
    assert files["model.safetensors"] != (other / "model.safetensors").read_bytes()


def test_the_loss_falls_progress_is_reported_and_the_process_is_left_as_it_was(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(training, "_SECONDS_BETWEEN_REPORTS", 0)
    state, threads = torch.get_rng_state(), torch.get_num_threads()
    with caplog.at_level(logging.INFO):
        training.train_reasoner(tmp_path, MINIATURE, threads=1)
    assert torch.get_float32_matmul_precision() == "highest"
    assert torch.get_num_threads() == threads
    assert torch.equal(torch.get_rng_state(), state)
    lines = re.findall(r"step (\d+) of 30, loss (\S+), \S+ steps/s, \d+ s left", caplog.text)
    losses = [float(loss) for _, loss in lines]
    assert [int(step) for step, _ in lines] == list(range(1, 31))
    assert losses[0] == pytest.approx(math.log(301), rel=0.05)
    assert sum(losses[-5:]) / 5 < 0.7 * losses[0]


def test_only_the_solution_is_learned_and_every_document_once(
    tokenizer: PreTrainedTokenizerBase,
) -> None:
    documents = list(generated.corpus(150, seed=11))
    solutions = []
    for ids, labels in training._batches(documents, tokenizer, MINIATURE):
        assert ids.shape == labels.shape
        for tokens, targets in zip(ids, labels, strict=True):
            learned = targets >= 0
            assert torch.equal(tokens[1:][learned[:-1]], targets[learned])
            solutions.append(tokenizer.decode(targets[learned]))
    assert sorted(solutions) == sorted(document.solution + END for document in documents)


def test_the_loss_equals_that_of_transformers(
    folder: Path, tokenizer: PreTrainedTokenizerBase
) -> None:
    model = AutoModelForCausalLM.from_pretrained(folder)
    documents = list(generated.corpus(7, seed=13))
    ((ids, labels),) = training._batches(documents, tokenizer, MINIATURE)
    unshifted = torch.cat([torch.full((7, 1), -100), labels[:, :-1]], dim=1)
    mask = ids != tokenizer.pad_token_id
    with torch.inference_mode():
        expected = model(input_ids=ids, attention_mask=mask, labels=unshifted).loss
        mean = training._loss(model, ids, labels) / (labels >= 0).sum()
        assert mean.item() == pytest.approx(expected.item(), rel=1e-5)


def test_threads_share_the_work_and_the_gradients_of_their_parts_make_the_batch(
    folder: Path, tokenizer: PreTrainedTokenizerBase, monkeypatch: pytest.MonkeyPatch
) -> None:
    documents = list(generated.corpus(3 * 7, seed=13))
    batches = list(training._batches(documents, tokenizer, MINIATURE))
    rows = []
    shares = training._gradients

    def watched(model: Any, part: Any) -> Any:
        rows.append(len(part[0]))
        return shares(model, part)

    monkeypatch.setattr(training, "_gradients", watched)
    models = [AutoModelForCausalLM.from_pretrained(folder).double() for _ in range(2)]
    training._fit(models[0], batches, workers=1)
    training._fit(models[1], batches, workers=3)
    assert sorted(rows) == 6 * [2] + 3 * [3] + 3 * [7]
    for alone, shared in zip(*(model.parameters() for model in models), strict=True):
        torch.testing.assert_close(shared, alone, rtol=1e-3, atol=1e-4)


def test_digits_are_single_and_any_text_survives_the_tokenizer(
    tokenizer: PreTrainedTokenizerBase,
) -> None:
    assert len(tokenizer) == MINIATURE.vocabulary
    assert tokenizer.tokenize("$1907$") == ["$", "1", "9", "0", "7", "$"]
    for text in ["$\\frac{3}{4}$ of 120", "naïve 漢字 🙂\n\ttabs  and  spaces", "\\boxed{-7}"]:
        assert tokenizer.decode(tokenizer(text)["input_ids"]) == text


def test_the_chat_template_renders_questions_and_answers_without_the_system_text(
    tokenizer: PreTrainedTokenizerBase,
) -> None:
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


SHAPES = [(6, 4), (4, 6), (4, 6), (5, 5), (9, 2)]


def test_steps_are_those_of_torch() -> None:
    """Tall, wide and square matrices, two of them in one stack with a third's transpose."""
    generator = torch.Generator().manual_seed(0)
    ours = [torch.nn.Parameter(torch.randn(shape, generator=generator)) for shape in SHAPES]
    theirs = [torch.nn.Parameter(p.detach().clone()) for p in ours]
    begin = [p.detach().clone() for p in ours]
    optimizers = [Muon(ours, 0.1, torch.bfloat16), torch.optim.Muon(theirs, lr=0.1)]
    for step in range(4):
        for mine, other in zip(ours, theirs, strict=True):
            mine.grad = torch.randn(mine.shape, generator=generator)
            other.grad = mine.grad.clone()
        for optimizer in optimizers:
            for group in optimizer.param_groups:
                group["lr"] = 0.1 / (step + 1)
            optimizer.step()
    for mine, other, before in zip(ours, theirs, begin, strict=True):
        assert (mine - before).abs().mean() > 0.02
        torch.testing.assert_close(mine, other, atol=0.01, rtol=0)  # bfloat16's own rounding


def test_orthogonal_applies_the_quintic_to_the_singular_values() -> None:
    generator = torch.Generator().manual_seed(1)
    stack = torch.randn(3, 4, 7, generator=generator, dtype=torch.float64)
    for matrix, turned in zip(stack.numpy(), orthogonal(stack).numpy(), strict=True):
        u, values, v = np.linalg.svd(matrix, full_matrices=False)
        values = values / np.linalg.norm(values)
        for _ in range(5):
            values = 3.4445 * values - 4.7750 * values**3 + 2.0315 * values**5
        np.testing.assert_allclose(turned, u @ np.diag(values) @ v, atol=1e-10)
        assert (abs(values - 1) < 0.5).all()


def test_a_gradient_of_zeros_moves_nothing_but_by_decay() -> None:
    matrix = torch.nn.Parameter(torch.ones(3, 2))
    matrix.grad = torch.zeros(3, 2)
    Muon([matrix], 0.5, torch.float32).step()
    torch.testing.assert_close(matrix.detach(), torch.full((3, 2), 1 - 0.5 * 0.1))
