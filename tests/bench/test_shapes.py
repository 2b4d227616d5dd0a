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


def test_the_demo_grows_to_46_million_parameters_and_answers_as_before(tmp_path: Path) -> None:
    loaded = load_reasoner(tmp_path / "small", Reasoner(vocabulary=320))
    folder, carrying = shapes.make("46m", loaded, tmp_path / "large", torch.float32)
    large = load_model(str(folder), device="cpu")
    assert 46e6 < large.model.num_parameters() < 47e6
    assert len(carrying) == 6 * 8
    assert carrying[0] == Variant(0, 0)
    assert carrying[-1] == Variant(10, 7)
    expected = loaded.model(IDS).logits
    torch.testing.assert_close(logits(folder)[..., :320], expected, atol=1e-4, rtol=0)
    assert large.eos_token_ids == loaded.eos_token_ids
    assert large.tokenizer("12 + 3").input_ids == loaded.tokenizer("12 + 3").input_ids


def test_vllm_gets_a_llama_with_the_same_logits_where_heads_are_wide(tmp_path: Path) -> None:
    loaded = load_reasoner(tmp_path / "wide", small_reasoner.SETTINGS)
    twin = shapes.for_vllm(loaded.folder, tmp_path / "twin")
    assert load_model(str(twin), device="cpu").model.config.model_type == "llama"
    torch.testing.assert_close(logits(twin), logits(loaded.folder), atol=1e-5, rtol=0)


def test_vllm_gets_a_model_of_usual_head_width_as_it_is(tmp_path: Path) -> None:
    usual = small_reasoner.SETTINGS.model_copy(update={"hidden": 192})
    loaded = load_reasoner(tmp_path / "usual", usual)
    assert shapes.for_vllm(loaded.folder, tmp_path / "twin") == loaded.folder


def test_a_shape_that_a_model_cannot_be_embedded_in_is_refused(tmp_path: Path) -> None:
    loaded = load_reasoner(tmp_path / "odd", small_reasoner.SETTINGS)
    with pytest.raises(ModelError, match="hidden 512 is no multiple of the model's 48"):
        shapes.make("46m", loaded, tmp_path / "large", torch.float32)
