"""What the page promises, in a real browser; held by simulated runs and by a finished demo."""

import base64
import re

import chromium
import numpy as np
import pandas as pd
import pytest
from scipy.stats import t

WHOLE = ["whole", *(["demo"] if chromium.DEMO.exists() else [])]
OF_EVERY_KIND = pytest.mark.parametrize("unopened", [*WHOLE, "sweep", "compression"], indirect=True)
"""For what depends on what is missing: a run of fewer kinds has parts of the whole one's page."""

FONTS = {
    "this machine's": "",
    "wide": 'font-family: "DejaVu Sans", Verdana, sans-serif !important',
    "monospaced": 'font-family: "DejaVu Sans Mono", monospace !important',
    "spaced": "letter-spacing: 0.08em !important",  # where no such font is installed
}


@pytest.fixture(params=WHOLE)
def unopened(request, simulated, browser):
    """The page for a test that opens it itself, in another size or scheme."""
    browser.kind = request.param
    browser.prefer("light")
    browser.resize(1280, 800)
    found = (chromium.DEMO.parent, None) if browser.kind == "demo" else simulated(browser.kind)
    browser.file, browser.config = found[0] / "report.html", found[1]
    yield browser
    assert browser.complaints() == []


@pytest.fixture
def page(unopened):
    unopened.open(unopened.file)
    return unopened


@OF_EVERY_KIND
@pytest.mark.parametrize(("width", "height", "most"), [(1280, 800, 9000), (390, 844, 14_000)])
def test_height_and_width_stay_within_their_budget(unopened, width, height, most):
    page = unopened
    page.resize(width, height, phone=width < 800)
    page.open(page.file)
    page.run("scrollTo(0, document.documentElement.scrollHeight)")
    assert page.ask("height()") <= most
    assert page.ask("shifts()") <= 0.02
    assert page.ask("scrolling()") == []
    assert page.ask("beyond()") == []


@pytest.mark.parametrize("width", [320, 1280])
def test_no_element_is_wider_than_the_screen_in_any_font(unopened, width):
    page = unopened
    page.resize(width, 844, phone=width < 800)
    page.open(page.file)
    for crowded in (False, True):
        if crowded:
            page.ask("crowd()")
        for font, style in FONTS.items():
            page.ask(f"dress({style!r})")
            assert page.ask("beyond()") == [], font
            assert page.run("document.documentElement.scrollWidth") <= width, font


@OF_EVERY_KIND
def test_the_first_screen_holds_the_verdicts_and_the_hero(page):
    assert max(page.ask("bottoms('.verdicts li, .hero')")) <= 800
    # 200 words for five verdicts, and a verdict's own limit for each that a run adds.
    more = max(0, len(page.ask("verdicts()")) - 5)
    assert page.ask("words('header')") <= 200 + 32 * more
    page.resize(390, 844, phone=True)
    page.open(page.file)
    assert all(bottom <= 844 for bottom in page.ask("bottoms('.verdicts li')")[:3])


@OF_EVERY_KIND
def test_words_and_open_tables_stay_within_their_budget_and_links_lead_somewhere(page):
    for rows in page.ask("tables()"):
        assert 1 <= len(rows) <= 12
        assert all(set(column) != {"0"} for column in zip(*rows, strict=True))
    assert page.ask("drawn()")
    assert page.run("document.querySelectorAll('details').length") <= 21
    assert page.ask("words('body')") <= 2300
    for answer, told in page.ask("verdicts()"):
        assert len(answer.split()) <= 9
        assert len(re.findall(r"\w\S*", told)) <= 32
        assert len(re.findall(r"\(\S+ to \S+\)", told)) <= 1
    assert max(len(text.split()) for text in page.ask("texts('caption, figcaption')")) <= 45
    text = page.run("document.body.innerText").lower()
    assert not re.findall(r"\b(?:surely|curse|arms?|nan)\b", text)
    if config := page.config:
        keys = {*config.questions, *config.sweeps, *config.selectors, *config.compressions}
        assert not keys & set(page.ask("texts('h1, h2, h3, summary')"))
    targets = [target for target in page.ask("links('a')") if "/" not in target]
    assert all(page.run(f"!!document.querySelector('{target}')") for target in targets)


def test_a_phone_names_each_of_several_numbers_beside_a_mark(unopened):
    page = unopened
    page.resize(390, 844, phone=True)
    page.open(page.file)
    rows = page.ask("titled()")
    assert rows and all(all(row) for row in rows)


def test_links_land_on_their_headings(page):
    for anchor in page.ask("links('nav a')"):
        page.click(f"nav a[href='{anchor}']")
        top = page.run(f"document.querySelector('{anchor} h2').getBoundingClientRect().top")
        at_end = page.ask("innerHeight + scrollY >= height() - 1")
        assert 0 <= top <= 160 or at_end
    # Of a map: the explorer opens them.
    heads = [target for target in page.ask("links('a')") if "/" in target]
    for head in heads[:: max(1, len(heads) // 3)]:
        page.click(f"a[href='{head}']")
        assert head.rpartition("/")[2] in page.run("document.querySelector('.head').innerText")
    page.click("header a[href='#printed']")
    assert page.run("document.querySelector('#printed details').open")


def test_every_number_is_that_of_its_file(page):
    found = page.ask("numbers()")
    assert len(found) > 40
    assert page.ask("traced()")
    tables = {}
    for file, key, value, text in found:
        if file not in tables:
            read = pd.read_parquet if file.endswith("parquet") else pd.read_csv
            tables[file] = read(page.file.parent / file)
        column, _, rest = key.partition("@")
        places, _, how = rest.partition(":")
        rows = tables[file]
        if places != "*":
            rows = rows.loc[[int(place) for place in places.split(",") if place]]
        if how.startswith("of "):  # an interval that holds for several entries at once
            row, tail = rows.iloc[0], 0.025 / int(how.removeprefix("of "))
            quantile = t(row.get("freedom", np.inf)).isf
            wider = quantile(tail) / quantile(0.025)
            middle = (row["low"] + row["high"]) / 2
            wanted = middle + (row[column] - middle) * wider
        elif how.startswith("holm of "):  # at least the test's own, at most Bonferroni's
            own, wanted = rows[column].iloc[0], float(value)
            assert own <= wanted <= min(1, int(how.removeprefix("holm of ")) * own)
        else:
            wanted = rows[column].agg(how) if how else rows[column].iloc[0]
        assert float(value) == pytest.approx(wanted, rel=1e-5), (file, key)
        if text == "< 0.001":
            assert wanted < 0.001
            continue
        number = float(re.sub(r"[^\d.e-]", "", text.replace("−", "-")))
        off = min(abs(number - wanted), abs(number - 100 * wanted))
        half = 0.5 * 10.0 ** -len(text.rstrip("%").partition(".")[2])
        assert off <= 1.01 * half or f"{wanted:.3g}" == text, (file, key, text)


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_the_palette_is_legible_and_type_is_large_enough(page, scheme):
    page.prefer(scheme)
    assert [one for one in page.ask("legible()") if one[0] < 4.5 or one[1] < 11] == []


def test_the_keyboard_reaches_all_with_few_stops(page):
    stops = 0
    page.press("Tab")
    while page.run("document.activeElement !== document.body") and stops < 70:
        stops += 1
        page.press("Tab")
    assert 8 <= stops <= 60
    assert page.ask("unnamed()") == 0
    assert page.ask("doubled()") == 0
    assert all(len(text.split()) <= 40 for text in page.ask("alternatives()"))


@OF_EVERY_KIND
def test_print_is_short_and_light_and_without_scripts_only_choosing_is_lost(page):
    page.prefer("dark", "print")
    assert page.run("getComputedStyle(document.body).backgroundColor") == "rgb(255, 255, 255)"
    a4 = {"paperWidth": 8.27, "paperHeight": 11.69, "printBackground": True}
    pdf = base64.b64decode(page.call("Page.printToPDF", **a4)["data"])
    assert len(re.findall(rb"/Type\s*/Page\b", pdf)) <= 10
    page.prefer("light")
    page.call("Emulation.setScriptExecutionDisabled", value=True)
    try:
        page.open(page.file)
        assert page.ask("verdicts()")
        assert len(page.ask("texts('table')")) >= 3
        if page.kind != "compression":
            assert page.ask("shown('.explorer .map').length") == 1
            assert "needs JavaScript" in page.run("document.body.innerText")
    finally:
        page.call("Emulation.setScriptExecutionDisabled", value=False)
    html = page.file.read_text(encoding="utf-8")
    assert len(html.encode()) <= 900_000 or page.kind != "demo"
    without_script = re.sub(r"<script.*?</script>", "", html, flags=re.DOTALL)
    outside = r'(?:src|href|action|srcset|poster)="(?!#|data:)[^"]*'
    assert re.findall(outside, without_script) == []
    policy = re.search(r'Content-Security-Policy" content="([^"]*)', html)[1]
    assert policy.startswith("default-src 'none'")
    assert policy.count("unsafe") == 1  # styles
