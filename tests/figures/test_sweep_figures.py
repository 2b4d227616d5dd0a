"""What the figures of a sweep and of a selector count, held against plain loops and libraries."""

import itertools

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
import simulation
from scipy.stats import binomtest, false_discovery_control
from sklearn.decomposition import PCA

from headroom.analysis.controls import SPREAD, controls
from headroom.analysis.gains import against_base
from headroom.figures.agreement import agreement, agreement_map
from headroom.figures.components import components
from headroom.figures.cost import cost, saved
from headroom.figures.heatmap import heatmap
from headroom.figures.space import plane, principal
from headroom.figures.style import ONE_COLUMN, THEMES, TWO_COLUMNS, theme
from headroom.tables import ANSWERS
from headroom.variants import BASE, heads

VARIANTS = [BASE, *heads([1, 4], range(3))]
NAMES = [str(variant) for variant in VARIANTS]


@pytest.fixture
def z() -> pd.DataFrame:
    table = simulation.simulated_z(119, NAMES, np.random.default_rng(7))
    table["L04H02"] = np.int8(0)  # surely hurts
    return table


def answers(token_ids: list[list[int]]) -> pa.Table:
    n = len(token_ids)
    columns = [[f"q{i}" for i in range(n)], [0] * n, token_ids, [""] * n, ["eos"] * n, [1.0] * n]
    return pa.table(columns, names=ANSWERS.names).cast(ANSWERS)


def test_agreement_is_the_share_of_equal_outcomes(z):
    found = agreement(z, VARIANTS).set_index(["first", "second"])
    assert len(found) == 21
    for first, second in itertools.combinations(NAMES, 2):
        row = found.loc[(first, second)]
        assert row["agreement"] == pytest.approx((z[first] == z[second]).mean())
        p, q = z[first].mean(), z[second].mean()
        assert row["by_chance"] == pytest.approx(p * q + (1 - p) * (1 - q))


def test_marks_are_those_of_the_exact_test_with_false_discoveries_controlled(z):
    table = against_base(z, VARIANTS)
    assert table.loc[table["variant"] == "base", "q"].isna().all()
    p = []
    for subject, name in itertools.product(sorted(set(z["subject"])), NAMES[1:]):
        part = z[z["subject"] == subject]
        gained = int(((part[name] == 1) & (part["base"] == 0)).sum())
        lost = int(((part[name] == 0) & (part["base"] == 1)).sum())
        p.append(binomtest(gained, gained + lost).pvalue if gained + lost else 1.0)
    subjects = table[(table["by"] == "subject") & (table["variant"] != "base")]
    assert subjects["q"].to_numpy() == pytest.approx(false_discovery_control(p))


def test_marks_over_all_questions_are_those_of_the_forest(z):
    graded = z.melt(id_vars=["question_id"], value_vars=NAMES, var_name="variant")
    graded = graded.assign(answer="7", stop_reason="eos", margin=0.5, tokens=9)
    forest = controls(z, graded, VARIANTS, [], noise=1e-3, seed=0).heads
    overall = against_base(z, VARIANTS).query("by == 'overall'")
    assert overall["q"].tolist()[1:] == pytest.approx(forest["q"].tolist()[1:])
    assert (overall["q"] < 0.05).sum() == 1


def test_heatmap_draws_one_triangle_for_each_marked_cell(z):
    table = against_base(z, VARIANTS)
    shown = table[table["by"].isin(["overall", "subject"]) & (table["layer"] == 4)]
    marked = int((shown["q"] < 0.05).sum())
    assert marked > 1
    with theme("light") as colors:
        figure = heatmap(table, "sweep", 4, colors)
    assert len(figure.image.axes[0].collections) == marked
    assert "6 heads of the sweep (Overall)" in figure.caption
    assert "42 pairs of head and subject" in figure.caption


def test_cost_counts_tokens_up_to_the_first_difference():
    base = answers([[5, 6, 7], [8, 9], [1, 2, 3, 4]])
    pruned = [
        (2, answers([[5, 6, 7], [8, 3, 3], [1, 2]])),  # identical, 1 kept, 2 kept
        (2, answers([[4], [8, 9, 9], [1, 2, 3, 4]])),  # 0 kept, 2 kept, identical
        (3, answers([[5, 6, 7], [8, 9], []])),
    ]
    found = cost(base, pruned)
    assert found.to_dict("list") == {
        "layer": [2, 3],
        "answers": [6, 3],
        "tokens": [16, 5],
        "kept": [12, 5],
        "identical": [2, 2],
    }
    assert saved(found) == 17 / 21


def test_cost_pairs_answers_by_question():
    base = answers([[5, 6, 7], [8, 9]])
    assert cost(base, [(0, base.take([1, 0]))])["identical"].tolist() == [2]


def test_principal_components_are_those_of_scikit_learn_up_to_sign():
    vectors = np.random.default_rng(3).normal(size=(37, 5)) * [5, 4, 3, 2, 1]
    placed, kept = principal(vectors)
    reference = PCA(2).fit(vectors)
    assert kept == pytest.approx(reference.explained_variance_ratio_)
    assert np.abs(placed) == pytest.approx(np.abs(reference.transform(vectors)))
    again, _ = principal(vectors[:, ::-1])
    assert again == pytest.approx(placed)


@pytest.mark.parametrize("shape", [(4, 1), (1, 3)])
def test_a_space_of_one_dimension_or_one_point_has_a_plane_too(shape):
    placed, kept = principal(np.arange(np.prod(shape), dtype=float).reshape(shape))
    assert placed.shape == (shape[0], 2)
    assert sum(kept) == pytest.approx(1 if shape[0] > 1 else 0)


def test_points_keep_their_layer_and_the_share_of_heads_that_solve_them():
    points = pd.DataFrame(
        {
            "kind": ["head", "head", "head", "question"],
            "name": ["base", "L01H00", "L04H01", "q7"],
            "vector": [np.ones(3), np.zeros(3), np.arange(3.0), np.array([1.0, 0, 2])],
        }
    )
    placed, _ = plane(points, pd.Series({"q7": 0.25}))
    assert placed["layer"].tolist()[1:3] == [1, 4]
    assert placed["layer"].isna().tolist() == [True, False, False, True]
    assert placed["solved"].iloc[3] == 0.25


def test_every_width_is_one_or_two_columns(z):
    spread = pd.DataFrame([["layer 1", 3, 0.0, 0.0, 0.0, 0.0, 1.0]], columns=SPREAD)
    few = z.assign(subject="Algebra", level=None)
    with theme("light") as colors:
        figures = [
            agreement_map(agreement(z, VARIANTS), VARIANTS, "s", 119, colors),
            components(spread, "s", 119, colors),
            heatmap(against_base(z, VARIANTS), "s", 1, colors),
            heatmap(against_base(few, VARIANTS), "s", 1, colors),
        ]
    widths = [figure.image.get_figwidth() for figure in figures]
    assert widths == [ONE_COLUMN, TWO_COLUMNS, TWO_COLUMNS, ONE_COLUMN]


def test_agreement_of_equal_models_is_drawn():
    z = pd.DataFrame({name: [1, 0, 1] for name in NAMES})
    figure = agreement_map(agreement(z, VARIANTS), VARIANTS, "s", 3, THEMES["dark"])
    assert (figure.data["agreement"] == 1).all()
