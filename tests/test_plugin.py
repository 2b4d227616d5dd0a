import io
import logging
import os
from pathlib import Path
from types import SimpleNamespace

import pytest
from snakemake.logging import DefaultFormatter
from snakemake_interface_logger_plugins.common import LogEvent

from headroom import cli
from headroom.errors import RESULT
from headroom.generation import client
from snakemake_logger_plugin_headroom import LogHandler
from snakemake_logger_plugin_headroom.pace import Pace, Planned
from snakemake_logger_plugin_headroom.screen import Screen
from snakemake_logger_plugin_headroom.words import STAGES, clock, doing, progress, stage_of

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
    for name in ("HEADROOM_QUIET", "HF_HUB_DISABLE_PROGRESS_BARS"):
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
    run.start(1, "grade", model="m", decoding="d", questions="q")
    run.progress(0, 9, 0.0)
    for second in range(1, 301):
        run.handler.show(float(second))
    lines = [line.split(": ")[0] for line in run.said.splitlines()[1:]]
    assert lines[:2] == ["0 of 9 jobs after 0:30", "0 of 9 jobs after 1:00"]
    assert len(lines) == 10
    for second in range(90_000, 91_000):
        run.handler.show(float(second))
    assert len(run.said.splitlines()[1:]) == 11
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


@pytest.mark.parametrize(("quiet", "shown"), [(True, "c"), (False, "abc")])
def test_a_job_of_a_run_shows_errors_and_keeps_results_in_its_log(
    quiet, shown, tmp_path, monkeypatch, capsys
):
    for name, value in (("handlers", []), ("propagate", True), ("level", logging.DEBUG)):
        monkeypatch.setattr(cli._LOG, name, value)
    if not quiet:
        monkeypatch.delenv("HEADROOM_QUIET")
    cli._set_up_logging(tmp_path / "logs" / "job.log")
    log = logging.getLogger("headroom.somewhere")
    for level, message in ((logging.INFO, "a"), (RESULT, "b"), (logging.ERROR, "c")):
        log.log(level, message)
    assert capsys.readouterr().err == "".join(f"headroom: {each}\n" for each in shown)
    kept = (tmp_path / "logs" / "job.log").read_text(encoding="utf-8").splitlines()
    assert [line.split(" ", 2)[2] for line in kept] == ["INFO a", "RESULT b", "ERROR c"]
    for handler in cli._LOG.handlers:
        handler.close()


@pytest.mark.parametrize(("verbose", "quiet"), [(False, "1"), (True, "")])
def test_jobs_leave_the_terminal_to_the_run_unless_it_is_verbose(verbose, quiet, tmp_path):
    run = Run(tmp_path, terminal=True, verbose=verbose)
    assert os.environ["HEADROOM_QUIET"] == quiet
    run.handler.emit(logging.makeLogRecord({"msg": "Using shell: sh", "levelno": logging.INFO}))
    assert ("Using shell: sh" in run.said) == verbose


def test_every_rule_of_a_stage_is_one_of_the_workflow_and_is_told_in_words():
    text = "".join(file.read_text(encoding="utf-8") for file in RULES.glob("*.smk"))
    for rules in STAGES.values():
        assert [rule for rule in rules if f"rule {rule}:" not in text] == []
    assert stage_of("draw_sweep_math") == "Tables and figures"
    compressing = {"subject": "r-01234567", "data": "", "arm": "full-89abcdef"}
    assert doing("compress", compressing) == "compressing r, arm full"
    assert doing("draw_sweep_math", {}) == "draw sweep math"
    assert progress("step 2 of 9, loss 3\nheads removed: L01H02; 5 of 24 are left") == "step 2 of 9"
    assert progress("INFO loading the model\n") == "loading the model"
    assert progress("writing the first of 40 answers") == "writing the first"
    assert [clock(59.6), clock(3725)] == ["1:00", "1:02:05"]


@pytest.mark.parametrize(
    ("done", "total", "seconds", "waits", "said"),
    [
        (0, 9200, 0.0, False, "loading the model"),
        (0, 9200, 4.0, False, "writing the first of 9200 answers"),
        (2, 9200, 53.0, False, "2 of 9200 answers after 53 s"),
        (2, 3, 53.0, False, "2 of 3 answers after 53 s"),
        (100, 9200, 50.0, False, "100 of 9200 answers, 2.0/s, 4550 s left"),
        (30, 120, 60.0, False, "30 of 120 answers, 30.0 a minute, 180 s left"),
        (0, 71, 0.0, True, "waiting for other answers before these 71"),
    ],
)
def test_no_time_left_is_told_before_it_is_worth_something(done, total, seconds, waits, said):
    told = client.progress(done, total, seconds, waits=waits)
    assert told == said
    pace = Pace({1: Planned("generate", "batch", 100.0, [])})
    pace.start(1, 0.0)
    pace.said(1, progress(told))  # as the status line does
