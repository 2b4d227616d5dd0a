"""The models that sweeps are measured on."""

from pathlib import Path

import pytest
import small_reasoner
import torch

from headroom.bench import shapes
from headroom.config import Reasoner
from headroom.errors import ModelError
from headroom.models.load import LoadedModel, load_model
from headroom.variants import Variant

IDS = torch.randint(4, 300, (2, 19), generator=torch.Generator().manual_seed(0))


def load_reasoner(folder: Path, settings: Reasoner) -> LoadedModel:
    model, tokenizer = small_reasoner.make(settings)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter *= 0.4  # as deep as the demo's, so milder
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return load_model(str(folder), device="cpu")


def logits(folder: Path) -> torch.Tensor:
    with torch.inference_mode():
        return load_model(str(folder), device="cpu").model(IDS).logits


def test_a_shape_has_random_weights_and_the_tokenizer_of_the_model(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    loaded = load_reasoner(tmp_path / "small", small_reasoner.SETTINGS)
    sizes = {"hidden_size": 40, "num_hidden_layers": 5, "num_attention_heads": 4, "head_dim": 12}
    for name, size in {**sizes, "layer_types": ["full_attention"] * 5}.items():
        monkeypatch.setitem(shapes._QWEN_1_5B, name, size)
    folder, every = shapes.make("qwen2.5-1.5b", loaded, tmp_path / "made", torch.float32)
    made = load_model(str(folder), device="cpu")
    assert {name: getattr(made.model.config, name) for name in sizes} == sizes
    assert len(every) == 5 * 4
    assert (every[0], every[-1]) == (Variant(0, 0), Variant(4, 3))
    assert made.model.get_input_embeddings().weight.shape == (151_936, 40)
    assert made.tokenizer("12 + 3").input_ids == loaded.tokenizer("12 + 3").input_ids


def test_vllm_gets_a_llama_with_the_same_logits_where_heads_are_wide(tmp_path: Path) -> None:
    loaded = load_reasoner(tmp_path / "wide", small_reasoner.SETTINGS)
    twin = shapes.for_vllm(loaded.folder, tmp_path / "twin")
    assert load_model(str(twin), device="cpu").model.config.model_type == "llama"
    torch.testing.assert_close(logits(twin), logits(loaded.folder), atol=1e-5, rtol=0)


def test_vllm_gets_a_model_of_usual_head_width_as_it_is(tmp_path: Path) -> None:
    usual = small_reasoner.SETTINGS.model_copy(update={"hidden": 192})
    loaded = load_reasoner(tmp_path / "usual", usual)
    assert shapes.for_vllm(loaded.folder, tmp_path / "twin") == loaded.folder


def test_a_model_that_is_no_qwen2_keeps_its_own_shape(tmp_path: Path) -> None:
    loaded = load_reasoner(tmp_path / "qwen", small_reasoner.SETTINGS)
    twin = load_model(str(shapes.for_vllm(loaded.folder, tmp_path / "llama")), device="cpu")
    with pytest.raises(ModelError, match=r"LlamaForCausalLM is measured with --shape demo"):
        shapes.make("qwen2.5-1.5b", twin, tmp_path / "made", torch.float32)
    assert shapes.make("demo", twin, tmp_path / "made", torch.float32)[1][6] == Variant(1, 0)
