import re
from html.parser import HTMLParser
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import simulation

from headroom.analysis.findings import findings, sentence, told
from headroom.analysis.gains import cells
from headroom.analysis.jobs import write_controls
from headroom.figures.draw import draw_audit
from headroom.report.page import write_report
from headroom.sprint.evaluation import PAIRED
from headroom.variants import BASE, heads

PUBLISHED = Path(__file__).parents[2] / "config" / "published"
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


def test_every_image_has_alternative_text_and_every_section_a_title(html):
    found = elements(html)
    images = [attributes for tag, attributes in found if tag == "img"]
    assert len(images) == 12
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
