"""The time left of a run, replayed with jobs whose true times are known."""

from random import Random

import numpy as np
import pytest

from snakemake_logger_plugin_headroom.pace import Pace, Planned, expected

CORES = 2


BATCHES = ((53, 56.0), (25, 26.0), (13, 6.6), (13, 6.6), (1, 8.4), (1, 8.4), (1, 8.4), (1, 4.2))
DEMO = (
    ("drawn", "questions", 4, "", 0.0),
    *((f"answers{n}", "generate", jobs, "drawn", time) for n, (jobs, time) in enumerate(BATCHES)),
    *((f"grades{n}", "grade", 1, f"answers{n}", 0.0) for n in range(len(BATCHES))),
    ("trained", "train_selector", 2, "grades1 grades2", 0.0),
    ("read", "evaluate", 2, "trained grades0 grades3", 0.0),
    ("teacher", "teacher", 1, "", 25.2),
    ("solvers", "compress", 4, "teacher", 25.2),
    ("models", "compress", 4, "grades1", 9.4),
    ("measured", "measure_compression", 2, "solvers models", 0.0),
    ("compressions", "draw_compression", 2, "measured", 0.0),
    ("controls", "controls", 1, "grades0", 0.0),
    *((rule, rule, 1, "controls", 0.0) for rule in ("table", "violins", "levels", "draw_sweep")),
    ("page", "report_page", 1, "read compressions draw_sweep", 0.0),
)
"""Jobs much like the demo's: name, rule, number, names of what each waits for, seconds planned."""


class Demo:
    def __init__(self, seed):
        draw = Random(seed)
        machine = draw.lognormvariate(0, 0.3)  # another machine than the table's
        slower = {rule: draw.lognormvariate(0, 0.3) for _, rule, *_ in DEMO}
        self.jobs = {}
        self.seconds = {}
        named = {}
        for name, rule, count, awaited, planned in DEMO:
            after = [number for each in awaited.split() for number in named[each]]
            named[name] = [*range(len(self.jobs) + 1, len(self.jobs) + count + 1)]
            for number in named[name]:
                unit, seconds = str(number), expected(rule, planned)
                if rule == "generate":
                    unit, seconds = name, 0.4 + 0.5 * planned / count
                if rule == "measure_compression":
                    seconds /= CORES
                self.jobs[number] = Planned(rule, unit, planned, after)
                scale = machine * slower[rule] * draw.lognormvariate(0, 0.1)
                self.seconds[number] = scale * seconds

    def run(self, pace, step=0.1):
        """Run all jobs; return estimates of the time left, each with its time."""
        now, told = 0.0, []
        running, begun, done = [], set(), set()
        while len(done) < len(self.jobs):
            for number, job in self.jobs.items():
                if number not in begun and done.issuperset(job.after) and len(running) < CORES:
                    begun.add(number)
                    running.append(number)
                    pace.start(number, now)
            if len(told) <= now / 5.0:
                told.append((now, pace.left(now)))
            now += step
            for number in [*running]:
                self.seconds[number] -= step
                if self.seconds[number] <= 0:
                    done.add(number)
                    running.remove(number)
                    pace.finish(number, now)
        return [*told, (now, pace.left(now))]


def test_time_left_of_the_demo_is_mostly_within_half_of_the_truth_from_a_fifth_on():
    factors = []
    for seed in range(10):
        demo = Demo(seed)
        *told, (end, last) = demo.run(Pace(demo.jobs, CORES))
        assert last is None
        # In the last minute the last rules are yet to show their pace.
        later = [(now, left) for now, left in told if 0.2 * end <= now < end - 60]
        assert all(left is not None for _, left in later)
        factors += [max(left / (end - now), (end - now) / left) for now, left in later if left]
    assert (np.quantile(factors, [0.8, 0.95]) < [1.5, 2.0]).all()


def replayed(*jobs, cores=2):
    """A pace of which three jobs, numbered from 1001, have taken just what was expected."""
    done = {1000 + n: Planned("done", f"done{n}", 0.0, []) for n in (1, 2, 3)}
    pace = Pace(done | dict(enumerate(jobs, start=1)), cores)
    for place, number in enumerate(done):
        pace.start(number, place * expected("done"))
        pace.finish(number, (place + 1) * expected("done"))
    return pace


NOW = 3 * expected("done")


def test_nothing_is_said_before_three_jobs_are_done():
    pace = Pace({n: Planned("a", str(n), 0.0, []) for n in range(9)})
    for number in range(3):
        assert pace.left(float(number)) is None
        pace.start(number, float(number))
        pace.finish(number, number + 1.0)
    assert pace.left(3.0) is not None
    assert Pace({}).left(0.0) is None


@pytest.mark.parametrize(("after", "jobs"), [([], 1), ([1], 2)])
def test_jobs_that_wait_for_one_another_do_not_run_side_by_side(after, jobs):
    pace = replayed(Planned("a", "1", 0.0, []), Planned("a", "2", 0.0, after))
    assert pace.left(NOW) == pytest.approx(jobs * expected("a"))


def test_a_long_batch_is_not_guessed_before_some_of_it_is_done():
    batches = [Planned("generate", name, 9000.0, []) for name in ("long", "longer")]
    pace = replayed(*batches, cores=1)
    pace.start(1, NOW)
    pace.said(1, "20 of 500 answers")
    assert pace.left(NOW + 60.0) is None
    pace.said(1, "50 of 500 answers")
    left = pace.left(NOW + 600.0)
    assert left == pytest.approx(600.0 * 19, rel=0.05)  # two thirds of the plan, for both


def test_what_the_plan_states_counts_once_for_jobs_that_share_it():
    one, fifty = (
        replayed(*(Planned("generate", "batch", 500.0, []) for _ in range(jobs))).left(NOW) or 0.0
        for jobs in (1, 50)
    )
    assert 100 < one < fifty < 1.1 * one


def test_a_rule_that_takes_longer_than_thought_does_so_again():
    pace = replayed(*(Planned("a", str(n), 0.0, [n - 1]) for n in range(1, 5)), cores=1)
    for number in (1, 2):
        pace.start(number, NOW + 10.0 * (number - 1))
        pace.finish(number, NOW + 10.0 * number)
    assert 12 < (pace.left(NOW + 20.0) or 0.0) < 20  # twice 10 s, where 2.5 were expected


def test_word_of_the_answers_done_is_taken_over_what_was_planned():
    pace = replayed(*(Planned("generate", "batch", 1000.0, []) for _ in range(3)), cores=1)
    pace.start(1, NOW)
    pace.said(1, "30 of 40 answers")
    left = pace.left(NOW + 60.0)
    assert left == pytest.approx(20.0, abs=3.0)


def test_a_failed_job_is_still_to_be_done():
    pace = replayed(Planned("a", "1", 0.0, []))
    pace.start(1, NOW)
    pace.finish(1, NOW, failed=True)
    assert pace.left(NOW) == pytest.approx(expected("a"))
    pace.finish(1, NOW)  # one that was never seen to start
    assert pace.left(NOW) == pytest.approx(expected("a"))
