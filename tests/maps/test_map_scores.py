"""Scores of texts, held against plain forwards on zeroed weights."""

import math
import os
from dataclasses import replace
from functools import partial
from unittest.mock import Mock

import pandas as pd
import pytest
import tiny_models
import torch
from test_engine import DECODERS, loaded_model
from test_verify import build

from headsweep.engine.decoder import Decoder
from headsweep.errors import ModelError
from headsweep.experiments.maps import job, scoring
from headsweep.experiments.maps.job import bound, check_scores
from headsweep.experiments.maps.scoring import Text, score
from headsweep.models.masks import edited_weights, pruned
from headsweep.store import journal
from headsweep.store.map_scores import unchanged
from headsweep.variants import Variant

NATS = 1e-3  # of a text
BY_DAY = ("Qwen2", "Mistral, window 8", "Gemma2", "GPT2", "Olmo2", "GPTNeo, window 6")
"""They take unlike paths through the engine, which is held against plain forwards for all."""
LAYER = 2
HEADS = [Variant(LAYER, head) for head in (0, 3, 5)]
VARIANTS = [Variant(LAYER, 0, "replay"), *HEADS, Variant(LAYER, 4, "noise")]


def texts(sizes=((7, 11), (3, 5), (9, 2), (4, 17))):
    """Texts of unlike lengths, of prompt and of tokens."""
    draw = torch.Generator().manual_seed(3)
    found = []
    for number, (prompt, tokens) in enumerate(sizes):
        ids = torch.randint(3, 90, (prompt + tokens,), generator=draw).tolist()
        found.append(Text(f"q{number}", "right", tuple(ids[:prompt]), tuple(ids[prompt:])))
    return found


@torch.no_grad()
def plain(model, text):
    """Return log-probability and first choices of a text, by one forward of transformers."""
    ids = torch.tensor([[*text.prompt, *text.tokens]])
    logits = model(input_ids=ids).logits[0].double()
    total, kept = 0.0, 0
    for place, token in enumerate(text.tokens, start=len(text.prompt) - 1):
        total += logits[place].log_softmax(-1)[token].item()
        kept += int(logits[place].argmax().item() == token)
    return total, kept


@pytest.mark.parametrize("name", DECODERS if "HEADSWEEP_NIGHTLY" in os.environ else BY_DAY)
def test_scores_equal_plain_forwards_on_zeroed_weights(name):
    loaded = loaded_model(build(name))
    asked = texts()
    found = {(s.text, s.variant): s for s in score(loaded, asked, VARIANTS, most_tokens=40)}
    assert len(found) == len(asked) * len(VARIANTS)
    changes = []
    for variant in VARIANTS:
        # A placebo has no weights that say the same: it is held against masks.
        how = pruned if variant.kind == "noise" else edited_weights
        with how(loaded.model, loaded.geometry, variant):
            for text in asked:
                total, kept = plain(loaded.model, text)
                own = found[text, variant]
                assert own.log_probability == pytest.approx(total, abs=NATS)
                assert own.kept == kept
                changes.append(abs(total - found[text, VARIANTS[0]].log_probability))
    assert max(changes) > 50 * NATS, "no head of these models counts"


def test_a_model_that_keeps_more_than_keys_and_values_is_refused():
    loaded = loaded_model(tiny_models.build(tiny_models.HYBRIDS[0]))
    with pytest.raises(ModelError, match="use a decoder with plain attention"):
        next(score(loaded, texts(), VARIANTS))


def test_between_two_scores_the_model_is_whole():
    loaded = loaded_model(tiny_models.build(tiny_models.Architecture("GPTNeoX")))
    assert Decoder.of(loaded) is None, "its own modules score"
    asked = texts()
    ids = torch.tensor([[*asked[0].prompt, *asked[0].tokens]])
    whole = loaded.model(input_ids=ids).logits
    for own in score(loaded, asked, VARIANTS):
        logits = loaded.model(input_ids=ids).logits
        torch.testing.assert_close(logits, whole)
        if own.variant == VARIANTS[0]:
            total, _ = plain(loaded.model, own.text)
            assert own.log_probability == pytest.approx(total, abs=NATS)


def test_how_texts_share_passes_changes_no_score():
    loaded, asked = loaded_model(build("Qwen2")), texts()
    ways = [
        [s.log_probability for s in score(loaded, asked, VARIANTS, most_tokens=most)]
        for most in (1, 19, 64, 4096)
    ]
    for way in ways[1:]:
        assert way == pytest.approx(ways[0], abs=1e-4)


def test_a_pass_holds_no_more_tokens_than_asked_and_a_single_row_at_least(monkeypatch):
    loaded, sizes = loaded_model(build("Qwen2")), []
    begin = scoring.SharedPass.begin

    def watched(run, pairs):
        sizes.append(sum(len(drafted.text) + 1 for _, drafted in pairs))
        begin(run, pairs)

    monkeypatch.setattr(scoring.SharedPass, "begin", watched)
    list(score(loaded, texts(), VARIANTS, most_tokens=40))
    assert max(sizes) <= 40
    sizes.clear()
    list(score(loaded, texts(), VARIANTS, most_tokens=1))
    assert len(sizes) == 4 * len(VARIANTS)


def test_a_full_pass_takes_no_other_text_and_a_text_stays_whole(monkeypatch):
    loaded, drafts = loaded_model(build("Qwen2")), []
    begin = scoring.SharedPass.begin

    def watched(run, pairs):
        drafts.append({drafted: len(drafted.text) + 1 for _, drafted in pairs})
        begin(run, pairs)

    monkeypatch.setattr(scoring.SharedPass, "begin", watched)
    for enough in (1, 10**6):
        monkeypatch.setattr(scoring, "ENOUGH_TOKENS", enough)
        list(score(loaded, texts(), VARIANTS))
    assert [len(begun) for begun in drafts] == [1, 1, 1, 1, 4]


def test_logits_that_are_there_at_once_are_of_few_places(monkeypatch):
    """A model of a large vocabulary by its own modules would take gigabytes for them."""
    loaded, rows = loaded_model(build("Olmo2")), []
    feed = scoring.WholePass.feed

    def watched(run, first, of_pass, *given):
        rows.append(len(of_pass))
        return feed(run, first, of_pass, *given)

    monkeypatch.setattr(scoring.WholePass, "feed", watched)
    monkeypatch.setattr(scoring.WholePass, "most_places", 2 * 18 + 1)  # of two rows of most texts
    found = list(score(loaded, texts(), VARIANTS))
    assert len(found) == len(texts()) * len(VARIANTS)
    assert rows == [2, 2, 1, 4, 1, 3, 2, 1, 1, 1, 1, 1]


def test_a_score_that_is_not_the_models_is_refused_in_one_line():
    loaded = loaded_model(build("Qwen2"))
    scores = list(score(loaded, texts(), VARIANTS))
    assert check_scores(loaded, scores)["worst"] < NATS
    wrong = [replace_probability(scores[0], 0.01), *scores[1:]]
    with pytest.raises(ModelError, match=r"^L02R00: the log-probability of a text is .*$"):
        check_scores(loaded, wrong)


def replace_probability(own, difference):
    return own._replace(log_probability=own.log_probability + difference)


def test_in_half_precision_scores_lie_within_the_stated_bound():
    loaded = loaded_model(build("Qwen2"))
    truth = {(s.text, s.variant): s.log_probability for s in score(loaded, texts(), VARIANTS)}
    half = replace(loaded, model=loaded.model.bfloat16(), dtype=torch.bfloat16)
    worst = 0.0
    for own in score(half, texts(), VARIANTS):
        error = abs(own.log_probability - truth[own.text, own.variant])
        assert error <= bound("bfloat16", len(own.text.tokens))
        worst = max(worst, error)
    assert worst > NATS, "bfloat16 rounds nothing here"


@pytest.fixture
def score_layer(tmp_path):
    """Score the texts without the heads of a layer, with a journal, as the job does."""
    loaded = loaded_model(build("Qwen2"))
    variants = [unchanged(LAYER), *HEADS]
    return partial(job._score_layer, texts(), variants, tmp_path / "L02.jsonl", loaded)


def test_the_speed_counts_each_text_once_for_each_variant(score_layer):
    table, facts = score_layer()
    assert len(table) == len(texts()) * (1 + len(HEADS))
    assert facts["scores_per_second"] * facts["scoring_seconds"] == pytest.approx(len(table))


@pytest.mark.parametrize("whole", [0, 2, len(texts())])
def test_a_killed_job_goes_on_after_its_last_whole_text(score_layer, whole, tmp_path, monkeypatch):
    expected, _ = score_layer()
    journal.remove(tmp_path / "L02.jsonl")
    given = []

    def killed(loaded, left, variants, **options):
        for number, scored in enumerate(score(loaded, left, variants, **options)):
            if number == whole * (1 + len(HEADS)) + 1:
                raise KeyboardInterrupt
            yield scored

    monkeypatch.setattr(job, "score", killed)
    if whole < len(texts()):
        with pytest.raises(KeyboardInterrupt):
            score_layer()
    else:  # killed before its table was written
        score_layer()

    def counted(loaded, left, variants, **options):
        given.extend(left)
        return score(loaded, left, variants, **options)

    monkeypatch.setattr(job, "score", counted)
    table, facts = score_layer()
    assert given == texts()[whole:]
    pd.testing.assert_frame_equal(table, expected, check_exact=False, rtol=1e-6)
    assert facts["worst"] < NATS


def test_a_resumed_job_checks_its_own_scores_too(score_layer, tmp_path, monkeypatch):
    score_layer()
    file = tmp_path / "L02.jsonl"
    left = journal.read(file)[: 2 * (1 + len(HEADS))]  # two texts
    journal.remove(file)
    journal.append(file, left)

    def wrong(*given, **options):
        return (replace_probability(scored, 0.01) for scored in score(*given, **options))

    monkeypatch.setattr(job, "score", wrong)
    with pytest.raises(ModelError, match=r"^L02R00: the log-probability of a text is"):
        score_layer()
    assert len(journal.read(file)) == len(left)  # nothing of it is kept


def test_passes_become_smaller_where_memory_is_short(score_layer, tmp_path, monkeypatch, caplog):
    expected, _ = score_layer()
    journal.remove(tmp_path / "L02.jsonl")
    scored = scoring._scored

    def fail(run, drafts, device):
        if sum(len(drafted.rows) for drafted in drafts) > 2:
            raise torch.OutOfMemoryError("too much")
        return scored(run, drafts, device)

    monkeypatch.setattr(scoring, "_scored", fail)
    table, _ = score_layer()
    pd.testing.assert_frame_equal(table, expected, check_exact=False, rtol=1e-6)
    assert "going on with passes of 32 tokens" in caplog.text
    monkeypatch.setattr(scoring, "_scored", Mock(side_effect=torch.OutOfMemoryError))
    with pytest.raises(torch.OutOfMemoryError):
        list(job._by_text(loaded_model(build("Qwen2")), texts(), VARIANTS))


def test_what_is_no_number_is_refused_before_it_is_kept(score_layer, tmp_path, monkeypatch):
    """The check sees two variants of the first text; another one may overflow."""

    def overflowing(*given, **options):
        for number, scored in enumerate(score(*given, **options)):
            yield replace_probability(scored, math.nan) if number == len(HEADS) else scored

    monkeypatch.setattr(job, "score", overflowing)
    for _ in range(2):
        with pytest.raises(ModelError, match="the model's logits are not finite in float32"):
            score_layer()
    assert journal.read(tmp_path / "L02.jsonl") == []


def test_a_score_that_a_killed_job_has_left_is_not_taken_for_another_text(score_layer, tmp_path):
    expected, _ = score_layer()
    file = tmp_path / "L02.jsonl"
    records = journal.read(file)
    journal.remove(file)
    shorter = replace(texts()[0], tokens=texts()[0].tokens[:-1])  # of the same question and kind
    variants = [unchanged(LAYER), *HEADS]
    loaded = loaded_model(build("Qwen2"))
    job._score_layer([shorter], variants, file, loaded)
    journal.append(file, records[len(variants) :])
    table, _ = score_layer()
    pd.testing.assert_frame_equal(table, expected, check_exact=False, rtol=1e-6)


def test_scores_that_a_killed_job_has_left_are_held_against_the_model(score_layer, tmp_path):
    score_layer()
    file = tmp_path / "L02.jsonl"
    records = journal.read(file)
    journal.remove(file)
    journal.append(file, [{**one, "log_probability": -99.0} for one in records])
    with pytest.raises(ModelError, match=r"^L02R00: the log-probability of a text is -99\.0000"):
        score_layer()
