"""The time left of a run, replayed with jobs whose true times are known."""

from dataclasses import dataclass, field
from itertools import count
from random import Random

import pytest

from snakemake_logger_plugin_headroom.pace import Pace, Planned, expected

CORES = 2


@dataclass(eq=False)
class Job:
    """A job of a simulated run: what it waits for, and what it takes of a core."""

    number: int
    rule: str
    seconds: float
    unit: str
    planned: float = 0.0
    after: list["Job"] = field(default_factory=list)
    batch: str = ""
    begun: bool = False
    done: bool = False


class Demo:
    """The demo's jobs, in the order of their priority: 109 that answer, in eight batches.

    A batch's answers come in groups of 24 variants from an engine that takes what the running jobs
    leave of the cores; jobs of a group wait for it and then collect.
    """

    def __init__(self, seed: int) -> None:
        draw = Random(seed)
        rules: dict[str, float] = {}

        def true(rule: str, usual: float) -> float:
            rules.setdefault(rule, draw.lognormvariate(0, 0.3))
            return usual * rules[rule] * draw.lognormvariate(0, 0.1)

        self.jobs: list[Job] = []
        self.engine: dict[str, list[float]] = {}  # batch: seconds of its groups
        numbers = count(1)
        machine = draw.lognormvariate(0, 0.3)  # another machine than the table's

        def add(
            rule: str, *after: Job, unit: str = "", planned: float = 0.0, batch: str = ""
        ) -> Job:
            number = next(numbers)
            seconds = 0.4 if rule == "generate" else expected(rule, planned)
            if rule == "measure_compression":
                seconds /= CORES
            job = Job(number, rule, true(rule, machine * seconds), unit or str(number), planned)
            job.after = list(after)
            job.batch = batch
            self.jobs.append(job)
            return job

        drawn = [add("questions", add("source")) for _ in range(4)]
        embedded = [add("embed", each) for each in drawn]
        graded = []
        per_answer = true("engine", 0.5 * machine)
        for variants, planned, questions in (
            *((53, 56.0, 0), (25, 26.0, 1), (13, 6.6, 2), (13, 6.6, 3), (1, 8.4, 0)),
            *((1, 8.4, 0), (1, 8.4, 0), (1, 4.2, 3), (1, 1.2, 0)),
        ):
            name = f"batch{len(self.engine)}"
            groups = [min(24, variants - begin) for begin in range(0, variants, 24)]
            self.engine[name] = [per_answer * planned * n / variants for n in groups]
            jobs = [
                add(
                    "generate",
                    drawn[questions],
                    unit=name,
                    planned=planned,
                    batch=f"{name}/{group}",
                )
                for group, n in enumerate(groups)
                for _ in range(n)
            ]
            graded.append(add("grade", *jobs))
        reported = []
        for train, test in ((1, 0), (2, 3)):
            selector = add("train_selector", graded[train], embedded[train])
            ranked = add("rank_heads", selector, embedded[test])
            asked = add("evaluate", ranked, graded[test])
            reported += [add("selector_tables", asked), add("draw_selector", asked)]
        teacher = add("teacher", add("problems"), planned=25.2)
        arms = [add("compress", teacher, planned=seconds) for seconds in (0.0, 25.2, 25.2)]
        arms += [add("compress", graded[1], planned=p) for p in (0.0, 9.4, 9.4, 9.4, 9.4)]
        eight = [add("quantise", arms[place]) for place in (2, 3, 4)]
        for of in (arms[:3] + eight[:1], arms[3:] + eight[1:]):
            measured = [add("measure_compression", *of), add("gather_compression", *of)]
            reported.append(add("draw_compression", *measured))
        reported.append(add("compression_tables", *reported[-2:]))
        controls = add("controls", graded[0], add("activations", self.jobs[8]))
        sweep = ("table", "violins", "levels", "draw_sweep", "comparison_table", "audit")
        reported += [add(rule, controls) for rule in sweep]
        add("report_page", add("claims", *reported))

    def planned(self) -> dict[int, Planned]:
        return {
            job.number: Planned(
                job.rule, job.unit, job.planned, [each.number for each in job.after]
            )
            for job in self.jobs
        }

    def run(self, pace: Pace, step: float = 0.1) -> list[tuple[float, float | None]]:
        """Run all jobs; return estimates of the time left, each with its time."""
        now, told, running = 0.0, [], list[Job]()
        while not all(job.done for job in self.jobs):
            for job in self.jobs:
                ready = not job.begun and all(each.done for each in job.after)
                if ready and len(running) < CORES:
                    job.begun = True
                    running.append(job)
                    pace.start(job.number, now)
            if len(told) <= now / 5.0:
                told.append((now, pace.left(now)))
            waiting = sorted(job.batch for job in running if self._waits(job))
            busy = [job for job in running if not self._waits(job)]
            for batch in waiting[:1]:
                name, group = batch.split("/")
                self.engine[name][int(group)] -= step * (CORES - len(busy)) / CORES
            now += step
            for job in busy:
                job.seconds -= step
                if job.seconds <= 0:
                    job.done = True
                    running.remove(job)
                    pace.finish(job.number, now)
        return [*told, (now, pace.left(now))]

    def _waits(self, job: Job) -> bool:
        name, _, group = job.batch.partition("/")
        return bool(job.batch) and self.engine[name][int(group)] > 0


@pytest.mark.parametrize("seed", [0, 4, 10, 13])
def test_time_left_of_the_demo_is_within_half_of_the_truth_from_a_fifth_on(seed: int) -> None:
    demo = Demo(seed)
    assert sum(job.rule == "generate" for job in demo.jobs) == 109
    *told, (end, last) = demo.run(Pace(demo.planned(), CORES))
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


def test_nothing_is_said_before_three_jobs_are_done() -> None:
    pace = Pace({n: Planned("a", str(n), 0.0, []) for n in range(9)})
    for number in range(3):
        assert pace.left(float(number)) is None
        pace.start(number, float(number))
        pace.finish(number, number + 1.0)
    assert pace.left(3.0) is not None
    assert Pace({}).left(0.0) is None


def test_jobs_that_wait_for_one_another_do_not_run_side_by_side() -> None:
    seconds = expected("a")
    apart = replayed(Planned("a", "1", 0.0, []), Planned("a", "2", 0.0, []))
    chained = replayed(Planned("a", "1", 0.0, []), Planned("a", "2", 0.0, [1]))
    assert apart.left(NOW) == pytest.approx(seconds)
    assert chained.left(NOW) == pytest.approx(2 * seconds)


def test_a_long_batch_is_not_guessed_before_some_of_it_is_done() -> None:
    batches = [Planned("generate", name, 9000.0, []) for name in ("long", "longer")]
    pace = replayed(*batches, cores=1)
    pace.start(1, NOW)
    pace.said(1, "20 of 500 answers")
    assert pace.left(NOW + 60.0) is None
    pace.said(1, "50 of 500 answers")
    left = pace.left(NOW + 600.0)
    assert left == pytest.approx(600.0 * 19, rel=0.05)  # two thirds of the plan, for both


def test_what_the_plan_states_counts_once_for_jobs_that_share_it() -> None:
    def left(jobs: int) -> float:
        pace = replayed(*(Planned("generate", "batch", 500.0, []) for _ in range(jobs)))
        found = pace.left(NOW)
        assert found is not None
        return found

    assert left(1) > 100
    assert left(1) < left(50) < 1.1 * left(1)


def test_a_rule_that_takes_longer_than_thought_does_so_again() -> None:
    pace = replayed(*(Planned("a", str(n), 0.0, [n - 1]) for n in range(1, 5)), cores=1)
    for number in (1, 2):
        pace.start(number, NOW + 10.0 * (number - 1))
        pace.finish(number, NOW + 10.0 * number)
    left = pace.left(NOW + 20.0)
    assert left is not None
    assert 12 < left < 20  # twice 10 seconds, where 2.5 were expected


def test_word_of_the_answers_done_is_taken_over_what_was_planned() -> None:
    pace = replayed(*(Planned("generate", "batch", 1000.0, []) for _ in range(3)), cores=1)
    pace.start(1, NOW)
    pace.said(1, "30 of 40 answers")
    left = pace.left(NOW + 60.0)
    assert left == pytest.approx(20.0, abs=3.0)


def test_a_failed_job_is_still_to_be_done() -> None:
    pace = replayed(Planned("a", "1", 0.0, []))
    pace.start(1, NOW)
    pace.finish(1, NOW, failed=True)
    assert pace.left(NOW) == pytest.approx(expected("a"))
    pace.finish(1, NOW)  # one that was never seen to start
    assert pace.left(NOW) == pytest.approx(expected("a"))
