"""Decoding, verification, sampling and check on a GPU that computes nothing: counts and sizes.

Each test runs in a process of its own, as PyTorch never forgets a backend.
"""

from collections import deque

import fake_gpu
import numpy as np
import pytest
import torch
from fake_gpu import LAYERS, counted, in_a_process
from torch.nn import functional

from headsweep.config import Decoding
from headsweep.engine import attention
from headsweep.engine.attention import Slots, dense, flash
from headsweep.engine.batch import DecodingBatch, Verifier
from headsweep.engine.check import Check
from headsweep.engine.decoder import Decoder, SlotRows
from headsweep.engine.requests import Drafted, Request, Row
from headsweep.engine.segments import Segments
from headsweep.variants import BASE, Variant

COPIES = 4  # to the device a decoding step
KERNELS = 112  # of such a step: 18 or 19 a layer, and those of masks, logits and choices
PRUNED = [
    Variant(1, 1),
    Variant(2, 4),
    Variant(2, 3, kind="noise"),
    Variant(3, 11),
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


@pytest.mark.parametrize(
    ("attend", "decoding", "kernels"),
    [(flash, Decoding(), KERNELS), (flash, SAMPLING, KERNELS + 9), (dense, Decoding(), KERNELS)],
)
@in_a_process
def test_a_decoding_step_copies_little_and_launches_few_kernels(attend, decoding, kernels):
    with counted() as counts:
        decoder = Decoder(fake_gpu.loaded_model(), attend)
        decoded = DecodingBatch(SlotRows(decoder, 7, 200), decoding, 7)
        decoded.enter([[row] for row in rows([BASE, *PRUNED])])
        decoded.step()
        counts.clear()
        decoded.step()
    assert 0 < len(counts.to_device) <= COPIES, counts.to_device
    assert 0 < counts.operators.total() <= kernels, counts.operators
    assert counts.to_host == [(2, 1 + len(PRUNED))]  # chosen tokens, and their gaps
    calls = {"flash": "_flash_attention_forward", "dense": "scaled_dot_product_attention"}
    assert counts.operators[calls[attend.__name__]] == LAYERS
    # Without top-k and top-p no order of the vocabulary is needed.
    assert not {"sort", "topk", "argsort"} & counts.operators.keys()


@in_a_process
def test_a_captured_step_copies_tokens_and_columns_and_within_it_nothing():
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
        decoder = Decoder(fake_gpu.loaded_model(), flash)
        decoder.capture = capture
        decoded = DecodingBatch(SlotRows(decoder, 7, 200), Decoding(), 7)
        decoded.enter([[row] for row in rows(heads)])
        decoded.step()
        counts.clear()
        decoded.step()
    assert inside == [0, 0, 0]  # held against its function, then two steps
    assert len(counts.to_device) == 1
    assert counts.to_host == [(1, 2, len(heads))]
    assert counts.operators["_flash_attention_forward"] == LAYERS
    assert counts.operators.total() <= KERNELS, counts.operators


@in_a_process
def test_masks_of_other_rows_are_copied_once_for_all_layers():
    with counted() as counts:
        decoder = Decoder(fake_gpu.loaded_model(), flash)
        decoder.masks(PRUNED)  # what noise needs of the weights is read once
        counts.clear()
        masks = decoder.masks([BASE, *PRUNED])
    assert sorted(masks) == [1, 2, 3]
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


@in_a_process
def test_a_verification_pass_reads_chosen_tokens_only_and_where_slots_lie(monkeypatch):
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
        decoder = Decoder(fake_gpu.loaded_model(), flash)
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
        decoder = Decoder(fake_gpu.loaded_model(), dense)
        slots = Slots(decoder.weights)
        slots.reserve(3, 64)
        segments = Segments(range(3), [0, 0, 0], [12, 5, 7], decoder.weights.device, [12, 5, 7])
        queries = torch.empty(24, 12, 128, device=fake_gpu.NAME, dtype=torch.bfloat16)
        assert dense(queries, slots, 1, segments, window).shape == (24, 12 * 128)
    assert shared == [False]


@in_a_process
def test_the_check_reads_numbers_and_scores_watched_answers_in_one_pass():
    with counted(floats=lambda shape: np.full(shape, 0.01)) as counts:
        loaded = fake_gpu.loaded_model()
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
    assert sorted(counts.to_host) == [(4,), *4 * [(5,)]]
    assert checked.facts["audited"] == 4 and checked.facts["seconds"] > 0
