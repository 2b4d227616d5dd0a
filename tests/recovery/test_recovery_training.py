"""Training: the loss is the one that is written down, however it is divided and interrupted."""

from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file
from small import killed_at
from torch import Tensor
from transformers import AutoModelForCausalLM, AutoTokenizer, PreTrainedModel
from words import TEXTS, count_steps

from headroom.errors import ModelError
from headroom.recovery import training
from headroom.recovery.options import recovery
from headroom.recovery.texts import Piece, cut
from headroom.recovery.training import Progress, accelerator_for, train_round

LOSSES: list[float] = []
"""Of each step of the last training."""
SMALL = {
    "rounds": 1,
    "steps": 5,
    "batch_size": 6,
    "micro_batch": 3,
    "length": 8,
    "learning_rate": 1e-2,
}


@pytest.fixture
def pieces(llama: Path) -> list[Piece]:
    return cut(TEXTS, AutoTokenizer.from_pretrained(llama), 8)


def load(folder: Path, dropout: float = 0.0) -> PreTrainedModel:
    own = {"dtype": torch.float32, "attention_dropout": dropout}
    return AutoModelForCausalLM.from_pretrained(folder, **own)


def other(folder: Path) -> PreTrainedModel:
    model = load(folder)
    with torch.no_grad():
        model.lm_head.weight.mul_(1.5)
    return model


def trained(
    folder: Path, pieces: list[Piece], state: Path, dropout: float = 0.0, **options: Any
) -> dict[str, Tensor]:
    settings = recovery(**{**SMALL, **options})
    progress, steps = Progress(), range(settings.steps)
    accelerator = accelerator_for(settings, "cpu")
    teacher = None if settings.teacher == "none" else other(folder)
    model = train_round(
        load(folder, dropout), teacher, pieces, settings, steps, progress, accelerator, state, 0.0
    )
    assert progress.step == settings.steps == len(progress.losses)
    LOSSES[:] = [sum(each.values()) for each in progress.losses]
    return model.state_dict()


def test_one_step_is_that_of_the_written_loss(llama, pieces, tmp_path):
    """Text by text, by transformers' own loss and torch's distributions, and AdamW by hand."""
    sizes = {"steps": 1, "batch_size": len(pieces), "micro_batch": len(pieces) // 2}
    mixture = {"temperature": 3.0, "distill_weight": 0.3}
    found = trained(llama, pieces, tmp_path / "s", **sizes, **mixture)
    student, teacher = load(llama), other(llama)
    tokens = sum(len(piece.input_ids) - 1 for piece in pieces)
    for piece in pieces:
        ids = torch.from_numpy(piece.input_ids)[None]
        output = student(input_ids=ids, labels=ids)
        own, taught = (
            torch.distributions.Categorical(logits=logits[0, :-1] / 3.0)
            for logits in (output.logits, teacher(input_ids=ids).logits.detach())
        )
        divergence = 9.0 * torch.distributions.kl_divergence(taught, own).sum()
        (0.7 * output.loss * (ids.shape[1] - 1) + 0.3 * divergence).div(tokens).backward()
    torch.nn.utils.clip_grad_norm_(student.parameters(), 1.0)
    state = load_file(tmp_path / "s")  # the first moments show the gradient's scale, Adam hides it
    norms = [each.norm() ** 2 for name, each in state.items() if name.endswith("exp_avg")]
    own = [each.grad.norm() ** 2 for each in student.parameters()]
    assert float(sum(norms)) == pytest.approx(0.01 * float(sum(own)), rel=1e-4)
    for parameter in student.parameters():
        decay = 0.01 if parameter.ndim > 1 else 0.0
        with torch.no_grad():  # the first step of Adam: the gradient's sign, nearly
            step = parameter.grad / (parameter.grad.abs() + 1e-8)
            parameter.mul_(1 - 1e-2 * decay).sub_(1e-2 * step)
    # Where a gradient is nearly zero, rounding decides its sign.
    sure = {name: p.grad.abs() > 1e-5 for name, p in student.named_parameters()}
    for name, mask in sure.items():
        torch.testing.assert_close(
            found[name][mask], student.state_dict()[name][mask], atol=2e-5, rtol=0, msg=name
        )
    assert sum(mask.sum() for mask in sure.values()) > 0.9 * sum(m.numel() for m in sure.values())


def test_the_rate_rises_in_a_round_and_falls_to_zero_over_all():
    shares = [training._share(step, range(20, 40), 60) for step in range(20, 40)]
    assert shares[:3] == pytest.approx([0.5 * 40 / 60, 39 / 60, 38 / 60])
    assert shares[-1] == pytest.approx(21 / 60)


def test_micro_batches_and_checkpointing_change_memory_only(llama, pieces, tmp_path):
    whole = trained(llama, pieces, tmp_path / "a", micro_batch=6)
    losses = list(LOSSES)
    for number, options in enumerate([{"micro_batch": 2}, {"gradient_checkpointing": True}]):
        trained(llama, pieces, tmp_path / str(number), **options)
        assert pytest.approx(losses, rel=1e-4) == LOSSES
    assert_changed(trained(llama, pieces, tmp_path / "c", seed=1), whole)
    assert_changed(trained(llama, pieces, tmp_path / "d", teacher="none"), whole)
    bf16 = trained(llama, pieces, tmp_path / "e", precision="bf16")
    assert all(tensor.dtype == torch.float32 for tensor in bf16.values())
    assert_changed(bf16, whole)


def assert_changed(found: dict[str, Tensor], before: dict[str, Tensor]) -> None:
    assert any(not torch.equal(found[name], before[name]) for name in before)


@pytest.mark.parametrize("lora", [None, 2])
def test_a_killed_round_ends_as_if_nothing_happened(lora, llama, pieces, tmp_path):
    undisturbed = trained(llama, pieces, tmp_path / "one", 0.3, lora=lora)

    def killed(count) -> None:
        count_steps(count)
        trained(llama, pieces, tmp_path / "other", 0.3, lora=lora)

    killed_at(4, killed)
    resumed = trained(llama, pieces, tmp_path / "other", 0.3, lora=lora)
    assert resumed.keys() == undisturbed.keys()
    assert all(torch.equal(tensor, undisturbed[name]) for name, tensor in resumed.items())
    assert_changed(resumed, load(llama).state_dict())


def test_lora_trains_little_and_leaves_no_trace(llama, pieces, tmp_path):
    found, before = trained(llama, pieces, tmp_path / "s", lora=2), load(llama).state_dict()
    assert found.keys() == before.keys()
    changed = {name for name in before if not torch.equal(found[name], before[name])}
    assert changed == {name for name in before if "_proj" in name}
    difference = (found[min(changed)] - before[min(changed)]).double()
    assert torch.linalg.matrix_rank(difference, tol=1e-5) == 2
    assert (tmp_path / "s").stat().st_size < 100_000


def test_what_cannot_be_trained_is_refused(llama, pieces, tmp_path):
    with pytest.raises(ModelError, match="batch size 6 is no multiple of 4"):
        accelerator_for(recovery(batch_size=6, micro_batch=4), "cpu")
    (tmp_path / "s").write_bytes(b"half a file")
    with pytest.raises(ModelError, match=r"is damaged .* remove it"):
        trained(llama, pieces, tmp_path / "s")
    model, settings = load(llama), recovery(**SMALL)
    with torch.no_grad():
        model.lm_head.weight[0, 0] = float("nan")
    state = Progress(), accelerator_for(settings, "cpu"), tmp_path / "new"
    with pytest.raises(ModelError, match="task part of the loss is nan at step 1; lower"):
        train_round(model, None, pieces, settings, range(5), *state)
