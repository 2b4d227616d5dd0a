"""Answers that repeat themselves: the same tokens in fewer passes."""

import random

import pytest
import tiny_models
from test_engine import (
    VARIANTS,
    answer_all,
    assert_alike,
    assert_exact,
    loaded_model,
    requests,
)

from headsweep.engine import batch
from headsweep.engine.decoder import Decoder, SlotRows
from headsweep.engine.repetition import repetition
from headsweep.variants import BASE, Variant

LONG = 140
MODELS = {
    "Gemma": tiny_models.wide("Gemma", max_position_embeddings=300),
    "Qwen2": tiny_models.wide("Qwen2", max_position_embeddings=300),
    "Mistral": tiny_models.wide("Mistral", max_position_embeddings=300, sliding_window=8),
    "Olmo2": tiny_models.wide("Olmo2", max_position_embeddings=300),
}


def looked_up(tokens, right, most):
    """Do as `repetition`, place by place."""
    if not right and len(tokens) % 8:
        return []
    for start in reversed(range(len(tokens) - 16)):
        if tokens[start : start + 16] == tokens[-16:]:
            text = list(tokens)
            for place in range(min(max(8, 2 * right), 64, most)):
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
        right, most = draw.choice((0, 3, 9, 64)), draw.choice((0, 1, 5, 100))
        found = repetition(tokens, right, most)
        assert found == looked_up(tokens, right, most)
        drafts += bool(found)
    assert 100 < drafts < 500
    assert repetition([7] * 40, 0, 100) == [7] * 8
    assert repetition([7] * 41, 0, 100) == []  # it is not looked at each token
    assert repetition([7] * 41, 64, 100) == [7] * 64


def test_tokens_are_those_of_generate_and_passes_are_fewer(monkeypatch):
    loaded = loaded_model(tiny_models.build(MODELS["Gemma"]))  # which repeats itself
    passes = []
    forward = Decoder.forward

    def told(decoder, tokens, segments, *others):
        passes.append(segments.counts)
        return forward(decoder, tokens, segments, *others)

    monkeypatch.setattr(Decoder, "forward", told)
    wanted = requests(VARIANTS[1:])  # each with a question of its own: nothing is verified
    answers = answer_all(loaded, wanted, batch_size=4, max_new_tokens=LONG)
    repeating = [counts for counts in passes if min(counts) > 8]
    assert max(map(sum, repeating)) > 64
    assert_exact(loaded, {each: answers[each] for each in wanted[:4]}, LONG)
    fewer, passes[:] = len(passes), ()
    monkeypatch.setattr(batch, "repetition", lambda *_: [])
    expected = answer_all(loaded, wanted, batch_size=4, max_new_tokens=LONG)
    assert fewer < len(passes) / 2
    assert_alike(answers, expected)


@pytest.mark.parametrize("name", ["Qwen2", "Mistral"])
def test_a_wrong_draft_changes_no_token(name, monkeypatch):
    loaded = loaded_model(tiny_models.build(MODELS[name]), eos=(2, 40))
    wanted = requests()
    expected = answer_all(loaded, wanted, batch_size=5)
    draw = random.Random(0)
    right = {each.prompt: expected[each].token_ids for each in wanted}

    def drafted(tokens, _, most):
        """Return some next tokens of the row, and one that may be wrong."""
        known = next(known for known in right.values() if list(known[: len(tokens)]) == tokens)
        draft = [*known[len(tokens) :][: draw.randrange(4)], draw.randrange(3, 90)]
        return draft[:most] if draw.random() < 0.7 else []

    monkeypatch.setattr(batch, "repetition", drafted)
    assert_alike(answer_all(loaded, wanted, batch_size=5), expected)


def test_samples_and_models_by_their_own_modules_are_given_no_draft(monkeypatch):
    monkeypatch.setattr(SlotRows, "feed_several", lambda *_: 1 / 0)
    for name, settings in (("Qwen2", {"temperature": 0.01, "samples": 2}), ("Olmo2", {})):
        loaded = loaded_model(tiny_models.build(MODELS[name]))
        assert answer_all(loaded, requests((BASE, Variant(1, 2))), max_new_tokens=LONG, **settings)
