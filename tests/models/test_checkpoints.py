"""Pruned models come back from disk to the bit, in every form, and say what they are."""

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
import tiny_models
import torch
from huggingface_hub import ModelCard
from tiny_models import DECODERS, ENCODERS, VOCABULARY, Architecture
from torch import Tensor
from transformers import (
    AutoModel,
    AutoModelForCausalLM,
    PreTrainedModel,
)

from headroom.errors import ModelError
from headroom.models.checkpoints import Form, Pruning, read_pretrained, save_pruned
from headroom.models.geometry import find_heads
from headroom.models.load import load_checkpoint
from headroom.models.removal import remove_heads, zero_heads
from headroom.variants import Variant

GROUP = [Variant(1, head) for head in (0, 1, 2)]
"""The first group of layer 1 of the tiny models with grouped queries."""


def outputs(model: PreTrainedModel) -> Tensor:
    ids = torch.randint(3, VOCABULARY, (3, 7), generator=torch.Generator().manual_seed(1))
    with torch.no_grad():
        return model(input_ids=ids, attention_mask=torch.ones_like(ids))[0]


def named(name: str) -> Architecture:
    return next(one for one in DECODERS + ENCODERS if one.name == name)


def pruning(removed: list[Variant], **facts: Any) -> Pruning:
    return Pruning("some/model", "0" * 40, removed, "norm of the weights", **facts)


def save(
    model: PreTrainedModel, folder: Path, form: Form, removed: list[Variant], tokenizer: Path
) -> Tensor:
    """Remove heads, save, and return what the model computed at that time."""
    geometry = find_heads(model)
    if form == "zeroed":
        zero_heads(model, geometry, removed)
    else:
        geometry = remove_heads(model, geometry, removed)
    save_pruned(model, geometry, folder, form, pruning(removed), tokenizer)
    return outputs(model)


@pytest.mark.parametrize(
    ("name", "form"),
    [("Qwen2", "zeroed"), *((one, "free") for one in ("Llama", "GPT2", "Phi3", "GptOss", "Bert"))],
)
def test_what_was_saved_is_loaded_to_the_bit(
    name: str, form: Form, qwen2_original: Path, tmp_path: Path
):
    model = tiny_models.build(named(name))
    removed = [*GROUP, Variant(3, 2), Variant(3, 5)] if form == "free" else [Variant(2, 3)]
    expected = save(model, tmp_path / "pruned", form, removed, qwen2_original)
    loaded = load_checkpoint(str(tmp_path / "pruned"), attention=model.config._attn_implementation)
    assert type(loaded) is type(model)
    assert torch.equal(outputs(loaded), expected)
    assert find_heads(loaded) == find_heads(model)
    if form == "zeroed":
        assert torch.equal(outputs(type(model).from_pretrained(tmp_path / "pruned")), expected)
    else:
        with pytest.raises(RuntimeError, match="mismatched_sizes"):
            type(model).from_pretrained(tmp_path / "pruned")
    state = model.state_dict()
    assert all(torch.equal(tensor, state[key]) for key, tensor in loaded.state_dict().items())


def uniform(query: bool) -> list[Variant]:
    """The second group of every layer, or the middle query of every group."""
    lost = (1, 4) if query else (3, 4, 5)
    return [Variant(layer, head) for layer in range(4) for head in lost]


@pytest.mark.parametrize(("name", "query"), [("Qwen2", True), ("Gemma", False), ("Phi3", True)])
def test_a_uniform_model_loads_with_plain_from_pretrained(
    name: str, query: bool, qwen2_original: Path, tmp_path: Path
):
    model = tiny_models.build(named(name))
    folder = tmp_path / "pruned"
    expected = save(model, folder, "uniform", uniform(query), qwen2_original)
    plain = AutoModelForCausalLM.from_pretrained(folder)
    assert torch.equal(outputs(plain), expected)
    assert torch.equal(outputs(load_checkpoint(str(folder))), expected)
    assert plain.config.num_attention_heads == (4 if query else 3)
    assert plain.config.num_key_value_heads == (2 if query else 1)
    assert not hasattr(plain.config, "kept_heads")
    assert model.config.num_attention_heads == 6


def test_a_free_model_can_be_pruned_and_saved_again(qwen2_original: Path, tmp_path: Path):
    model = tiny_models.build(named("GPT2"))
    save(model, tmp_path / "once", "free", [Variant(1, 0), Variant(1, 3)], qwen2_original)
    again = load_checkpoint(str(tmp_path / "once"))
    lost = [Variant(1, 0), Variant(2, 5)]
    expected = save(again, tmp_path / "twice", "free", lost, qwen2_original)
    loaded = load_checkpoint(str(tmp_path / "twice"))
    assert torch.equal(outputs(loaded), expected)
    assert find_heads(loaded).layer(1).original_heads == (2, 4, 5)


def test_a_card_says_what_was_removed_from_what(qwen2_original: Path, tmp_path: Path):
    model = tiny_models.build(named("Qwen2"))
    folder = tmp_path / "pruned"
    geometry = remove_heads(model, find_heads(model), GROUP)
    facts = pruning(GROUP, measured={"parameters": 12345}, how="Counted.")
    save_pruned(model, geometry, folder, "free", facts, qwen2_original)
    card = ModelCard.load(folder / "README.md")
    assert card.data.base_model == "some/model"
    assert card.data.tags == ["pruned", "attention-heads", "free"]
    for part in (
        "L01H00, L01H01, L01H02",
        "0" * 40,
        "headroom.load_model",
        "| parameters | 12345 |",
    ):
        assert part in card.text
    assert card.text.rstrip().endswith("Counted.")
    written = json.loads((folder / "pruned_heads.json").read_text())
    assert written["removed"] == ["L01H00", "L01H01", "L01H02"]
    assert written["kept"]["1"] == [3, 4, 5]
    assert written["kept"]["2"] == [0, 1, 2, 3, 4, 5]
    assert written["form"] == "free"
    names = {path.name for path in folder.iterdir()}
    assert {"tokenizer.json", "model.safetensors", "config.json"} <= names
    assert not [path for path in tmp_path.iterdir() if path != folder]


@pytest.mark.parametrize(
    ("name", "removed", "message"),
    [
        ("Qwen2", GROUP, "would keep 3, 6 heads, but a uniform model has the same number in each"),
        # Their configs derive the width of a head from the number of heads.
        ("Bert", uniform(query=True), "no config of BertModel has 4 heads of width 8 .* width 48"),
        ("GPT2", uniform(query=False), "no config of GPT2LMHeadModel has 3 heads of width 8"),
    ],
)
def test_what_cannot_be_saved_uniform_is_refused(
    name: str, removed: list[Variant], message: str, qwen2_original: Path, tmp_path: Path
):
    with pytest.raises(ModelError, match=message) as caught:
        save(
            tiny_models.build(named(name)), tmp_path / "pruned", "uniform", removed, qwen2_original
        )
    assert "\n" not in str(caught.value)
    assert list(tmp_path.iterdir()) == []


def test_a_failure_leaves_nothing_behind(qwen2_original: Path, tmp_path: Path, monkeypatch):
    model = tiny_models.build(named("Qwen2"))
    monkeypatch.setattr(shutil, "copyfile", lambda *_: (_ for _ in ()).throw(OSError("full")))
    with pytest.raises(OSError, match="full"):
        save(model, tmp_path / "pruned", "free", GROUP, qwen2_original)
    assert list(tmp_path.iterdir()) == []
    (tmp_path / "pruned").mkdir()
    with pytest.raises(ModelError, match="pruned exists; remove it, or name another"):
        save(tiny_models.build(named("Qwen2")), tmp_path / "pruned", "free", GROUP, qwen2_original)


def test_a_model_of_another_task_takes_the_weights_under_their_other_names(
    qwen2_original: Path, tmp_path: Path
):
    """The body alone of a model that was saved with its language head."""
    model = tiny_models.build(named("Qwen2"))
    save(model, tmp_path / "pruned", "free", GROUP, qwen2_original)
    body, _ = read_pretrained(AutoModel, tmp_path / "pruned")
    assert torch.equal(outputs(body), outputs(model.model))
