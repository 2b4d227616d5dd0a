import io
import re
import sys

import pytest

from headsweep.arguments import with_negative_lists
from headsweep.cli import main
from headsweep.errors import ConfigError
from headsweep.tool import command
from headsweep.workflow.jobs import JOBS
from processes import python

PEOPLES = "check plan pilot map sweep peek solve prune export-gguf grade compare luck"
PEOPLES += " export store engine bench doctor"
"""The commands that people type, in the order in which they meet them."""


def told(capsys, *words):
    with pytest.raises(SystemExit) as end:
        main(words)
    assert end.value.code == 0
    return capsys.readouterr().out


def listed(text):
    """Return the names in the list at the end, a line each."""
    return re.findall(r"^  ([\w-]+) +[A-Z].*\.$", text.rpartition(":\n")[2], re.MULTILINE)


def test_the_commands_that_people_type_stand_on_one_screen(capsys):
    """80 columns; 24 rows, the last of which is the shell's."""
    text = told(capsys, "--help")
    assert listed(text) == PEOPLES.split()
    assert len(text.splitlines()) < 24
    assert max(map(len, text.splitlines())) <= 80


def test_lists_of_negative_numbers_are_no_options():
    words = ["--ratio", "-1", "--protect", "-2,-1", "--protect", "-1,0-2", "-1,2", "-n", "3"]
    joined = ["--ratio", "-1", "--protect=-2,-1", "--protect=-1,0-2", "-1,2", "-n", "3"]
    assert with_negative_lists(words) == joined


def test_questions_that_cannot_be_read_are_named(monkeypatch):
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b"\xff"), encoding="utf-8"))
    with pytest.raises(ConfigError, match=r"^standard input cannot be read"):
        command._questions(None, None)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["check", "a.yaml"], "interrupted"),
        (["pilot", "a.yaml"], "interrupted; what is finished is kept"),
    ],
)
def test_an_interruption_promises_only_what_is_kept(words, said, monkeypatch, capsys):
    def stopped(*_, **__):
        raise KeyboardInterrupt

    monkeypatch.setattr("headsweep.config.load", stopped)
    monkeypatch.setattr("headsweep.tool.pilot.show", stopped)
    assert main(words) == 130
    assert capsys.readouterr().err == f"headsweep: {said}\n"


def test_the_jobs_stand_under_a_command_of_their_own(capsys):
    assert listed(told(capsys, "job", "--help")) == [job.name for job in JOBS]
    alone = told(capsys, "job", "generate", "--help")
    assert alone.startswith("usage: headsweep job generate [-h]")
    with pytest.raises(SystemExit):
        main(["generate", "--help"])
    said = capsys.readouterr().err
    assert "invalid choice: 'generate'" in said
    choices = re.search(r"choose from (.*)\)", said)[1].replace("'", "")  # quoted until Python 3.12
    assert choices.split(", ") == [*PEOPLES.split(), "job"]


@pytest.mark.parametrize(
    ("encoding", "shown"), [("utf-8", "\u2212"), ("latin-1", r"\u2212"), ("ascii", r"\u2212")]
)
def test_a_terminal_that_lacks_a_character_gets_its_code_point(tmp_path, encoding, shown):
    """Differences of two runs may have a minus sign, which Latin-1 lacks."""
    code = """
import sys
from headsweep import cli
from headsweep.tool import compare
compare.find, compare.compare = str, lambda *_: ({}, [])
compare.summary = lambda *_: "\\u2212 1.0 points"
sys.exit(cli.main(["compare", "one", "other"]))
"""
    said = python("-c", code, cwd=tmp_path, PYTHONIOENCODING=encoding)
    assert said.strip() == f"{shown} 1.0 points"
