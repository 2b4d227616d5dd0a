"""The exact luck of the best of many against draws, and against the audit's own draws."""

from itertools import product

import numpy as np
import pandas as pd
import pytest

from headsweep.cli.main import main
from headsweep.statistics.luck import best_by_luck, changed_by_chance, of_table
from headsweep.statistics.published_luck import gains_by_chance


def test_few_coins_are_counted_one_by_one():
    """Three contested questions, two tries: all 2⁹ outcomes."""
    gains = [
        max(sum(outcome[3:6]), sum(outcome[6:])) - sum(outcome[:3])
        for outcome in product((0, 1), repeat=9)
    ]
    luck = best_by_luck(7, 3.0, 2)
    assert luck.chances.sum() == pytest.approx(1)
    assert luck.expected == pytest.approx(np.mean(gains) / 7)
    for gain in range(-3, 4):
        assert luck.p(gain / 7) == pytest.approx(np.mean(np.array(gains) >= gain))
    assert luck.most == pytest.approx(2 / 7)
    assert np.mean(np.array(gains) > 2) <= 0.05 < np.mean(np.array(gains) > 1)


def test_a_number_that_is_not_whole_mixes_its_neighbours():
    fewer, more, mixed = (best_by_luck(50, number, 5) for number in (10.0, 11.0, 10.3))
    assert mixed.expected == pytest.approx(0.7 * fewer.expected + 0.3 * more.expected)
    for gain in (0.0, 0.04, 0.1):
        assert mixed.p(gain) == pytest.approx(0.7 * fewer.p(gain) + 0.3 * more.p(gain))


@pytest.mark.parametrize(("n", "contested", "tries"), [(124, 31.4, 32), (38, 12.0, 11)])
def test_it_is_the_chance_that_the_audit_draws(n, contested, tries):
    pair = {"subject": ["a"], "n": [n], "contested": [contested], "ordinary": [tries]}
    drawn = gains_by_chance(pd.DataFrame(pair), 200_000, seed=2)[:, 0]
    luck = best_by_luck(n, contested, tries)
    assert luck.expected == pytest.approx(drawn.mean(), abs=2e-4)
    assert luck.most == pytest.approx(np.quantile(drawn, 0.95))
    for gain in np.arange(0, 10) / n:
        assert luck.p(gain) == pytest.approx((drawn >= gain - 1e-9).mean(), abs=5e-3)


def test_answers_drawn_anew_change_as_many_and_a_table_of_them_says_so():
    draw = np.random.default_rng(1)
    sizes, rates = np.full(40, 300), np.linspace(0.3, 0.8, 40)
    accuracy = draw.binomial(sizes, rates, (60, 40)) / sizes
    table = of_table(accuracy, rates, sizes)
    changed = table["contested"] / 2 / table["n"]
    assert changed.to_numpy() == pytest.approx(changed_by_chance(rates), rel=0.1)


def told(words):
    return main(["luck", *words.split()])


def test_the_command_tells_the_luck_the_chance_and_the_questions(capsys, monkeypatch):
    assert told("--k 24 --n 500 --base 0.68 --changed 0.2 --best 0.74") == 0
    said = capsys.readouterr().out
    luck = best_by_luck(500, 200.0, 24)
    assert f"gains +{100 * luck.expected:.1f} points on average" in said
    assert f"with p = {luck.p(0.06):.3f}" in said
    assert "600 fresh questions" in said
    assert told("--k 24 --n 500 --base 0.68") == 0
    assert "each changes 43.5% of the outcomes" in capsys.readouterr().out
    monkeypatch.setattr("headsweep.statistics.power.MOST_QUESTIONS", 2**8)
    assert told("--k 24 --n 500 --base 0.68 --changed 0.2 --best 0.74") == 0
    assert "\nMore than 16,777,216 fresh questions" in capsys.readouterr().out
    assert told("--k 2 --n 3 --base 0.5 --changed 0.1") == 0
    assert "can show no gain" in capsys.readouterr().out
    # A base that is right on all but a hundredth leaves no room for the gain that a test shows.
    assert told("--k 2 --n 100 --base 0.99") == 0
    said = capsys.readouterr().out
    assert said.startswith("2 tries, 100 questions, 99.0% right without;")
    assert said.endswith("These questions can show no gain, corrected over all tries.\n")
    assert told("--k 1 --n 1 --base 0.5") == 0
    assert capsys.readouterr().out.startswith("1 try, 1 question, 50.0% right without;")
    assert told("--k 1 --n 500 --base 0.68 --best 0.9") == 0
    said = capsys.readouterr().out
    assert "the best gains 0.0 points on average" in said
    assert "with p < 0.001." in said
    assert told("--k 1 --n 500 --base 0.68 --best 0.66") == 0
    assert "The best one seen gains −2.0: " in capsys.readouterr().out


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("--k 3 --n 10 --base 68", "--base 68 is no share"),
        ("--k 3 --n 2000000 --base 0.5", "--n 2,000,000 is more than 1,000,000"),
        (
            f"--k {10**330} --n 10 --base 0.5",
            "--k has 331 digits; give at most 10,000,000,000",
        ),
        (
            "--k 5 --n 10 --base 0.55 --best 0.9 --changed 0.1",
            "--best 0.9 is further from --base 0.55 than the 0.1 of the outcomes that change",
        ),
        ("--k 3 --n 10 --base 0.9 --changed 0.3", "--changed 0.3 is not from 0 to 0.2"),
    ],
)
def test_bad_numbers_are_refused_in_one_line(words, message, capsys):
    assert told(words) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert message in line


def test_a_gain_beyond_all_luck_is_judged_where_nobody_says_what_changes(capsys):
    assert told("--k 5 --n 100 --base 0.05 --best 0.9") == 0
    assert "so much or more with p < 0.001" in capsys.readouterr().out
