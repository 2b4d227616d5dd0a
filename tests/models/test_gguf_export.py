"""Decoders written as GGUF give their own logits, by another implementation of llama.cpp's graphs.

With llama-cpp-python there, llama.cpp itself says so too: `make llama-cpp`.
"""

import inspect
import json
import os
import sys
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import tiny_models
import torch
from gguf import GGUFReader, Keys
from gguf_forward import logits, read
from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import PreTrainedTokenizerFast
from transformers.convert_slow_tokenizer import TikTokenConverter
from transformers.models.qwen2.tokenization_qwen2 import PRETOKENIZE_REGEX

import headsweep
from headsweep.cli.main import main
from headsweep.errors import ModelError
from headsweep.models import gguf, gguf_vocabulary, llamacpp
from headsweep.models.gguf_export import export_gguf
from headsweep.models.load import load_tokenizer

TOKENS = 300
GROUP, OTHER = ("L01H03", "L01H04", "L01H05"), ("L02H00", "L02H03")
EVEN = tuple(f"L{layer:02d}H{head:02d}" for layer in range(4) for head in (0, 1, 2))
LLAMA3 = {
    "rope_type": "llama3",
    "rope_theta": 10000.0,
    "factor": 8.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 16,
}
SENTENCE = "Ann's 3 apples and 24 pears cost 17.5 euros: how much is one?\n\n  (It depends.) été"


def modern(regex):
    split = pre_tokenizers.Split(Regex(regex), "isolated")
    bytes_alone = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    return pre_tokenizers.Sequence([split, bytes_alone])


LLAMA3_SPLIT = inspect.signature(TikTokenConverter).parameters["pattern"].default
SPLITS = {
    "gpt-2": pre_tokenizers.ByteLevel(add_prefix_space=False),
    "smollm": pre_tokenizers.Sequence(
        [pre_tokenizers.Digits(individual_digits=True), pre_tokenizers.ByteLevel(False)]
    ),
    "qwen2": modern(PRETOKENIZE_REGEX),
    "llama-bpe": modern(LLAMA3_SPLIT),
}
"""Ways to split texts, as transformers makes them, by llama.cpp's names."""


def save_bpe(folder, split="gpt-2"):
    """Write a byte-level BPE tokenizer of 300 tokens, three of them special."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = SPLITS[split]
    tokenizer.decoder = decoders.ByteLevel()
    special = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]
    trainer = trainers.BpeTrainer(
        vocab_size=TOKENS - 2,
        special_tokens=special,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
    )
    tokenizer.train_from_iterator([SENTENCE] * 5, trainer)
    tokenizer.add_tokens([AddedToken("[tool]", special=False, normalized=False)])
    PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        eos_token="<|im_end|>",
        pad_token="<|endoftext|>",
        unk_token="<|im_start|>",
        chat_template="{{ messages }}",
    ).save_pretrained(folder)


def save(folder, name, **settings):
    """Write a tiny decoder whose weights, biases and norms are all at random."""
    kind = tiny_models.named(name)
    size = {"vocab_size": TOKENS, "eos_token_id": 2, **settings}
    kind = tiny_models.Architecture(name, {**kind.settings, **size}, kind.kv_heads)
    model = tiny_models.build(kind)
    draw = torch.Generator().manual_seed(5)
    for parameter in model.parameters():
        if parameter.ndim == 1:
            parameter.data.add_(0.3 * torch.randn(parameter.shape, generator=draw))
    model.save_pretrained(folder)
    save_bpe(folder)
    return folder


def own_logits(folder, ids):
    return logits_of(headsweep.load_model(str(folder)), ids)


def logits_of(model, ids):
    with torch.no_grad():
        return model.float()(torch.tensor([ids])).logits[0].numpy()


ALL_AT_ONCE = {"attention_bias": True, "rope_parameters": LLAMA3, "tie_word_embeddings": True}
CASES = {
    "Llama": ("Llama", {}, (), "llama"),
    "a narrower Llama": ("Llama", {}, EVEN, "llama"),
    "an uneven Llama": ("Llama", {}, (*GROUP, *OTHER), "deci"),
    "an uneven Llama 3 with biases and tied embeddings": ("Llama", ALL_AT_ONCE, GROUP, "deci"),
    "an uneven Mistral": ("Mistral", {"sliding_window": None}, OTHER, "deci"),
    "Qwen2": ("Qwen2", {}, (), "qwen2"),
    "a narrower Qwen2": ("Qwen2", {}, EVEN, "deci"),
    "an uneven Qwen2": ("Qwen2", {}, (*GROUP, *OTHER), "deci"),
    "a narrower Qwen3": ("Qwen3", {}, EVEN, "qwen3"),
}


@pytest.fixture(params=CASES)
def case(request, tmp_path):
    """Return a folder of a decoder without some heads, and the graph that it needs."""
    name, settings, heads, graph = CASES[request.param]
    folder = save(tmp_path / "whole", name, **settings)
    if heads:
        form = "uniform" if heads == EVEN else "free"
        headsweep.prune(str(folder), tmp_path / "pruned", heads=heads, form=form)
        folder = tmp_path / "pruned"
    return folder, graph


def test_a_file_gives_the_decoders_logits(case, tmp_path):
    folder, graph = case
    done = export_gguf(folder, tmp_path / "made.gguf", kind="f32")
    ids = [5, 9, 0, 211, 77, 140, 33, 299, 260, 6, 7]
    model = headsweep.load_model(str(folder))
    found, wanted = logits(done.file, ids), logits_of(model, ids)
    assert (done.graph, read(done.file)[0]) == (graph, graph)
    assert abs(found - wanted).max() < 1e-4 * abs(wanted).max()
    factors = 5 if model.config.rope_parameters["rope_type"] == "llama3" else 0
    assert done.weight_bytes == 4 * (model.num_parameters() + factors)
    width = sum(
        layer.self_attn.k_proj.out_features + layer.self_attn.v_proj.out_features
        for layer in model.model.layers
    )
    assert done.cache_bytes_per_token == 2 * width


def test_the_tokenizer_goes_along(tmp_path):
    """Of each split: `test_gguf_import`."""
    folder = save(tmp_path / "whole", "Llama")
    save_bpe(folder, "qwen2")
    _, fields, _ = read(export_gguf(folder, tmp_path / "made.gguf").file)
    tokenizer = load_tokenizer(folder)
    own = {name.removeprefix("tokenizer.ggml."): value for name, value in fields.items()}
    assert own["tokens"][:3] == ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]
    assert own["tokens"][5:298] == tokenizer.convert_ids_to_tokens(range(5, 298))
    assert own["token_type"] == [3] * 3 + [1] * 295 + [4, 5]
    assert (own["eos_token_id"], own["padding_token_id"], own["add_bos_token"]) == (2, 0, False)
    assert fields[Keys.Tokenizer.UNK_ID] == 1
    assert own["pre"] == "qwen2"
    stored = json.loads((folder / "tokenizer.json").read_text())["model"]["merges"]
    assert own["merges"] == [" ".join(pair) for pair in stored]
    assert fields["tokenizer.chat_template"] == "{{ messages }}"


def test_types_are_what_they_say(tmp_path):
    """Rows of 96 fit blocks of 32; an output projection of 30 columns does not: it is float16."""
    folder, sizes, widths = save(tmp_path / "whole", "Llama", hidden_size=96), {}, {}
    headsweep.prune(str(folder), tmp_path / "less", heads=GROUP)
    for kind in ("f32", "f16", "q8_0"):
        done = export_gguf(tmp_path / "less", tmp_path / f"{kind}.gguf", kind=kind)
        _, _, widths[kind] = read(done.file)
        types = {each.name: each.tensor_type.name for each in GGUFReader(done.file).tensors}
        assert types["blk.0.attn_norm.weight"] == "F32"
        assert types["blk.0.attn_q.weight"] == kind.upper()
        assert types["blk.1.attn_output.weight"] == ("F16" if kind == "q8_0" else kind.upper())
        sizes[kind] = done.weight_bytes
    assert sizes["q8_0"] < sizes["f16"] < sizes["f32"]
    for name, exact in widths["f32"].items():
        assert abs(widths["f16"][name] - exact).max() <= 1e-3 * abs(exact).max()
        assert abs(widths["q8_0"][name] - exact).max() <= abs(exact).max() / 220


def test_a_tokenizer_is_taken_from_another_file(tmp_path):
    folder = save(tmp_path / "whole", "Llama")
    first = export_gguf(folder, tmp_path / "first.gguf").file
    words = [f"w{number}" for number in range(TOKENS)]
    tiny_models.save_tokenizer(folder, words)
    with pytest.raises(ModelError, match=r"not written as GGUF \(WordLevel\); .* --gguf-tokenizer"):
        export_gguf(folder, tmp_path / "none.gguf")
    for split, told in ((None, "without"), (pre_tokenizers.Metaspace(), "with pre-tok.* Meta")):
        vocabulary = {word: number for number, word in enumerate(words)}
        backend = Tokenizer(models.BPE(vocabulary, []))
        if split:
            backend.pre_tokenizer = split
        tokenizer = PreTrainedTokenizerFast(tokenizer_object=backend)
        with pytest.raises(ModelError, match=rf"not written as GGUF \(BPE {told}"):
            gguf_vocabulary.vocabulary(tokenizer, TOKENS, folder, None)
    second = export_gguf(folder, tmp_path / "second.gguf", tokenizer=first).file
    fields = [gguf.tokenizer_fields(file) for file in (first, second)]
    assert fields[0] == fields[1] and len(fields[0]["tokenizer.ggml.tokens"]) == TOKENS
    kinds = [GGUFReader(file).fields for file in (first, second)]
    for name in fields[0]:
        assert kinds[0][name].types == kinds[1][name].types
    other = save(tmp_path / "other", "Llama", vocab_size=301)
    with pytest.raises(ModelError, match=r"first.gguf has 300 tokens, but .* has 301"):
        export_gguf(other, tmp_path / "none.gguf", tokenizer=first)
    assert not (tmp_path / "none.gguf").exists()


@pytest.mark.parametrize("change", [{"model_type": "foo"}, {"vocab_size": "many"}])
def test_a_config_that_transformers_cannot_read_is_refused_in_a_line(change, tmp_path):
    file = save(tmp_path / "whole", "Llama") / "config.json"
    file.write_text(json.dumps(json.loads(file.read_text()) | change))
    with pytest.raises(ModelError, match=r"config\.json cannot be read \(.*; use") as caught:
        export_gguf(file.parent, tmp_path / "made.gguf")
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("name", "settings", "heads", "message"),
    [
        ("GPT2", {}, (), "GPT2LMHeadModel is not written as GGUF; LlamaForCausalLM, "),
        ("Qwen3", {}, GROUP, "no graph of Qwen3ForCausalLM with layers with different numbers"),
        ("Llama", {"hidden_act": "gelu"}, (), "no graph of LlamaForCausalLM with activation gelu"),
        ("Mistral", {"sliding_window": 8}, (), "with attention in a sliding window"),
        (
            "Qwen2",
            {"rope_parameters": {"rope_type": "dynamic", "rope_theta": 1e4, "factor": 2.0}},
            (),
            "with rotary embedding dynamic",
        ),
    ],
)
def test_what_llama_cpp_has_no_graph_for_is_refused(name, settings, heads, message, tmp_path):
    folder = save(tmp_path / "whole", name, **settings)
    if heads:
        headsweep.prune(str(folder), tmp_path / "less", heads=heads)
        folder = tmp_path / "less"
    with pytest.raises(ModelError, match=message) as caught:
        export_gguf(folder, tmp_path / "made.gguf")
    assert "\n" not in str(caught.value) and not (tmp_path / "made.gguf").exists()


def test_the_commands_write_files(tmp_path, capsys, monkeypatch):
    folder, out = save(tmp_path / "whole", "Llama"), tmp_path / "made.gguf"
    assert main(["export-gguf", str(folder), "--out", str(out), "--gguf-type", "q8_0"]) == 0
    assert "made.gguf: q8_0, graph llama, " in capsys.readouterr().out
    monkeypatch.chdir(tmp_path)
    assert main(["export-gguf", "./whole"]) == 0
    assert (
        tmp_path / "whole-f16.gguf"
    ).exists() and "whole-f16.gguf: f16" in capsys.readouterr().out
    assert main(["export-gguf", str(folder), "--out", str(out)]) == 2
    assert "exists; remove it" in capsys.readouterr().err
    headsweep.prune(str(folder), tmp_path / "less", heads=GROUP)
    monkeypatch.setattr(llamacpp, "installed", lambda: False)
    assert main(["export-gguf", "./less", "--gguf-type", "q4_k_m"]) == 2
    assert "q4_k_m is made by llama-cpp-python; install it" in capsys.readouterr().err
    assert main(["export-gguf", "./less"]) == 0
    written = capsys.readouterr().out.rstrip()
    assert "graph deci" in written
    assert written.endswith("not loaded for a test, as llama-cpp-python is not installed")


def test_a_file_that_llama_cpp_cannot_load_is_not_written(tmp_path, monkeypatch):
    def fails(*_, **__):
        raise ValueError("Failed to load model from file")

    monkeypatch.setitem(sys.modules, "llama_cpp", SimpleNamespace(Llama=fails))
    monkeypatch.setattr(llamacpp, "installed", lambda: True)
    monkeypatch.setattr(llamacpp, "_silent", lambda: None)
    folder, out = save(tmp_path / "whole", "Llama"), tmp_path / "out"
    message = r"llama.cpp cannot load .*Failed to load model from file\); update llama-cpp-python"
    with pytest.raises(ModelError, match=message):
        export_gguf(folder, out / "made.gguf")
    assert [*out.iterdir()] == []


REAL = [*filter(None, os.environ.get("HEADSWEEP_GGUF", "").split(":")), None]
with_llama_cpp = pytest.mark.skipif(
    not llamacpp.installed(), reason="nightly: llama-cpp-python is not installed; make llama-cpp"
)


def llama_cpp_logits(file, ids, answer):
    """Return llama.cpp's logits of one text, and its greedy answer of so many tokens.

    Keys and values are kept in float32, as in transformers; by default they are in float16.
    """
    import llama_cpp

    exact = {"type_k": 0, "type_v": 0, "flash_attn": False, "logits_all": True}
    model = llama_cpp.Llama(str(file), n_ctx=256, n_gpu_layers=0, verbose=False, **exact)
    model.eval(ids)
    found, tokens = np.array(model.scores[: len(ids)]), []
    for _ in range(answer):
        tokens.append(int(model.scores[model.n_tokens - 1].argmax()))
        model.eval(tokens[-1:])
    model.close()
    return found, tokens


@with_llama_cpp
def test_llama_cpp_gives_the_decoders_logits(case, tmp_path):
    folder, _ = case
    done, ids = export_gguf(folder, tmp_path / "made.gguf", kind="f32"), [5, 9, 0, 211, 77, 140]
    assert done.tokens_per_second > 0
    found, _ = llama_cpp_logits(done.file, ids, 0)
    assert abs(found - own_logits(folder, ids)).max() < 1e-3


@with_llama_cpp
@pytest.mark.parametrize("split", SPLITS)
def test_llama_cpp_splits_texts_as_the_tokenizer_does(split, tmp_path):
    import llama_cpp

    folder = save(tmp_path / "whole", "Llama")
    save_bpe(folder, split)
    file, tokenizer = export_gguf(folder, tmp_path / "made.gguf").file, load_tokenizer(folder)
    reader = llama_cpp.Llama(str(file), vocab_only=True, verbose=False)
    for text in (SENTENCE, "<|im_start|>user 123456 don't DON'T<|im_end|> [tool]\n\n\n x  y "):
        found = reader.tokenize(text.encode(), add_bos=False, special=True)
        assert found == tokenizer(text, add_special_tokens=False).input_ids
    reader.close()


@with_llama_cpp
def test_llama_cpp_makes_k_quants(tmp_path):
    folder = save(tmp_path / "whole", "Llama", hidden_size=768)
    done = export_gguf(folder, tmp_path / "made.gguf", kind="q4_k_m")
    types = {each.name: each.tensor_type.name for each in GGUFReader(done.file).tensors}
    assert types["blk.0.attn_q.weight"] == "Q4_K" and types["blk.0.attn_norm.weight"] == "F32"
    assert {file.name for file in tmp_path.iterdir()} == {"whole", "made.gguf"}
    assert 0 < done.weight_bytes < export_gguf(folder, tmp_path / "f.gguf").weight_bytes / 2


@with_llama_cpp
@pytest.mark.parametrize("form", ["uniform", "free"])
@pytest.mark.parametrize("file", REAL, ids=lambda file: Path(file or "SmolLM2").name)
def test_llama_cpp_answers_as_headsweep_does(file, form, headsweep_data, tmp_path):
    """A real model without some heads: its texts, tokens, logits and greedy answers."""
    smol = headsweep_data.parent / "models" / "SmolLM2-135M-Instruct.Q4_1.gguf"
    gguf.convert(Path(file or smol), tmp_path / "whole", "float32")
    options = {"unit": "query", "form": form, "criterion": "random", "ratio": 0.34}
    headsweep.prune(str(tmp_path / "whole"), tmp_path / "less", **options)
    done = export_gguf(tmp_path / "less", tmp_path / "made.gguf", kind="f32")
    model, tokenizer = (load(tmp_path / "less") for load in (headsweep.load_model, load_tokenizer))
    chat = [{"role": "user", "content": SENTENCE}]
    text = tokenizer.apply_chat_template(chat, tokenize=False, add_generation_prompt=True)
    ids = tokenizer(text, add_special_tokens=False).input_ids
    found, answer = llama_cpp_logits(done.file, ids, 48)
    assert abs(found - own_logits(tmp_path / "less", ids)).max() < 1e-3
    row = torch.tensor([ids])
    made = model.generate(
        row,
        attention_mask=torch.ones_like(row),  # else an end within the prompt counts as padding
        max_new_tokens=48,
        do_sample=False,
        eos_token_id=None,
        repetition_penalty=1.0,
    )
    assert answer == made[0, len(ids) :].tolist()
    import llama_cpp

    reader = llama_cpp.Llama(str(done.file), vocab_only=True, verbose=False)
    assert reader.tokenize(text.encode(), add_bos=False, special=True) == ids
    reader.close()
