from pathlib import Path

import pytest
from latex_document import typeset

import simulated_trials
from headroom.analysis.compression.sheets import sheet_of
from headroom.analysis.compression.tables import COLUMNS, exhibits, printed
from headroom.analysis.sheet import read_csv, write_sheets
from headroom.config.study import ARMS

PUBLISHED = Path(__file__).parents[2] / "config" / "published"


@pytest.fixture(scope="module")
def beside():
    return printed(PUBLISHED)


@pytest.fixture(scope="module")
def trials():
    """Return two solvers on Math23k, the second larger and with one seed."""
    least = simulated_trials.study(
        solver="big", arms=["baseline", "full"], variations={}, seeds=[3], int8=[]
    )
    second = simulated_trials.trial(least, name="second", examples=53, papers_data="Math23k")
    for history in second.histories["baseline"].values():
        history["parameters"] *= 3
    return [simulated_trials.trial(papers_data="Math23k"), second]


@pytest.fixture(scope="module")
def tables(trials, beside):
    return exhibits(trials, beside)


def test_every_table_has_its_columns(tables):
    assert list(tables) == list(COLUMNS)
    for name, columns in COLUMNS.items():
        assert list(tables[name].columns) == columns
        assert len(tables[name])


def test_ratios_have_the_paper_s_numbers_beside(tables):
    own = tables["table1"].query("compression == 'asdiv'").set_index("ratio")
    assert list(own.index) == [0, 0.1, 0.2, 0.25, 0.3, 0.4, 0.6]
    printed = own.loc[0.3]
    assert printed["published_accuracy"] == pytest.approx(0.837)
    assert printed["published_change"] == pytest.approx(-0.007)
    assert printed["published_parameters"] == pytest.approx(0.187)
    assert printed["published_parameters_at_most"] == pytest.approx(0.068, abs=5e-4)
    assert printed["published_speedup"] == pytest.approx(0.275)
    assert printed["published_flops"] == pytest.approx(0.175)
    assert own.loc[[0.1, 0.4, 0.6], "published_accuracy"].isna().all()


def test_the_larger_of_two_solvers_stands_beside_the_paper_s_large_one(tables, beside):
    models = tables["table2"].groupby("subject")["published_model"].unique().map(list)
    assert dict(models) == {"tiny": ["ATHENA-base"], "big": ["ATHENA-large"]}
    printed = tables["table2"].query("subject == 'big' and arm == 'full'").iloc[0]
    assert printed["published_accuracy"] == pytest.approx(0.86)
    alike = [simulated_trials.trial(name=name, papers_data="Math23k") for name in ("a", "b")]
    assert set(exhibits(alike, beside)["table2"]["published_model"]) == {"ATHENA-base"}


def test_mixtures_stand_beside_table_3a_and_without_a_teacher_beside_table_4(tables):
    own = tables["table3a"].set_index(["distilled", "alpha"])["published_accuracy"]
    assert list(100 * own.loc[True]) == pytest.approx([83.1, 83.8, 84.0, 83.5, 71.2])
    assert list(100 * own.loc[False].dropna()) == pytest.approx([83.1, 83.6, 71.2])
    gaps = tables["table3a"].set_index(["distilled", "alpha"])["gap"]
    assert gaps.isna().sum() == 2  # the method's own alpha, with and without


def test_strata_come_in_the_paper_s_order(tables):
    own = tables["table3b"].query("compression == 'asdiv'").set_index("stratum")
    assert list(own.index) == ["low", "medium", "high", "all"]
    assert list(100 * own["published_change"]) == pytest.approx([-0.3, -0.5, -0.7, -0.4])
    assert (own["accuracy"] - own["baseline"]).to_numpy() == pytest.approx(own["change"])


def test_the_ablation_lists_every_arm_once(tables):
    own = tables["table4"].query("compression == 'asdiv'").set_index("arm")
    assert list(own.index) == list(ARMS)
    assert list(own.index[own["published_accuracy"].isna()]) == [
        "joint_single_teacher",
        "small_from_scratch",
        "trained_on",
    ]
    assert own["gap"].isna().to_dict() == {name: name == "full" for name in ARMS}


def test_cost_counts_all_rounds_and_seeds(tables):
    own = tables["cost"].set_index(["compression", "arm"])
    full = own.loc[("asdiv", "full")]
    assert (full["seeds"], full["rounds"], full["epochs"], full["tokens"]) == (3, 4, 12, 36_000)
    assert full["seconds"] == pytest.approx(291)
    assert full["device_hours"] == pytest.approx(3 * 291 / 3600)
    assert "seed 1, 2: the loss rose" in own.loc[("asdiv", "random"), "warned"]


def test_eight_bits_are_shown_beside_none(tables):
    own = tables["quantisation"]
    assert list(zip(own["arm"], own["quantised"], strict=True)) == [
        ("baseline", False),
        ("baseline", True),
        ("full", False),
        ("full", True),
    ]


def test_a_table_is_shown_alike_from_its_csv(tables, trials, tmp_path):
    for name, table in tables.items():
        template = str(tmp_path / f"{name}.{{suffix}}")
        sheet = sheet_of(name, table, trials)
        write_sheets(template, {"": sheet}, table)
        again = read_csv(tmp_path / f"{name}.csv", COLUMNS[name])
        assert sheet_of(name, again, trials).rows == sheet.rows
        assert "asdiv: tiny on asdiv_a, 240 test examples, 3 seeds" in sheet.caption


def test_one_seed_is_said_and_has_no_spread(tables, trials):
    text = sheet_of("table1", tables["table1"], trials).markdown()
    first, second = (
        [line for line in text.splitlines() if line.startswith(f"| {name}")]
        for name in ("asdiv", "second")
    )
    assert all("±" in line for line in first)
    assert not any("±" in line for line in second)
    assert "53 test examples, one seed" in text


def test_latex_fits_the_page(tables, trials, tmp_path):
    sheets = [sheet_of(name, table, trials) for name, table in tables.items()]
    sheets.append(sheet_of("knee", tables["knee"].head(0), trials))
    typeset(tmp_path, *(sheet.latex() for sheet in sheets))


def test_what_a_run_has_not_is_a_sentence(beside):
    for name, table in exhibits([], beside).items():
        assert list(table.columns) == COLUMNS[name]
        text = sheet_of(name, table, []).markdown()
        assert text.endswith(".\n")
        assert "|" not in text


def test_a_run_with_one_arm_has_some_tables(beside):
    own = simulated_trials.study(arms=["pruning_only"], variations={}, seeds=[5], int8=[])
    found = exhibits([simulated_trials.trial(own, examples=31)], beside)
    assert {name for name, table in found.items() if len(table)} == {"table4", "cost"}
    assert found["table4"]["change"].isna().all()


def test_names_with_markup_stay_text(beside):
    hostile = "a|b <script>alert(1)</script> $x_1$"
    found = simulated_trials.trial(data=hostile)
    found.outcomes["stratum"] = hostile
    sheet = sheet_of("table3b", exhibits([found], beside)["table3b"], [found])
    assert "<script>" not in sheet.markdown()
    assert "a\\|b &lt;script&gt;" in sheet.markdown()
    assert r"\textless{}script\textgreater{}" in sheet.latex()
