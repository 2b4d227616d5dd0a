import io
import logging
import os
import re
from pathlib import Path
from random import Random
from types import SimpleNamespace

import numpy as np
import pytest
from snakemake.logging import DefaultFormatter
from snakemake_interface_logger_plugins.common import LogEvent

from headsweep.answers import client
from headsweep.answers.progress import Reports
from headsweep.cli import main as cli
from headsweep.errors import RESULT
from headsweep.words import STAGES, clock, doing, progress, stage_of
from snakemake_logger_plugin_headsweep import LogHandler, _end_of, _summary
from snakemake_logger_plugin_headsweep.pace import Pace, Planned, expected
from snakemake_logger_plugin_headsweep.screen import Screen

RULES = Path(__file__).parents[1] / "workflow" / "rules"


class Terminal(io.StringIO):
    def isatty(self):
        return True


class Run:
    """A handler that prints to memory, fed with records."""

    def __init__(self, folder, terminal=False, verbose=False):
        settings = SimpleNamespace(dryrun=False, verbose=verbose)
        self.handler = LogHandler(settings, None)
        self.handler.setFormatter(DefaultFormatter(show_failed_logs=True))
        self.stream = Terminal() if terminal else io.StringIO()
        self.handler.begin(Screen(self.stream, 0.0), 0.0)
        self._folder = folder

    def note(self, now, event, message="", **facts):
        record = logging.makeLogRecord({"msg": message, "levelno": logging.INFO, **facts})
        if event:
            record.event = event
        self.handler.note(record, now)

    def start(self, number, rule, now=0.0, **wildcards):
        log = self._folder / f"{number}.log"
        facts = {"jobid": number, "rule_name": rule, "wildcards": wildcards, "log": [str(log)]}
        self.note(now, LogEvent.JOB_INFO, **facts)
        return log

    def finish(self, number):
        self.note(0.0, LogEvent.JOB_FINISHED, job_id=number)

    def progress(self, done, total, now):
        self.note(now, LogEvent.PROGRESS, done=done, total=total)

    @property
    def said(self):
        return self.stream.getvalue()

    @property
    def left_on_the_terminal(self):
        """What a terminal shows in the end: a line is what was written after its last clearing."""
        return [line.rpartition("\r\x1b[K")[2] for line in self.said.split("\n")]


@pytest.fixture(autouse=True)
def _environment(monkeypatch):
    for name in ("HEADSWEEP_QUIET", "HF_HUB_DISABLE_PROGRESS_BARS"):
        monkeypatch.setenv(name, "")  # what a handler sets is undone


def test_a_stage_is_headed_once_and_results_stand_below(tmp_path):
    run = Run(tmp_path)
    run.note(0.0, LogEvent.RUN_INFO, stats={"generate": 3, "grade": 2, "all": 1, "total": 6})
    for number in (1, 2, 3):
        run.start(number, "generate", model="m-01234567", decoding="greedy", questions="q")
        run.finish(number)
    log = run.start(4, "grade", model="m-01234567", decoding="greedy", questions="q")
    log.write_text(
        "2025-01-02 03:04:05,678 INFO graded 5 answers: 4 judged\n"
        "2025-01-02 03:04:05,679 WARNING one row left out\n"
        "2025-01-02 03:04:05,680 RESULT m on 5 questions: 60.0% right\n",
        encoding="utf-8",
    )
    run.finish(4)
    run.start(5, "grade", model="m", decoding="T", questions="q")
    run.finish(5)  # its log is not there
    run.progress(5, 6, 7.0)
    run.start(6, "all")
    run.finish(6)
    run.progress(6, 6, 8.0)
    assert run.said.splitlines() == [
        "5 jobs: answers 3, grading 2",
        "Answers",
        "Grading",
        "  warning, grading q (greedy): one row left out",
        "  m on 5 questions: 60.0% right",
        "5 jobs done after 0:08",
    ]


def test_of_a_long_log_only_the_end_is_read(tmp_path):
    log = tmp_path / "log"
    assert _end_of(None, 5) == _end_of(log, 5) == ""
    log.write_text("a long line\n", encoding="utf-8")
    assert [_end_of(log, most) for most in (5, 50, None)] == ["line\n", *["a long line\n"] * 2]


def test_the_status_is_one_line_that_is_written_anew_and_never_broken(tmp_path):
    run = Run(tmp_path, terminal=True)
    stats = {"generate": 1, "train_selector": 1, "all": 1, "total": 3}
    run.note(0.0, LogEvent.RUN_INFO, stats=stats)
    log = run.start(1, "generate", model="m-01234567", decoding="greedy-89abcdef", questions="q")
    log.write_text("... INFO 3 of 40 answers, 2.0/s, 18 s left\n", encoding="utf-8")
    run.handler.show(65.0)  # before the first job is done
    jobs, shown = "2 jobs: answers 1, head selectors 1", "m answers q (greedy), 3 of 40 answers"
    assert run.left_on_the_terminal == [jobs, "Answers", f"0 of 2 jobs after 1:05: {shown}"]
    log.write_text("d t RESULT here\n", encoding="utf-8")
    run.finish(1)
    run.progress(1, 3, 66.0)
    assert run.left_on_the_terminal[1:3] == ["Answers", "  here"]
    run.start(2, "train_selector", selector="s" * 200)
    run.handler.show(67.0)
    assert len(run.left_on_the_terminal[-1]) == 79
    run.progress(3, 3, 70.0)
    run.handler.close()
    end = ["  here", "Head selectors", "2 jobs done after 1:10", ""]
    assert run.left_on_the_terminal == [jobs, "Answers", *end]


def test_a_log_has_a_line_now_and_then_and_fewer_in_a_long_run(tmp_path):
    run = Run(tmp_path)
    run.note(0.0, LogEvent.RUN_INFO, stats={"grade": 9, "total": 9})
    run.start(1, "grade", model="m", decoding="d", questions="q")
    run.progress(0, 9, 0.0)
    for second in range(1, 301):
        run.handler.show(float(second))
    lines = [line.split(": ")[0] for line in run.said.splitlines()[2:]]
    assert lines[:2] == ["0 of 9 jobs after 0:30", "0 of 9 jobs after 1:00"]
    assert len(lines) == 10
    for second in range(90_000, 91_000):
        run.handler.show(float(second))
    assert len(run.said.splitlines()[2:]) == 11
    assert not {"\r", "\x1b"} & set(run.said)


def test_what_snakemake_says_of_its_own_work_is_left_out_and_causes_are_not(tmp_path):
    run = Run(tmp_path)
    for chatter in ("Select jobs to execute...", "Group jobs: inactive (local execution)", ""):
        run.note(0.0, None, chatter)
    assert run.said == ""
    log = run.start(7, "grade", model="m", decoding="d", questions="q")
    log.write_text("the cause\n", encoding="utf-8")
    facts = {"rule_name": "grade", "rule_msg": None, "jobid": 7, "input": [], "output": []}
    facts |= {"log": [str(log)], "conda_env": None, "shellcmd": "false", "aux": {}}
    run.note(0.0, LogEvent.JOB_ERROR, "failed", **facts)
    assert "Error in rule grade" in run.said
    assert "the cause" in run.said
    run.note(0.0, None, "Done. Open results/mini/report.html")
    assert run.said.endswith("\nDone. Open results/mini/report.html\n")


def test_a_run_until_a_rule_ends_when_its_own_jobs_are_done(tmp_path):
    run = Run(tmp_path)
    run.note(0.0, LogEvent.RUN_INFO, stats={"generate": 2, "total": 2})
    run.progress(1, 9, 31.0)  # Snakemake counts the jobs that are left out, too
    run.handler.show(32.0)
    run.progress(2, 9, 40.0)
    assert run.said.splitlines() == [
        "2 jobs: answers 2",
        "1 of 2 jobs after 0:31",
        "2 jobs done after 0:40",
    ]


COMMANDS = {7: "headsweep job grade --log 7.log", 8: "headsweep job grade --log 8.log"}


def tell_failure(run, number, status):
    told = f"RuleException:\nCommand 'set -e; {COMMANDS[number]}' returned non-zero {status}"
    run.note(0.0, LogEvent.ERROR, told, exception="RuleException")
    facts = {"rule_name": "grade", "rule_msg": None, "jobid": number, "input": [], "output": []}
    facts |= {"log": [], "conda_env": None, "shellcmd": COMMANDS[number], "aux": {}}
    run.note(0.0, LogEvent.JOB_ERROR, "failed", **facts)


@pytest.mark.parametrize("first", ["the run", "a job"])
def test_an_interrupt_is_no_failure_and_the_last_line_says_how_to_go_on(first, tmp_path):
    run = Run(tmp_path)
    terminating = "Terminating processes on user request, this might take some time."
    if first == "the run":
        run.note(0.0, None, terminating)
    for number in COMMANDS:
        tell_failure(run, number, "exit status 130.")
    if first == "a job":
        run.note(0.0, None, terminating)
    end = "WorkflowError:\nAt least one job did not complete successfully."
    run.note(0.0, LogEvent.ERROR, end, exception="WorkflowError")
    kept = "Interrupted; what is finished is kept: give the same command again to go on"
    assert run.said.splitlines() == [terminating, kept]


@pytest.mark.parametrize("interrupted", [True, False])
def test_a_failure_is_told_in_full_also_in_an_interrupted_run(interrupted, tmp_path):
    run = Run(tmp_path)
    if interrupted:
        tell_failure(run, 7, "exit status 130.")
    tell_failure(run, 8, "exit status 1.")
    end = "WorkflowError:\nAt least one job did not complete successfully."
    run.note(0.0, LogEvent.ERROR, end, exception="WorkflowError")
    assert run.said.count("Error in rule grade") == run.said.count("exit status") == 1
    assert COMMANDS[8] in run.said
    assert COMMANDS[7] not in run.said
    assert run.said.endswith(f"{end}\n")


@pytest.mark.parametrize(("quiet", "shown"), [(True, "c"), (False, "abc")])
def test_a_job_of_a_run_shows_errors_and_keeps_results_in_its_log(
    quiet, shown, tmp_path, monkeypatch, capsys
):
    for name, value in (("handlers", []), ("propagate", True), ("level", logging.DEBUG)):
        monkeypatch.setattr(cli._LOG, name, value)
    if not quiet:
        monkeypatch.delenv("HEADSWEEP_QUIET")
    cli._set_up_logging(tmp_path / "logs" / "job.log")
    log = logging.getLogger("headsweep.somewhere")
    for level, message in ((logging.INFO, "a"), (RESULT, "b"), (logging.ERROR, "c")):
        log.log(level, message)
    assert capsys.readouterr().err == "".join(f"headsweep: {each}\n" for each in shown)
    kept = (tmp_path / "logs" / "job.log").read_text(encoding="utf-8").splitlines()
    assert [line.split(" ", 2)[2] for line in kept] == ["INFO a", "RESULT b", "ERROR c"]
    for handler in cli._LOG.handlers:
        handler.close()


@pytest.mark.parametrize(("verbose", "quiet"), [(False, "1"), (True, "")])
def test_jobs_leave_the_terminal_to_the_run_unless_it_is_verbose(verbose, quiet, tmp_path):
    run = Run(tmp_path, terminal=True, verbose=verbose)
    assert os.environ["HEADSWEEP_QUIET"] == quiet
    run.handler.emit(logging.makeLogRecord({"msg": "Using shell: sh", "levelno": logging.INFO}))
    assert ("Using shell: sh" in run.said) == verbose


def rules_by_file():
    return {
        file.stem: re.findall(r"^ *rule (\w+):", file.read_text(encoding="utf-8"), re.MULTILINE)
        for file in RULES.glob("*.smk")
    }


def test_every_rule_has_a_stage_and_only_tables_and_figures_come_last():
    by_file = rules_by_file()
    staged = {rule for rules in STAGES.values() for rule in rules}
    assert staged <= {rule for rules in by_file.values() for rule in rules}
    last = {"figures", "frontier"}
    assert last < by_file.keys()
    for file, rules in by_file.items():
        assert staged.isdisjoint(rules) if file in last else staged.issuperset(rules), file


def test_a_job_is_told_in_words():
    assert stage_of("draw_sweep_math") == "Tables and figures"
    compressing = {"subject": "r-01234567", "data": "", "arm": "full-89abcdef"}
    assert doing("compress", compressing) == "compressing r, arm full"
    assert doing("draw_sweep_math", {}) == "draw sweep math"
    assert progress("step 2 of 9, loss 3\nheads removed: L01H02; 5 of 24 are left") == "step 2 of 9"
    assert progress("INFO loading the model\n") == "loading the model"
    loading = "INFO loading the model\nINFO "
    for waits, said in (
        ("GPU GPU-1, where another model is loaded", "waiting for GPU"),
        ("another engine of this store, which answers base", "waiting for another engine"),
        ("other answers before these 40", "waiting for other answers"),
    ):
        assert progress(loading + client.progress(0, 9, 0.0, waits)) == said
    assert progress("writing the first of 40 answers, 3 s so far") == "writing the first"
    told = "writing the first of 40 answers, 812 tokens"
    assert progress(f"{told}, 3 s so far") == told
    assert [clock(59.6), clock(3725)] == ["1:00", "1:02:05"]


@pytest.mark.parametrize(
    ("done", "total", "seconds", "heard", "said"),
    [
        (0, 9200, 4.0, {}, "writing the first of 9200 answers, 4 s so far"),
        (0, 66, 53.4, {"tokens": 421}, "writing the first of 66 answers, 421 tokens, 53 s so far"),
        (2, 9200, 53.0, {}, "2 of 9200 answers after 53 s"),
        (2, 3, 53.0, {}, "2 of 3 answers after 53 s"),
        (100, 9200, 50.0, {}, "100 of 9200 answers, 2.0/s, 4550 s left"),
        (30, 120, 60.0, {}, "30 of 120 answers, 30.0 a minute, 180 s left"),
        (9135, 9200, 913.5, {}, "9135 of 9200 answers, 10.0/s, 6 s left"),
        (9136, 9200, 913.6, {}, "9136 of 9200 answers, 10.0/s, the longest are left"),
        (89, 120, 89.0, {}, "89 of 120 answers, 1.0/s, 31 s left"),
        (90, 120, 90.0, {}, "90 of 120 answers, 1.0/s, the longest are left"),
        (0, 71, 0.0, {"waits": "the GPU"}, "waiting for the GPU"),
        # Six are written together, with 40 tokens each after 20 s and 60 at most. Once one has
        # ended, others may have begun since.
        (
            0,
            6,
            20.0,
            {"tokens": 240, "limit": 60},
            "writing the first of 6 answers, 240 tokens, 20 s so far, at most 10 s left",
        ),
        (
            0,
            6,
            20.0,
            {"tokens": 95, "limit": 60},
            "writing the first of 6 answers, 95 tokens, 20 s so far",
        ),
        # One of these goes on where it was interrupted: 40 tokens in 18 seconds are the pace.
        (
            0,
            1,
            20.0,
            {"tokens": 540, "limit": 640, "first_tokens": 500, "first_seconds": 2.0},
            "writing the first of 1 answers, 540 tokens, 20 s so far, at most 45 s left",
        ),
        (2, 13, 20.0, {"tokens": 240, "limit": 60}, "2 of 13 answers after 20 s"),
        (
            9,
            10,
            99.0,
            {"tokens": 240, "limit": 250},
            "9 of 10 answers after 99 s, 1 left with 240 of at most 250 tokens",
        ),
        (
            93,
            100,
            93.0,
            {"tokens": 240, "limit": 60},
            "93 of 100 answers, 1.0/s, 7 left with 240 of at most 420 tokens",
        ),
    ],
)
def test_no_time_left_is_told_before_it_is_worth_something(done, total, seconds, heard, said):
    told = client.progress(done, total, seconds, **heard)
    assert told == said
    pace = Pace({1: Planned("generate", "batch", 100.0, [])})
    pace.start(1, 0.0)
    pace.said(1, progress(told), seconds)  # as the status line does


def test_a_job_that_waits_says_nothing_twice_within_the_doubled_time():
    reports, waits = Reports(0.0), {"waits": "other answers"}
    counts = {0: 0, 95: 7, 97: 8, 140: 8}  # answers, from each second on

    def told(until):
        done = 0
        for second in range(until):
            done = counts.get(second, done)
            if reports.due(float(second), {"done": done, "seconds": second, **waits}):
                yield second, done

    stands = [(4, 0), (11, 0), (25, 0), (53, 0)]
    assert [*told(151)] == [*stands, (95, 7), (99, 8), (106, 8), (120, 8), (148, 8)]
    assert reports.due(152.0, {"done": 8, "waits": "another engine"})
    assert reports.first == {}
    assert not reports.due(153.0, {"done": 8, "tokens": 7, "seconds": 151.0})
    reports.due(154.0, {"done": 8, "tokens": 9, "seconds": 152.0})
    assert reports.first == {"first_tokens": 7, "first_seconds": 151.0}
    reports, waits = Reports(0.0), {}
    assert [*told(31)] == [(second, 0) for second in range(4, 31, 4)]


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
    pace.said(1, "20 of 500 answers", NOW)
    assert pace.left(NOW + 60.0) is None
    pace.said(1, "50 of 500 answers", NOW + 600.0)
    left = pace.left(NOW + 600.0)
    assert left == pytest.approx(600.0 * 19, rel=0.05)  # two thirds of the plan, for both


def test_the_last_answers_of_a_batch_never_leave_the_estimate_standing():
    pace = replayed(Planned("generate", "batch", 500.0, []), cores=1)
    pace.start(1, NOW)
    pace.said(1, "490 of 500 answers", NOW + 980.0)
    told = []
    for silent in range(0, 200, 10):
        pace.said(1, "490 of 500 answers", NOW + 980.0 + silent)  # as each look repeats it
        told.append(pace.left(NOW + 980.0 + silent))
    steps = np.diff(told)
    assert told[0] == pytest.approx(20.0, abs=1.0)
    assert (steps[:1] < -4).all()  # it runs down
    assert (steps[2:] > 4).all()  # and then grows: these answers are longer than others


def test_a_download_that_takes_far_longer_than_planned_is_not_guessed():
    downloads = [Planned("fetch_model", name, 0.0, []) for name in ("first", "second")]
    pace = replayed(*downloads)
    pace.start(1, NOW)
    planned = expected("fetch_model")
    assert pace.left(NOW + 3.9 * planned) is not None
    assert pace.left(NOW + 4.1 * planned) is None
    pace.finish(1, NOW + 20 * planned)
    assert pace.left(NOW + 20 * planned) > 5 * planned  # what the first took tells of the second


def test_a_failed_job_is_still_to_be_done():
    pace = replayed(Planned("a", "1", 0.0, []))
    pace.start(1, NOW)
    pace.finish(1, NOW, failed=True)
    assert pace.left(NOW) == pytest.approx(expected("a"))
    pace.finish(1, NOW)  # one that was never seen to start
    assert pace.left(NOW) == pytest.approx(expected("a"))


@pytest.mark.parametrize("target", ["all", "answers", "fetch"])
def test_a_target_is_no_table_or_figure(target):
    summary = _summary({"fetch_model": 2, target: 1, "total": 3})
    assert summary == "2 jobs: questions and models 2"
