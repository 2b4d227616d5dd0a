"""The explorer, driven as a reader does; hostile texts; the papers' size; what is left out."""

import json
import re
from contextlib import chdir
from functools import partial
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

import simulation
from headsweep.config import parse
from headsweep.config.experiments import TopHeads
from headsweep.files import paths
from headsweep.files.record import rewrite_checksums
from headsweep.files.safe_files import read_table, write_table
from headsweep.files.tables import ACCURACY, ANSWERS, LOOKS, QUESTIONS
from headsweep.page import explorer, head_grid, looks
from headsweep.page.report import write_report
from headsweep.results import jobs
from headsweep.store.batches import batches, pool
from headsweep.store.layout import Store
from headsweep.store.looks import looks_file
from headsweep.text import points

# Markup, ends of script, direction marks, escapes, a null byte and a quote.
HOSTILE = (
    "</script><script>alert(1)</script><img src='https://example.org/x' onerror=alert(2)>"
    "<svg onload=alert(3)> \u202eabc\u2066 \x1b[31m &lt;b&gt; ]]> <!-- \u2028 ' \" \\ {{ 7*7 }} 𝔘"
)
ONE_SWEEP = simulation.DEMO | {"papers": False, "embedders": {}, "selectors": {}, "comparisons": {}}
GEOMETRY = "[...one.options].find((each) => each.text.startsWith('Geometry')).value"


def put(page, selector, value):
    event = f"one.value = {value}; one.dispatchEvent(new Event('input'))"
    page.run(f"{{ const one = document.querySelector('{selector}'); {event}; }}")


@pytest.fixture
def sweep(simulated, browser):
    browser.prefer("light")
    browser.resize(1280, 900)
    browser.folder, browser.config = simulated("sweep")
    browser.open(browser.folder / "report.html")
    yield browser
    assert browser.complaints() == []


def test_every_head_opens_what_it_won_and_lost(sweep):
    heads = pd.read_csv(sweep.folder / "controls/demo/heads.csv").set_index("variant").drop("base")
    for head in sweep.ask("all('[data-head]').map((one) => one.dataset.head)"):
        sweep.click(f"[data-head={head}]")
        counts = [int(n) for n in re.findall(r"(?:won|lost) (\d+)", sweep.ask("texts('.list')")[0])]
        assert counts == heads.loc[head, ["gained", "lost"]].tolist()
        assert f"Without {head}" in sweep.ask("texts('.head')")[0]
        assert sweep.run("location.hash") == f"#demo/{head}"
    assert head == heads.index[-1]


def test_texts_are_the_store_s_and_the_first_difference_is_marked(sweep):
    file = partial(Store(sweep.config).of_sweep, "demo", ANSWERS)
    files = [sweep.folder.parents[1] / file(variant=name) for name in ("base", "L02H03")]
    base, own = (read_table(each, ANSWERS)["text"] for each in files)
    (place, *_) = np.flatnonzero(base != own)
    sweep.run(f"location.hash = '#demo/L02H03/q{place}'")
    sweep.wait()
    shown = sweep.ask("all('.text').map((one) => one.textContent)")
    assert shown == [base[place], own[place]]
    of_mark = "(one) => [one.previousSibling.data.length, one.textContent]"
    marks = sweep.ask(f"all('.text mark').map({of_mark})")
    start = next(n for n, (a, b) in enumerate(zip(*shown, strict=False)) if a != b)
    assert [at for at, _ in marks] == [start, start]
    assert "L02H03" in marks[1][1]


def test_keys_addresses_and_back_lead_through_the_map(sweep):
    sweep.click("[data-head=L00H00]")
    sweep.run("document.querySelector('[data-head=L00H00]').focus()")
    sweep.press("ArrowRight", "ArrowDown")
    assert sweep.run("location.hash") == "#demo/L02H01"
    assert sweep.run("document.activeElement.dataset.head") == "L02H01"
    for modifiers in (1, 2, 4):  # these are the browser's own
        sweep.press("ArrowRight", modifiers=modifiers)
    assert sweep.run("location.hash") == "#demo/L02H01"
    sweep.press("Enter", "Enter")
    question = sweep.run("location.hash")
    assert re.fullmatch(r"#demo/L02H01/q\d+", question)
    sweep.press("Escape")
    assert sweep.run("document.activeElement.dataset.head") == "L02H01"
    sweep.run("history.back()")
    sweep.wait_for(f"location.hash === '{question}' && texts('.text').length === 2")
    sweep.run("history.back()")  # arrows leave one entry
    earlier = "texts('.head').join().includes('Without L02H01') && texts('.text').length === 0"
    sweep.wait_for(f"location.hash === '#demo/L02H01' && {earlier}")
    sweep.run("history.back()")
    sweep.wait_for("location.hash === ''")


def test_heads_stand_in_their_columns_and_arrows_lead_to_the_nearest(filled, browser):
    names = ("L00H01", "L00H06", "L02H05", "L05H00", "L05H04", "L05H06")
    own = filled.sweeps["demo"]
    some = own.model_copy(update={"heads": TopHeads(sweep="demo", top=6, chosen=names)})
    filled = filled.model_copy(update={"sweeps": {"demo": some}})
    simulation.fill(filled)
    browser.resize(1280, 900)
    browser.open(written(filled))
    rows = browser.ask(
        "all('.explorer .row').map((row) => [...row.lastElementChild.children].map("
        "(cell) => cell.dataset.head ?? cell.textContent))"
    )
    assert rows == [
        ["0", "1", "4", "5", "6"],
        ["", "L00H01", "", "", "L00H06"],
        ["", "", "", "L02H05", ""],
        ["L05H00", "", "L05H04", "", "L05H06"],
    ]
    lefts = browser.ask(
        "all('.explorer .row').map((row) => [...row.lastElementChild.children].map("
        "(cell) => Math.round(cell.getBoundingClientRect().left)))"
    )
    assert lefts == [lefts[0]] * 4
    shown = browser.ask("shown('.explorer [data-head]').map((one) => one.title)")
    assert [title.partition(": ")[0] for title in shown] == list(names)
    # A reader of rows finds as many cells in each, the corner and the absent ones among them.
    cell = "[role=columnheader], [role=rowheader], [role=gridcell]"
    seen = "(one) => one.checkVisibility({ visibilityProperty: true })"
    cells = f"[...row.querySelectorAll('{cell}')].filter({seen}).length"
    assert browser.ask(f"all('.explorer [role=row]').map((row) => {cells})") == [6] * 4
    assert browser.ask("all('.explorer .row > span')[0].ariaLabel") == "layer"
    browser.click("[data-head=L00H06]")
    browser.run("document.querySelector('[data-head=L00H06]').focus()")
    visited = []
    for key in ("ArrowDown", "ArrowDown", "ArrowDown", "ArrowUp", "ArrowUp"):
        browser.press(key)
        visited.append(browser.run("document.activeElement.dataset.head"))
    assert visited == ["L02H05", "L05H04", "L05H04", "L02H05", "L00H06"]
    assert browser.complaints() == []


def test_a_group_recolours_the_map_and_search_narrows_the_list(sweep):
    z = pd.read_parquet(next((sweep.folder / "accuracy").rglob("greedy-*/math_test*.parquet")))
    part = z[z["subject"] == "Geometry"]
    put(sweep, "#group", GEOMETRY)
    gain = part["L05H02"].mean() - part["base"].mean()
    cell = "document.querySelector('[data-head=L05H02]')"
    label, colour = sweep.run(f"[{cell}.ariaLabel, {cell}.className]")
    assert points(gain) in label
    assert head_grid.colour(gain) == colour
    put(sweep, "[type=search]", "'nowhere'")
    assert "No question" in sweep.ask("texts('.list')")[0]


def test_a_mark_in_a_group_is_told_as_one_of_q_and_not_of_the_corrected_test(sweep, tmp_path):
    html = (sweep.folder / "report.html").read_text("utf-8")
    embedded = re.search(r'id="data">(.*?)</script>', html, re.DOTALL)[1]
    data = json.loads(embedded)
    marked = {"L05H01": "▲", "L05H02": "▼"}
    for head in data[0]["heads"]:
        head["marks"] = "." + marked.get(head["name"], ".") * (len(head["marks"]) - 1)
    page = tmp_path / "report.html"
    page.write_text(html.replace(embedded, json.dumps(data)), "utf-8")
    sweep.open(page)
    put(sweep, "#group", GEOMETRY)
    wanted = {"L05H01": "q < 0.05, gains", "L05H02": "q < 0.05, loses"}
    wanted |= {"L05H03": "not shown to differ"}
    for head, told in wanted.items():
        cell = f"document.querySelector('[data-head={head}]')"
        labels = sweep.run(f"[{cell}.ariaLabel, {cell}.title]")
        assert all(label.endswith(f" points, {told}") for label in labels)


@pytest.fixture(scope="module")
def once(tmp_path_factory):
    """Return the folder and the config of a run of one sweep, with all that its page shows."""
    with chdir(folder := tmp_path_factory.mktemp("run")):
        config = parse(ONE_SWEEP)
        simulation.fill(config)
        write_tables(config)
    return folder, config


@pytest.fixture
def filled(once, enter_copy):
    """The config of that run, a copy of which is the folder to work in."""
    folder, config = once
    enter_copy(folder)
    return config


def written(config):
    """Write what is known of the sweeps of a run anew, and its page; return the page."""
    write_tables(config)
    return page_of(config)


def write_tables(config):
    for sweep in config.sweeps:
        jobs.write_tables(Store(config), sweep, simulation.PUBLISHED)
        jobs.write_controls(Store(config), sweep)


def page_of(config):
    write_report(Store(config))
    return Path(paths.REPORT.format(run=config.run)).absolute()


def test_hostile_text_stays_inert(filled, browser):
    simulation.fill(filled, subjects=(HOSTILE, "Algebra"), text=HOSTILE)
    for batch in batches(Store(filled)).values():
        for file in map(Path, batch.answers):
            answers = read_table(file, ANSWERS)
            answers["text"] = [f"\0{text}" for text in answers["text"]]
            answers.loc[3:5, "text"] += "\u202e<b>" * 20_000
            write_table(file, answers, ANSWERS)
    put_looks(filled, token=HOSTILE)
    file = looks_file(Store(filled), "demo")
    table = read_table(file, LOOKS)
    asked = read_table(Store(filled).of_sweep("demo", QUESTIONS), QUESTIONS)["question"][0]
    begin = len("<|user|>") + asked.index("abc") - 1
    for column, value in {"starts": begin, "lengths": 4, "weights": 0.5}.items():
        table[column] = [[value]] * len(table)
    write_table(file, table, LOOKS, {"refused": ""})
    page = written(filled)
    assert page.stat().st_size < 5e6
    assert "\0" not in page.read_text(encoding="utf-8")
    browser.open(page)
    browser.run("document.querySelectorAll('details').forEach((one) => { one.open = true; })")
    for place in range(6):
        browser.run(f"location.hash = '#demo/L02H03/q{place}'")
        browser.wait()
    text = " ".join(browser.ask("texts('.question')"))  # of the last place, a long answer
    shown = ["<script>alert(1)</script>", "[U+202E]abc[U+2066]", "[U+0000]", "characters more]"]
    assert [part for part in shown if part not in text] == []
    browser.click("[data-head=L02H03]")
    browser.click(".list ol button")
    browser.click(".inside summary")
    assert browser.ask("all('.inside mark').map((one) => one.textContent)") == ["[U+202E]abc"]
    assert browser.ask("all('.explorer img, .explorer svg, b script')") == []
    assert browser.complaints() == []


def test_several_sweeps_go_by_their_titles_which_fit_a_phone(filled, browser):
    values = {**ONE_SWEEP}
    known = values["models"]["reasoner"]
    own = {**values["sweeps"]["demo"], "heads": [0, 1], "placebos": "none"}
    named = "A model with a name as long as one gets"
    values["models"] = values["models"] | {"other": {**known, "dtype": "float32", "title": named}}
    other = {**own, "model": "other"}
    few = {"first": {**other, "layers": [0, 1, 3]}, "second": {**other, "layers": [2]}}
    config = parse(values | {"sweeps": {"demo": own, **few}})
    simulation.fill(config)
    browser.resize(390, 844, phone=True)
    browser.open(written(config))
    titles = ["reasoner", f"{named}, layers 0, 1, 3", f"{named}, layer 2"]
    options = "[...document.querySelectorAll('#sweep option')].map((one) => one.text)"
    assert browser.run(options) == browser.ask("texts('.hero .note')") == titles
    put(browser, "#sweep", "1")
    assert titles[1] in browser.ask("texts('h3')")
    told = " ".join(text for _, text in browser.ask("verdicts()"))
    assert all(f"{each}: Best of" in told for each in titles)
    assert browser.run("document.documentElement.scrollWidth") == 390


def test_a_run_without_texts_shows_ids_and_keeps_its_outcomes(filled, browser):
    store = Path("results/store")
    for file in [*store.rglob("L0*.parquet"), *(store / "questions").glob("*.parquet")]:
        file.unlink()
    browser.open(page_of(filled))
    browser.click("[data-head=L05H02]")
    assert "test/" in browser.ask("texts('.list ol')")[0]
    browser.click(".list ol button")
    assert "answers lie in results/store/" in browser.ask("texts('.question')")[0]
    assert browser.complaints() == []


def test_of_the_papers_size_a_page_is_small_and_opens_a_head(filled, browser):
    values = {**ONE_SWEEP}
    model = values["models"]["reasoner"] | {"layers": 28, "heads": 28}
    values["questions"] = {"q": {"benchmark": "generated_math", "split": "test", "n": 500}}
    sweep = {"model": "wide", "questions": "q", "layers": list(range(0, 28, 8))}
    config = parse(values | {"models": {"wide": model}, "sweeps": {"wide": sweep}})
    simulation.fill(config, text="and note that 3x = 48. " * 20)
    page = written(config)
    assert page.stat().st_size < 5e6
    embedded = re.search(r'id="data">(.*?)</script>', page.read_text("utf-8"), re.DOTALL)[1]
    assert len(json.loads(embedded)[0]["questions"]) == 500
    browser.resize(1280, 900)
    browser.open(page)
    assert browser.ask("beyond()") == []
    browser.click("[data-head=L08H21]")
    assert "Without L08H21" in browser.ask("texts('.head')")[0]
    browser.resize(390, 844, phone=True)
    assert browser.ask("beyond()") == []


def test_answers_are_those_of_the_heads_with_the_largest_gains(filled, monkeypatch):
    monkeypatch.setattr(explorer, "_BUDGET", 300_000)
    simulation.fill(filled, text="x" * 300)
    jobs.write_controls(Store(filled), "demo")
    (found,) = explorer.explored(Store(filled))
    assert len(found["questions"]) == 200
    kept = [head for head in found["heads"] if head["answers"] is not None]
    assert 1 <= len(kept) < len(found["heads"])
    assert len(explorer.script(found)) <= 300_000
    least = min(head["gain"] for head in kept)
    assert all(head["gain"] <= least for head in found["heads"] if head["answers"] is None)
    assert all(head["bits"] for head in found["heads"])


def test_a_head_whose_gain_cut_answers_could_decide_is_not_said_to_help(filled, browser):
    (found,) = explorer.explored(Store(filled))
    marked = [head["name"] for head in found["heads"] if head["marks"][0] != "."]
    assert marked
    path = Store(filled).path(paths.CONTROLS, sweep="demo", table="heads")
    table = pd.read_csv(path)
    table.assign(cut_decides=table["variant"] == marked[0]).to_csv(path, index=False)
    rewrite_checksums(path)
    (found,) = explorer.explored(Store(filled))
    left = [head["name"] for head in found["heads"] if head["marks"][0] != "."]
    assert left == marked[1:]
    assert [head["name"] for head in found["heads"] if head["cut_decides"]] == marked[:1]
    browser.open(page_of(filled))
    why = "not counted: answers that were cut may decide it"
    cell = f"document.querySelector('[data-head={marked[0]}]')"
    assert browser.run(f"{cell}.ariaLabel").endswith(f" points, {why}")
    browser.click(f"[data-head={marked[0]}]")
    assert f"{why}, p over all heads " in browser.ask("texts('.head')")[0]
    (one,) = (head for head in found["heads"] if head["name"] == marked[0])
    assert explorer.label(one).endswith(why)


def test_where_not_all_questions_fit_the_page_says_so_and_its_counts_are_of_all(
    filled, monkeypatch, browser
):
    monkeypatch.setattr(explorer, "_BUDGET", 60_000)
    simulation.fill(filled, text="x" * 300)
    browser.open(written(filled))
    (found,) = explorer.explored(Store(filled))
    shown = len(found["questions"])
    assert 20 < shown < 200
    assert len(explorer.script(found)) <= 60_000
    browser.click("[data-head=L05H02]")
    said = f"{shown} of 200 questions are shown here; all are in {found['store']}."
    assert said in browser.ask("texts('.list')")[0]
    put(browser, "#group", GEOMETRY)
    z = pd.read_parquet(next(Path("results").rglob("accuracy/**/greedy-*/math_test*.parquet")))
    part = z[z["subject"] == "Geometry"]
    counted = f"{part['L05H02'].sum()} right of {len(part)}, unpruned {part['base'].sum()}"
    assert counted in browser.ask("texts('.head')")[0]
    cell = browser.run("document.querySelector('[data-head=L05H02]').ariaLabel")
    assert points(part["L05H02"].mean() - part["base"].mean()) in cell
    for place in (0, shown - 1):
        browser.run(f"location.hash = '#demo/L05H02/q{place}'")
        browser.wait()
        row = z.set_index("question_id").loc[found["questions"][place][0]]
        marks = browser.ask("texts('.side span')")
        assert marks == ["✓ right" if row[name] else "✗ wrong" for name in ("base", "L05H02")]
    assert browser.complaints() == []


def test_questions_on_which_heads_differ_are_shown_first_then_a_seeded_part():
    outcomes = np.zeros((1000, 7), int)
    changed = np.arange(0, 1000, 10)
    outcomes[changed, 1 + changed % 6] = 1
    sizes = np.full(1000, 98)
    assert explorer._shown(outcomes, sizes, 101_000).tolist() == [*range(1000)]
    some = explorer._shown(outcomes, sizes, 5_000)
    assert len(some) == 49  # of 98 characters, a comma and seven bits
    assert set(some) < set(changed)
    more = explorer._shown(outcomes, sizes, 30_000)
    assert set(changed) < set(more)
    rest = np.setdiff1d(more, changed)
    assert rest.min() < 100 and rest.max() > 900
    assert sorted(more) == explorer._shown(outcomes, sizes, 30_000).tolist()


def test_lengths_are_those_of_the_page_s_script_and_colours_end_at_doublings():
    base, pruned = [("𝔘𝔙 is", 1.0, False)], [("𝔘𝔙 was", 0.5, True)]
    ((place, length, rest, margin, cut),) = explorer._changed(base, pruned)
    whole = [("𝔘𝔙 was", 0.5, False)]  # an answer that ended says nothing of it
    assert explorer._changed(base, whole) == [[place, length, rest, margin]]
    assert "𝔘𝔙 is".encode("utf-16-le")[: 2 * length].decode("utf-16-le") == "𝔘𝔙 "
    assert (place, rest, margin, cut) == (0, "was", 0.5, True)
    shown = {0: "", 0.001: "u1", 0.02: "u1", 0.021: "u2", -0.06: "d3", 0.125: "u4", 0.16: "u4"}
    shown |= {0.25: "u5", -0.9: "d5"}
    assert {gain: head_grid.colour(gain) for gain in shown} == shown


def put_looks(config, refused="", token="7"):
    """Write looks at every answer that differs: each head reads the prompt's second character."""
    path = partial(Store(config).of_sweep, "demo")
    asked = read_table(path(QUESTIONS), QUESTIONS).set_index("question_id")["question"]
    base = read_table(path(ANSWERS, variant="base"), ANSWERS).set_index("question_id")["text"]
    rows = []
    for number, head in enumerate(pool(config, config.sweeps["demo"])):
        own = read_table(path(ANSWERS, variant=head), ANSWERS).set_index("question_id")["text"]
        for question in base.index[base != own]:
            begin = len(f"<|user|>{asked[question]}<|assistant|>")
            rows.append(
                {
                    "question_id": question,
                    "variant": str(head),
                    "before": "<|user|>",
                    "after": "<|assistant|>",
                    "shared": 2,
                    "end": begin + 6,
                    "base_token": f"{token} {number}",
                    "own_token": f" {number}",
                    "base_effect": 0.25 + number,
                    "own_effect": -1.5,
                    "rank": 1 + number % 8,
                    "starts": [begin + 2, 8, 0],
                    "lengths": [3, 4, 8],
                    "weights": [0.61, 0.2, 0.004],
                }
            )
    table = pd.DataFrame([] if refused else rows, columns=LOOKS.columns)
    write_table(looks_file(Store(config), "demo"), table, LOOKS, {"refused": refused})


def test_a_look_shows_what_the_head_reads_and_writes_and_stays_open(filled, browser):
    put_looks(filled)
    browser.resize(1280, 900)
    file = page_of(filled)
    browser.open(file)
    browser.click("[data-head=L00H03]")
    browser.click(".list ol button")
    assert browser.ask("shown('.inside .text').length") == 0
    browser.run("document.querySelector('.inside summary').focus()")
    browser.press("Enter")
    (text,) = browser.ask("shown('.inside .text').map((one) => one.textContent)")
    assert text == "<|user|>What is 3 + 4? so \\boxed{7}<|assistant|>Three ▮"
    marks = "all('.inside mark').map((one) => [one.textContent, one.className, one.title])"
    assert browser.ask(marks) == [
        ["What", "w2", "20% of its attention"],
        ["ree", "w4", "61% of its attention"],
    ]
    told = browser.ask("texts('.inside')")[0]
    assert "L00H03 itself pushes 7 3 ahead of  3 by 4.75 logits" in told.replace("\xa0", " ")
    assert "number 4 of the 8 heads of its layer" in told
    assert "A direct effect is not the whole effect" in told
    assert "all others 19%" in told
    rows = "all('.inside tr').map((row) => [...row.children].map((cell) => cell.textContent))"
    assert browser.ask(rows) == [["7 3", "unpruned", "+3.25"], [" 3", "without L00H03", "−1.50"]]
    browser.click("[data-head=L00H04]")
    browser.click(".list ol button")
    assert "L00H04 itself pushes" in browser.ask("texts('.inside')")[0]
    for width, height, phone in ((1280, 900, False), (390, 844, True)):
        browser.resize(width, height, phone=phone)
        assert browser.ask("beyond()") == []
    for scheme in ("light", "dark"):
        browser.prefer(scheme)
        assert [one for one in browser.ask("legible()") if one[0] < 4.5 or one[1] < 11] == []
    browser.prefer("light")
    assert browser.ask("unnamed()") == 0
    html = file.read_text("utf-8")
    for head in re.findall(r'"looks":{"of":[^}]*}', html):
        html = html.replace(head, '"looks":null')
    file.write_text(html.replace("this page has room for some", "no <b>room"), "utf-8")
    browser.open(file)
    browser.click("[data-head=L00H03]")
    browser.click(".list ol button")
    browser.click(".inside summary")
    assert "No look here: no <b>room; all are in" in browser.ask("texts('.inside .note')")[0]
    assert browser.complaints() == []


def test_looks_of_turned_outcomes_come_first_and_what_is_not_there_is_told(filled, monkeypatch):
    monkeypatch.setattr(looks, "_BUDGET", 8_000)
    whys = {None: "the model was not there when this page was made"}
    whys["XModel does \u202e"] = "XModel does [U+202E]"
    for refused, why in whys.items():
        if refused:
            put_looks(filled, refused)
        (found,) = explorer.explored(Store(filled))
        assert found["looks"]["why"] == why
        assert not any(head["looks"] for head in found["heads"])
    put_looks(filled)
    (found,) = explorer.explored(Store(filled))
    z = read_table(Store(filled).of_sweep("demo"), ACCURACY)
    held = {head["name"]: head["looks"] or {"of": []} for head in found["heads"]}
    turned = [bool((z[head] != z["base"])[place]) for head in held for place in held[head]["of"]]
    assert len(turned) > 50
    assert all(turned)
    kept = [head["looks"] for head in found["heads"] if head["looks"]]
    assert len(explorer.script(kept)) < 9_000
    assert "has room for some" in found["looks"]["why"]
