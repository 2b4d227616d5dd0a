"""What a GGUF file states is what a model read from it computes, and how it splits texts."""

import json
from pathlib import Path

import pytest
from test_gguf_export import (
    REAL,
    SPLITS,
    llama_cpp_logits,
    own_logits,
    read,
    save,
    save_bpe,
    with_llama_cpp,
)

from headsweep.models import gguf
from headsweep.models.gguf_export import export_gguf
from headsweep.models.load import load_tokenizer

ROPES = {
    "linear": {"rope_type": "linear", "factor": 4.0, "rope_theta": 500.0},
    "llama3": {
        "rope_type": "llama3",
        "rope_theta": 500.0,
        "factor": 8.0,
        "low_freq_factor": 1.0,
        "high_freq_factor": 4.0,
        "original_max_position_embeddings": 32,
    },
}


@pytest.mark.parametrize("rope", ROPES)
def test_frequencies_of_a_file_are_read_back(rope, tmp_path):
    folder = save(tmp_path / "whole", "Llama", rope_parameters=ROPES[rope])
    file = export_gguf(folder, tmp_path / "made.gguf", kind="f32").file
    gguf.convert(file, tmp_path / "back", "float32")
    ids = [5, 9, 0, 211, 77, 140, 8, 250]
    assert abs(own_logits(tmp_path / "back", ids) - own_logits(folder, ids)).max() < 1e-4


@pytest.mark.parametrize("split", SPLITS)
def test_a_file_whose_split_is_read_gives_the_same_tokens_and_is_exported_again(split, tmp_path):
    """If a file has to give other tokens, answers of before are not to be found: `gguf.READING`."""
    folder = save(tmp_path / "whole", "Llama")
    save_bpe(folder, split)
    file = export_gguf(folder, tmp_path / "made.gguf", kind="f32").file
    gguf.convert(file, tmp_path / "back", "float32")
    text = "Tim paid 123456 dollars, Ann 1,000.50: don't DON'T\n\n x  y"
    first, back = (load_tokenizer(one)(text).input_ids for one in (folder, tmp_path / "back"))
    assert back == first
    _, fields, _ = read(export_gguf(tmp_path / "back", tmp_path / "again.gguf").file)
    assert fields["tokenizer.ggml.pre"] == split


@with_llama_cpp
@pytest.mark.parametrize("rope", ROPES)
def test_what_is_read_of_a_file_is_what_llama_cpp_computes(rope, tmp_path):
    folder = save(tmp_path / "whole", "Llama", rope_parameters=ROPES[rope])
    file = export_gguf(folder, tmp_path / "made.gguf", kind="f32").file
    gguf.convert(file, tmp_path / "back", "float32")
    ids = [5, 9, 0, 211, 77, 140, 8, 250]
    found, _ = llama_cpp_logits(file, ids, 0)
    assert abs(found - own_logits(tmp_path / "back", ids)).max() < 1e-3


@with_llama_cpp
@pytest.mark.parametrize("file", REAL, ids=lambda file: Path(file or "SmolLM2").name)
def test_the_tokens_of_a_file_are_llama_cpps(file, headsweep_data, tmp_path):
    import llama_cpp

    smol = headsweep_data.parent / "models" / "SmolLM2-135M-Instruct.Q4_1.gguf"
    file = Path(file or smol)
    gguf.convert(file, tmp_path / "whole", "float32")
    tokenizer = load_tokenizer(tmp_path / "whole")
    reader = llama_cpp.Llama(str(file), vocab_only=True, verbose=False)
    for line in (headsweep_data / "gsm8k_test.jsonl").read_text("utf-8").splitlines():
        text = json.loads(line)["question"]
        found = reader.tokenize(text.encode(), add_bos=False, special=True)
        assert found == tokenizer(text, add_special_tokens=False).input_ids, text
    reader.close()
