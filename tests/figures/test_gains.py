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
    table = cells(z, VARIANTS).set_index(["group", "variant"])
    groups = {f"Level {level}": z["level"] == level for level in range(1, 6)}
    groups |= {subject: z["subject"] == subject for subject in simulation.SUBJECTS}
    for group, chosen in (groups | {"Overall": z["level"] > 0}).items():
        rows = z[chosen].to_dict("records")
        base = sum(row["base"] for row in rows)
        for name in map(str, VARIANTS):
            right = sum(row[name] for row in rows)
            cell = table.loc[(group, name)]
            assert (cell["n"], cell["correct"]) == (len(rows), right)
            assert cell["gain"] == pytest.approx((right - base) / len(rows))


def test_questions_without_subject_count_overall_only(z):
    assert set(cells(z.assign(subject=None, level=None), VARIANTS)["by"]) == {"overall"}


def test_a_missing_variant_is_named(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    config = simulation.demo()
    simulation.fill(config)
    assert len(pool(config, config.sweeps["demo"])) == 24
    path = next(Path("results/simulated/accuracy").rglob("greedy*/math_test*.parquet"))
    write_table(path, read_table(path, ACCURACY, exact=False)[ACCURACY.names], ACCURACY)
    with pytest.raises(TableError, match=r"variants \['base', 'L00H00'.* are missing"):
        read_z(config, "demo")
