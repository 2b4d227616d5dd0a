import os
from itertools import combinations, permutations
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest
from simulated_heads import made, options

from headsweep.benchmarks import sources
from headsweep.benchmarks.draws import draw
from headsweep.config import Decoding, load
from headsweep.experiments.sprint import evaluation, frontier, methods
from headsweep.experiments.sprint.evaluation import (
    MEAN,
    SHUFFLED,
    compared,
    families,
    paired,
    shuffle,
)
from headsweep.experiments.sprint.experiment import costs_of
from headsweep.experiments.sprint.frontier import AnsweredFamily, choose, curve
from headsweep.experiments.sprint.pass_at_n import Answers, drawn, mean_over, ordered
from headsweep.experiments.sprint.rankers import Shortlist, greedy_cover
from headsweep.experiments.sprint.validation import (
    LIKENESS,
    LossReading,
    likeness,
    overlap,
    readings,
)
from headsweep.statistics.intervals import Bootstrap, simultaneous
from headsweep.variants import Variant

QUESTIONS, POOL, MAX_N = 17, 5, 3
RESAMPLES = Bootstrap(QUESTIONS, 200, seed=0)


@pytest.fixture
def answers():
    return made(QUESTIONS, POOL)


def test_every_score_of_drawn_answers_is_the_mean_over_ordered_subsets(answers):
    answers = answers._replace(alone=answers.alone**2)  # skipped layers
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
    samples = answers._replace(shared=answers.shared**0, alone=0 * answers.alone)
    assert (drawn(samples, MAX_N)["prompts"] == 1).all()


@pytest.fixture
def scores(answers):
    """Two seeds of SPRINT, and methods without any."""
    orders = [np.arange(POOL), np.array([2, 3, 0, 1, 4])]
    return {
        methods.SPRINT: [[ordered(answers.select(order), MAX_N) for order in orders]],
        methods.NEAREST: [[ordered(answers.select(np.array([3, 0, 1])), MAX_N)]],
        methods.POOL: [[drawn(answers, MAX_N)]],
        methods.COVER: [[ordered(answers.select(np.array([4, 1])), MAX_N)]],
        methods.BASE: [[ordered(answers.select(np.array([4])), MAX_N)]],
        methods.ORACLE: [[{"pass_at_n": np.ones((QUESTIONS, MAX_N))}]],
    }


@pytest.fixture
def known(answers, scores):
    draw = np.random.default_rng(9)
    orders = [draw.permuted(np.tile(np.arange(POOL), (QUESTIONS, 1)), axis=1) for _ in range(3)]
    by_chance = [shuffle(answers.correct, order, MAX_N) for order in orders]
    shuffled = {methods.SPRINT: [by_chance[:2]], methods.NEAREST: [by_chance[2:]]}
    return families(scores, shuffled)


DEGREES = ["other numbers", "8-grams", "unknown", *["none"] * (QUESTIONS - 3)]


def test_paired_differences_are_sprint_minus_the_other(answers, scores, known):
    table = paired(compared(known), known[methods.SPRINT], DEGREES, RESAMPLES)
    others = [method for method in scores if method not in (methods.SPRINT, methods.ORACLE)]
    assert table["method"].unique().tolist() == others  # what is shuffled stands elsewhere
    mean = np.mean([seed["pass_at_n"] for seed in scores[methods.SPRINT][0]], axis=0)
    lead = mean - scores[methods.BASE][0][0]["pass_at_n"]
    wider, ends = simultaneous(lead, RESAMPLES), table.iloc[-3:]
    assert wider >= 1
    width = ends["band_high"] - ends["band_low"]
    np.testing.assert_allclose(width, wider * (ends["high"] - ends["low"]))
    np.testing.assert_allclose(ends["band_high"] + ends["band_low"], ends["high"] + ends["low"])
    assert ends["difference"].tolist() == pytest.approx(lead.mean(axis=0))
    assert table["difference"].between(table["low"], table["high"]).all()
    for _, rows in table.groupby("method"):
        assert (rows["peak"] == rows["n"][rows["difference"].idxmax()]).all()


def test_neither_look_alikes_nor_unknown_questions_are_apart(known):
    whole, part = compared(known), known[methods.SPRINT]
    table = paired(whole, part, DEGREES, RESAMPLES)
    own, base = (np.mean(part[name][0], axis=0)[3:] for name in (methods.SPRINT, methods.BASE))
    assert table["difference_apart"].iloc[-3:].tolist() == pytest.approx((own - base).mean(axis=0))
    for degrees in (["unknown"] * QUESTIONS, ["none"] * QUESTIONS):
        table = paired(whole, part, degrees, RESAMPLES)
        assert table[evaluation.APART].isna().all(axis=None)


def test_seeds_and_redraws_widen_the_interval_of_every_table(answers, scores):
    """The mean of two seeds that differ by d has variance d²/4."""
    passed = [seed["pass_at_n"] for seed in scores[methods.SPRINT][0]]
    apart = (passed[0] - passed[1]).mean(axis=0)
    assert (apart != 0).any()
    mean = {methods.SPRINT: [[mean_over(scores[methods.SPRINT][0])]]}
    alone, table = (
        compared(families(each, {methods.SPRINT: [[scores[methods.POOL][0][0]["pass_at_n"]]]}))
        for each in (scores | mean, scores)
    )
    table, alone = (each[each["n"].isin([1, 2, 3])] for each in (table, alone))
    np.testing.assert_allclose(table["by_seed"] * 2, np.abs(np.tile(apart, 5)))
    np.testing.assert_allclose(table["difference"], alone["difference"])
    assert ((table["high"] - table["low"]) > (alone["high"] - alone["low"]))[
        table["by_seed"] > 0
    ].all()


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


def test_shuffled_questions_pass_as_often_as_over_all_permutations():
    draw, (questions, pool) = np.random.default_rng(2), (6, 4)
    correct = draw.random((questions, pool)) < 0.4
    order = draw.permuted(np.tile(np.arange(pool), (questions, 1)), axis=1)
    found = shuffle(correct, order, 4)
    for n in (1, 2, 4):
        passed = [
            np.mean([correct[i, order[j][:n]].any() for i, j in enumerate(shuffled)])
            for shuffled in permutations(range(questions))
        ]
        assert found[:, n - 1].mean() == pytest.approx(np.mean(passed))


def test_the_chance_of_shuffled_questions_is_that_of_questions_as_rows_and_as_rankings():
    """Held against the jackknife over questions; every second ranking is good for all questions."""
    draw, count = np.random.default_rng(6), 150
    correct = draw.random((count, 5)) < np.linspace(0.1, 0.9, 5)
    order = draw.permuted(np.tile(np.arange(5), (count, 1)), axis=1)
    order[::2] = [4, 3, 2, 1, 0]
    right = np.take_along_axis(correct, order, 1)[:, 0].astype(float)
    crossed = correct[:, order[:, 0]].astype(float)

    def lead(kept):
        return right[kept].mean() - crossed[np.ix_(kept, kept)].mean()

    rows = np.arange(count)
    without = np.array([lead(rows != row) for row in rows])
    jackknife = np.sqrt((count - 1) ** 2 / count * without.var())
    found = right - shuffle(correct, order, 1)[:, 0]
    assert found.mean() == pytest.approx(lead(rows >= 0))
    assert found.std() / np.sqrt(count) == pytest.approx(jackknife, rel=0.05)
    by_question = right - crossed.mean(axis=1)
    assert by_question.std() / np.sqrt(count) != pytest.approx(jackknife, rel=0.15)


def test_the_worth_of_the_question_is_held_against_what_ignores_it(known):
    table = evaluation.embedding_worth(compared(known))
    assert list(table.columns) == evaluation.WORTH_COLUMNS
    assert table["method"].unique().tolist() == [methods.SPRINT, methods.NEAREST]
    assert set(table["against"]) == {SHUFFLED, methods.COVER, methods.POOL}
    assert set(table["n"]) == {1, 2, MEAN}


def test_readings_are_held_against_no_diversity_and_embedders_against_the_chosen_one(answers):
    asked = options(geometry=["sphere", "ball"], diversity=[0.1, 0.0], embedder=["e", "f"])
    named = readings(asked, LossReading("ball", 0.1, "e"))
    assert {name: reading.against for name, reading in named.items()} == {
        "sphere, λ = 0.1, e": "sphere, λ = 0, e",
        "sphere, λ = 0, e": "",
        "ball, λ = 0.1, e": "ball, λ = 0, e",
        "ball, λ = 0, e": "",
        "ball, λ = 0.1, f": "ball, λ = 0.1, e",
    }
    draw = np.random.default_rng(4)
    passed = {
        name: [[np.sort(draw.random((QUESTIONS, 2)) < 0.5).astype(float) for _ in range(2)]]
        for name in named
    }
    table = evaluation.ablation(passed, named)
    assert list(table.columns) == evaluation.ABLATION_COLUMNS
    table = table.set_index(["reading", "n"])
    for name, reading in named.items():
        own = np.mean(passed[name][0], axis=0)
        for n, values in ((1, own[:, 0]), (2, own[:, 1]), (MEAN, own.mean(axis=1))):
            row = table.loc[(name, n)]
            assert row["pass_at_n"] == pytest.approx(values.mean())
            if reading.against:
                other = table.loc[(reading.against, n)]["pass_at_n"]
                assert row["difference"] == pytest.approx(values.mean() - other)
                assert row["low"] < row["difference"] < row["high"]
            else:
                assert pd.isna(row["difference"])


def test_a_shortlist_is_held_against_the_chosen_one():
    draw = np.random.default_rng(3)
    passed = {Shortlist("cover", k): [[draw.random((QUESTIONS, 3))]] for k in (2, 4)}
    held_out = {shortlist: np.array([0.1, 0.2, 0.3]) for shortlist in passed}
    table = evaluation.sensitivity(passed, held_out, Shortlist("cover", 2))
    assert list(table.columns) == evaluation.SENSITIVITY_COLUMNS
    chosen, other = (table[table["k"] == k].reset_index() for k in (2, 4))
    assert chosen["chosen"].all() and chosen["difference"].isna().all()
    np.testing.assert_allclose(other["difference"], other["test"] - chosen["test"])


def family(seed, name="head", scale="", test=100):
    members = [f"m{n}" for n in range(POOL)]
    asked = made(11, POOL, seed), made(QUESTIONS, POOL, seed + test)
    return AnsweredFamily(name, scale, members, *asked)


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
        own = AnsweredFamily(name, "", list("abcdefgh"), both, both)
        curves[name] = curve(own, 5.0, 8, by_order=False)
    return curves


def told_apart(better, rounds):
    draw = np.random.default_rng(7)
    found, pairs = 0, [(name, "sampling") for name in ("head", "scaled", "skip")]
    for number in range(rounds):
        curves = simulated(draw, better)
        base = draw.integers(20, 60, 90).astype(float)
        table = frontier.differences(curves, base, Bootstrap(90, 300, number), [pairs], 4)
        assert (table["adjusted"].notna() == (table["budget"] == 4)).all()
        found += bool((table["adjusted"] < 0.05).any())
    return found / rounds


def test_equal_families_are_told_apart_in_a_twentieth_at_most_and_unlike_ones_are():
    rounds = 150 if "HEADSWEEP_NIGHTLY" in os.environ else 20
    assert told_apart(0.0, rounds) <= 0.05
    assert told_apart(0.3, rounds // 5) > 0.8


def test_the_primary_budget_is_the_largest_that_all_reach():
    curves, base = simulated(np.random.default_rng(3)), np.full(90, 40.0)
    resamples = Bootstrap(90, 300, 0)
    assert frontier.primary_budget(curves, base, resamples) in (4, 8)
    head = curves["head"]
    short = {**curves, "head": head | {"tokens": head["tokens"][:, :3]}}
    assert frontier.primary_budget(short, base, resamples) == 2
    assert frontier.primary_budget(short, base / 40, resamples) is None


def test_a_budget_near_a_curve_s_end_is_counted_and_left_out_above_a_twentieth():
    """The longest curve ends at 8 answers of about 40 tokens; the base model's answer grows."""
    curves, resamples = simulated(np.random.default_rng(3)), Bootstrap(90, 400, 0)
    draw, pairs = np.random.default_rng(0), [("head", "sampling")]
    counted = set()
    for tokens in np.linspace(34, 42, 9):
        base = draw.normal(tokens, 15, 90)
        table = frontier.differences(curves, base, resamples, [pairs], 8)
        assert (table["unreached"] <= 0.05).all()
        asked = resamples.means(base) * 8
        ends = [resamples.means(curves[of]["tokens"][:, -1]) for of in pairs[0]]
        missed = (asked > np.minimum(*ends)).mean()
        there = 8 * base.mean() < min(curves[of]["tokens"][:, -1].mean() for of in pairs[0])
        shown = table[table["budget"] == 8]
        assert len(shown) == 2 * (there and missed <= 0.05)
        if len(shown):
            assert shown["unreached"].tolist() == pytest.approx([missed] * 2)
        counted.add((len(shown), bool(missed)))
    assert {(0, True), (2, True)} <= counted


def test_two_families_at_half_each():
    families = [choose([family(*of)], 4) for of in ((3,), (8, "skip"), (13, "sampling"))]
    curves = {each.name: curve(each, 5.0, 4, by_order=True) for each in families}
    table = frontier.complement(families, curves, 4)
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


@pytest.mark.parametrize(("n", "compared"), [(4, 4), (5, 4), (3, 2), (2, 2), (1, None)])
def test_two_halves_have_no_more_answers_than_the_whole(n, compared):
    families = [choose([family(*of)], 5) for of in ((3,), (8, "skip"))]
    curves = {each.name: curve(each, 5.0, 5, by_order=True) for each in families}
    table = frontier.complement(families, curves, n)
    assert [*table.columns] == frontier.COMPLEMENT
    assert table["n"].tolist() == ([] if compared is None else [compared])


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
    assert list(found.columns) == LIKENESS
    rows = found.astype(object).where(found.notna(), None).itertuples(index=False, name=None)
    assert list(rows) == [
        ("a", "same id", "a", 1, 1),
        ("e", "same text", "a", 1, 1),
        ("f", "other numbers", "b", 1, 1),
        ("g", "8-grams", "c", 0, 1),
        ("h", "none", None, 0, 0),
        ("i", "none", None, 0, 0),
        ("b", "same id", "b", 1, 1),  # where no text is at hand only the id is compared
        ("j", "unknown", None, None, None),
    ]
    told = likeness(found)
    assert told.startswith("Of 7 test questions 57.1% equal a training question but for numbers")
    assert "71.4% resemble one. Of the others it is unknown" in told


def test_ids_of_two_files_say_nothing():
    train, test = questions(**{"000000": "What is 2 + 3?"}), questions(**{"000000": "Name it."})
    assert overlap(train, test)["degree"].tolist() == ["same id"]
    assert overlap(train, test, one_origin=False)["degree"].tolist() == ["none"]
    assert overlap(train, train, one_origin=False)["degree"].tolist() == ["same text"]


def test_where_training_texts_are_missing_no_test_question_counts_as_apart():
    train, test = questions(a="What is 2 + 3?", b=""), questions(c="What is 7 + 3?", d="Solve it.")
    assert overlap(train, test)["degree"].tolist() == ["other numbers", "unknown"]
    bare = questions(a="", b="")
    assert overlap(bare, bare.assign(question_id=["c", "d"]))["degree"].tolist() == ["unknown"] * 2
    assert "unknown: their texts are missing" in likeness(
        overlap(bare, bare.assign(question_id=["c", "d"]))
    )


@pytest.mark.parametrize("name", ["math", "gsm8k"])
def test_the_demo_s_test_questions_resemble_none_that_its_selector_learns_from(name):
    config = load(Path(__file__).parents[2] / "config/demo.yaml")
    selector = config.selectors[name]
    learnt, asked = (config.questions[each] for each in (selector.train, selector.test))
    train, test = (draw(sources.read_source(each), each, None) for each in (learnt, asked))
    assert len(test) == asked.n
    assert (overlap(train, test)["degree"] == "none").all()
    assert (overlap(train, train)["degree"] == "same id").all()
