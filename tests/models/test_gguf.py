"""Models in GGUF: read whole, refused in one line."""

import hashlib
from unittest.mock import Mock

import numpy as np
import pytest
from gguf import GGUFReader, GGUFWriter, dequantize

from headroom.config import Decoding, parse
from headroom.errors import ConfigError, ModelError
from headroom.generation.prompts import prompt_text
from headroom.models import gguf, source
from headroom.models.load import load_model
from headroom.planning.inputs import resolve
from headroom.planning.store import key


def written(file, architecture="llama", tensors=1, **fields: int):
    writer = GGUFWriter(file, architecture)
    for name, value in fields.items():
        writer.add_uint32(f"{architecture}.{name.replace('__', '.')}", value)
    writer.add_token_list(["<s>", "</s>", "<|im_end|>", "a", "</s>b"])
    writer.add_token_types([3, 3, 3, 1, 1])
    writer.add_eos_token_id(1)
    for number in range(tensors):
        writer.add_tensor(f"t{number}", np.ones((2, 3), np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return file


def test_what_a_file_states(tmp_path):
    sizes = {"block_count": 3, "attention__head_count": 8, "attention__head_count_kv": 2}
    file = written(tmp_path / "tiny.gguf", tensors=4, **sizes)
    assert gguf.stated_geometry(file) == {"layers": 3, "heads": 8, "kv_heads": 2}
    assert gguf.count_parameters(file) == 24
    alone = written(tmp_path / "alone.gguf", block_count=3, attention__head_count=8)
    assert gguf.stated_geometry(alone)["kv_heads"] == 8  # each query head has its own
    assert gguf.sha256(file) == hashlib.sha256(file.read_bytes()).hexdigest()
    assert gguf._end_token_ids(gguf._read(file)) == [1, 2]  # every token that ends an answer


def test_files_that_cannot_be_read_are_refused_in_one_line(tmp_path):
    text, new = tmp_path / "text.gguf", written(tmp_path / "new.gguf", "rwkv99")
    text.write_text("a page that says 404")
    cases = {tmp_path / "none.gguf": "is missing", text: "not a GGUF file", new: "rwkv99"}
    whole = written(tmp_path / "whole.gguf", tensors=5).read_bytes()
    for part in (9, len(whole) // 2, len(whole) - 40):
        short = tmp_path / f"{part}.gguf"
        short.write_bytes(whole[:part])
        cases[short] = "truncated"
    for file, message in cases.items():
        with pytest.raises(ModelError, match=f"^.*{message}.*$"):
            gguf.convert(file, tmp_path / "made", "float32")
        assert not (tmp_path / "made").exists()


@pytest.fixture(scope="module")
def smol(headroom_data):
    return headroom_data.parent / "models" / "SmolLM2-135M-Instruct.Q4_1.gguf"


@pytest.fixture(scope="module")
def loaded(smol, tmp_path_factory):
    folder = tmp_path_factory.mktemp("gguf") / "checkpoint"
    facts = gguf.convert(smol, folder, "float32")
    assert facts["quantisation"] == {"F32": 61, "Q4_1": 210, "Q8_0": 1}
    assert facts["sha256"] == gguf.sha256(smol)
    return load_model(str(folder), device="cpu")


def test_a_folder_in_the_hubs_format_comes_of_it(smol, loaded):
    source.check_folder(loaded.folder)
    assert gguf.stated_geometry(smol) == source.stated_geometry(loaded.folder)
    assert gguf.count_parameters(smol) == source.count_parameters(loaded.folder)
    assert loaded.eos_token_ids == (0, 2)
    prompt = prompt_text(loaded.tokenizer, "What is 3 times 14?", Decoding(), "math")
    assert prompt.endswith("What is 3 times 14?<|im_end|>\n<|im_start|>assistant\n")
    tensors = {tensor.name: tensor for tensor in GGUFReader(smol).tensors}
    layer = loaded.model.model.layers[17]
    for name, weight in {
        "token_embd.weight": loaded.model.get_input_embeddings().weight,
        "blk.17.attn_v.weight": layer.self_attn.v_proj.weight,
        "blk.17.attn_output.weight": layer.self_attn.o_proj.weight,
        "blk.17.ffn_down.weight": layer.mlp.down_proj.weight,
        "blk.17.attn_norm.weight": layer.input_layernorm.weight,
    }.items():
        own = dequantize(tensors[name].data, tensors[name].tensor_type)
        np.testing.assert_array_equal(weight.detach().numpy(), own, name)


def test_a_file_is_named_in_a_repository_or_on_the_disk_and_known_by_its_content(
    tmp_path, monkeypatch
):
    file = written(tmp_path / "tiny.gguf", block_count=3, attention__head_count=8)
    download = Mock(return_value=str(tmp_path))
    monkeypatch.setattr("huggingface_hub.snapshot_download", download)
    commit, digest = "0" * 40, gguf.sha256(file)
    for revision, asked in ((commit, commit), (digest, None)):
        options = {"gguf_file": file.name, "or_file": True}
        assert source.fetch_model("owner/name", revision, **options) == file
        download.assert_called_with("owner/name", revision=asked, allow_patterns=[file.name])
    with pytest.raises(ModelError, match=f"has sha256 {digest}, not {'1' * 64}"):
        source.fetch_model(str(file), "1" * 64, or_file=True)
    with pytest.raises(ModelError, match="is a GGUF file; a sweep dequantises it"):
        source.fetch_model(str(file))
    section = {"layers": 3, "heads": 8, "kv_heads": 8, "billions": 1, "dtype": "float32"}

    def own(**changes: str):
        return parse({"run": "r", "models": {"own": {**section, **changes}}})

    config = resolve(own(source=str(file)))
    assert config.models["own"].revision == digest
    moved = own(source="./x.gguf", revision=digest)
    assert key(moved, "models", "own") == key(config, "models", "own")
    with pytest.raises(ConfigError, match="give its path as `source`"):
        own(source="./x", gguf_file="x.gguf")
