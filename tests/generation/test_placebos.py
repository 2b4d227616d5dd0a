"""Placebos run through the engine as heads do, or, the numeric ones, in batches of their own."""

import pytest
import tiny_models
from noisy_hook import noisy
from test_engine import Fed, assert_alike, assert_exact, loaded_model, random_prompts
from test_verify import NEW_TOKENS, accepted, build, plan, sweep

from headroom.generation.engine import rows_together
from headroom.variants import BASE, Variant, matched_noise, numeric, replays

HEADS = [Variant(layer, head) for layer in (0, 2) for head in (0, 3, 4)]
NOISE = matched_noise(HEADS)


@pytest.mark.parametrize("name", ["Qwen2", "GPT2", "Bloom"])  # the last is entered nowhere
def test_noise_gives_the_tokens_of_generate_with_the_same_hook(name: str) -> None:
    loaded = loaded_model(build(name), eos=(2, 5, 40))
    prompts = random_prompts((9, 4))
    answers = sweep(loaded, plan(prompts, [BASE, *HEADS, *NOISE]))
    changed = 0
    for variant in NOISE:
        own = {request: answer for request, answer in answers.items() if request.variant == variant}
        with noisy(loaded.model, loaded.geometry, variant):
            assert_exact(loaded, own, NEW_TOKENS)
        base = [answers[request].token_ids for request in plan(prompts, [BASE])]
        changed += sum(a.token_ids != b for a, b in zip(own.values(), base, strict=True))
    assert changed
    assert accepted(answers) > 0


@pytest.mark.parametrize("known", [True, False])
def test_numeric_placebos_equal_base_without_being_verified(known: bool) -> None:
    loaded = loaded_model(build("Qwen2"), eos=(2, 40))
    prompts = random_prompts()
    expected = sweep(loaded, plan(prompts, [BASE]))
    drafts = {r.question_id: a.token_ids for r, a in expected.items()} if known else {}
    answers = sweep(loaded, plan(prompts, numeric(3)), 5, **drafts)
    base = plan(prompts, [BASE])
    for placebo in numeric(3):
        own = plan(prompts, [placebo])
        assert_alike({b: answers[p] for b, p in zip(base, own, strict=True)}, expected)
    assert accepted(answers) == 0


def test_replays_change_nothing_and_are_verified_as_heads_are() -> None:
    loaded = loaded_model(build("Qwen2"), eos=(2, 40))
    prompts = random_prompts()
    answers = sweep(loaded, plan(prompts, [BASE, *HEADS, *replays([0, 3])]))
    for variant in replays([0, 3]):
        for own, base in zip(plan(prompts, [variant]), plan(prompts, [BASE]), strict=True):
            assert answers[own].token_ids == answers[base].token_ids
            assert answers[own].accepted >= len(answers[own].token_ids) - 1


def test_each_numeric_placebo_has_batches_of_its_own() -> None:
    fed: dict[Variant, list[int]] = {}
    for variant in (BASE, *numeric(3)):
        loaded = loaded_model(build("Olmo2"), eos=(2, 40))
        fed[variant] = Fed(loaded.model).steps
        sweep(loaded, plan(random_prompts(), [variant]), batch_size=8)
    assert [max(rows) for rows in fed.values()] == [8, 7, 6, 5]
    loaded = loaded_model(build("Olmo2"), eos=(2, 40))
    together = Fed(loaded.model).steps
    sweep(loaded, plan(random_prompts(), [BASE, *numeric(3)]), batch_size=8)
    assert together == [rows for steps in fed.values() for rows in steps]  # as if each were alone


def test_in_half_precision_other_batches_change_some_answers() -> None:
    loaded = loaded_model(tiny_models.build(tiny_models.DECODERS[0]).bfloat16())
    prompts = random_prompts(range(2, 40))
    answers = sweep(loaded, plan(prompts, [BASE, *numeric(4)]), 16, new_tokens=24)
    base = [answers[request].token_ids for request in plan(prompts, [BASE])]
    changed = [
        sum(
            answers[request].token_ids != before
            for request, before in zip(plan(prompts, [placebo]), base, strict=True)
        )
        for placebo in numeric(4)
    ]
    assert 0 < sum(changed) < 4 * len(prompts)


def test_numbers_of_rows_follow_from_the_placebos_number() -> None:
    assert [rows_together(8, placebo) for placebo in range(1, 6)] == [7, 6, 5, 4, 7]
    assert [rows_together(1, placebo) for placebo in (1, 2)] == [1, 1]
    assert len({rows_together(64, placebo) for placebo in range(1, 33)}) == 32
