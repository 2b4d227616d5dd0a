"""Models in GGUF: read whole, refused in one line."""

import hashlib
import os
import random
import time
from unittest.mock import Mock

import numpy as np
import pytest
from gguf import GGUFReader, GGUFWriter, dequantize
from transformers import LlamaConfig

from headsweep.benchmarks.prompts import prompt_text
from headsweep.cli.asked import Asked
from headsweep.config import Decoding, parse
from headsweep.errors import ConfigError, ModelError
from headsweep.models import gguf, source
from headsweep.models.checkpoints import stated_config
from headsweep.models.gguf_stated import complete
from headsweep.models.load import load_model
from headsweep.store.keys import key
from headsweep.store.revisions import resolve


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
    ends = gguf._end_token_ids(file, gguf._read(file).fields)
    assert ends == [1, 2]  # every token that ends an answer


def test_a_file_of_the_working_folder_needs_no_dot_in_a_command(tmp_path, monkeypatch):
    sizes = {"block_count": 3, "attention__head_count": 8, "attention__head_count_kv": 2}
    file = written(tmp_path / "tiny.gguf", **sizes)
    (tmp_path / "own.csv").write_text("question,answer\nWhat is 1 + 2?,3\n")
    monkeypatch.chdir(tmp_path)
    asked = Asked(model="tiny.gguf", benchmark="own.csv")
    config = resolve(asked.config("own", {"greedy": asked.greedy()}, {}))
    model = config.models["model"]
    assert (model.source, model.revision) == (str(file), gguf.sha256(file))
    # A config may be read in another folder: there the same words are a hub id.
    typed = config.model_dump(mode="json", exclude_none=True)
    typed["models"]["model"]["source"] = "tiny.gguf"
    with pytest.raises(ConfigError, match=r"'tiny.gguf' is here but .* write '\./tiny.gguf', or"):
        resolve(parse(typed))


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


WORDS = ["<s>", "</s>", "<|im_end|>", *(chr(97 + number) for number in range(26)), "ab", "cd"]
SIZES = {
    "attn_norm": (24,),
    "ffn_norm": (24,),
    "attn_q": (24, 24),
    "attn_k": (8, 24),
    "attn_v": (8, 24),
    "attn_output": (24, 24),
    "ffn_gate": (40, 24),
    "ffn_up": (40, 24),
    "ffn_down": (24, 40),
}


@pytest.fixture(scope="module")
def llama(tmp_path_factory):
    """A file that transformers reads: a Llama of two layers."""
    return write_llama(tmp_path_factory.mktemp("gguf") / "llama.gguf")


def write_llama(file, split="gpt-2", factors=None, **rope):
    """Write a Llama of two layers, with a split of texts and settings of rotary embeddings."""
    draw = np.random.default_rng(0)
    writer = GGUFWriter(file, "llama")
    writer.add_block_count(2)
    writer.add_context_length(64)
    writer.add_embedding_length(24)
    writer.add_feed_forward_length(40)
    writer.add_head_count(6)
    writer.add_head_count_kv(2)
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_rope_dimension_count(4)
    writer.add_vocab_size(len(WORDS))
    writer.add_tokenizer_model("gpt2")
    if split:
        writer.add_tokenizer_pre(split)
    for name, value in rope.items():
        add = writer.add_string if isinstance(value, str) else writer.add_float32
        add(f"llama.rope.{name.replace('__', '.')}", value)
    writer.add_token_list(WORDS)
    writer.add_token_types([3, 3, 3, *[1] * (len(WORDS) - 3)])
    writer.add_token_merges(["a b", "c d"])
    writer.add_eos_token_id(1)
    tensors = {"token_embd": (len(WORDS), 24), "output": (len(WORDS), 24), "output_norm": (24,)}
    tensors |= {f"blk.{n}.{name}": shape for n in range(2) for name, shape in SIZES.items()}
    if factors is not None:
        writer.add_tensor("rope_freqs.weight", np.array(factors, np.float32))
    for name, shape in tensors.items():
        writer.add_tensor(f"{name}.weight", draw.normal(size=shape).astype(np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return file


def test_what_lies_beside_a_file_is_not_read(llama, tmp_path, monkeypatch):
    """Not by transformers, which would run the tokenizer's code; nor from where it is called."""
    monkeypatch.setattr("builtins.input", lambda _: "y")
    monkeypatch.chdir(tmp_path)
    (tmp_path / "llama.gguf").write_text("another file of that name")
    beside = tmp_path / "beside"
    beside.mkdir()
    file = beside / "llama.gguf"
    file.write_bytes(llama.read_bytes())
    code = '{"auto_map": {"AutoTokenizer": ["modeling.Evil", null]}, "tokenizer_class": "Evil"}'
    (beside / "tokenizer_config.json").write_text(code)
    (beside / "adapter_config.json").write_text('{"base_model_name_or_path": "/nowhere"}')
    (beside / "modeling.py").write_text("from pathlib import Path; Path('PWNED').touch()")
    gguf.convert(file, tmp_path / "made", "float32")
    loaded = load_model(str(tmp_path / "made"), device="cpu")
    own = next(each for each in GGUFReader(llama).tensors if each.name == "blk.1.ffn_up.weight")
    np.testing.assert_array_equal(
        loaded.model.model.layers[1].mlp.up_proj.weight.detach().numpy(), own.data
    )
    assert not (tmp_path / "PWNED").exists()


def with_frequencies(factors=(), **rope):
    """Return what becomes of a Llama's config by what a file states of rotary embeddings."""
    fields = {f"llama.rope.{name.replace('__', '.')}": value for name, value in rope.items()}
    config = LlamaConfig(hidden_size=24, num_attention_heads=6, head_dim=4)
    complete(config, {"general.architecture": "llama", **fields}, np.array(factors))
    return config.rope_parameters


@pytest.mark.parametrize(
    ("stated", "read"),
    [
        ({"scaling__type": "linear", "scaling__factor": 4.0}, ("linear", 4)),
        ({"scale_linear": 2.0}, ("linear", 2)),
        ({"scaling__type": "none", "scaling__factor": 4.0}, ("default", None)),
        ({"scaling__type": "linear"}, ("default", None)),
        ({"factors": [8.0, 8.0]}, ("linear", 8)),
    ],
)
def test_rotary_scaling_is_read(stated, read):
    rope = with_frequencies(**stated)
    assert (rope["rope_type"], rope.get("factor")) == read


def test_factors_of_a_file_are_read(tmp_path):
    file = write_llama(tmp_path / "a.gguf", factors=[8.0, 8.0])
    gguf.convert(file, tmp_path / "made", "float32")
    assert stated_config(tmp_path / "made").rope_parameters["factor"] == 8


@pytest.mark.parametrize(
    ("stated", "message"),
    [
        ({"factors": [0.5, 3.0]}, "not the frequencies of a Llama 3"),
        ({"factors": [2.0, 2.0], "scale_linear": 2.0}, "are both there"),
    ],
)
def test_frequencies_that_no_config_has_are_refused(stated, message):
    with pytest.raises(ValueError, match=message):
        with_frequencies(**stated)


@pytest.mark.parametrize(
    ("stated", "message"),
    [
        ({"scaling__type": "yarn", "scaling__factor": 4.0}, "scaling.type 'yarn' is not read"),
        ({"split": "deepseek-llm"}, "tokenizer.ggml.pre is 'deepseek-llm'; read are"),
        ({"split": None}, "tokenizer.ggml.pre is None; read are"),
    ],
)
def test_what_a_file_states_and_is_not_read_is_refused(stated, message, tmp_path):
    with pytest.raises(ModelError, match=f"^[^\n]*{message}[^\n]*$"):
        gguf.convert(write_llama(tmp_path / "a.gguf", **stated), tmp_path / "made", "float32")


def ends_well(file, made):
    """Convert a file that may be damaged, or see that it is refused in one line."""
    started = time.process_time()
    try:
        gguf.stated_geometry(file)
        gguf.convert(file, made, "float32")
    except ModelError as error:
        assert str(file) in str(error) and str(error).isprintable() and len(str(error)) < 710
    assert time.process_time() - started < 60


def test_a_file_cut_off_at_any_power_of_two_is_refused(llama, tmp_path):
    whole = llama.read_bytes()
    for power in range(len(whole).bit_length()):
        short = tmp_path / f"{power}.gguf"
        short.write_bytes(whole[: 1 << power])
        with pytest.raises(ModelError, match=f"^{short} is (not a GGUF|truncated or damaged)"):
            gguf.stated_geometry(short)
        ends_well(short, tmp_path / "made")


def test_a_file_with_flipped_bits_ends_well(llama, tmp_path):
    """In the header, where they decide how much is read and how large a model is built."""
    gguf.convert(llama, tmp_path / "made", "float32")  # what is imported takes its own time
    whole = llama.read_bytes()
    for seed in range(50 if "HEADSWEEP_NIGHTLY" in os.environ else 12):
        draw, content = random.Random(seed), bytearray(whole)
        for _ in range(draw.choice([1, 1, 3])):
            content[draw.randrange(4, 3000)] ^= 1 << draw.randrange(8)
        (tmp_path / f"{seed}.gguf").write_bytes(content)
        ends_well(tmp_path / f"{seed}.gguf", tmp_path / "made")


@pytest.mark.parametrize(
    ("field", "bit", "message"),
    [
        ("llama.block_count", 6, r"states 66 layers \(block_count\), but holds the tensors of 2"),
        ("llama.feed_forward_length", 24, r"describe 2,\d+,\d+,\d+ parameters"),
        ("llama.rope.dimension_count", 21, r"describe 1,\d+,\d+,\d+ parameters"),
        ("blk.1.ffn_up.weight", None, "lacks 1 tensors, such as model.layers.1.mlp.up_proj"),
        ("tokenizer.ggml.eos_token_id", 9, "names no token that ends an answer"),
        ("tokenizer.ggml.tokens", None, "has no tokens with a type each"),
        ("general.architecture", None, "holds no model"),
    ],
)
def test_a_file_whose_fields_do_not_fit_it_is_refused(llama, tmp_path, field, bit, message):
    content, name = bytearray(llama.read_bytes()), field.encode()
    place = content.index(len(name).to_bytes(8, "little") + name) + 8
    if bit is None:
        content[place + len(name) - 1] ^= 1  # another name
    else:
        content[place + len(name) + 4 + bit // 8] ^= 1 << bit % 8
    (tmp_path / "odd.gguf").write_bytes(content)
    with pytest.raises(ModelError, match=rf"^.*{message}.*$"):
        gguf.convert(tmp_path / "odd.gguf", tmp_path / "made", "float32")
    assert not (tmp_path / "made").exists()


COUNT = (1 << 40).to_bytes(8, "little")
FIELD = (1).to_bytes(8, "little") + b"k"


@pytest.mark.parametrize(
    ("rest", "message"),
    [
        (COUNT + bytes(8), "1099511627776 tensors do not fit"),
        (bytes(8) + COUNT, "1099511627776 fields do not fit"),
        (bytes(8) + FIELD[:8] + COUNT, "1099511627776 bytes of text do not fit"),
        (bytes(8) + FIELD[:8] + FIELD + b"\x08\0\0\0" + COUNT, "bytes of text do not fit"),
        (bytes(8) + FIELD[:8] + FIELD + b"\x09\0\0\0\x04\0\0\0" + COUNT, "numbers do not fit"),
        (bytes(8) + FIELD[:8] + FIELD + b"\x09\0\0\0\x08\0\0\0" + COUNT, "texts do not fit"),
        (bytes(8) + FIELD[:8] + FIELD + b"\x09\0\0\0\x09\0\0\0" + COUNT, "unknown type 9"),
    ],
)
def test_no_count_or_length_is_believed(tmp_path, rest, message):
    file = tmp_path / "100.gguf"
    file.write_bytes((b"GGUF\3\0\0\0" + rest).ljust(100, b"\0"))
    with pytest.raises(ModelError, match=rf"^{file} is truncated or damaged \(.*{message}.*$"):
        gguf.stated_geometry(file)


@pytest.fixture(scope="module")
def loaded(smol, converted):
    folder, facts = converted
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
    with gguf._read_once_by_transformers():  # in a third of the time
        from gguf import GGUFReader as Reader

        tensors = {tensor.name: tensor for tensor in Reader(smol).tensors}
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
