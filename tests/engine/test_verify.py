"""Verified and resumed answers, placebos' too, held against `transformers.generate`.

The self-check: a right engine passes, each wrong one falls, warns, and answers rightly then.
"""

import copy
import os
from dataclasses import replace
from functools import cache, partial, partialmethod

import pytest
import tiny_models
import torch
from test_engine import (
    DECODERS,
    NEW_TOKENS,
    answer_all,
    assert_alike,
    assert_exact,
    fed,
    loaded_model,
    random_prompts,
    reference,
    steps,
)
from transformers.pytorch_utils import Conv1D

from headsweep.benchmarks.prompts import encode_prompt
from headsweep.config import Decoding
from headsweep.engine import batch, check
from headsweep.engine.attention import Slots, dense
from headsweep.engine.decoder import Decoder, SlotRows
from headsweep.engine.engine import Engine, Request, rows_together
from headsweep.models.geometry import find_heads
from headsweep.models.load import load_model
from headsweep.models.loaded import in_float32
from headsweep.models.masks import edited_weights
from headsweep.variants import BASE, Variant, numeric

VARIANTS = [BASE, *(Variant(layer, head) for layer in (0, 2, 3) for head in (0, 3, 4))]
FAMILIES = [
    Variant.parse(name)
    for name in (
        "base",
        "L00H00",
        "L02H00",
        "L03H00",
        "L01X04P250",
        "L03X03P40",
        "L00K02",
        "L02K01",
        "L02K02",
        "L02H01",
        "L02N05",
        "L00N04",
        "W17S20",
        "W05S300",
    )
]
SERVED = {"Qwen2", "Qwen3", "Llama", "Mistral", "Mistral, window 8", "Gemma"}
"""Run by the decoder, the others by their own modules."""
UNLIKE = [
    *("Qwen2", "Qwen3", "Llama", "Mistral, window 8", "Gemma"),
    *("GPT2", "Gemma2", "GptOss", "GPTNeo, window 6", "Falcon"),  # a Conv1D, windows, sinks
    *("Mpt", "XGLM", "Olmo2", "Phimoe", "Cohere"),  # positions of other kinds, norms, experts
]
"""One of each kind that code treats apart; at night all are tried."""


def build(name):
    """Build a model some heads of which count for much and some for little: answers part late."""
    attention = "eager" if "window" in name or name in ("Gemma2", "GptOss") else "sdpa"
    model = tiny_models.build(DECODERS[name], attention)
    geometry = find_heads(model)
    with torch.no_grad():
        for layer in geometry.layers:
            projection = geometry.output_projection(model, layer.index)
            weight = projection.weight.T if isinstance(projection, Conv1D) else projection.weight
            for head, scale in enumerate((0.01, 1, 1, 0.1, 0.4, 1)):
                weight[:, layer.columns(head)] *= scale
    return model


def plan(prompts, variants):
    return [Request(f"q{n}", p, variant) for variant in variants for n, p in enumerate(prompts)]


def accepted(answers):
    """Return the share of tokens that verification took over."""
    kept = sum(len(answer.token_ids) for answer in answers.values())
    return sum(answer.accepted for answer in answers.values()) / kept


def shared_length(one, other):
    """Return how many first tokens two answers have in common."""
    for place, (token, its) in enumerate(zip(one, other, strict=False)):
        if token != its:
            return place
    return min(len(one), len(other))


@pytest.mark.parametrize("name", DECODERS if "HEADSWEEP_NIGHTLY" in os.environ else UNLIKE)
def test_all_families_give_the_tokens_of_generate_on_edited_weights(name, monkeypatch):
    monkeypatch.setattr(batch, "FIRST_CHUNK", 3)
    loaded = loaded_model(build(name), eos=(2, 5, 40))
    before = copy.deepcopy(loaded.model.state_dict())
    asked = plan(random_prompts((9, 4)), [BASE])
    # `generate` takes long: each variant answers one of the two questions.
    asked += [
        replace(asked[number % 2], variant=variant) for number, variant in enumerate(FAMILIES[1:])
    ]
    answers = answer_all(loaded, asked, batch_size=5)
    assert_exact(loaded, answers)
    assert 0 < accepted(answers) < 1
    after = loaded.model.state_dict()
    assert all(torch.equal(before[key], after[key]) for key in before)
    assert not any("forward" in vars(module) for module in loaded.model.modules())
    assert len({answer.token_ids for answer in answers.values()}) > 2
    assert (Decoder.of(loaded) is not None) == (name in SERVED)


@pytest.mark.parametrize(
    ("batch_size", "first_chunk", "draft"),
    [(1, 4, ()), (5, 1, (9,)), (100, 64, (2,)), (7, 64, (9,) * 40)],
)
def test_batches_chunks_and_wrong_drafts_change_no_token(
    batch_size, first_chunk, draft, monkeypatch
):
    loaded = loaded_model(build("Qwen2"), eos=(2, 40))
    wanted = plan(random_prompts((17, 1, 6)), VARIANTS)
    expected = answer_all(loaded, wanted)
    monkeypatch.setattr(batch, "FIRST_CHUNK", first_chunk)
    assert_alike(answer_all(loaded, wanted, batch_size, {"q0": draft, "q1": draft}), expected)


def test_every_part_of_an_answer_is_verified_or_decoded_once():
    loaded = loaded_model(build("Qwen2"), eos=(2, 40))
    prompts = random_prompts()
    base = answer_all(loaded, plan(prompts, [BASE]))
    answers = answer_all(loaded, plan(prompts, VARIANTS))
    for request, answer in answers.items():
        if not request.variant.is_base:
            draft = base[Request(request.question_id, request.prompt)].token_ids
            agreed = shared_length(answer.token_ids, draft)
            # The last token of an answer that ends at the limit is the row's own choice.
            assert answer.accepted == min(agreed, NEW_TOKENS - 1)
    # Base answers that nobody asked for pay for two variants.
    assert accepted(answer_all(loaded, plan(prompts, VARIANTS[1:3]))) > 0
    assert accepted(answer_all(loaded, plan(prompts, VARIANTS[1:2]))) == 0


@pytest.mark.parametrize(
    ("name", "first_chunk"), [("Llama", 64), ("Qwen2", 1), ("Qwen3", 6), ("Olmo2", 64)]
)
def test_base_answers_handed_in_are_drafts_of_many_questions(name, first_chunk, monkeypatch):
    monkeypatch.setattr(batch, "FIRST_CHUNK", first_chunk)
    loaded = loaded_model(build(name), eos=(2, 40))
    prompts = random_prompts()
    base = answer_all(loaded, plan(prompts, [BASE]))
    known = {request.question_id: answer.token_ids for request, answer in base.items()}
    for variants in (VARIANTS[5:6], VARIANTS[2:7:2]):  # one head, which alone has no draft, or more
        expected = {}
        for variant in variants:
            expected |= answer_all(loaded, plan(prompts, [variant]))
        assert accepted(expected) == 0
        answers = answer_all(loaded, plan(prompts, variants), 16, known)
        assert_alike(answers, expected)
        assert 0 < accepted(answers) < 1


def test_empty_answers_and_a_limit_of_one_are_verified():
    free, prompts = loaded_model(build("Qwen2")), random_prompts((5, 3))
    wanted = plan([*prompts, prompts[0]], VARIANTS)  # two questions with one prompt
    whole = answer_all(free, wanted)
    assert_exact(free, whole)
    first = {r: a.token_ids[0] for r, a in whole.items()}
    ends = (first[wanted[0]], first[wanted[1]])
    loaded = loaded_model(free.model, eos=ends)
    answers = answer_all(loaded, wanted)
    assert answers[wanted[0]].token_ids == answers[wanted[1]].token_ids == ()
    assert_exact(loaded, answers)
    short = answer_all(free, wanted, max_new_tokens=1)
    assert {r: a.token_ids for r, a in short.items()} == {r: (t,) for r, t in first.items()}


def assert_greedy(loaded, answers):
    """One plain forward pass on zeroed weights finds each token of an answer the likeliest."""
    for request, answer in answers.items():
        assert answer.stop_reason == "length"
        text = torch.tensor([request.prompt + answer.token_ids])
        with edited_weights(loaded.model, loaded.geometry, request.variant), torch.no_grad():
            logits = loaded.model(text).logits[0, len(request.prompt) - 1 : -1]
        chosen = logits.gather(1, torch.tensor(answer.token_ids)[:, None])[:, 0]
        assert (chosen >= logits.amax(1) - 1e-3).all(), request


def test_answers_of_a_real_model_are_those_of_generate_in_several_chunks(converted, monkeypatch):
    monkeypatch.setattr(batch, "FIRST_CHUNK", 8)
    loaded = load_model(str(converted[0]), device="cpu")
    text = "Tom has 12 apples and eats 5. How many are left?"
    prompt = encode_prompt(loaded.tokenizer, text, Decoding(), "math")
    answers = answer_all(
        loaded, plan([prompt], [BASE, Variant(0, 4), Variant(17, 2)]), 16, max_new_tokens=26
    )
    assert max(len(answer.token_ids) for answer in answers.values()) == 26
    assert max(answer.accepted for answer in answers.values()) > 8
    assert 0 < accepted(answers) < 1
    assert_exact(loaded, {r: answers[r] for r in answers if r.variant.is_base}, 26)
    assert_greedy(loaded, {r: answers[r] for r in answers if not r.variant.is_base})


def test_positions_end_verified_answers_too():
    loaded = loaded_model(build("GPT2"))
    answers = answer_all(loaded, plan(random_prompts((60, 58)), VARIANTS))
    assert accepted(answers) > 0
    for request, answer in answers.items():
        assert len(answer.token_ids) == 64 - len(request.prompt)
        assert answer.stop_reason == "length"
    assert_exact(loaded, {r: answers[r] for r in answers if len(r.prompt) == 60}, 4)


HEADS = [Variant(layer, head) for layer in (0, 2) for head in (0, 3, 4)]


@pytest.mark.parametrize("known", [True, False])
def test_placebos_without_noise_equal_base_and_only_replays_are_verified(known):
    loaded = loaded_model(build("Qwen2"), eos=(2, 40))
    prompts = random_prompts()
    base = plan(prompts, [BASE])
    expected = answer_all(loaded, base)
    drafts = {r.question_id: a.token_ids for r, a in expected.items()} if known else {}
    placebos = [*numeric(3), Variant(0, 0, "replay"), Variant(3, 0, "replay")]
    answers = answer_all(loaded, plan(prompts, [*placebos, *HEADS]), 5, drafts)
    for placebo in placebos:
        own = [answers[request] for request in plan(prompts, [placebo])]
        assert_alike(dict(zip(base, own, strict=True)), expected)
        replayed = placebo.kind == "replay"
        assert all(a.accepted >= (len(a.token_ids) - 1 if replayed else 0) for a in own)
        assert replayed or not any(answer.accepted for answer in own)


def test_each_numeric_placebo_has_batches_of_its_own_whose_rows_follow_from_its_number():
    def rows_of(*variants):
        loaded = loaded_model(build("Olmo2"), eos=(2, 40))
        shapes = fed(loaded.model)
        answer_all(loaded, plan(random_prompts(), variants), batch_size=8)
        return steps(shapes)

    variants = (BASE, *numeric(3))
    alone = [rows_of(variant) for variant in variants]
    assert [*map(max, alone)] == [8, 7, 6, 5]
    assert rows_of(*variants) == [rows for each in alone for rows in each]  # as if each were alone
    assert [rows_together(8, placebo) for placebo in range(1, 6)] == [7, 6, 5, 4, 7]
    assert [rows_together(1, placebo) for placebo in (1, 2)] == [1, 1]
    assert len({rows_together(64, placebo) for placebo in range(1, 33)}) == 32


def test_in_half_precision_other_batches_change_some_answers():
    loaded = loaded_model(tiny_models.build(tiny_models.DECODERS[0]).bfloat16())
    prompts = random_prompts(range(2, 40))
    answers = answer_all(loaded, plan(prompts, [BASE, *numeric(4)]), 16, max_new_tokens=24)
    base = [answers[request].token_ids for request in 4 * plan(prompts, [BASE])]
    others = [answers[request].token_ids for request in plan(prompts, numeric(4))]
    assert 0 < sum(map(tuple.__ne__, base, others)) < len(others)


WANTED = plan(random_prompts((9, 4, 15)), [*VARIANTS, Variant(2, 3, kind="noise")])


@cache
def expected_of(name):
    loaded = loaded_model(build(name), eos=(2, 40))
    return {each: reference(loaded, each) for each in WANTED}


def checked(dtype, name="Qwen2"):
    loaded = loaded_model(build(name).to(dtype), eos=(2, 40))
    engine = Engine(loaded, Decoding(max_new_tokens=NEW_TOKENS), 7, checked=True)
    answers = {answer.request: answer for answer in engine.run(WANTED)}
    assert answers.keys() == set(WANTED)
    if dtype == torch.float32:
        assert_alike(answers, expected_of(name))
    return engine.facts


@pytest.mark.parametrize("name", ["Qwen2", "Gemma"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_a_right_engine_stays_on_its_path(dtype, name):
    facts = checked(dtype, name)
    assert facts["path"] == "dense"
    assert "falls" not in facts
    assert facts["check"]["audited"] >= 4
    assert 0 <= facts["check"]["worst"] <= facts["check"]["bound"]


def next_head(right, self, variants):
    masks = right(self, variants)
    return {n: replace(mask, factors=mask.factors.roll(1, 1)) for n, mask in masks.items()}


def next_column(right, self, layer, segments, *states):
    if segments.most_tokens == 1 and segments.width < self._data.shape[3]:
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
    monkeypatch.setitem(check._ROWS, "cpu", 8)
    monkeypatch.setattr(check, "GROUP", 1)  # every answer is scored, so that none leaves by luck
    monkeypatch.setattr(of, name, partialmethod(partial(mutant, getattr(of, name))))
    facts = checked(dtype)
    assert facts["path"] == "modules"
    (fall,) = facts["falls"]
    assert fall.startswith("dense to modules: ")
    assert "please report" in caplog.text


@pytest.mark.parametrize("name", ["Qwen2", "Gemma"])
def test_sampled_answers_stay_on_their_path_by_their_logits(name):
    loaded = loaded_model(build(name).bfloat16(), eos=(2, 40))
    engine = Engine(loaded, Decoding(max_new_tokens=NEW_TOKENS, temperature=0.9, samples=2), 7)
    assert len([*engine.run(WANTED)]) == len(WANTED)
    assert engine.facts["path"] == "dense"
    assert 0 < engine.facts["check"]["audited"] <= 4


def test_a_wrong_head_shows_in_sampled_answers(monkeypatch):
    monkeypatch.setattr(Decoder, "masks", partialmethod(partial(next_head, Decoder.masks)))
    loaded = loaded_model(build("Qwen2").bfloat16(), eos=(2, 40))
    engine = Engine(loaded, Decoding(max_new_tokens=NEW_TOKENS, temperature=0.9, samples=2), 7)
    assert len([*engine.run(WANTED)]) == len(WANTED)
    assert engine.facts["path"] == "modules"


def test_scoring_answers_again_computes_few_logits(monkeypatch):
    """Prompts' logits are not computed, and only the first tokens of few rows in float32."""
    shapes = []
    model = build("Qwen2").bfloat16()
    right = model.lm_head.forward
    monkeypatch.setattr(check, "_FIRST_TOKENS", 3)

    def told(hidden):
        shapes.append((hidden.dtype, len(hidden)))
        return right(hidden)

    loaded = loaded_model(model, eos=(2, 40))
    engine = Engine(loaded, Decoding(max_new_tokens=NEW_TOKENS), 7)
    monkeypatch.setattr(model.lm_head, "forward", told)
    longest = max(len(answer.token_ids) for answer in engine.run(WANTED))
    exact = [places for dtype, places in shapes if dtype == torch.float32]
    assert 0 < sum(exact) <= 2 * 4 * 3
    assert max(places for _, places in shapes) <= max(longest, 2 * 4 * 3)


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
