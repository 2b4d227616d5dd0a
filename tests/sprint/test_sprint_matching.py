from itertools import permutations

import numpy as np
import pandas as pd
import pytest

from headroom.sprint import matching
from headroom.sprint.matching import ALL, COVER, DRAWN, EQUAL, MEAN, SHUFFLED, Ranked, compare
from headroom.sprint.rankers import greedy_cover


def ranked(correct, order, train=None, base=None, questions=None) -> Ranked:
    train = correct if train is None else train
    base = train[:, 0] if base is None else base
    questions = np.arange(len(correct)) if questions is None else questions
    return Ranked(questions, correct, order, train, base)


def random_part(questions: int, pool: int, seed: int, knows: float = 0.0) -> Ranked:
    """Rankings in random order; a share of the questions has its right heads first."""
    draw = np.random.default_rng(seed)
    correct = draw.random((questions, pool)) < 0.4
    order = draw.permuted(np.tile(np.arange(pool), (questions, 1)), axis=1)
    known = draw.random(questions) < knows
    order[known] = np.argsort(~correct[known], axis=1, kind="stable")
    train = draw.random((60, pool)) < 0.4
    return ranked(correct, order, train, train[:, 0])


def at(table: pd.DataFrame, against: str, n: str, pool: str = ALL) -> pd.Series:
    (row,) = table[
        (table["against"] == against) & (table["n"] == n) & (table["pool"] == pool)
    ].to_dict("records")
    return pd.Series(row)


def test_the_first_right_head_is_found_in_every_ranking() -> None:
    part = random_part(13, 5, seed=1)
    found = matching.first_right(part.correct, part.order)
    for question in range(13):
        for ranking in range(13):
            heads = list(part.order[ranking])
            right = [place for place, head in enumerate(heads) if part.correct[question, head]]
            assert found[question, ranking] == min(right, default=5)


def test_shuffled_questions_are_the_mean_over_all_permutations() -> None:
    part = random_part(6, 4, seed=2)
    table = compare("SPRINT", [part], "test", 4, 50, 0)
    for n in (1, 2, 4):
        passed = [
            np.mean([part.correct[i, part.order[j][:n]].any() for i, j in enumerate(shuffled)])
            for shuffled in permutations(range(6))
        ]
        assert at(table, SHUFFLED, str(n))["other"] == pytest.approx(np.mean(passed))
        exact = np.mean(np.array(passed) >= passed[0] - 1e-9)
        assert at(table, SHUFFLED, str(n))["p"] == pytest.approx(exact, abs=0.02)
    own = [np.mean([part.correct[i, part.order[i][:n]].any() for i in range(6)]) for n in (1, 2, 3)]
    assert at(table, SHUFFLED, "1")["sprint"] == pytest.approx(own[0])
    all_n = [*own, part.correct.any(axis=1).mean()]
    assert at(table, SHUFFLED, MEAN)["sprint"] == pytest.approx(np.mean(all_n))


def test_the_null_is_calibrated_at_five_percent(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(matching, "_PERMUTATIONS", 199)
    parts = [random_part(40, 6, seed) for seed in range(1000)]
    firsts = [[matching.first_right(part.correct, part.order)] for part in parts]
    worth = np.maximum(4 - np.arange(7), 0)[:, np.newaxis] / 4  # the mean of Pass@1..4
    p = np.array([matching.permutation_p(f, worth, s)[0] for s, f in enumerate(firsts)])
    # Monte Carlo error: √(0.05 · 0.95 / 1000) is 0.007.
    assert 0.03 < np.mean(p <= 0.05) < 0.07
    assert np.mean(p <= 0.5) == pytest.approx(0.5, abs=0.06)


def test_cover_and_draws_do_not_know_the_question() -> None:
    part = random_part(30, 5, seed=3)
    table = compare("SPRINT", [part], "test", 5, 50, 0)
    cover = greedy_cover(part.train)
    assert at(table, COVER, "2")["other"] == pytest.approx(
        part.correct[:, cover[:2]].any(axis=1).mean()
    )
    assert at(table, DRAWN, "1")["other"] == pytest.approx(part.correct.mean())
    assert set(table["n"]) == {"1", "2", "4", MEAN}
    assert table.loc[table["against"] != SHUFFLED, "p"].isna().all()


def test_heads_less_accurate_than_base_leave_the_equal_pool() -> None:
    draw = np.random.default_rng(0)
    train = draw.random((200, 4)) < np.array([0.6, 0.05, 0.6, 0.95])
    base = draw.random(200) < 0.6
    order = np.array([[1, 3, 2, 0], [0, 1, 2, 3], [2, 0, 3, 1]])
    part = ranked(draw.random((3, 4)) < 0.5, order, train, base).equal()
    assert part.order.tolist() == [[1, 0], [0, 1], [1, 0]]
    assert part.correct.shape == (3, 2)
    assert part.train.mean() == pytest.approx(0.6, abs=0.1)
    table = compare(
        "SPRINT", [ranked(draw.random((3, 4)) < 0.5, order, train, base)], "test", 4, 9, 0
    )
    assert set(table.loc[table["pool"] == EQUAL, "heads"]) == {2}


def test_questions_of_several_parts_count_once() -> None:
    first, second = random_part(9, 4, seed=7), random_part(9, 4, seed=8)
    overlapping = [
        first,
        ranked(second.correct, second.order, second.train, second.train_base, np.arange(9) + 4),
    ]
    table = compare("SPRINT", overlapping, "training, held out", 2, 30, 0)
    own = np.zeros(13)
    counts = np.zeros(13)
    for part in overlapping:
        for row, question in enumerate(part.questions):
            own[question] += part.correct[row, part.order[row, 0]]
            counts[question] += 1
    assert at(table, SHUFFLED, "1")["sprint"] == pytest.approx(np.mean(own / counts))
