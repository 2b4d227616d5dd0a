import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

import simulated_trials
from headroom import paths
from headroom.analysis.compression.findings import knee, notices
from headroom.analysis.compression.tables import COLUMNS
from headroom.analysis.compression.trial import (
    BASELINE,
    RESAMPLES,
    accuracy,
    difference,
    difference_of_changes,
    mixtures_of,
    ratios_of,
    read_trial,
    savings,
)
from headroom.errors import TableError
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
    assert (gap.seeds, gap.n) == (1, 40)
    assert gap.value == pytest.approx(-0.25)


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


@pytest.mark.parametrize(
    ("shares", "wanted"),
    [
        ({"ratio_10": 0.8, "full": 0.8, "ratio_40": 0.5, "ratio_50": 0.4}, 0.25),
        ({"ratio_10": 0.8, "full": 0.8, "ratio_40": 0.8, "ratio_50": 0.8}, 0.5),
        ({"ratio_10": 0.4, "full": 0.4, "ratio_40": 0.3, "ratio_50": 0.3}, 0.0),
    ],
)
def test_the_knee_is_the_last_ratio_before_a_loss_is_shown(shares, wanted):
    found = knee(small({"baseline": 0.8, **shares}, variations=RATIOS))
    assert (found.ratio, found.low, found.high, found.safe) == (wanted,) * 4


def test_a_loss_that_intervals_leave_open_is_in_the_range_of_the_knee():
    found = knee(small({"baseline": 0.8, "ratio_10": 0.8, "full": 0.775}, variations={
        "ratio_10": {"ratio": 0.1}
    }))  # fmt: skip
    assert (found.ratio, found.safe) == (0.25, 0.1)
    assert (found.low, found.high) == (0.1, 0.25)


def test_no_knee_without_two_ratios_and_a_baseline():
    assert knee(small({"baseline": 0.5, "full": 0.4})) is None
    arms = ("pruning_only", "full")
    without = small({"pruning_only": 0.5, "full": 0.4}, arms=arms, variations=RATIOS)
    assert knee(without) is None


def test_the_larger_solver_is_compared_on_the_same_examples():
    first = small({"baseline": 0.5, "full": 0.4})
    second = small({"baseline": 0.75, "full": 0.7}, examples=40)
    assert difference_of_changes(first, second, "full").value == pytest.approx(0.05)


def test_tables_of_a_run_are_in_one_record(compressed):
    folder = compressed[0] / "results/compressed/tables"
    made = {file.name for file in folder.glob("compression_*.csv")}
    assert made == {f"compression_{name}.csv" for name in COLUMNS}
    (record,) = folder.glob("compression_*.run.json")
    facts = json.loads(record.read_text(encoding="utf-8"))
    assert len(facts["files"]) == 3 * len(COLUMNS)
    assert len(facts["sources"]) == 6


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


def of_kind(trial, kind):
    return {notice.arm: notice.text for notice in notices(trial) if notice.kind == kind}


def test_a_loss_of_accuracy_is_warned_of():
    found = of_kind(small({"baseline": 0.5, "full": 0.45}), "accuracy")
    assert list(found) == ["full"]
    assert "−5.0 points" in found["full"]
    assert "look at alpha" in found["full"]
    assert not of_kind(small({"baseline": 0.5, "full": 0.5}), "accuracy")


def slowed(faster, **columns):
    found = small({"baseline": 0.5, "full": 0.5})
    table = found.measurements
    own = table["arm"] == "full"
    base = table[table["arm"] == "baseline"]
    table.loc[own, "seconds"] = base["seconds"].to_numpy() / (1 + faster)
    for column, value in columns.items():
        table.loc[own, column] = value
    return of_kind(found, "speed")


def test_heads_whose_loss_saves_no_time_are_warned_of():
    (text,) = slowed(-0.02).values()
    assert "6 of 24 heads are gone: are heads really removed?" in text
    assert "batch 1 (−2.0%)" in text
    assert "fixed costs" in text
    assert not slowed(0.02)
    (zeroed,) = slowed(0.0, parameters=simulated_trials.PARAMETERS).values()
    assert "zeroed, not removed" in zeroed


def test_warnings_of_training_name_their_seeds(trial):
    found = of_kind(trial, "training")
    assert list(found) == ["random"]
    assert found["random"].startswith("seed 1, 2: the loss rose in round 2")


def test_the_development_part_s_warning_gives_way_to_the_test_part_s():
    found = small({"baseline": 0.5, "full": 0.5})
    for history in found.histories["full"].values():
        history["warnings"] = ["accuracy fell by 3.0 points; look at alpha, or lower the ratio"]
    assert not pd.Series([notice.kind for notice in notices(found)]).isin(["training"]).any()
