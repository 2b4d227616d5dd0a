"""The time left of a run, replayed with jobs whose true times are known."""

from itertools import count
from random import Random

import pytest

from snakemake_logger_plugin_headroom.pace import Pace, Planned, expected

CORES = 2


class Demo:
    """The demo's jobs, in the order of their priority: 109 that answer, in nine batches.

    Jobs of 24 variants wait for an engine that takes what running jobs leave of the cores.
    """

    def __init__(self, seed: int) -> None:
        draw = Random(seed)
        rules: dict[str, float] = {}

        def true(rule: str, usual: float) -> float:
            rules.setdefault(rule, draw.lognormvariate(0, 0.3))
            return usual * rules[rule] * draw.lognormvariate(0, 0.1)

        self.jobs: dict[int, Planned] = {}
        self.seconds: dict[int, float] = {}
        self.group: dict[int, str] = {}  # that a job waits for
        self.engine: dict[str, float] = {}  # seconds of each group
        numbers = count(1)
        machine = draw.lognormvariate(0, 0.3)  # another machine than the table's

        def add(rule: str, *after: int, planned: float = 0.0, group: str = "") -> int:
            number = next(numbers)
            seconds = 0.4 if rule == "generate" else expected(rule, planned)
            if rule == "measure_compression":
                seconds /= CORES
            self.seconds[number] = true(rule, machine * seconds)
            unit = group.partition("/")[0] or str(number)
            self.jobs[number] = Planned(rule, unit, planned, list(after))
            self.group[number] = group
            return number

        drawn = [add("questions", add("source")) for _ in range(4)]
        embedded = [add("embed", each) for each in drawn]
        graded = []
        per_answer = true("engine", 0.5 * machine)
        batches = ((53, 56.0, 0), (25, 26.0, 1), (13, 6.6, 2), (13, 6.6, 3), (1, 8.4, 0))
        batches += ((1, 8.4, 0), (1, 8.4, 0), (1, 4.2, 3), (1, 1.2, 0))
        for name, (variants, planned, questions) in enumerate(batches):
            jobs = []
            for begin in range(0, variants, 24):
                size, group = min(24, variants - begin), f"batch{name}/{begin}"
                self.engine[group] = per_answer * planned * size / variants
                asked = {"planned": planned, "group": group}
                jobs += [add("generate", drawn[questions], **asked) for _ in range(size)]
            graded.append(add("grade", *jobs))
        reported = []
        for train, test in ((1, 0), (2, 3)):
            selector = add("train_selector", graded[train], embedded[train])
            ranked = add("rank_heads", selector, embedded[test])
            read = add("evaluate", ranked, graded[test])
            reported += [add("selector_tables", read), add("draw_selector", read)]
        teacher = add("teacher", add("problems"), planned=25.2)
        arms = [add("compress", teacher, planned=seconds) for seconds in (0.0, 25.2, 25.2)]
        arms += [add("compress", graded[1], planned=p) for p in (0.0, 9.4, 9.4, 9.4, 9.4)]
        eight = [add("quantise", arms[place]) for place in (2, 3, 4)]
        for of in (arms[:3] + eight[:1], arms[3:] + eight[1:]):
            measured = [add("measure_compression", *of), add("gather_compression", *of)]
            reported.append(add("draw_compression", *measured))
        reported.append(add("compression_tables", *reported[-2:]))
        controls = add("controls", graded[0], add("activations", 9))
        sweep = ("table", "violins", "levels", "draw_sweep", "comparison_table", "audit")
        reported += [add(rule, controls) for rule in sweep]
        add("report_page", add("claims", *reported))

    def run(self, pace: Pace, step: float = 0.1) -> list[tuple[float, float | None]]:
        """Run all jobs; return estimates of the time left, each with its time."""
        now, told = 0.0, list[tuple[float, float | None]]()
        running, begun, done = list[int](), set[int](), set[int]()
        while len(done) < len(self.jobs):
            for number, job in self.jobs.items():
                if number not in begun and done.issuperset(job.after) and len(running) < CORES:
                    begun.add(number)
                    running.append(number)
                    pace.start(number, now)
            if len(told) <= now / 5.0:
                told.append((now, pace.left(now)))
            waiting = [each for each in running if self.engine.get(self.group[each], 0.0) > 0]
            busy = [each for each in running if each not in waiting]
            for group in sorted(self.group[each] for each in waiting)[:1]:
                self.engine[group] -= step * (CORES - len(busy)) / CORES
            now += step
            for number in busy:
                self.seconds[number] -= step
                if self.seconds[number] <= 0:
                    done.add(number)
                    running.remove(number)
                    pace.finish(number, now)
        return [*told, (now, pace.left(now))]


@pytest.mark.parametrize("seed", [0, 4, 10, 13])
def test_time_left_of_the_demo_is_within_half_of_the_truth_from_a_fifth_on(seed):
    demo = Demo(seed)
    assert sum(job.rule == "generate" for job in demo.jobs.values()) == 109
    *told, (end, last) = demo.run(Pace(demo.jobs, CORES))
    assert last is None
    for now, left in told:
        if now >= 0.2 * end and end - now > 60:  # the last rules are yet to show their pace
            assert left is not None
            assert 1 / 1.5 < left / (end - now) < 1.5, (now, end)


def replayed(*jobs: Planned, cores: int = 2) -> Pace:
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
