"""What headsweep does with a tiny model of an architecture: each thing is tried to its end.

A trial takes the folder of a model and an empty one, and returns a word for the table of
architectures. It raises a ModelError where headsweep refuses, and an AssertionError where what was
made is not what it should be.
"""

import json
import re
from dataclasses import replace
from pathlib import Path
from unittest import mock

import numpy as np
import pytest
import tiny_models
import torch
from test_gguf_export import TOKENS, own_logits, save_bpe
from tiny_models import Architecture, outputs

import headsweep
from headsweep.config import Decoding
from headsweep.engine.engine import Engine, Request
from headsweep.engine.weights import serves
from headsweep.errors import ModelError
from headsweep.experiments.maps.scoring import Text, log_probability, score
from headsweep.experiments.recovery import evaluation
from headsweep.experiments.recovery.texts import cut
from headsweep.models import gguf
from headsweep.models.geometry import find_heads
from headsweep.models.load import load_checkpoint, load_model, load_tokenizer
from headsweep.models.masks import edited_weights
from headsweep.variants import BASE, Variant

PROMPTS = ((5, 9, 211), (77, 140, 8, 250, 31))
TEXTS = [f"Ann has {n} apples and {7 * n} pears, Tim {3 * n + 1}: how many?" for n in range(30)]


def save(architecture: Architecture, folder: Path) -> Path:
    """Write a model of an architecture, with a tokenizer of 300 tokens."""
    settings = {**architecture.settings, "vocab_size": TOKENS}
    model = tiny_models.build(replace(architecture, settings=settings))
    model.save_pretrained(folder)
    save_bpe(folder)
    return folder


def a_group(folder: Path) -> list[Variant]:
    """Return the first heads of a model's first layer that share their keys."""
    layer = find_heads(load_checkpoint(folder)).layers[0]
    size = layer.query_heads // layer.kv_heads
    first = 1 if size == layer.query_heads else 0  # a layer keeps a head
    return [Variant(layer.index, head) for head in range(first, size)]


def sweep(folder: Path, _: Path) -> str:
    """Answer with and without heads; compare with `generate` on edited weights."""
    loaded = load_model(str(folder))
    layers = loaded.geometry.layers
    variants = [BASE, Variant(layers[0].index, 4), Variant(layers[-1].index, 1)]
    asked = [Request(f"q{len(ids)}", ids, variant) for variant in variants for ids in PROMPTS]
    engine = Engine(loaded, Decoding(max_new_tokens=6), 4)
    for answer in list(engine.run(asked)):
        prompt = torch.tensor([answer.request.prompt])
        with edited_weights(loaded.model, loaded.geometry, answer.request.variant):
            made = loaded.model.generate(
                prompt,
                attention_mask=torch.ones_like(prompt),
                do_sample=False,
                max_new_tokens=6,
                eos_token_id=list(loaded.eos_token_ids),
                pad_token_id=0,
            )
        tokens = made[0, prompt.shape[1] :].tolist()
        ended = tokens[-1] in loaded.eos_token_ids
        assert answer.margin < 1e-3 or list(answer.token_ids) == tokens[: len(tokens) - ended]
    return "packed" if serves(loaded) else "modules"


def map_heads(folder: Path, _: Path) -> str:
    """Score a text without each head of the last layer; compare with edited weights."""
    loaded = load_model(str(folder))
    layer = loaded.geometry.layers[-1].index
    text = Text("q", "right", *PROMPTS)
    heads = [Variant(layer, head) for head in range(tiny_models.QUERY_HEADS)]
    for scored in score(loaded, [text], heads):
        with (
            torch.inference_mode(),
            edited_weights(loaded.model, loaded.geometry, scored.variant),
        ):
            truth = log_probability(loaded, text).item()
        assert abs(scored.log_probability - truth) < 1e-3
    return "yes"


def prune(folder: Path, out: Path) -> str:
    """Cut heads out and load what was saved; compare with zeroed weights."""
    heads = a_group(folder)
    headsweep.prune(str(folder), out / "free", heads=[str(head) for head in heads])
    _assert_without(folder, heads, out / "free")
    return "cut"


def zero(folder: Path, out: Path) -> str:
    """Zero heads and load what was saved."""
    heads = a_group(folder)
    named = [str(head) for head in heads]
    headsweep.prune(str(folder), out / "zeroed", heads=named, form="zeroed")
    _assert_without(folder, heads, out / "zeroed")
    return "zeroed"


def _assert_without(folder: Path, heads: list[Variant], made: Path) -> None:
    whole = load_checkpoint(folder)
    geometry = find_heads(whole)
    for head in heads:
        geometry.weights_that_read(whole, head.layers[0], head.head).detach().zero_()
    expected, found = outputs(whole), outputs(load_checkpoint(made))
    assert (found - expected).abs().max() <= 5e-5 * max(1, expected.abs().max())


def recover(folder: Path, out: Path) -> str:
    """Remove heads in two rounds, train after each, load what was saved, measure it again."""
    whole = find_heads(load_checkpoint(folder))
    grouped = 1 < whole.layers[0].kv_heads < tiny_models.QUERY_HEADS
    with mock.patch.multiple(evaluation, ANSWER_TOKENS=2, TURNS=1):
        done = headsweep.prune_and_recover(
            str(folder),
            out / "recovered",
            TEXTS[5:],
            held_out=TEXTS[:5],
            device="cpu",
            unit="group" if grouped else "query",
            ratio=0.5 if len(whole.layers) == 1 else 0.26,
            rounds=2,
            steps=4,
            batch_size=4,
            length=32,
            calibration=2,
            learning_rate=1e-2,
        )
    assert done is not None
    loaded = load_checkpoint(done.folder)
    assert find_heads(loaded).heads == whole.heads - len(done.removed) < whole.heads
    pieces = cut(TEXTS[:5], load_tokenizer(done.folder), 32)
    losses = evaluation.text_losses(loaded, pieces, 2)
    stated = done.measured["recovered"]["perplexity"]["value"]
    assert evaluation.perplexity(losses).value == pytest.approx(stated, rel=1e-4)
    return "yes"


def export(folder: Path, out: Path) -> str:
    """Write GGUF, read it again, and compare logits; return llama.cpp's graph."""
    done = headsweep.export_gguf(str(folder), out / "made.gguf", kind="f32")
    gguf.convert(done.file, out / "back", "float32")
    ids = list(sum(PROMPTS, ()))
    assert np.abs(own_logits(out / "back", ids) - own_logits(folder, ids)).max() < 1e-4
    return done.graph


TRIALS = {"sweep": sweep, "map": map_heads, "prune": prune, "recover": recover, "export": export}
REFUSED = "refused"


def _of_any(reason: str, folder: Path) -> str:
    """Return a reason without the names of one model, which is then that of others, too."""
    (name,) = json.loads((folder / "config.json").read_text())["architectures"]
    reason = reason.replace(f"the model in {folder}", "it").replace(str(folder), "the model")
    return re.sub(r" \(ValueError: .*?\)(?=;)", "", reason.replace(name, "it"))


def tried(name: str, folder: Path, out: Path) -> tuple[str, str]:
    """Return a trial's word and, where headsweep refuses, the reason in a line."""
    try:
        return TRIALS[name](folder, out), ""
    except ModelError as error:
        reason = _of_any(str(error), folder)
        return zero(folder, out) if name == "prune" else REFUSED, reason
