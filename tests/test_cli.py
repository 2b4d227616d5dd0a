import argparse
import errno
import io
import logging
import os
import re
import shlex
import subprocess
import sys
from functools import cache
from pathlib import Path
from types import SimpleNamespace
from unittest.mock import Mock

import pytest

from benchmarks.proof import __main__ as proof
from headsweep import arguments, telling
from headsweep.answers import client
from headsweep.cli import commands
from headsweep.cli import main as cli
from headsweep.cli.main import main
from headsweep.errors import ConfigError
from headsweep.workflow.jobs import JOBS
from processes import python

PEOPLES = "try check plan pilot run map sweep peek solve prune export-gguf grade compare"
PEOPLES += " luck export store engine doctor"
"""The commands that people type, in the order in which they meet them."""


def told(capsys, *words):
    with pytest.raises(SystemExit) as end:
        main(words)
    assert end.value.code == 0
    return capsys.readouterr().out


def listed(text):
    """Return the names in the list at the end, a line each."""
    return re.findall(r"^  ([\w-]+) +[A-Z].*\.$", text.rpartition(":\n")[2], re.MULTILINE)


def test_the_commands_that_people_type_stand_on_one_screen(capsys):
    """24 rows, the last of which is the shell's."""
    text = told(capsys, "--help")
    assert listed(text) == PEOPLES.split()
    assert len(text.splitlines()) < 24
    assert told(capsys) == text
    first = text.partition("commands,")[0]
    assert {*re.findall(r"`([\w-]+)", first)} <= {*PEOPLES.split()}


@cache
def parser():
    return cli.parser()


@pytest.mark.parametrize("columns", [80, 200])
@pytest.mark.parametrize("name", [*PEOPLES.split(), "job"])
def test_help_has_examples_that_are_understood_and_is_80_columns_wide(name, columns, monkeypatch):
    monkeypatch.setenv("COLUMNS", str(columns))
    (commands,) = (each.choices for each in parser()._actions if each.choices)
    text = commands[name].format_help()
    assert [line for line in text.splitlines() if len(line) > 80] == []
    examples = re.search(r"^examples:\n((?: {2}.*\n)+)", text, re.MULTILINE)[1]
    for line in examples.replace("\\\n", " ").splitlines():
        called, *words = shlex.split(line)
        assert (called, words[0]) == ("headsweep", name)
        assert parser().parse_args(words)


ASK = "sweep --model builtin:reasoner --benchmark"
MAP = "map --model builtin:reasoner --benchmark"
TRY = "try builtin:reasoner"
CUT = "prune builtin:reasoner --out new"
KEYS = "unknown key 'modles' (did you mean 'models'?); allowed here: "
NO_CONFIG = "nine.yaml cannot be read: No such file or directory; name another, or"
NO_RUN = "'nine' is not a run: neither it nor results/nine is a folder with a config.json"
NO_MODEL = "./nine is not a folder; name a model folder or a hub id"
NO_COLUMN = "has no 'question', only q, answer; .* with options as --question-column"
NO_NUMBER = 'words.csv line 2: answer is "three", not a number alone, as the grader numeric compar'
TOO_MANY = "questions.questions.n: 3 questions are requested, but .*good.csv has 2; lower n"

MISTAKES = {
    "swep": "'swep' is no COMMAND (did you mean 'sweep'?); choose try, check, plan,",
    "--verbose": "'--verbose' is no option (did you mean '--version'?)",
    "try": "the following arguments are required: MODEL, BENCHMARK; `headsweep try --help`",
    "try ./nine good.csv": NO_MODEL,
    "try good.csv builtin:reasoner": "benchmark 'builtin:reasoner' is not known; choose math500,",
    f"{TRY} nine.csv": "nine.csv is missing; put it there",
    f"{TRY} own.csv": NO_COLUMN,
    f"{TRY} good.xlsx": "files end in .csv or .jsonl, or in one of them with .gz",
    f"{TRY} words.csv --grader numeric": NO_NUMBER,
    f"{TRY} good.csv --layers 6": "--layers 6: the model has 6 layers; choose from 0 to 5",
    "check": "no config is named; give one",
    "check nine.yaml": NO_CONFIG,
    "check mine.yaml": KEYS,
    "check good.csv": "config file good.csv holds no keys; name another, or begin with one of",
    "plan folder": "config file folder cannot be read: Is a directory; name another",
    "plan a.yaml --cores 2": "plan: '--cores' is no option",
    "pilot mine.yaml --cores x": "argument --cores: 'x' is not a positive whole number; `headsw",
    "run": "run: the following arguments are required: CONFIG",
    "run nine.yaml": NO_CONFIG,
    "run -n mine.yaml": "run: '-n' is not expected there",
    "run --cores 0 mine.yaml": "argument --cores: '0' is not a positive whole number",
    "run mine.yaml": f"mine.yaml: {KEYS}",
    "run mine.yaml --config modles=0 --blurb": "unrecognized arguments: --blurb; `snakemake --help",
    "run mine.yaml --configfile o": "--configfile: `headsweep run CONFIG` runs its own workflow",
    f"{MAP} good.csv --temperature 0": "draws the same answer each time, .*; give one above 0",
    f"{MAP} good.csv --samples 1": "no question a right and a wrong answer; give 2 or more",
    "sweep": "sweep: the following arguments are required: --model, --benchmark, --layers",
    "sweep --modle m --benchmark b": "'--modle' is no option (did you mean '--model'?)",
    "sweep --model m --benchmark": "argument --benchmark: expected one argument",
    "sweep --model ./nine --benchmark good.csv --layers 1": NO_MODEL,
    f"{ASK} b --layers x": "'x' is neither numbers, as in 5,15, nor all",
    f"{ASK} good.csv --layers 99": "layers: [99]; model has 6 layers; choose from 0 to 5",
    f"{ASK} good.csv --layers 1 --n 3 --out a/b": TOO_MANY,
    f"{ASK} words.csv --layers 1 --grader numeric": NO_NUMBER,
    f"{ASK} good.csv --layers 1 --heads 9": "heads: [9]; model has 4 heads; choose from 0 to 3",
    f"{ASK} good.csv --layers 1 --examples 0": "--examples stand in a prompt of your own: give",
    f"{ASK} b --layers 1 --grader mth": (
        "--grader 'mth' is not allowed (did you mean 'math'?); choose math, numeric, choice, exact"
    ),
    "peek": "; name the folder of one, or the --out of a sweep",
    "peek nine": f"{NO_RUN}, .*; there is none in .*: name its folder",
    "peek --page": "; name the folder of one, or the --out of a sweep",
    "peek one other": "peek: 'other' is not expected there",
    "solve '' --run nine": "the question is empty; give its text",
    "solve --file nine.txt --run nine": "nine.txt cannot be read .*; give UTF-8 text",
    "solve 'Why?' --file good.csv --run nine": "a question and --file are given; give one",
    CUT: "one of the arguments --heads --ratio is required; `headsweep prune --help`",
    f"{CUT} --ratio 25": "ratio 25.0 is not between 0 and 1; a quarter of all heads is 0.25",
    f"{CUT} --heads 5,3": "variant '5' is not known; write .* layer and head as in 'L05H03'",
    f"{CUT} --ratio 0.2 --recover": "--recover trains on texts; name their file: --text FILE",
    "prune ./nine --out new --ratio 0.2": NO_MODEL,
    "export-gguf ./nine": NO_MODEL,
    "export-gguf folder": "folder/config.json is missing; fetch it again, or name a folder",
    "export-gguf m --gguf-type q3": "choose f32, f16, q8_0, q4_k_m; `headsweep export-gguf --help`",
    "grade nine.csv": "nine.csv cannot be read .*; give another file",
    "grade good.csv": "has no column 'gold', only question, answer; name it with --gold-column",
    "grade good.xlsx": "good.xlsx is of no kind that is read; give a file that ends in .csv,",
    "grade good.csv --out folder": "--out folder",
    "compare": "0 systems named; name two or more to compare",
    "compare nine ten": NO_RUN,
    "compare good.csv good.csv": "names something twice; name each once",
    "compare folder good.csv": "run lm_eval with --log_samples, or give a file",
    "luck -k 3": "the following arguments are required: -n/--n, --base; `headsweep luck --help`",
    "luck -k 3 -n x --base 1": "'x' is not a positive whole number",
    "luck -k 3 -n 9 --base 68": "--base 68 is no share; give one from 0 to 1, as in 0.68",
    "luck -k 3 -n 9 --base 0.6 --best 74": "--best 74 is no share; give one from 0 to 1",
    "luck -k 3 -n 9 --base 0.6 --changed 1": "--changed 1 is not from 0 to .*; give a share",
    "export folder new": "'folder' is not a run: .*: name its folder",
    "store": "no results/store is in .*; change to the folder where a run was started",
    "store --prune --empty-trash": "--prune and --empty-trash are given; give one of them",
    "engine start": "'start' is no action (did you mean 'status'?); choose status, stop",
    "doctor -v": "'-v' is not expected there; `headsweep doctor --help` shows how",
}
"""Command lines, and what of the line that answers them; ``.*`` stands for any words."""


@pytest.mark.parametrize("words", MISTAKES)
def test_a_mistake_is_answered_in_a_line(words, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mine.yaml").write_text("run: mine\nmodles: {}\n")
    (tmp_path / "good.csv").write_text("question,answer\nWhat is 1 + 2?,3\nWhat is 2 + 2?,4\n")
    (tmp_path / "own.csv").write_text("q,answer\nWhat is 1 + 2?,3\n")
    (tmp_path / "words.csv").write_text("question,answer\nWhat is 1 + 2?,three\n")
    (tmp_path / "good.xlsx").touch()
    (tmp_path / "folder").mkdir()
    before = {*tmp_path.rglob("*")}
    assert main(shlex.split(words)) == 2
    out, err = capsys.readouterr()
    (line,) = err.splitlines()
    assert line.startswith("headsweep: error: ")
    parts = map(re.escape, MISTAKES[words].split(".*"))
    assert re.search(".*".join(parts), line)
    assert out == ""
    assert {*tmp_path.rglob("*")} == before


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EDQUOT, errno.EIO])
def test_a_full_disk_is_told_in_a_line(number, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    full = OSError(number, os.strerror(number), "a.parquet")
    monkeypatch.setattr(client, "status", Mock(side_effect=full))
    status = main(["engine", "status"])
    *before, line = capsys.readouterr().err.splitlines()
    if number == errno.EIO:  # a bug, as far as one knows
        assert status == 1 and before and line.endswith("(traceback above)")
    else:
        assert status == 2 and not before
        assert line.startswith(f"headsweep: error: {full}; make room (`headsweep store`")


def test_a_log_that_a_full_disk_does_not_take_is_no_error_of_its_own(tmp_path, capsys):
    log = cli._LogFile(tmp_path / "a.log")
    full = Path("/dev/full").open("wb", buffering=0)  # noqa: SIM115
    log.setStream(io.TextIOWrapper(full, write_through=True)).close()
    log.handle(logging.makeLogRecord({"msg": "a word"}))
    log.stream.detach()
    full.close()
    assert capsys.readouterr().err == ""


def test_another_system_than_linux_is_refused_in_a_line(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(os, "uname", lambda: SimpleNamespace(sysname="Darwin"))
    assert main(["engine", "status"]) == 2
    assert "headsweep runs on Linux, not on Darwin; use" in capsys.readouterr().err


def test_a_command_that_takes_long_says_so(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(telling, "_PAUSE", 0.001)
    (tmp_path / "a.csv").write_text("answer,gold\n3,3\n")
    assert main(["grade", "a.csv", "--final"]) == 0
    assert re.search(r"^headsweep: grade: \d+ s so far$", capsys.readouterr().err, re.MULTILINE)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("compare one other --common", "--common would be ignored: two runs are compared as"),
        (
            "compare one other --grader gsm8k --final --metric a --metric-filter b",
            "--grader and --final and --metric and --metric-filter would be ignored",
        ),
        ("store --yes", "--yes would be ignored: only --prune and --empty-trash ask"),
        ("store --empty-trash a.yaml", "a.yaml would be ignored: --empty-trash removes all"),
    ],
)
def test_what_would_be_ignored_is_refused(words, said, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert main(words.split()) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert said in line
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("into", "status", "said"),
    [
        ("| true", 141, ""),
        (">&-", 0, ""),
        (
            "> /dev/full",
            2,
            "headsweep: error: standard output cannot be written (No space left on device); send "
            "it elsewhere\n",
        ),
    ],
)
@pytest.mark.parametrize("unbuffered", ["", "1"])
def test_output_that_nobody_takes_ends_a_command_in_a_line_at_most(into, status, said, unbuffered):
    code = "import select, sys; gone = select.poll(); gone.register(1, 0); gone.poll({}); "
    code += "from headsweep.cli.main import main; sys.exit(main(['engine', 'status']))"
    most = 60_000 if "|" in into else 0  # milliseconds to wait until nobody reads
    word = f'"{sys.executable}" -c "{code.format(most)}"'
    ended = subprocess.run(
        ["bash", "-c", f"{word} {into}; exit ${{PIPESTATUS[0]}}"],
        capture_output=True,
        text=True,
        env=os.environ | {"PYTHONUNBUFFERED": unbuffered},
    )
    assert (ended.returncode, ended.stderr) == (status, said)


@pytest.mark.parametrize(
    ("text", "questions"),
    [
        ("\ufeffHow many?\n\nAnd now?\n", ["How many?", "And now?"]),
        ("one\u2028line\r\nanother\x0cone\r\n", ["one\u2028line", "another\x0cone"]),
    ],
)
def test_a_file_has_one_question_a_line_whatever_stands_in_it(text, questions, tmp_path):
    file = tmp_path / "q.txt"
    file.write_bytes(text.encode())
    assert commands._questions(None, file) == questions


def test_an_empty_question_is_refused_and_stdin_not_read():
    with pytest.raises(ConfigError, match=r"the question is empty; give its text"):
        commands._questions("", None)


def test_questions_that_cannot_be_read_are_named(monkeypatch):
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b"\xff"), encoding="utf-8"))
    with pytest.raises(ConfigError, match=r"^standard input cannot be read"):
        commands._questions(None, None)


@pytest.mark.parametrize("text", ["-1", "1.5", "x", "9" * 5000, "\u00b2"])
def test_counts_and_seeds_are_whole_numbers_and_seeds_may_be_0(text):
    assert (arguments.count("7"), arguments.seed("7"), arguments.seed("0")) == (7, 7, 0)
    for read in (arguments.count, arguments.seed):
        with pytest.raises(argparse.ArgumentTypeError, match=r"is not a .*whole number") as error:
            read(text)
        assert len(str(error.value)) < 250
    with pytest.raises(argparse.ArgumentTypeError, match="'0' is not a positive whole number"):
        arguments.count("0")


def test_commands_take_the_seeds_that_configs_take(monkeypatch, capsys):
    with pytest.raises(SystemExit):
        proof.main(["--seed", "-1"])
    assert "argument --seed: '-1' is not a whole number from 0" in capsys.readouterr().err
    monkeypatch.setenv("TQDM_DISABLE", "1")  # as `proof.main` does
    seeds = []
    monkeypatch.setattr(proof, "prove", lambda _folder, seed, _cores: seeds.append(seed) or [])
    assert proof.main(["--seed", "0"]) == 0
    assert seeds == [0]


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("check a.yaml", "interrupted"),
        ("sweep --model m --benchmark b --layers 1", "interrupted; what is finished is kept"),
    ],
)
def test_an_interruption_promises_only_what_is_kept(words, said, monkeypatch, capsys):
    def stopped(*_, **__):
        raise KeyboardInterrupt

    monkeypatch.setattr("headsweep.config.load", stopped)
    monkeypatch.setattr(commands, "_end_orderly", stopped)
    assert main(words.split()) == 130
    assert capsys.readouterr().err == f"headsweep: {said}\n"


def test_the_jobs_stand_under_a_command_of_their_own(capsys):
    assert listed(told(capsys, "job", "--help")) == [job.name for job in JOBS]
    alone = told(capsys, "job", "generate", "--help")
    assert alone.startswith("usage: headsweep job generate [-h]")
    assert main(["generate", "--help"]) == 2
    said = capsys.readouterr().err
    assert "'generate' is no COMMAND" in said
    choices = re.search(r"choose (.*);", said)[1]
    assert choices.split(", ") == [*PEOPLES.split(), "job"]


@pytest.mark.parametrize(("encoding", "shown"), [("utf-8", "\u2212"), ("latin-1", r"\u2212")])
def test_a_terminal_that_lacks_a_character_gets_its_code_point(tmp_path, encoding, shown):
    """Differences of two runs may have a minus sign, which Latin-1 lacks."""
    code = """
import sys
from headsweep.cli import main as cli
from headsweep.cli import compare; from headsweep.results import run
run.find, compare.compare = str, lambda *_: ({}, [])
compare.summary = lambda *_: "\\u2212 1.0 points"
sys.exit(cli.main(["compare", "one", "other"]))
"""
    said = python("-c", code, cwd=tmp_path, PYTHONIOENCODING=encoding)
    assert said.splitlines() == ["first: one; second: other", f"{shown} 1.0 points"]


@pytest.mark.parametrize("words", [["engine", "status"], ["check", "config.yaml"], ["store"]])
def test_a_working_folder_that_is_gone_is_said_in_a_line(words, tmp_path, monkeypatch, capsys):
    (tmp_path / "gone").mkdir()
    monkeypatch.chdir(tmp_path / "gone")
    (tmp_path / "gone").rmdir()
    assert cli.main(words) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert line.endswith("error: the working folder is gone; change to one that is there")


def test_an_interrupt_before_the_command_begins_is_a_line(monkeypatch, capsys):
    def interrupted():
        raise KeyboardInterrupt

    monkeypatch.setattr(cli, "parser", interrupted)
    assert cli.main(["doctor"]) == 130
    assert capsys.readouterr().err == "headsweep: interrupted\n"
