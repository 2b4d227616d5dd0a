from itertools import permutations

import numpy as np
import pandas as pd
import pytest

from headroom.sprint import matching
from headroom.sprint.matching import COVER, DRAWN, MEAN, SHUFFLED
from headroom.sprint.rankers import greedy_cover
from headroom.statistics.bootstrap import Bootstrap


def made(questions: int, pool: int, seed: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Z, rankings in random order, and Z of training questions."""
    draw = np.random.default_rng(seed)
    correct = draw.random((questions, pool)) < 0.4
    order = draw.permuted(np.tile(np.arange(pool), (questions, 1)), axis=1)
    return correct, order, draw.random((60, pool)) < 0.4


def compare(correct: np.ndarray, order: np.ndarray, train: np.ndarray, max_n: int) -> pd.DataFrame:
    bootstrap = Bootstrap(len(correct), 50, 0)
    table = matching.compare("SPRINT", correct, order, train, max_n, bootstrap, 0)
    assert set(table["heads"]) == {correct.shape[1]}
    return table.set_index(["against", "n"])


def test_the_first_right_head_is_found_in_every_ranking() -> None:
    correct, order, _ = made(13, 5, seed=1)
    found = matching.first_right(correct, order)
    for question in range(13):
        for ranking in range(13):
            right = [place for place, head in enumerate(order[ranking]) if correct[question, head]]
            assert found[question, ranking] == min(right, default=5)


def test_shuffled_questions_are_the_mean_over_all_permutations() -> None:
    correct, order, train = made(6, 4, seed=2)
    table = compare(correct, order, train, 4)
    for n in (1, 2, 4):
        passed = [
            np.mean([correct[i, order[j][:n]].any() for i, j in enumerate(shuffled)])
            for shuffled in permutations(range(6))
        ]
        row = table.loc[SHUFFLED, str(n)]
        assert row["other"] == pytest.approx(np.mean(passed))
        exact = np.mean(np.array(passed) >= passed[0] - 1e-9)
        assert row["p"] == pytest.approx(exact, abs=0.02)
    own = [np.mean([correct[i, order[i][:n]].any() for i in range(6)]) for n in (1, 2, 3, 4)]
    row = table.loc[SHUFFLED, "1"]
    assert row["sprint"] == pytest.approx(own[0])
    assert row["difference"] == pytest.approx(row["sprint"] - row["other"])
    assert row["low"] < row["difference"] < row["high"]
    assert table.loc[SHUFFLED, MEAN]["sprint"] == pytest.approx(np.mean(own))


def test_the_null_is_calibrated_at_five_percent(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(matching, "_PERMUTATIONS", 199)
    firsts = [matching.first_right(*made(40, 6, seed)[:2]) for seed in range(1000)]
    worth = np.maximum(4 - np.arange(7), 0)[:, np.newaxis] / 4  # the mean of Pass@1..4
    p = np.array([matching.permutation_p(f, worth, s)[0] for s, f in enumerate(firsts)])
    # Monte Carlo error: √(0.05 · 0.95 / 1000) is 0.007.
    assert 0.03 < np.mean(p <= 0.05) < 0.07
    assert np.mean(p <= 0.5) == pytest.approx(0.5, abs=0.06)


def test_cover_and_draws_do_not_know_the_question() -> None:
    correct, order, train = made(30, 5, seed=3)
    table = compare(correct, order, train, 5)
    cover = greedy_cover(train)
    assert table.loc[COVER, "2"]["other"] == pytest.approx(correct[:, cover[:2]].any(axis=1).mean())
    assert table.loc[DRAWN, "1"]["other"] == pytest.approx(correct.mean())
    assert set(table.index.get_level_values("n")) == {"1", "2", "4", MEAN}
    assert table["p"].notna().sum() == 4  # against shuffled questions only
