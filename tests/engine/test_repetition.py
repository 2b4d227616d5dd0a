"""Answers that repeat themselves: the same tokens in fewer passes."""

import math
import random

import pytest
import tiny_models
import torch
from test_engine import VARIANTS, answer_all, assert_alike, assert_exact, loaded_model, requests

from headsweep.config import Decoding
from headsweep.engine import batch
from headsweep.engine import repetition as repetition_module
from headsweep.engine.check import Check
from headsweep.engine.decoder import Decoder, SlotRows
from headsweep.engine.engine import Engine
from headsweep.engine.repetition import Repetitions, repetition
from headsweep.engine.unit import Begun
from headsweep.variants import BASE, Variant

LONG = 140
MODELS = {
    "Gemma": tiny_models.wide("Gemma", max_position_embeddings=300),  # which repeats itself
    "Qwen2": tiny_models.wide("Qwen2", max_position_embeddings=300),
    "Mistral": tiny_models.wide("Mistral", max_position_embeddings=300, sliding_window=8),
    "Olmo2": tiny_models.wide("Olmo2", max_position_embeddings=300),
}
WANTED = requests(VARIANTS[1:])  # each with a question of its own: nothing is verified


def model(name, **settings):
    return loaded_model(tiny_models.build(MODELS[name]), **settings)


def without_drafts(monkeypatch):
    monkeypatch.setattr(repetition_module, "repetition", lambda *_: [])


def looked_up(tokens, length):
    """Do as `repetition`, place by place."""
    for start in reversed(range(len(tokens) - 16)):
        if tokens[start : start + 16] == tokens[-16:]:
            text = list(tokens)
            for place in range(length):
                text.append(text[start + 16 + place])
            return text[len(tokens) :]
    return []


def test_a_draft_is_what_followed_the_last_tokens_where_they_stood_last():
    draw = random.Random(0)
    drafts = 0
    for _ in range(600):
        # Numbers of one byte and of three, at all places: no token begins within another.
        words = [draw.choice((1, 256, 65536)) * draw.randrange(2) for _ in range(5)]
        tokens = draw.choices(words, k=draw.randint(0, 150))
        tokens += tokens[-draw.randint(1, 30) :] * draw.randint(0, 5)
        length = draw.choice((0, 1, 5, 64))
        found = repetition(tokens, length)
        assert found == looked_up(tokens, length)
        drafts += bool(found)
    assert 100 < drafts < 500


def test_drafts_grow_while_they_are_right_and_pause_for_tokens_computed_in_vain():
    repetitions, tokens, lengths = Repetitions(), [7] * 40, []
    for _ in range(5):
        draft = repetitions.draft(tokens, 100)
        lengths.append(len(draft))
        tokens += [*draft, 7]
        repetitions.judged(tokens, len(draft), len(draft))
    assert lengths == [8, 16, 32, 64, 64]
    assert len(repetitions.draft(tokens, 5)) == 5
    assert repetitions.draft(tokens, 0) == []

    repetitions = Repetitions()
    assert repetitions.draft([*range(40)], 100) == []
    looks = [count for count in range(41, 60) if repetitions.draft([7] * count, 100)]
    assert looks[0] == 48
    repetitions.judged([7] * 60, 8, 3)
    looks = [count for count in range(60, 90) if repetitions.draft([7] * count, 100)]
    assert looks[0] == 60 + 4 * (8 - 3)


def test_tokens_are_those_of_generate_and_passes_are_fewer(monkeypatch):
    loaded = model("Gemma")
    passes = []
    forward = Decoder.forward

    def told(decoder, tokens, segments, *others):
        passes.append((min(segments.starts), sum(segments.counts)))
        return forward(decoder, tokens, segments, *others)

    monkeypatch.setattr(Decoder, "forward", told)
    answers = answer_all(loaded, WANTED, batch_size=4, max_new_tokens=LONG)
    assert max(fed for start, fed in passes if start > 0) > 64  # several rows at once
    assert_exact(loaded, {each: answers[each] for each in WANTED[:4]}, LONG)
    fewer, passes[:] = len(passes), ()
    without_drafts(monkeypatch)
    expected = answer_all(loaded, WANTED, batch_size=4, max_new_tokens=LONG)
    assert fewer < len(passes) / 2
    assert_alike(answers, expected)


@pytest.mark.parametrize("name", ["Qwen2", "Mistral"])
def test_a_wrong_draft_changes_no_token(name, monkeypatch):
    loaded = model(name, eos=(2, 40))
    expected = answer_all(loaded, WANTED, batch_size=5)
    draw = random.Random(0)
    right = [answer.token_ids for answer in expected.values()]

    def drafted(_, tokens, most):
        """Return some next tokens of the row, and one that may be wrong."""
        known = next(known for known in right if list(known[: len(tokens)]) == tokens)
        draft = [*known[len(tokens) :][: draw.randrange(4)], draw.randrange(3, 90)]
        return draft[:most] if draw.random() < 0.7 else []

    monkeypatch.setattr(Repetitions, "draft", drafted)
    assert_alike(answer_all(loaded, WANTED, batch_size=5), expected)


def test_the_end_of_the_positions_ends_a_repetition(monkeypatch):
    loaded = model("Gemma")
    loaded.model.config.max_position_embeddings = 90
    feed = SlotRows.feed_several

    def told(slots, rows, texts):
        for row, text in zip(rows, texts, strict=True):
            assert len(row.tokens) + len(text) <= row.limit  # a token of its own follows
        return feed(slots, rows, texts)

    monkeypatch.setattr(SlotRows, "feed_several", told)
    answers = answer_all(loaded, WANTED, batch_size=3, max_new_tokens=LONG)
    for request, answer in answers.items():
        assert len(answer.token_ids) + len(request.prompt) == 90
    without_drafts(monkeypatch)
    assert_alike(answer_all(loaded, WANTED, batch_size=3, max_new_tokens=LONG), answers)


def test_an_answer_that_goes_on_repeats_what_it_had(monkeypatch):
    loaded = model("Gemma")
    whole = answer_all(loaded, WANTED, max_new_tokens=LONG)
    halves = {each: Begun([*whole[each].token_ids[:70]], math.inf) for each in WANTED}
    lengths = []
    feed = SlotRows.feed_several

    def told(slots, rows, texts):
        lengths.extend(len(row.tokens) for row in rows)
        return feed(slots, rows, texts)

    monkeypatch.setattr(SlotRows, "feed_several", told)
    engine = Engine(loaded, Decoding(max_new_tokens=LONG), 4)
    found = {answer.request: answer for answer in engine.run(WANTED, begun=halves)}
    assert min(lengths) < 80
    assert all(found[each].token_ids == whole[each].token_ids for each in WANTED)


def test_in_half_precision_the_check_finds_nothing_wrong(monkeypatch):
    drafted = []
    judged = Repetitions.judged
    monkeypatch.setattr(
        Repetitions, "judged", lambda *given: drafted.append(given[2]) or judged(*given)
    )
    loaded = loaded_model(tiny_models.build(MODELS["Gemma"]).to(torch.bfloat16))
    engine = Engine(loaded, Decoding(max_new_tokens=LONG), 4)
    assert len(list(engine.run(WANTED))) == len(WANTED)
    assert sum(drafted) > LONG
    assert not engine.facts.get("falls") and engine.facts["check"]["audited"] > 0

    drafted.clear()
    monkeypatch.setattr(Check, "wants", lambda *_: True)  # whose logits are looked at, has none
    monkeypatch.setattr(Check, "keep", lambda *_: None)
    answers = Engine(loaded, Decoding(max_new_tokens=LONG), 4).run(WANTED)
    assert next(answers) and not drafted


def test_samples_many_rows_and_models_by_their_own_modules_are_given_no_draft(monkeypatch):
    monkeypatch.setattr(Repetitions, "draft", lambda *_: 1 / 0)
    for name, settings in (("Gemma", {"temperature": 0.01, "samples": 2}), ("Olmo2", {})):
        wanted = requests((BASE, Variant(1, 2)))
        assert answer_all(model(name), wanted, max_new_tokens=LONG, **settings)
    gemma = model("Gemma")
    with pytest.raises(ZeroDivisionError):
        answer_all(gemma, WANTED[:1], max_new_tokens=LONG)
    monkeypatch.setattr(batch, "FEW_ROWS", 0)
    assert answer_all(gemma, WANTED[:1], max_new_tokens=LONG)
