"""`headsweep prune --recover`: what it makes loads and is what it says; nothing done is lost."""

import gc
import json
import shutil
import subprocess
import sys
import weakref
from contextlib import ExitStack
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import tiny_models
import torch
from safetensors.torch import load_file
from small import assert_trained_alike, killed_at, same
from torch.distributed import TCPStore
from transformers import (
    AutoModelForCausalLM,
    AutoTokenizer,
    BloomConfig,
    GPT2Config,
    LlamaConfig,
    LlavaConfig,
    MptConfig,
    XLNetConfig,
)
from words import HELD_OUT, TEXTS, WORDS, count_steps, keep_every_state

import headsweep
import warm
from damage import damaged
from headsweep.benchmarks.prompts import encode_prompt
from headsweep.cli.main import main
from headsweep.config import Decoding
from headsweep.errors import HeadsweepError
from headsweep.experiments.compression import pruning
from headsweep.experiments.compression.criteria import loss_rises
from headsweep.experiments.recovery import evaluation, prune
from headsweep.experiments.recovery.benchmark import read_benchmark
from headsweep.experiments.recovery.evaluation import perplexity, text_losses
from headsweep.experiments.recovery.scoring import scores_on_texts
from headsweep.experiments.recovery.settings import recovery
from headsweep.experiments.recovery.texts import cut
from headsweep.files.record import read_record
from headsweep.models.geometry import find_heads, most_tokens
from headsweep.models.masks import edited_weights
from headsweep.variants import Variant

SMALL: dict[str, Any] = {
    "ratio": 0.4,
    "rounds": 2,
    "steps": 5,
    "batch_size": 4,
    "length": 8,
    "learning_rate": 1e-2,
    "calibration": 5,
    "device": "cpu",
}


def recovered(folder, out, **options):
    return headsweep.prune_and_recover(
        str(folder), out, TEXTS[7:], **{"held_out": HELD_OUT, **SMALL, **options}
    )


@pytest.fixture(scope="module", autouse=True)
def _quick_timing():
    """Time few tokens, once; `test_generation_is_timed_at_its_full_length` looks at the times.

    A command in a process of its own generates all of them.
    """
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(evaluation, "ANSWER_TOKENS", 2)
        patch.setattr(evaluation, "TURNS", 1)
        yield


@pytest.fixture(scope="module")
def done(llama, tmp_path_factory):
    return recovered(llama, tmp_path_factory.mktemp("done") / "out")


def test_the_result_loads_and_is_what_its_files_say(llama, done):
    """7.2 of 18 heads are due: 3.6 in the first round, so one group of 3, then the second."""
    facts = json.loads((done.folder / "recovery.json").read_text())
    assert [len(each["heads"]) for each in facts["removals"]] == [3, 3]
    assert [len(each["scores"]) for each in facts["removals"]] == [18, 15]
    for removal in facts["removals"]:
        lowest = sorted(removal["scores"].values())
        assert max(removal["scores"][head] for head in removal["heads"]) < lowest[-1]
    model = headsweep.load_model(str(done.folder))
    kept = {layer.index: layer.original_heads for layer in find_heads(model).layers}
    gone = {str(Variant(layer, head)) for layer in kept for head in {*range(6)} - {*kept[layer]}}
    assert gone == {*done.removed} == {head for r in facts["removals"] for head in r["heads"]}
    pieces = cut(HELD_OUT, AutoTokenizer.from_pretrained(done.folder), 8)
    for name, own in (("before", headsweep.load_model(str(llama))), ("recovered", model)):
        result = facts["measured"][name]
        found = perplexity(text_losses(own, pieces, 3))
        assert result["perplexity"]["value"] == pytest.approx(found.value, rel=1e-5)
        assert result["parameters"] == own.num_parameters()
    assert facts["measured"] == done.measured
    assert facts["measured"]["pruned"]["perplexity"] != facts["measured"]["recovered"]["perplexity"]
    assert facts["progress"]["step"] == 5 == len(facts["progress"]["losses"])
    card = (done.folder / "README.md").read_text()
    assert "headsweep.load_model" in card
    assert f"{found.value:.4g} (" in card
    assert not done.folder.with_name("out.partial").exists()
    assert str(done).count("\n") > 6
    assert str(done).endswith("headsweep.load_model loads it")
    record = read_record(done.folder / "recovery.json")
    files = {file.name for file in done.folder.iterdir() if not file.name.endswith(".run.json")}
    assert record["sha256"].keys() == files - {"README.md"}  # users write to that
    with damaged(done.folder / "model.safetensors"), pytest.raises(HeadsweepError, match="damaged"):
        headsweep.load_model(str(done.folder))


def test_equal_layers_make_a_plain_checkpoint(llama, tmp_path):
    """A unit of 2 heads goes in each round, each time of another layer."""
    options = {"ratio": 0.34, "rounds": 3, "unit": "query", "scope": "layer"}
    done = recovered(llama, tmp_path / "out", **options, criterion="random", seed=2)
    assert done.form == "uniform"
    assert [Variant.parse(head).layer for head in done.removed] == [0, 0, 1, 1, 2, 2]
    plain = AutoModelForCausalLM.from_pretrained(tmp_path / "out")
    assert (plain.config.num_attention_heads, plain.config.num_key_value_heads) == (4, 2)


def test_uniform_is_uniform(nines, tmp_path):
    """9 heads a layer in 3 groups; scores of all layers together would take them unevenly."""
    options = {"ratio": 0.5, "uniform": True, "criterion": "random", "seed": 3}
    done = recovered(nines, tmp_path / "out", **options)
    assert done.form == "uniform" and len(done.removed) == 3 * 3
    plain = AutoModelForCausalLM.from_pretrained(tmp_path / "out")
    assert (plain.config.num_attention_heads, plain.config.num_key_value_heads) == (6, 2)
    assert str(done).endswith("9 heads removed; uniform: plain from_pretrained loads it")


def test_a_ratio_that_cannot_be_uniform_is_refused_with_those_that_can(nines, tmp_path):
    """3 layers lose 2.25 of 9 heads each; 3 go at once. Both commands say so, before any work."""
    message = (
        r"ratio 0.25 leaves no uniform model: of a layer's 9 heads 3 go at once, .* use 0.334, "
        r"0.667$"
    )
    with pytest.raises(HeadsweepError, match=message):
        recovered(nines, tmp_path / "out", ratio=0.25, uniform=True)
    with pytest.raises(HeadsweepError, match=message):
        headsweep.prune(str(nines), tmp_path / "out", ratio=0.25, form="uniform")
    assert not [*tmp_path.iterdir()]
    for ratio in (0.334, 0.667):
        done = headsweep.prune(str(nines), tmp_path / f"{ratio}", ratio=ratio, form="uniform")
        assert str(done).endswith("uniform: plain from_pretrained loads it")


def test_counts_that_no_config_has_are_rounded_down_too(tmp_path):
    """Width 48: transformers takes 6, 4, 3 or 2 heads, not 5. What has no config ends free."""
    folder, kind = tmp_path / "sixes", tiny_models.wide("Llama", num_key_value_heads=6)
    tiny_models.build(kind).save_pretrained(folder)
    tiny_models.save_tokenizer(folder, WORDS)
    with pytest.raises(HeadsweepError, match=r"ratio 0.2 .* use 0.334, 0.5, 0.667, 0.834"):
        headsweep.prune(str(folder), tmp_path / "none", ratio=0.2, form="uniform")
    done = headsweep.prune(str(folder), tmp_path / "out", ratio=0.49, form="uniform")
    assert len(done.removed) == 2 * 4
    assert AutoModelForCausalLM.from_pretrained(done.folder).config.num_attention_heads == 4


def test_a_model_that_has_no_uniform_form_is_refused_before_the_training(llama, done, tmp_path):
    with pytest.raises(HeadsweepError, match=r"has layers with different numbers .* prune the mod"):
        recovered(done.folder, tmp_path / "out", uniform=True)
    folder, words = tmp_path / "gpt2", {"vocab_size": len(WORDS), "eos_token_id": 1}
    tiny_models.build(tiny_models.Architecture("GPT2", words)).save_pretrained(folder)
    for file in llama.glob("tokenizer*"):
        shutil.copyfile(file, folder / file.name)
    with pytest.raises(HeadsweepError, match="no GPT2Config has 4 heads of width 8 in a model of"):
        recovered(folder, tmp_path / "out", uniform=True)
    assert not [*tmp_path.glob("out*")]


def test_without_removal_only_the_weights_change(llama, tmp_path):
    """Three of five held-out texts are among those that it is trained on, which is told."""
    done = recovered(llama, tmp_path / "out", ratio=0, teacher="original", held_out=TEXTS[5:10])
    assert done.removed == ()
    before, pruned, after = (each["perplexity"] for each in done.measured.values())
    assert before == pruned != after
    assert find_heads(headsweep.load_model(str(tmp_path / "out"))).heads == 18
    card = (tmp_path / "out" / "README.md").read_text()
    assert "trained further; no attention head was removed." in card
    assert "chosen by" not in card and "- pruned" not in card
    assert json.loads((done.folder / "recovery.json").read_text())["held_out_trained_on"] == 3
    assert "5 held-out texts" in card and "Of these texts 3 are also trained on" in card


@pytest.fixture(scope="module")
def killed(llama, tmp_path_factory):
    """What a run leaves that is killed at its last step, with a state of the training."""
    out = tmp_path_factory.mktemp("killed") / "out"
    with pytest.MonkeyPatch.context() as patch:
        keep_every_state(patch)
        killed_at(5, lambda count: (count_steps(patch, count), recovered(llama, out)))
    assert not out.exists()
    return out.with_name("out.partial")


def test_a_killed_run_ends_as_if_nothing_happened(llama, done, killed, tmp_path, monkeypatch):
    out, calls = tmp_path / "out", []
    shutil.copytree(killed, tmp_path / "out.partial")
    count_steps(monkeypatch, lambda: calls.append(1))
    again = recovered(llama, out)
    assert len(calls) == 1
    assert same(*(load_file(each / "model.safetensors") for each in (out, done.folder)))
    assert again.removed == done.removed


def test_the_same_call_returns_a_complete_result_and_removes_what_a_kill_left(
    llama, done, tmp_path, monkeypatch
):
    """Beside it lies the unfinished result of another call, whose name is that of a control."""
    out, other = tmp_path / "out", tmp_path / "out.control.partial"
    shutil.copytree(done.folder, out)
    call = read_record(out / "recovery.json")["call"]
    alone = {**call, "settings": {**call["settings"], "ratio": 0.0}}
    for folder, own in ((tmp_path / "out.partial", call), (other, alone)):
        (folder / "round_2").mkdir(parents=True)
        (folder / "call.json").write_text(json.dumps(own))
    monkeypatch.setattr(prune, "load_checkpoint", lambda *_, **__: 1 / 0)
    again = recovered(llama, out)
    assert (again.form, again.removed, again.measured) == (done.form, done.removed, done.measured)
    assert {*tmp_path.iterdir()} == {out, other} and (other / "round_2").exists()
    for changes in ({"seed": 1}, {"control": True}):
        with pytest.raises(HeadsweepError, match=r"out exists.* headsweep export-gguf .*out"):
            recovered(llama, out, **changes)
    message = r"model.safetensors is damaged.*; name another folder by --out"
    with damaged(out / "model.safetensors"), pytest.raises(HeadsweepError, match=message):
        recovered(llama, out)
    (out / "README.md").write_text("# Our model")
    assert recovered(llama, out).measured == done.measured
    assert {*tmp_path.iterdir()} == {out, other}


def test_what_was_measured_is_not_measured_again(llama, done, tmp_path, monkeypatch):
    """Killed when two of three models were measured, and again when all were timed."""
    out = tmp_path / "out"

    def counting(name, count):
        own = getattr(evaluation, name)
        monkeypatch.setattr(evaluation, name, lambda *call: (count(), own(*call))[1])

    killed_at(3, lambda count: (counting("text_losses", count), recovered(llama, out)))
    texts, timed = [], []
    counting("text_losses", lambda: texts.append(1))
    counting("generated_per_second", lambda: timed.append(1))
    with monkeypatch.context() as patch, pytest.raises(ZeroDivisionError):
        patch.setattr(prune, "measured_how", lambda *_, **__: 1 / 0)
        recovered(llama, out)
    found = recovered(llama, out)
    assert (len(texts), len(timed)) == (1, 1)
    for name, result in done.measured.items():
        same_of_both = {key for key in result if not key.startswith("tokens_per_second")}
        assert {key: found.measured[name][key] for key in same_of_both} == {
            key: result[key] for key in same_of_both
        }


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"ratio": 0.8}, "9 heads cannot go: 3 can, as each of 3 layers keeps 3 of its own"),
        ({"ratio": 0.2}, "ratio 0.2 removes nothing of 12 heads, of which 3 go at once; raise it"),
    ],
)
def test_a_ratio_that_a_pruned_model_cannot_lose_is_refused_before_any_training(
    options, message, done, tmp_path, monkeypatch
):
    monkeypatch.setattr(prune, "scores_on_texts", lambda *_: 1 / 0)
    monkeypatch.setattr(prune, "train_round", lambda *_: 1 / 0)
    with pytest.raises(HeadsweepError, match=message):
        recovered(done.folder, tmp_path / "out", **options)


def test_heads_of_a_pruned_model_are_named_by_its_numbers(llama, tmp_path):
    """Layer 0 has lost its first three heads: its next one is L00H03 of the first model.

    One head is due: layer 0 has a single group left, others lose one of each of two.
    """
    source, out = tmp_path / "source", tmp_path / "out"
    headsweep.prune(str(llama), source, heads=["L00H00", "L00H01", "L00H02"])
    options = {"ratio": 0.07, "unit": "query", "rounds": 1, "steps": 1}
    found = recovered(source, out, **options)
    assert len(found.removed) == 1
    names = find_heads(headsweep.load_model(str(source))).by_original_name()
    facts, card = (
        json.loads((out / f"{name}.json").read_text()) for name in ("recovery", "pruned_heads")
    )
    (original,) = facts["removals"][0]["heads"]
    assert [str(names[original])] == card["removed"] == [*found.removed] != [original]
    assert found.removed[0] in (out / "README.md").read_text()
    assert recovered(source, out, **options).removed == found.removed


def test_a_killed_run_goes_on_with_less_memory(llama, done, tmp_path, monkeypatch):
    """Its last four of five steps take their pieces one at a time: only rounding differs."""
    keep_every_state(monkeypatch)
    out, calls = tmp_path / "out", []
    killed_at(2, lambda count: (count_steps(monkeypatch, count), recovered(llama, out)))
    count_steps(monkeypatch, lambda: calls.append(1))
    again = recovered(llama, out, micro_batch=1, gradient_checkpointing=True)
    assert len(calls) == 4 and again.removed == done.removed
    assert_trained_alike(*(load_file(each / "model.safetensors") for each in (out, done.folder)))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({}, "prompts of 1 questions have 64 tokens or more, which is all .*: 000000; leave"),
        ({"rope_type": "dynamic", "factor": 2.0}, "rope_type 'dynamic' makes an answer depend on"),
    ],
)
def test_what_could_not_be_answered_in_the_end_is_refused_at_first(
    change, message, llama, tmp_path, monkeypatch
):
    monkeypatch.setattr(prune, "train_round", lambda *_: 1 / 0)
    folder, words = tmp_path / "model", " ".join(["w1"] * (40 if change else 67))
    shutil.copytree(llama, folder)
    config = json.loads((folder / "config.json").read_text())
    config["rope_parameters"] |= change
    (folder / "config.json").write_text(json.dumps(config))
    (tmp_path / "mine.jsonl").write_text(json.dumps({"question": words, "answer": "w2"}))
    benchmark = read_benchmark(tmp_path / "mine.jsonl", "exact", None, 3)
    with pytest.raises(HeadsweepError, match=message):
        recovered(folder, tmp_path / "out", benchmark=benchmark)
    assert not [*tmp_path.glob("out*")]


def test_heads_that_cannot_be_cut_are_refused_before_they_are_scored(llama, tmp_path, monkeypatch):
    """Olmo2 norms all queries together."""
    monkeypatch.setattr(prune, "scores_on_texts", lambda *_: 1 / 0)
    words = {"vocab_size": len(WORDS), "eos_token_id": 1, "head_dim": 8}
    tiny_models.build(tiny_models.wide("Olmo2", **words)).save_pretrained(tmp_path / "olmo")
    for file in llama.glob("tokenizer*"):
        shutil.copyfile(file, tmp_path / "olmo" / file.name)
    with pytest.raises(HeadsweepError, match="mixes heads before attention"):
        recovered(tmp_path / "olmo", tmp_path / "out")
    assert not [*tmp_path.glob("out*")]


READ_AGAIN = (  # of an unfinished run; other files of a decoder stand in the same record
    *("call.json", "call.json.run.json", "removal_1.json", "removal_1.json.run.json"),
    *(f"round_1/{name}" for name in ("model.safetensors", "config.json", "tokenizer.json")),
    *("round_1/recovery.json", "round_1/recovery.json.run.json", "training_1.safetensors"),
)


def test_a_damaged_file_of_an_unfinished_run_is_refused(llama, killed, tmp_path):
    out = tmp_path / "out"
    work = Path(shutil.copytree(killed, tmp_path / "out.partial"))
    for file in map(work.joinpath, READ_AGAIN):
        with damaged(file), pytest.raises(HeadsweepError) as error:
            recovered(llama, out)
        assert file.name in str(error.value) and "remove" in str(error.value)
        assert not out.exists()


def test_the_causal_score_is_the_rise_without_a_group(llama):
    model = AutoModelForCausalLM.from_pretrained(llama)
    pieces, geometry = cut(TEXTS, AutoTokenizer.from_pretrained(llama), 8), find_heads(model)

    def loss(*without):
        with ExitStack() as zeroed:
            for head in without:
                zeroed.enter_context(edited_weights(model, geometry, head))
            losses = text_losses(model, pieces, 4)
            return float(losses.nats.sum() / losses.tokens.sum())

    group = [Variant(1, head) for head in (3, 4, 5)]
    single, found = (loss_rises(model, geometry, loss, groups=groups) for groups in (False, True))
    assert float(single[1][4]) == pytest.approx(loss(group[1]) - loss(), abs=1e-6)
    assert found[1][3:].tolist() == pytest.approx([loss(*group) - loss()] * 3, abs=1e-6)
    assert found[1].shape == (6,)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"ratio": 0.9}, "16 heads cannot go: 9 can, as each of 3 layers keeps 3 of its own"),
        ({"ratio": 0.1}, "ratio 0.1 removes nothing of 18 heads, of which 3 go at once"),
        ({"criterion": "size"}, "criterion 'size' is not known; use norm, entropy"),
        ({"steps": 1}, "1 steps cannot be divided over 2 rounds"),
        ({"length": 65}, "length 65 is too long: .* reads 64 tokens"),
        ({"device": "cuda:7"}, "device 'cuda:7' is not allowed"),
        ({"batch_size": 64}, "the texts make 32 pieces .* a step takes 64"),
        ({"held_out": HELD_OUT[:1]}, "1 held-out texts of at least 2 tokens show no spread"),
        ({"held_out": None}, None),
        ({"held_out": ["w1"] * 2, "length": 2}, None),
        ({"micro_batch": 1, "gradient_checkpointing": True}, None),
    ],
)
def test_what_cannot_be_done_is_said_before_anything_starts(
    options, message, llama, tmp_path, monkeypatch
):
    monkeypatch.setattr(
        "headsweep.experiments.recovery.prune.load_checkpoint", lambda *_, **__: 1 / 0
    )
    with pytest.raises(HeadsweepError if message else ZeroDivisionError, match=message):
        recovered(llama, tmp_path / "out", **options)
    assert (tmp_path / "out.partial").exists() is (message is None)
    if message is None:
        with pytest.raises(
            HeadsweepError, match=r"out.partial is of a call with other texts or se"
        ):
            recovered(llama, tmp_path / "out", **options, seed=1)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"lora": 2}, "LoRA needs the package peft, which is not installed"),
        ({"ratio": 0, "control": True}, "ratio 0 removes nothing: it is its own control"),
        ({"held_out": None}, "a tenth of 10 texts is too few to hold out"),
    ],
)
def test_what_needs_no_model_is_refused_before_one_is_fetched(
    options, message, tmp_path, monkeypatch
):
    monkeypatch.setitem(sys.modules, "peft", None)
    monkeypatch.setattr(prune, "fetch_model", lambda *_: 1 / 0)
    with pytest.raises(HeadsweepError, match=message):
        headsweep.prune_and_recover(
            "far/away", tmp_path / "out", TEXTS[:10], **{"held_out": HELD_OUT, **SMALL, **options}
        )
    assert not [*tmp_path.iterdir()]


@pytest.mark.parametrize(
    ("config", "limit"),
    [
        (GPT2Config(n_positions=16), 16),
        (MptConfig(max_seq_len=24), 24),
        (LlavaConfig(text_config=LlamaConfig(max_position_embeddings=48)), 48),
        (XLNetConfig(), None),  # says -1
        (BloomConfig(), None),
    ],
)
def test_the_limit_of_a_model_has_several_names(config, limit):
    assert most_tokens(config) == limit


def greedy(folder, questions, most):
    """Return the texts that a model answers with, by `generate`, one question at a time."""
    model, tokenizer = headsweep.load_model(str(folder)), AutoTokenizer.from_pretrained(folder)
    texts = []
    for question in questions:
        ids = encode_prompt(tokenizer, question, Decoding(), "exact")
        row = torch.tensor([ids])
        own = {"input_ids": row, "attention_mask": torch.ones_like(row)}
        made = model.generate(**own, max_new_tokens=most, do_sample=False)
        texts.append(tokenizer.decode(made[0, len(ids) :], skip_special_tokens=True))
    return texts


def test_all_models_answer_the_same_questions(llama, done, tmp_path, monkeypatch):
    """Half of the gold answers are the model's own, the others the recovered one's.

    Three tokens of random models seldom end: here answers that were cut count as they stand.
    """
    monkeypatch.setattr("headsweep.experiments.compression.decoder.gradable", lambda text, *_: text)
    asked = [f"w{number} w{3 * number}" for number in range(1, 14)]
    golds = zip(greedy(llama, asked, 3), greedy(done.folder, asked, 3), strict=True)
    rows = [
        {"question": each, "answer": pair[number % 2] or "w1"}
        for number, (each, pair) in enumerate(zip(asked, golds, strict=True))
    ]
    (tmp_path / "mine.jsonl").write_text("\n".join(map(json.dumps, rows)))
    benchmark = read_benchmark(tmp_path / "mine.jsonl", "exact", None, 3)
    found = recovered(llama, tmp_path / "out", benchmark=benchmark, control=True)
    alone, results = recovered(llama, tmp_path / "alone", ratio=0), found.measured
    assert list(results) == ["before", "pruned", "recovered", "control"]
    assert results["control"]["perplexity"] == alone.measured["recovered"]["perplexity"]
    assert results["control"]["parameters"] == results["before"]["parameters"]
    right = {}
    for name, folder in (("before", llama), ("recovered", found.folder), ("control", alone.folder)):
        texts = greedy(folder, asked, 3)
        right[name] = [row["answer"] == text for row, text in zip(rows, texts, strict=True)]
        assert results[name]["right"] == right[name]
        assert results[name]["accuracy"]["value"] == pytest.approx(sum(right[name]) / 13)
    assert 3 < sum(right["before"]) < 13 and right["before"] != right["recovered"]
    for key, other in (("gain", "before"), ("gain_on_control", "control")):
        wanted = (sum(right["recovered"]) - sum(right[other])) / 13
        own = results["recovered"][key]
        assert own["value"] == pytest.approx(wanted) and own["low"] < wanted < own["high"]
    ratio = results["recovered"]["ratio_to_control"]["value"]
    values = [results[name]["perplexity"]["value"] for name in ("recovered", "control")]
    assert ratio == pytest.approx(values[0] / values[1])
    table, card = str(found), (found.folder / "README.md").read_text()
    assert "right answers (95% interval)" in table and "points more than control" in table
    assert "13 questions, the same for all" in card and "Control: the same training" in card
    assert [*tmp_path.glob("*.partial")] == []


def test_models_are_measured_one_at_a_time(llama, tmp_path, monkeypatch):
    """Only the two that are timed in turns wait beside each other; training has two, too."""
    alive, counts, load = weakref.WeakSet(), [], prune.load_checkpoint

    def counted(*arguments, **options):
        counts.append(len(alive))
        model = load(*arguments, **options)
        alive.add(model)
        return model

    finish = prune._Run.finish

    def finishing(*arguments):
        gc.collect()
        counts.clear()
        return finish(*arguments)

    monkeypatch.setattr(prune, "load_checkpoint", counted)
    monkeypatch.setattr(prune._Run, "finish", finishing)
    recovered(llama, tmp_path / "out")
    assert counts == [0, 0, 0, 0, 1, 0]


@pytest.mark.parametrize("criterion", ["causal", "entropy"])
def test_processes_share_the_texts_that_heads_are_scored_on(criterion, llama):
    """Three processes by turns: the sums of the others come to each of them."""
    model = AutoModelForCausalLM.from_pretrained(llama)
    pieces, geometry = cut(TEXTS, AutoTokenizer.from_pretrained(llama), 8), find_heads(model)
    settings = recovery(criterion=criterion, calibration=11, precision="no")
    kept: list[list[torch.Tensor]] = []

    def scores(rank, world, reduce):
        process = SimpleNamespace(
            process_index=rank, num_processes=world, device=torch.device("cpu"), reduce=reduce
        )
        return scores_on_texts(model, geometry, pieces, settings, 0, process)

    whole = scores(0, 1, lambda part, _: part)
    for rank in (0, 1):
        kept.append([])
        scores(rank, 3, lambda part, _: (kept[-1].append(part), part)[1])
    others = [sum(parts) for parts in zip(*kept, strict=True)]
    shared = scores(2, 3, lambda part, _: part + others.pop(0))
    for layer, found in whole.items():
        torch.testing.assert_close(shared[layer], found, atol=1e-5, rtol=1e-4)
        assert not torch.allclose(scores(1, 3, lambda part, _: part)[layer], found, atol=1e-5)


COMMAND = """prune --recover --fields q --text texts.jsonl --held-out held-out.jsonl --out out"""


def test_two_processes_train_as_one(llama, done, tmp_path):
    """The command, told what torch's launcher tells each process; only sums are in another order.

    As with the launcher, the store through which they meet is that of who starts them.
    """
    for name, texts in (("texts", TEXTS[7:]), ("held-out", HELD_OUT)):
        rows = [json.dumps({"q": each}) for each in texts]
        (tmp_path / f"{name}.jsonl").write_text("\n".join(rows))
    options = [f"--{name.replace('_', '-')}={value}" for name, value in SMALL.items()]
    command = [*warm.COMMAND, "headsweep.cli.main", *COMMAND.split(), *options, str(llama)]
    store = TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
    told = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(store.port), "WORLD_SIZE": "2"}
    told |= {"LOCAL_WORLD_SIZE": "2", "TORCHELASTIC_USE_AGENT_STORE": "True"}
    streams = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    processes = []
    for rank in ("0", "1"):
        environment = {**warm.environment(), **told, "RANK": rank, "LOCAL_RANK": rank}
        processes.append(subprocess.Popen(command, cwd=tmp_path, env=environment, **streams))
    said = [each.communicate() for each in processes]
    assert [each.returncode for each in processes] == [0, 0], said
    for _, progress in said:
        assert "round 2: 3 heads removed, 12 left" in progress
    (printed, _), (silent, _) = said
    assert "perplexity" in printed and "perplexity" not in silent
    assert "before" in printed and "tokens/s, batch 8" in printed
    folders = tmp_path / "out", done.folder
    found, own = (json.loads((folder / "recovery.json").read_text()) for folder in folders)
    losses = (one["progress"]["losses"] for one in (found, own))
    assert all(each == pytest.approx(same, rel=1e-4) for each, same in zip(*losses, strict=True))
    assert found["removals"][0]["heads"] == own["removals"][0]["heads"]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ("--steps 3", "--steps is about training; add --recover"),
        ("-n 5", "-n is about training; add --recover"),
        ("--held-out texts.txt", "--held-out is about training; add --recover"),
        ("--benchmark q.jsonl", "--benchmark is about training; add --recover"),
        ("--recover --text texts.txt --benchmark q.jsonl", "say how answers to q.jsonl are compar"),
        ("--recover --text texts.txt -n 5", "-n and --max-new-tokens are about questions; name"),
        ("--recover --text texts.txt --benchmark q --grader exact", "q is no file; name a .csv"),
        ("--calibration 5", "--calibration is about training; add --recover"),
        (
            "--text texts.txt",
            "norm reads none; leave it out, or give a ratio with a criterion that",
        ),
        # Heads would be chosen by their weights, not by the accuracy without them.
        (
            "--accuracy z.parquet",
            "accuracy would be ignored, as criterion norm reads none; leave it out, or give a "
            "ratio with a criterion that reads accuracy (causal)",
        ),
        ("--text texts.txt --criterion size", "criterion 'size' is not known; use norm, entropy"),
        (
            "--recover --text texts.txt --out texts.txt/x",
            "the result texts.txt/x cannot be written",
        ),
        ("--text chats.jsonl", "chats.jsonl has messages, which need --recover"),
        ("--recover", "--recover trains on texts; name their file"),
        ("--recover --text none.txt", "none.txt is no file"),
        ("--recover --text texts.txt --held-out none.txt", "none.txt is no file"),
        ("--recover --text texts.txt --zero", "--recover removes a ratio of heads for good"),
    ],
)
def test_the_command_says_what_it_refuses(options, message, llama, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    for module in (prune, pruning):
        monkeypatch.setattr(module, "fetch_model", lambda *_: 1 / 0)
    Path("texts.txt").write_text("\n".join(TEXTS))
    Path("chats.jsonl").write_text(json.dumps({"messages": [{"role": "user", "content": "w1"}]}))
    assert main(["prune", str(llama), "--ratio", "0.4", "--out", "x", *options.split()]) == 2
    assert message in capsys.readouterr().err
