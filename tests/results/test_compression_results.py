from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

import simulated_studies
import simulation
from headsweep.config.experiments import ARMS, BASELINE, METHOD
from headsweep.results.compression_arms import (
    AGAINST_TRAINED,
    TEST_TIME,
    accuracy,
    mixtures_of,
    ratios_of,
    read_results,
    savings,
)
from headsweep.results.compression_tables import COLUMNS, knee, tables, warnings
from headsweep.results.published import conditions
from headsweep.statistics.intervals import SeedBootstrap
from headsweep.store.layout import Store
from headsweep.text import percentage, points
from simulation import PUBLISHED

ROOT = Path(__file__).parents[2]
RATIOS = {f"ratio_{ratio}": {"ratio": ratio / 100} for ratio in (10, 40, 50)}


@pytest.fixture(scope="module")
def results():
    return replace(simulated_studies.results(of_seed=0.05), seed=7)  # not the default


def small(shares, *, variations=RATIOS, examples=40):
    """Return results of two seeds in which each arm solves the first examples, a share of all."""
    variations = {name: own for name, own in variations.items() if name in shares}
    arms = [name for name in shares if name not in variations]
    own = simulated_studies.study(arms=arms, variations=variations, seeds=[4, 7], int8=[])
    found = simulated_studies.results(own, examples=examples)
    number = found.outcomes["example_id"].str[-3:].astype(int)
    found.outcomes["strict"] = number < examples * found.outcomes["arm"].map(shares)
    return found


def warned(results, arm):
    return list(warnings(results, {"arm": arm} | accuracy(results, arm) | savings(results, arm)))


def test_equal_outcomes_of_all_examples_have_an_interval():
    alike = accuracy(small({"baseline": 0.5, "full": 0.5}), "full")
    assert alike["change"] == 0
    assert alike["change_low"] == -alike["change_high"] < -0.02
    all_right = accuracy(small({"baseline": 0.5, "full": 1.0}), "full")
    assert (all_right["accuracy"], all_right["high"]) == (1, 1)
    assert 0.85 < all_right["low"] < 0.95  # Wilson's, of 40


def test_accuracy_and_its_paired_change_are_means_over_seeds_and_examples(results):
    keys = ["seed", "example_id"]
    rows = results.outcomes[~results.outcomes["quantised"]]
    pruned, base = (rows[rows["arm"] == arm].set_index(keys) for arm in ("full", "baseline"))
    by_seed = pruned.groupby("seed")["strict"].mean()
    gone = (pruned["strict"].astype(float) - base["strict"]).unstack("example_id").to_numpy()
    ends = SeedBootstrap(3, 240, 2000, results.seed).interval(gone)
    wanted = {"n": 240, "seeds": 3, "accuracy": by_seed.mean(), "sd": by_seed.std()}
    wanted |= {"lenient": pruned["lenient"].mean(), "change": gone.mean()}
    wanted |= {"change_low": ends[0], "change_high": ends[1]}
    found = accuracy(results, "full")
    assert found.pop("low") < found["accuracy"] < found.pop("high")
    longer = rows[rows["arm"] == "trained_on"].set_index(keys)
    trained = (pruned["strict"].astype(float) - longer["strict"]).unstack("example_id").to_numpy()
    ends = SeedBootstrap(3, 240, 2000, results.seed).interval(trained)
    wanted |= {"change_trained": trained.mean()}
    wanted |= {"change_trained_low": ends[0], "change_trained_high": ends[1]}
    assert found == pytest.approx(wanted)
    assert np.isnan(accuracy(results, "baseline")["change"])
    assert np.isnan(accuracy(results, "trained_on")["change_trained"])
    eight = results.outcomes.query("arm == 'baseline' and quantised")["strict"].mean()
    quantised = accuracy(results, "baseline", quantised=True)
    assert quantised["accuracy"] == pytest.approx(eight)
    assert not np.isnan(quantised["change"])
    # Arms are compared where both were tested.
    rows = results.outcomes.query("arm != 'full' or seed != 1")
    assert accuracy(replace(results, outcomes=rows), "full")["change"] == pytest.approx(
        gone[[0, 2]].mean()
    )


def test_savings_state_a_speed_up_both_ways_and_sizes_against_arithmetic(results):
    found = savings(results, "full")
    for faster, saved in (("faster_small", "saved_small"), ("faster_large", "saved_large")):
        assert (1 + found[faster]) * (1 - found[saved]) == pytest.approx(1)
        assert found[faster] > 0
    held = 6 * (4 * 128 * 16 + 3 * 16)  # k (4 d d_h + 3 d_h)
    share = held / simulated_studies.PARAMETERS
    wanted = {"heads_removed": 6, "heads": 24, "parameters_at_most": share}
    wanted |= {"parameters_removed": share, "whole_removed": held / simulated_studies.WHOLE}
    wanted |= {"flops_removed": 0.06, "peak_removed": 240_000 / 30_000_000}
    assert {name: found[name] for name in wanted} == pytest.approx(wanted)
    assert savings(results, "full", quantised=True)["weight_removed"] > 0.6
    part = replace(results, measurements=results.measurements.query("arm == 'baseline'"))
    assert savings(part, "full")["heads_removed"] == 6
    assert "faster_large" not in savings(part, "full")
    assert "parameters_removed" not in savings(part, "full")


def test_sizes_of_an_arm_that_was_not_measured_follow_from_one_that_was(results):
    measured = results.measurements
    part = replace(results, measurements=measured.query("arm in ['baseline', 'ratio_40']"))
    for arm, heads in (("ratio_10", 2), ("full", 6), ("ratio_60", 14), ("trained_on", 0)):
        assert arm in set(measured["arm"])
        whole, found = savings(results, arm), savings(part, arm)
        assert found["heads_removed"] == heads
        sizes = ("parameters_removed", "whole_removed", "flops_removed")
        assert [found[size] for size in sizes] == pytest.approx([whole[size] for size in sizes])
        assert "faster_large" in whole and "faster_large" not in found


def test_families_of_arms_differ_in_one_setting(results):
    ratios = {ratio / 100: f"ratio_{ratio}" for ratio in (10, 20, 25, 30, 40, 60)}
    assert list(ratios_of(results).items()) == list((ratios | {0.25: "full"}).items())
    mixed = ["alpha_00", "alpha_03", "full", "alpha_07", "alpha_010"]
    assert list(mixtures_of(results, distilled=True).values()) == mixed
    plain = ["without_norm", "plain_alpha_03", "pruning_only", "plain_alpha_07", "without_entropy"]
    assert list(mixtures_of(results, distilled=False).values()) == plain


@pytest.mark.parametrize(
    ("shares", "wanted"),
    [
        ({"ratio_10": 0.8, "full": 0.8, "ratio_40": 0.5, "ratio_50": 0.4}, [0.25] * 3),
        ({"ratio_10": 0.8, "full": 0.8, "ratio_40": 0.8, "ratio_50": 0.8}, [0.5] * 3),
        ({"ratio_10": 0.4, "full": 0.4, "ratio_40": 0.3, "ratio_50": 0.3}, [0.0] * 3),
        # A loss that resamples leave open is in the interval.
        ({"ratio_10": 0.8, "full": 0.775}, [0.1, 0.1, 0.25]),
        ({"full": 0.4}, []),  # one ratio has no knee
    ],
)
def test_the_knee_is_the_largest_ratio_without_a_notable_loss(shares, wanted):
    assert list(knee(small({"baseline": 0.8, **shares})).values()) == wanted


@pytest.mark.parametrize(("examples", "there"), [(1, False), (19, False), (20, True)])
def test_few_examples_have_no_interval(examples, there):
    shares = {"baseline": 0.5, "trained_on": 0.5, "full": 0.3, "ratio_10": 0.5}
    few = small(shares, examples=examples)
    found = pd.Series(accuracy(few, "full"))
    ends = [
        f"{name}{end}" for name in ("", "change_", "change_trained_") for end in ("low", "high")
    ]
    assert found[ends].notna().tolist() == [there] * 6
    assert found[["accuracy", "change", "change_trained"]].notna().all()
    assert bool(knee(few)) == there
    if examples > 1:
        (text,) = warned(few, "full")
        assert "nan" not in text and ("19 examples" in text) != there
    assert tables([few], conditions(PUBLISHED))["table4"]["gap_low"].notna().any() == there


def test_an_arm_that_lost_no_head_is_not_told_to_prune_less():
    shares = {"baseline": 0.5, "full": 0.3, "trained_on": 0.4, "random": 0.3}
    own = small(shares)
    for arm in shares:
        for history in own.histories[arm].values():
            history["warnings"] = []
    advice = {arm: " ".join(warned(own, arm)).partition("); ")[2] for arm in shares}
    assert advice == {
        "baseline": "",
        "full": "look at alpha, or lower the ratio",
        "trained_on": "no head was removed; train for fewer epochs, or lower learning_rate",
        "random": "lower the ratio",
    }


def test_warnings_tell_of_lost_accuracy_time_and_unstable_training(results):
    (text,) = warned(small({"baseline": 0.5, "full": 0.45}), "full")
    assert "−5.0 points against the original (" in text and "look at alpha" in text
    # Accuracy is spoken of as in the verdict: against as many steps with all heads.
    assert not warned(small({"baseline": 0.5, "full": 0.45, "trained_on": 0.45}), "full")
    (text,) = warned(small({"baseline": 0.5, "full": 0.45, "trained_on": 0.475}), "full")
    assert "−2.5 points against training as long (" in text
    slow = small({"baseline": 0.5, "full": 0.5})
    assert not warned(slow, "full")
    table = slow.measurements
    own = (table["arm"] == "full") & table["test_time"].notna()
    # Of a time whose interval is wide, or holds 1, nothing is said.
    for time, told in (((1.1, 1.02, 1.19), 0), ((1.02, 0.98, 1.06), 0), ((1.08, 1.04, 1.12), 1)):
        table.loc[own, list(TEST_TIME)] = time
        assert len(warned(slow, "full")) == told
    (text,) = warned(slow, "full")
    gone = "6 of 24 heads are gone, and 8.2% of the encoder's parameters"
    assert "1.08 of the original's time (1.04 to 1.12)" in text and gone in text
    (text,) = [each for each in warned(results, "random") if "seed" in each]
    assert text.startswith("seed 1, 2: the loss rose in round 2")


def test_trials_are_read_as_they_were_written(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    config, wanted = simulation.whole(), simulated_studies.results()
    simulated_studies.write(Store(config), wanted)
    results = read_results(Store(config), "asdiv")
    pd.testing.assert_frame_equal(results.outcomes[wanted.outcomes.columns], wanted.outcomes, False)
    for name in ("histories", "encoder", "papers_data", "papers_model"):
        assert getattr(results, name) == getattr(wanted, name)


def test_variations_stand_against_the_method():
    shares = {"baseline": 0.5, "full": 0.5, "reversed": 0.25, "literal": 0.75, "ratio_40": 0.1}
    changes = {
        "reversed": {"importance": {"entropy_sign": -1}},
        "literal": {"schedule": "literal", "importance": {"entropy": "raw", "scale": "raw"}},
        "ratio_40": {"ratio": 0.4},
    }
    found = small(shares, variations=changes)
    table = tables([found], conditions(PUBLISHED))["variations"]
    assert table[["arm", "changed"]].to_numpy().tolist() == [
        ["full", ""],
        ["reversed", "importance.entropy_sign: -1"],
        ["literal", "schedule: literal; importance.entropy: raw; importance.scale: raw"],
    ]
    assert table["gap"].tolist()[1:] == pytest.approx([-0.25, 0.25])


def test_speed_is_told_at_every_length_and_batch(made, results):
    table = made["speed"].query("compression == 'asdiv'")
    rows = results.measurements
    assert len(table) == len(rows) and set(table["tokens"]) == {40, 512}
    keys = ["arm", "quantised", "tokens", "batch"]
    seconds = rows.set_index(keys)["seconds"]
    for (arm, bits, *how), faster in table.set_index(keys)["faster"].items():
        wanted = seconds[BASELINE, False, *how] / seconds[arm, bits, *how] - 1
        assert faster == pytest.approx(wanted)


def test_the_paper_s_numbers_stand_beside_what_they_are_about(made):
    assert {name: list(table) for name, table in made.items() if len(table)} == COLUMNS
    ratios = made["table1"].query("compression == 'asdiv'").set_index("ratio")
    assert list(ratios.index) == [0, 0.1, 0.2, 0.25, 0.3, 0.4, 0.6]
    printed = ratios.loc[0.3].filter(like="published_").drop("published_model")
    assert printed.tolist() == pytest.approx([0.837, -0.007, 0.187, 0.068, 0.275, 0.175], abs=5e-4)
    assert ratios.loc[[0.1, 0.4, 0.6], "published_accuracy"].isna().all()
    models = made["table2"].groupby("subject")["published_model"].unique().map(list)
    assert dict(models) == {"tiny": ["ATHENA-base"], "big": ["ATHENA-large"]}  # the larger one
    full = made["table2"].query("subject == 'big' and arm == 'full'").iloc[0]
    assert full["published_accuracy"] == pytest.approx(0.86)
    mixtures = made["table3a"].set_index(["distilled", "alpha"])
    same = 100 * mixtures["published_accuracy"]
    assert list(same.loc[True]) == pytest.approx([83.1, 83.8, 84.0, 83.5, 71.2])
    assert list(same.loc[False].dropna()) == pytest.approx([83.1, 83.6, 71.2])  # Table 4
    assert mixtures["gap"].isna().sum() == 2  # the method's own alpha, with and without


def test_no_difference_between_arms_is_printed_twice_with_two_values(made):
    """Over all tables that have a difference; one minus the other is the reverse of the reverse."""
    printed = {}

    def hold(compression, arm, other, values):
        if other < arm:
            arm, other = other, arm
            values = -values[0], -values[2], -values[1]
        known = printed.setdefault((compression, arm, other), values)
        assert known == pytest.approx(values, abs=1e-9, nan_ok=True), (arm, other)

    of_column = {"change": BASELINE, "change_trained": "trained_on"}
    of_table = {"table4": {"gap": METHOD}, "variations": {"gap": METHOD}}
    for name, table in made.items():
        differences = of_column | of_table.get(name, {})
        rows = table.query("stratum == 'all'") if name == "table3b" else table
        for row in rows.to_dict("records"):
            bits = ", 8 bits" if row.get("quantised") is True else ""
            for column, other in differences.items():
                values = [row.get(f"{column}{end}", np.nan) for end in ("", "_low", "_high")]
                if not np.isnan(values[0]):
                    hold(row["compression"], row["arm"] + bits, other, values)
    assert ("asdiv", METHOD, "trained_on") in printed
    assert len(printed) > 40


def test_strata_and_arms_come_in_the_paper_s_order_and_costs_count_all_rounds_and_seeds(made):
    own = made["table3b"].query("compression == 'asdiv'").set_index("stratum")
    assert list(own.index) == ["low", "medium", "high", "all"]
    assert list(100 * own["published_change"]) == pytest.approx([-0.3, -0.5, -0.7, -0.4])
    assert (own["accuracy"] - own["baseline"]).to_numpy() == pytest.approx(own["change"])
    sizes = own["n"].tolist()
    assert (sum(sizes[:3]), len(set(sizes))) == (240, 4)
    mixed = np.average(own["accuracy"].iloc[:3], weights=sizes[:3])
    assert mixed == pytest.approx(own.loc["all", "accuracy"])
    own = made["table4"].query("compression == 'asdiv'").set_index("arm")
    assert own["gap"].isna().to_dict() == {name: name == "full" for name in ARMS}
    ours = ["joint_single_teacher", "small_from_scratch", "trained_on"]
    assert list(own.index[own["published_accuracy"].isna()]) == ours
    own = made["cost"].query("compression == 'asdiv'").set_index("arm")
    of_full = own.loc["full", "seeds":"device_hours"].tolist()
    assert of_full == pytest.approx([3, 4, 12, 36_000, 291, 3 * 291 / 3600])
    assert "seed 1, 2: the loss rose" in own.loc["random", "warned"]
    bits = made["quantisation"][["arm", "quantised"]].to_numpy().tolist()
    assert bits == [[arm, bits] for arm in ("baseline", "full") for bits in (False, True)]


def test_a_run_with_one_arm_has_some_tables():
    own = simulated_studies.study(arms=["pruning_only"], variations={}, seeds=[5], int8=[])
    found = tables([simulated_studies.results(own, examples=31)], conditions(PUBLISHED))
    assert {name for name, table in found.items() if len(table)} == {"table4", "speed", "cost"}
    assert found["table4"]["change"].isna().all()


def test_what_the_configs_page_says_of_asdiv_stands_in_the_gallery():
    table = pd.read_csv(ROOT / "results/gallery/asdiv/table4.csv").set_index("arm")
    assert set(table["n"]) == {238} and set(table["seeds"]) == {3}
    said = " ".join((ROOT / "config/README.md").read_text(encoding="utf-8").split())
    for arm in ("baseline", "trained_on", "full"):
        assert f"{100 * table['accuracy'][arm]:.1f} ± {100 * table['sd'][arm]:.1f}%" in said
    pruned, alone, drawn = (table.loc[arm] for arm in ("full", "pruning_only", "random"))
    lost = f"{percentage(-pruned['change_trained'])} points less than trained on as long "
    least, most = (percentage(-pruned[f"change_trained_{end}"]) for end in ("high", "low"))
    lost += f"({least} to {most})"
    value, low, high = (points(alone[name]) for name in AGAINST_TRAINED)
    kept = f"({value}, {low} to {high})"
    gap, low, high = (percentage(alone[name]) for name in ("gap", "gap_low", "gap_high"))
    worse = f"by {gap} points ({low} to {high})"
    value, low, high = (points(drawn[name]) for name in ("gap", "gap_low", "gap_high"))
    chance = f"({value}, {low} to {high})"
    share = f"hold {100 * pruned['parameters_removed']:.1f}% of the encoder's parameters"
    for each in (lost, kept, worse, chance, share):
        assert each in said, each
