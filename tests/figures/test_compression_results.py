import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from latex_document import typeset

import simulated_trials
from headroom import paths
from headroom.analysis import latex
from headroom.analysis.compression.tables import COLUMNS, knee, printed, tables, warnings
from headroom.analysis.compression.trial import (
    BASELINE,
    RESAMPLES,
    accuracy,
    difference,
    mixtures_of,
    ratios_of,
    read_trial,
    savings,
)
from headroom.config.study import ARMS
from headroom.errors import TableError
from headroom.planning.exhibits import COMPRESSION_TABLES, PRINTED_TABLES
from headroom.statistics.bootstrap import SeedBootstrap


@pytest.fixture(scope="module")
def trial():
    return simulated_trials.trial(of_seed=0.05)


def small(shares, *, arms=("baseline", "full"), examples=40, **changes):
    """Return a trial of two seeds in which each arm solves the first examples, a share of all."""
    own = simulated_trials.study(
        arms=list(arms), variations=changes.pop("variations", {}), seeds=[4, 7], int8=[]
    )
    found = simulated_trials.trial(own, examples=examples, **changes)
    number = found.outcomes["example_id"].str[-3:].astype(int)
    share = found.outcomes["arm"].map(shares)
    found.outcomes["strict"] = number < examples * share
    return found


def test_accuracy_is_the_mean_over_seeds_and_examples(trial):
    rows = trial.outcomes.query("arm == 'full' and not quantised")
    by_seed = rows.groupby("seed")["strict"].mean()
    found = accuracy(trial, "full")
    assert (found["n"], found["seeds"]) == (240, 3)
    assert found["accuracy"] == pytest.approx(by_seed.mean())
    assert found["sd"] == pytest.approx(by_seed.std())
    assert found["low"] < found["accuracy"] < found["high"]
    assert found["lenient"] == pytest.approx(rows["lenient"].mean())
    eight = trial.outcomes.query("arm == 'full' and quantised")["strict"].mean()
    assert accuracy(trial, "full", quantised=True)["accuracy"] == pytest.approx(eight)


def test_a_change_is_paired_by_seed_and_example(trial):
    keys = ["seed", "example_id"]
    pruned, base = (
        trial.outcomes.query(f"arm == '{arm}' and not quantised").set_index(keys)["strict"]
        for arm in ("full", "baseline")
    )
    gone = (pruned.astype(float) - base.astype(float)).unstack("example_id")
    found = accuracy(trial, "full")
    assert found["change"] == pytest.approx(gone.to_numpy().mean())
    ends = SeedBootstrap(3, 240, RESAMPLES, trial.seed).interval(gone.to_numpy())
    assert (found["change_low"], found["change_high"]) == pytest.approx(ends)
    assert np.isnan(accuracy(trial, "baseline")["change"])
    assert not np.isnan(accuracy(trial, "baseline", quantised=True)["change"])


def test_strata_are_parts_of_the_whole(trial):
    parts = [accuracy(trial, "full", stratum=name) for name in ("low", "medium", "high")]
    sizes = [part["n"] for part in parts]
    assert sum(sizes) == 240
    assert len(set(sizes)) == 3
    mixed = np.average([part["accuracy"] for part in parts], weights=sizes)
    assert mixed == pytest.approx(accuracy(trial, "full")["accuracy"])


def test_arms_are_compared_where_both_were_tested():
    found = small({"baseline": 0.5, "full": 0.25})
    rows = found.outcomes
    kept = rows[(rows["arm"] != "full") | (rows["seed"] != 7)]
    gap = difference(replace(found, outcomes=kept), "full", "baseline")
    assert gap[0] == pytest.approx(-0.25)


def test_savings_state_a_speed_up_both_ways_and_hold_it_against_arithmetic(trial):
    found = savings(trial, "full")
    for size in ("small", "large"):
        assert (1 + found[f"faster_{size}"]) * (1 - found[f"saved_{size}"]) == pytest.approx(1)
        assert 0 < found[f"faster_{size}"] < found["speedup_at_most"]
    assert (found["small_batch"], found["large_batch"]) == (1, 32)
    assert (found["heads_removed"], found["heads"]) == (6, 24)
    held = 6 * (4 * 128 * 16 + 3 * 16)  # k (4 d d_h + 3 d_h)
    assert found["parameters_at_most"] == pytest.approx(held / simulated_trials.PARAMETERS)
    assert found["parameters_removed"] == pytest.approx(found["parameters_at_most"])
    assert found["whole_removed"] == pytest.approx(held / simulated_trials.whole(0))
    assert found["flops_removed"] == pytest.approx(0.06)
    assert found["peak_removed"] == pytest.approx(240_000 / 30_000_000)
    assert savings(trial, "full", quantised=True)["weight_removed"] > 0.6


def test_what_was_not_measured_is_empty():
    found = small({"baseline": 0.5, "full": 0.25})
    found = replace(found, measurements=found.measurements.query("arm == 'baseline'"))
    saved = savings(found, "full")
    assert saved["heads_removed"] == 6
    assert np.isnan(saved["faster_large"])


def test_families_of_arms_differ_in_one_setting(trial):
    assert list(ratios_of(trial)) == [0.1, 0.2, 0.25, 0.3, 0.4, 0.6]
    assert ratios_of(trial)[0.25] == "full"
    assert list(mixtures_of(trial, distilled=True).values()) == [
        "alpha_0",
        "alpha_03",
        "full",
        "alpha_07",
        "alpha_1",
    ]
    plain = mixtures_of(trial, distilled=False)
    assert (plain[0.0], plain[0.5], plain[1.0]) == (
        "without_norm",
        "pruning_only",
        "without_entropy",
    )


RATIOS = {f"ratio_{ratio}": {"ratio": ratio / 100} for ratio in (10, 40, 50)}


def test_no_knee_without_two_ratios_and_a_baseline():
    assert knee(small({"baseline": 0.5, "full": 0.4})) is None
    arms = ("pruning_only", "full")
    without = small({"pruning_only": 0.5, "full": 0.4}, arms=arms, variations=RATIOS)
    assert knee(without) is None


def test_trials_are_read_as_they_were_written(compressed, monkeypatch):
    monkeypatch.chdir(compressed[0])
    trial, wanted = read_trial(compressed[1], "asdiv"), simulated_trials.trial()
    own, other = trial.right(BASELINE), wanted.right(BASELINE)
    pd.testing.assert_frame_equal(own, other, check_index_type=False)
    assert trial.histories == wanted.histories
    assert trial.encoder == simulated_trials.ENCODER
    assert (trial.papers_data, trial.papers_model) == ("ASDiv-A", None)


def test_damaged_and_missing_histories_are_refused(compressed, monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    config = compressed[1]
    trial = simulated_trials.trial(config.compressions["lone"], name="lone", examples=7)
    simulated_trials.fill(config, [trial])
    file = Path(paths.HISTORIES.format(run=config.run, compression="lone"))
    file.write_text("{", encoding="utf-8")
    with pytest.raises(TableError, match=r"histories.json cannot be read"):
        read_trial(config, "lone")
    file.unlink()
    with pytest.raises(TableError, match=r"histories.json is missing"):
        read_trial(config, "lone")


@pytest.mark.parametrize(
    ("shares", "wanted"),
    [
        ({"ratio_10": 0.8, "full": 0.8, "ratio_40": 0.5, "ratio_50": 0.4}, [0.25] * 4),
        ({"ratio_10": 0.8, "full": 0.8, "ratio_40": 0.8, "ratio_50": 0.8}, [0.5] * 4),
        ({"ratio_10": 0.4, "full": 0.4, "ratio_40": 0.3, "ratio_50": 0.3}, [0.0] * 4),
        # A loss that intervals leave open is in the range.
        ({"ratio_10": 0.8, "full": 0.775}, [0.25, 0.1, 0.25, 0.1]),
    ],
)
def test_the_knee_is_the_last_ratio_before_a_loss_is_shown(shares, wanted):
    ratios = {name: own for name, own in RATIOS.items() if name in shares}
    assert list(knee(small({"baseline": 0.8, **shares}, variations=ratios)).values()) == wanted


def test_warnings_tell_of_lost_accuracy_time_and_unstable_training(trial):
    (text,) = warnings(small({"baseline": 0.5, "full": 0.45}), "full")
    assert "−5.0 points" in text
    assert "look at alpha" in text
    assert not list(warnings(small({"baseline": 0.5, "full": 0.5}), "full"))
    slow = small({"baseline": 0.5, "full": 0.5})
    table = slow.measurements
    base = table.loc[table["arm"] == "baseline", "seconds"].to_numpy()
    table.loc[table["arm"] == "full", "seconds"] = base / 0.98
    (text,) = warnings(slow, "full")
    assert "batch 1 (−2.0%)" in text
    assert "6 of 24 heads are gone, and 8.2% of the encoder's parameters" in text
    (text,) = [each for each in warnings(trial, "random") if "seed" in each]
    assert text.startswith("seed 1, 2: the loss rose in round 2")
    for history in slow.histories["full"].values():
        history["warnings"] = ["accuracy fell by 3.0 points; look at alpha, or lower the ratio"]
    assert len(list(warnings(slow, "full"))) == 1


def test_variations_stand_against_the_method():
    shares = {"baseline": 0.5, "full": 0.5, "reversed": 0.25, "literal": 0.75, "ratio_40": 0.1}
    changes = {
        "reversed": {"importance": {"entropy_sign": -1}},
        "literal": {"schedule": "literal", "importance": {"entropy": "raw", "scale": "raw"}},
        "ratio_40": {"ratio": 0.4},
    }
    found = small(shares, variations=changes)
    table = tables([found], printed(Path("config/published")))["variations"].set_index("arm")
    assert table.index.tolist() == ["full", "reversed", "literal"]
    assert table["changed"].tolist() == [
        "",
        "importance.entropy_sign: -1",
        "schedule: literal; importance.entropy: raw; importance.scale: raw",
    ]
    assert table["gap"].tolist()[1:] == pytest.approx([-0.25, 0.25])
    assert (table["gap_low"] <= table["gap"]).tolist()[1:] == [True, True]


def test_speed_is_told_at_every_length_and_batch(trial):
    table = tables([trial], printed(Path("config/published")))["speed"]
    rows = trial.measurements
    assert len(table) == len(rows) and set(table["tokens"]) == {40, 512}
    for arm in ("full", "ratio_60"):
        for tokens, batch in ((40, 32), (512, 1)):
            one, base = (
                rows.query(
                    f"arm == '{name}' and tokens == {tokens} and batch == {batch} and not quantised"
                )["seconds"].item()
                for name in (arm, BASELINE)
            )
            own = table.query(
                f"arm == '{arm}' and tokens == {tokens} and batch == {batch} and not quantised"
            )
            assert own["faster"].item() == pytest.approx(base / one - 1)


def test_tables_of_a_run_are_in_one_record(compressed):
    folder = compressed[0] / "results/compressed/tables"
    assert list(COLUMNS) == list(COMPRESSION_TABLES)
    made = {file.name for file in folder.glob("compression_*.*")} - {
        "compression_cost.csv.run.json"
    }
    assert made == {
        *(f"compression_{name}.csv" for name in COMPRESSION_TABLES),
        *(f"compression_{name}.tex" for name in PRINTED_TABLES),
    }
    facts = json.loads((folder / "compression_cost.csv.run.json").read_text(encoding="utf-8"))
    assert set(facts["files"]) == made
    assert len(facts["sources"]) == 6


PUBLISHED = Path(__file__).parents[2] / "config" / "published"


@pytest.fixture(scope="module")
def two():
    """Return two solvers on Math23k, the second larger and with one seed."""
    least = simulated_trials.study(
        solver="big", arms=["baseline", "full"], variations={}, seeds=[3], int8=[]
    )
    second = simulated_trials.trial(least, name="second", examples=53, papers_data="Math23k")
    for history in second.histories["baseline"].values():
        history["parameters"] *= 3
    return [simulated_trials.trial(papers_data="Math23k"), second]


@pytest.fixture(scope="module")
def made(two):
    return tables(two, printed(PUBLISHED))


def test_every_table_has_its_columns(made):
    assert list(made) == list(COLUMNS)
    for name, columns in COLUMNS.items():
        assert list(made[name].columns) == columns
        assert len(made[name])


def test_ratios_have_the_paper_s_numbers_beside(made):
    own = made["table1"].query("compression == 'asdiv'").set_index("ratio")
    assert list(own.index) == [0, 0.1, 0.2, 0.25, 0.3, 0.4, 0.6]
    printed = own.loc[0.3]
    assert printed["published_accuracy"] == pytest.approx(0.837)
    assert printed["published_change"] == pytest.approx(-0.007)
    assert printed["published_parameters"] == pytest.approx(0.187)
    assert printed["published_parameters_at_most"] == pytest.approx(0.068, abs=5e-4)
    assert printed["published_speedup"] == pytest.approx(0.275)
    assert printed["published_flops"] == pytest.approx(0.175)
    assert own.loc[[0.1, 0.4, 0.6], "published_accuracy"].isna().all()


def test_the_larger_of_two_solvers_stands_beside_the_paper_s_large_one(made):
    models = made["table2"].groupby("subject")["published_model"].unique().map(list)
    assert dict(models) == {"tiny": ["ATHENA-base"], "big": ["ATHENA-large"]}
    own = made["table2"].query("subject == 'big' and arm == 'full'").iloc[0]
    assert own["published_accuracy"] == pytest.approx(0.86)
    alike = [simulated_trials.trial(name=name, papers_data="Math23k") for name in ("a", "b")]
    assert set(tables(alike, printed(PUBLISHED))["table2"]["published_model"]) == {"ATHENA-base"}


def test_mixtures_stand_beside_table_3a_and_without_a_teacher_beside_table_4(made):
    own = made["table3a"].set_index(["distilled", "alpha"])["published_accuracy"]
    assert list(100 * own.loc[True]) == pytest.approx([83.1, 83.8, 84.0, 83.5, 71.2])
    assert list(100 * own.loc[False].dropna()) == pytest.approx([83.1, 83.6, 71.2])
    gaps = made["table3a"].set_index(["distilled", "alpha"])["gap"]
    assert gaps.isna().sum() == 2  # the method's own alpha, with and without


def test_strata_come_in_the_paper_s_order(made):
    own = made["table3b"].query("compression == 'asdiv'").set_index("stratum")
    assert list(own.index) == ["low", "medium", "high", "all"]
    assert list(100 * own["published_change"]) == pytest.approx([-0.3, -0.5, -0.7, -0.4])
    assert (own["accuracy"] - own["baseline"]).to_numpy() == pytest.approx(own["change"])


def test_the_ablation_lists_every_arm_once(made):
    own = made["table4"].query("compression == 'asdiv'").set_index("arm")
    assert list(own.index) == list(ARMS)
    assert list(own.index[own["published_accuracy"].isna()]) == [
        "joint_single_teacher",
        "small_from_scratch",
        "trained_on",
    ]
    assert own["gap"].isna().to_dict() == {name: name == "full" for name in ARMS}


def test_cost_counts_all_rounds_and_seeds(made):
    own = made["cost"].set_index(["compression", "arm"])
    full = own.loc[("asdiv", "full")]
    assert (full["seeds"], full["rounds"], full["epochs"], full["tokens"]) == (3, 4, 12, 36_000)
    assert full["seconds"] == pytest.approx(291)
    assert full["device_hours"] == pytest.approx(3 * 291 / 3600)
    assert "seed 1, 2: the loss rose" in own.loc[("asdiv", "random"), "warned"]


def test_eight_bits_are_shown_beside_none(made):
    own = made["quantisation"]
    assert list(zip(own["arm"], own["quantised"], strict=True)) == [
        ("baseline", False),
        ("baseline", True),
        ("full", False),
        ("full", True),
    ]


def test_a_run_with_one_arm_has_some_tables():
    own = simulated_trials.study(arms=["pruning_only"], variations={}, seeds=[5], int8=[])
    found = tables([simulated_trials.trial(own, examples=31)], printed(PUBLISHED))
    assert {name for name, table in found.items() if len(table)} == {"table4", "speed", "cost"}
    assert found["table4"]["change"].isna().all()
    for name, table in tables([], printed(PUBLISHED)).items():
        assert list(table.columns) == COLUMNS[name]


def test_latex_fits_the_page(made, tmp_path):
    typeset(tmp_path, *(latex.of_study(name, made[name]) for name in PRINTED_TABLES))
    text = latex.of_study("table4", made["table4"])
    assert r"distillation\_only" in text
    assert "no rows" in latex.of_study("table1", made["table1"].head(0))
