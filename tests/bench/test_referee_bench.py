"""The tables of errors, coverage and power that `python -m benchmarks.referee` prints."""

import pandas as pd
import pytest

from benchmarks import graders, referee
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


def test_the_script_prints_all_tables(monkeypatch, capsys, tmp_path):
    pairs = [("lists", "-1,3", "-1,3,3", "no"), ("lists", "3,-1", "-1,3", "yes")]
    pairs += [("i", "5-2i", "5 - 2 i", "yes"), ("i", r"\frac{2}{i}", "2", "no")]
    table = pd.DataFrame(pairs, columns=["kind", "answer", "gold", "right"])
    table.to_csv(tmp_path / "pairs.csv", index=False)
    monkeypatch.setattr(graders, "PAIRS", tmp_path / "pairs.csv")
    monkeypatch.setattr(referee, "QUESTIONS", (90,))
    monkeypatch.setattr(referee, "CHANGED", (0.2,))
    referee.run(comparisons=70, seed=0)
    said = capsys.readouterr().out
    assert "4 pairs, 2 right" in said
    assert "covered" in said
    assert "unpaired" in said
    found, times = graders.errors(table)
    assert found.loc["all", "headsweep: false right"] == 0
    assert found.loc["all", "headsweep: false wrong"] == 0
    assert found.loc["lists", "math-verify: false right"] == 1  # lists are sets to it
    assert found.loc["lists", "PRM800K: false wrong"] == 1  # and texts to PRM800K
    assert (times > 0).all()


def test_the_rules_of_minerva_are_those_of_its_paper():
    for answer, gold, right in (
        (r"\frac12", r"\frac{1}{2}", True),
        ("x = 5", "5", True),
        (r"5 \text{ cm}", "5", True),
        (r"1,000", "1000", True),
        (r"\sqrt2", r"\sqrt{2}", True),
        ("x+1", "1+x", True),
        ("6", "5", False),
    ):
        assert graders.verdict(graders.minerva, answer, gold) == right, answer
