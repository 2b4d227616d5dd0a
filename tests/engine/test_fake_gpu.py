"""Decoding, verification, sampling and check on a GPU that computes nothing: counts and sizes.

Each test runs in a process of its own, as PyTorch never forgets a backend.
"""

from collections import deque

import fake_gpu
import numpy as np
import pytest
import torch
from fake_gpu import LLAMA, QWEN, counted, in_a_process
from torch.nn import functional

from headsweep.config import Decoding
from headsweep.engine import attention, batch
from headsweep.engine.attention import Slots, dense, flash
from headsweep.engine.batch import DecodingBatch, Verifier
from headsweep.engine.check import Check
from headsweep.engine.decoder import Decoder, SlotRows
from headsweep.engine.requests import Drafted, Request, Row
from headsweep.engine.segments import Segments
from headsweep.engine.sizing import verified_rows
from headsweep.variants import BASE, Variant

COPIES, OPERATORS = 4, 25  # to the device a decoding step; a layer
PRUNED = [
    Variant(3, 1),
    Variant(5, 4),
    Variant(5, 3, kind="noise"),
    Variant(7, 11),
    Variant.parse("L01K02"),
]
SAMPLING = Decoding(temperature=0.6, max_new_tokens=40)


def rows(variants, tokens=100):
    """Return a row a variant, each of a question of its own."""
    uniforms = np.full(tokens, 0.3)
    return [
        Row(Request(f"q{n}", (3,) * (4 + n), variant), tokens, (2,), uniforms)
        for n, variant in enumerate(variants)
    ]


def per_layer(counts, config):
    return counts.operators.total() / config.num_hidden_layers


@pytest.mark.parametrize(
    ("config", "attend", "decoding"),
    [
        (QWEN, flash, Decoding()),
        (QWEN, flash, SAMPLING),
        (QWEN, dense, Decoding()),
        (LLAMA, flash, Decoding()),
    ],
    ids=["1.5B", "1.5B sampled", "1.5B dense", "8B"],
)
@in_a_process
def test_a_decoding_step_copies_little_and_launches_few_kernels(config, attend, decoding):
    with counted() as counts:
        decoder = Decoder(fake_gpu.loaded_model(config), attend)
        decoded = DecodingBatch(SlotRows(decoder, 7, 200), decoding, 7)
        decoded.enter([[row] for row in rows([BASE, *PRUNED])])
        decoded.step()
        counts.clear()
        decoded.step()
    print(f"{config.model_type}, {attend.__name__}, {decoding.temperature}: {counts}")
    assert 0 < len(counts.to_device) <= COPIES, counts.to_device
    assert 0 < per_layer(counts, config) <= OPERATORS
    assert counts.to_host == [(2, 1 + len(PRUNED))]  # chosen tokens, and their gaps
    calls = {"flash": "_flash_attention_forward", "dense": "scaled_dot_product_attention"}
    assert counts.operators[calls[attend.__name__]] == config.num_hidden_layers
    # Without top-k and top-p no order of the vocabulary is needed.
    assert not {"sort", "topk", "argsort"} & counts.operators.keys()


@pytest.mark.parametrize("config", [QWEN, LLAMA], ids=["1.5B", "8B"])
@in_a_process
def test_a_captured_step_copies_tokens_and_columns_and_within_it_nothing(config):
    inside = []

    def capture(compute):
        filled = compute()

        def replay():
            before = len(counts.to_device)
            filled.copy_(compute())
            inside.append(len(counts.to_device) - before)

        return replay, filled

    heads = [BASE, *(variant for variant in PRUNED if variant.kind == "head")]
    with counted(floats=np.zeros) as counts:
        decoder = Decoder(fake_gpu.loaded_model(config), flash)
        decoder.capture = capture
        decoded = DecodingBatch(SlotRows(decoder, 7, 200), Decoding(), 7)
        decoded.enter([[row] for row in rows(heads)])
        decoded.step()
        counts.clear()
        decoded.step()
    assert inside == [0, 0, 0]  # held against its function, then two steps
    assert len(counts.to_device) == 1
    assert counts.to_host == [(1, 2, len(heads))]
    assert counts.operators["_flash_attention_forward"] == config.num_hidden_layers
    assert per_layer(counts, config) <= OPERATORS


@in_a_process
def test_masks_of_other_rows_are_copied_once_for_all_layers():
    with counted() as counts:
        decoder = Decoder(fake_gpu.loaded_model(QWEN), flash)
        decoder.masks(PRUNED)  # what noise needs of the weights is read once
        counts.clear()
        masks = decoder.masks([BASE, *PRUNED])
    assert sorted(masks) == [1, 2, 3, 5, 7]
    assert len(counts.to_device) == 3  # factors, noise, layers that are left out


def drafted(lengths, differing=None, variants=PRUNED):
    """Return a question a length; the draft of one has another token than the GPU's everywhere 7.

    `differing` is its number and the place of the token.
    """
    questions = deque()
    for number, length in enumerate(lengths):
        draft = [7] * length
        if differing and differing[0] == number:
            draft[differing[1]] = 9
        prompt = (3,) * (14 + number)
        asked = [Row(Request(f"q{number}", prompt, variant), 500, (2,)) for variant in variants]
        questions.append(Drafted(draft, asked))
    return questions


@pytest.mark.parametrize("config", [QWEN, LLAMA], ids=["1.5B", "8B"])
@in_a_process
def test_a_verification_pass_reads_chosen_tokens_only_and_where_slots_lie(config, monkeypatch):
    passes = []
    forward = Decoder.forward

    def told(decoder, tokens, *rest):
        passes.append(len(tokens))
        return forward(decoder, tokens, *rest)

    tails = []
    tail = Segments.tail

    def told_tail(segments):
        tails.append(segments)
        return tail(segments)

    monkeypatch.setattr(Decoder, "forward", told)
    monkeypatch.setattr(Segments, "tail", told_tail)
    with counted() as counts:
        decoder = Decoder(fake_gpu.loaded_model(config), flash)
        decoder.masks(PRUNED)
        verifier = Verifier(decoder, 64, columns=600)
        counts.clear()
        # The second question's rows leave: later passes read slots with holes between.
        verifier.verify(drafted((250, 200), differing=(1, 30)))
    assert len(passes) == 2
    # In the first pass the base rows have one, and all rows; later every token is compared.
    assert len(tails) == 2
    assert all(max(segments.starts) == 0 for segments in tails)
    assert len(verifier.ready) == 2 * len(PRUNED)
    assert all(
        row.accepted == (250 if row.request.question_id == "q0" else 30)
        for row, _ in verifier.ready
    )
    layers = len({variant.layers[0] for variant in PRUNED})
    # Rows join at each of these layers: four copies for each set of rows, not for each layer.
    assert 0 < len(counts.to_device) <= len(passes) * 4 * (layers + 2)
    assert all(shape[0] == 2 for shape in counts.to_host)
    assert sum(shape[1] for shape in counts.to_host) == len(PRUNED) * (129 + 129 + 122)
    assert counts.slots_copied == 0


@in_a_process
def test_a_pool_is_allocated_once_and_stays_within_its_budget(monkeypatch):
    sizes = []
    zeros = Slots._zeros

    def told(slots, count, columns):
        sizes.append((count, columns))
        return zeros(slots, count, columns)

    monkeypatch.setattr(Slots, "_zeros", told)
    with counted():
        decoder = Decoder(fake_gpu.loaded_model(QWEN), flash)
        decoded = DecodingBatch(SlotRows(decoder, 7, 300), Decoding(), 7)
        decoded.enter([[row] for row in rows([BASE, *PRUNED])])
        for _ in range(3):
            decoded.step()
        verifier = Verifier(decoder, 9, columns=300)
        questions = drafted((60, 190, 240), variants=PRUNED)
        while questions:  # five rows and their base row a pass
            verifier.verify(questions)
    assert [size for size in sizes if size != (0, 0)] == [(7, 320), (9, 320)]


@in_a_process
def test_a_pass_of_a_gpu_has_its_own_size(monkeypatch):
    with counted():
        decoder = Decoder(fake_gpu.loaded_model(QWEN), flash)
        verifier = Verifier(decoder, 256, columns=600)
        chunk = verifier._next(drafted((400,))[0], 0)
        assert (chunk.begin, chunk.end, chunk.compared) == (0, 14 + 128, 129)
        chunk = verifier._next(drafted((400,))[0], chunk.end)
        assert chunk.end - chunk.begin == 128
        taken = list(verifier._take(drafted([300] * 60)))
        tokens = [len(PRUNED) * (14 + number + 128) for number in range(len(taken) + 1)]
        assert sum(tokens[:-1]) <= batch.GPU_PASS_TOKENS < sum(tokens)
        few = Verifier(decoder, 32, columns=600)
        assert len(list(few._take(drafted([300] * 60)))) == 32 // (len(PRUNED) + 1)
        # One question of many rows goes through in parts: rows and their base row fit.
        many = drafted((300,), variants=[Variant(0, 1)] * 400)
        assert verifier._rows_at_once(many) == batch.GPU_PASS_TOKENS // (14 + 128)
    assert [verified_rows(size) for size in (1, 5, 100, 512)] == [2, 2, 50, 256]


@pytest.mark.parametrize("window", [None, 9])
@in_a_process
def test_no_attention_of_a_gpu_shares_keys_by_itself(window, monkeypatch):
    """PyTorch's fast kernels do not, but for flash: keys would be expanded, in float32."""
    shared = []
    right = functional.scaled_dot_product_attention

    def told(*inputs, enable_gqa=False, **named):
        shared.append(enable_gqa)
        return right(*inputs, enable_gqa=enable_gqa, **named)

    monkeypatch.setattr(attention, "scaled_dot_product_attention", told)
    with counted():
        decoder = Decoder(fake_gpu.loaded_model(QWEN), dense)
        slots = Slots(decoder.weights)
        slots.reserve(3, 64)
        segments = Segments(range(3), [0, 0, 0], [12, 5, 7], decoder.weights.device, [12, 5, 7])
        queries = torch.empty(24, 12, 128, device=fake_gpu.NAME, dtype=torch.bfloat16)
        assert dense(queries, slots, 1, segments, window).shape == (24, 12 * 128)
    assert shared == [False]


@in_a_process
def test_the_check_reads_numbers_and_scores_watched_answers_in_one_pass():
    with counted(floats=lambda shape: np.full(shape, 0.01)) as counts:
        loaded = fake_gpu.loaded_model(QWEN)
        decoder = Decoder(loaded, flash)
        checked = Check(loaded)
        variants = [BASE, *PRUNED[:3]]
        decoded = DecodingBatch(SlotRows(decoder, 7, 200), Decoding(max_new_tokens=8), 7, checked)
        watched = rows(variants, tokens=8)
        decoded.enter([[row] for row in watched])
        while len(decoded):
            decoded.step()
        passes = []
        loaded.model.base_model.register_forward_pre_hook(
            lambda _, __, given: passes.append(len(given["input_ids"])), with_kwargs=True
        )
        counts.clear()
        answers = [row.answer for row in watched]
        assert list(checked.groups(iter(answers))) == answers
    # All answers, then all in float32: with their variants, and the pruned as base.
    assert passes == [4, 4 + 3]
    assert sorted(counts.to_host) == [(4,), (4, 5)]
    assert checked.facts["audited"] == 4 and checked.facts["seconds"] > 0
