from pathlib import Path

import numpy as np
import pytest

import simulation
from headroom.analysis.gains import beside_placebos, cells, gains, pairs, read_cells
from headroom.errors import TableError
from headroom.planning.batches import pool
from headroom.tables import ACCURACY, read_table, write_table
from headroom.variants import BASE, heads, matched_noise, numeric

VARIANTS = [BASE, *heads([1, 3], range(5))]


@pytest.fixture
def z():
    names = [str(variant) for variant in VARIANTS]
    return simulation.simulated_z(61, names, np.random.default_rng(3))


def test_cells_count_right_answers_as_a_plain_loop_does(z):
    table = cells(z, VARIANTS).set_index(["by", "group", "variant"])
    for variant in VARIANTS:
        for subject in simulation.SUBJECTS:
            rows = [row for _, row in z.iterrows() if row["subject"] == subject]
            right = sum(row[str(variant)] for row in rows)
            base = sum(row["base"] for row in rows)
            cell = table.loc[("subject", subject, str(variant))]
            assert (cell["n"], cell["correct"]) == (len(rows), right)
            assert cell["gain"] == pytest.approx((right - base) / len(rows))
        for level in range(1, 6):
            right = sum(row[str(variant)] for _, row in z.iterrows() if row["level"] == level)
            assert table.loc[("level", f"Level {level}", str(variant)), "correct"] == right
        assert table.loc[("overall", "Overall", str(variant)), "correct"] == z[str(variant)].sum()


def test_best_and_median_gain_are_those_of_the_heads_of_one_layer(z):
    gained = gains(cells(z, VARIANTS)).set_index(["group", "layer"])
    part = z[z["subject"] == "Geometry"]
    accuracy = [part[f"L03H0{head}"].mean() - part["base"].mean() for head in range(5)]
    row = gained.loc[("Geometry", 3)]
    assert row["best_gain"] == pytest.approx(max(accuracy))
    assert row["median_gain"] == pytest.approx(sorted(accuracy)[2])
    ties = [f"L03H0{head}" for head in range(5) if accuracy[head] == max(accuracy)]
    assert row["best_heads"].split() == ties


def test_the_best_placebos_stand_beside_the_heads_of_their_layer():
    placebos = [*matched_noise(VARIANTS[1:]), *numeric(2)]
    names = [str(variant) for variant in [*VARIANTS, *placebos]]
    z = simulation.simulated_z(61, names, np.random.default_rng(3))
    gained = gains(cells(z, VARIANTS))
    found = beside_placebos(gained, z, placebos)
    row = found.set_index(["group", "layer"]).loc[("Geometry", 3)]
    part = z[z["subject"] == "Geometry"]
    accuracy = {name: part[name].mean() - part["base"].mean() for name in names}
    assert row["noise_gain"] == pytest.approx(max(accuracy[f"L03N0{head}"] for head in range(5)))
    assert row["numeric_gain"] == pytest.approx(max(accuracy["placebo01"], accuracy["placebo02"]))
    without = beside_placebos(gained, z, [])
    assert without[["noise_gain", "numeric_gain"]].isna().all(axis=None)
    assert found[gained.columns].equals(gained)


def test_questions_without_subject_count_overall_only(z):
    z["subject"] = None
    z["level"] = None
    table = cells(z, VARIANTS)
    assert set(table["by"]) == {"overall"}
    assert list(pairs(gains(table))["layer"]) == [1, 3]


def test_there_is_a_pair_for_each_subject_and_layer(z):
    chosen = pairs(gains(cells(z, VARIANTS)))
    assert len(chosen) == 7 * 2
    assert set(chosen["by"]) == {"subject"}


def test_a_missing_variant_is_named(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    config = simulation.demo()
    simulation.fill(config)
    assert len(pool(config, config.sweeps["demo"])) == 24
    path = next(Path("results/simulated/accuracy").rglob("greedy*/math_test*.parquet"))
    write_table(path, read_table(path, ACCURACY, exact=False)[ACCURACY.names], ACCURACY)
    with pytest.raises(TableError, match=r"variants \['base', 'L00H00'.* are missing"):
        read_cells(config, "demo")
