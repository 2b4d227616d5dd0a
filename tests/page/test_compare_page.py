"""The page of `headsweep compare` in a real browser: of two systems and of five with samples."""

import re

import numpy as np
import pandas as pd
import pytest

from headsweep.cli.main import main

NAMES = ["base", "lora-r8", "full", "distilled-from-72b-with-a-very-long-name", "long-answers"]


def sampled(place, ids=70, samples=4):
    """Return answers of a system that is better, the later it comes, and spends more."""
    draw = np.random.default_rng(3)
    easy = draw.random(ids) < 0.5
    right = draw.random((ids, samples)) < np.where(easy, 0.8, 0.1 + 0.12 * place)[:, np.newaxis]
    rows = pd.DataFrame({"id": np.repeat(range(ids), samples), "correct": right.ravel()})
    rows["sample"] = np.tile(range(samples), ids)
    rows["tokens"] = draw.integers(80, 120, len(rows)) * (2 if place == 4 else 1)
    return rows.assign(final_answer=np.where(rows["correct"], "7", "3"))


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    """Pages by the number of systems."""
    folder, made = tmp_path_factory.mktemp("compared"), {}
    given = []
    for place, name in enumerate(NAMES):
        given.append(str(folder / f"{name}.csv"))
        sampled(place).to_csv(given[-1], index=False)
    once = []
    for place, share in enumerate((0.1, 0.9)):
        once.append(str(folder / f"once{place}.csv"))
        right = np.random.default_rng(place).random(50) < share
        pd.DataFrame({"id": range(50), "correct": right}).to_csv(once[-1], index=False)
    for number, systems in ((5, given), (2, once)):
        out = folder / f"of{number}"
        assert main(["compare", *systems, "--out", str(out)]) == 0
        made[number] = out / "compare.html"
    return made


@pytest.fixture(params=[2, 5])
def page(request, browser, files):
    browser.prefer("light")
    browser.resize(1280, 800)
    browser.file = files[request.param]
    browser.open(browser.file)
    yield browser
    assert browser.complaints() == []


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [1280, 390])
def test_the_page_fits_its_screen_and_is_legible(page, width, scheme):
    page.prefer(scheme)
    page.resize(width, 844, phone=width < 800)
    page.open(page.file)
    assert page.ask("beyond()") == []
    assert page.ask("unnamed()") == page.ask("doubled()") == 0
    assert page.ask("drawn()")
    assert [text for ratio, size, text in page.ask("legible()") if ratio < 4.5 or size < 11] == []


def test_the_first_sentence_says_what_is_better(page):
    said = page.run("document.querySelector('header .lead').innerText")
    if "of2" in str(page.file):
        assert re.match(r"once1 is better than once0: \+\d+\.\d \(\+", said)
    else:
        assert re.match(r"\d+ of 10 differences are more than chance", said)


def test_no_interval_is_cut_off_and_every_number_stands_in_its_file(page):
    assert page.run("document.querySelectorAll('text.arrow').length") == 0
    numbers = [number for number in page.ask("numbers()") if ":" not in number[1]]
    assert len(numbers) > 10
    for file, key, value, _ in numbers:
        column, row = key.split("@")
        table = pd.read_csv(page.file.with_name(file))
        assert float(value) == pytest.approx(table[column][int(row)], rel=1e-4)


def test_names_on_both_sides_of_a_difference_are_told(page):
    labels = page.run(
        "[...document.querySelectorAll('.strips th[scope=row]')].map(e => e.innerText)"
    )
    assert labels
    assert all(re.search(r"\S − \S", label) for label in labels)


def test_an_interval_stands_with_its_number_and_a_test_that_all_pairs_have_is_named_once(page):
    systems, pairs = (
        page.run(f"document.querySelector('#{section} table').innerText")
        for section in ("systems", "pairs")
    )
    assert re.search(r"\d+\.\d \(\d+\.\d to \d+\.\d\)", systems)
    assert re.search(r"[+−]\d+\.\d \([+−]?\d+\.\d to [+−]?\d+\.\d\)", pairs)
    assert len(re.findall("McNemar|paired", pairs)) == 1


def test_samples_and_equal_tokens_have_their_sections(browser, files):
    browser.open(files[5])
    assert "Pass@4 (%)" in browser.run("document.getElementById('samples').innerText")
    tokens = browser.run("document.getElementById('tokens').innerText")
    assert "with the tokens of" in tokens
    assert "long-answers − base" in tokens
    browser.open(files[2])
    assert browser.run("document.getElementById('samples')") is None
