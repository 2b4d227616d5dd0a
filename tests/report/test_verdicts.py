import math
import re
import shutil
from contextlib import chdir
from itertools import product

import numpy as np
import pandas as pd
import pytest
from scipy.stats import binom, norm, t

import simulated_studies
import simulation
from headsweep import paths
from headsweep.analysis import jobs
from headsweep.analysis.advice import of_selector
from headsweep.analysis.comparisons import Comparison, Together, rival, with_rivals
from headsweep.analysis.facts import FORMS, Sentence, Source
from headsweep.analysis.gains import read_z
from headsweep.analysis.map_verdicts import _ranks
from headsweep.analysis.power_sentences import difference_seen
from headsweep.analysis.truncation import note
from headsweep.analysis.verdicts import verdicts
from headsweep.config import parse
from headsweep.planning.store import Store
from headsweep.planning.titles import title
from headsweep.record import Stopwatch, record_path, rewrite_checksums, write_record
from headsweep.report.blocks import Section, fill
from headsweep.report.compressions import compression
from headsweep.report.page_tables import PAGE_TABLES
from headsweep.report.sections import first_figure, luck
from headsweep.report.svg import Scale
from headsweep.safe_files import write_csv, write_table
from headsweep.sprint.methods import is_sampling
from headsweep.statistics.power import questions_for, smallest_difference, smallest_gain
from headsweep.tables import ACCURACY, CURVES, GRADED


@pytest.fixture(scope="module")
def once(tmp_path_factory):
    """Return the folder and the config of a run that is filled once for all tests."""
    with chdir(folder := tmp_path_factory.mktemp("run")):
        config = filled()
    return folder, config


@pytest.fixture
def config(once, enter_copy):
    folder, config = once
    enter_copy(folder)
    return config


def filled():
    values = simulation.DEMO | {"comparisons": {}}
    values["selectors"] = dict.fromkeys(("one", "two"), values["selectors"]["math"])
    config = parse(values)
    simulation.fill(config)
    jobs.write_controls(config, "demo")
    audit = pd.DataFrame({"pairs": [100], "beyond": 5, "luck": 2.7, "luck_high": 7, "p": 0.2})
    write_csv(Store(config).path(paths.AUDIT_TABLE, paper="total"), audit)
    return config


def outcome(config, section):
    return next(each for each in verdicts(config) if each.section == section)


_ENDS = ("low", "high")


def change(config, template, changes, **names):
    path = Store(config).path(template, **names)
    pd.read_csv(path).assign(**changes).to_csv(path, index=False)
    rewrite_checksums(path)


def test_a_gain_made_of_answers_cut_at_the_limit_is_told_and_not_counted(config):
    # As a real model at 160 tokens: 24 questions, 10 right; a head right on six whose answers
    # by the base model were cut. At 256 tokens there is no gain.
    variants = list(map(str, read_z(config, "demo")[1]))
    z = pd.DataFrame({"question_id": [f"q{i:02}" for i in range(24)], "level": None})
    base = np.repeat(np.int8([1, 0]), [10, 14])
    z = z.assign(subject=None, **dict.fromkeys(variants, base)).astype({"level": "Int8"})
    z.loc[10:15, "L02H03"] = 1
    answers = simulation.graded(z, variants).assign(sample=0)
    z["subject"] = z["subject"].astype("string")
    of_base = (answers["variant"] == "base") & answers["question_id"].between("q10", "q18")
    for cut, wanted in (
        (True, "! No head is shown to help when lost"),
        (False, "– No head is shown to help when lost"),
    ):
        answers["stop_reason"] = np.where(of_base & cut, "length", "eos")
        store = Store(config)
        write_table(store.of_sweep("demo"), z, ACCURACY)
        write_table(store.of_sweep("demo", GRADED), answers, GRADED)
        placebos = config.sweeps["demo"].model_copy(update={"placebos": "none"})
        bare = config.model_copy(update={"sweeps": {"demo": placebos}, "selectors": {}})
        jobs.write_controls(bare, "demo")
        jobs.write_tables(bare, "demo", simulation.PUBLISHED)
        found = outcome(bare, "heads")
        assert f"{found.mark} {found.answer}" == wanted
        assert "Best of 24: +25.0 (" in str(found.effect)
        told = "Answers cut at 2,048 tokens may make it: 0.0 without them."
        assert str(found).endswith(told) == cut  # a run's last lines say it, too
        table = Source.read(config, paths.TABLE, sweep="demo").rows
        assert bool(note(table)) == cut


ENDS = {
    "▲": " questions. If answers can be checked, choose heads there.",
    "▼": " questions. If answers can be checked, sample.",
    "–": " points would likely show.",
    "!": " questions. Neither is better throughout.",
}
LEADS = [
    ((-0.1, -0.02), (-0.1, 0.02), "▼ Sampling beats choosing heads on 1 of 2"),
    ((-0.1, -0.02), (-0.2, -0.1), "▼ Sampling beats choosing heads on 2 of 2"),
    ((0.02, 0.2), (-0.1, 0.1), "▲ Choosing heads beats sampling on 1 of 2"),
    # Of two entries, one that alone leaves out zero by so little is not shown.
    ((0.01, 0.2), (-0.1, 0.1), "– Choosing heads is not shown to beat sampling"),
    ((-0.1, 0.1), (-0.1, 0.1), "– Choosing heads is not shown to beat sampling"),
    ((0.01, 0.2), (-0.2, -0.1), "! Choosing heads beats sampling on 1, worse on 1"),
]


def lead(low, high, **more):
    """Return a difference in the middle of an interval, with its normal p-value."""
    middle, half = (low + high) / 2, (high - low) / 2
    p = 2 * norm.sf(norm.ppf(0.975) * abs(middle) / half)
    return {"difference": middle, "low": low, "high": high, "p": p, **more}


def compared(*rows, picked_of=1):
    sources = [Source("a.csv", pd.DataFrame([row])) for row in rows]
    return Together([Comparison("", source, picked_of) for source in sources])


def test_of_several_entries_without_an_effect_one_is_named_in_no_more_than_5_percent():
    draw, named, alone = np.random.default_rng(6), 0, 0
    draws, errors = 1500, np.array([0.01, 0.02, 0.03, 0.05])
    for _ in range(draws):
        differences = draw.normal(0, errors)
        half = 1.959964 * errors
        ends = zip(differences - half, differences + half, strict=True)
        together = compared(*(lead(*each) for each in ends))
        rows = [each.row for each in together.comparisons]
        named += set(together.marks) != {"–"}
        alone += any(row.direction("low", "high") != "–" for row in rows)
        reported = together.reported
        if (mark := together.mark(reported)) != "–":  # the interval that is shown says the same
            assert reported.row.jointly(len(rows)).direction("low", "high") == mark
    assert named <= binom.isf(1e-4, draws, 0.05)
    assert alone > 0.15 * draws


def test_a_rival_that_is_picked_of_several_is_no_more_often_found_better_without_an_effect():
    draw, draws = np.random.default_rng(7), 1500
    corrected, alone = 0, 0
    for _ in range(draws):
        worst = (draw.normal() + draw.normal(size=3)).min() / 2**0.5  # SPRINT minus the best of 3
        row = lead(worst - 1.959964, worst + 1.959964)
        corrected += compared(row, picked_of=3).marks == ["▼"]
        alone += compared(row).marks == ["▼"]
    assert corrected <= binom.isf(1e-4, draws, 0.025)
    assert alone > binom.isf(1e-4, draws, 0.025)


def test_student_s_intervals_are_widened_by_student_s_quantiles():
    error, freedom = 0.02, 4
    half = t.ppf(0.975, freedom) * error
    row = lead(0.06 - half, 0.06 + half, freedom=freedom)
    p = 2 * t.sf(3, freedom)  # three standard errors: 0.04, of a normal error 0.003
    joint = compared(row | {"p": p}).comparisons[0].row.jointly(2)
    wide = t.ppf(1 - 0.025 / 2, freedom) * error
    assert [joint.value("low"), joint.value("high")] == pytest.approx([0.06 - wide, 0.06 + wide])
    once, twice = (compared(*[row | {"p": p}] * entries) for entries in (1, 2))
    assert (once.marks, twice.marks) == (["▲"], ["–"] * 2)
    # 4.58 of these errors show one of two differences, by the noncentral t.
    row = compared(row | {"p": p}).comparisons[0].row
    assert float(difference_seen(row, tests=2)) == pytest.approx(100 * 4.584 * error, abs=0.05)


def test_ranks_are_claimed_by_fisher_s_interval_for_all_outcomes_at_once():
    for middle, error in ((0.9, 0.42), (0.9, 0.39), (3.0, 1.3)):
        ends = (np.tanh(middle - 1.959964 * error), np.tanh(middle + 1.959964 * error))
        row = Source("a.csv", pd.DataFrame({"low": [ends[0]], "high": [ends[1]]}))
        assert _ranks(row, 1)
        assert _ranks(row, 2) == (middle > 2.241403 * error)


def test_a_lead_is_claimed_only_where_the_interval_leaves_out_zero(config):
    for one, two, wanted in LEADS:
        for name, (low, high) in (("one", one), ("two", two)):
            change(config, paths.PAIRED, lead(low, high), selector=name)
        found = outcome(config, "sampling")
        assert f"{found.mark} {found.answer}" == wanted
        assert "picked afterwards" not in str(found)  # there is one temperature
        assert "16 answers" in str(found)
        assert str(found).endswith(ENDS[wanted[0]])
        # A null says what it would have shown, of two: (2.241 + 0.842) standard errors.
        shows = "Differences of {:.1f} points would likely show."
        said = [shows.format(100 * 3.083 * (high - low) / 3.92) for low, high in (one, two)]
        assert str(found).endswith(tuple(said)) == (wanted[0] == "–")
        assert len(re.findall(r"\w\S*", str(found))) <= 32


def test_the_question_s_p_value_is_corrected_as_its_mark(config):
    for p, low, mark, told in (
        (0.001, 0.1, "▲", "0.002"),
        (0.02, 0.01, "▲", "0.040"),
        (0.04, 0.01, "–", "0.080"),
        (0.2, -0.01, "–", "0.400"),
    ):
        for name in ("one", "two"):
            change(config, paths.EMBEDDING_VALUE, {"low": low, "p": p}, selector=name)
        found = outcome(config, "question")
        assert found.mark == mark
        assert f"points, p = {told}." in str(found)
        assert ":holm of 2" in found.effect.__html__()
    for name in ("one", "two"):
        change(config, paths.EMBEDDING_VALUE, {"p": 0.0001}, selector=name)
    assert "points, p < 0.001." in str(outcome(config, "question"))


def test_greedy_cover_is_said_to_do_better_where_that_is_shown(config):
    path = Store(config).path(paths.EMBEDDING_VALUE, selector="one")
    for low, high, adjusted, told in (
        (0.02, 0.1, 0.01, "Greedy cover does worse."),
        (-0.1, -0.02, 0.01, "Greedy cover does better."),
        (-0.1, 0.1, 0.4, "Greedy cover: no difference shown."),
        (0.02, 0.1, 0.12, "Greedy cover: no difference shown."),
    ):
        table = pd.read_csv(path)
        cover = table["against"] == "greedy cover"
        table.loc[cover, ["low", "high", "adjusted"]] = low, high, adjusted
        table.loc[~cover, ["low", "high", "p"]] = -0.1, 0.1, 1.0
        table.to_csv(path, index=False)
        rewrite_checksums(path)
        assert told in str(outcome(config, "question"))


def test_a_picked_sampling_counts_as_many_tests_as_it_was_picked_from(config):
    # As in the demo: p = 0.015 of one pair, where the rival is the best of three samplings.
    values = config.model_dump(mode="json")
    values["decodings"] |= {
        f"T{heat}": {"temperature": heat, "samples": 16, "prompt": "default"} for heat in (0.1, 0.9)
    }
    values["selectors"]["one"] |= {"sampling": ["T0.1", "T0.6", "T0.9"]}
    marks = {}
    for versus in (None, "T0.9"):
        values["selectors"]["one"]["versus"] = versus
        picking = parse(values)
        change(config, paths.PAIRED, lead(-0.110096, -0.0120162), selector="one")
        change(config, paths.PAIRED, lead(-0.1, 0.1), selector="two")
        found = outcome(picking, "sampling")
        marks[versus] = found.mark
        together = with_rivals(picking)
        assert together.tests == sum(rival(picking, name).picked_of for name in ("one", "two"))
        advised = str(of_selector(picking, together, together.comparisons[0]))
        assert ("where answers can be checked: sampling" in advised) == (found.mark == "▼")
        assert len(re.findall(r"\w\S*", str(found))) <= 32
    assert list(marks.values()) == ["–", "▼"]


def test_heads_at_random_are_compared_at_the_largest_number_of_answers_that_they_have(config):
    values = config.model_dump(mode="json")
    for name in ("one", "two"):
        values["selectors"][name]["versus"] = "random heads"
        file = Store(config).path(CURVES, selector=name)
        curves = Source.read(config, CURVES, selector=name).rows
        few = (curves["method"] != "random heads") | (curves["n"] <= 4)
        write_table(file, curves[few].reset_index(drop=True), CURVES, {"test_questions": 200})
        rewrite_checksums(file)
        path = Store(config).path(paths.PAIRED, selector=name)
        paired = pd.read_csv(path)
        paired[(paired["method"] != "random heads") | (paired["n"] <= 4)].to_csv(path, index=False)
        rewrite_checksums(path)
    found = parse(values)
    assert rival(found, "one") == ("random heads", 4, 1, 16)
    assert str(outcome(found, "sampling").effect).startswith("4 answers, random heads: ")
    together = with_rivals(found)
    assert ": random heads" in (said := str(of_selector(found, together, together.comparisons[0])))
    assert " 4 answers solve " in said
    # Its line ends there; all others are shown with all their answers.
    for chart in first_figure(found, "one").values():
        assert "with 16 answers SPRINT 84.0%, random heads 69.5% with 4, greedy" in chart
    fill(found, section := Section("sampling", ""))
    paired = section.blocks[0]
    assert "SPRINT's 16 answers minus each method's (random heads: 4 each), " in paired.caption
    leads = {row[0]: str(row[2]).split()[0] for row in paired.rows}
    assert len(leads) == len(paired.rows) == 5
    assert (leads["random heads"], leads["greedy cover"]) == ("+3.5", "−1.0")


def test_the_first_figure_has_room_for_every_curve_and_bands_of_sprint_and_its_rival(config):
    file = Store(config).path(CURVES, selector="one")
    curves = Source.read(config, CURVES, selector="one").rows
    beyond = curves["pass_at_n"].where(curves["method"] != "greedy cover", 0.02 + curves["n"] / 500)
    write_table(file, curves.assign(pass_at_n=beyond), CURVES, {"test_questions": 200})
    rewrite_checksums(file)
    for chart in first_figure(config, "one").values():
        heights = [float(y) for y in re.findall(r'class="dot s2" cx="\S+" cy="([\d.]+)"', chart)]
        assert len(heights) == 16 and len({*heights}) == 16 and max(heights) < 300
        assert re.findall(r'class="(band s\d)"', chart) == ["band s0", "band s1"]
    unsampled = curves[~curves["method"].map(is_sampling)].reset_index(drop=True)
    write_table(file, unsampled, CURVES, {"test_questions": 200})
    rewrite_checksums(file)
    assert rival(config, "one").method == ""
    for chart in first_figure(config, "one").values():
        assert re.findall(r'class="(band s\d)"', chart) == ["band s0"]


def test_the_best_head_is_told_with_its_interval_and_how_many_hurt(config):
    heads = Source.read(config, paths.CONTROLS, sweep="demo", table="heads").rows
    pruned = heads[heads["variant"] != "base"]
    best = pruned.loc[pruned["gain"].idxmax()]
    found = outcome(config, "heads")
    assert found.answer == "No head is shown to help when lost"
    hurt = ((pruned["adjusted"] < 0.05) & (pruned["band_high"] < 0)).sum()
    ends = (FORMS["points"](best[name]) for name in ("gain", "band_low", "band_high"))
    assert "Best of 24: {} ({} to {}) points".format(*ends) in str(found)
    # The bound is that of all heads, not that of the one picked.
    assert f"above {FORMS['points'](pruned['band_high'].max())} are" in str(found)
    assert pruned["band_high"].max() > best["high"] + 0.01
    assert f"{hurt} hurt" in str(found)
    assert str(found).endswith(
        f"Gains of {FORMS['part'](pruned['shows'].median())} points would likely show."
    )
    changed = (best["gained"] + best["lost"]) / 200
    assert best["shows"] == pytest.approx(smallest_gain(200, changed, 24), abs=1e-3)
    pruned_alone = [None, *[0.001] * 24]
    shown = {"adjusted": pruned_alone, "gain": 0.1, "band_low": pruned_alone, "band_high": 0.2}
    change(config, paths.CONTROLS, shown, sweep="demo", table="heads")
    assert outcome(config, "heads").answer == "24 heads help when lost"
    assert "would likely show" not in str(outcome(config, "heads"))
    untested = {"adjusted": [None, *[0.062] * 24]}
    change(config, paths.CONTROLS, untested, sweep="demo", table="heads")
    found = outcome(config, "heads")
    assert found.answer == "No head is shown to help when lost"
    assert str(found.so).startswith("Over all heads p = 0.062. Gains of ")
    change(config, paths.CONTROLS, shown, sweep="demo", table="heads")
    decided = {"cut_decides": [None, True, *[False] * 23]}
    change(config, paths.CONTROLS, decided, sweep="demo", table="heads")
    found = outcome(config, "heads")
    assert found.answer == "23 heads help when lost"
    assert str(found).endswith("test. 1 more may come from answers that were cut.")
    # The largest gain of all is not shown: the one that is told is the largest of those shown.
    unshown = {"gain": [0, 0.2, *[0.1] * 23], "cut_decides": [None, True, *[False] * 23]}
    change(config, paths.CONTROLS, unshown, sweep="demo", table="heads")
    assert "Best shown, of 24: +10.0" in str(outcome(config, "heads"))
    change(config, paths.CONTROLS, {"cut_decides": False}, sweep="demo", table="heads")
    folder = Store(config).path(paths.CONTROLS, sweep="demo", table="heads").parent
    shutil.copytree(folder, folder.with_name("again"))
    both = config.model_copy(update={"sweeps": config.sweeps | {"again": config.sweeps["demo"]}})
    assert str(outcome(both, "heads").effect).startswith("MATH-like questions: Best of 24: ")


def test_of_a_single_head_nothing_is_the_best(config):
    path = Store(config).path(paths.CONTROLS, sweep="demo", table="heads")
    pd.read_csv(path).head(2).to_csv(path, index=False)
    rewrite_checksums(path)
    assert " One head: " in f" {outcome(config, 'heads').effect}"


def test_one_question_and_one_answer_are_told_in_the_singular(config):
    change(config, paths.CONTROLS, {"n": 1, "shows": np.nan}, sweep="demo", table="heads")
    heads = outcome(config, "heads")
    assert " points, 1 question; " in str(heads.effect)
    assert "1 question is too few to show any gain." in str(heads.so)
    values = config.model_dump(mode="json")
    for name in ("one", "two"):
        values["selectors"][name]["versus"] = "random heads"
        file = Store(config).path(CURVES, selector=name)
        curves = Source.read(config, CURVES, selector=name).rows
        few = (curves["method"] != "random heads") | (curves["n"] == 1)
        write_table(file, curves[few].reset_index(drop=True), CURVES, {"test_questions": 200})
        rewrite_checksums(file)
    found = parse(values)
    assert str(outcome(found, "sampling").effect).startswith("1 answer, random heads: ")
    for (low, high), said in (((-0.1, 0.1), "that of a chosen head"), ((0.1, 0.2), "SPRINT")):
        change(config, paths.PAIRED, lead(low, high), selector="one")
        together = with_rivals(found)
        advice = str(of_selector(found, together, together.comparisons[0]))
        assert " 1 answer solves " in advice
        assert said in advice


def test_the_page_says_how_many_questions_a_small_gain_would_take(config):
    heads = Source.read(config, paths.CONTROLS, sweep="demo", table="heads")
    changed = ((heads.rows["gained"] + heads.rows["lost"]) / 200)[1:].median()
    luck(config, section := Section("luck", ""))
    wanted = f"It takes {questions_for(0.02, changed, 24):,} questions to show a gain of 2 points"
    assert wanted in str(section.lead[-1])


def test_luck_of_questions_without_subjects_is_that_of_layers(config):
    path = Store(config).path(paths.CONTROLS, sweep="demo", table="gains")
    gains = pd.read_csv(path)
    assert {*gains["by"]} == {"overall", "subject", "level"}
    luck(config, section := Section("luck", ""))
    assert str(section.lead[0]).endswith(" have q below 0.05.")
    shown = gains.assign(q=gains["q"].where(gains["by"] != "subject", 0.01), best_noise=np.nan)
    first = shown.index[shown["by"] == "subject"][0]
    for noise, said in ((np.nan, " have q below 0.05."), (0.189, " heads gains up to +18.9.")):
        shown.loc[first, "best_noise"] = noise
        shown.to_csv(path, index=False)
        rewrite_checksums(path)
        luck(config, section := Section("luck", ""))
        assert str(section.lead[0]).endswith(said)
    gains[gains["by"] != "subject"].to_csv(path, index=False)
    rewrite_checksums(path)
    luck(config, section := Section("luck", ""))
    mean = gains.loc[gains["by"] == "overall", "gain"].mean()
    wanted = f"The best head of a layer gains {FORMS['points'](mean)} points on average (layers: 3)"
    assert wanted in str(section.lead[0])
    assert str(section.lead[0]).endswith("None pass the corrected test.")
    # What passes is what the verdict says, not the false discovery rate of layers.
    heads = Source.read(config, paths.CONTROLS, sweep="demo", table="heads").rows
    best = heads["gain"] == heads.groupby("layer")["gain"].transform("max")
    for layer, lows, told in ((2, 0.01, "1 pass"), (2, 0.0, "None pass"), (-1, 0.01, "None pass")):
        passing = {"band_low": np.where(best & (heads["layer"] == layer), lows, -0.1)}
        change(config, paths.CONTROLS, {"adjusted": 0.01} | passing, sweep="demo", table="heads")
        luck(config, again := Section("luck", ""))
        assert f" {told} the corrected test." in str(again.lead[0])
    gains[gains["by"] != "subject"].assign(heads=1).to_csv(path, index=False)
    rewrite_checksums(path)
    luck(config, alone := Section("luck", ""))
    assert len(alone.lead) == len(section.lead) - 1  # a single head is nobody's best


ADVICE = [
    (
        (0.01, 0.2),
        "what to do where answers can be checked: choose heads by SPRINT. 16 answers solve",
    ),
    ((-0.2, -0.1), "what to do where answers can be checked: sampling T = 0.6. 16 answers solve"),
    ((-0.1, 0.1), "what to do: sampling T = 0.6, which needs no training. 16 answers solve"),
]


def test_a_comparison_ends_in_what_to_do_with_how_many_answers_and_tokens(config):
    curves = Source.read(config, CURVES, selector="one").where(n=16)
    values = config.model_dump(mode="json")
    values["selectors"] = {"one": values["selectors"]["one"] | {"versus": "T0.6"}}
    alone = parse(values)
    values["selectors"]["one"]["versus"] = "greedy cover"
    trained = parse(values)
    change(config, paths.PAIRED, lead(-0.1, 0.1), selector="one")
    together = with_rivals(trained)
    said = str(of_selector(trained, together, together.comparisons[0]))
    assert "what to do: greedy cover. 16 answers solve" in said
    for (low, high), wanted in ADVICE:
        change(config, paths.PAIRED, lead(low, high), selector="one")
        together = with_rivals(alone)
        said = str(of_selector(alone, together, together.comparisons[0]))
        assert said.startswith(f"MATH-like, {wanted} ")
        for method in ("SPRINT", "sampling T=0.6"):
            own = curves.where(method=method)
            for number in (own.number("pass_at_n", "percent"), own.number("tokens", "count")):
                assert str(number) in said
        unseen = "no difference is shown; 14.3 points would likely show."
        shown = unseen in said
        assert shown == (low < 0 < high)
        assert ("95% certain" in said) != shown
        assert "Holm" not in said  # one test needs no correction


def test_the_advice_shows_what_the_verdict_shows_and_its_power_is_corrected_once(config):
    # Holm's correction shows both, Bonferroni's only the first.
    for name, ends in (("one", (0.05, 0.2)), ("two", (0.005, 0.205))):
        change(config, paths.PAIRED, lead(*ends), selector=name)
    together = with_rivals(config)
    advised = [str(of_selector(config, together, each)) for each in together.comparisons]
    assert outcome(config, "sampling").answer.endswith(" on 2 of 2")
    assert all("checked: choose heads by SPRINT." in said for said in advised)
    assert all(said.endswith("; 95% certain, after Holm's correction.") for said in advised)
    for name in ("one", "two"):
        change(config, paths.PAIRED, lead(-0.1, 0.1), selector=name)
    together = with_rivals(config)
    least = f"{100 * 0.1 / 1.959964 * (2.241403 + 0.841621):.1f} points would"
    assert f"shown; {least} likely show" in str(
        of_selector(config, together, together.comparisons[1])
    )
    assert f"Differences of {least} likely show" in str(outcome(config, "sampling"))


FAMILIES = [
    (0.02, "▲ Heads beat sampling", "dot up"),
    (0.2, "– Heads are not shown to beat sampling", "ring"),
]


def test_families_are_judged_and_coloured_after_holm_s_correction(config):
    frontier = {"model": "reasoner", "train": "math_train", "test": "math_test"}
    named = parse(simulation.DEMO | {"frontiers": dict.fromkeys(("one", "two"), frontier)})
    both = config.model_copy(update={"frontiers": named.frontiers})
    row = {"family": "head", "versus": "sampling", "outcome": "pass", "order": "ordered"}
    row |= {"family_title": "heads", "versus_title": "sampling"}
    row |= {"budget": 4, "difference": 0.03, "low": 0.01, "high": 0.05}
    shown = {each.table: each.needed_columns for each in PAGE_TABLES}
    for adjusted, answer, drawn in FAMILIES:
        for name, table in product(both.frontiers, paths.FRONTIER_TABLES):
            file = Store(both).path(paths.FRONTIER, frontier=name, table=table)
            known = dict.fromkeys(shown.get(table, []), 0.1) | row
            write_csv(file, pd.DataFrame([known | {"adjusted": adjusted}]))
            write_record(file, Stopwatch(), {"primary_budget": 4})
        found = outcome(both, "families")
        assert f"{found.mark} {found.answer}" == answer
        assert str(found.effect) == "MATH-like. 4 answers' tokens: +3.0 (+1.0 to +5.0) points."
        change(both, paths.FRONTIER, {"budget": 1}, frontier="one", table="paired")
        assert "1 answer's tokens" in str(outcome(both, "families").effect)
        fill(both, section := Section("families", ""))
        strips = [block.rows[0][1] for block in section.blocks if block.kind == "strips"]
        assert [re.findall('circle class="(.*?)"', strip) for strip in strips] == [[drawn]] * 2
    # The page says the number of tokens that the table has, also if its record is gone.
    record_path(Store(both).path(paths.FRONTIER, frontier="two", table="paired")).unlink()
    fill(both, section := Section("families", ""))
    captions = [block.caption for block in section.blocks if block.kind == "strips"]
    assert [re.findall("tokens of (.*) answers", caption) for caption in captions] == [["1"], ["4"]]


OF_MODEL = {"solver": None, "data": None, "model": "reasoner"}
OF_MODEL |= {"train": "math_train", "test": "math_test", "seeds": [2], "int8": []}
OF_MODEL |= {"arms": ["baseline", "full", "trained_on"]}
CAUSAL = {"by.loss-1": {"importance": {"criterion": "causal"}}}


def test_each_compression_has_a_line_with_both_scores(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    solver = simulated_studies.results(name="solver", examples=101)
    ratios = {f"ratio_{ratio}": {"ratio": ratio / 100} for ratio in (10, 20, 30)}
    own = simulated_studies.study(**OF_MODEL, variations=ratios | CAUSAL)
    model = simulated_studies.results(own, name="model", examples=97)
    studies = {each.name: each.study for each in (solver, model)}
    gone = {key: {} for key in ("sweeps", "selectors", "frontiers", "comparisons")}
    config = simulation.whole().model_copy(update=gone | {"compressions": studies})
    for each in (solver, model):
        simulated_studies.write(Store(config), each)
    jobs.write_compression_tables(config, simulation.PUBLISHED)
    jobs.write_audit(config, simulation.PUBLISHED)
    first, second, _ = verdicts(config)
    assert (first.section, second.section) == ("compression", "compression")
    assert str(first.effect).startswith("ASDiv-A: ") and "Causal" not in str(first.effect)
    table = Source.read(config, paths.COMPRESSION_TABLE, exhibit="variations")
    causal, full = table.where(arm="by.loss-1"), table.where(compression="model", arm="full")
    told, method = (str(row.number("change_trained", "points")) for row in (causal, full))
    ends = [str(causal.number(f"change_trained_{end}", "points")) for end in _ENDS]
    assert told != method != str(full.number("change", "points"))
    assert str(second.effect).startswith(f"MATH-like: {method} (")
    said = " points against training as long, 97 questions, one seed."
    assert str(second.effect).endswith(said)
    # A null says what it would have shown, and nothing of the other scores.
    least = 100 * smallest_difference(*(full.value(f"change_trained_{end}") for end in _ENDS))
    assert second.mark == "–"
    assert str(second.so).endswith(f" Differences of {least:.1f} points would likely show.")
    assert str(first.so).startswith("Test time: ")
    lost = {"change_trained_high": -0.01}
    change(config, paths.COMPRESSION_TABLE, lost, exhibit="table1", suffix="csv")
    worse = verdicts(config)[1]
    assert str(worse.effect).endswith(
        f"{said} Causal scores, taken once: {told} ({ends[0]} to {ends[1]})."
    )
    assert worse.mark == "▼" and "likely" not in str(worse.so)
    for told_of in (first, second, worse):
        assert len(re.findall(r"\w\S*", str(told_of))) <= 32

    compression(config, section := Section("compression", ""))
    rows = [row[0] for row in section.blocks[-1].rows]
    whole, causal = "25% gone, taught", "25% gone by causal scores"
    kept = "all kept, trained as long"
    assert rows[4:] == [f"MATH-like: {own}" for own in (whole, causal, kept, "10% gone")]
    _, lead, scored = map(str, section.lead)
    arms = Source.read(config, paths.COMPRESSION_TABLE, exhibit="table4")
    trained = arms.where(compression="model", arm="trained_on")
    alone = trained.number("change", "points")
    assert f"as long: heads gone, taught {method}; heads gone by causal scores {told}. " in lead
    assert lead.endswith(f"Training as long: {alone} against the original.")
    assert scored.endswith("taken once, before the first round, and not each round.")


def test_scores_taken_once_are_told_of_once(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    own = simulated_studies.study(**OF_MODEL, variations=CAUSAL)
    studies = [
        simulated_studies.results(own, name=name, examples=97) for name in ("first", "second")
    ]
    config = simulation.whole().model_copy(
        update={"compressions": {results.name: results.study.model_copy() for results in studies}}
    )
    for results in studies:
        simulated_studies.write(Store(config), results)
    jobs.write_compression_tables(config, simulation.PUBLISHED)
    compression(config, section := Section("compression", ""))
    assert [str(lead).startswith("Causal scores") for lead in section.lead] == [False, False, True]


def test_published_gains_are_held_against_luck_and_verdicts_are_lines_of_the_page_s_numbers(config):
    found = outcome(config, "published")
    assert (found.mark, found.answer) == ("!", "Published gains: luck may suffice")
    told = "5 of 100 best heads pass alone; luck gives 2.70 on average, up to 7 in 95% of draws."
    assert str(found.effect) == told
    for verdict in verdicts(config):
        assert re.sub("<[^>]*>", "", verdict.effect.__html__()) == str(verdict.effect)
        assert not re.search(r"nan|L\d\dH", str(verdict))
    for beyond, mark in ((7, "!"), (8, "▲")):
        change(config, paths.AUDIT_TABLE, {"beyond": beyond}, paper="total")
        assert outcome(config, "published").mark == mark


def test_numbers_have_intervals_and_marks_and_text_stays_text():
    known = {"gain": [-0.021, math.nan, 0.2, 0.2], "p": [0.01, 0.01, 0.01, math.nan]}
    ends = {"low": [-0.05, -1, 0.1, 0.1], "high": [-0.01, 1, 0.2, 0.2]}
    source = Source("a/b.csv", pd.DataFrame(known | ends))
    first, second, *_ = source
    assert str(first.interval("gain", "points", "low", "high")) == "−2.1 (−5.0 to −1.0)"
    assert second.number("gain", "points").__html__() == ""
    assert "".join(row.direction("low", "high") for row in source) == "▼–▲▲"
    assert "".join(row.direction("low", "high", "p") for row in source) == "▼–▲–"
    said = Sentence("{a} & {n}", a="<b>\u202e", n=first.number("p"))
    assert said.__html__().startswith("&lt;b&gt; & <data value")
    assert str(said) == "<b> & 0.01"


def test_titles_and_sprint_s_rival_are_what_the_config_names(config):
    values = config.model_dump(mode="json")
    one = values["selectors"]["one"]
    wanted = {None: "sampling T=0.9", "T0.6": "sampling T=0.6", "greedy cover": "greedy cover"}
    for versus, method in wanted.items():
        one["versus"] = versus
        assert rival(found := parse(values), "one")[:2] == (method, 16)
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
