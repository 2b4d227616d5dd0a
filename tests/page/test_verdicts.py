"""The lines that a run prints: scenes whose lines lie in one file, and the rules behind them.

``HEADSWEEP_ACCEPT=1 pytest tests/page/test_verdicts.py`` writes `GOLDEN` anew: read its diff.
"""

import html
import math
import os
import re
import shutil
from contextlib import chdir
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from scenes import SCENES, lead, outcome
from scipy.stats import norm, t

import simulation
from headsweep.files import paths
from headsweep.files.safe_files import write_table
from headsweep.files.tables import ACCURACY, GRADED
from headsweep.results import jobs
from headsweep.results.comparisons import Comparison, Together
from headsweep.results.facts import Sentence, Source
from headsweep.results.found import is_shown_to_rank
from headsweep.results.gains import read_z
from headsweep.results.marks import Mark
from headsweep.results.verdicts import verdicts
from headsweep.store.layout import Store

GOLDEN = Path(__file__).parents[1] / "golden" / "findings.txt"
WORDS = 32  # of a line


@pytest.fixture(scope="module")
def told(once, simulated, tmp_path_factory):
    """Return the verdicts of each scene, by its name."""
    run, whole = simulated("whole")
    with chdir(run.parents[1]):
        found = {"whole": verdicts(Store(whole))}
    folder, config = once
    for scene, alter in SCENES.items():
        copy = tmp_path_factory.mktemp("scene") / "run"
        shutil.copytree(folder, copy)
        with chdir(copy):
            altered = alter(config) or config
            section = scene.partition(":")[0]
            found[scene] = [each for each in verdicts(Store(altered)) if each.section == section]
            # What stands in the page has its place in a file of the run.
            check_sources(altered, found[scene])
    return found


def check_sources(config, found):
    """Each number names its file and cell, and is what stands there."""
    number = r'<data value="([^"]*)" data-from="([^"]*)" data-key="([^"@]*)@(\d+)">'
    for verdict in found:
        page = f"{verdict.effect.__html__()} {verdict.so.__html__()}"
        for value, file, column, row in re.findall(number, page):
            if file.endswith(".csv"):
                table = pd.read_csv(Path(paths.RESULTS, config.run, file))
                cell = float(table.loc[int(row), column])
                assert float(value) == pytest.approx(cell, rel=1e-5), (file, column)


def test_a_run_says_what_the_golden_file_says(told):
    text = "".join(
        f"## {scene}\n" + "".join(f"{each.mark} {each}\n" for each in found) + "\n"
        for scene, found in told.items()
    )
    if os.environ.get("HEADSWEEP_ACCEPT"):
        GOLDEN.write_text(text, encoding="utf-8")
    assert text == GOLDEN.read_text(encoding="utf-8")


def test_every_line_is_short_plain_and_the_page_s(told):
    for verdict in (each for found in told.values() for each in found):
        line = str(verdict)
        assert len(re.findall(r"\w\S*", line)) <= WORDS, line
        assert not re.search(r"nan|L\d\dH|[{}<]\w", line)
        for sentence in (verdict.effect, verdict.so):
            assert html.unescape(re.sub("<[^>]*>", "", sentence.__html__())) == str(sentence)


def test_after_a_run_no_line_says_what_would_have_been_seen(told):
    """An interval and a power side by side are read as a contradiction: power is for the plan."""
    said = [str(verdict) for found in told.values() for verdict in found]
    assert not [line for line in said if re.search("would|likely show", line)]


def compared(*rows, picked_of=1):
    sources = [Source("a.csv", pd.DataFrame([row])) for row in rows]
    return Together([Comparison("", source, picked_of) for source in sources])


def test_several_entries_are_marked_by_holm_s_correction_over_all_and_one_interval_says_the_same():
    draw, errors, seen = np.random.default_rng(6), np.array([0.01, 0.02, 0.03, 0.05]), set()
    for _ in range(20):
        differences = draw.normal(0, 2.3 * errors)
        ends = zip(differences - 1.959964 * errors, differences + 1.959964 * errors, strict=True)
        together = compared(*(lead(*each) for each in ends))
        wanted = [Mark.NOT_SHOWN] * 4
        p = 2 * norm.sf(abs(differences / errors))
        for rank, place in enumerate(np.argsort(p)):
            if (4 - rank) * p[place] >= 0.05:
                break
            wanted[place] = Mark.BETTER if differences[place] > 0 else Mark.WORSE
        assert together.marks == wanted
        shown = sum(mark is not Mark.NOT_SHOWN for mark in wanted)
        seen.add((shown, int((p < 0.05).sum())))
        reported = together.reported
        assert reported is together.comparisons[p.argmin() if shown else 0]
        if shown:  # the interval that is shown says the same
            mark = together.mark(reported)
            assert reported.row.jointly(4).direction("low", "high") is mark
    assert {shown for shown, _ in seen} >= {0, 1, 2}
    assert {alone for shown, alone in seen if not shown} > {0}  # each for itself would be shown


def test_a_rival_that_is_picked_of_several_counts_as_so_many_tests():
    for p in (0.01, 0.0166, 0.0168, 0.04):
        half = 0.1 * norm.isf(0.025) / norm.isf(p / 2)
        row, other = lead(-0.1 - half, -0.1 + half), lead(-0.1, 0.05)
        picked = compared(row, picked_of=3)
        assert picked.marks == compared(row, row, row).marks[:1]
        assert picked.marks == [Mark.WORSE if p < 0.05 / 3 else Mark.NOT_SHOWN]
        both = Together([*picked.comparisons, *compared(other).comparisons])
        assert both.tests == 4
        assert both.marks[0] is (Mark.WORSE if p < 0.05 / 4 else Mark.NOT_SHOWN)


def test_student_s_intervals_are_widened_by_student_s_quantiles():
    error, freedom = 0.02, 4
    half = t.ppf(0.975, freedom) * error
    row = lead(0.06 - half, 0.06 + half, freedom=freedom)
    p = 2 * t.sf(3, freedom)  # three standard errors: 0.04, of a normal error 0.003
    joint = compared(row | {"p": p}).comparisons[0].row.jointly(2)
    wide = t.ppf(1 - 0.025 / 2, freedom) * error
    assert [joint.value("low"), joint.value("high")] == pytest.approx([0.06 - wide, 0.06 + wide])
    once, twice = (compared(*[row | {"p": p}] * entries) for entries in (1, 2))
    assert (once.marks, twice.marks) == ([Mark.BETTER], [Mark.NOT_SHOWN] * 2)


def test_ranks_are_claimed_by_fisher_s_interval_for_all_outcomes_at_once():
    for middle, error in ((0.9, 0.42), (0.9, 0.39), (3.0, 1.3)):
        ends = (np.tanh(middle - 1.959964 * error), np.tanh(middle + 1.959964 * error))
        row = Source("a.csv", pd.DataFrame({"low": [ends[0]], "high": [ends[1]]}))
        assert is_shown_to_rank(row, 1)
        assert is_shown_to_rank(row, 2) == (middle > 2.241403 * error)


def test_answers_cut_at_the_limit_are_told_where_they_could_make_a_gain(config):
    # As a real model at 160 tokens: 24 questions, 10 right; a head right on six whose answers
    # by the base model were cut. At 256 tokens there is no gain.
    variants = list(map(str, read_z(Store(config), "demo")[1]))
    z = pd.DataFrame({"question_id": [f"q{i:02}" for i in range(24)], "level": None})
    base = np.repeat(np.int8([1, 0]), [10, 14])
    z = z.assign(subject=None, **dict.fromkeys(variants, base)).astype({"level": "Int8"})
    z.loc[10:15, "L02H03"] = 1
    answers = simulation.graded(z, variants).assign(sample=0)
    z["subject"] = z["subject"].astype("string")
    of_base = (answers["variant"] == "base") & answers["question_id"].between("q10", "q18")
    for cut in (True, False):
        answers["stop_reason"] = np.where(of_base & cut, "length", "eos")
        store = Store(config)
        write_table(store.of_sweep("demo"), z, ACCURACY)
        write_table(store.of_sweep("demo", GRADED), answers, GRADED)
        placebos = config.sweeps["demo"].model_copy(update={"placebos": "none"})
        bare = config.model_copy(update={"sweeps": {"demo": placebos}, "selectors": {}})
        jobs.write_controls(Store(bare), "demo")
        found = outcome(bare, "heads")
        assert f"{found.mark} {found.answer}" == "– No head is shown to help when lost"
        assert "Best of 24: +25.0 (" in str(found.effect)
        told = "0 hurt; 37.5% of the base model's answers cut."
        assert str(found.effect).endswith(told) == cut  # a run's last lines say it, too


def test_numbers_have_intervals_and_marks_and_text_stays_text():
    known = {"gain": [-0.021, math.nan, 0.2, 0.2], "p": [0.01, 0.01, 0.01, math.nan]}
    ends = {"low": [-0.05, -1, 0.1, 0.1], "high": [-0.01, 1, 0.2, 0.2]}
    source = Source("a/b.csv", pd.DataFrame(known | ends))
    first, second, *_ = source
    assert str(first.interval("gain", "points", "low", "high")) == "−2.1 (−5.0 to −1.0)"
    assert second.number("gain", "points").__html__() == ""
    assert "".join(str(row.direction("low", "high")) for row in source) == "▼–▲▲"
    assert "".join(str(row.direction("low", "high", "p")) for row in source) == "▼–▲–"
    said = Sentence("{a} & {n}", a="<b>\u202e", n=first.number("p"))
    assert said.__html__().startswith("&lt;b&gt; & <data value")
    assert str(said) == "<b> & 0.01"
