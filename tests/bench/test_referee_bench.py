"""The table of errors that `python -m benchmarks.referee` prints."""

import pandas as pd

from benchmarks import referee


def test_the_script_prints_the_table_and_who_errs_where(monkeypatch, capsys, tmp_path):
    pairs = [("lists", "-1,3", "-1,3,3", "no"), ("lists", "3,-1", "-1,3", "yes")]
    pairs += [("i", "5-2i", "5 - 2 i", "yes"), ("i", r"\frac{2}{i}", "2", "no")]
    table = pd.DataFrame(pairs, columns=["kind", "answer", "gold", "right"])
    table.to_csv(tmp_path / "pairs.csv", index=False)
    monkeypatch.setattr(referee, "PAIRS", tmp_path / "pairs.csv")
    referee.run()
    said = capsys.readouterr().out
    assert "4 pairs, 2 right" in said
    found, times = referee.errors(table)
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
        assert referee.verdict(referee.minerva, answer, gold) == right, answer
