"""What sections of the page say and draw, by a simulated run's tables."""

import math
import re

import numpy as np
import pandas as pd
import pytest
from scenes import change, family, outcome, short_curves
from scipy.stats import norm

from headsweep.config import parse
from headsweep.config.titles import title
from headsweep.experiments.sprint.methods import is_sampling
from headsweep.files import paths
from headsweep.files.record import rewrite_checksums
from headsweep.files.safe_files import write_table
from headsweep.files.tables import CURVES
from headsweep.page.blocks import Section, fill
from headsweep.page.sections import families, first_figure, luck
from headsweep.page.svg import Scale
from headsweep.results.comparisons import rival
from headsweep.results.facts import FORMS, Source
from headsweep.statistics.power import questions_for
from headsweep.store.layout import Store


def test_heads_at_random_are_compared_at_the_largest_number_of_answers_that_they_have(config):
    found = short_curves(config, 4)
    assert rival(Store(found), "one") == ("random heads", 4, 1, 16)
    assert str(outcome(found, "sampling").effect).startswith("4 answers, random heads: ")
    # Its line ends there; all others are shown with all their answers.
    for chart in first_figure(Store(found), "one").values():
        assert "with 16 answers SPRINT 84.0%, random heads 69.5% with 4, greedy" in chart
    fill(Store(found), section := Section("sampling", ""))
    paired = section.blocks[0]
    assert "SPRINT's 16 answers minus each method's (random heads: 4 each), " in paired.caption
    leads = {row[0]: str(row[2]).split()[0] for row in paired.rows}
    assert len(leads) == len(paired.rows) == 5
    assert (leads["random heads"], leads["greedy cover"]) == ("+3.5", "−1.0")


def test_the_first_figure_has_room_for_every_curve_and_bands_of_sprint_and_its_rival(config):
    file = Store(config).path(CURVES, selector="one")
    curves = Source.read(Store(config), CURVES, selector="one").rows
    beyond = curves["pass_at_n"].where(curves["method"] != "greedy cover", 0.02 + curves["n"] / 500)
    write_table(file, curves.assign(pass_at_n=beyond), CURVES, {"test_questions": 200})
    rewrite_checksums(file)
    for chart in first_figure(Store(config), "one").values():
        heights = [float(y) for y in re.findall(r'class="dot s2" cx="\S+" cy="([\d.]+)"', chart)]
        assert len(heights) == 16 and len({*heights}) == 16 and max(heights) < 300
        assert re.findall(r'class="(band s\d)"', chart) == ["band s0", "band s1"]
    unsampled = curves[~curves["method"].map(is_sampling)].reset_index(drop=True)
    write_table(file, unsampled, CURVES, {"test_questions": 200})
    rewrite_checksums(file)
    assert rival(Store(config), "one").method == ""
    for chart in first_figure(Store(config), "one").values():
        assert re.findall(r'class="(band s\d)"', chart) == ["band s0"]


def test_the_page_says_how_many_questions_a_small_gain_would_take(config):
    heads = Source.read(Store(config), paths.CONTROLS, sweep="demo", table="heads")
    changed = ((heads.rows["gained"] + heads.rows["lost"]) / 200)[1:].median()
    luck(Store(config), section := Section("luck", ""))
    needed = f"{questions_for(0.02, changed, 24):,}"
    assert f"a gain of 2 points with {needed} questions" in str(section.lead[-1])


def test_luck_is_that_of_the_best_heads_of_layers(config):
    path = Store(config).path(paths.CONTROLS, sweep="demo", table="gains")
    gains = pd.read_csv(path)
    assert {*gains["by"]} == {"overall", "subject", "level"}
    luck(Store(config), section := Section("luck", ""))
    mean = gains.loc[gains["by"] == "overall", "gain"].mean()
    wanted = f"The best head of a layer gains {FORMS['points'](mean)} points on average (layers: 3)"
    assert wanted in str(section.lead[0])
    assert str(section.lead[0]).endswith("None pass the corrected test.")
    # What passes is what the verdict says, not the false discovery rate of layers.
    heads = Source.read(Store(config), paths.CONTROLS, sweep="demo", table="heads").rows
    best = heads["gain"] == heads.groupby("layer")["gain"].transform("max")
    for layer, lows, told in ((2, 0.01, "1 pass"), (2, 0.0, "None pass"), (-1, 0.01, "None pass")):
        passing = {"band_low": np.where(best & (heads["layer"] == layer), lows, -0.1)}
        change(config, paths.CONTROLS, {"adjusted": 0.01} | passing, sweep="demo", table="heads")
        luck(Store(config), again := Section("luck", ""))
        assert f" {told} the corrected test." in str(again.lead[0])
    gains.assign(heads=1).to_csv(path, index=False)
    rewrite_checksums(path)
    luck(Store(config), alone := Section("luck", ""))
    assert len(alone.lead) == len(section.lead) - 1  # a single head is nobody's best


@pytest.mark.parametrize(("adjusted", "p", "tests"), [(1.0, 0.5, 4), (0.02, 0.006, 3)])
def test_the_verdict_on_families_has_the_interval_that_its_correction_gives(
    config, adjusted, p, tests
):
    found = family(config, adjusted)
    found = found.model_copy(update={"frontiers": {"one": found.frontiers["one"]}})
    file = Store(found).path(paths.FRONTIER, frontier="one", table="paired")
    row = pd.read_csv(file)
    others = [{"outcome": "majority", "p": 0.9}, {"family": "noise", "p": 0.001}]
    others.append({"family": "noise", "outcome": "majority", "p": 0.9})
    # Of another list, which is corrected for itself.
    others.append({"versus": "noise", "p": 0.9})
    pd.concat([row.assign(p=p), *(row.assign(**other) for other in others)]).to_csv(file)
    rewrite_checksums(file)
    half = 2 * norm.ppf(1 - 0.025 / tests) / norm.ppf(0.975)
    assert f": +3.0 ({3 - half:+.1f} to {3 + half:+.1f}) points.".replace("-", "−") in str(
        outcome(found, "families")
    )


def test_that_no_number_of_tokens_is_reached_by_all_is_said(config):
    for sampling, adjusted, said in ((["T0.6"], math.nan, 1), (["T0.6"], 0.1, 0), ([], 0.1, 0)):
        found = family(config, adjusted)
        one = found.frontiers["one"].model_copy(update={"sampling": tuple(sampling)})
        found = found.model_copy(update={"frontiers": {"one": one}})
        families(Store(found), section := Section("families", ""))
        assert str(section.lead[0]).endswith("raise max_n.") == said


def test_titles_and_sprint_s_rival_are_what_the_config_names(config):
    values = config.model_dump(mode="json")
    one = values["selectors"]["one"]
    wanted = {None: "sampling T=0.9", "T0.6": "sampling T=0.6", "greedy cover": "greedy cover"}
    for versus, method in wanted.items():
        one["versus"] = versus
        assert rival(Store(found := parse(values)), "one")[:2] == (method, 16)
    assert "the other method" in outcome(found, "sampling").answer
    assert [title(config, "selectors", name) for name in ("one", "two")] == ["MATH-like"] * 2
    values["questions"]["math_test"]["title"] = "Sums"
    values["selectors"]["two"]["title"] = "By question"
    titles = [title(parse(values), "selectors", name) for name in ("one", "two")]
    assert titles == ["Sums", "By question"]


@pytest.mark.parametrize(
    ("values", "limit"),
    [([], math.inf), ([0.0], math.inf), ([math.nan, -3.0], math.inf), ([2.0, 7.0], 5.0)],
)
def test_a_scale_holds_zero_and_its_values_up_to_the_limit(values, limit):
    scale = Scale.over(values, limit)
    places = [scale.share(max(-limit, min(limit, each))) for each in (0.0, *values) if each == each]
    assert all(0 <= place <= 100 for place in places)
    assert scale.low < scale.high
    # A single point lies at the start of its axis.
    assert Scale(1, 1, log=True).share(1) == Scale(7, 7).share(7) == 0


def test_what_has_no_place_on_a_logarithmic_axis_lies_at_its_start():
    scale = Scale.doublings([0.0, 4.0, 1.0, 16.0])
    assert [scale.share(each) for each in (0, 1, 4, 16)] == [0, 0, 50, 100]
    assert Scale.doublings([0.0]).share(0.0) == 0
