import re
from html.parser import HTMLParser
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import simulation

from headroom.analysis.controls import SPREAD
from headroom.analysis.findings import findings, pass_at_n_sheet, sentence, told
from headroom.analysis.gains import cells
from headroom.analysis.jobs import write_controls
from headroom.analysis.verdict import FAILURES, failures_sheet, spread_sheet
from headroom.figures.draw import draw_audit
from headroom.record import read_json
from headroom.report.page import write_report
from headroom.sprint.evaluation import PAIRED
from headroom.variants import BASE, heads

PUBLISHED = Path(__file__).parents[2] / "config" / "published"
ENDS = ["pass_at_n", "low", "high"]
HOSTILE = "</p><script>alert(1)</script><img src=x onerror=alert(2)> {{ 7*7 }} ]]> &amp;"


class Elements(HTMLParser):
    """Collects the elements and attributes of a page."""

    def __init__(self) -> None:
        super().__init__()
        self.found: list[tuple[str, dict[str, str | None]]] = []

    def handle_starttag(self, tag, attrs):
        self.found.append((tag, dict(attrs)))


def elements(html: str) -> list[tuple[str, dict[str, str | None]]]:
    parser = Elements()
    parser.feed(html)
    return parser.found


@pytest.fixture
def html(run):
    return (run[0] / "results/simulated/report.html").read_text(encoding="utf-8")


def test_report_is_one_small_file_that_fetches_nothing(html):
    assert len(html.encode()) < 5e6
    for tag, attributes in elements(html):
        for name in ("src", "href", "srcset", "action", "data", "poster"):
            if value := attributes.get(name):
                assert value.startswith(("#", "data:")), (tag, name, value[:80])
    assert "@import" not in html
    assert "url(" not in html


def test_every_figure_is_shown_with_its_words_and_every_section_has_a_title(html, run):
    found = elements(html)
    images = [attributes for tag, attributes in found if tag == "img"]
    figures = [
        read_json(file)
        for file in (run[0] / "results/simulated/figures").glob("*.json")
        if ".run." not in file.name
    ]
    assert {image["alt"] for image in images} == {figure["alt"] for figure in figures}
    assert len(images) == len(figures) == 9
    assert all(len(attributes["alt"] or "") > 40 for attributes in images)
    ids = {attributes["id"] for _, attributes in found if "id" in attributes}
    links = [attributes["href"] for tag, attributes in found if tag == "a"]
    assert all(link[1:] in ids for link in links)
    assert [tag for tag, _ in found if tag in ("main", "header", "nav", "footer")]


def test_report_shows_counts_of_verdicts_and_where_data_come_from(html):
    assert re.search(r"<td class=\"number\">\d+</td>", html)
    assert "timeout" in html
    assert "generated_math, test" in html
    assert "0.7123" in html  # how the settings were chosen


def test_hostile_text_stays_text(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    config = simulation.demo()
    simulation.fill(config, subjects=(HOSTILE, "Algebra"), text=HOSTILE)
    write_controls(config, "demo")
    draw_audit(config, PUBLISHED)
    write_report(config)
    html = (tmp_path / "results/simulated/report.html").read_text(encoding="utf-8")
    found = elements(html)
    scripts = [attributes.get("type") for tag, attributes in found if tag == "script"]
    assert scripts == ["application/json", None]  # data, and the page's own
    assert not [attributes for _, attributes in found if "onerror" in attributes]
    assert "{{ 7*7 }}" in html
    assert r"\u003cscript\u003ealert(1)" in html  # in the answers
    assert "&lt;script&gt;alert(1)" in html  # in the subjects


@pytest.mark.parametrize(
    ("low", "high", "result"),
    [
        (0.01, 0.05, "SPRINT is ahead"),
        (-0.05, -0.01, "SPRINT is behind"),
        (-0.02, 0.05, "neither is shown to be better"),
    ],
)
def test_a_lead_is_claimed_only_when_the_interval_leaves_out_zero(low, high, result):
    table, _ = simulation.simulated_curves()
    row = ("greedy cover", 4, (low + high) / 2, low, high)
    paired = simulation.paired_table(pd.DataFrame([row], columns=PAIRED[:5]))
    text = sentence(table, paired, 4)
    assert text.endswith(f": {result}.")
    assert "the best other method, greedy cover" in text
    assert "oracle" not in text


def test_what_resembles_a_training_question_is_told_once_at_the_largest_n():
    table, _ = simulation.simulated_curves()
    rows = [("greedy cover", n, 0.03, 0.01, 0.05) for n in (1, 4)]
    paired = simulation.paired_table(pd.DataFrame(rows, columns=PAIRED[:5]))
    paired = paired.assign(resembling=12, by_draw=0.02, by_seed=0.004)
    paired[["difference_apart", "low_apart", "high_apart"]] = 0.02, -0.01, 0.05
    assert sentence(table, paired, 4).endswith(
        "95% interval over test questions, draws of training questions and seeds +1.0 to +5.0: "
        "SPRINT is ahead. Standard errors in points: questions 1.0, draw 2.0, seeds 0.4. 12 test "
        "questions resemble a training question (overlap.csv); without them the difference is "
        "+2.0 (−1.0 to +5.0)."
    )
    assert "resemble" not in sentence(table, paired, 1)
    few = paired.assign(difference_apart=None)
    assert sentence(table, few, 4).endswith("(overlap.csv): too few are left without them.")


def test_pass_at_n_is_shown_at_powers_of_two_with_what_the_largest_n_costs():
    table, _ = simulation.simulated_curves(limit=8)
    one = pd.DataFrame([("single", 1, 0.5, 0.4, 0.6)], columns=["method", "n", *ENDS])
    sheet = pass_at_n_sheet(pd.concat([table, one]))
    assert sheet.titles[:5] == ["method", "N = 1", "N = 2", "N = 4", "N = 8"]
    own, single = sheet.rows[0], sheet.rows[-1]
    assert own[:2] == ["SPRINT", "62.0 (57.0 to 66.5)"]
    assert own[4:] == ["84.0 (79.0 to 88.5)", "–", "2.83", "0.35", "720"]
    assert single == ["single", "50.0 (40.0 to 60.0)", *"–––––––"]
    assert sheet.bold.any(axis=1).tolist() == [True] + [False] * (len(sheet.rows) - 1)
    assert "majority (%)" not in sheet.without_empty_columns().titles


def test_spread_and_failures_are_told_in_percent():
    spread = pd.DataFrame([("all heads", 3, 0.02, 0.01, 0.015, 0.5, 0.01)], columns=SPREAD)
    assert spread_sheet(spread).rows == [["all heads", "3", "2.0", "1.0", "1.5", "50.0", "0.010"]]
    rows = [("base", 0.5, 0, 0, 0, 0, 34.4, None, None, None, None)]
    rows += [("L01H00", 0.2, -0.3, 0, 0.1, 0.05, 36.2, "loop", 0.9, 0.25, 2)]
    failed = pd.DataFrame(rows, columns=list(FAILURES))
    told = ["20.0", "−30.0", "0.0", "10.0", "5.0", "36", "loop", "90.0", "25.0", "2"]
    assert failures_sheet(failed).rows[0][:3] == ["No Prune", "50.0", "0.0"]
    assert failures_sheet(failed).rows[1] == ["L01H00", *told]
    assert failures_sheet(failed.head(1)).rows == []


def test_no_sentence_without_sprint():
    table, paired = simulation.simulated_curves()
    assert sentence(table[table["method"] != "SPRINT"], paired, 4) == ""


def test_headline_numbers_are_those_of_z():
    variants = [BASE, *heads([2], range(5))]
    names = [str(variant) for variant in variants]
    z = simulation.simulated_z(83, names, np.random.default_rng(11))
    base, median, best, worst = findings(cells(z, variants))
    accuracy = z[names[1:]].mean()
    assert base.value == f"{100 * z['base'].mean():.1f}%"
    assert median.value == f"{100 * accuracy.median():.1f}%"
    assert (best.value, worst.value) == tuple(
        f"{100 * value:.1f}%" for value in (accuracy.max(), accuracy.min())
    )
    assert str(accuracy.idxmax()) in best.note
    assert "a maximum over 5 heads" in best.note


@pytest.mark.parametrize(
    ("numbers", "expected"),
    [([1, 2, 4, 8, 16], [1, 4, 16]), ([8, 2, 1, 4], [1, 4, 8]), ([1, 2], [1, 2]), ([], [])],
)
def test_differences_are_told_at_one_four_and_the_largest_n(
    numbers: list[int], expected: list[int]
) -> None:
    assert told(numbers) == expected
