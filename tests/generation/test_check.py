"""The self-check: a right engine passes, each wrong one falls, warns, and answers rightly then."""

from dataclasses import replace
from functools import partial, partialmethod

import pytest
import torch
from test_engine import NEW_TOKENS, assert_exact, loaded_model, random_prompts
from test_verify import VARIANTS, build, plan

from headroom.config import Decoding
from headroom.generation import batch, check
from headroom.generation.attention import Slots, dense
from headroom.generation.check import in_float32
from headroom.generation.decoder import Decoder, SlotRows
from headroom.generation.engine import Engine
from headroom.variants import Variant

WANTED = plan(random_prompts((9, 4, 15)), [*VARIANTS, Variant(2, 3, kind="noise")])


def answer_all(dtype, name="Qwen2"):
    loaded = loaded_model(build(name).to(dtype), eos=(2, 40))
    engine = Engine(loaded, Decoding(max_new_tokens=NEW_TOKENS), 7, checked=True)
    answers = {answer.request: answer for answer in engine.run(WANTED)}
    assert answers.keys() == set(WANTED)
    if dtype == torch.float32:
        assert_exact(loaded, answers)
    return engine.facts


@pytest.mark.parametrize("name", ["Qwen2", "Gemma"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_a_right_engine_stays_on_its_path(dtype, name):
    facts = answer_all(dtype, name)
    assert facts["path"] == "dense"
    assert "falls" not in facts
    assert facts["check"]["audited"] >= 8
    assert 0 <= facts["check"]["worst"] <= facts["check"]["bound"]


def next_head(right, self, variants):
    masks = right(self, variants)
    return {n: replace(mask, factors=mask.factors.roll(1, 1)) for n, mask in masks.items()}


def next_column(right, self, layer, segments, *states):
    if segments.most == 1 and segments.width < self._data.shape[3]:
        segments = replace(segments, starts=[start + 1 for start in segments.starts])
    right(self, layer, segments, *states)


def stale_length(right, self, first, rows, texts):
    stale = bool(self._lengths) and max(map(len, texts)) == 1
    if stale:
        self._lengths[-1] -= 1
    found = right(self, first, rows, texts)
    if stale:
        self._lengths[-1] += 1
    return found


def dropped_copy(right, self, kept):
    self._lengths = [self._lengths[old] for old in kept]


def swapped_rows(right, self, first, rows, texts):
    found = right(self, first, rows, texts)
    return found if max(map(len, texts)) > 1 else found.roll(1, 0)


MUTANTS = [
    (Decoder, "masks", next_head),
    (Slots, "write", next_column),
    (SlotRows, "feed", stale_length),
    (SlotRows, "keep", dropped_copy),
    (SlotRows, "feed", swapped_rows),
]


@pytest.mark.parametrize(("of", "name", "mutant"), MUTANTS)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_each_wrong_engine_falls_and_the_fall_is_told(of, name, mutant, dtype, monkeypatch, caplog):
    monkeypatch.setattr(batch, "FIRST_CHUNK", 3)
    monkeypatch.setattr(check, "GROUP", 4)
    monkeypatch.setattr(of, name, partialmethod(partial(mutant, getattr(of, name))))
    facts = answer_all(dtype)
    assert facts["path"] == "modules"
    (fall,) = facts["falls"]
    assert fall.startswith("dense to modules: ")
    assert "please report" in caplog.text


def test_another_attention_falls_to_the_dense_one(monkeypatch):
    def flash(*inputs):
        return dense(*inputs).flip(-1)

    loaded = loaded_model(build("Qwen2").bfloat16(), eos=(2, 40))
    decoding = Decoding(max_new_tokens=NEW_TOKENS)
    engine = Engine(loaded, decoding, 7, Decoder(loaded, flash), checked=True)
    assert len(list(engine.run(WANTED))) == len(WANTED)
    assert engine.facts["path"] == "dense"
    assert engine.facts["falls"][0].startswith("flash to dense: ")


def test_a_model_in_float32_is_itself_again_afterwards():
    model = build("Qwen2").bfloat16()
    ids = torch.tensor([random_prompts((9,))[0]])
    before = {name: each.clone() for name, each in model.named_parameters()}
    with torch.inference_mode(), in_float32(model):
        exact = model(ids).logits
    precise = build("Qwen2").bfloat16().float()
    with torch.inference_mode():
        assert torch.allclose(exact, precise(ids).logits, atol=1e-4)
    assert all(torch.equal(each, before[name]) for name, each in model.named_parameters())
