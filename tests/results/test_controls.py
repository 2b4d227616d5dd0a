import numpy as np
import pandas as pd
import pytest
from scipy import stats

import simulation
from headsweep.errors import TableError
from headsweep.files.safe_files import write_table
from headsweep.files.tables import ACCURACY, ANSWERS
from headsweep.page import blocks
from headsweep.page.sweep_tables import TABLES
from headsweep.results import truncation
from headsweep.results.changes import failures
from headsweep.results.facts import Source
from headsweep.results.gains import (
    _of_all_heads,
    cells,
    controls,
    head_tests,
    read_z,
    shown,
    shown_by_cut_answers,
)
from headsweep.statistics.intervals import Bootstrap, paired_interval, simultaneous
from headsweep.store.layout import Store
from headsweep.variants import BASE, Variant, heads, numeric

VARIANTS = [BASE, *heads([1, 3, 4], range(5))]
PLACEBOS = [*(Variant(each.layer, each.head, "noise") for each in VARIANTS[1:]), *numeric(5)]
NAMES = [str(variant) for variant in [*VARIANTS, *PLACEBOS]]
PLACES = [(layer, head, 0.6 if head == 2 else 0.1) for layer in (1, 3, 4) for head in range(5)]
ACTIVATIONS = pd.DataFrame(PLACES, columns=["layer", "head", "share"])


def graded(z):
    table = simulation.graded(z, NAMES)
    ruined = table["variant"] == "L04H02"
    table.loc[ruined, "answer"] = None
    table.loc[ruined & (table.index % 4 == 0), "stop_reason"] = "length"
    table.loc[table["variant"] == "L01H01", "margin"] = 0.0005
    return table


def made(z, placebos=PLACEBOS):
    return controls(z, graded(z), VARIANTS, placebos, noise=1e-3, seed=0)


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


def test_heads_that_help_or_ruin_are_named(found, z):
    counts = found["gains"].groupby("by").size()
    assert counts.to_dict() == {"overall": 3, "subject": 21, "level": 3 * z["level"].nunique()}
    assert found["heads"]["variant"].tolist() == NAMES[:16]  # no placebos
    assert list(shown(found["heads"], 1)["variant"]) == ["L03H04"]
    assert shown(found["heads"], -1)["variant"].iloc[0] == "L04H02"
    heads = found["heads"].set_index("variant")
    assert heads.index[heads["fragile"] > 0].tolist() == ["L01H01"]


def test_the_table_of_heads_has_the_mean_length_of_the_answers_of_each(z):
    table = graded(z)
    answer = table.groupby("variant").cumcount()
    table.loc[(table["variant"] == "L03H04") & (answer < 17), "tokens"] = 180  # the others: 90
    heads = controls(z, table, VARIANTS, [], noise=1e-3, seed=0)["heads"]
    lengths = heads.set_index("variant")["tokens"]
    assert lengths["L03H04"] == pytest.approx(100) and (lengths.drop("L03H04") == 90).all()
    (declared,) = (each for each in TABLES if each.table == "heads")
    (on_page,) = blocks.table(Source("heads.csv", heads), declared.columns)
    place = on_page.titles.index("tokens")
    said = {str(row[0]): str(row[place]) for row in on_page.rows}
    assert (said["base"], said["L03H04"]) == ("90", "100")


def test_the_best_head_is_held_against_as_many_placebos_of_its_layer(found, z):
    gains = found["gains"].set_index(["group", "layer"])
    part = z[z["subject"] == "Geometry"]
    noise = [part[f"L03N0{head}"].mean() - part["base"].mean() for head in range(5)]
    assert gains.loc[("Geometry", 3), "placebo"] == pytest.approx(max(noise))
    of_heads = [part[f"L03H0{head}"].mean() - part["base"].mean() for head in range(5)]
    assert gains.loc[("Geometry", 3), "median"] == pytest.approx(sorted(of_heads)[2])
    helped, other = gains.loc[("Overall", 3)], gains.loc[("Overall", 1)]
    assert max(helped["q"], helped["placebo_q"]) < 0.01 < helped["low"]
    assert other["low"] < 0 < other["high"] and other["placebo_q"] > 0.05
    fewer = made(z.head(20), [each for each in PLACEBOS if each.head != 2])["gains"]
    assert fewer.loc[:, "placebo":"placebo_q"].isna().all(axis=None)
    assert fewer["numeric"].notna().all()
    assert fewer.loc[fewer["n"] < 4, "held_out"].isna().all()  # too few to split


def test_the_band_of_a_head_picked_among_many_is_as_much_wider_as_holds_for_all_at_once():
    names = NAMES[1:16]
    z = simulation.simulated_z(120, NAMES[:16], np.random.default_rng(4))
    table = _of_all_heads(z, simulation.graded(z, NAMES[:16]), VARIANTS[1:], seed=3)
    differences = z[names].to_numpy() - z[["base"]].to_numpy()
    low, high = paired_interval(differences)
    wider = simultaneous(differences, Bootstrap(120, 4000, seed=3))
    assert wider > 1.2
    middle, half = (low + high) / 2, wider * (high - low) / 2
    assert table["band_low"].to_numpy() == pytest.approx(middle - half)
    assert table["band_high"].to_numpy() == pytest.approx(middle + half)


def test_a_gain_that_answers_cut_at_the_limit_make_is_not_shown():
    names = NAMES[:16]
    base = np.repeat([1, 0], [30, 30])
    z = pd.DataFrame({"question_id": [f"q{i:02}" for i in range(60)], "subject": None})
    z = z.assign(level=None, **dict.fromkeys(names, base))
    z.loc[30:49, ["L01H00", "L01H01", "L03H00"]] = 1  # twenty gained
    z.loc[0:19, "L04H00"] = 0  # twenty lost
    table = simulation.graded(z, names)
    place = table["question_id"].str[1:].astype(int)
    of = table["variant"]
    # Of what L01 and L03 gain, the base model's answers were cut, but for one; so were those of
    # L04H00 that are wrong.
    limit = (of == "base") & place.between(30, 48)
    limit |= (of == "L04H00") & (place < 20)
    # L01H01 has as many answers cut on what it loses.
    z.loc[0:18, "L01H01"] = 0
    limit |= (of == "L01H01") & (place < 19)
    table["correct"] = z.melt(value_vars=names)["value"].eq(1)  # in the same order
    table.loc[limit, "stop_reason"] = "length"
    heads = controls(z, table, VARIANTS, [], noise=1e-3, seed=0)["heads"].set_index("variant")
    assert heads.loc["L01H00", ["gain", "uncut_gain"]].tolist() == pytest.approx([20 / 60, 1 / 60])
    decides = heads["cut_decides"].eq(True)
    assert decides[decides].index.tolist() == ["L01H00", "L03H00", "L04H00"]
    assert shown(heads.reset_index(), 1).empty
    assert heads.loc["L01H01", ["gain", "uncut_gain"]].tolist() == pytest.approx([1 / 60, 1 / 60])
    # What never ends has no answer, and is not shown to hurt either.
    assert shown(heads.reset_index(), -1).empty
    for sign, names_of_sign in ((1, ["L01H00", "L03H00"]), (-1, ["L04H00"])):
        by_cut = shown_by_cut_answers(heads.reset_index(), sign)
        assert by_cut["variant"].tolist() == names_of_sign
    whole = table.assign(stop_reason="eos")
    kept = controls(z, whole, VARIANTS, [], noise=1e-3, seed=0)["heads"]
    assert shown(kept, 1)["variant"].tolist() == ["L01H00", "L03H00"]
    assert shown(kept, -1)["variant"].tolist() == ["L04H00"]
    assert kept["uncut_gain"].tolist()[1:] == pytest.approx(kept["gain"].tolist()[1:])


def test_a_gain_that_passes_the_corrected_test_only_with_cut_answers_is_doubtful():
    """Its own interval without them stays above zero, but it is the best of 24 heads."""
    differences = np.zeros((200, 24), int)
    differences[:22, 0] = 1
    differences[22:24, 0] = -1
    for head in range(1, 24):
        differences[30:33, head] = 1
        differences[40:44, head] = -1
    of_base = np.zeros((200, 1), bool)
    of_base[:12] = True  # twelve of the gains
    table = truncation.without_truncated(
        differences, of_base, np.zeros_like(differences, bool), 1.0
    )
    assert table.loc[0, "uncut_low"] > 0
    assert table["cut_decides"].tolist() == [True, *[False] * 23]
    alone = truncation.without_truncated(differences[:, :1], of_base, np.zeros((200, 1), bool), 1.0)
    assert not alone["cut_decides"].any()


def test_a_gain_that_is_not_told_from_zero_is_not_cut_answers_doing():
    differences = np.zeros((60, 1), int)
    differences[:5] = 1
    differences[5:8] = -1
    of_base = np.zeros((60, 1), bool)
    of_base[:4] = True  # four of the gains
    table = truncation.without_truncated(differences, of_base, np.zeros((60, 1), bool), 1.0)
    assert table["uncut_gain"].tolist() == pytest.approx([-2 / 60])
    assert not table["cut_decides"].any()


def test_a_gain_whose_band_over_all_heads_reaches_zero_without_cut_answers_is_doubtful():
    differences = np.zeros((200, 2), int)
    differences[:20, 0] = 1
    differences[20:23, 0] = -1
    of_base = np.zeros((200, 1), bool)
    of_base[:3] = True  # three of the gains
    for wider, doubtful in ((1.0, False), (1.6, True)):
        table = truncation.without_truncated(
            differences, of_base, np.zeros_like(differences, bool), wider
        )
        assert table["cut_decides"].tolist() == [doubtful, False]


@pytest.mark.parametrize(("layers", "hurting"), [(3, 10), (14, 80)])
def test_clear_harm_of_other_heads_makes_no_gain_easier_to_show(layers, hurting):
    """One of 24 or 112 heads gains 15 and loses 4 of 200 questions."""
    variants = [BASE, *heads(range(layers), range(8))]
    names = [str(variant) for variant in variants]
    base = np.repeat([[1], [0]], [120, 80], axis=0)
    z = pd.DataFrame(base.repeat(len(names), axis=1), columns=names)
    z[["question_id", "subject", "level"]] = [[place, None, None] for place in range(200)]
    gaining, harmful, others = names[1], names[2 : 2 + hurting], names[2 + hurting :]
    z.loc[120:134, gaining] = 1
    z.loc[0:3, gaining] = 0
    for place, name in enumerate(harmful):
        z.loc[place : place + 39, name] = 0
    for place, name in enumerate(others):
        z.loc[place : place + 2, name] = 0
        z.loc[130 + place : 132 + place, name] = 1
    table = head_tests(z, simulation.graded(z, names), variants, seed=0)
    assert table.set_index("variant").loc[gaining, "q"] < 0.05
    assert shown(table, 1).empty
    assert sorted(shown(table, -1)["variant"]) == harmful
    # Alone it would be shown.
    alone = head_tests(z, simulation.graded(z, names), variants[:2], seed=0)
    assert shown(alone, 1)["variant"].tolist() == [gaining]


def test_a_head_is_shown_only_where_test_and_band_both_say_so():
    table = pd.DataFrame({"variant": list("abcdef"), "gain": [0.1, 0.1, 0.1, -0.1, -0.1, 0.1]})
    table["adjusted"] = [0.01, 0.01, 0.05, 0.01, 0.01, np.nan]
    table["band_low"] = [0.01, 0.0, 0.01, -0.2, -0.2, np.nan]
    table["band_high"] = [0.2, 0.2, 0.2, -0.01, 0.0, np.nan]
    table["cut_decides"] = False
    assert shown(table, 1)["variant"].tolist() == ["a"]
    assert shown(table, -1)["variant"].tolist() == ["d"]


def test_failures_say_how_a_head_fails(found, z, tmp_path):
    looping = np.arange(len(z)) % 2 == 0
    answers = pd.DataFrame({"question_id": z["question_id"], "sample": 0, "text": "x"})
    answers["token_ids"] = [[1, 2] * 30 if loop else list(range(60)) for loop in looping]
    gone = dict.fromkeys(NAMES, tmp_path / "gone.parquet")
    files = gone | {"L04H02": tmp_path / "answers.parquet"}
    write_table(files["L04H02"], answers.assign(stop_reason="eos", margin=0.1), ANSWERS)
    table = failures(found["heads"], graded(z), files, ACTIVATIONS).set_index("variant")
    assert table.index[:2].tolist() == ["base", "L04H02"]
    ruined = table.loc["L04H02"]
    assert ruined[["no_answer", "mode", "norm_share", "norm_rank"]].tolist() == [1, "loop", 0.6, 1]
    assert ruined[["truncated", "loops"]].tolist() == pytest.approx([0.25, 0.5], abs=0.01)
    assert ruined["mode_share"] == pytest.approx(looping[z["base"] == 1].mean())
    assert table.loc["base", "loops":].drop("tokens").isna().all()
    whole = graded(z).assign(stop_reason="eos")
    ruined = failures(found["heads"], whole, gone, ACTIVATIONS).set_index("variant").loc["L04H02"]
    assert ruined[["loops", "mode", "mode_share"]].isna().all()  # they may all be loops


def test_cells_are_counted_and_tested_in_every_group_as_scipy_does(z):
    table = cells(z, VARIANTS)
    groups = {f"Level {level}": z["level"] == level for level in range(1, 6)}
    groups |= {subject: z["subject"] == subject for subject in simulation.SUBJECTS}
    groups["Overall"] = z["level"] > 0
    assert len(table) == len(groups) * len(VARIANTS)
    for row in table.itertuples():
        part = z[groups[row.group]]
        change = part[row.variant] - part["base"]
        gained, lost = int((change > 0).sum()), int((change < 0).sum())
        wanted = (len(part), part[row.variant].sum(), gained, lost)
        assert (row.n, row.correct, row.gained, row.lost) == wanted
        assert row.gain == pytest.approx(change.mean())
        p = stats.binomtest(gained, gained + lost).pvalue if gained + lost else 1.0
        assert row.p == pytest.approx(p) or row.variant == "base"
    base = table["variant"] == "base"
    assert table.loc[base, ["p", "q"]].isna().all(axis=None)
    subjects = table[(table["by"] == "subject") & ~base]
    assert subjects["q"].to_numpy() == pytest.approx(stats.false_discovery_control(subjects["p"]))
    assert set(cells(z.assign(subject=None, level=None), VARIANTS)["by"]) == {"overall"}


def test_a_missing_variant_is_named(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    config = simulation.demo()
    rows = simulation.simulated_z(5, [], np.random.default_rng(0))
    write_table(Store(config).of_sweep("demo"), rows[ACCURACY.columns], ACCURACY)
    with pytest.raises(TableError, match=r"variants \['base', 'L00H00'.* are missing"):
        read_z(Store(config), "demo")
