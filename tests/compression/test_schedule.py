"""Schedules never give a head back, and end where they were told to."""

import pytest

from headroom.compression.schedule import LiteralSchedule, heads_at, ratio_at, removed_by_round


@pytest.mark.parametrize("exponent", [0.5, 1.0, 2.0, 3.0])
@pytest.mark.parametrize("target", [0.1, 0.2, 0.25, 0.29, 0.3, 0.6])
@pytest.mark.parametrize("heads", [18, 24, 100, 144])
def test_rounds_rise_to_the_target(heads: int, target: float, exponent: float):
    removed = removed_by_round(heads, target, rounds=5, start=0.05, exponent=exponent)
    assert len(removed) == 5
    assert removed == sorted(removed)
    assert removed[0] >= int(0.05 * heads)
    assert removed[-1] == round(100 * target) * heads // 100


def test_linear_rounds_of_the_paper():
    """25% of the 144 heads of RoBERTa-base in four rounds, nine a round."""
    assert removed_by_round(144, 0.25) == [9, 18, 27, 36]


def test_a_large_exponent_prunes_late():
    assert removed_by_round(100, 0.4, exponent=2) == [2, 10, 22, 40]
    assert removed_by_round(100, 0.4, exponent=0.5) == [20, 28, 34, 40]


def test_the_ratio_follows_equation_5():
    assert ratio_at(3, 4, 0.5, start=0.1, exponent=2) == pytest.approx(0.1 + 0.4 * 9 / 16)
    assert ratio_at(9, 4, 0.5) == 0.5


def test_rounding_in_floating_point_loses_no_head():
    assert heads_at(0.29, 100) == 29
    assert heads_at(0.25, 18) == 4


def test_the_literal_schedule_takes_one_head_at_a_time():
    schedule = LiteralSchedule(heads=18, steps=40, target=0.25, exponent=2)
    removed, when = 0, []
    for step in range(41):
        while schedule.due(step, removed):
            removed += 1
            when.append(step)
    # The k-th of floor(0.25 * 18) = 4 heads goes at the first step with 4.5 (t / 40)^2 >= k.
    assert when == [19, 27, 33, 38]
    assert schedule.stopped(removed, parameters=0, loss=0)
    assert not schedule.stopped(removed - 1, parameters=0, loss=0)


@pytest.mark.parametrize(
    ("parameters", "loss", "stopped"),
    [(1001, 0.02, False), (1000, 0.0, True), (1001, 0.021, True)],
)
def test_size_and_lost_accuracy_stop_too(parameters: int, loss: float, stopped: bool):
    schedule = LiteralSchedule(heads=18, steps=40, target=0.25, smallest=1000, largest_loss=0.02)
    assert schedule.stopped(1, parameters, loss) is stopped
    assert not LiteralSchedule(heads=18, steps=40, target=0.25).stopped(1, parameters, loss)
