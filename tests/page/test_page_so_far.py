"""The page of a run that is not finished, of simulated runs whose tables are taken away."""

import re
import shutil
from pathlib import Path

import pytest

from headsweep.cli import main as cli
from headsweep.cli import peek_page
from headsweep.config import EXPERIMENTS
from headsweep.files import paths
from headsweep.files.record import read_text
from headsweep.files.safe_files import write_json
from headsweep.files.tables import ANSWERS
from headsweep.results.exhibits import RunFiles
from headsweep.store.layout import Store
from headsweep.variants import BASE, Variant

ON_TOP = re.compile(r'  <section class="so-far".*?</section>\n', re.DOTALL)


@pytest.fixture
def run(simulated, enter_copy):
    """A finished run of all kinds of experiments, and its config."""
    folder, config = simulated("whole")
    enter_copy(folder.parents[1])
    write_json(Store(config).path(paths.CONFIG), config.model_dump(mode="json"))
    Store(config).path(paths.SELECTOR_CARD, selector="math").touch()  # not simulated
    return Path("results", config.run), config


def states(page):
    """Return the state of each part of the run, by kind and title, as the page says it."""
    first_table = ON_TOP.search(read_text(page))[0].partition("</table>")[0]
    cells = r'<tr><th scope="row">(.*?)</th><td class="word">(.*?)</td><td.*?>(.*?)</td>'
    rows = re.findall(cells, first_table)
    return {(kind, of): state for kind, of, state in rows}


def test_of_a_whole_run_it_is_the_report(run):
    folder, _ = run
    page = read_text(peek_page.write(folder))
    assert ON_TOP.search(page)
    assert ON_TOP.sub("", page) == read_text(folder / "report.html")
    assert {*states(folder / "so-far.html").values()} == {"finished"}


def test_a_run_that_compares_nothing_has_a_page(run):
    folder, config = run
    none = {section: {} for section in EXPERIMENTS}
    alone = config.model_copy(update={**none, "papers": False})
    write_json(folder / "config.json", alone.model_dump(mode="json"))
    assert "0 of 0 parts had ended" in read_text(peek_page.write(folder))


def test_a_page_that_cannot_be_written_is_told_in_a_line(run, capsys):
    folder, _ = run
    (folder / "report.html").unlink()
    (folder / "so-far.html").mkdir()
    assert cli.main(["peek", str(folder), "--page"]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert re.search(r"error: /.*so-far.html cannot be written \(.*\); copy the run, or look", line)


def test_each_table_that_is_missing_leaves_its_part_out(run):
    """No file that the report reads may be missing behind a part that is called finished.

    What is not finished has no place in the config of the page below.
    """
    _, config = run
    _, whole = peek_page.finished_part(config)
    assert {state for _, _, state in whole} == {"finished"}
    for file in map(Path, RunFiles(Store(config)).reported()):
        if file.parent.name == "figures":
            continue
        aside = file.rename(file.with_name("aside"))
        left, found = peek_page.finished_part(config)
        changed = [state for _, _, state in found if state != "finished"]
        assert changed, file
        assert all(re.fullmatch(r"\d+ of \d+ tables are there", state) for state in changed)
        kept = sum(len(getattr(left, section)) for section in EXPERIMENTS) + left.papers
        assert kept == len(found) - len(changed)
        aside.rename(file)


@pytest.mark.parametrize(
    ("gone", "left_out", "verdict"),
    [
        ((paths.CONTROLS, {"sweep": "demo", "table": "heads"}), {"sweep"}, "heads"),
        ((paths.CLAIMS, {}), {"papers"}, "published"),
    ],
)
def test_what_is_missing_is_said_on_top_and_nowhere_below(run, gone, left_out, verdict):
    folder, config = run
    kind, names = gone
    Store(config).path(kind, **names).unlink()
    page = peek_page.write(folder)
    unfinished = {kind for (kind, _), state in states(page).items() if state != "finished"}
    assert unfinished == left_out
    below = ON_TOP.sub("", read_text(page))
    assert f'<a href="#{verdict}">' not in below.partition("<nav")[0]
    assert "Settings" in below and f'"run": "{config.run}"' in below.replace("&#34;", '"')


def test_heads_that_have_answered_stand_on_top_of_a_sweep_that_still_answers(run, browser):
    folder, config = run
    store = Store(config)
    shutil.rmtree(store.path(paths.CONTROLS, sweep="demo", table="heads").parent)
    names = {"model": "reasoner", "decoding": "greedy", "questions": "math_test"}
    store.path(ANSWERS, variant=Variant(0, 3), **names).unlink()
    top = ON_TOP.search(read_text(page := peek_page.write(folder)))[0]
    assert "23 of 24 heads have begun" in top
    assert "L00H02" in top and "L00H03" not in top
    for width in (320, 1280):
        browser.resize(width, 800, phone=width < 800)
        browser.open(page.absolute())
        assert browser.run("document.documentElement.scrollWidth") <= width
    assert browser.complaints() == []


def test_heads_that_have_no_question_in_common_with_the_base_model_are_no_table(run):
    folder, config = run
    store = Store(config)
    shutil.rmtree(store.path(paths.CONTROLS, sweep="demo", table="heads").parent)
    names = {"model": "reasoner", "decoding": "greedy", "questions": "math_test"}
    store.path(ANSWERS, variant=BASE, **names).unlink()
    top = ON_TOP.search(read_text(peek_page.write(folder)))[0]
    assert "24 of 24 heads have begun" in top
    assert "L00H02" not in top


@pytest.mark.parametrize("ends", ["a report", "nothing at work", "Ctrl-C"])
def test_it_is_made_again_until_the_run_has_ended(run, ends, monkeypatch, capsys):
    folder, config = run
    report = (folder / "report.html").rename("aside.html")
    waits = []

    def write(run):
        (run / "so-far.html").touch()
        return run / "so-far.html"

    def wait(seconds):
        waits.append(seconds)
        assert (folder / "so-far.html").exists()
        (folder / "so-far.html").unlink()
        if len(waits) == 2 and ends == "Ctrl-C":
            raise KeyboardInterrupt
        if len(waits) == 2 and ends == "a report":
            report.rename(folder / "report.html").touch()

    def running():
        return None if len(waits) == 2 and ends == "nothing at work" else "an engine"

    monkeypatch.setattr(peek_page, "write", write)
    monkeypatch.setattr(peek_page, "what_works", running)
    monkeypatch.setattr(peek_page.time, "sleep", wait)
    status = cli.main(["peek", config.run, "--page"])
    assert waits == [60, 60]
    first, *last = capsys.readouterr().out.splitlines()
    assert first == f"page so far: {folder}/so-far.html; made again every 60 s, Ctrl-C ends that"
    assert (status, last) == {
        "Ctrl-C": (130, []),
        "a report": (0, [f"the run is finished: {folder}/report.html"]),
        "nothing at work": (
            0,
            [
                f"all tables are there; for figures and the report: headsweep run "
                f"{folder}/config.json --directory {Path.cwd()}"
            ],
        ),
    }[ends]


def test_a_run_that_was_killed_is_not_waited_for(run, monkeypatch, capsys):
    folder, config = run
    (folder / "report.html").unlink()
    Store(config).path(paths.CLAIMS).unlink()
    lock = Path(".snakemake/locks/0.output.lock")  # Snakemake's, which `kill -9` leaves
    lock.parent.mkdir(parents=True)
    lock.touch()
    monkeypatch.setattr(peek_page.time, "sleep", lambda _: pytest.fail("it waits"))
    assert cli.main(["peek", config.run, "--page"]) == 0
    said = capsys.readouterr().out
    assert "to go on give its command again, first with --unlock, as the run was killed" in said
