"""Pruned models come back from disk to the bit, in every form, and say what they are."""

import json
import shutil

import pytest
import tiny_models
import torch
from huggingface_hub import ModelCard
from tiny_models import named, outputs
from transformers import AutoModel, AutoModelForCausalLM

from headroom.errors import ModelError
from headroom.models.checkpoints import Pruning, read_pretrained, save_pruned
from headroom.models.geometry import find_heads
from headroom.models.load import load_checkpoint
from headroom.models.removal import remove_heads, zero_heads
from headroom.variants import Variant

GROUP = [Variant(1, head) for head in (0, 1, 2)]
"""The first group of layer 1 of the tiny models with grouped queries."""


@pytest.fixture
def save(qwen2_original, tmp_path):
    """Remove heads, save, and return what the model computed at that time."""

    def save(model, form, removed, **facts):
        geometry = find_heads(model)
        remove = zero_heads if form == "zeroed" else remove_heads
        geometry = remove(model, geometry, removed) or geometry
        pruning = Pruning("some/model", "0" * 40, removed, "norm of the weights", **facts)
        save_pruned(model, geometry, tmp_path / "pruned", form, pruning, qwen2_original)
        return outputs(model)

    return save


@pytest.mark.parametrize(
    ("name", "form"),
    [("Qwen2", "zeroed"), *((one, "free") for one in ("Llama", "GPT2", "Phi3", "GptOss", "Bert"))],
)
def test_what_was_saved_is_loaded_to_the_bit(name, form, save, tmp_path):
    model = tiny_models.build(named(name))
    removed = [*GROUP, Variant(3, 2), Variant(3, 5)] if form == "free" else [Variant(2, 3)]
    expected = save(model, form, removed)
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


def uniform(query):
    """The second group of every layer, or the middle query of every group."""
    lost = (1, 4) if query else (3, 4, 5)
    return [Variant(layer, head) for layer in range(4) for head in lost]


@pytest.mark.parametrize(("name", "query"), [("Qwen2", True), ("Gemma", False), ("Phi3", True)])
def test_a_uniform_model_loads_with_plain_from_pretrained(name, query, save, tmp_path):
    model = tiny_models.build(named(name))
    folder = tmp_path / "pruned"
    expected = save(model, "uniform", uniform(query))
    plain = AutoModelForCausalLM.from_pretrained(folder)
    assert torch.equal(outputs(plain), expected)
    assert torch.equal(outputs(load_checkpoint(str(folder))), expected)
    assert plain.config.num_attention_heads == (4 if query else 3)
    assert plain.config.num_key_value_heads == (2 if query else 1)
    assert not hasattr(plain.config, "kept_heads")
    assert model.config.num_attention_heads == 6


def test_a_free_model_can_be_pruned_and_saved_again(save, tmp_path):
    save(tiny_models.build(named("GPT2")), "free", [Variant(1, 0), Variant(1, 3)])
    again = load_checkpoint(str((tmp_path / "pruned").rename(tmp_path / "once")))
    expected = save(again, "free", [Variant(1, 0), Variant(2, 5)])
    loaded = load_checkpoint(str(tmp_path / "pruned"))
    assert torch.equal(outputs(loaded), expected)
    assert find_heads(loaded).layer(1).original_heads == (2, 4, 5)


def test_a_card_says_what_was_removed_and_the_body_loads_alone(save, tmp_path):
    folder, model = tmp_path / "pruned", tiny_models.build(named("Qwen2"))
    save(model, "free", GROUP, measured={"parameters": 12345}, how="Counted.")
    card = ModelCard.load(folder / "README.md")
    assert card.data.base_model == "some/model"
    assert card.data.tags == ["pruned", "attention-heads", "free"]
    for part in ("L01H00, L01H01, L01H02", "0" * 40, "load_model", "| parameters | 12345 |"):
        assert part in card.text
    assert card.text.rstrip().endswith("Counted.")
    written = json.loads((folder / "pruned_heads.json").read_text())
    assert written["removed"] == ["L01H00", "L01H01", "L01H02"]
    assert (written["kept"]["1"], written["kept"]["2"]) == ([3, 4, 5], [0, 1, 2, 3, 4, 5])
    assert written["form"] == "free"
    assert (folder / "tokenizer.json").exists()
    assert list(tmp_path.iterdir()) == [folder]
    body, _ = read_pretrained(AutoModel, folder)  # weights have other names without the head
    assert torch.equal(outputs(body), outputs(model.model))


@pytest.mark.parametrize(
    ("name", "removed", "message"),
    [
        ("Qwen2", GROUP, "would keep 3, 6 heads, but a uniform model has the same number in each"),
        # Their configs derive the width of a head from the number of heads.
        ("Bert", uniform(query=True), "no config of BertModel has 4 heads of width 8 .* width 48"),
        ("GPT2", uniform(query=False), "no config of GPT2LMHeadModel has 3 heads of width 8"),
    ],
)
def test_what_cannot_be_saved_uniform_is_refused(name, removed, message, save, tmp_path):
    with pytest.raises(ModelError, match=rf"^.*({message}).*$"):
        save(tiny_models.build(named(name)), "uniform", removed)
    assert list(tmp_path.iterdir()) == []


def test_a_failure_leaves_nothing_behind(save, tmp_path, monkeypatch):
    monkeypatch.setattr(shutil, "copyfile", lambda *_: (_ for _ in ()).throw(OSError("full")))
    with pytest.raises(OSError, match="full"):
        save(tiny_models.build(named("Qwen2")), "free", GROUP)
    assert list(tmp_path.iterdir()) == []
    (tmp_path / "pruned").mkdir()
    with pytest.raises(ModelError, match="pruned exists; remove it, or name another"):
        save(tiny_models.build(named("Qwen2")), "free", GROUP)
