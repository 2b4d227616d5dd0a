"""What takes long says what it does; what is soon done says nothing."""

import logging
import time

import pytest

from headsweep import telling


@pytest.fixture
def said(monkeypatch):
    """Return a list that fills with what is said."""
    lines = []
    monkeypatch.setattr(telling, "_LOG", logging.Logger("telling"))
    handler = logging.Handler()
    handler.emit = lambda record: lines.append(record.getMessage())
    telling._LOG.addHandler(handler)
    return lines


def waits_for(count, lines):
    deadline = time.monotonic() + 60
    while len(lines) < count and time.monotonic() < deadline:
        time.sleep(0.005)


def test_a_step_says_how_long_it_takes_so_far_and_at_last(said, monkeypatch):
    monkeypatch.setattr(telling, "_FIRST_PAUSE", 0.01)
    with telling.told("counting"):
        waits_for(3, said)
    assert [line.rpartition(":")[0] for line in said[:3]] == ["counting"] * 3
    assert "so far" in said[0]
    assert said[-1].startswith("counting: done after ")


def test_a_short_step_says_nothing(said):
    with telling.told("counting"):
        pass
    assert said == []


def test_a_step_that_fails_is_not_said_to_be_done(said, monkeypatch):
    monkeypatch.setattr(telling, "_FIRST_PAUSE", 0.01)
    with pytest.raises(KeyboardInterrupt), telling.told("counting"):
        waits_for(1, said)
        raise KeyboardInterrupt
    assert all("so far" in line for line in said)
