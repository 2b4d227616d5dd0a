"""What methods score, and which head or answer they choose, against plain loops and simulation."""

from itertools import combinations, permutations

import numpy as np
import pytest

from headroom.sprint import choosing, matching, methods
from headroom.sprint.choosing import AGREEMENT, FIRST, MAJORITY, ORACLE, VERIFIER
from headroom.sprint.evaluation import (
    Answers,
    curves,
    diversity,
    drawn,
    oracle,
    ordered,
    paired,
    peak,
    simultaneous,
)
from headroom.sprint.matching import COVER, DRAWN, MEAN, SHUFFLED
from headroom.sprint.rankers import greedy_cover
from headroom.statistics.bootstrap import Bootstrap
from headroom.statistics.paired import paired_interval

QUESTIONS, POOL, MAX_N = 17, 5, 3
EVERY = np.ones(QUESTIONS, dtype=bool)
RESAMPLES = Bootstrap(QUESTIONS, 200, seed=0)


@pytest.fixture
def answers():
    draw = np.random.default_rng(0)
    group = draw.integers(-1, 3, size=(QUESTIONS, POOL))
    shared = np.tile(draw.integers(0, 4, POOL) / 4, (QUESTIONS, 1))
    tokens = draw.integers(10, 90, size=(QUESTIONS, POOL))
    return Answers(group == 1, group, tokens, tokens * draw.random(POOL), shared, 1 - shared)


def test_every_score_of_drawn_answers_is_the_mean_over_ordered_subsets(answers):
    found = drawn(answers, MAX_N)
    subsets = [
        ordered(answers.select(np.array(subset)), MAX_N)
        for subset in combinations(range(POOL), MAX_N)
    ]
    for name in found:
        wanted = np.mean([subset[name][:, -1] for subset in subsets], axis=0)
        np.testing.assert_allclose(found[name][:, -1], wanted, atol=1e-9, err_msg=name)


def test_a_question_passes_the_layers_that_answers_share_once(answers):
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


def test_paired_differences_are_sprint_minus_the_other(answers):
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
    wider, ends = simultaneous(lead, RESAMPLES), table.iloc[-3:]
    assert wider >= 1
    width = ends["band_high"] - ends["band_low"]
    np.testing.assert_allclose(width, wider * (ends["high"] - ends["low"]))
    np.testing.assert_allclose(ends["band_high"] + ends["band_low"], ends["high"] + ends["low"])
    assert table["difference"].iloc[-3:].tolist() == pytest.approx(lead.mean(axis=0))
    assert table["difference"].between(table["low"], table["high"]).all()
    apart = np.isin(np.arange(QUESTIONS), [0, 3, 4], invert=True)
    table = paired(scores, learnt, apart, RESAMPLES)
    assert table["difference_apart"].iloc[-2] == pytest.approx(lead[apart, 1].mean())
    assert (table["resembling"] == 3).all()
    assert paired(scores, learnt, ~EVERY, RESAMPLES)["difference_apart"].isna().all()


def test_seeds_and_redraws_widen_the_interval_by_what_they_vary(answers):
    """Two seeds that differ by d have variance d²/2, their mean half of that."""

    def learning(seeds, cover):
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


def test_the_band_holds_at_all_n_at_once_where_intervals_do_not():
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


def test_diversity_and_cost_are_means_and_end_where_drawn_answers_end(answers):
    few = drawn(answers.select(np.array([0, 3])), MAX_N)
    scores = {methods.ORACLE: oracle(answers, MAX_N), methods.RANDOM: few}
    scores[methods.SPRINT] = ordered(answers, MAX_N)
    last = curves(scores, RESAMPLES).groupby("method")["n"].max()
    assert dict(last) == {methods.ORACLE: 3, methods.SPRINT: 3, methods.RANDOM: 2}
    table = diversity(scores, RESAMPLES, prompt_tokens=37.5)
    assert list(table["method"]) == [methods.SPRINT] * 2 + [methods.RANDOM] * 2  # no oracle
    assert table["distinct_answers"].between(table["distinct_low"], table["distinct_high"]).all()
    row, at = table.iloc[1], {name: each[:, 1] for name, each in scores[methods.SPRINT].items()}
    for name in ("distinct_answers", "agreement", "longest", "tokens"):
        assert row[name] == pytest.approx(at[name].mean())
    assert row["computed"] == pytest.approx(at["computed"].mean() + 37.5 * row["prompts"])


def test_sampling_methods_of_one_temperature_are_told_apart_and_come_before_the_base():
    named = methods.sampling({"a": 0.6, "b": 0.6, "hot": 1.0})
    assert [*named.values()] == ["sampling T=0.6 (a)", "sampling T=0.6 (b)", "sampling T=1"]
    given = [methods.ORACLE, methods.BASE, named["hot"], named["b"], methods.SPRINT]
    order = [methods.SPRINT, named["hot"], named["b"], methods.BASE, methods.ORACLE]
    assert methods.in_display_order(given) == order


def test_the_peak_is_that_of_a_plain_loop_over_resamples():
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


def rankings(questions, pool, seed):
    """Z, rankings in random order, and Z of training questions."""
    draw = np.random.default_rng(seed)
    correct = draw.random((questions, pool)) < 0.4
    order = draw.permuted(np.tile(np.arange(pool), (questions, 1)), axis=1)
    return correct, order, draw.random((60, pool)) < 0.4


def matched(correct, order, train, max_n):
    bootstrap = Bootstrap(len(correct), 50, 0)
    table = matching.compare("SPRINT", correct, order, train, max_n, bootstrap, 0)
    assert set(table["heads"]) == {correct.shape[1]}
    return table.set_index(["against", "n"])


def test_shuffled_questions_are_the_mean_over_all_permutations():
    correct, order, train = rankings(6, 4, seed=2)
    table = matched(correct, order, train, 4)
    for n in (1, 2, 4):
        passed = [
            np.mean([correct[i, order[j][:n]].any() for i, j in enumerate(shuffled)])
            for shuffled in permutations(range(6))
        ]
        row = table.loc[SHUFFLED, str(n)]
        assert row["other"] == pytest.approx(np.mean(passed))
        exact = np.mean(np.array(passed) >= passed[0] - 1e-9)
        assert row["p"] == pytest.approx(exact, abs=0.02)
    own = [np.mean([correct[i, order[i][:n]].any() for i in range(6)]) for n in (1, 2, 3, 4)]
    row = table.loc[SHUFFLED, "1"]
    assert row["sprint"] == pytest.approx(own[0])
    assert row["difference"] == pytest.approx(row["sprint"] - row["other"])
    assert row["low"] < row["difference"] < row["high"]
    assert table.loc[SHUFFLED, MEAN]["sprint"] == pytest.approx(np.mean(own))


def test_cover_and_draws_do_not_know_the_question():
    correct, order, train = rankings(30, 5, seed=3)
    table = matched(correct, order, train, 5)
    cover = greedy_cover(train)
    assert table.loc[COVER, "2"]["other"] == pytest.approx(correct[:, cover[:2]].any(axis=1).mean())
    assert table.loc[DRAWN, "1"]["other"] == pytest.approx(correct.mean())
    assert set(table.index.get_level_values("n")) == {"1", "2", "4", MEAN}
    assert table["p"].notna().sum() == 4  # against shuffled questions only


def of_groups(group, tokens):
    return Answers(group == 0, group, tokens, tokens, np.ones(group.shape), np.zeros(group.shape))


def made(questions=37, seed=0):
    """Random answers of six heads: group 0 is right, -1 is none."""
    draw = np.random.default_rng(seed)
    group = draw.integers(-1, 4, size=(questions, 6))
    return of_groups(group, draw.integers(3, 50, size=group.shape))


def test_agreement_is_the_share_of_equal_pairs():
    group = made().group
    agree = group[:, :, None] == np.where(group == -1, -2, group)[:, None, :]
    expected = (agree & ~np.eye(6, dtype=bool)).sum(axis=2).mean(axis=0) / 5
    np.testing.assert_allclose(choosing.agreement_with_others(made()), expected)


def liars(questions, seed):
    """The majority is wrong and writes long answers; the minority is right and brief."""
    draw = np.random.default_rng(seed)
    group = draw.permuted(np.tile([1, 1, 1, 0, 0], (questions, 1)), axis=1)
    return of_groups(group, np.where(group == 0, 10, 40) + draw.integers(0, 8, size=group.shape))


def test_the_verifier_learns_what_right_answers_look_like_or_else_counts_votes():
    rules = choosing.among_ranked(liars(30, 1), np.ones((30, 5)), [liars(25, 2), liars(15, 3)], 5)
    assert (rules[MAJORITY][:, 4].mean(), rules[VERIFIER][:, 4].mean()) == (0, 1)
    upside_down = liars(25, 2)._replace(correct=~liars(25, 2).correct)
    rules = choosing.among_ranked(liars(30, 1), np.ones((30, 5)), [upside_down], 5)
    assert rules[VERIFIER][:, 4].mean() == 0
    wrong = made(20, seed=3)
    nothing = wrong._replace(correct=np.zeros_like(wrong.correct))
    rules = choosing.among_ranked(made(), np.ones((37, 6)), [nothing], 4)
    clear = np.isin(rules[MAJORITY], (0, 1))  # of equals the verifier takes the nearest
    assert clear.mean() > 0.5
    np.testing.assert_array_equal(rules[VERIFIER][clear], rules[MAJORITY][clear])


def test_the_table_holds_rules_against_oracle_and_majority():
    rules = choosing.among_ranked(made(), np.ones((37, 6)), [made(50, seed=1)], 6)
    sampled = choosing.among_drawn(made(seed=8), 6)
    table = choosing.compare({"SPRINT": rules, "sampling T=0.6": sampled}, Bootstrap(37, 300, 0))
    assert list(rules) == [ORACLE, FIRST, MAJORITY, AGREEMENT, VERIFIER]
    assert set(table["n"]) == {1, 2, 4}
    assert len(table) == 3 * (5 + 3)
    at = table.set_index(["method", "rule", "n"])
    row, ceiling = at.loc["SPRINT", MAJORITY, 4], at.loc["SPRINT", ORACLE, 4]
    assert row["accuracy"] == pytest.approx(rules[MAJORITY][:, 3].mean())
    assert row["recovered"] == pytest.approx(row["accuracy"] / ceiling["accuracy"])
    assert row["low"] < row["accuracy"] < row["high"]
    assert row["recovered_low"] < row["recovered"] < row["recovered_high"] <= 1
    assert (at.xs(ORACLE, level="rule")["recovered_low"] == 1).all()
    assert (at.xs(MAJORITY, level="rule")["over_high"] == 0).all()
    first = at.loc["SPRINT", FIRST, 4]
    assert first["over_majority"] == pytest.approx(first["accuracy"] - row["accuracy"])
