"""The table of coverage and power that `benchmarks/referee.py` prints."""

import pytest

from benchmarks import referee
from headsweep.statistics.power import power


def test_intervals_hold_and_pairing_shows_what_is_said(monkeypatch):
    monkeypatch.setattr(referee, "QUESTIONS", (130,))
    monkeypatch.setattr(referee, "CHANGED", (0.3,))
    covered = referee.coverage(1500, seed=1)
    assert list(covered["gain"]) == [0.0, 0.15]
    assert covered["covered"].between(0.935, 0.97).all()
    none, real = covered["called"]
    assert none <= 0.05
    assert real == pytest.approx(power(130, 0.3, 1, 0.15), abs=0.04)
    (row,) = referee.powers(600, seed=2).itertuples()
    assert row.paired == pytest.approx(0.8, abs=0.05)
    assert row.unpaired < row.paired - 0.1


def test_a_gain_beyond_what_changes_turns_nothing_wrong():
    draw = referee.np.random.default_rng(3)
    _, differences = referee._compared(draw, 50, 0.1, 0.3, 40)
    assert differences.min() == 0
    assert differences.mean() == pytest.approx(0.3, abs=0.05)


def test_the_command_prints_both_tables(monkeypatch, capsys):
    monkeypatch.setattr(referee, "QUESTIONS", (90,))
    monkeypatch.setattr(referee, "CHANGED", (0.2,))
    referee.run(comparisons=70, seed=0)
    said = capsys.readouterr().out
    assert "covered" in said
    assert "unpaired" in said
