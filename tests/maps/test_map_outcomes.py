"""A map's outcomes and what it foretells, from tables made by hand."""

import math

import numpy as np
import pandas as pd
import pytest
from scipy.stats import spearmanr, t

from headsweep.experiments.maps.foretold import _held, among_best, foretold, rank_correlation
from headsweep.experiments.maps.outcomes import (
    HEADS,
    LIKELIHOOD,
    PREFERENCE,
    SOLUTIONS,
    heads_table,
    layers_table,
)

LENGTHS = {"right": 8, "wrong": 5, "solution": 4}


def made(questions=9, layers=(1, 4), heads=3, seed=0):
    """Scores of right, wrong and reference texts; head 2 of layer 4 makes right ones likelier."""
    draw = np.random.default_rng(seed)
    rows = []
    for layer in layers:
        names = [f"L{layer:02d}R00", *(f"L{layer:02d}H{h:02d}" for h in range(heads))]
        names.append(f"L{layer:02d}N01")
        for number in range(questions):
            for kind, length in LENGTHS.items():
                if kind == "solution" and number > 5:
                    continue
                base = -20 - number
                for name in names:
                    change = 0.0 if "R" in name else draw.normal(scale=0.1)
                    if name == "L04H02":
                        change += {"right": 2.0, "wrong": -1.0, "solution": 0.4}[kind]
                    rows.append((f"q{number}", kind, name, base + change, length, 3))
    columns = ["question_id", "kind", "variant", "log_probability", "tokens", "kept"]
    return pd.DataFrame(rows, columns=columns)


def test_outcomes_are_paired_over_questions_in_their_units():
    scores = made()
    table = heads_table(scores.sample(frac=1, random_state=1), 3)
    assert list(table) == HEADS and len(table) == 3 * (2 * 3 + 2)
    by = scores
    by = by.set_index(["variant", "kind", "question_id"]).sort_index()["log_probability"]
    for name, base in (("L04H02", "L04R00"), ("L01H00", "L01R00"), ("L04N01", "L04R00")):
        change = {kind: by[name, kind] - by[base, kind] for kind in LENGTHS}
        expected = {
            LIKELIHOOD: (9, change["right"].mean() / 8),
            PREFERENCE: (9, (change["right"] - change["wrong"]).mean()),
            SOLUTIONS: (6, change["solution"].mean() / 4),
        }
        for outcome, (n, value) in expected.items():
            row = table[(table["variant"] == name) & (table["outcome"] == outcome)].iloc[0]
            assert row["n"] == n and row["change"] == pytest.approx(value)
            assert math.isnan(row["adjusted"]) == ("N" in name)
    shown = table[(table["adjusted"] < 0.05) & (table["outcome"] == PREFERENCE)]
    assert list(shown["variant"]) == ["L04H02"]
    of_layers = layers_table(table, scores).set_index(["outcome", "layer"])
    assert of_layers.loc[(PREFERENCE, 4), "shown"] == 1
    assert of_layers.loc[(PREFERENCE, 4), "highest"] == pytest.approx(3, abs=0.3)
    noise = table[(table["variant"] == "L01N01") & (table["outcome"] == SOLUTIONS)]
    assert of_layers.loc[(SOLUTIONS, 1), "noise"] == pytest.approx(noise["change"].iloc[0])


@pytest.mark.parametrize(("maps", "noisy"), [(10, True), (5, False)])
def test_a_preference_that_all_changes_have_is_rarely_shown(maps, noisy, monkeypatch):
    """In maps of 3 layers, all variants prefer right answers alike: heads as noise does."""
    monkeypatch.setattr("headsweep.experiments.maps.outcomes.RESAMPLES", 400)
    draw = np.random.default_rng(5)
    names = [f"L{layer:02d}H{head:02d}" for layer in range(3) for head in range(14)]
    names += [f"L{layer:02d}N00" for layer in range(3)] if noisy else []
    found = 0
    for _ in range(maps):
        preference = pd.DataFrame(draw.normal(2, 1, (46, len(names))), columns=names)
        preference.index.name = "question_id"
        wrong = pd.DataFrame(-10.0, preference.index, [*names, "L00R00", "L01R00", "L02R00"])
        right = wrong.assign(**(wrong[names] + preference))
        parts = pd.concat({"right": right, "wrong": wrong}, names=["kind"])
        scores = parts.melt(ignore_index=False, var_name="variant", value_name="log_probability")
        scores = scores.reset_index().assign(tokens=5, kept=3)
        table = heads_table(scores, 0)
        found += table.loc[table["outcome"] == PREFERENCE, "shown"].notna().any()
    assert found <= 2 if noisy else found == maps  # 0.5 by chance; without noise zero alone counts


@pytest.mark.parametrize("own", [True, False])
def test_a_head_is_held_against_noise_in_its_own_place_where_every_head_has_a_placebo(own):
    """Head 1 of two is strong, and so is the noise as strong as it."""
    draw = np.random.default_rng(2)
    strength = {"L03H00": 0.1, "L03N00": 0.1, "L03H01": 1.0, "L03N01": 1.0}
    names = [name for name in strength if own or name != "L03N01"]
    texts = pd.MultiIndex.from_product([[f"q{n:02}" for n in range(40)], ["right"]])
    columns = {name: draw.normal(-strength[name], 0.1, 40) for name in names}
    scores = pd.DataFrame(columns | {"L03R00": 0.0}, texts.set_names(["question_id", "kind"]))
    scores = scores.melt(ignore_index=False, var_name="variant", value_name="log_probability")
    scores = scores.reset_index().assign(tokens=1, kept=1)
    table = heads_table(scores, 0).set_index("variant")
    assert (table.loc[["L03H00", "L03H01"], "adjusted"] < 0.05).all()
    assert table["shown"].dropna().index.tolist() == ([] if own else ["L03H01"])


def test_an_outcome_without_two_questions_has_no_rows():
    scores = made()
    assert set(heads_table(scores[scores["kind"] == "solution"], 0)["outcome"]) == {SOLUTIONS}
    assert heads_table(scores[scores["question_id"] == "q0"], 0).empty


def test_what_a_map_foretells_is_counted_against_measured_gains():
    names = [f"L00H{head:02d}" for head in range(8)]
    change = [0.5, 0.4, 0.3, 0.2, 0.1, 0.0, -0.1, -0.2]
    heads = pd.DataFrame({"variant": names, "kind": "head", "outcome": PREFERENCE})
    heads = heads.assign(change=change)
    right = [7, 9, 4, 5, 3, 6, 1, 2]  # of 10 questions; 5 without a loss
    z = pd.DataFrame({"base": [1] * 5 + [0] * 5})
    for name, count in zip(names, right, strict=True):
        z[name] = [1] * count + [0] * (10 - count)
    answered = ("test", "greedy")

    def ranked(values):
        table = foretold(heads.assign(change=values), {answered: z}, {answered: "Sums, test"})
        return table.set_index("outcome").loc[PREFERENCE]

    found, upside_down = ranked(change), ranked(change[::-1])
    assert (found["questions"], found["decoding"]) == answered
    assert found["title"] == "Sums, test" and found["n"] == 10
    assert found["correlation"] == pytest.approx(spearmanr(change, right).statistic)
    assert (found["top"], found["best_hits"], found["worst_hits"]) == (2, 2, 2)
    assert (upside_down["best_hits"], upside_down["worst_hits"]) == (0, 0)
    assert found["best_gain"] == pytest.approx(0.4)
    assert found["best_found"] == pytest.approx(0.4)
    assert upside_down["best_found"] == pytest.approx(-0.3)
    assert found["by_chance"] == pytest.approx(0.5)
    few = {answered: z[["base", *names[:5]]]}
    assert foretold(heads, few, {answered: "few"}).empty


def test_heads_tied_for_the_last_places_count_in_part_whatever_their_order():
    gains = pd.Series([0.3, 0.1, 0.1, 0.1, 0.0, 0.0], index=list("abcdef"))
    shares = among_best(gains, 2)
    assert shares.tolist() == pytest.approx([1, 1 / 3, 1 / 3, 1 / 3, 0, 0])
    assert among_best(-gains, 2).tolist() == [0, 0, 0, 0, 1, 1]
    change = pd.Series([0.5, 0.4, 0.3, 0.2, 0.1, 0.0], index=gains.index)
    for order in (list("abcdef"), list("fdbeca")):
        found = _held(change[order], gains[order])
        assert found["best_hits"] == pytest.approx(4 / 3)
        assert found["worst_hits"] == 2


def test_noise_of_several_placebos_is_their_mean_question_by_question():
    scores = made(layers=(4,))
    again = scores[scores["variant"] == "L04N01"].assign(variant="L04N02")
    spread = np.random.default_rng(1).normal(scale=0.1, size=len(again))
    again["log_probability"] += spread
    scores = pd.concat([scores, again])
    table = heads_table(scores, 3)
    (row,) = layers_table(table, scores).query("outcome == 'likelihood'").itertuples()
    right = scores[scores["kind"] == "right"]
    wide = right.pivot(index="question_id", columns="variant", values="log_probability")
    mean = (wide[["L04N01", "L04N02"]].mean(axis=1) - wide["L04R00"]) / LENGTHS["right"]
    ends = t.interval(0.95, len(mean) - 1, mean.mean(), mean.sem())
    assert (row.noise, row.noise_low, row.noise_high) == pytest.approx((mean.mean(), *ends))
    alone = scores[~scores["variant"].str.contains("N")]
    assert layers_table(table, alone)["noise"].isna().all()


def test_the_interval_of_a_rank_correlation_covers_it():
    draw = np.random.default_rng(4)
    true, inside = 0.5, 0
    pearson = 2 * math.sin(math.pi * true / 6)  # of normal values with this rank correlation
    for _ in range(200):
        values = draw.multivariate_normal([0, 0], [[1, pearson], [pearson, 1]], size=24)
        _, low, high = rank_correlation(values[:, 0], values[:, 1])
        inside += low <= true <= high
    assert 0.92 <= inside / 200 <= 0.985
    assert all(map(math.isnan, rank_correlation(np.ones(7), np.arange(7))))
