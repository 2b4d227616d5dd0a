"""A planted run is judged by its tables, and what was planted is opened last."""

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest

from benchmarks.proof.judging import Findings, judge
from benchmarks.proof.planting import COINS, EXPERTS, SABOTAGED, SEALED, WHOLE, opened, plant
from benchmarks.proof.worlds import coins, experts
from headsweep.errors import ConfigError
from headsweep.files.plain_files import digest_of
from headsweep.files.safe_files import write_json
from simulation import gaining

SUBJECTS = {f"subject {number}": f"L0{number}H01" for number in range(6)}
SECRET = {SABOTAGED: "L03H00", EXPERTS: SUBJECTS}


def table_of_heads(base, **gains):
    rows = [("base", base, 0.0, 1.0), ("L05H03", base, 0.0, 1.0)]
    rows += [(head, base + gain, gain, 0.001) for head, gain in gains.items()]
    table = pd.DataFrame(rows, columns=["variant", "accuracy", "gain", "adjusted"])
    ends = {"band_low": table["gain"] - 0.01, "band_high": table["gain"] + 0.01}
    return table.assign(cut_decides=False, **ends)


def worth(low):
    against = ["shuffled questions", "greedy cover"] * 2
    table = pd.DataFrame({"against": against, "n": ["1", "1", "mean", "mean"]})
    return table.assign(method="SPRINT", difference=low + 0.1, low=low, high=low + 0.2)


@pytest.fixture
def found():
    heads = {WHOLE: table_of_heads(0.64), SABOTAGED: table_of_heads(0.45, L03H00=0.18)}
    heads |= {EXPERTS: table_of_heads(0.5), COINS[0]: table_of_heads(0.5)}
    heads |= {COINS[1]: table_of_heads(0.5)}
    of_coins = dict.fromkeys(COINS, worth(-0.1))
    return Findings(heads, {EXPERTS: worth(0.1), **of_coins}, dict(SUBJECTS))


def verdicts(found):
    return [line.right for line in judge(found, SECRET)]


def test_what_was_planted_and_found_is_right(found):
    assert verdicts(found) == [True] * 7


@pytest.mark.parametrize(
    "sabotaged",
    [
        table_of_heads(0.45, L03H00=0.18, L02H00=0.1),  # another head, too
        table_of_heads(0.45, L02H00=0.18).assign(variant=["base", "L03H00", "L02H00"]),
        table_of_heads(0.45, L03H00=0.09),  # it gives too little back
        table_of_heads(0.56, L03H00=0.18),  # the sabotage cost too little
    ],
)
def test_another_head_or_a_small_effect_fails(found, sabotaged):
    heads = {**found.heads, SABOTAGED: sabotaged}
    assert verdicts(replace(found, heads=heads)) == [False] + [True] * 6


def test_a_selector_has_to_beat_all_and_to_find_the_subjects_heads(found):
    wrong = {**found.worth, EXPERTS: worth(0.1).assign(low=[0.1, 0.1, -0.1, 0.1])}
    assert verdicts(replace(found, worth=wrong)).index(False) == 3
    asked = {**found.asked_first, "subject 0": "L05H03"}
    assert verdicts(replace(found, asked_first=asked))[5] is False


def test_coins_may_show_something_once_but_not_twice(found):
    once = {**found.heads, COINS[0]: table_of_heads(0.5, L01H01=0.1)}
    assert all(verdicts(replace(found, heads=once)))
    twice = {**found.worth, COINS[1]: worth(0.05)}
    assert verdicts(replace(found, heads=once, worth=twice)) == [True] * 6 + [False]


def test_a_sealed_file_that_was_changed_is_not_opened(tmp_path):
    write_json(tmp_path / SEALED, SECRET)
    commitment = digest_of(tmp_path / SEALED)
    assert opened(tmp_path, commitment) == SECRET
    write_json(tmp_path / SEALED, {**SECRET, SABOTAGED: "L01H01"})
    with pytest.raises(ConfigError, match=f"is not the file of {commitment}"):
        opened(tmp_path, commitment)
    with pytest.raises(ConfigError, match="is not empty"):
        plant(tmp_path, 1)


def test_drawn_worlds_have_the_effects_that_they_are_asked_for():
    draw = np.random.default_rng(0)
    tossed = coins(draw, 40_000, 3, 0.1)
    changed = tossed[:, 1:] != tossed[:, :1]
    assert changed.mean(axis=0) == pytest.approx(0.1, abs=0.01)
    assert tossed.mean(axis=0) == pytest.approx(0.5, abs=0.01)
    better = gaining(draw, 40_000, 2, 0.2, 0.08).astype(int)
    gains = better[:, 1:] - better[:, :1]
    assert gains.mean(axis=0) == pytest.approx([0.08, 0], abs=0.01)
    assert np.abs(gains).mean(axis=0) == pytest.approx(0.2, abs=0.01)
    subjects = ["a", "b"] * 20_000
    known = experts(draw, subjects, 3, {"b": 2})
    assert known[1::2, 3].all()
    assert known[::2, 3].mean() == pytest.approx(0.5, abs=0.01)
