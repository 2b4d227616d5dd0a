import numpy as np
import pandas as pd
import pytest
from scipy import stats

import simulation
from headroom.analysis.answers import changes, failures
from headroom.analysis.controls import ALL, HARMLESS, controls, helping, hurting
from headroom.tables import ANSWERS, write_table
from headroom.variants import BASE, heads, matched_noise, numeric

VARIANTS = [BASE, *heads([1, 3, 4], range(5))]
PLACEBOS = [*matched_noise(VARIANTS[1:]), *numeric(5)]
ACTIVATIONS = pd.DataFrame(
    [
        {"layer": layer, "head": head, "output_norm": head + 1.0, "noise_norm": 4.0 + head}
        for layer in (1, 3, 4)
        for head in range(5)
    ]
)
NAMES = [str(variant) for variant in [*VARIANTS, *PLACEBOS]]


def graded(z):
    table = z.melt(id_vars=["question_id"], value_vars=NAMES, var_name="variant")
    table = (
        table.rename(columns={"value": "correct"})
        .astype({"correct": bool})
        .assign(answer="7", tokens=90, stop_reason="eos", margin=0.25)
    )
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
    for placebo in numeric(5):
        table[str(placebo)] = table["base"]
    return table


@pytest.fixture(scope="module")
def found(z):
    return controls(z, graded(z), VARIANTS, PLACEBOS, noise=1e-3, seed=0)


def test_there_is_a_row_for_each_layer_and_group(found):
    counts = found["gains"].groupby("by").size()
    assert counts["overall"] == 3
    assert counts["subject"] == 21
    assert (
        counts["level"]
        == 3 * found["gains"].loc[found["gains"]["by"] == "level", "group"].nunique()
    )


def test_the_head_that_helps_and_the_one_that_ruins_are_named(found):
    assert list(helping(found["heads"])["variant"]) == ["L03H04"]
    assert hurting(found["heads"])["variant"].iloc[0] == "L04H02"
    overall = found["gains"][found["gains"]["by"] == "overall"].set_index("layer")
    assert overall.loc[3, "q"] < 0.01
    assert overall.loc[3, "low"] > 0
    assert overall.loc[1, "low"] < 0 < overall.loc[1, "high"]


def test_heads_are_tested_as_scipy_tests_them(found, z):
    row = found["heads"].set_index("variant").loc["L03H00"]
    difference = z["L03H00"] - z["base"]
    gained, lost = (difference == 1).sum(), (difference == -1).sum()
    assert (row["gained"], row["lost"]) == (gained, lost)
    assert row["gain"] == pytest.approx((gained - lost) / 153)
    assert row["p"] == pytest.approx(stats.binomtest(int(gained), int(gained + lost)).pvalue)


def test_failures_say_how_a_head_fails(found, z, tmp_path):
    file = tmp_path / "answers.parquet"
    looping = np.arange(len(z)) % 2 == 0
    answers = z[["question_id"]].assign(sample=0, text="x", stop_reason="length", margin=0.1)
    answers["token_ids"] = [[1, 2] * 30 if loop else list(range(60)) for loop in looping]
    write_table(file, answers, ANSWERS)
    files = dict.fromkeys(NAMES, tmp_path / "gone.parquet") | {"L04H02": file}
    places = [(variant.layer, variant.head) for variant in VARIANTS[1:]]
    measured = pd.DataFrame(places, columns=["layer", "head"]).assign(norm=1.0, share=0.1)
    measured.loc[measured["head"] == 2, "share"] = 0.6
    table = failures(found["heads"], graded(z), files, measured).set_index("variant")
    assert table.index[:2].tolist() == ["base", "L04H02"]
    ruined = table.loc["L04H02"]
    assert ruined["no_answer"] == 1
    assert ruined["truncated"] == pytest.approx(0.25, abs=0.01)
    assert ruined["loops"] == pytest.approx(0.5, abs=0.01)
    assert ruined["mode"] == "loop"
    assert ruined["mode_share"] == pytest.approx(looping[z["base"] == 1].mean())
    assert (ruined["norm_share"], ruined["norm_rank"]) == (0.6, 1)
    assert (
        table.loc["base", ["loops", "mode", "mode_share", "norm_share", "norm_rank"]].isna().all()
    )


def test_without_tokens_the_mode_of_failure_comes_from_what_was_graded(found, z, tmp_path):
    gone = dict.fromkeys(NAMES, tmp_path / "gone.parquet")
    nothing = pd.DataFrame({"layer": [9], "head": [0], "share": [1.0], "norm": [1.0]})
    answers = graded(z)
    answers.loc[answers["variant"] == "L04H02", "stop_reason"] = "eos"
    table = failures(found["heads"], answers, gone, nothing).set_index("variant")
    assert table.loc["L04H02", ["mode", "mode_share"]].tolist() == ["no answer", 1]
    assert pd.isna(table.loc["L04H02", "loops"])
    assert pd.isna(table.loc["L04H02", "norm_share"])


def test_fragile_outcomes_are_counted(found):
    fragile = found["heads"].set_index("variant")["fragile"]
    assert fragile["L01H01"] == 1
    assert fragile.drop("L01H01").sum() == 0


def test_ruinous_heads_do_not_pass_for_variance_of_the_others(found):
    spread = found["spread"].set_index("of")
    assert spread.loc[ALL, "share"] > 0.9
    assert spread.loc[HARMLESS, "spread"] < 0.5 * spread.loc[ALL, "spread"]


def test_groups_too_small_to_split_have_no_held_out_gain(z):
    few = z.head(20)
    found = controls(few, graded(few), VARIANTS, [], noise=1e-3, seed=0)
    small = found["gains"][found["gains"]["n"] < 4]
    assert len(small)
    assert small["held_out"].isna().all()
    assert found["gains"].loc[:, "placebo":"numeric_q"].isna().all(axis=None)


def test_heads_are_never_held_against_the_best_of_fewer_placebos(z):
    fewer = [placebo for placebo in PLACEBOS if placebo.head != 2]
    gains = controls(z, graded(z), VARIANTS, fewer, noise=1e-3, seed=0)["gains"]
    assert gains.loc[:, "placebo":"placebo_q"].isna().all(axis=None)
    assert gains["numeric"].notna().all()


def test_placebos_are_not_taken_for_heads(found):
    assert found["heads"]["variant"].tolist() == NAMES[:16]
    assert set(found["gains"]["heads"]) == {5}
    assert found["spread"].set_index("of").loc[ALL, "heads"] == 15


def test_the_best_head_is_held_against_the_placebos_of_its_layer(found, z):
    gains = found["gains"].set_index(["group", "layer"])
    part = z[z["subject"] == "Geometry"]
    noise = [part[f"L03N0{head}"].mean() - part["base"].mean() for head in range(5)]
    assert gains.loc[("Geometry", 3), "placebo"] == pytest.approx(max(noise))
    of_heads = [part[f"L03H0{head}"].mean() - part["base"].mean() for head in range(5)]
    assert gains.loc[("Geometry", 3), "median"] == pytest.approx(sorted(of_heads)[2])
    overall = found["gains"][found["gains"]["by"] == "overall"].set_index("layer")
    assert overall.loc[3, "placebo_q"] < 0.01
    assert overall.loc[1, "placebo_q"] > 0.05


def test_every_layer_is_held_against_the_same_numeric_placebos(z):
    """Numerics turn answers: only what no layer's placebos reach is beyond them."""
    moved = z.copy()
    turned = np.random.default_rng(5).random((len(z), 5)) < 0.05
    for placebo, column in zip(numeric(5), turned.T, strict=True):
        moved[str(placebo)] = np.where(column, 1 - z["base"], z["base"]).astype("int8")
    gains = controls(moved, graded(moved), VARIANTS, numeric(5), noise=1e-3, seed=0)["gains"]
    assert gains["placebo"].isna().all()
    best = max(moved[str(placebo)].mean() for placebo in numeric(5)) - z["base"].mean()
    overall = gains[gains["by"] == "overall"].set_index("layer")
    assert overall["numeric"].tolist() == pytest.approx([best] * 3)
    assert overall.loc[3, "numeric_q"] < 0.01
    assert overall.loc[1, "numeric_q"] > 0.05


def test_a_gain_is_told_as_a_share_of_what_the_base_model_misses(found, z):
    gains = found["gains"].dropna(subset="of_errors").set_index(["group", "layer"])
    for level in (2, 4):
        missed = 1 - z.loc[z["level"] == level, "base"].mean()
        row = gains.loc[(f"Level {level}", 3)]
        assert row["of_errors"] == pytest.approx(row["held_out"] / missed)
        assert row["of_errors_low"] < row["of_errors"] < row["of_errors_high"]
    solved = z.assign(base=np.int8(1))
    none = controls(solved, graded(solved), VARIANTS, [], noise=1e-3, seed=0)["gains"]
    assert none["of_errors"].isna().all()


def write_tokens(folder, changed):
    """Write two answers of each variant; those named answer the second with another token."""
    files = {}
    for name in NAMES:
        files[name] = folder / f"{name}.parquet"
        table = pd.DataFrame({"question_id": ["a", "b"], "sample": 0, "text": "x", "margin": 0.1})
        table["token_ids"] = [[1, 2, 3], [1, 9] if name in changed else [1]]
        write_table(files[name], table.assign(stop_reason="eos"), ANSWERS)
    return files


def test_placebos_and_heads_are_compared_by_what_they_change(z, tmp_path):
    answers = graded(z).assign(group=lambda table: 1 - table["correct"].astype(int))
    answers = answers[answers["question_id"].isin(z["question_id"][:40])]
    files = write_tokens(tmp_path, {"L01N00", "L01N03", "L03H02", "placebo02"})
    table = changes(answers, [*VARIANTS[1:], *PLACEBOS], files, ACTIVATIONS)
    assert list(table["kind"]) == ["head"] * 3 + ["noise"] * 3 + ["numeric"]
    assert list(table["answers"]) == [200] * 7
    assert list(table["changed"]) == pytest.approx([0, 0.1, 0, 0.2, 0, 0, 0.1])
    part = z[:40]
    turned = [(part[f"L03N0{head}"] != part["base"]).mean() for head in range(5)]
    assert table.loc[4, "outcome"] == table.loc[4, "final"] == pytest.approx(np.mean(turned))
    assert table.loc[6, ["final", "outcome", "gain", "best"]].eq(0).all()
    assert list(table["norm"])[:6] == pytest.approx([3, 3, 3, 6, 6, 6])
    assert list(table["ratio_high"])[3:6] == pytest.approx([4, 4, 4])


def test_what_the_store_no_longer_holds_is_left_out(z, tmp_path):
    answers = graded(z).assign(group=0)
    gone = dict.fromkeys(NAMES, tmp_path / "gone.parquet")
    table = changes(answers, [*VARIANTS[1:], *PLACEBOS], gone, ACTIVATIONS)
    assert table["changed"].isna().all()
