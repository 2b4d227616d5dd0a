"""Rules that choose one of N answers, against plain loops and planted structure."""

import numpy as np
import pytest

from headroom.sprint import choosing
from headroom.sprint.choosing import AGREEMENT, FIRST, MAJORITY, ORACLE, VERIFIER
from headroom.sprint.evaluation import Answers
from headroom.statistics.bootstrap import Bootstrap

QUESTIONS, HEADS = 37, 6


def of_groups(group: np.ndarray, tokens: np.ndarray) -> Answers:
    return Answers(group == 0, group, tokens, tokens, np.ones(group.shape), np.zeros(group.shape))


def made(questions: int = QUESTIONS, heads: int = HEADS, seed: int = 0) -> Answers:
    """Random answers: group 0 is right, -1 is none."""
    draw = np.random.default_rng(seed)
    group = draw.integers(-1, 4, size=(questions, heads))
    return of_groups(group, draw.integers(3, 50, size=group.shape))


def test_agreement_is_the_share_of_equal_pairs() -> None:
    group = made().group
    expected = [
        np.mean(
            [
                group[row, head] == group[row, other] != -1
                for row in range(QUESTIONS)
                for other in range(HEADS)
                if other != head
            ]
        )
        for head in range(HEADS)
    ]
    np.testing.assert_allclose(choosing.agreement_with_others(made()), expected)


def liars(questions: int, seed: int) -> Answers:
    """The majority is wrong and writes long answers; the minority is right and brief."""
    draw = np.random.default_rng(seed)
    group = np.tile([1, 1, 1, 0, 0], (questions, 1))
    group = draw.permuted(group, axis=1)
    tokens = np.where(group == 0, 10, 40) + draw.integers(0, 8, size=group.shape)
    return of_groups(group, tokens)


def test_the_verifier_learns_what_right_answers_look_like() -> None:
    rules = choosing.among_ranked(liars(30, 1), np.ones((30, 5)), [liars(25, 2), liars(15, 3)], 5)
    assert rules[MAJORITY][:, 4].mean() == 0
    assert rules[VERIFIER][:, 4].mean() == 1
    upside_down = [part._replace(correct=~part.correct) for part in [liars(25, 2)]]
    rules = choosing.among_ranked(liars(30, 1), np.ones((30, 5)), upside_down, 5)
    assert rules[VERIFIER][:, 4].mean() == 0


def test_with_nothing_to_learn_the_verifier_counts_votes() -> None:
    """All held-out answers are wrong."""
    wrong = made(20, seed=3)
    nothing = wrong._replace(correct=np.zeros_like(wrong.correct))
    rules = choosing.among_ranked(made(), np.ones((QUESTIONS, HEADS)), [nothing], 4)
    clear = np.isin(rules[MAJORITY], (0, 1))  # of equals the verifier takes the nearest
    assert clear.mean() > 0.5
    np.testing.assert_array_equal(rules[VERIFIER][clear], rules[MAJORITY][clear])


def test_the_table_holds_rules_against_oracle_and_majority() -> None:
    rules = choosing.among_ranked(made(), np.ones((QUESTIONS, HEADS)), [made(50, seed=1)], 6)
    sampled = choosing.among_drawn(made(seed=8), 6)
    bootstrap = Bootstrap(QUESTIONS, 300, 0)
    table = choosing.compare({"SPRINT": rules, "sampling T=0.6": sampled}, bootstrap)
    assert list(table.columns) == choosing.COLUMNS
    assert list(rules) == [ORACLE, FIRST, MAJORITY, AGREEMENT, VERIFIER]
    assert set(table["n"]) == {1, 2, 4}
    assert len(table) == 3 * (5 + 3)
    at = table.set_index(["method", "rule", "n"])
    row, ceiling = at.loc["SPRINT", MAJORITY, 4], at.loc["SPRINT", ORACLE, 4]
    assert row["accuracy"] == pytest.approx(rules[MAJORITY][:, 3].mean())
    assert row["recovered"] == pytest.approx(row["accuracy"] / ceiling["accuracy"])
    assert row["low"] < row["accuracy"] < row["high"]
    assert row["recovered_low"] < row["recovered"] < row["recovered_high"] <= 1
    assert (at.xs(ORACLE, level="rule")["recovered_low"] == 1).all()
    assert (at.xs(MAJORITY, level="rule")["over_high"] == 0).all()
    first = at.loc["SPRINT", FIRST, 4]
    assert first["over_majority"] == pytest.approx(first["accuracy"] - row["accuracy"])
