"""What models, benchmarks and files say acts neither on a terminal nor on a spreadsheet."""

import io
import json
import logging

import pandas as pd
import pytest

from headsweep.answers import client
from headsweep.benchmarks.sources import read_source
from headsweep.cli.main import main
from headsweep.cli.solve import Candidate, Solved, to_json, to_text
from headsweep.config import Questions
from headsweep.errors import BenchmarkError
from headsweep.files.safe_files import write_csv
from headsweep.text import aligned, counted, json_line, one_line, parameters, visible
from snakemake_logger_plugin_headsweep.screen import Screen

ACTING = ["\x1b[2J", "\x1b]8;;x\x07", "\x9b31m", "\r", "\b", "\x00", "\x7f", "\u202e", "\u2066"]
"""Clears the screen, links, colours, goes back, hides, turns the text around."""
HOSTILE = f"begin{''.join(ACTING)}end"
LINES = f"{HOSTILE}\nheadsweep: all is well"


def assert_inert(printed):
    """Fail unless the hostile text was printed, and as text."""
    assert "begin" in printed
    assert "end" in printed
    assert not [act for act in ACTING if act[0] in printed]


@pytest.mark.parametrize("act", ACTING)
def test_what_acts_on_a_terminal_is_shown_as_code_points(act):
    assert visible(f"a{act}b") == f"a[U+{ord(act[0]):04X}]{visible(act[1:])}b"
    assert visible("é\t∑\n😀") == "é\t∑\n😀"
    escaped = json_line({"a": f"é{act}"})
    assert json.loads(escaped) == {"a": f"é{act}"}
    assert "é" in escaped
    assert act[0] not in escaped


def test_parameters_have_two_significant_digits_or_more():
    told = {0.00107: "1.1M", 0.0467: "47M", 0.63: "0.63B", 1.54: "1.5B", 8.03: "8B", 405: "405B"}
    assert {size: parameters(size) for size in told} == told


def test_what_a_command_prints_is_made_visible(monkeypatch, capsys):
    engine = {"process": 1, "model": HOSTILE, "workers": 1, "jobs": 0, "batches": {HOSTILE: (1, 2)}}
    monkeypatch.setattr(client, "status", lambda: [engine])
    assert main(["engine", "status"]) == 0
    assert_inert(capsys.readouterr().out)


def test_what_a_command_logs_is_made_visible_and_is_one_line(monkeypatch, capsys):
    def status():
        logging.getLogger("headsweep.room").warning("left out: %s", LINES)
        return []

    monkeypatch.setattr(client, "status", status)
    assert main(["engine", "status"]) == 0
    said = capsys.readouterr().err
    assert_inert(said)
    assert said.count("\n") == 1


def test_a_bug_is_told_without_acting_on_the_terminal(monkeypatch, capsys):
    def status():
        raise ValueError(HOSTILE)

    monkeypatch.setattr(client, "status", status)
    assert main(["engine", "status"]) == 1
    said = capsys.readouterr().err
    assert_inert(said)
    assert "Traceback" in said


SOUND = {"q": "2 + 3?", "a": "5", "i": "one", "s": "sums"}


@pytest.mark.parametrize(
    ("renamed", "changed"),
    [
        ({"a": HOSTILE}, {}),  # a column header
        ({}, {"i": HOSTILE}),  # an id, which is there twice
        ({}, {"s": [HOSTILE]}),  # a subject, which is not text
        ({}, {"a": {HOSTILE: 1}}),
    ],
)
def test_errors_name_headers_ids_subjects_and_files_visibly(renamed, changed, tmp_path):
    columns = {"question": "q", "answer": "a", "id": "i", "subject": "s"}
    row = {renamed.get(name, name): value for name, value in (SOUND | changed).items()}
    for name in ("sound.jsonl", f"{HOSTILE}.jsonl".replace("\x00", "")):
        file = tmp_path / name
        file.write_text(2 * (json.dumps(row) + "\n"))
        asked = Questions(benchmark="custom", split="x", file=str(file), columns=columns)
        with pytest.raises(BenchmarkError) as error:
            read_source(asked)
        assert_inert(str(error.value))


def test_answers_are_shown_on_one_line_each():
    candidates = [Candidate(LINES, 2, ["L00H01"], LINES, None), Candidate("5", 1, ["x"], "5", None)]
    solved = Solved(HOSTILE, candidates, 0.5, LINES)
    text = to_text(solved)
    assert_inert(text)
    assert not [shown for shown in text.splitlines() if shown.startswith("headsweep:")]
    assert json.loads(to_json(solved))["answer"] == LINES
    assert_inert(to_json(solved))
    assert "\n" not in to_json(solved)


def test_a_table_on_the_terminal_has_a_line_for_each_row_whatever_its_cells_hold():
    table = aligned([("file", "MB"), (LINES, "1")], left=1)
    assert_inert(table)
    assert len(table.splitlines()) == 2


def test_a_run_shows_results_and_progress_visibly():
    stream = io.StringIO()
    screen = Screen(stream, 0.0)
    screen.say(HOSTILE)
    assert_inert(stream.getvalue())
    screen.terminal = True
    stream.seek(stream.truncate(0))
    screen.status("begin \x1b[2J\n end", 1.0)
    assert_inert(stream.getvalue().removeprefix("\r\x1b[K"))
    assert "\n" not in stream.getvalue()


def test_text_that_a_spreadsheet_would_run_is_written_as_text_and_numbers_as_they_are(tmp_path):
    formulas = ["=HYPERLINK(1)", "+1+cmd", "-x", "@SUM(1)", "\t=1", "-", "--1", "+1e5=2"]
    numbers = ["-5", "+3.25", "-1e-5", "-.5"]
    table = pd.DataFrame({"=answer": [*formulas, *numbers, None, "5 = 5"]})
    table["gain"] = -0.5
    table["subject"] = table["=answer"].astype("category")
    found = pd.read_csv(write_csv(tmp_path / "a.csv", table), dtype=str)
    expected = [*(f"'{text}" for text in formulas), *numbers]
    assert list(found) == ["'=answer", "gain", "subject"]
    for column in ("'=answer", "subject"):
        assert found[column].tolist()[:-2] == expected
        assert found[column].isna().sum() == 1
        assert found[column].iloc[-1] == "5 = 5"
    assert set(found["gain"]) == {"-0.5"}
    assert list(table) == ["=answer", "gain", "subject"]


def test_one_line_has_no_line_breaks():
    assert one_line("a\nb\r\nc") == "a b  c"


def test_a_count_of_one_is_told_in_the_singular():
    assert [counted(count, "head") for count in (0, 1, 2)] == ["0 heads", "1 head", "2 heads"]
