import numpy as np
import pytest
from scipy import stats
from simulated_outcomes import outcomes

from headroom.statistics.paired import false_discovery, fragility, mcnemar, paired_interval


def of_counts(*pairs, questions=60):
    """Return differences in which head h gains and loses the given numbers of questions."""
    differences = np.zeros((questions, len(pairs)), np.int8)
    for head, (gained, lost) in enumerate(pairs):
        differences[:gained, head] = 1
        differences[gained : gained + lost, head] = -1
    return differences


def test_mcnemar_is_the_exact_binomial_test_of_the_changed_questions():
    pairs = [(0, 0), (1, 0), (7, 2), (2, 7), (5, 5), (0, 9), (21, 13)]
    found = mcnemar(of_counts(*pairs))
    for p, (gained, lost) in zip(found, pairs, strict=True):
        exact = stats.binomtest(gained, gained + lost).pvalue if gained + lost else 1.0
        assert p == pytest.approx(exact)


def test_false_discovery_is_the_step_up_rule_of_benjamini_and_hochberg():
    p = np.array([0.01, 0.04, 0.03, 0.9, 0.002])
    ranked = np.sort(p) * 5 / np.arange(1, 6)
    by_hand = [min(ranked[np.sort(p).searchsorted(value) :]) for value in p]
    assert false_discovery(p) == pytest.approx(by_hand)
    assert len(false_discovery(np.array([]))) == 0


def test_few_false_heads_among_those_called_different():
    effects = [0.0] * 20 + [0.4, -0.4, -0.7]
    false, found = [], 0
    for seed in range(300):
        q = false_discovery(mcnemar(outcomes(150, effects, seed)[1]))
        called = q < 0.05
        false.append(called[:20].sum() / max(called.sum(), 1))
        found += called[20:].sum()
    assert np.mean(false) < 0.06
    assert found > 0.95 * 900


@pytest.mark.parametrize("effect", [0.0, 0.1, -0.3])
def test_the_paired_interval_covers_the_true_gain(effect):
    covered = []
    for seed in range(200):
        _, differences, gain = outcomes(350, [effect] * 10, seed)
        low, high = paired_interval(differences)
        covered.append((low <= gain) & (gain <= high))
    assert 0.935 <= np.mean(covered) <= 0.965


def test_the_paired_interval_of_one_change_in_few_questions_stays_within_bounds():
    low, high = paired_interval(of_counts((1, 0), (0, 3), (0, 0), questions=3))
    assert (low >= -1).all()
    assert (high <= 1).all()
    assert (low < 0).all()


def test_fragility_counts_margins_below_the_noise():
    margin = np.array([[0.1, 0.0005, 2.0], [0.0009, 0.3, 0.001]])
    changed = np.array([[False, True, True], [False, False, True]])
    assert fragility(margin, changed, 0.001) == pytest.approx((2 / 6, 1 / 3))
    assert fragility(margin, np.zeros_like(changed), 0.001) == pytest.approx((2 / 6, 0.0))
