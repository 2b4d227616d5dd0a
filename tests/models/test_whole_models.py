"""A model is measured whole, and its fingerprint covers all that transformers reads of a folder."""

import json
import re
import shutil
from pathlib import Path

import pytest
import tiny_models
import torch
import transformers
from safetensors.torch import load_file, save_file
from tokenizers import Tokenizer
from tokenizers.models import WordLevel
from transformers.utils import hub

from headsweep.errors import ModelError
from headsweep.models.load import load_encoder, load_model
from headsweep.models.source import (
    _TOKENIZER_FILES,
    BUILTIN,
    check_folder,
    fingerprint,
    tokenizer_files,
)


@pytest.fixture
def folder(tmp_path):
    return tiny_models.save_qwen2(tmp_path / "model", chat_template="{{ messages }}")


def rewritten(file, change):
    content = json.loads(file.read_text())
    change(content)
    file.write_text(json.dumps(content))


def names_of_vocabularies():
    """Yield the file names that tokenizers of transformers look for in a folder."""
    for file in Path(transformers.__file__).parent.rglob("*tokenization*.py"):
        text = file.read_text(encoding="utf-8")
        for table in re.findall(r"(?i:vocab_files_names) = (\{[^}]*\})", text):
            yield from re.findall(r": \"([^\"]+)\"", table)
    base = transformers.tokenization_utils_base
    for name, value in vars(base).items():
        if name.endswith("_FILE") and name.isupper():
            yield value


def test_a_fingerprint_names_all_files_that_transformers_tokenizers_read():
    names = {*names_of_vocabularies()}
    assert len(names) > 25, "transformers lists its files otherwise than it did"
    assert {"chat_template.jinja", "spm.model", "tokenizer_config.json"} <= names
    assert names - _TOKENIZER_FILES == set()
    assert hub.LEGACY_PROCESSOR_CHAT_TEMPLATE_FILE in _TOKENIZER_FILES


@pytest.mark.parametrize(
    "name", [f"{hub.CHAT_TEMPLATE_DIR}/default.jinja", "vocab-src.json", "tokenizer.model.v3"]
)
def test_a_file_that_replaces_a_prompt_changes_the_fingerprint(name, folder):
    before = fingerprint(folder)
    (folder / name).parent.mkdir(exist_ok=True)
    (folder / name).write_text("other")
    changed = fingerprint(folder)
    assert folder / name in tokenizer_files(folder)
    (folder / name).write_text("another")
    assert len({before, changed, fingerprint(folder)}) == 3
    (folder / "README.md").write_text("none that is read")
    assert len({before, changed, fingerprint(folder)}) == 3


def test_models_without_such_files_keep_their_fingerprint():
    assert fingerprint(BUILTIN["builtin:reasoner"]) == "6e87d960190943bd"


@pytest.mark.parametrize(
    ("file", "key", "other"),
    [
        ("config.json", "configuration_files", "config.4.0.0.json"),
        ("tokenizer_config.json", "fast_tokenizer_files", "tokenizer.4.0.0.json"),
    ],
)
def test_a_file_that_another_stands_for_is_refused(file, key, other, folder):
    shutil.copyfile(folder / "config.json", folder / other)
    rewritten(folder / file, lambda content: content.update({key: [other]}))
    with pytest.raises(ModelError, match=rf"{file} names other files .*{key}.*; remove that key"):
        check_folder(folder)


def half(folder):
    def shorten(config):
        config.update(num_hidden_layers=1, layer_types=config["layer_types"][:1])

    rewritten(folder / "config.json", shorten)


def with_bias(folder):
    weights = load_file(folder / "model.safetensors")
    weights["model.layers.0.self_attn.o_proj.bias"] = torch.ones(8)
    save_file(weights, folder / "model.safetensors", {"format": "pt"})


def old(folder):
    weights = load_file(folder / "model.safetensors")
    weights["model.layers.0.self_attn.rotary_emb.inv_freq"] = torch.ones(8)
    weights["mtp.layers.0.weight"] = torch.ones(3)
    weights["vision_tower.weight"] = torch.ones(3)
    save_file(weights, folder / "model.safetensors", {"format": "pt"})


@pytest.mark.parametrize("change", [half, with_bias])
def test_half_a_model_is_not_measured(change, folder):
    assert load_model(folder).geometry
    change(folder)
    with pytest.raises(ModelError, match=r"hold \d+ tensors that its config.json has no place for"):
        load_model(folder)


def test_weights_that_a_decoder_never_needs_are_passed_over(folder):
    expected = load_model(folder).model.state_dict()
    old(folder)
    loaded = load_model(folder).model.state_dict()
    assert loaded.keys() == expected.keys()


def test_an_encoder_is_loaded_without_its_head_but_not_without_a_layer(tmp_path):
    folder = tmp_path / "encoder"
    sizes = {"vocab_size": 5, "hidden_size": 8, "intermediate_size": 6, "num_hidden_layers": 2}
    config = transformers.BertConfig(**sizes, num_attention_heads=2)
    transformers.BertForMaskedLM(config).save_pretrained(folder)
    words = Tokenizer(WordLevel({"a": 0, "[MASK]": 1, "[UNK]": 2}, unk_token="[UNK]"))
    tokenizer = transformers.PreTrainedTokenizerFast(tokenizer_object=words, mask_token="[MASK]")
    tokenizer.save_pretrained(folder)
    weights = load_file(folder / "model.safetensors")
    weights["lm_head.dense.weight"] = torch.ones(4)
    weights["classifier.out_proj.bias"] = torch.ones(4)
    save_file(weights, folder / "model.safetensors", {"format": "pt"})
    load_encoder(str(folder))
    rewritten(folder / "config.json", lambda config: config.update(num_hidden_layers=1))
    with pytest.raises(ModelError, match="has no place for"):
        load_encoder(str(folder))


@pytest.mark.parametrize("ends", ["x", -1, [2, 10**6], [2, "x"], 1.5])
def test_an_end_that_is_no_token_of_the_model_is_refused_in_one_line(ends, folder):
    rewritten(folder / "generation_config.json", lambda facts: facts.update(eos_token_id=ends))
    with pytest.raises(ModelError) as error:
        load_model(folder)
    assert "\n" not in str(error.value)
