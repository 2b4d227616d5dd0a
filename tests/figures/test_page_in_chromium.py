"""The report as a reader meets it: in headless Chromium."""

import json
import shutil
from collections.abc import Iterator
from pathlib import Path

import chromium
import numpy as np
import pytest
import simulation

from headroom.planning.batches import batches
from headroom.planning.store import Store
from headroom.report import browser
from headroom.report.page import write_report
from headroom.tables import ANSWERS, QUESTIONS, read_table, write_table

pytestmark = pytest.mark.skipif(not chromium.BINARY, reason="no Chromium is installed")

SHOWN = "[...document.querySelectorAll('{}')].filter((one) => one.checkVisibility()).length"
FIRST = "document.querySelector('#sweep-1 tbody tr:not(.fixed):not([hidden]) th').textContent"
# Markup, ends of script, direction marks, escapes, a null byte and a quote.
HOSTILE = (
    "</script><script>alert(1)</script><img src='https://example.org/x' onerror=alert(2)>"
    "<svg onload=alert(3)> \u202eabc\u2066 \x1b[31m &lt;b&gt; ]]> <!-- \u2028 ' \" \\ {{ 7*7 }} 𝔘"
)


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> Iterator[chromium.Page]:
    with chromium.page(tmp_path_factory.mktemp("profile")) as page:
        yield page


@pytest.fixture
def report(run: tuple[Path, object], page: chromium.Page) -> Iterator[chromium.Page]:
    page.resize(1200, 900)
    page.prefer("light")
    page.open(run[0] / "results/simulated/report.html")
    yield page
    assert page.complaints() == []


def choose(page: chromium.Page, name: str, value: str) -> None:
    """Choose a filter as a reader does."""
    page.run(
        f"{{ const one = document.querySelector('#filters [name={name}]'); one.value = "
        f"{json.dumps(value)}; one.dispatchEvent(new Event('input', {{ bubbles: true }})); }}"
    )


def test_filters_hide_what_they_leave_out_and_bring_it_back(report):
    rows, columns = SHOWN.format("#sweep-1 tbody tr"), SHOWN.format("#sweep-1 thead th")
    assert (report.run(rows), report.run(columns)) == (25, 14)
    choose(report, "layer", "2")
    assert report.run(rows) == 9  # 8 heads, and the base model
    assert report.run("[...document.querySelectorAll('details[data-layer]')].map(d => d.hidden)")
    choose(report, "group", "Geometry")
    assert report.run(columns) == 3  # the head, Overall, Geometry
    assert "L02H0" in report.run("document.querySelector('form.browser [name=head]').innerText")
    assert "8 heads" in report.run("document.querySelector('form.search output').textContent")
    report.run("document.querySelector('#filters button').click()")
    report.run("new Promise((done) => setTimeout(done, 50))")
    assert (report.run(rows), report.run(columns)) == (25, 14)


def test_tables_sort_by_keyboard_and_say_so(report):
    report.run("document.querySelector('#sweep-1 thead th:nth-child(2) button').focus()")
    before = report.run(FIRST)
    report.press("Enter")
    best = report.run(FIRST)
    report.press("Enter")
    order = "document.querySelector('#sweep-1 [aria-sort]').getAttribute('aria-sort')"
    assert report.run(order) == "ascending"
    worst = report.run(FIRST)
    accuracy = (
        "Object.fromEntries([...document.querySelectorAll('#sweep-1 tbody tr')].map((row) => "
        "[row.cells[0].textContent, parseFloat(row.cells[1].textContent)]))"
    )
    found = report.run(accuracy)
    base = found.pop("No Prune")
    assert before == "L00H00"
    assert found[best] == max(found.values())
    assert found[worst] == min(found.values())
    top = "document.querySelector('#sweep-1 tbody tr').cells[0].textContent"
    assert report.run(top) == "No Prune"
    assert base > found[worst]


def test_every_control_is_reached_by_tab_and_shows_that_it_has_the_focus(report):
    wanted = report.run(
        "[...document.querySelectorAll('#filters select, form.browser select, thead button')]"
        ".filter((one) => one.checkVisibility()).length"
    )
    reached = 0
    for _ in range(400):
        report.press("Tab")
        found = report.run(
            "(() => { const one = document.activeElement; return one === document.body ? null : "
            "[one.matches('#filters select, form.browser select, thead button'), "
            "getComputedStyle(one).outlineStyle] })()"
        )
        if found is None:
            break
        reached += found[0]
        assert found[1] != "none"
    assert reached == wanted > 40


def test_browser_shows_answers_side_by_side_with_the_first_difference_marked(report):
    article = "document.querySelector('form.browser article')"
    first = report.run(f"{article}.querySelector('h3').textContent")
    sides = report.run(f"[...{article}.querySelectorAll('.answer')].map((one) => one.textContent)")
    marks = report.run(f"[...{article}.querySelectorAll('mark')].map((one) => one.textContent)")
    head = report.run("document.querySelector('[name=head]').selectedOptions[0].dataset.name")
    assert sides == ["Three and four: so \\boxed{7}", f"Three and {head} and four: so \\boxed{{7}}"]
    assert [side.removeprefix("Three and ") for side in sides] == marks
    assert report.run(f"{article}.querySelectorAll('.chip').length") == 2
    assert "margin 0.250" in report.run(f"{article}.textContent")
    report.run("document.getElementById('question').focus()")
    report.press("ArrowDown")
    assert report.run(f"{article}.querySelector('h3').textContent") != first
    count = "document.getElementById('question').options.length"
    everything = report.run(count)
    parts = []
    for outcome in ("gained", "lost", "same"):
        report.run(
            "{ const one = document.querySelector('[name=outcome]'); "
            f"one.value = '{outcome}'; one.dispatchEvent(new Event('input')); }}"
        )
        parts.append(report.run(count))
    assert sum(parts) == everything
    assert all(parts)


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [390, 1200])
def test_page_fits_its_window_and_takes_the_reader_s_colours(report, width, scheme):
    report.resize(width, 844, phone=width < 600)
    report.prefer(scheme)
    assert report.run("document.documentElement.scrollWidth") <= width
    dark = report.run("getComputedStyle(document.body).backgroundColor") == "rgb(18, 20, 23)"
    assert dark == (scheme == "dark")
    tall = report.run(
        "[...document.querySelectorAll('#filters select, form.browser button')]"
        ".filter((one) => one.checkVisibility()).map((one) => one.offsetHeight)"
    )
    assert min(tall) >= 24  # WCAG 2.2, target size


def test_hostile_text_stays_inert(page, run, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    config = simulation.demo()
    simulation.fill(config, subjects=(HOSTILE, "Algebra"), text=HOSTILE)
    shutil.copytree(run[0] / "results/simulated/controls", "results/simulated/controls")
    shutil.copytree(run[0] / "results/simulated/audit", "results/simulated/audit")
    for batch in batches(config):
        for file in map(Path, Store(config).answers(batch)):
            answers = read_table(file, ANSWERS)
            answers["text"] = [f"\0{text}" for text in answers["text"]]
            answers.loc[3:5, "text"] += "\u202e<b>" * 200_000  # a megabyte
            write_table(file, answers, ANSWERS)
    for file in Path("results/store/questions").glob("*.parquet"):
        asked = read_table(file, QUESTIONS)
        asked["answer"] = HOSTILE
        write_table(file, asked, QUESTIONS)
    write_report(config)
    written = tmp_path / "results/simulated/report.html"
    assert written.stat().st_size < 5e6
    assert "\0" not in written.read_text(encoding="utf-8")

    page.open(written)
    assert page.run("document.querySelectorAll('article .sides').length") == 1
    places = page.run("document.getElementById('question').options.length")
    for place in range(min(places, 12)):
        page.run(
            "{ const one = document.getElementById('question'); "
            f"one.selectedIndex = {place}; one.dispatchEvent(new Event('input')); }}"
        )
    text = page.run("document.querySelector('article').innerText")
    assert "<script>alert(1)</script>" in text
    assert "[U+202E]abc[U+2066]" in text
    assert "[U+0000]" in text
    assert page.run("document.querySelectorAll('article img, article script, svg').length") == 0
    page.run("new Promise((done) => setTimeout(done, 100))")
    assert page.complaints() == []


def test_a_megabyte_is_cut_and_a_full_page_says_what_it_leaves_out(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(browser, "_BUDGET", 9_000)
    config = simulation.demo()
    simulation.fill(config, text="x" * 300)
    found = browser.browse(config, "demo")
    data = json.loads(found.data)
    assert 1 <= found.heads == len(data["heads"]) < found.of == 24
    assert not found.complete
    size = sum(len(part) for entry in data["questions"].values() for part in entry[2:5])
    size += sum(len(answer[2]) for head in data["heads"] for answer in head["answers"])
    assert size <= 9_000
    gains = [head["gain"] for head in data["heads"]]
    assert gains == sorted(gains, reverse=True)
    assert browser.shared_start("abcd", "abXd") == 2
    assert browser.shared_start("ab", "abc") == 2
    assert browser.shared_start("", "abc") == 0


def test_lengths_are_those_of_the_page_s_script(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    config = simulation.demo()
    simulation.fill(config, text="")
    batch = batches(config)[0]
    for variant, file in zip(batch.variants, Store(config).answers(batch), strict=True):
        text = "𝔘𝔙 is" if variant.is_base else "𝔘𝔙 was"
        answers = read_table(Path(file), ANSWERS).assign(text=text)
        write_table(Path(file), answers, ANSWERS)
    data = json.loads(browser.browse(config, "demo").data)
    name, shared, rest, *_ = data["heads"][0]["answers"][0]
    units = np.frombuffer(data["questions"][name][4].encode("utf-16-le"), dtype="<u2")
    assert units[:shared].tobytes().decode("utf-16-le") == "𝔘𝔙 "
    assert rest == "was"
