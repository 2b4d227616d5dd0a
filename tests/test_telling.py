"""What takes long says what it does; of what is soon done nothing stays."""

import ast
import inspect
import io
import logging
import sys
import time

import pytest

from headsweep import telling
from headsweep.cli import commands
from headsweep.cli import main as cli


@pytest.fixture
def said(monkeypatch):
    """Return a list that fills with what is said."""
    lines = []
    monkeypatch.setattr(telling, "_LOG", logging.Logger("telling"))
    handler = logging.Handler()
    handler.emit = lambda record: lines.append(record.getMessage())
    handler.addFilter(lambda record: not hasattr(record, "is_for_terminals"))
    telling._LOG.addHandler(handler)
    return lines


def waits_for(count, lines):
    deadline = time.monotonic() + 60
    while len(lines) < count and time.monotonic() < deadline:
        time.sleep(0.005)


def test_a_step_says_how_long_it_takes_so_far_and_at_last(said, monkeypatch):
    monkeypatch.setattr(telling, "_PAUSE", 0.01)
    with telling.told("counting"):
        waits_for(3, said)
    assert [line.rpartition(":")[0] for line in said[:3]] == ["counting"] * 3
    assert "so far" in said[0]
    assert said[-1].startswith("counting: done after ")


def test_of_a_short_step_nothing_stays(said):
    with telling.told("counting"):
        pass
    assert said == []


def test_a_step_that_fails_is_not_said_to_be_done(said, monkeypatch):
    monkeypatch.setattr(telling, "_PAUSE", 0.01)
    with pytest.raises(KeyboardInterrupt), telling.told("counting"):
        waits_for(1, said)
        raise KeyboardInterrupt
    assert all("so far" in line for line in said)


class Screen(io.StringIO):
    """A terminal, or a file."""

    def __init__(self, is_terminal):
        super().__init__()
        self.isatty = lambda: is_terminal


@pytest.mark.parametrize("is_terminal", [True, False])
def test_a_terminal_shows_of_what_passes_only_the_last(is_terminal, monkeypatch):
    monkeypatch.setattr(cli, "_LOG", logging.Logger("terminal"))
    monkeypatch.setattr(telling, "_LOG", cli._LOG)
    monkeypatch.setattr(sys, "stderr", screen := Screen(is_terminal))
    cli._set_up_logging(None)
    for seconds in (4, 8):
        cli._LOG.info("counting: %d s so far", seconds, extra=telling.PASSING)
    cli._LOG.info("counting: done after 9 s")
    with telling.told("soon done"):
        pass
    lines = ["counting: 4 s so far", "counting: 8 s so far", "counting: done after 9 s"]
    ends, clear = ("", "\r\x1b[K") if is_terminal else ("\n", "")
    soon_done = f"{clear}headsweep: soon done{clear}" if is_terminal else ""
    shown = ends.join(f"{clear}headsweep: {line}" for line in lines)
    assert screen.getvalue() == f"{shown}\n{soon_done}"


@pytest.mark.parametrize(
    "function",
    [commands.sweep, commands.head_map, commands.first_questions, commands._sweep, commands._map],
)
def test_a_command_says_that_it_begins_before_it_imports_what_is_slow(function):
    (defined,) = ast.parse(inspect.getsource(function)).body
    kinds = [type(statement) for statement in defined.body]
    first = kinds.index(ast.ImportFrom) if ast.ImportFrom in kinds else len(kinds)
    # Either imports stand in a step of their own, or what is called before has such a step.
    assert ast.With in kinds[:first] or ast.Assign in kinds[:first]
