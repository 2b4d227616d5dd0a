"""`headroom prune`, as a call and as a command: what it makes loads, what it refuses it says."""

import json
from contextlib import ExitStack
from pathlib import Path

import pandas as pd
import pyarrow as pa
import pytest
import torch
from small import build
from torch import Tensor
from transformers import (
    AutoModelForCausalLM,
    BertConfig,
    BertForMaskedLM,
    PreTrainedModel,
    Qwen2Config,
    Qwen2ForCausalLM,
)

import headroom
from headroom.cli import main
from headroom.errors import ModelError
from headroom.models.geometry import find_heads
from headroom.models.load import word_tokenizer
from headroom.models.masks import edited_weights
from headroom.tables import ACCURACY, write_table
from headroom.variants import Variant

LAYERS, HEADS, KV_HEADS, WORDS = 3, 6, 2, [f"w{number}" for number in range(40)]
TEXTS = [" ".join(WORDS[start : start + length]) for start, length in enumerate((5, 9, 3, 12))]


def save(model: PreTrainedModel, folder: Path) -> Path:
    model.save_pretrained(folder)
    word_tokenizer(WORDS, 1).save_pretrained(folder)
    return folder


SHAPE = {
    "vocab_size": 50,
    "hidden_size": 48,
    "num_hidden_layers": LAYERS,
    "num_attention_heads": HEADS,
    "intermediate_size": 28,
}


@pytest.fixture(scope="module")
def qwen2(tmp_path_factory: pytest.TempPathFactory) -> Path:
    config = Qwen2Config(**SHAPE, num_key_value_heads=KV_HEADS, head_dim=10)
    return save(build(Qwen2ForCausalLM, config, 0.2), tmp_path_factory.mktemp("models") / "qwen2")


@pytest.fixture(scope="module")
def bert(tmp_path_factory: pytest.TempPathFactory) -> Path:
    model = build(BertForMaskedLM, BertConfig(**SHAPE), 0.2)
    return save(model, tmp_path_factory.mktemp("models") / "bert")


def outputs(model: PreTrainedModel) -> Tensor:
    ids = torch.arange(24).view(3, 8)
    with torch.no_grad():
        return model.eval()(input_ids=ids, attention_mask=torch.ones_like(ids))[0]


@pytest.mark.parametrize("form", ["zero", "uniform", "free"])
def test_the_command_makes_a_model_that_loads(form, qwen2, tmp_path, capsys):
    """The second group of every layer goes."""
    names = [f"L{layer:02d}H{head:02d}" for layer in range(LAYERS) for head in (3, 4, 5)]
    out = tmp_path / "out" / "pruned"
    assert (
        main(["prune", str(qwen2), "--heads", ",".join(names), f"--{form}", "--out", str(out)]) == 0
    )
    whole = AutoModelForCausalLM.from_pretrained(qwen2)
    with ExitStack() as zeroed:
        geometry = find_heads(whole)
        for name in names:
            zeroed.enter_context(edited_weights(whole, geometry, Variant.parse(name)))
        expected = outputs(whole)
    loaded = headroom.load_model(str(out))
    torch.testing.assert_close(outputs(loaded), expected, atol=1e-5, rtol=1e-5)
    if form != "free":
        plain = AutoModelForCausalLM.from_pretrained(out)
        assert torch.equal(outputs(plain), outputs(loaded))
    assert (loaded.num_parameters() < whole.num_parameters()) is (form != "zero")
    assert f"{out}: 9 heads removed" in capsys.readouterr().out
    assert json.loads((out / "pruned_heads.json").read_text())["removed"] == names


def test_a_ratio_takes_the_lowest_heads(bert, tmp_path):
    done = headroom.prune(str(bert), tmp_path / "out", ratio=0.29, form="free")
    assert len(done.removed) == 5  # of 18
    removed = done.before.parameters - done.after.parameters
    assert removed == 5 * (4 * 48 * 8 + 3 * 8)
    model = headroom.load_model(str(tmp_path / "out"))
    assert model.num_parameters() == done.after.parameters
    assert "5 heads removed" in str(done)
    card = (tmp_path / "out" / "README.md").read_text()
    assert f"| parameters | {done.after.parameters:,} of {done.before.parameters:,} |" in card


@pytest.mark.parametrize("criterion", ["norm", "entropy", "mixed", "attention", "random"])
def test_every_criterion_chooses(criterion, qwen2, tmp_path):
    options = {"ratio": 0.4, "criterion": criterion, "texts": TEXTS, "seed": 3}
    done = headroom.prune(str(qwen2), tmp_path / "out", **options)
    again = headroom.prune(str(qwen2), tmp_path / "again", **options)
    assert len(done.removed) == 6  # 7.2 heads, in groups of 3
    assert done.removed == again.removed
    first, second = (
        json.loads((tmp_path / name / "pruned_heads.json").read_text()) for name in ("out", "again")
    )
    assert first == second and first["criterion"]


def test_the_causal_criterion_reads_an_accuracy_matrix(qwen2, tmp_path):
    heads = [Variant(layer, head) for layer in (0, 2) for head in range(HEADS)]
    columns = {str(head): [1, int(head not in (Variant(0, 1), Variant(2, 4)))] for head in heads}
    schema = ACCURACY
    for name in ("base", *columns):
        schema = schema.append(pa.field(name, pa.int8(), nullable=False))
    z = pd.DataFrame(
        {"question_id": ["a", "b"], "subject": None, "level": None, "base": [1, 1], **columns}
    )
    write_table(tmp_path / "z.parquet", z, schema)
    done = headroom.prune(
        str(qwen2),
        tmp_path / "out",
        ratio=0.35,
        criterion="causal",
        accuracy=tmp_path / "z.parquet",
    )
    assert [str(head) for head in done.removed] == [
        *("L00H03", "L00H04", "L00H05"),
        *("L02H00", "L02H01", "L02H02"),
    ]


@pytest.mark.parametrize(("unit", "lost"), [("group", 3), ("query", 2)])
def test_a_uniform_ratio_takes_as_many_of_every_layer(unit, lost, qwen2, tmp_path):
    """6 heads times 0.6 are 3.6: one group of 3, or one query of each of 2 groups."""
    done = headroom.prune(
        str(qwen2), tmp_path / "out", ratio=0.6, form="uniform", unit=unit, criterion="random"
    )
    assert [head.layer for head in done.removed] == sorted([*range(LAYERS)] * lost)
    AutoModelForCausalLM.from_pretrained(tmp_path / "out")


def test_zeroed_heads_go_one_by_one(qwen2, tmp_path):
    done = headroom.prune(str(qwen2), tmp_path / "out", ratio=0.25, form="zeroed")
    assert len(done.removed) == 4
    assert done.before == done.after


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"ratio": 0.95}, "17 heads cannot go: 15 can, as each of 3 layers keeps 1"),
        ({"ratio": 0.01}, "ratio 0.01 removes no head"),
        ({"ratio": 1.5}, "ratio 1.5 is not between 0 and 1"),
        ({}, "say which heads are to go"),
        ({"heads": ["L01H01"], "ratio": 0.2}, "say which heads are to go"),
        ({"heads": ["base"]}, "base names no head to remove"),
        ({"ratio": 0.2, "form": "uniform"}, "no config of BertForMaskedLM has 5 heads"),
        ({"ratio": 0.2, "criterion": "entropy"}, "criterion entropy looks at texts"),
        ({"ratio": 0.2, "criterion": "causal"}, "criterion causal reads the accuracy matrix"),
        ({"ratio": 0.2, "criterion": "mixed", "texts": ["w1"] * 2, "alpha": 2.0}, "alpha 2.0"),
    ],
)
def test_what_cannot_be_done_is_refused_in_one_line(options, message, bert, tmp_path):
    with pytest.raises(ModelError, match=message) as caught:
        headroom.prune(str(bert), tmp_path / "out", **options)
    assert "\n" not in str(caught.value)
    assert list(tmp_path.iterdir()) == []


def test_groups_that_would_become_unequal_are_refused(qwen2, tmp_path, caplog):
    arguments = ["prune", str(qwen2), "--heads", "L01H01", "--out", str(tmp_path / "out")]
    with pytest.raises(ModelError, match="layer 1 would keep 2, 3 query heads in its 2 groups"):
        headroom.prune(str(qwen2), tmp_path / "out", heads=["L01H01"])
    assert main([*arguments, "--free"]) == 2
    assert main([*arguments, "--zero"]) == 0
    assert main([*arguments, "--zero"]) == 2  # the folder exists now


def test_the_command_reads_texts_from_a_file(bert, tmp_path, capsys):
    file = tmp_path / "texts.txt"
    file.write_text("\n\n".join(TEXTS))
    out = str(tmp_path / "out")
    command = ["prune", str(bert), "--ratio", "0.2", "--free", "--criterion", "mixed", "--out", out]
    assert main([*command, "--texts", str(file)]) == 0
    assert "3 heads removed" in capsys.readouterr().out
    assert main([*command[:-1], f"{out}2", "--texts", str(tmp_path / "none.txt")]) == 2
