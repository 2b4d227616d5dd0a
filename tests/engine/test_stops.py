"""Answers end before a text of the user's, whatever way their tokens take through the engine."""

from dataclasses import replace

import pytest
import test_engine
import tiny_models

from headsweep.config import Decoding
from headsweep.engine.engine import Engine
from headsweep.engine.requests import Request, Row
from headsweep.engine.stops import text_of
from headsweep.variants import BASE, Variant

TOKENS = 30


class Numbers:
    """A tokenizer that writes each token as its number and a semicolon."""

    def decode(self, token_ids, **_):
        return "".join(f"{token};" for token in token_ids)


def cut(tokens, stops):
    """Return the tokens up to the one that completes a stop, and whether there is one."""
    for count in range(1, len(tokens) + 1):
        written = Numbers().decode(tokens[:count])
        if any(stop in written for stop in stops):
            return tokens[:count], True
    return tokens, False


def requests():
    """Return five questions: to the base model, without a head, and verified as that is."""
    prompts = test_engine.random_prompts((3, 29, 5, 17, 2))
    return [
        Request(f"q{number}", prompt, variant)
        for number, prompt in enumerate(prompts)
        for variant in (BASE, Variant(2, 1), Variant(3, 0, "replay"))
    ]


@pytest.mark.parametrize("name", ["Llama", "Olmo2"])  # the engine's decoder, the model's modules
def test_answers_end_where_those_of_generate_would(name):
    loaded = test_engine.loaded_model(tiny_models.build(test_engine.DECODERS[name]))
    whole = {
        each: test_engine.reference(loaded, each, TOKENS)
        for each in requests()
        if each.variant.kind != "replay"
    }
    whole |= {each: whole[replace(each, variant=BASE)] for each in requests() if each not in whole}
    base = [answer.token_ids for request, answer in whole.items() if request.variant.is_base]
    # One is a token of a base answer; one begins within a token and ends within the next.
    stops = (f";{base[1][9]};", f"{base[4][20] % 10};{str(base[4][21])[0]}")
    loaded = replace(loaded, tokenizer=Numbers())
    decoding = Decoding(max_new_tokens=TOKENS, stop=stops)
    found = list(Engine(loaded, decoding, 7).run(requests()))
    assert len(found) == len(whole)
    stopped = heads_stopped = accepted = compared = 0
    for answer in found:
        expected = whole[answer.request]
        if min(answer.margin, expected.margin) <= test_engine.THRESHOLD:
            continue
        compared += 1
        tokens, has_stopped = cut(expected.token_ids, stops)
        reason = "stop" if has_stopped else "length"
        assert (answer.token_ids, answer.stop_reason) == (tokens, reason)
        stopped += has_stopped
        is_base = answer.request.variant.is_base
        heads_stopped += has_stopped and not is_base
        # Verified to the last token of a base answer that a stop has ended.
        accepted += has_stopped and not is_base and answer.accepted == len(tokens)
    assert compared > 0.8 * len(whole)
    assert 1 < heads_stopped < stopped < compared
    assert accepted


def test_tokens_of_several_steps_end_at_a_stop():
    loaded = test_engine.loaded_model(tiny_models.build(test_engine.DECODERS["Llama"]))
    loaded = replace(loaded, tokenizer=Numbers())
    engine = Engine(loaded, Decoding(max_new_tokens=TOKENS, stop=("8;1",)), 7)
    row: Row = engine._new_row(Request("q", (3, 4)))
    answer = row.extend([5, 28, 13, 6], [0.4, 0.3, 0.2, 0.1])
    assert (answer.token_ids, answer.stop_reason, answer.margin) == ((5, 28, 13), "stop", 0.2)


def test_a_text_ends_before_the_first_of_its_stops():
    assert text_of(Numbers(), [12, 7, 5, 7], ("7;5", "5;")) == "12;"
    assert text_of(Numbers(), [12, 7], ("3",)) == "12;7;"
    assert text_of(Numbers(), [12, 7], ()) == "12;7;"
