import json
import os
from types import SimpleNamespace
from unittest.mock import Mock

import pytest
import tiny_models
from huggingface_hub import errors
from safetensors.torch import load_file, save_file
from transformers import AutoModelForCausalLM

from headroom.errors import ModelError
from headroom.models.load import load_model
from headroom.models.source import check_folder, check_geometry, fetch_model, fingerprint

WEIGHTS = "model.safetensors"
SHARDS = {"one": "model-00001-of-00002.safetensors", "two": "model-00002-of-00002.safetensors"}
INDEX = {f"{WEIGHTS}.index.json": json.dumps({"metadata": {}, "weight_map": SHARDS})}
LACKS = f"lacks {SHARDS['two']}"
CODE = {"AutoModelForCausalLM": "modeling.Homemade", "AutoConfig": "modeling.Config"}
HOMEMADE = json.dumps({"model_type": "homemade", "architectures": ["Homemade"], "auto_map": CODE})
FOREIGN = "raise SystemExit('foreign code ran')"
POINTER = "version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 1\n"


def without_a_tensor(file):
    tensors = load_file(file)
    del tensors["model.layers.2.mlp.up_proj.weight"]
    save_file(tensors, file, metadata={"format": "pt"})


def of_an_encoder(file):
    config = tiny_models.build_config(tiny_models.Architecture("Bert"))
    AutoModelForCausalLM.from_config(config).save_pretrained(file.parent)


@pytest.mark.parametrize(
    ("damages", "message"),
    [  # files by name: what is written there, ... for a file that is removed, or what is done to it
        ({"config.json": ...}, "config.json is missing"),
        ({"config.json": "{"}, "config.json is not JSON"),
        ({"config.json": "{}"}, "config.json has no 'model_type'"),
        ({WEIGHTS: ...}, "has no weights; only safetensors are read"),
        ({WEIGHTS: ..., "model.bin": ""}, "only model.bin, which could run code when read"),
        ({WEIGHTS: lambda file: file.rename(file.with_name(SHARDS["one"])), **INDEX}, LACKS),
        ({WEIGHTS: lambda file: os.truncate(file, 9999)}, "bytes, not .* fetch it again"),
        ({WEIGHTS: POINTER}, "is not a safetensors file"),
        ({"tokenizer.json": ...}, "has no tokenizer"),
        ({"tokenizer.json": '{"model": 1}'}, "tokenizer in .* cannot be read"),
        ({"config.json": HOMEMADE, "modeling.py": FOREIGN}, "cannot be loaded"),
        ({WEIGHTS: without_a_tensor}, r"lack 1 tensors, such as model\.layers\.2\.mlp\.up_proj"),
        ({WEIGHTS: of_an_encoder}, "keeps no keys and values to decode with, as an encoder"),
    ],
)
def test_a_folder_that_will_not_do_is_refused_in_one_line(qwen2_folder, damages, message):
    check_folder(qwen2_folder)
    for name, damage in damages.items():
        file = qwen2_folder / name
        if isinstance(damage, str):
            file.write_text(damage)
        else:
            file.unlink() if damage is ... else damage(file)
    with pytest.raises(ModelError, match=rf"^.*({message}).*$"):
        load_model(str(qwen2_folder))


def test_a_folder_whose_files_changed_is_refused(qwen2_folder):
    old = fingerprint(qwen2_folder)
    assert fetch_model(str(qwen2_folder), old) == qwen2_folder
    (qwen2_folder / "chat_template.jinja").write_text("{{ messages }}")
    new = fingerprint(qwen2_folder)
    with pytest.raises(ModelError, match=f"has fingerprint {new}, not {old}"):
        fetch_model(str(qwen2_folder), old)
    for path in (qwen2_folder / "absent", qwen2_folder / "config.json"):
        with pytest.raises(ModelError, match="is not a folder"):
            fetch_model(str(path))


SIZES = {"num_hidden_layers": 7, "num_attention_heads": 8}
FALCON = {"num_kv_heads": 2, "multi_query": True}


@pytest.mark.parametrize(
    ("config", "geometry"),
    [
        ({"n_layer": 12, "n_head": 8}, (12, 8, 8)),
        ({"n_layers": 12, "n_heads": 8}, (12, 8, 8)),
        ({"text_config": SIZES}, (7, 8, 8)),
        ({**SIZES, **FALCON}, (7, 8, 1)),
        ({**SIZES, **FALCON, "new_decoder_architecture": True}, (7, 8, 2)),
    ],
)
def test_geometry_is_read_under_every_name(tmp_path, config, geometry):
    (tmp_path / "config.json").write_text(json.dumps({"model_type": "any", **config}))
    stated = dict(zip(("layers", "heads", "kv_heads"), geometry, strict=True))
    check_geometry(tmp_path, **stated)
    for name, own in stated.items():
        message = f"{name}: 28 is stated, but .* says {own}; write {name}: {own}"
        with pytest.raises(ModelError, match=message):
            check_geometry(tmp_path, **{**stated, name: 28})
    (tmp_path / "config.json").write_text('{"model_type": "mamba", "num_hidden_layers": 3}')
    with pytest.raises(ModelError, match="does not state heads"):
        check_geometry(tmp_path, **stated)


def test_the_fingerprint_changes_with_every_small_file_and_slices_of_a_large_one(qwen2_folder):
    seen, weights = {fingerprint(qwen2_folder), fingerprint(qwen2_folder)}, qwen2_folder / WEIGHTS
    for name in ("config.json", "tokenizer.json", "generation_config.json", WEIGHTS):
        content = (qwen2_folder / name).read_bytes()
        last = content[-1:] + b" " if name.endswith("json") else bytes([content[-1] ^ 1])
        (qwen2_folder / name).write_bytes(content[:-1] + last)
        seen.add(fingerprint(qwen2_folder))
    size = 3 << 30  # a sparse file, of which a part is read
    header = json.dumps({"w": {"dtype": "U8", "shape": [size], "data_offsets": [0, size]}})
    start = len(header).to_bytes(8, "little") + header.encode()
    weights.write_bytes(start)
    total = len(start) + size
    os.truncate(weights, total)
    seen.add(fingerprint(qwen2_folder))
    for offset in (len(start), 31 * (total - (1 << 16)) // 63, total - 1):
        with weights.open("r+b") as stream:
            stream.seek(offset)
            stream.write(b"\1")
        seen.add(fingerprint(qwen2_folder))
    assert len(seen) == 9


RESPONSE = SimpleNamespace(headers={}, request=None, status_code=403, text="")


@pytest.mark.parametrize(
    ("error", "message"),
    [
        (errors.GatedRepoError("403", response=RESPONSE), "is gated; accept its terms at"),
        (
            errors.RepositoryNotFoundError("404", response=RESPONSE),
            r"some/model \(revision 0123abc\) cannot be fetched \(404\); check name,",
        ),
        (OSError(28, "No space left on device"), "No space left on device"),
    ],
)
def test_what_the_hub_refuses_is_explained_without_the_token(monkeypatch, error, message):
    monkeypatch.setenv("HF_TOKEN", "hf_secret")
    monkeypatch.setattr("huggingface_hub.snapshot_download", Mock(side_effect=error))
    with pytest.raises(ModelError, match=message) as caught:
        fetch_model("some/model", "0123abc")
    assert "hf_secret" not in str(caught.value)
    assert "\n" not in str(caught.value)


def test_only_files_that_are_read_are_downloaded(monkeypatch, qwen2_folder):
    download = Mock(return_value=str(qwen2_folder))
    monkeypatch.setattr("huggingface_hub.snapshot_download", download)
    assert fetch_model("some/model", "0123abc") == qwen2_folder
    ((source,), asked) = download.call_args
    assert (source, asked["revision"]) == ("some/model", "0123abc")
    assert not any(name.endswith((".bin", ".py", ".pth")) for name in asked["allow_patterns"])
