"""The page on the luck of the best of many: its JavaScript against Python, in a real browser."""

import json

import numpy as np
import pandas as pd
import pytest

import simulation
from headsweep.analysis.published import audit, head_pruning
from headsweep.report.luck import luck_page, published_tables
from headsweep.statistics.luck import best_by_luck, of_table
from headsweep.statistics.power import power, questions_for
from headsweep.tool.luck import lucky

KEYS = ["exhibit", "layer", "subject"]


@pytest.fixture(scope="module")
def file(tmp_path_factory):
    file = tmp_path_factory.mktemp("luck") / "luck.html"
    file.write_text(luck_page(simulation.PUBLISHED), encoding="utf-8")
    return file


@pytest.fixture
def page(browser, file):
    browser.prefer("light")
    browser.resize(1280, 800)
    browser.open(file)
    yield browser
    assert browser.complaints() == []


@pytest.mark.parametrize(
    ("questions", "contested", "tries"),
    [(500, 200.0, 24), (38, 13.37, 7), (97, 0.0, 3), (5, 4.6, 1)],
)
def test_the_distribution_of_the_best_is_python_s(questions, contested, tries, page):
    luck = best_by_luck(questions, contested, tries)
    found = page.run(
        f"(() => {{ const found = bestByLuck({questions}, {contested}, {tries}); "
        "return [found.expected, found.most, ...[-0.1, 0, 0.05, 0.2].map(found.p)]; })()"
    )
    chances = [luck.p(gain) for gain in (-0.1, 0, 0.05, 0.2)]
    assert found == pytest.approx([luck.expected, luck.most, *chances], abs=1e-11)


@pytest.mark.parametrize(
    ("gain", "changed", "tests"), [(0.06, 0.2, 1), (0.02, 0.2, 24), (0.3, 0.1, 5), (0.013, 0.44, 1)]
)
def test_the_questions_that_settle_are_python_s(gain, changed, tests, page):
    asked = questions_for(gain, changed, tests)
    assert page.run(f"questionsFor({gain}, {changed}, {tests})") == asked
    of_page = page.run(f"power({asked}, {changed}, {tests}, {gain})")
    assert of_page == pytest.approx(power(asked, changed, tests, gain), abs=1e-9)


def test_published_tables_have_the_numbers_of_the_audit(page):
    cells = head_pruning(simulation.PUBLISHED)
    found = []
    for place, table in enumerate(published_tables(cells)):
        exhibit, _, layer = table["title"].replace(": ", ", ").split(", ")
        data = "JSON.parse(document.getElementById('data').textContent)"
        for row in page.run(f"ofTable(parseTable({data}[{place}].text))"):
            key = {"exhibit": exhibit, "layer": int(layer.split()[1]), "subject": row["group"]}
            found.append(key | row)
    pairs = audit(cells, seed=0)["pairs"].set_index(KEYS)
    of_page = pd.DataFrame(found).set_index(KEYS).loc[pairs.index]  # the audit has legible ones
    numbers = {"n": "n", "heads": "tries", "base": "base", "gain": "gain"}
    numbers |= dict.fromkeys(("by_chance", "most", "p"))
    for name, of in numbers.items():
        assert of_page[of or name].to_numpy() == pytest.approx(pairs[name].to_numpy(), abs=1e-9)
    assert list(of_page["p"] <= 0.05) == list(pairs["beyond"])
    assert pairs["beyond"].sum() == 4


def test_a_table_with_gaps_and_one_that_hurts_is_read_as_python_reads_it(page):
    draw = np.random.default_rng(4)
    sizes, base = np.array([40, 63, 25]), np.array([0.5, 40 / 63, np.nan])
    right = draw.binomial(sizes, [0.5, 0.6, 0.7], (9, 3))
    right[2] = 1  # hurts
    accuracy = right / sizes
    accuracy[4, 1] = accuracy[5, 2] = np.nan
    rows = [["try", "a", "b", "c"], ["n", *sizes], ["base", 50, 63.49, ""]]
    rows += [
        [f"try {place}", *("" if np.isnan(value) else f"{100 * value:.2f}" for value in row)]
        for place, row in enumerate(accuracy)
    ]
    text = "\n".join(";".join(map(str, row)) for row in rows)
    found = pd.DataFrame(page.run(f"ofTable(parseTable({json.dumps(text)}))"))
    expected = of_table(accuracy, base, sizes)
    for name in ("n", "tries", "contested"):
        assert found[name].to_numpy() == pytest.approx(expected[name].to_numpy(), abs=1e-9)
    for name in ("gain", "by_chance", "most", "p"):
        assert found[name].to_numpy(float)[:2] == pytest.approx(expected[name].to_numpy()[:2])
    assert expected["ordinary"].tolist() == [8, 7, 7]


def test_five_numbers_are_answered_and_bad_ones_refused(page):
    found = lucky(24, 500, 0.68, 0.2, 0.74)
    said = page.run("document.getElementById('told').innerText")
    assert f"gains +{100 * found.expected:.1f} points on average" in said
    assert f"most +{100 * found.most:.1f} in 95" in said
    assert f"p = {found.p:.3f}" in said
    assert f"{found.settles} fresh questions" in said
    assert "with p < 0.001." in typed(page, "best", "95")
    assert typed(page, "changed", "70") == "Luck changes from 0 to 50% of the outcomes there."
    assert "whole numbers" in typed(page, "k", "2.5")


def typed(page, field, text):
    """Return what the page says once a field holds a text."""
    page.run(
        f"document.getElementById('{field}').value = '{text}'; "
        f"document.getElementById('{field}').dispatchEvent(new Event('input', {{bubbles: true}}))"
    )
    return page.run("document.getElementById('told').innerText")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a,b\n10", "A table has titles"),
        ("t,a\nn,10\nbase,0.5\none,0.4\ntwo,0.6,0.7", "“two” has 3 cells, the titles have 2."),
        ("t,a\nn,ten\nbase,0.5\none,0.4\ntwo,0.6", "The second row has to say"),
        ("t,a\nn,10\nbase,0.5\none,half\ntwo,0.6", "“half” is no accuracy"),
    ],
)
def test_what_is_no_table_is_refused_in_a_sentence(text, message, page):
    page.run(
        f"document.getElementById('table').value = {json.dumps(text)}; "
        "document.getElementById('table').dispatchEvent(new Event('input'))"
    )
    assert page.run("document.getElementById('summary').textContent").startswith(message)
    assert page.run("document.getElementById('rows').childElementCount") == 0
    assert page.ask("shown('#judged').length") == 0


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [1280, 390])
def test_the_page_fits_its_screen_and_is_legible(width, scheme, page, file):
    page.prefer(scheme)
    page.resize(width, 844, phone=width < 800)
    page.open(file)
    assert page.ask("beyond()") == []
    assert page.ask("unnamed()") == page.ask("doubled()") == 0
    assert [text for ratio, size, text in page.ask("legible()") if ratio < 4.5 or size < 11] == []


def test_a_page_without_published_tables_still_answers(browser, tmp_path):
    (tmp_path / "luck.html").write_text(luck_page(None), encoding="utf-8")
    browser.open(tmp_path / "luck.html")
    assert browser.ask("shown('#published').length") == 0
    assert browser.ask("shown('#judged').length") == 0
    assert "by luck alone" in browser.run("document.getElementById('told').innerText").lower()
    assert browser.complaints() == []
