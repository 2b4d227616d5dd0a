"""Encoders: of the hub's formats, from scratch, and the ones that will not do."""

from pathlib import Path

import pytest
import torch
from transformers import (
    BertConfig,
    BertModel,
    BertTokenizerFast,
    PreTrainedTokenizerFast,
    Qwen2Config,
    Qwen2ForCausalLM,
    RobertaConfig,
    RobertaModel,
)

from headroom.athena.equations import NUMBER
from headroom.athena.generated import generate
from headroom.athena.solver import new_solver
from headroom.config.compression import Encoder, Solver
from headroom.errors import ModelError
from headroom.models.geometry import find_heads
from headroom.models.load import load_encoder, new_encoder, word_tokenizer
from headroom.models.removal import remove_heads
from headroom.variants import Variant

TEXTS = ["two three two one", "one two [NUM] two", "one rare"]
PROBLEMS = generate(40, seed=7)
WORDS = sorted({word for problem in PROBLEMS for word in problem.text.split()} - {NUMBER})


def tokenizer(extra: int = 0) -> PreTrainedTokenizerFast:
    return word_tokenizer([*WORDS, *(f"extra{number}" for number in range(extra))], 1)


def save_bert(folder: Path, rows: int | None = None, **more) -> None:
    """Save a BERT with a pooler, as the hub's own are."""
    words = BertTokenizerFast(
        vocab={
            word: place
            for place, word in enumerate(["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *WORDS])
        }
    )
    words.save_pretrained(folder)
    config = BertConfig(
        vocab_size=rows or len(words),
        hidden_size=20,
        num_hidden_layers=3,
        num_attention_heads=5,
        intermediate_size=24,
        max_position_embeddings=60,
    )
    BertModel(config, **more).save_pretrained(folder)


def save_roberta(folder: Path) -> None:
    words = tokenizer()
    words.save_pretrained(folder)
    config = RobertaConfig(
        vocab_size=len(words),
        hidden_size=20,
        num_hidden_layers=3,
        num_attention_heads=5,
        intermediate_size=24,
        pad_token_id=words.pad_token_id,
    )
    RobertaModel(config).save_pretrained(folder)


@pytest.mark.parametrize("save", [save_bert, save_roberta])
def test_encoders_of_the_hub_become_solvers(tmp_path: Path, save) -> None:
    save(tmp_path)
    solver = new_solver(Solver(encoder=Encoder(source=str(tmp_path)), depth=2), PROBLEMS, seed=1)
    assert solver.athena.encoder.pooler is None
    assert solver.athena.head.reason.attention.head_dim == 4
    assert solver.athena.head.reason.before.inner.out_features == 24
    examples = solver.prepare(PROBLEMS)
    for problem, example in zip(PROBLEMS, examples, strict=True):
        masks = example.input_ids == solver.tokenizer.mask_token_id
        assert masks.sum() == len(problem.numbers)
        assert masks[example.places].all()
        last = int(example.input_ids[example.goal])
        assert solver.tokenizer.convert_ids_to_tokens(last) == "?"
    assert len(solver.answers(examples[:5])) == 5


def test_the_weights_are_those_of_the_folder(tmp_path: Path) -> None:
    save_bert(tmp_path)
    model, words = load_encoder(str(tmp_path))
    reference = BertModel.from_pretrained(tmp_path).eval()
    texts = words(["one [MASK] has two .", "ada has [MASK]"], padding=True, return_tensors="pt")
    assert texts["attention_mask"][1, -1] == 0  # padded on the right
    with torch.no_grad():
        ours, theirs = model(**texts).last_hidden_state, reference(**texts).last_hidden_state
    torch.testing.assert_close(ours, theirs)


def test_an_encoder_from_scratch_loads_again_even_pruned(tmp_path: Path) -> None:
    settings = Encoder(layers=2, width=18, heads=3, intermediate=22, min_count=1)
    model, words = new_encoder(settings, TEXTS, seed=4)
    remove_heads(model, find_heads(model), [Variant(1, 0)])
    model.save_pretrained(tmp_path)
    words.save_pretrained(tmp_path)
    loaded, again = load_encoder(str(tmp_path))
    texts = words(["one two [MASK] unknown", "rare"], padding=True, return_tensors="pt")
    assert (
        again(["one two [MASK] unknown", "rare"])["input_ids"][0] == texts["input_ids"][0].tolist()
    )
    with torch.no_grad():
        first = model(texts["input_ids"], texts["attention_mask"]).last_hidden_state
        second = loaded(texts["input_ids"], texts["attention_mask"]).last_hidden_state
    assert torch.equal(first, second)
    assert loaded.encoder.layer[1].attention.self.query.weight.shape == (12, 18)


def test_a_tokenizer_larger_than_the_embeddings_is_refused(tmp_path: Path) -> None:
    save_bert(tmp_path, rows=11)
    with pytest.raises(
        ModelError, match=r"has \d+ entries, but the model's embeddings have 11 row"
    ):
        load_encoder(str(tmp_path))


def test_a_tokenizer_without_mask_token_is_refused(tmp_path: Path) -> None:
    words = tokenizer()
    plain = PreTrainedTokenizerFast(
        tokenizer_object=words.backend_tokenizer, unk_token="[UNK]", pad_token="[PAD]"
    )
    plain.save_pretrained(tmp_path)
    config = Qwen2Config(
        vocab_size=len(words),
        hidden_size=8,
        num_hidden_layers=1,
        num_attention_heads=2,
        num_key_value_heads=1,
        intermediate_size=12,
    )
    Qwen2ForCausalLM(config).save_pretrained(tmp_path)
    with pytest.raises(ModelError, match="has no mask token to stand for numbers") as error:
        load_encoder(str(tmp_path))
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"source": "roberta-base", "width": 64}, "has a shape of its own; remove width"),
        ({"width": 100, "heads": 3}, "cannot be divided into 3 heads"),
        ({"revision": "abc"}, "`revision` belongs to `source`"),
    ],
)
def test_settings_that_contradict_are_refused(settings: dict, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Encoder(**settings)
