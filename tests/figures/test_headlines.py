import re
from pathlib import Path

import pandas as pd
import pytest
import simulation
from headroom.analysis.headlines import headlines

from headroom.analysis import claims
from headroom.analysis.findings import short_sentence
from headroom.analysis.gains import accuracy_path
from headroom.analysis.sheet import write_csv
from headroom.sprint.evaluation import PAIRED


@pytest.fixture
def said(run):
    return (run[0] / "results/simulated/findings.txt").read_text(encoding="utf-8").splitlines()


def test_each_line_is_a_sentence_without_markup_or_codes(said):
    assert 2 <= len(said) <= 5
    for line in said:
        assert line.endswith(".")
        assert not re.search(r"<|&\w+;|\*\*|L\d\d|nan", line), line


def test_the_sweep_comes_first_with_the_numbers_of_z(run, said):
    z = pd.read_parquet(run[0] / accuracy_path(run[1], "demo"))
    shares = z.filter(regex=r"^L\d+H").mean()
    assert said[0].startswith(
        f"Sweep demo: the base model answers {100 * z['base'].mean():.1f}% of"
    )
    for head, what in ((shares.idxmax(), "the best to lose is"), (shares.idxmin(), "the worst")):
        layer, number = (int(digits) for digits in re.findall(r"\d+", head))
        assert f"{what} head {number} of layer {layer} ({100 * shares[head]:.1f}%)" in said[0]


def test_claims_are_counted_as_in_their_table(run, said):
    (line,) = (line for line in said if "claims" in line)
    table = pd.read_csv(run[0] / "results/simulated/tables/claims.csv")
    words = [
        (table[column] == word).sum()
        for column in ("run", "published")
        for word in ("holds", "fails")
    ]
    assert [int(number) for number in re.findall(r"\d+", line)] == [len(table), *words]


def test_claims_are_counted_once_and_by_what_they_were_judged_under(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    said = ("SPRINT", "a claim", "1", "Sec. 1", "holds", "why", "authors")
    rows = [(*said, "authors", "fails", ""), (*said, "default", "holds", "")]
    write_csv(Path("results/demo/tables/claims.csv"), pd.DataFrame(rows, columns=claims.COLUMNS))
    nothing = {"run": "demo", "sweeps": {}, "selectors": {}, "compressions": {}}
    (line,) = headlines(simulation.demo().model_copy(update=nothing))
    assert line == (
        "Of 1 claims of both papers, 0 hold and 1 fail under prompt authors and grading authors, "
        "1 hold and 0 fail under prompt authors and grading default in this run, the others cannot "
        "be judged by it; in the papers' own tables 1 hold and 0 fail."
    )


@pytest.mark.parametrize(
    ("low", "high", "winner"),
    [
        (0.01, 0.2, "SPRINT is ahead"),
        (-0.2, -0.01, "SPRINT is behind"),
        (-0.1, 0.1, "neither is shown to be better"),
    ],
)
def test_who_wins_at_the_largest_n_is_said_in_few_words(low, high, winner):
    rows = [("SPRINT", 1, 0.1), ("SPRINT", 4, 0.5), ("cover", 4, 0.3), ("random", 4, 0.4)]
    rows += [("all heads (oracle)", 4, 0.9)]
    table = pd.DataFrame(rows, columns=["method", "n", "pass_at_n"])
    row = ("random", 4, 0.1, low, high)
    paired = simulation.paired_table(pd.DataFrame([row], columns=PAIRED[:5]))
    assert short_sentence(table, paired) == (
        f"at N = 4 SPRINT answers 50.0% of the questions, the best other method, random, 40.0%: "
        f"{winner}."
    )
    assert short_sentence(table[table["method"] != "SPRINT"], paired) == ""


def test_every_kind_has_a_word_before_a_second_of_its_kind_has(monkeypatch):
    import headroom.analysis.headlines as module

    for name, many in {
        "sweeps": 3,
        "selectors": 1,
        "embeddings": 0,
        "compressions": 4,
        "claims": 1,
    }.items():
        monkeypatch.setattr(
            module, f"_{name}", lambda _, n=name, m=many: (f"{n} {i}." for i in range(m))
        )
    assert headlines(None) == [
        "sweeps 0.",
        "selectors 0.",
        "compressions 0.",
        "claims 0.",
        "sweeps 1.",
    ]
