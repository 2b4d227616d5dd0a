"""`headsweep prune`, as a call and as a command: what it makes loads, what it refuses it says."""

import json
from contextlib import ExitStack

import pandas as pd
import pytest
import tiny_models
import torch
from tiny_models import Architecture, outputs
from transformers import AutoModelForCausalLM, AutoModelForMaskedLM

import headsweep
from damage import damaged
from headsweep.cli.main import main
from headsweep.errors import ModelError, TableError
from headsweep.experiments.athena.encoders import word_tokenizer
from headsweep.experiments.compression import criteria, pruning
from headsweep.files.record import read_record
from headsweep.files.safe_files import write_table
from headsweep.files.tables import ACCURACY
from headsweep.models.geometry import find_heads
from headsweep.models.masks import edited_weights
from headsweep.variants import Variant

LAYERS, HEADS, WORDS = 4, 6, [f"w{number}" for number in range(40)]
TEXTS = [" ".join(WORDS[start : start + length]) for start, length in enumerate((5, 9, 3, 12))]


@pytest.fixture(scope="module")
def qwen2(tmp_path_factory):
    return tiny_models.save_qwen2(tmp_path_factory.mktemp("models") / "qwen2")


@pytest.fixture(scope="module")
def bert(tmp_path_factory):
    folder = tmp_path_factory.mktemp("models") / "bert"
    masked = Architecture("Bert", {"max_position_embeddings": 128}, auto=AutoModelForMaskedLM)
    for part in (tiny_models.build(masked), word_tokenizer(WORDS, 1)):
        part.save_pretrained(folder)
    return folder


@pytest.mark.parametrize("form", ["zero", "uniform", "free"])
def test_the_command_makes_a_model_that_loads(form, qwen2, tmp_path, capsys):
    names = [f"L{layer:02d}H{head:02d}" for layer in range(LAYERS) for head in (3, 4, 5)]
    out = tmp_path / "out" / "pruned"
    command = ["prune", str(qwen2), "--heads", ",".join(names), "--out", str(out)]
    assert main([*command, f"--{form}"]) == 0
    whole = AutoModelForCausalLM.from_pretrained(qwen2)
    with ExitStack() as zeroed:
        geometry = find_heads(whole)
        for name in names:
            zeroed.enter_context(edited_weights(whole, geometry, Variant.parse(name)))
        expected = outputs(whole)
    loaded = headsweep.load_model(str(out))
    torch.testing.assert_close(outputs(loaded), expected, atol=1e-5, rtol=1e-5)
    if form != "free":
        plain = AutoModelForCausalLM.from_pretrained(out)
        assert torch.equal(outputs(plain), outputs(loaded))
    assert (loaded.num_parameters() < whole.num_parameters()) is (form != "zero")
    assert f"{out}: 12 heads removed" in capsys.readouterr().out
    assert json.loads((out / "pruned_heads.json").read_text())["removed"] == names


def test_the_result_has_a_record_and_a_damaged_file_of_it_is_refused(qwen2, tmp_path):
    out = tmp_path / "out"
    headsweep.prune(str(qwen2), out, ratio=0.2)
    record = read_record(out / "pruned_heads.json")
    assert record["pruning"]["source"] == str(qwen2) and record["pruning"]["form"] == "free"
    files = {file.name for file in out.iterdir() if not file.name.endswith(".run.json")}
    assert record["sha256"].keys() == files
    for name in sorted(files - {"README.md"}):
        with damaged(out / name), pytest.raises(ModelError) as error:
            headsweep.load_model(str(out))
        assert name in str(error.value)
    with damaged(out / "README.md"):  # the card is the user's to change
        headsweep.load_model(str(out))


def test_a_ratio_takes_the_lowest_heads(bert, qwen2, tmp_path):
    done = headsweep.prune(str(bert), tmp_path / "out", ratio=0.29, form="free")
    assert len(done.removed) == 6  # of 24
    removed = done.before.parameters - done.after.parameters
    assert removed == 6 * (4 * 48 * 8 + 3 * 8)
    model = headsweep.load_model(str(tmp_path / "out"))
    assert model.num_parameters() == done.after.parameters
    assert "6 heads removed" in str(done)
    card = (tmp_path / "out" / "README.md").read_text()
    assert f"| parameters | {done.after.parameters:,} of {done.before.parameters:,} |" in card
    done = headsweep.prune(str(qwen2), tmp_path / "zeroed", ratio=0.2, form="zeroed")
    assert len(done.removed) == 4 and done.before == done.after  # one by one, not in groups


@pytest.mark.parametrize("criterion", ["norm", "entropy", "mixed", "attention", "random"])
def test_every_criterion_chooses(criterion, qwen2, tmp_path):
    options = {"ratio": 0.4, "criterion": criterion, "seed": 3}
    options |= {"texts": TEXTS} if criteria.named(criterion).needs else {}
    first, again = (headsweep.prune(str(qwen2), tmp_path / name, **options) for name in "ab")
    assert first.removed == again.removed and len(first.removed) == 9  # 9.6, in groups of 3
    facts = [json.loads((tmp_path / name / "pruned_heads.json").read_text()) for name in "ab"]
    assert facts[0] == facts[1] and facts[0]["criterion"]


def test_no_text_is_longer_than_the_model_reads(tmp_path):
    """GPT-2 reads 100 tokens by its config, whatever its tokenizer says; a text has 160."""
    kind = Architecture("GPT2", {"max_position_embeddings": 100})
    for part in (tiny_models.build(kind), word_tokenizer(WORDS, 1)):
        part.save_pretrained(tmp_path / "gpt2")
    options = {"ratio": 0.4, "criterion": "entropy", "texts": [" ".join(WORDS * 4)]}
    assert headsweep.prune(str(tmp_path / "gpt2"), tmp_path / "out", **options).removed


def test_the_causal_criterion_reads_an_accuracy_matrix(qwen2, tmp_path):
    heads = [Variant(layer, head) for layer in (0, 2) for head in range(HEADS)]
    columns = {str(head): [1, int(head not in (Variant(0, 1), Variant(2, 4)))] for head in heads}
    facts = {"question_id": ["a", "b"], "subject": None, "level": None, "base": [1, 1]}
    table = pd.DataFrame({**facts, **columns})
    write_table(tmp_path / "z.parquet", table, ACCURACY)
    options = {"criterion": "causal", "accuracy": tmp_path / "z.parquet"}
    done = headsweep.prune(str(qwen2), tmp_path / "out", ratio=0.25, **options)
    expected = [Variant(0, head) for head in (3, 4, 5)] + [Variant(2, head) for head in (0, 1, 2)]
    assert list(done.removed) == expected


def test_an_accuracy_matrix_that_is_missing_is_told_before_a_model_is_fetched(
    tmp_path, monkeypatch
):
    monkeypatch.setattr(pruning, "fetch_model", lambda *_: 1 / 0)
    options = {"criterion": "causal", "accuracy": tmp_path / "z.parquet"}
    with pytest.raises(TableError, match=r"z\.parquet"):
        headsweep.prune("far/away", tmp_path / "out", ratio=0.25, **options)


@pytest.mark.parametrize(("unit", "lost"), [("group", 3), ("query", 2)])
def test_a_uniform_ratio_takes_as_many_of_every_layer(unit, lost, qwen2, tmp_path):
    """6 heads times 0.6 are 3.6: one group of 3, or one query of each of 2 groups."""
    options = {"form": "uniform", "unit": unit, "criterion": "random"}
    done = headsweep.prune(str(qwen2), tmp_path / "out", ratio=0.6, **options)
    assert [head.layer for head in done.removed] == sorted([*range(LAYERS)] * lost)
    AutoModelForCausalLM.from_pretrained(tmp_path / "out")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"ratio": 0.95}, "22 heads cannot go: 20 can, as each of 4 layers keeps 1"),
        ({"ratio": 0.01}, "ratio 0.01 removes no head"),
        ({"ratio": 1.5}, "ratio 1.5 is not between 0 and 1"),
        ({}, "say which heads are to go"),
        ({"heads": ["L01H01"], "ratio": 0.2}, "say which heads are to go"),
        ({"heads": []}, "`heads` is empty; name some, such as L05H03, or give a `ratio`"),
        ({"heads": ["base"]}, "base names no head to remove"),
        ({"ratio": 0.2, "form": "uniform"}, "no BertConfig has 5 heads"),
        ({"ratio": 0.2, "criterion": "entropy"}, "criterion entropy looks at texts"),
        ({"ratio": 0.2, "criterion": "causal"}, "criterion causal reads the accuracy matrix"),
        ({"heads": ["L01H01"], "texts": ["w1"]}, "texts would be ignored, as heads are named"),
        (
            {"ratio": 0.2, "texts": ["w1"]},
            r"norm reads none; .* reads texts \(entropy, mixed, atten",
        ),
        ({"ratio": 0.2, "criterion": "mixed", "texts": ["w1"] * 2, "alpha": 2.0}, "alpha 2.0"),
    ],
)
def test_what_cannot_be_done_is_refused_in_one_line(options, message, bert, tmp_path):
    with pytest.raises(ModelError, match=message) as caught:
        headsweep.prune(str(bert), tmp_path / "out", **options)
    assert "\n" not in str(caught.value)
    assert list(tmp_path.iterdir()) == []


def test_the_command_reads_texts_and_says_what_it_refuses(
    bert, qwen2, tmp_path, capsys, monkeypatch
):
    arguments = ["prune", str(qwen2), "--heads", "L01H01", "--out", str(tmp_path / "out")]
    assert main([*arguments, "--free"]) == 2
    assert main([*arguments, "--zero"]) == 0
    assert main([*arguments, "--zero"]) == 2  # the folder exists now
    file = tmp_path / "texts.txt"
    monkeypatch.setattr(pruning, "_SCORED_TOKENS", 100)  # BERT here reads no more than 128
    file.write_text("\n\n".join([*TEXTS, "w1 " * 200]))
    command = ["prune", str(bert), "--ratio", "0.2", "--free", "--criterion", "mixed"]
    assert main([*command, "--out", str(tmp_path / "2"), "--texts", str(file)]) == 0
    assert "4 heads removed" in capsys.readouterr().out
    assert main([*command, "--out", str(tmp_path / "3"), "--texts", f"{file}.none"]) == 2
