"""The engine's answers, held against `transformers.generate` with weights zeroed; token choice."""

import math
import random
from types import MappingProxyType

import numpy as np
import pytest
import tiny_models
import torch
from transformers import (
    LogitsProcessorList,
    TemperatureLogitsWarper,
    TopKLogitsWarper,
    TopPLogitsWarper,
)

import inline
from batch_of import batch_of
from headsweep.answers import activations
from headsweep.answers.work import Work
from headsweep.config import Decoding
from headsweep.engine import attention, weights
from headsweep.engine.decoder import Decoder, SlotRows
from headsweep.engine.engine import Answer, Engine, Request
from headsweep.engine.operators import PLAIN
from headsweep.engine.sampling import candidates, sample, uniforms
from headsweep.engine.sizing import fitting_rows
from headsweep.errors import ModelError, TableError
from headsweep.files.record import read_record
from headsweep.files.tables import ACTIVATIONS
from headsweep.models.geometry import find_heads
from headsweep.models.loaded import LoadedModel
from headsweep.models.masks import edited_weights, variant_masks
from headsweep.variants import BASE, Variant

LENGTHS = (3, 29, 5, 17, 2, 11, 23, 1, 7)
VARIANTS = (BASE, Variant(0, 5), Variant(2, 1), Variant(3, 4))
NEW_TOKENS = 11
THRESHOLD = 1e-4  # a tenth of the margin promised: some of these models have small logits
DECODERS = {
    **{architecture.name: architecture for architecture in tiny_models.DECODERS},
    "Mistral, window 8": tiny_models.wide("Mistral", sliding_window=8),
    "GPTNeo, window 6": tiny_models.Architecture(
        "GPTNeo", {"attention_types": [[["global", "local"], 2]], "window_size": 6}
    ),
}
QWEN2 = DECODERS["Qwen2"]
OWN_MODULES = DECODERS["Olmo2"]  # runs by its own modules, which tests can watch and disturb


def loaded_model(model, eos=()):
    return LoadedModel(
        model,
        tokenizer=None,
        geometry=find_heads(model),
        folder=None,
        device=model.device,
        dtype=model.dtype,
        pad_token_id=0,
        eos_token_ids=eos,
    )


def random_prompts(lengths=LENGTHS):
    rng = random.Random(0)
    tokens = range(3, tiny_models.VOCABULARY)
    return [tuple(rng.choices(tokens, k=length)) for length in lengths]


def requests(variants=VARIANTS):
    """One request a prompt; neighbours have different variants."""
    return [
        Request(f"q{number}", prompt, variants[number % len(variants)])
        for number, prompt in enumerate(random_prompts())
    ]


def reference(loaded, request, new_tokens=NEW_TOKENS):
    """Answer with `generate`, the head's weights zeroed, or noise added by a hook."""
    edited = tiny_models.noisy if request.variant.kind == "noise" else edited_weights
    with edited(loaded.model, loaded.geometry, request.variant):
        ids = torch.tensor([request.prompt])
        out = loaded.model.generate(
            ids,
            attention_mask=torch.ones_like(ids),
            do_sample=False,
            max_new_tokens=new_tokens,
            eos_token_id=list(loaded.eos_token_ids) or None,
            pad_token_id=0,
            output_logits=True,
            return_dict_in_generate=True,
        )
    best = torch.cat(out.logits).topk(2).values
    tokens = tuple(out.sequences[0, len(request.prompt) :].tolist())
    margin = (best[:, 0] - best[:, 1]).min().item()
    if tokens[-1] in loaded.eos_token_ids:
        return Answer(request, tokens[:-1], "eos", margin)
    return Answer(request, tokens, "length", margin)


def assert_alike(found, expected, threshold=THRESHOLD):
    """Tokens equal wherever all margins of an answer exceed the threshold; most do."""
    assert found.keys() == expected.keys()
    close = 0
    for request, answer in found.items():
        other = expected[request]
        if min(answer.margin, other.margin) > threshold:
            assert (answer.token_ids, answer.stop_reason) == (other.token_ids, other.stop_reason)
            assert answer.margin == pytest.approx(other.margin, abs=threshold)
        else:
            close += 1
    assert close <= len(found) / 5


def assert_exact(loaded, answers, new_tokens=NEW_TOKENS):
    """Answers are those of `generate`."""
    assert_alike(answers, {each: reference(loaded, each, new_tokens) for each in answers})


def answer_all(loaded, wanted, batch_size=7, known=MappingProxyType({}), **decoding):
    settings = Decoding(**{"max_new_tokens": NEW_TOKENS, **decoding})
    answers = list(Engine(loaded, settings, batch_size).run(wanted, known))
    assert len(answers) == len(wanted)
    return {answer.request: answer for answer in answers}


def fed(model):
    """Return a list that fills with the rows and tokens of each input of a model."""
    shapes: list[tuple[int, int]] = []

    def count(_, __, inputs):
        shapes.append(tuple(inputs["input_ids"].shape))

    model.register_forward_pre_hook(count, with_kwargs=True)
    return shapes


def fed_texts(monkeypatch):
    """Return a list that fills with the lengths of the texts that are fed together."""
    fed = []
    feed = SlotRows.feed

    def told(slots, first, rows, texts):
        fed.append([len(text) for text in texts])
        return feed(slots, first, rows, texts)

    monkeypatch.setattr(SlotRows, "feed", told)
    return fed


def steps(shapes):
    """Return the numbers of rows that were fed single tokens."""
    return [rows for rows, tokens in shapes if tokens == 1]


def test_rows_leave_when_they_end_and_others_enter():
    model = tiny_models.build(OWN_MODULES)
    loaded = loaded_model(model, eos=(2, 40, 41, 42, 43))
    wanted = [
        # Prompts of their own: nothing is known of an answer before it is decoded.
        Request(f"{request.question_id} {variant}", (*request.prompt, token), variant)
        for token, variant in enumerate(VARIANTS, start=7)
        for request in requests()
    ]
    shapes = fed(model)
    answers = answer_all(loaded, wanted, batch_size=6)
    assert len({len(answer.token_ids) for answer in answers.values()}) > 3
    lengths = [len(a.token_ids) - (a.stop_reason == "length") for a in answers.values()]
    assert sum(steps(shapes)) == sum(lengths)
    assert steps(shapes).count(6) > len(steps(shapes)) / 2


def test_samples_of_a_question_share_one_prefill():
    model = tiny_models.build(OWN_MODULES)
    prompts = random_prompts((4, 9, 6))
    wanted = [Request(f"q{n}", p, BASE, k) for n, p in enumerate(prompts) for k in range(16)]
    loaded = loaded_model(model)
    shapes = fed(model)
    answers = answer_all(loaded, wanted, 20, temperature=1.0, samples=16)
    assert sum(rows for rows, tokens in shapes if tokens > 1) == 3
    assert len({answer.token_ids for answer in answers.values()}) == 48


def test_samples_of_any_variant_do_not_depend_on_batch_or_order():
    # Answers end at unlike times, so that groups of samples enter beside other rows.
    loaded = loaded_model(tiny_models.build(QWEN2), eos=tuple(range(2, 20)))
    sampling = {"temperature": 0.9, "top_k": 20, "top_p": 0.9, "samples": 3, "seed": 7}
    wanted = [
        Request(request.question_id, request.prompt, request.variant, sample)
        for request in requests()
        for sample in range(3)
    ]
    answers = answer_all(loaded, wanted, 27, **sampling)
    again = answer_all(loaded, random.Random(1).sample(wanted[2:], 25), 7, **sampling)
    assert all(answers[request].token_ids == again[request].token_ids for request in again)
    other_seed = answer_all(loaded, wanted, 27, **{**sampling, "seed": 8})
    assert answers != other_seed


def test_out_of_memory_halves_the_batch_and_loses_no_answer(caplog):
    model = tiny_models.build(OWN_MODULES)
    loaded = loaded_model(model, eos=(2, 40))
    expected = answer_all(loaded, requests(), batch_size=9)

    def fail(_, __, inputs):
        if inputs["input_ids"].shape[0] > 2 and inputs["input_ids"].shape[1] == 1:
            raise torch.OutOfMemoryError("too many rows")

    model.register_forward_pre_hook(fail, with_kwargs=True)
    answers = answer_all(loaded, requests(), batch_size=9)
    assert_alike(answers, expected)
    sizes = [record.args for record in caplog.records if "out of GPU memory" in record.message]
    assert sizes == [(4,), (2,)]

    def refuse(*_):
        raise torch.OutOfMemoryError

    model.register_forward_pre_hook(refuse)
    with pytest.raises(ModelError, match="max_new_tokens"):
        answer_all(loaded, requests(), batch_size=3)


def test_a_batch_takes_memory_for_what_it_answers_not_for_its_limit():
    loaded = loaded_model(tiny_models.build(QWEN2))
    expected = answer_all(loaded, requests(), batch_size=9)
    assert_alike(answer_all(loaded, requests(), batch_size=10**9), expected)


def test_what_cannot_be_answered_is_refused():
    loaded = loaded_model(tiny_models.build(DECODERS["GPT2"]))
    for prompt, variant, message in (
        ((5,) * 64, BASE, "'q' has 64 tokens; the model takes 1 to 63"),
        ((), BASE, "'q' has 0 tokens"),
        ((5, 6), Variant(1, 6), "head 6 is out of range"),
    ):
        with pytest.raises(ModelError, match=message):
            answer_all(loaded, [Request("q", prompt, variant)], batch_size=2)
    rope = {"rope_type": "dynamic", "factor": 2.0, "rope_theta": 10000.0}
    dynamic = tiny_models.wide("Qwen2", **QWEN2.settings | {"rope_parameters": rope})
    for architecture, message in (
        (tiny_models.HYBRIDS[0], "use a decoder with plain attention"),
        (dynamic, "rope_type 'dynamic'"),
    ):
        with pytest.raises(ModelError, match=message):
            Engine(loaded_model(tiny_models.build(architecture)), Decoding(), 2)


def test_rows_of_a_batch_follow_from_shape_and_memory(monkeypatch):
    loaded = loaded_model(tiny_models.build(QWEN2))
    decoder = Decoder.of(loaded)
    few = Decoding(max_new_tokens=100)
    assert fitting_rows(loaded, decoder, few) == fitting_rows(loaded, None, few) == 64
    monkeypatch.setattr(weights, "_HEAVY", 1)
    assert fitting_rows(loaded, decoder, few) == 128
    monkeypatch.setattr("os.sysconf", lambda _: 1 << 10)
    monkeypatch.setattr("os.sched_getaffinity", lambda _: {0, 1})
    token = 4 * 2 * 2 * 8 * 4  # layers, keys and values, heads of them, width, bytes
    assert fitting_rows(loaded, decoder, few) == max(1, (1 << 20) // 8 // (2 * token * 612))
    assert len(list(Engine(loaded, few, None).run(requests()[:2]))) == 2


def test_measures_are_those_of_each_head_alone_and_of_noise_alone():
    loaded = loaded_model(tiny_models.build(tiny_models.DECODERS[0]))
    texts = random_prompts((5, 8))
    table = activations.measure(loaded, texts).set_index(["layer", "head"])
    assert len(table) == tiny_models.LAYERS * tiny_models.QUERY_HEADS
    layer = loaded.geometry.layer(1)
    projection = loaded.geometry.output_projection(loaded.model, 1)
    inputs = []
    handle = projection.register_forward_pre_hook(lambda _, given: inputs.append(given[0][0]))
    with torch.no_grad():
        for text in texts:
            loaded.model(torch.tensor([text]))
        handle.remove()
        joined = torch.cat(inputs)
        assert joined.shape == (13, layer.width)
        nothing = projection(torch.zeros(layer.width))  # the bias
        for head in range(6):
            alone = torch.zeros_like(joined)
            alone[:, layer.columns(head)] = joined[:, layer.columns(head)]
            norm = alone.norm(dim=1)
            placebo = [Variant(1, head, kind="noise")]
            noisy = variant_masks(loaded.model, loaded.geometry, placebo)[1].applied_to(joined)
            wanted = {
                "share": (norm / joined.norm(dim=1)) ** 2,
                "norm": norm,
                "output_norm": (projection(alone) - nothing).norm(dim=1),
                "noise_norm": (projection(noisy) - projection(joined)).norm(dim=1),
            }
            for column, values in wanted.items():
                found = table.loc[(1, head), column]
                assert found == pytest.approx(values.mean().item(), rel=1e-4)
    torch.testing.assert_close(*map(torch.tensor, table[["output_norm", "noise_norm"]].values.T))
    assert table["share"].groupby("layer").sum().tolist() == pytest.approx([1] * tiny_models.LAYERS)


def test_activations_are_measured_on_prompts_with_the_base_models_answers(run_config):
    with pytest.raises(TableError, match="base"):
        activations.run(batch_of(run_config, "tiny", "greedy", "small"))
    inline.run(run_config, "tiny", "greedy", "small", BASE)
    activations.run(batch_of(run_config, "tiny", "greedy", "small"))
    work = Work(batch_of(run_config, "tiny", "greedy", "small"))
    record = read_record(work.batch.path(ACTIVATIONS))
    assert record["texts"] == 4
    assert record["tokens"] > sum(map(len, work.base().values())) > 0


def random_logits(rows):
    return 3 * torch.randn(rows, 53, generator=torch.Generator().manual_seed(0))


def probabilities(logits, decoding):
    """Return what transformers samples from."""
    warpers = LogitsProcessorList([TemperatureLogitsWarper(decoding.temperature)])
    warpers += [TopKLogitsWarper(decoding.top_k)] if decoding.top_k else []
    warpers += [TopPLogitsWarper(decoding.top_p)] if decoding.top_p < 1 else []
    return warpers(None, logits.double()).softmax(-1)


def test_uniforms_are_a_function_of_seed_question_sample_and_position_alone():
    reference = uniforms(3, "math/17", 5, 100)
    assert np.array_equal(uniforms(3, "math/17", 5, 40), reference[:40])
    others = [(4, "math/17", 5), (3, "math/18", 5), (3, "math/17", 6), (3, "5\nmath/17", 3)]
    assert all(abs(uniforms(*other, 100) - reference).min() > 0 for other in others)
    assert reference.min() >= 0 and reference.max() < 1


@pytest.mark.parametrize(("top_k", "top_p"), [(None, 1.0), (7, 1.0), (None, 0.8), (11, 0.9)])
def test_sampled_tokens_follow_the_models_probabilities(top_k, top_p):
    draws, logits = 20_000, random_logits(1)
    decoding = Decoding(temperature=1.7, top_k=top_k, top_p=top_p)
    uniform = torch.tensor(uniforms(0, "q", 0, draws))
    drawn = sample(logits.expand(draws, -1), uniform, decoding)
    expected = draws * probabilities(logits, decoding)[0]
    counts = torch.bincount(drawn, minlength=53).double()
    assert counts[expected == 0].sum() == 0
    likely = expected > 5
    statistic = ((counts - expected)[likely] ** 2 / expected[likely]).sum().item()
    freedom = int(likely.sum()) - 1
    # Mean and standard deviation of the chi-square distribution are k and sqrt(2 k).
    assert statistic < freedom + 4 * math.sqrt(2 * freedom)


@pytest.mark.parametrize(
    ("temperature", "top_k", "top_p"),
    [(0.6, None, 1.0), (1.3, None, 0.95), (0.1, 9, 0.5), (1.3, 9, 1.0), (0.6, 99, 1e-6)],
)
def test_truncation_equals_that_of_transformers(temperature, top_k, top_p):
    logits = random_logits(31)
    decoding = Decoding(temperature=temperature, top_k=top_k, top_p=top_p)
    tokens, weights = candidates(logits, decoding)
    found = torch.zeros(31, 53, dtype=torch.float64).scatter(-1, tokens, weights)
    found /= found.sum(-1, keepdim=True)
    expected = probabilities(logits, decoding)
    assert torch.equal(found > 0, expected > 0)
    assert torch.allclose(found, expected, atol=1e-12)


def test_ends_of_the_unit_interval_have_weight_and_greedy_takes_the_first_of_equal_tokens():
    logits = torch.tensor([[-math.inf, 1.0, 2.0, -math.inf]]).expand(2, -1)
    uniform = torch.tensor([0.0, 1 - 2**-53], dtype=torch.float64)
    assert sample(logits, uniform, Decoding(temperature=1.0)).tolist() == [1, 2]
    tokens, gaps = PLAIN.best_two(torch.tensor([[1.0, 3.0, 3.0], [0.0, 5.0, 3.5], [5.0, 5.0, 1.0]]))
    assert tokens.tolist() == [1, 1, 0]
    assert gaps.tolist() == [0.0, 1.5, 0.0]


def test_slots_of_a_gpu_are_as_wide_as_the_longest_row_comes_to_be_from_the_start(monkeypatch):
    monkeypatch.setattr(Decoder, "on_gpu", True)
    monkeypatch.setattr(Engine, "_on_gpu", True)
    monkeypatch.setattr(attention, "_STEP", 1)
    widths = set()
    feed = SlotRows.feed

    def told(slots, *given):
        logits = feed(slots, *given)
        widths.add(slots.capacity)
        return logits

    monkeypatch.setattr(SlotRows, "feed", told)
    answer_all(loaded_model(tiny_models.build(QWEN2)), requests())
    assert widths == {max(LENGTHS) + NEW_TOKENS}
