import numpy as np
import pandas as pd
import pytest
from scipy import stats

import simulation
from headroom.analysis.controls import ALL, HARMLESS, changes, controls, failures, helping, hurting
from headroom.analysis.gains import cells, read_z
from headroom.errors import TableError
from headroom.planning.store import Store
from headroom.tables import ACCURACY, ANSWERS, write_table
from headroom.variants import BASE, heads, matched_noise, numeric

VARIANTS = [BASE, *heads([1, 3, 4], range(5))]
PLACEBOS = [*matched_noise(VARIANTS[1:]), *numeric(5)]
NAMES = [str(variant) for variant in [*VARIANTS, *PLACEBOS]]
ACTIVATIONS = pd.DataFrame(
    [
        {"layer": layer, "head": head, "output_norm": head + 1.0, "noise_norm": 4.0 + head}
        for layer in (1, 3, 4)
        for head in range(5)
    ]
).assign(share=0.1)
ACTIVATIONS.loc[ACTIVATIONS["head"] == 2, "share"] = 0.6


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


def made(z, placebos=PLACEBOS, names=VARIANTS):
    return controls(z, graded(z), names, placebos, noise=1e-3, seed=0)


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
    return made(z)


def overall(tables):
    gains = tables["gains"]
    return gains[gains["by"] == "overall"].set_index("layer")


def test_the_head_that_helps_and_the_one_that_ruins_are_named(found, z):
    counts = found["gains"].groupby("by").size()
    assert counts.to_dict() == {"overall": 3, "subject": 21, "level": 3 * z["level"].nunique()}
    assert list(helping(found["heads"])["variant"]) == ["L03H04"]
    assert hurting(found["heads"])["variant"].iloc[0] == "L04H02"
    assert overall(found).loc[3, "q"] < 0.01
    assert overall(found).loc[3, "low"] > 0
    assert overall(found).loc[1, "low"] < 0 < overall(found).loc[1, "high"]


def test_heads_are_tested_as_scipy_tests_them_and_placebos_are_not_among_them(found, z):
    assert found["heads"]["variant"].tolist() == NAMES[:16]
    row = found["heads"].set_index("variant").loc["L03H00"]
    difference = z["L03H00"] - z["base"]
    gained, lost = (difference == 1).sum(), (difference == -1).sum()
    assert (row["gained"], row["lost"]) == (gained, lost)
    assert row["gain"] == pytest.approx((gained - lost) / 153)
    assert row["p"] == pytest.approx(stats.binomtest(int(gained), int(gained + lost)).pvalue)
    fragile = found["heads"].set_index("variant")["fragile"]
    assert fragile[fragile > 0].to_dict() == {"L01H01": 1}


def test_ruinous_heads_do_not_pass_for_variance_of_the_others(found):
    spread = found["spread"].set_index("of")
    assert spread.loc[ALL, "heads"] == 15
    assert spread.loc[ALL, "component"] > 0.9 * spread.loc[ALL, "spread"]
    assert spread.loc[HARMLESS, "spread"] < 0.5 * spread.loc[ALL, "spread"]


def test_groups_too_small_to_split_have_no_held_out_gain(z):
    gains = made(z.head(20), [])["gains"]
    small = gains[gains["n"] < 4]
    assert len(small)
    assert small["held_out"].isna().all()
    assert gains.loc[:, "placebo":"numeric_q"].isna().all(axis=None)


def test_the_best_head_is_held_against_as_many_placebos_of_its_layer(found, z):
    gains = found["gains"].set_index(["group", "layer"])
    part = z[z["subject"] == "Geometry"]
    noise = [part[f"L03N0{head}"].mean() - part["base"].mean() for head in range(5)]
    assert gains.loc[("Geometry", 3), "placebo"] == pytest.approx(max(noise))
    of_heads = [part[f"L03H0{head}"].mean() - part["base"].mean() for head in range(5)]
    assert gains.loc[("Geometry", 3), "median"] == pytest.approx(sorted(of_heads)[2])
    assert overall(found).loc[3, "placebo_q"] < 0.01
    assert overall(found).loc[1, "placebo_q"] > 0.05
    fewer = made(z, [placebo for placebo in PLACEBOS if placebo.head != 2])["gains"]
    assert fewer.loc[:, "placebo":"placebo_q"].isna().all(axis=None)
    assert fewer["numeric"].notna().all()


def test_every_layer_is_held_against_the_same_numeric_placebos(z):
    """Numerics turn answers: only what no layer's placebos reach is beyond them."""
    moved = z.copy()
    turned = np.random.default_rng(5).random((len(z), 5)) < 0.05
    for placebo, column in zip(numeric(5), turned.T, strict=True):
        moved[str(placebo)] = np.where(column, 1 - z["base"], z["base"]).astype("int8")
    gains = overall(made(moved, numeric(5)))
    assert gains["placebo"].isna().all()
    best = max(moved[str(placebo)].mean() for placebo in numeric(5)) - z["base"].mean()
    assert gains["numeric"].tolist() == pytest.approx([best] * 3)
    assert gains.loc[3, "numeric_q"] < 0.01
    assert gains.loc[1, "numeric_q"] > 0.05


def write_tokens(file, questions, tokens):
    table = pd.DataFrame({"question_id": questions, "sample": 0, "text": "x", "margin": 0.1})
    table["token_ids"] = tokens
    write_table(file, table.assign(stop_reason="eos"), ANSWERS)


def test_failures_say_how_a_head_fails(found, z, tmp_path):
    file = tmp_path / "answers.parquet"
    looping = np.arange(len(z)) % 2 == 0
    write_tokens(
        file, z["question_id"], [[1, 2] * 30 if loop else list(range(60)) for loop in looping]
    )
    files = dict.fromkeys(NAMES, tmp_path / "gone.parquet") | {"L04H02": file}
    table = failures(found["heads"], graded(z), files, ACTIVATIONS).set_index("variant")
    assert table.index[:2].tolist() == ["base", "L04H02"]
    ruined = table.loc["L04H02"]
    assert ruined["no_answer"] == 1
    assert ruined["truncated"] == pytest.approx(0.25, abs=0.01)
    assert ruined["loops"] == pytest.approx(0.5, abs=0.01)
    assert ruined["mode"] == "loop"
    assert ruined["mode_share"] == pytest.approx(looping[z["base"] == 1].mean())
    assert (ruined["norm_share"], ruined["norm_rank"]) == (0.6, 1)
    assert table.loc["base", "loops":].drop("tokens").isna().all()


def test_without_tokens_the_mode_of_failure_comes_from_what_was_graded(found, z, tmp_path):
    gone = dict.fromkeys(NAMES, tmp_path / "gone.parquet")
    answers = graded(z)
    answers.loc[answers["variant"] == "L04H02", "stop_reason"] = "eos"
    table = failures(found["heads"], answers, gone, ACTIVATIONS).set_index("variant")
    assert table.loc["L04H02", ["mode", "mode_share"]].tolist() == ["no answer", 1]
    assert pd.isna(table.loc["L04H02", "loops"])


def test_placebos_and_heads_are_compared_by_what_they_change(z, tmp_path):
    answers = graded(z).assign(group=lambda table: 1 - table["correct"].astype(int))
    answers = answers[answers["question_id"].isin(z["question_id"][:40])]
    files = {name: tmp_path / f"{name}.parquet" for name in NAMES}
    for name, file in files.items():  # of two answers, these four differ in the second
        other = name in ("L01N00", "L01N03", "L03H02", "placebo02")
        write_tokens(file, ["a", "b"], [[1, 2, 3], [1, 9] if other else [1]])
    table = changes(answers, [*VARIANTS[1:], *PLACEBOS], files, ACTIVATIONS)
    assert list(table["kind"]) == ["head"] * 3 + ["noise"] * 3 + ["numeric"]
    assert list(table["answers"]) == [200] * 7
    assert list(table["changed"]) == pytest.approx([0, 0.1, 0, 0.2, 0, 0, 0.1])
    part = z[:40]
    turned = [(part[f"L03N0{head}"] != part["base"]).mean() for head in range(5)]
    assert table.loc[4, "outcome"] == table.loc[4, "final"] == pytest.approx(np.mean(turned))
    assert table.loc[6, ["final", "outcome", "gain", "best"]].eq(0).all()
    assert list(table["norm"])[:6] == pytest.approx([3, 3, 3, 6, 6, 6])
    files["base"].unlink()
    table = changes(answers, [*VARIANTS[1:], *PLACEBOS], files, ACTIVATIONS)
    assert table["changed"].isna().all()


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
    rows = simulation.simulated_z(5, [], np.random.default_rng(0))
    write_table(Store(config).of_sweep("demo"), rows[ACCURACY.names], ACCURACY)
    with pytest.raises(TableError, match=r"variants \['base', 'L00H00'.* are missing"):
        read_z(config, "demo")
