from itertools import combinations

import numpy as np
import pytest

from headroom.sprint import methods
from headroom.sprint.evaluation import (
    DIVERSITY,
    Answers,
    Scores,
    curves,
    diversity,
    drawn,
    oracle,
    ordered,
    paired,
    peak,
    simultaneous,
)
from headroom.statistics.bootstrap import Bootstrap
from headroom.statistics.paired import paired_interval

QUESTIONS, POOL, MAX_N = 17, 5, 3
EVERY = np.ones(QUESTIONS, dtype=bool)
RESAMPLES = Bootstrap(QUESTIONS, 200, seed=0)


@pytest.fixture
def answers() -> Answers:
    draw = np.random.default_rng(0)
    group = draw.integers(-1, 3, size=(QUESTIONS, POOL))
    shared = np.tile(draw.integers(0, 4, POOL) / 4, (QUESTIONS, 1))
    tokens = draw.integers(10, 90, size=(QUESTIONS, POOL))
    return Answers(group == 1, group, tokens, tokens * draw.random(POOL), shared, 1 - shared)


def test_every_score_of_drawn_answers_is_the_mean_over_ordered_subsets(answers: Answers) -> None:
    found = drawn(answers, MAX_N)
    subsets = [
        ordered(answers.select(np.array(subset)), MAX_N)
        for subset in combinations(range(POOL), MAX_N)
    ]
    for name in found:
        wanted = np.mean([subset[name][:, -1] for subset in subsets], axis=0)
        np.testing.assert_allclose(found[name][:, -1], wanted, atol=1e-9, err_msg=name)


def test_a_question_passes_the_layers_that_answers_share_once(answers: Answers) -> None:
    """Counted layer by layer, of a model with four: the base model's and each head's own."""
    found = ordered(answers, POOL)["prompts"]
    layers = np.rint(4 * answers.shared[0]).astype(int).tolist()
    for n in range(1, POOL + 1):
        shared = {("base", layer) for own in layers[:n] for layer in range(own)}
        alone = {
            (answer, layer) for answer, own in enumerate(layers[:n]) for layer in range(own, 4)
        }
        assert found[:, n - 1] == pytest.approx([len(shared | alone) / 4] * QUESTIONS)
    samples = answers._replace(shared=answers.shared**0, own=0 * answers.own)
    assert (drawn(samples, MAX_N)["prompts"] == 1).all()


def test_paired_differences_are_sprint_minus_the_other(answers: Answers) -> None:
    scores = {
        methods.SPRINT: ordered(answers, MAX_N),
        methods.BASE: ordered(answers.select(np.array([4])), MAX_N),
        methods.RANDOM: drawn(answers, MAX_N),
    }
    learnt = [{methods.SPRINT: [scores[methods.SPRINT]]}]
    table = paired(scores, learnt, EVERY, RESAMPLES)
    assert table[["by_draw", "by_seed"]].isna().all(axis=None)
    assert list(table["method"]) == [methods.RANDOM] * 3 + [methods.BASE] * 3
    assert list(table["n"]) == [1, 2, 3] * 2
    lead = scores[methods.SPRINT]["pass_at_n"] - scores[methods.BASE]["pass_at_n"]
    wider = simultaneous(lead, RESAMPLES)
    assert wider >= 1
    ends = table.iloc[-3:]
    np.testing.assert_allclose(
        ends["band_high"] - ends["band_low"], wider * (ends["high"] - ends["low"])
    )
    np.testing.assert_allclose(ends["band_high"] + ends["band_low"], ends["high"] + ends["low"])
    last = table.iloc[-2]
    wanted = answers.correct[:, :2].any(axis=1).mean() - answers.correct[:, 4].mean()
    assert last["difference"] == pytest.approx(wanted)
    assert last["low"] <= wanted <= last["high"]

    apart = EVERY.copy()
    apart[[0, 3, 4]] = False
    table = paired(scores, learnt, apart, RESAMPLES)
    wanted = answers.correct[apart, :2].any(axis=1).mean() - answers.correct[apart, 4].mean()
    assert table["difference_apart"].iloc[-2] == pytest.approx(wanted)
    assert (table["resembling"] == 3).all()
    assert paired(scores, learnt, ~EVERY, RESAMPLES)["difference_apart"].isna().all()


def test_seeds_and_redraws_widen_the_interval_by_what_they_vary(answers: Answers) -> None:
    """Two seeds that differ by d have variance d²/2, their mean half of that."""

    def learning(seeds: list[np.ndarray], cover: np.ndarray) -> dict[str, list[Scores]]:
        found = {methods.SPRINT: seeds, methods.COVER: [cover]}
        return {method: [{"pass_at_n": each} for each in one] for method, one in found.items()}

    orders = [np.arange(POOL), np.array([2, 3, 0, 1, 4])]
    reached = [ordered(answers.select(order), MAX_N)["pass_at_n"] for order in orders]
    cover = ordered(answers.select(np.array([4, 1])), MAX_N)["pass_at_n"]
    mean = np.mean(reached, axis=0)
    scores = {methods.SPRINT: {"pass_at_n": mean}, methods.COVER: {"pass_at_n": cover}}
    whole = learning(reached, cover)
    alone = paired(scores, [learning([mean], cover)], EVERY, RESAMPLES)
    table = paired(scores, [whole], EVERY, RESAMPLES)
    apart = (reached[0] - reached[1]).mean(axis=0)
    assert (apart != 0).any()
    np.testing.assert_allclose(table["by_seed"], np.abs(apart) / 2)
    assert (table["high"] - table["low"] > alone["high"] - alone["low"])[apart != 0].all()

    worse = learning([one * 0.5 for one in reached], reached[0])
    table = paired(scores, [whole, whole, worse], EVERY, RESAMPLES)
    of_whole = (mean - cover).mean(axis=0)
    of_worse = (mean * 0.5 - reached[0]).mean(axis=0)
    within = [apart**2 / 2, apart**2 / 2, (apart / 2) ** 2 / 2]
    noise = np.mean(within, axis=0) / 2
    between = (of_whole - of_worse) ** 2 / 2
    np.testing.assert_allclose(table["by_draw"] ** 2, 2 * np.maximum(between - noise, 0))


def test_the_band_holds_at_all_n_at_once_where_intervals_do_not() -> None:
    draw = np.random.default_rng(1)
    outside = {"interval": 0, "band": 0}
    for trial in range(300):
        differences = draw.choice([-1.0, 0.0, 1.0], p=[0.1, 0.8, 0.1], size=(250, 16))
        low, high = paired_interval(differences)
        ratio = simultaneous(differences, Bootstrap(250, 400, seed=trial))
        middle, half = (low + high) / 2, (high - low) / 2
        outside["interval"] += bool((np.abs(middle) > half).any())
        outside["band"] += bool((np.abs(middle) > ratio * half).any())
    assert outside["interval"] > 0.3 * 300
    assert outside["band"] < 0.09 * 300
    assert simultaneous(np.zeros((9, 4)), Bootstrap(9, 20, seed=0)) == 1.0


def test_a_method_that_draws_ends_where_its_answers_end(answers: Answers) -> None:
    few = drawn(answers.select(np.array([0, 3])), MAX_N)
    assert np.isnan(few["pass_at_n"][:, 2:]).all() and not np.isnan(few["pass_at_n"][:, :2]).any()
    scores = {methods.SPRINT: ordered(answers, MAX_N), methods.RANDOM: few}
    table = curves(scores, Bootstrap(QUESTIONS, 100, seed=0)).groupby("method")["n"].max()
    assert dict(table) == {methods.SPRINT: 3, methods.RANDOM: 2}


def test_diversity_and_cost_are_means_with_their_intervals(answers: Answers) -> None:
    scores = {
        methods.ORACLE: oracle(answers, MAX_N),
        methods.SPRINT: ordered(answers, MAX_N),
        methods.RANDOM: drawn(answers, MAX_N),
    }
    table = diversity(scores, Bootstrap(QUESTIONS, 300, seed=0), prompt_tokens=37.5)
    assert list(table.columns) == DIVERSITY
    assert list(table["method"]) == [methods.SPRINT] * 2 + [methods.RANDOM] * 2  # no oracle
    assert table["distinct_answers"].between(table["distinct_low"], table["distinct_high"]).all()
    row = table.iloc[1]
    first = answers.group[:, :2]
    distinct = [len({label for label in row if label != -1}) for row in first]
    assert row["distinct_answers"] == pytest.approx(np.mean(distinct))
    agree = (first[:, 0] == first[:, 1]) & (first[:, 0] != -1)
    assert row["agreement"] == pytest.approx(agree.mean())
    assert row["longest"] == pytest.approx(answers.tokens[:, :2].max(axis=1).mean())
    assert row["tokens"] == pytest.approx(answers.tokens[:, :2].sum(axis=1).mean())
    computed = answers.computed[:, :2].sum(axis=1).mean()
    assert row["computed"] == pytest.approx(computed + 37.5 * row["prompts"])


def test_sampling_methods_of_one_temperature_are_told_apart_and_come_before_the_base() -> None:
    named = methods.sampling({"a": 0.6, "b": 0.6, "hot": 1.0})
    assert [*named.values()] == ["sampling T=0.6 (a)", "sampling T=0.6 (b)", "sampling T=1"]
    given = [methods.ORACLE, methods.BASE, named["hot"], named["b"], methods.SPRINT]
    order = [methods.SPRINT, named["hot"], named["b"], methods.BASE, methods.ORACLE]
    assert methods.in_display_order(given) == order


def test_the_peak_is_that_of_a_plain_loop_over_resamples() -> None:
    draw = np.random.default_rng(6)
    leads = draw.integers(-1, 2, (QUESTIONS, 4)) + np.array([0.0, 0.3, 0.2, np.nan])
    weights = RESAMPLES.means(np.eye(QUESTIONS))  # of each question in each resample
    found = []
    for row in weights:
        means = [sum(row * leads[:, n]) for n in range(3)]
        found.append(1 + means.index(max(means)))
    found.sort()
    wanted = int(np.nanargmax(leads.mean(axis=0))) + 1, found[4], found[194]
    assert peak(leads, RESAMPLES) == wanted
    assert len(set(found)) > 1
