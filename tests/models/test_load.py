"""Models load from folders in the hub's format, and what cannot be loaded is explained."""

import json
from pathlib import Path

import pytest
import tiny_models
import torch
from safetensors.torch import load_file, save_file
from transformers import AutoModelForCausalLM

from headroom.errors import ModelError
from headroom.models.load import load_model, load_tokenizer

PROMPT = "w5 w17 w3 w40"


def edit_json(file: Path, **changes: object) -> None:
    file.write_text(json.dumps(json.loads(file.read_text()) | changes))


def test_a_loaded_model_equals_transformers_own(qwen2_folder: Path):
    loaded = load_model(str(qwen2_folder))
    plain = AutoModelForCausalLM.from_pretrained(qwen2_folder)
    ids = loaded.tokenizer(PROMPT, return_tensors="pt").input_ids
    with torch.no_grad():
        assert torch.equal(loaded.model(ids).logits, plain(ids).logits)
    assert not loaded.model.training
    assert loaded.folder == qwen2_folder
    assert [layer.query_heads for layer in loaded.geometry.layers] == [6, 6, 6, 6]


@pytest.mark.parametrize(
    ("name", "dtype", "device", "attention"),
    [("float32", torch.float32, "balanced", "eager"), ("bfloat16", torch.bfloat16, "cpu", "sdpa")],
)
def test_dtype_device_and_attention_are_those_asked_for(
    qwen2_folder: Path, name: str, dtype: torch.dtype, device: str, attention: str
):
    loaded = load_model(str(qwen2_folder), dtype=name, device=device, attention=attention)
    assert loaded.dtype == dtype
    assert {parameter.dtype for parameter in loaded.model.parameters()} == {dtype}
    assert loaded.model.config._attn_implementation == attention
    assert loaded.device == loaded.model.device
    assert loaded.device.type == "cpu" or device == "balanced"


def test_a_tokenizer_of_its_own_is_taken_as_it_is(qwen2_folder: Path):
    """AutoTokenizer would rebuild it as a Qwen2 tokenizer, with other tokens."""
    tokenizer = load_tokenizer(qwen2_folder)
    assert tokenizer(PROMPT).input_ids == [8, 20, 6, 43]
    assert len(tokenizer) == 97


@pytest.mark.parametrize(
    ("pad_token", "expected"),
    [
        (None, 2),  # the end of sequence
        ("[PAD]", 0),
        ("[ADDED]", 2),  # an id beyond the embeddings: 97 rows, ids 0 to 96
    ],
)
def test_padding_is_on_the_left_with_an_id_that_the_embeddings_hold(
    qwen2_folder: Path, pad_token: str | None, expected: int
):
    edit_json(qwen2_folder / "tokenizer_config.json", pad_token=pad_token)
    loaded = load_model(str(qwen2_folder))
    assert loaded.pad_token_id == loaded.tokenizer.pad_token_id == expected
    assert loaded.model.get_input_embeddings().num_embeddings == 97
    batch = loaded.tokenizer(["w5", PROMPT], padding=True)
    assert batch["attention_mask"] == [[0, 0, 0, 1], [1, 1, 1, 1]]
    assert batch["input_ids"][0][:3] == [expected] * 3


@pytest.mark.parametrize(("stated", "expected"), [(7, (7,)), ([9, 7], (7, 9)), (None, (2,))])
def test_ends_of_sequence_are_those_of_generate(qwen2_folder: Path, stated, expected):
    edit_json(qwen2_folder / "config.json", eos_token_id=stated)
    edit_json(qwen2_folder / "generation_config.json", eos_token_id=stated)
    assert load_model(str(qwen2_folder)).eos_token_ids == expected


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"dtype": "float8"}, "dtype 'float8' is not known; use float32, bfloat16, float16"),
        ({"dtype": "float16", "device": "cpu"}, "dtype float16 needs a GPU"),
        ({"device": "gpu"}, "device 'gpu' is not known; use auto, cpu, cuda, cuda:N or balanced"),
        ({"device": "cuda:99"}, r"device cuda:99 is not there: torch finds \d+ GPUs"),
    ],
    ids=str,
)
def test_what_this_machine_lacks_is_refused_before_any_file_is_read(options, message: str):
    with pytest.raises(ModelError, match=message):
        load_model("/nowhere", **options)


def test_missing_tensors_are_refused_rather_than_drawn_at_random(qwen2_folder: Path):
    file = qwen2_folder / "model.safetensors"
    tensors = load_file(file)
    del tensors["model.layers.2.mlp.up_proj.weight"]
    save_file(tensors, file, metadata={"format": "pt"})
    with pytest.raises(ModelError, match=r"lack 1 tensors, such as model\.layers\.2\.mlp\.up_proj"):
        load_model(str(qwen2_folder))


def test_an_unknown_architecture_is_refused_and_its_code_is_not_run(qwen2_folder: Path):
    edit_json(
        qwen2_folder / "config.json",
        model_type="homemade",
        architectures=["Homemade"],
        auto_map={"AutoModelForCausalLM": "modeling.Homemade", "AutoConfig": "modeling.Config"},
    )
    (qwen2_folder / "modeling.py").write_text("raise SystemExit('foreign code ran')")
    with pytest.raises(ModelError) as caught:
        load_model(str(qwen2_folder))
    assert "\n" not in str(caught.value)


def test_a_damaged_tokenizer_is_refused(qwen2_folder: Path):
    (qwen2_folder / "tokenizer.json").write_text('{"model": 1}')
    with pytest.raises(ModelError, match=r"tokenizer in .* cannot be read"):
        load_model(str(qwen2_folder))


def test_an_encoder_is_refused(qwen2_folder: Path):
    config = tiny_models.build_config(tiny_models.Architecture("Bert"))
    AutoModelForCausalLM.from_config(config).save_pretrained(qwen2_folder)
    with pytest.raises(ModelError, match="keeps no keys and values to decode with, as an encoder"):
        load_model(str(qwen2_folder))
