"""The one function of paired differences, held against closed forms and simulation."""

import numpy as np
import pytest
from scipy import stats

from headsweep.statistics.differences import SUBSAMPLE, compare, of_questions
from headsweep.statistics.intervals import paired_interval

LABELS = [1, 2, "mean"]
ONE, TWO = ("a", "b"), ("a", "c")


@pytest.fixture
def outcomes():
    draw = np.random.default_rng(1)
    sizes = {"a": (4, 3), "b": (4, 1), "c": (1, 1)}
    return {
        name: [[draw.random((40, 3)) for _ in range(seeds)] for _ in range(draws)]
        for name, (draws, seeds) in sizes.items()
    }


def test_differences_are_means_over_questions_and_seeds_with_all_their_chance(
    outcomes,
):
    table = compare(outcomes, [ONE, TWO], LABELS)
    assert table[["method", "against"]].drop_duplicates().to_numpy().tolist() == [[*ONE], [*TWO]]
    assert table["n"].tolist() == LABELS * 2
    for (_, other), part in table.groupby(["method", "against"], sort=False):
        cells = np.array(
            [
                [values.mean(axis=0) - outcomes[other][draw % len(outcomes[other])][0].mean(axis=0)]
                for draw, seeds in enumerate(outcomes["a"])
                for values in seeds
            ]
        ).reshape(4, 3, 3)  # draws, seeds, columns
        np.testing.assert_allclose(part["difference"], cells[0].mean(axis=0))
        noise = cells.var(axis=1, ddof=1).mean(axis=0) / 3
        np.testing.assert_allclose(part["by_seed"] ** 2, noise)
        between = cells[1:].mean(axis=1).var(axis=0, ddof=1)
        of_draws = SUBSAMPLE / (1 - SUBSAMPLE) * np.maximum(between - noise, 0)
        np.testing.assert_allclose(part["by_draw"] ** 2, of_draws, atol=1e-12)
        lead = np.mean(outcomes["a"][0], axis=0) - outcomes[other][0][0]
        low, high = paired_interval(lead, [(noise, 4 * 2), (of_draws, 2)])
        np.testing.assert_allclose(part[["low", "high"]].T, [low, high])
        away = np.abs(low + high) / (high - low)  # in half widths of the interval
        student = stats.t(part["freedom"].to_numpy())
        np.testing.assert_allclose(part["p"], 2 * student.sf(student.ppf(0.975) * away))


def test_what_did_not_vary_has_no_part_and_unequal_trainings_are_refused(outcomes):
    table = compare(outcomes, [("c", "c")], LABELS)
    assert (table["difference"] == 0).all() and (table["p"] == 1).all()
    assert table[["by_seed", "by_draw"]].isna().all(axis=None)
    assert (table["freedom"] == np.inf).all()
    assert compare(outcomes, [("b", "c")], LABELS)["by_seed"].isna().all()
    with pytest.raises(ValueError, match="4 and 3 trainings"):
        compare(outcomes | {"b": outcomes["b"][:3]}, [ONE], LABELS)
    assert compare(outcomes, [], LABELS).columns.tolist() == [*table.columns]


def test_p_is_below_a_twentieth_exactly_where_the_interval_leaves_out_zero():
    draw, shifts = np.random.default_rng(2), np.linspace(-0.25, 0.25, 101)
    shared = draw.normal(shifts, 0.3, (40, 101))
    of_draws = shared + draw.normal(0, 0.02, (4, 1, 101))
    one = [[own + draw.normal(0, 0.03, 101) for _ in range(3)] for own in of_draws]
    table = compare({"a": one, "b": [[0 * shared]]}, [ONE], range(101))
    outside = (table["low"] > 0) | (table["high"] < 0)
    assert ((table["p"] < 0.05) == outside).all()
    assert {*outside} == {True, False}
    alone = draw.choice([-1.0, 0.0, 1.0], (40, 3))
    p = compare({"a": [[alone]], "b": [[0 * alone]]}, [ONE], LABELS)["p"]
    mean = alone.sum(axis=0) / 42  # of a gained and a lost question more
    spread = np.sqrt(((alone**2).sum(axis=0) + 2) / 42 - mean**2)
    np.testing.assert_allclose(p, 2 * stats.norm.sf(np.abs(mean) / spread * np.sqrt(42)))


def test_each_label_is_corrected_over_its_pairs_and_undefined_differences_are_left_out(outcomes):
    outcomes["c"] = [[np.where([False, False, True], np.nan, outcomes["c"][0][0])]]
    table = compare(outcomes, [ONE, TWO, ("b", "c")], LABELS)
    assert table["n"].tolist() == [*LABELS, 1, 2, 1, 2]
    for _, part in table.groupby("n", sort=False):
        ordered = np.sort(part["p"].to_numpy())
        factors = np.arange(len(ordered), 0, -1)
        wanted = np.maximum.accumulate(np.minimum(ordered * factors, 1))
        np.testing.assert_allclose(np.sort(part["adjusted"]), wanted)
    assert (table.set_index("n").loc["mean", "adjusted"] == table.iloc[2]["p"]).all()


def test_the_interval_of_some_questions_is_theirs_alone(outcomes):
    chosen = np.arange(40) % 3 == 0
    some = {name: of_questions(given, chosen) for name, given in outcomes.items()}
    found = compare(some, [TWO], LABELS)["difference"]
    lead = np.mean(outcomes["a"][0], axis=0) - outcomes["c"][0][0]
    np.testing.assert_allclose(found, lead[chosen].mean(axis=0))


def test_intervals_hold_the_truth_where_seeds_and_draws_move_it_and_one_seed_s_do_not():
    """A fresh draw has twice a subsample's variance; the truth is a mean over draws and seeds."""
    draw, rounds = np.random.default_rng(5), 600
    answered = draw.normal(0, 0.25, (120, rounds))
    moved = draw.normal(0, 0.04, (9, rounds)) / np.sqrt([[1], *[[2]] * 8])
    one = [[answered + each + draw.normal(0, 0.05, rounds) for _ in range(3)] for each in moved]
    wrong = []
    for given in (one, [one[0][:1]]):
        table = compare({"a": given, "b": [[0 * answered]]}, [ONE], range(rounds))
        wrong.append(((table["low"] > 0) | (table["high"] < 0)).mean())
    assert wrong[0] < 0.075
    assert wrong[1] > 0.2
