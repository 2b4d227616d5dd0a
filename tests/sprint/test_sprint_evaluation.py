from itertools import combinations, permutations
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest
from simulated_heads import made, of_groups

from headsweep import frontier
from headsweep.config import Decoding
from headsweep.frontier import Family, choose, curve
from headsweep.sprint import choosing, evaluation, methods
from headsweep.sprint.choosing import AGREEMENT, FIRST, MAJORITY, ORACLE, VERIFIER
from headsweep.sprint.evaluation import (
    DRAWN,
    SHUFFLED,
    Answers,
    drawn,
    mean_over,
    ordered,
    paired,
    simultaneous,
)
from headsweep.sprint.experiment import costs_of
from headsweep.sprint.rankers import greedy_cover
from headsweep.sprint.validation import RESEMBLING, overlap
from headsweep.statistics.intervals import Bootstrap, holm, paired_interval
from headsweep.variants import Variant

QUESTIONS, POOL, MAX_N = 17, 5, 3
EVERY = np.ones(QUESTIONS, dtype=bool)
RESAMPLES = Bootstrap(QUESTIONS, 200, seed=0)


@pytest.fixture
def answers():
    return made(QUESTIONS, POOL)


def test_every_score_of_drawn_answers_is_the_mean_over_ordered_subsets(answers):
    answers = answers._replace(own=answers.own**2)  # skipped layers
    found = drawn(answers, MAX_N)
    subsets = map(np.array, combinations(range(POOL), MAX_N))
    mean = mean_over([ordered(answers.select(subset), MAX_N) for subset in subsets])
    for name, wanted in mean.items():
        np.testing.assert_allclose(found[name][:, -1], wanted[:, -1], atol=1e-9, err_msg=name)


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
        methods.RANDOM: drawn(answers, MAX_N),
        methods.BASE: ordered(answers.select(np.array([4])), MAX_N),
    }
    compared = [methods.RANDOM, methods.BASE], [{name: [one] for name, one in scores.items()}]
    apart = np.isin(np.arange(QUESTIONS), [0, 3, 4], invert=True)
    table = paired(*compared, apart, RESAMPLES)
    assert table[["by_draw", "by_seed"]].isna().all(axis=None)
    lead = scores[methods.SPRINT]["pass_at_n"] - scores[methods.BASE]["pass_at_n"]
    wider, ends = simultaneous(lead, RESAMPLES), table.iloc[-3:]
    assert wider >= 1
    width = ends["band_high"] - ends["band_low"]
    np.testing.assert_allclose(width, wider * (ends["high"] - ends["low"]))
    np.testing.assert_allclose(ends["band_high"] + ends["band_low"], ends["high"] + ends["low"])
    assert ends["difference"].tolist() == pytest.approx(lead.mean(axis=0))
    assert ends["difference_apart"].tolist() == pytest.approx(lead[apart].mean(axis=0))
    assert table["difference"].between(table["low"], table["high"]).all()
    assert (table["resembling"] == 3).all()
    assert paired(*compared, ~EVERY, RESAMPLES)["difference_apart"].isna().all()


def test_seeds_and_redraws_widen_the_interval_by_what_they_vary(answers):
    """Two seeds that differ by d have variance d²/2, their mean half of that."""

    def learning(seeds, cover):
        found = {methods.SPRINT: seeds, methods.COVER: [cover]}
        return {method: [{"pass_at_n": each} for each in one] for method, one in found.items()}

    orders = [np.arange(POOL), np.array([2, 3, 0, 1, 4])]
    reached = [ordered(answers.select(order), MAX_N)["pass_at_n"] for order in orders]
    cover = ordered(answers.select(np.array([4, 1])), MAX_N)["pass_at_n"]
    mean = np.mean(reached, axis=0)
    whole = learning(reached, cover)
    alone, table = (
        paired([methods.COVER], [each], EVERY, RESAMPLES)
        for each in (learning([mean], cover), whole)
    )
    apart = (reached[0] - reached[1]).mean(axis=0)
    assert (apart != 0).any()
    np.testing.assert_allclose(table["by_seed"], np.abs(apart) / 2)
    assert (table["high"] - table["low"] > alone["high"] - alone["low"])[apart != 0].all()

    worse = learning([one * 0.5 for one in reached], reached[0])
    table = paired([methods.COVER], [whole, whole, worse], EVERY, RESAMPLES)
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


def test_curves_end_where_drawn_answers_end_and_their_costs_are_means(answers):
    few = drawn(answers.select(np.array([0, 3])), MAX_N)
    solved = answers.correct.any(axis=1, keepdims=True).repeat(MAX_N, axis=1).astype(float)
    scores = {methods.SPRINT: ordered(answers, MAX_N), methods.RANDOM: few}
    scores[methods.ORACLE] = {"pass_at_n": solved}
    passed, table = evaluation.curves(scores, RESAMPLES, prompt_tokens=37.5)
    last = passed.groupby("method")["n"].max()
    assert dict(last) == {methods.ORACLE: 3, methods.SPRINT: 3, methods.RANDOM: 2}
    assert list(table["method"]) == [methods.SPRINT] * 2 + [methods.RANDOM] * 2  # no oracle
    assert table["distinct_answers"].between(table["distinct_low"], table["distinct_high"]).all()
    row, at = table.iloc[1], {name: each[:, 1] for name, each in scores[methods.SPRINT].items()}
    for name in ("distinct_answers", "agreement", "longest", "tokens"):
        assert row[name] == pytest.approx(at[name].mean())
    assert row["computed"] == pytest.approx(at["computed"].mean() + 37.5 * row["prompts"])


def test_sampling_methods_of_one_temperature_are_told_apart():
    mild, hot = (Decoding(temperature=each) for each in (0.6, 1))
    config = SimpleNamespace(decodings={"a": mild, "b": mild, "hot": hot})
    named = methods.sampling(config, ["a", "b", "hot"])
    assert [*named.values()] == ["sampling T=0.6 (a)", "sampling T=0.6 (b)", "sampling T=1"]


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
    assert evaluation.peak(leads, RESAMPLES) == wanted
    assert len(set(found)) > 1


def test_a_ranking_is_held_against_all_permutations_the_cover_and_draws():
    draw, (questions, pool) = np.random.default_rng(2), (6, 4)
    correct, train = draw.random((questions, pool)) < 0.4, draw.random((60, pool)) < 0.4
    order = draw.permuted(np.tile(np.arange(pool), (questions, 1)), axis=1)
    table = evaluation.embedding_worth(
        "SPRINT", correct, order, train, 4, Bootstrap(questions, 50, 0), 0
    )
    assert table["p"].notna().sum() == 4  # against shuffled questions only
    table = table.set_index(["against", "n"])
    cover = greedy_cover(train)
    for n in (1, 2, 4):
        passed = [
            np.mean([correct[i, order[j][:n]].any() for i, j in enumerate(shuffled)])
            for shuffled in permutations(range(questions))
        ]
        row = table.loc[SHUFFLED, str(n)]
        assert row["other"] == pytest.approx(np.mean(passed))
        assert row["sprint"] == pytest.approx(passed[0])
        exact = np.mean(np.array(passed) >= passed[0] - 1e-9)
        assert row["p"] == pytest.approx(exact, abs=0.02)
        covered = correct[:, cover[:n]].any(axis=1).mean()
        assert table.loc[methods.COVER, str(n)]["other"] == pytest.approx(covered)
    assert table["difference"].between(table["low"], table["high"]).all()
    own = [np.mean([correct[i, order[i][:n]].any() for i in range(6)]) for n in (1, 2, 3, 4)]
    assert table.loc[SHUFFLED, evaluation.MEAN]["sprint"] == pytest.approx(np.mean(own))
    assert table.loc[DRAWN, "1"]["other"] == pytest.approx(correct.mean())


def test_agreement_is_the_share_of_equal_pairs():
    group = made(37, 6).group
    agree = group[:, :, None] == np.where(group == -1, -2, group)[:, None, :]
    expected = (agree & ~np.eye(6, dtype=bool)).sum(axis=2).mean(axis=0) / 5
    np.testing.assert_allclose(choosing.agreement_with_others(made(37, 6)), expected)


def liars(questions, seed):
    """The majority is wrong and writes long answers; the minority is right and brief."""
    draw = np.random.default_rng(seed)
    group = draw.permuted(np.tile([1, 1, 1, 0, 0], (questions, 1)), axis=1)
    return of_groups(group, np.where(group == 0, 10, 40) + draw.integers(0, 8, size=group.shape))


def test_the_verifier_learns_what_right_answers_look_like_or_else_counts_votes():
    def verified(answers, held_out):
        return choosing.learnt(answers, np.ones(answers.group.shape), held_out, 5)[VERIFIER]

    asked = liars(30, 1)
    assert ordered(asked, 5)["majority"][:, 4].mean() == 0
    assert verified(asked, liars(40, 2))[:, 4].mean() == 1
    upside_down = liars(25, 2)._replace(correct=~liars(25, 2).correct)
    assert verified(asked, upside_down)[:, 4].mean() == 0
    wrong = made(20, 6, seed=3)
    voted = ordered(made(37, 6), 5)["majority"]
    found = verified(made(37, 6), wrong._replace(correct=np.zeros_like(wrong.correct)))
    clear = np.isin(voted, (0, 1))  # of equals the verifier takes the nearest
    assert clear.mean() > 0.5
    np.testing.assert_array_equal(found[clear], voted[clear])


def test_the_table_holds_rules_against_oracle_and_majority():
    asked = made(37, 6)
    scores = {"SPRINT": ordered(asked, 6), "sampling T=0.6": drawn(made(37, 6, seed=8), 6)}
    learnt = choosing.learnt(asked, np.ones((37, 6)), made(50, 6, seed=1), 6)
    table = choosing.compare(scores, {"SPRINT": learnt}, Bootstrap(37, 300, 0))
    assert len(table) == 3 * (5 + 3)
    at = table.set_index(["rule", "method", "n"]).sort_index()
    row, first, ceiling = (at.loc[(rule, "SPRINT", 4)] for rule in (MAJORITY, FIRST, ORACLE))
    assert row["accuracy"] == pytest.approx(scores["SPRINT"]["majority"][:, 3].mean())
    assert at.loc[(AGREEMENT, "SPRINT", 4), "accuracy"] == row["accuracy"]  # of equal weights
    assert row["recovered"] == pytest.approx(row["accuracy"] / ceiling["accuracy"])
    assert row["low"] < row["accuracy"] < row["high"]
    assert row["recovered_low"] < row["recovered"] < row["recovered_high"] <= 1
    assert (at.loc[ORACLE]["recovered_low"] == 1).all()
    assert (at.loc[MAJORITY]["over_high"] == 0).all()
    assert first["accuracy"] == pytest.approx(asked.correct[:, 0].mean())
    assert first["over_majority"] == pytest.approx(first["accuracy"] - row["accuracy"])


def family(seed, name="head", scale="", test=100):
    members = [f"m{n}" for n in range(POOL)]
    asked = made(11, POOL, seed), made(QUESTIONS, POOL, seed + test)
    return Family(name, scale, members, *asked)


@pytest.mark.parametrize("name", ["head", "sampling"])
def test_a_curve_is_that_of_the_cover_or_the_mean_of_draws(name):
    given = family(5, name)
    by_order = name == "head"
    order = greedy_cover(given.train.correct) if by_order else np.arange(POOL)
    found = choose([given], MAX_N)
    assert found.members == [f"m{place}" for place in order]
    drawing = drawn(given.test, MAX_N)
    wanted = ordered(given.test.select(order), MAX_N) if by_order else drawing
    of = curve(found, 10.0, MAX_N, by_order=True)
    np.testing.assert_allclose(of["pass_at_n"], wanted["pass_at_n"])
    np.testing.assert_allclose(of["computed"], wanted["computed"] + 10 * wanted["prompts"])
    unordered = curve(found, 10.0, MAX_N, by_order=False)
    np.testing.assert_allclose(unordered["pass_at_n"], drawing["pass_at_n"])


def test_what_is_chosen_does_not_depend_on_test_questions():
    found, again = (
        choose([family(seed, scale=str(seed), test=test) for seed in (1, 2, 3)], MAX_N)
        for test in (100, 40)
    )
    assert (again.scale, again.members) == (found.scale, found.members)
    share = {}
    for seed in (1, 2, 3):
        right = family(seed).train.correct
        subsets = [map(list, combinations(range(POOL), n + 1)) for n in range(MAX_N)]
        of_n = [np.mean([right[:, own].any(axis=1) for own in some]) for some in subsets]
        share[str(seed)] = np.mean(of_n)
    assert found.scale == max(share, key=share.get)


def test_a_variant_computes_the_layers_that_it_changes_and_those_above():
    costs = {"base": (1, 0), "L05H03": (0.25, 0.75), "W17S20": (0, 1), "L05K02": (0.25, 0.65)}
    for name, wanted in costs.items():
        assert costs_of(Variant.parse(name), 20) == pytest.approx(wanted)


def test_values_at_a_budget_are_linear_and_end_where_the_curve_ends():
    values, tokens = np.array([0.2, 0.5, 0.6]), np.array([10.0, 30.0, 40.0])
    found = frontier.at_budget(values, tokens, np.array([9.9, 10, 20, 30, 37.5, 40, 40.1]))
    np.testing.assert_allclose(found, [np.nan, 0.2, 0.35, 0.5, 0.575, 0.6, np.nan])
    assert frontier.at_budget(values[:1], tokens[:1], 10) == 0.2


def test_holms_correction():
    np.testing.assert_allclose(holm(np.array([0.04, 0.01, 0.9, 0.02])), [0.08, 0.04, 0.9, 0.06])
    np.testing.assert_allclose(holm(np.array([0.6, 0.7])), [1.0, 1.0])


def simulated(draw, better=0.0):
    """Families whose members solve a question with the same chance, which differs by question."""
    chance = draw.beta(1, 1, (90, 1))
    curves = {}
    for name in ("head", "scaled", "skip", "sampling"):
        lift = better * (name == "head")
        correct = draw.random((90, 8)) < chance + (1 - chance) * lift
        group = np.where(correct, 0, draw.choice([-1, 1, 2, 3], correct.shape))
        tokens = draw.integers(20, 60, correct.shape)
        both = Answers(correct, group, tokens, np.ones(tokens.shape), 0.0 * tokens)
        own = Family(name, "", list("abcdefgh"), both, both)
        curves[name] = curve(own, 5.0, 8, by_order=False)
    return curves


def told_apart(better, rounds):
    draw = np.random.default_rng(7)
    found, pairs = 0, [(name, "sampling") for name in ("head", "scaled", "skip")]
    for number in range(rounds):
        curves = simulated(draw, better)
        base = draw.integers(20, 60, 90).astype(float)
        table = frontier.differences(curves, base, Bootstrap(90, 300, number), pairs, 4)
        assert (table["adjusted"].notna() == (table["budget"] == 4)).all()
        found += bool((table["adjusted"] < 0.05).any())
    return found / rounds


def test_equal_families_are_told_apart_in_a_twentieth_at_most_and_unlike_ones_are():
    assert told_apart(0.0, 300) <= 0.05
    assert told_apart(0.3, 30) > 0.8


def test_the_primary_budget_is_the_largest_that_all_reach():
    curves = simulated(np.random.default_rng(3))
    assert frontier.primary_budget(curves, 40.0) in (4, 8)
    head = curves["head"]
    short = {**curves, "head": head | {"tokens": head["tokens"][:, :3]}}
    assert frontier.primary_budget(short, 40.0) == 2
    assert frontier.primary_budget(short, 1.0) is None


def test_two_families_at_half_each():
    families = [choose([family(*of)], 4) for of in ((3,), (8, "skip"), (13, "sampling"))]
    curves = {each.name: curve(each, 5.0, 4, by_order=True) for each in families}
    table = frontier.complement(families, curves, 4, Bootstrap(QUESTIONS, 200, 0))
    assert len(table) == 3
    row = table.iloc[0]
    first, second = families[:2]
    both = first.test.correct[:, :2].any(axis=1) | second.test.correct[:, :2].any(axis=1)
    assert row["both"] == pytest.approx(both.mean())
    better = first if row["better"] == "head" else second
    assert row["alone"] == pytest.approx(better.test.correct[:, :4].any(axis=1).mean())
    assert row["low"] <= row["difference"] <= row["high"]
    mixed = table.iloc[1]  # drawn samples miss as independent draws do
    missed = 1 - first.test.correct[:, :2].any(axis=1)
    sampled = curves["sampling"]["pass_at_n"][:, 1]
    assert mixed["both"] == pytest.approx((1 - missed * (1 - sampled)).mean())


def questions(**texts):
    return pd.DataFrame({"question_id": list(texts), "question": list(texts.values())})


def test_each_degree_is_told_and_the_strongest_counts():
    long = "A train leaves the old station at noon and another one follows it an hour later"
    train = questions(a="What is 2 + 3?", b="Find x if $x = 1,200$.", c=long, d="Same here")
    test = questions(
        a="something else",
        e="what is  2 + 3?",
        f="Find x if $x = 7$.",
        g="Yesterday a train leaves the old station at noon and another one arrives",
        h="A bus leaves the old station at noon and another one comes back from the town hall",
        i="What is 2 * 3?",
        b="",
        j="",
    )
    found = overlap(train, test)
    assert list(found.columns) == RESEMBLING
    assert list(found.itertuples(index=False, name=None)) == [
        ("a", "same id", "a"),
        ("e", "same text", "a"),
        ("f", "other numbers", "b"),
        ("g", "8-grams", "c"),
        ("b", "same id", "b"),  # where no text is at hand only the id is compared
        ("j", "unknown", ""),
    ]
