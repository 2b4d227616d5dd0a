"""What the engine does on a GPU beside computing: sizes, falls, memory that runs out.

It runs on the CPU here; the GPU's memory and its failures are injected.
"""

import math
from collections import Counter, deque
from types import SimpleNamespace

import numpy as np
import pytest
import tiny_models
import torch
from test_engine import (
    DECODERS,
    NEW_TOKENS,
    QWEN2,
    answer_all,
    assert_alike,
    assert_exact,
    fed_texts,
    loaded_model,
    random_prompts,
    requests,
)
from test_verify import VARIANTS, build, plan
from torch import nn

from headsweep.config import Decoding
from headsweep.engine import (
    attention,
    batch,
    check,
    decoder,
    engine,
    sampling,
    vllm_ranks,
    weights,
)
from headsweep.engine.attention import Slots, dense
from headsweep.engine.batch import DecodingBatch, Verifier
from headsweep.engine.check import Check
from headsweep.engine.decoder import Decoder, SlotRows
from headsweep.engine.engine import Engine
from headsweep.engine.other_architectures import ModuleRows, Modules, WholePass
from headsweep.engine.requests import Answer, Drafted, NotFiniteError, Request, Row
from headsweep.engine.shared_pass import SharedPass
from headsweep.engine.sizing import fitting_rows, rows_of, verified_rows
from headsweep.engine.vllm import VllmModel
from headsweep.engine.vllm_ranks import LayerEdit, RankLayers
from headsweep.engine.weights import Weights, fast_linear
from headsweep.errors import ModelError
from headsweep.models.geometry import AttentionLayer, HeadGeometry
from headsweep.variants import BASE, Variant, numeric

GIGABYTE = 1 << 30


@pytest.fixture
def on_gpu(monkeypatch):
    """Let the engine take the CPU for a GPU."""
    monkeypatch.setattr(Decoder, "on_gpu", True)
    monkeypatch.setattr(Engine, "_on_gpu", True)


def test_a_second_decoding_on_a_gpu_has_as_many_rows_as_the_first(monkeypatch):
    """What torch keeps of the first engine's slots is free, though the driver says otherwise."""
    layers = [AttentionLayer(index, "", "", 12, 2, 128) for index in range(28)]
    loaded = SimpleNamespace(
        device=torch.device("cuda"), dtype=torch.bfloat16, geometry=HeadGeometry(tuple(layers))
    )
    total, weights = 80 * GIGABYTE, 3 * GIGABYTE
    kept = [weights]  # by torch, for tensors to come

    def told(_):
        return total - kept[0], total

    monkeypatch.setattr(torch.cuda, "mem_get_info", told)
    monkeypatch.setattr(torch.cuda, "memory_reserved", lambda _: kept[0])
    monkeypatch.setattr(torch.cuda, "memory_allocated", lambda _: weights)
    decoding = Decoding(max_new_tokens=3000)
    rows = [fitting_rows(loaded, None, decoding)]
    kept[0] = 79 * GIGABYTE
    rows += [fitting_rows(loaded, None, decoding)]
    row = 28 * 2 * 2 * 128 * 2 * 3512
    assert rows == [(total - weights - total // 12 - GIGABYTE) // (2 * row)] * 2
    assert fitting_rows(loaded, None, Decoding(max_new_tokens=100)) == 512
    # Prompts longer than memory was set aside for: fewer rows, in the same memory.
    columns = 3000 + 2000
    assert rows_of(rows[0], columns, decoding) == rows[0] * 3512 // columns
    assert rows_of(rows[0], 3100, decoding) == rows[0]


def test_the_sizes_of_a_gpu_change_no_token(on_gpu, monkeypatch):
    loaded = loaded_model(build("Qwen2"), eos=(2, 40))
    wanted = plan(random_prompts((17, 1, 6)), VARIANTS)
    monkeypatch.setattr(Engine, "_on_gpu", False)
    expected = answer_all(loaded, wanted)
    monkeypatch.setattr(Engine, "_on_gpu", True)
    monkeypatch.setattr(batch, "GPU_CHUNK", 3)
    monkeypatch.setattr(engine, "PREFILLED", 8)
    for size in (1, 4, 30):
        assert_alike(answer_all(loaded, wanted, size), expected)


def test_prompts_of_a_gpu_are_prefilled_a_few_at_a_time(on_gpu, monkeypatch):
    fed = fed_texts(monkeypatch)
    monkeypatch.setattr(engine, "PREFILLED", 20)
    loaded = loaded_model(tiny_models.build(QWEN2))
    answer_all(loaded, plan(random_prompts((9, 8, 7, 6, 5, 25)), [BASE]), 16)
    prefilled = [lengths for lengths in fed if max(lengths) > 1]
    assert prefilled == [[25], [9, 8], [7, 6, 5]]


def no_kernel(_):
    raise RuntimeError("no kernel image is available for execution on the device")


FAILURES = {
    "no kernel": no_kernel,
    "NaN": lambda outputs: outputs * torch.nan,
    "infinity": lambda outputs: outputs * torch.inf,
}


@pytest.mark.parametrize("failure", ["no kernel", "NaN", "infinity"])
@pytest.mark.parametrize("rungs", [1, 2])
def test_what_fails_falls_to_dense_attention_then_to_the_modules(
    failure, rungs, on_gpu, monkeypatch, caplog
):
    calls = []

    def breaks(*inputs):
        calls.append(1)
        outputs = dense(*inputs)
        return FAILURES[failure](outputs) if len(calls) > 20 else outputs

    def flash(*inputs):
        return breaks(*inputs)

    def broken_dense(*inputs):
        return breaks(*inputs)

    broken_dense.__name__ = "dense"
    if rungs == 2:
        monkeypatch.setattr(decoder, "dense", broken_dense)
    loaded = loaded_model(build("Qwen2"), eos=(2, 40))
    wanted = plan(random_prompts((9, 4)), VARIANTS)
    answering = Engine(
        loaded, Decoding(max_new_tokens=NEW_TOKENS), 7, Decoder(loaded, flash), checked=True
    )
    answers = {answer.request: answer for answer in answering.run(wanted)}
    facts = answering.facts
    assert facts["path"] == ("dense" if rungs == 1 else "modules")
    causes = [fall.split(": ")[0] for fall in facts["falls"]]
    assert causes == ["flash to dense", "dense to modules"][:rungs]
    assert caplog.text.count("please report this") == rungs
    monkeypatch.undo()
    assert_alike(answers, answer_all(loaded, wanted))


NOISY = [Variant(seed=seed, kind="weights", scale=20) for seed in (1, 2)]


def test_noisy_weights_are_answered_by_the_modules_once_the_engine_has_fallen_to_them(monkeypatch):
    loaded = loaded_model(build("Qwen2"))
    answering = Engine(loaded, Decoding(max_new_tokens=3), 7, checked=True)
    answering._fall("a cause")
    assert answering.facts["path"] == "modules"
    monkeypatch.setattr(Decoder, "forward", no_kernel)
    answers = {answer.request: answer for answer in answering.run(requests(NOISY[:1]))}
    assert_exact(loaded, answers, 3)
    assert answering.facts["path"] == "modules"


def test_what_fails_with_noisy_weights_is_told_and_not_tried_again(on_gpu):
    calls = []

    def flash(*inputs):
        calls.append(1)
        if len(calls) == 8:
            raise torch.OutOfMemoryError
        return no_kernel(None) if len(calls) > 20 else dense(*inputs)

    loaded = loaded_model(build("Qwen2"))
    answering = Engine(loaded, Decoding(max_new_tokens=9), 8, Decoder(loaded, flash), checked=True)
    wanted = requests(NOISY)
    answers = {answer.request: answer for answer in answering.run(wanted)}
    assert_exact(loaded, answers, 9)
    facts = answering.facts
    assert facts["path"] == "dense"
    assert [fall.split(":")[0] for fall in facts["falls"]] == ["flash to dense"]
    assert facts["batch_size"] == 4
    assert facts["check"]["audited"] == len(wanted)
    failed = len(calls)
    list(answering.run(requests([BASE])))
    assert len(calls) == failed
    audited = [answering.facts["check"]["audited"]]
    list(answering.run(requests(NOISY[:1])))
    audited += [answering.facts["check"]["audited"]]
    assert audited[0] >= len(wanted) + 4 and audited[1] >= audited[0] + 4  # each is held anew


def test_a_batch_that_memory_has_cut_takes_rows_before_it_is_empty(on_gpu, monkeypatch):
    monkeypatch.setattr(engine, "fitting_rows", lambda *_: 128)
    monkeypatch.setattr(engine, "rows_of", lambda *_: 8)
    in_progress = []
    enter = DecodingBatch.enter

    def told(decoded, groups):
        in_progress.append(len(decoded))
        return enter(decoded, groups)

    monkeypatch.setattr(DecodingBatch, "enter", told)
    loaded = loaded_model(build("Qwen2"), eos=tuple(range(12)))  # answers end at unlike times
    answer_all(loaded, plan(random_prompts(range(3, 27)), [BASE]), None)
    assert any(in_progress[1:])


def test_an_error_of_dense_attention_on_a_cpu_is_a_bug_and_stays_one(monkeypatch):
    def breaks(*_):
        raise RuntimeError("a bug")

    breaks.__name__ = "dense"
    loaded = loaded_model(build("Qwen2"))
    right = Decoder(loaded)
    right.attend = breaks
    answering = Engine(loaded, Decoding(max_new_tokens=NEW_TOKENS), 7, right)
    with pytest.raises(RuntimeError, match="a bug"):
        list(answering.run(requests()))


@pytest.mark.parametrize("failure", ["no kernel", "NaN"])
def test_a_trial_gives_dense_attention_its_turn(failure, on_gpu, monkeypatch):
    def flash(*inputs):
        return FAILURES[failure](dense(*inputs))

    loaded = loaded_model(build("Qwen2"))
    monkeypatch.setattr(decoder, "best", lambda _: flash)
    tried = Decoder.of(loaded)
    assert tried.attend is dense
    assert tried.falls[0].startswith("flash to dense: ")
    answering = Engine(loaded, Decoding(max_new_tokens=NEW_TOKENS), 7, tried)
    assert answering.facts["falls"] == tried.falls
    monkeypatch.setattr(decoder, "dense", flash)
    assert Decoder.of(loaded) is None


def counting_appended(monkeypatch):
    """Return a list that fills with a row's request for each token that it takes."""
    appended = []
    append = Row.append

    def told(row, token, gap):
        appended.append(row.request)
        return append(row, token, gap)

    monkeypatch.setattr(Row, "append", told)
    return appended


RUNS_OUT = {"decoding": 6, "prefill": 1, "verification": 2}
"""At which call memory runs out; only a prefill beside rows under way counts."""


@pytest.mark.parametrize("checked", [False, True])
@pytest.mark.parametrize("at", RUNS_OUT)
def test_out_of_memory_keeps_the_tokens_of_rows_in_progress(at, checked, monkeypatch):
    loaded = loaded_model(build("Qwen2"), eos=(2, 40))
    wanted = plan(random_prompts((9, 4, 15)), VARIANTS)
    if at == "prefill":  # more prompts than rows; answers end at unlike times
        loaded = loaded_model(build("Qwen2"), eos=tuple(range(12)))
        wanted = plan(random_prompts(range(3, 27)), [BASE])
    monkeypatch.setattr(batch, "FIRST_CHUNK", 3)
    expected = answer_all(loaded, wanted, batch_size=12)
    feed, logits = SlotRows.feed, SharedPass.logits
    calls = Counter[str]()

    def call(kind):
        calls[kind] += 1
        if kind == at and calls[kind] == RUNS_OUT[kind]:
            raise torch.OutOfMemoryError("too much")

    def feeds(slots, first, rows, texts):
        if max(map(len, texts)) == 1:
            call("decoding")
        elif first:
            call("prefill")
        return feed(slots, first, rows, texts)

    def verifies(self, chunks):
        call("verification")
        return logits(self, chunks)

    monkeypatch.setattr(SlotRows, "feed", feeds)
    monkeypatch.setattr(SharedPass, "logits", verifies)
    appended = counting_appended(monkeypatch)
    answering = Engine(loaded, Decoding(max_new_tokens=NEW_TOKENS), 12, checked=checked)
    answers = list(answering.run(wanted))
    assert_alike({answer.request: answer for answer in answers}, expected)
    assert len(answers) == len(wanted)
    assert calls[at] >= RUNS_OUT[at]
    assert answering.facts["batch_size"] == 6
    # Each token was chosen once, or accepted from a draft: none was decoded again.
    for answer in answers:
        own = len(answer.token_ids) + (answer.stop_reason == "eos") - answer.accepted
        assert appended.count(answer.request) == own


def test_memory_that_runs_out_is_given_back_before_slots_are_made_anew(monkeypatch):
    """An exception holds its frames, and these the slots: none must be alive by then."""
    alive = []
    loaded = loaded_model(build("Qwen2"), eos=(2, 40))
    feed = SlotRows.feed

    def feeds(slots, first, rows, texts):
        if len(rows) > 3:
            alive.append(slots._data.untyped_storage()._weak_ref())
            raise torch.OutOfMemoryError("too much")
        return feed(slots, first, rows, texts)

    def emptied():
        assert all(torch.UntypedStorage._expired(storage) for storage in alive)

    monkeypatch.setattr(SlotRows, "feed", feeds)
    monkeypatch.setattr(torch.cuda, "empty_cache", emptied)
    answer_all(loaded, plan(random_prompts((9, 4, 15, 3)), [BASE]), batch_size=4)
    assert alive


def unbound_check(loaded):
    """Return a check that finds how far off answers are which are no model's."""
    checked = Check(loaded)
    checked._bound = math.inf
    return checked


def test_watching_costs_a_step_nothing_once_rows_are_admitted(monkeypatch):
    loaded = loaded_model(build("Qwen2").bfloat16())
    checked = Check(loaded)
    decoded = DecodingBatch(SlotRows(Decoder(loaded), 9), Decoding(max_new_tokens=40), 9, checked)
    rows = [Row(request, 40, ()) for request in requests()]
    decoded.enter([[row] for row in rows])
    decoded.step()
    hashed = []
    right = Request.__hash__

    def told(request):
        hashed.append(request)
        return right(request)

    monkeypatch.setattr(Request, "__hash__", told)
    decoded.step()
    assert 0 < len(hashed) <= checked._rows  # watched rows keep what is looked at, no others
    for _ in range(34):
        decoded.step()
    last = len(hashed)
    decoded.step()
    assert len(hashed) == last
    monkeypatch.undo()
    assert checked.watching
    while len(decoded):
        decoded.step()
    assert len(list(checked.groups(row.answer for row in rows))) == len(rows)
    assert not checked.watching
    monkeypatch.setattr(checked, "wants", None)  # nobody asks any more
    decoded.enter([[Row(requests()[0], 40, ())]])


def test_answers_of_a_slow_model_leave_soon_and_one_in_so_many_is_scored(monkeypatch):
    group, answered, rounds = 5, 4, 40
    monkeypatch.setattr(check, "GROUP", group)
    checked = unbound_check(loaded_model(build("Qwen2")))
    clock = [0.0]
    monkeypatch.setattr(check.time, "monotonic", lambda: clock[0])
    request = requests()[0]
    arrived = []

    def slowly(count):
        for number in range(count):
            clock[0] += 0.6 * check._SECONDS
            arrived.append(number)
            yield Answer(request, (3, 4 + number % 90), "length", 1.0)

    list(checked.groups(slowly(answered)))
    assert checked.facts["audited"] == answered  # all of the first group
    arrived.clear()
    waited = [arrived[-1] - left for left, _ in enumerate(checked.groups(slowly(rounds * group)))]
    assert max(waited) == 2  # the third comes when 1.2 times the time has passed
    assert rounds / 2 < checked.facts["audited"] - answered < 2 * rounds
    scored = checked.facts["audited"]
    list(checked.groups(slowly(1)))  # of few answers one is scored
    assert checked.facts["audited"] == scored + 1


def test_answers_are_scored_together_as_far_as_their_logits_fit_and_long_ones_in_parts():
    loaded = loaded_model(build("Qwen2"), eos=(2, 40))
    answers = [
        Answer(request, tuple(range(3, 3 + length)), reason, 1.0)
        for request, length, reason in zip(
            requests(), (9, 2, 5, 0), ("eos", "length", "eos", "length"), strict=False
        )
    ]
    texts, places = [], []
    loaded.model.base_model.register_forward_pre_hook(
        lambda _, __, given: texts.append(len(given["input_ids"])), with_kwargs=True
    )
    loaded.model.lm_head.register_forward_hook(
        lambda _, given, __: places.append(given[0].shape[:-1].numel())
    )
    worst = []
    for most, passes in ((1000, [4]), (18, [3, 1]), (3, [1, 1, 1, 1])):
        checked = unbound_check(loaded)
        checked._places = most
        texts.clear()
        places.clear()
        assert list(checked.groups(iter(answers))) == answers
        assert texts == passes
        assert max(places) <= most
        assert checked.facts["audited"] == len(answers)
        worst.append(checked.facts["worst"])
    assert worst[0] > 1
    assert worst[1:] == pytest.approx(2 * worst[:1], abs=1e-4)


def test_hooked_modules_and_those_of_a_gpu_keep_their_forward():
    model = nn.Sequential(nn.Linear(3, 4), nn.Linear(4, 5), nn.Linear(5, 6, device="meta"))
    hooked = model[1].forward
    model[1].forward = lambda states: hooked(states) + 1  # as accelerate does
    own = model[1].forward
    with fast_linear(model):
        assert "forward" in vars(model[0])
        assert model[1].forward is own
        assert "forward" not in vars(model[2])
    assert "forward" not in vars(model[0]) and model[1].forward is own


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_gemmas_norm_is_its_own_to_the_last_bit(dtype):
    model = tiny_models.build(DECODERS["Gemma"])
    own = model.model.layers[2].input_layernorm
    with torch.no_grad():
        own.weight.uniform_(-0.01, 0.01)  # 1 + w has eight bits in bfloat16
    model = model.to(dtype)
    states = torch.randn(7, 48).to(dtype)
    norm = Weights(loaded_model(model)).layers[2].norm
    with torch.inference_mode():
        expected = own(states)
        assert norm(states).dtype == dtype
        if dtype == torch.bfloat16:
            assert torch.equal(norm(states), expected)
        else:
            assert torch.allclose(norm(states), expected, atol=1e-6)


def test_vllm_that_keeps_its_prefixes_is_not_believed():
    model = VllmModel.__new__(VllmModel)
    layers = frozenset({0, 1})
    model._layers, model._query_heads = RankLayers("Llama", layers, layers), 6
    model._variant = BASE
    dropped, edits = [], []

    def changed_by_two_ranks(function, args):
        assert function is vllm_ranks.edit
        edits.append(args[0])
        return [0, 1 if len(edits) < 2 else 0]

    model.llm = SimpleNamespace(
        reset_prefix_cache=lambda: dropped.append(1) or len(dropped) != 2,
        collective_rpc=changed_by_two_ranks,
    )
    model.prune(Variant(1, 5))
    with pytest.raises(ModelError, match="L01H05; L00H02 would be answered with them"):
        model.prune(Variant(0, 2))
    assert edits == [{1: LayerEdit({5: 0.0}, skipped=False)}]
    with pytest.raises(ModelError, match=r"^0 heads were changed for L00H02, by all ranks"):
        model.prune(Variant(0, 2))
    assert model._variant == Variant(1, 5)


def test_an_engine_on_a_gpu_takes_no_attention_that_compiles_at_each_width(on_gpu):
    was = torch.backends.cuda.cudnn_sdp_enabled()
    try:
        torch.backends.cuda.enable_cudnn_sdp(True)
        Engine(loaded_model(build("Qwen2")), Decoding(), 2)
        assert not torch.backends.cuda.cudnn_sdp_enabled()
    finally:
        torch.backends.cuda.enable_cudnn_sdp(was)


NOT_FINITE = {
    torch.float32: "in float32: its weights are damaged, perhaps; fetch it again",
    torch.bfloat16: "in bfloat16: its weights are damaged, perhaps; fetch it again",
    torch.float16: "in float16: float16 is too narrow for it; use dtype bfloat16",
}


@pytest.mark.parametrize("dtype", NOT_FINITE)
def test_logits_of_no_numbers_are_told_with_what_helps_a_type(dtype):
    loaded = loaded_model(build("Qwen2").to(dtype))
    answering = Engine(loaded, Decoding(max_new_tokens=3), 7, checked=False)
    with torch.no_grad():
        loaded.model.model.embed_tokens.weight.fill_(torch.nan)
    with pytest.raises(ModelError, match=f"are not finite {NOT_FINITE[dtype]}$"):
        list(answering.run(requests([BASE])))


@pytest.mark.parametrize("warpers", [{}, {"top_k": 5}, {"top_p": 0.5}, {"top_k": 5, "top_p": 0.5}])
@pytest.mark.parametrize("spoilt", [torch.nan, torch.inf])
def test_logits_that_are_not_finite_are_told_when_tokens_are_sampled_too(spoilt, warpers):
    states = ModuleRows(Modules(loaded_model(build("Qwen2"))))
    decoded = DecodingBatch(states, Decoding(temperature=1), 2)
    decoded._decoding = Decoding(temperature=0.7, **warpers)
    decoded._rows = [Row(request, 9, (), np.full(9, 0.5)) for request in requests()[:2]]
    logits = torch.randn(2, 30)
    logits[1, 4] = spoilt
    with pytest.raises(NotFiniteError):
        decoded._choose(0, logits)


@pytest.mark.parametrize("at", ["weights", "decoder"])
def test_too_little_memory_for_noisy_weights_is_told_and_they_are_taken_back(at, monkeypatch):
    loaded = loaded_model(build("Qwen2"))
    answering = Engine(loaded, Decoding(max_new_tokens=3), 7)
    before = {name: part.clone() for name, part in loaded.model.named_parameters()}
    decoded_with = answering._path.decoder.weights

    def too_much(*_, **__):
        raise torch.OutOfMemoryError("too much")

    if at == "weights":
        monkeypatch.setattr(torch, "from_numpy", too_much)
    else:
        monkeypatch.setattr(decoder, "Weights", too_much)
    with pytest.raises(ModelError, match=r"^W01S20 does not fit .* leave out the family `weights`"):
        list(answering.run(requests(NOISY[:1])))
    assert all(torch.equal(part, before[name]) for name, part in loaded.model.named_parameters())
    monkeypatch.undo()
    assert answering._path.decoder.weights is decoded_with
    assert answering.begun == {}
    answers = {answer.request: answer for answer in answering.run(requests())}
    assert_exact(loaded, answers, 3)


def test_noisy_weights_are_copied_only_where_each_core_has_room_for_its_own(monkeypatch):
    loaded = loaded_model(build("Qwen2"))
    copied = 4 * sum(part.numel() for part in loaded.model.parameters())
    monkeypatch.setattr(weights, "host_memory", lambda: 3 * 2.5 * copied)
    packed = []
    for cores in (2, 3):
        monkeypatch.setattr(decoder, "host_cores", lambda cores=cores: cores)
        answering = Engine(loaded, Decoding(max_new_tokens=3), 7)
        for _ in answering.run(requests(NOISY[:1])):
            packed.append(answering._path.decoder.weights._packed)
            break
        assert answering._path.decoder.weights._packed  # one for all, forked
    assert packed == [True, False]


@pytest.mark.parametrize("decoding", [Decoding(), Decoding(temperature=0.9)])
def test_slots_of_a_gpu_are_allocated_once_and_for_verification_only_where_something_is_verified(
    decoding, on_gpu, monkeypatch
):
    allocated = []
    zeros = Slots._zeros

    def told(slots, count, columns):
        if columns:
            allocated.append((type(slots), count, columns))
        return zeros(slots, count, columns)

    decoding = decoding.model_copy(update={"max_new_tokens": 4})
    engine = Engine(loaded_model(build("Qwen2")), decoding, 8, checked=False)
    monkeypatch.setattr(Slots, "_zeros", told)
    monkeypatch.setattr(attention, "_STEP", 1)
    prompts = random_prompts((9, 40, 60))
    list(engine.run(plan(prompts, VARIANTS)))
    of_verification = [(SharedPass, 4, 64)] * decoding.greedy
    assert allocated == [(SlotRows, 8, 64), *of_verification]
    list(engine.run(plan(prompts, numeric(1))))
    assert allocated[1:] == of_verification


def test_a_pass_of_a_gpu_has_its_own_size(on_gpu):
    heads = [Variant(layer, 1) for layer in (0, 1, 2, 3, 3)]

    def drafted(count, length, variants=heads):
        rows = [Row(Request("q", (3,) * 40, variant), 500, ()) for variant in variants]
        return deque(Drafted([7] * length, rows) for _ in range(count))

    decoder_of_gpu = Decoder(loaded_model(build("Qwen2")))
    verifier = Verifier(decoder_of_gpu, 256)
    chunk = verifier._next(drafted(1, 400)[0], 0)
    assert (chunk.begin, chunk.end, chunk.compared) == (0, 40 + 128, 129)
    chunk = verifier._next(drafted(1, 400)[0], chunk.end)
    assert chunk.end - chunk.begin == 128
    taken = len([*verifier._take(drafted(60, 300))])
    tokens = len(heads) * (40 + 128)
    assert taken * tokens <= batch.GPU_PASS_TOKENS < (taken + 1) * tokens
    few = Verifier(decoder_of_gpu, 32)
    assert len([*few._take(drafted(60, 300))]) == 32 // (len(heads) + 1)
    # One question of many rows goes through in parts: rows and their base row fit.
    many = drafted(1, 300, [Variant(0, 1)] * 400)
    assert verifier._rows_at_once(many) == batch.GPU_PASS_TOKENS // (40 + 128)
    assert [verified_rows(size) for size in (1, 5, 100, 512)] == [2, 2, 50, 256]


def test_the_positions_of_a_model_are_found_whatever_its_config_calls_them():
    loaded = loaded_model(tiny_models.build(DECODERS["Mpt"]))
    vars(loaded.model.config).pop("max_position_embeddings")  # which MPT's own lack
    positions = loaded.model.config.max_seq_len
    prompt = (3,) * (positions - 2)
    (answer,) = Engine(loaded, Decoding(max_new_tokens=9), 2).run([Request("q", prompt)])
    assert len(answer.token_ids) == 2
    with pytest.raises(ModelError, match=f"the model takes 1 to {positions - 1}"):
        list(Engine(loaded, Decoding(), 2).run([Request("q", (3,) * positions)]))


def test_rows_verified_by_the_modules_are_as_many_as_their_logits_fit(monkeypatch):
    model = build("Olmo2")
    loaded = loaded_model(model, eos=(2, 40))
    wanted = plan(random_prompts((9,)), VARIANTS)
    expected = answer_all(loaded, wanted)
    most = 25  # places
    monkeypatch.setattr(sampling, "_LOGIT_BYTES", 4 * tiny_models.VOCABULARY * most)
    logits = WholePass.logits
    seen = []

    def told(self, chunks):
        for slab in logits(self, chunks):
            seen.append(len(slab))
            yield slab

    monkeypatch.setattr(WholePass, "logits", told)
    assert_alike(answer_all(loaded, wanted), expected)
    assert 0 < max(seen) <= most


def test_the_index_of_rows_goes_where_each_layers_keys_are():
    """With device `balanced` layers are on several devices, and token ids on the first."""
    rows = ModuleRows(Modules(loaded_model(build("Olmo2"))))
    rows._visible = torch.ones(3, 4, dtype=torch.long)
    seen = []

    class Elsewhere:
        device = torch.device("meta")

        def __getitem__(self, index):
            seen.append(index[0].device.type)
            return self

    layer = SimpleNamespace(keys=Elsewhere(), values=Elsewhere())
    rows._cache = SimpleNamespace(layers=[layer])
    rows.keep([2, 0])
    assert seen == ["meta", "meta"]
    assert len(rows._visible) == 2
