"""The time left of a run, replayed with jobs whose true times are known."""

import pytest

from snakemake_logger_plugin_headroom.pace import FEW, Pace


def finish_all(pace: Pace, jobs: list[tuple[str, float]], begin: float, first: int = 0) -> float:
    """Run jobs one after the other; return the time."""
    now = begin
    for job, (rule, seconds) in enumerate(jobs, start=first):
        pace.start(job, rule, now)
        now += seconds
        pace.finish(job, now)
    return now


def test_a_long_job_of_another_rule_says_nothing_of_the_jobs_left() -> None:
    pace = Pace({"train": 1, "draw": 4, "generate": 203})
    now = finish_all(pace, [*4 * [("draw", 0.5)], ("train", 190.0)], 100.0)
    assert pace.left() is None
    now = finish_all(pace, [("generate", 12.0)], now, first=5)
    assert pace.left() is None
    finish_all(pace, 22 * [("generate", 0.25)], now, first=6)
    mean = (12 + 22 * 0.25) / 23
    assert pace.left() == pytest.approx(180 * mean)


def test_jobs_side_by_side_share_the_time() -> None:
    pace = Pace({"generate": 40})
    pace.start(0, "generate", 7.0)
    for job in range(1, 21):  # two at a time, each for 3 seconds
        pace.start(job, "generate", 7.0 + 1.5 * job)
        pace.finish(job - 1, 8.5 + 1.5 * job)
    assert pace.left() == pytest.approx(20 * 1.5, rel=0.1)


def test_a_rule_that_has_not_run_is_taken_to_cost_what_is_usual() -> None:
    pace = Pace({"a": 3, "b": 2, "c": 1, "report": 2})
    finish_all(pace, [("a", 1.0), ("a", 3.0), ("b", 4.0), ("c", 90.0)], 0.0)
    assert pace.left() == pytest.approx(1 * 2.0 + 1 * 4.0 + 2 * 4.0)


def test_few_jobs_need_little_ground_and_none_left_take_no_time() -> None:
    pace = Pace({"a": FEW + 1})
    assert pace.left() is None
    finish_all(pace, [("a", 4.0)], 0.0)
    assert pace.left() == pytest.approx(FEW * 4.0)
    finish_all(pace, FEW * [("a", 2.0)], 0.0)
    assert pace.left() == 0.0
    pace.finish(99, 50.0)  # a job that was never seen to start
    assert pace.left() == 0.0
