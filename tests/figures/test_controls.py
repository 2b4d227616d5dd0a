import numpy as np
import pandas as pd
import pytest
import simulation
from scipy import stats

from headroom.figures.controls import ALL, HARMLESS, controls, helping, hurting
from headroom.figures.verdict import failures, gains_table, verdict
from headroom.tables import ANSWERS, write_table
from headroom.variants import BASE, heads

VARIANTS = [BASE, *heads([1, 3, 4], range(5))]
NAMES = [str(variant) for variant in VARIANTS]


def graded(z):
    table = z.melt(id_vars=["question_id"], value_vars=NAMES, var_name="variant")
    table = table.assign(answer="7", tokens=90, stop_reason="eos", margin=0.25)
    ruined = table["variant"] == "L04H02"
    table.loc[ruined, "answer"] = None
    table.loc[ruined & (table.index % 4 == 0), "stop_reason"] = "length"
    table.loc[table["variant"] == "L01H01", "margin"] = 0.0005
    return table


@pytest.fixture(scope="module")
def z():
    table = simulation.simulated_z(153, NAMES, np.random.default_rng(2))
    helped = np.random.default_rng(8).random(153) < 0.4
    table["L03H04"] = np.where(helped, 1, table["base"]).astype("int8")
    table["L04H02"] = np.int8(0)
    return table


@pytest.fixture(scope="module")
def found(z):
    return controls(z, graded(z), VARIANTS, noise=1e-3, seed=0)


def test_there_is_a_row_for_each_layer_and_group(found):
    counts = found.gains.groupby("by").size()
    assert counts["overall"] == 3
    assert counts["subject"] == 21
    assert counts["level"] == 3 * found.gains.loc[found.gains["by"] == "level", "group"].nunique()


def test_the_head_that_helps_and_the_one_that_ruins_are_named(found):
    assert list(helping(found.heads)["variant"]) == ["L03H04"]
    assert hurting(found.heads)["variant"].iloc[0] == "L04H02"
    overall = found.gains[found.gains["by"] == "overall"].set_index("layer")
    assert overall.loc[3, "q"] < 0.01
    assert overall.loc[3, "low"] > 0
    assert overall.loc[1, "low"] < 0 < overall.loc[1, "high"]


def test_heads_are_tested_as_scipy_tests_them(found, z):
    row = found.heads.set_index("variant").loc["L03H00"]
    difference = z["L03H00"] - z["base"]
    gained, lost = (difference == 1).sum(), (difference == -1).sum()
    assert (row["gained"], row["lost"]) == (gained, lost)
    assert row["gain"] == pytest.approx((gained - lost) / 153)
    assert row["p"] == pytest.approx(stats.binomtest(int(gained), int(gained + lost)).pvalue)


def test_failures_say_how_a_head_fails(found, tmp_path):
    file = tmp_path / "answers.parquet"
    answers = pd.DataFrame({"question_id": ["a", "b"], "sample": 0, "text": "x"})
    answers = answers.assign(stop_reason="length", margin=0.1)
    answers["token_ids"] = [[1, 2] * 30, list(range(60))]
    write_table(file, answers, ANSWERS)
    files = dict.fromkeys(NAMES, tmp_path / "gone.parquet") | {"L04H02": file}
    table = failures(found.heads, files).set_index("variant")
    assert table.index[:2].tolist() == ["base", "L04H02"]
    assert table.loc["L04H02", "no_answer"] == 1
    assert table.loc["L04H02", "truncated"] == pytest.approx(0.25, abs=0.01)
    assert table.loc["L04H02", "loops"] == 0.5
    assert pd.isna(table.loc["base", "loops"])


def test_fragile_outcomes_are_counted(found):
    fragile = found.heads.set_index("variant")["fragile"]
    assert fragile["L01H01"] == 1
    assert fragile.drop("L01H01").sum() == 0


def test_ruinous_heads_do_not_pass_for_variance_of_the_others(found):
    spread = found.spread.set_index("of")
    assert spread.loc[ALL, "share"] > 0.9
    assert spread.loc[HARMLESS, "spread"] < 0.5 * spread.loc[ALL, "spread"]


def test_verdict_names_what_is_shown_and_what_is_not(found):
    said = verdict(found.gains, found.heads, found.spread)
    assert "Layer 3" in said[2]
    assert said[2].split(": ", 2)[2].startswith("a gain")
    assert "no gain is shown" in said[1]
    assert "1 can be shown to help" in said[4]
    assert len(said) == 7


def test_groups_too_small_to_split_have_no_held_out_gain(z):
    few = z.head(20)
    found = controls(few, graded(few), VARIANTS, noise=1e-3, seed=0)
    small = found.gains[found.gains["n"] < 4]
    assert len(small)
    assert small["held_out"].isna().all()
    assert "–" in gains_table(found.gains, "few")["md"]
