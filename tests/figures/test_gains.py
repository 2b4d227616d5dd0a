from pathlib import Path

import numpy as np
import pytest

import simulation
from headroom.analysis.gains import cells, read_z
from headroom.errors import TableError
from headroom.planning.batches import pool
from headroom.tables import ACCURACY, read_table, write_table
from headroom.variants import BASE, heads

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


def test_questions_without_subject_count_overall_only(z):
    z["subject"] = None
    z["level"] = None
    table = cells(z, VARIANTS)
    assert set(table["by"]) == {"overall"}


def test_a_missing_variant_is_named(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    config = simulation.demo()
    simulation.fill(config)
    assert len(pool(config, config.sweeps["demo"])) == 24
    path = next(Path("results/simulated/accuracy").rglob("greedy*/math_test*.parquet"))
    write_table(path, read_table(path, ACCURACY, exact=False)[ACCURACY.names], ACCURACY)
    with pytest.raises(TableError, match=r"variants \['base', 'L00H00'.* are missing"):
        read_z(config, "demo")
