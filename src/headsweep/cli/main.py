"""The command line: the commands that people type, and `job` with the workflow's commands.

Each command parses its arguments, sets up logging and calls one function. Nothing is computed here,
and heavy modules are imported only by the command that needs them. Exit status: 0 done, 2 bad input
(explained in one line), 130 interrupted, 141 nobody reads what is printed, 1 a bug (traceback in
the log).
"""

import argparse
import errno
import io
import logging
import os
import sys
from collections.abc import Sequence
from contextlib import nullcontext, redirect_stdout
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from headsweep import __version__
from headsweep.choices import GraderName, described_graders
from headsweep.cli import job as job_command
from headsweep.errors import ConfigError, HeadsweepError
from headsweep.files.plain_files import open_to_write
from headsweep.machine import libraries
from headsweep.telling import told
from headsweep.text import Visible, counted, one_line, visible
from headsweep.workflow import start

if TYPE_CHECKING:
    from headsweep.config import Config

_DESCRIPTION = """\
What does a reasoning model gain by losing an attention head?
Begin with `try MODEL FILE`, ten questions; then `sweep`, or `run` a config.
"""

_KEEPING = ("job", "map", "sweep", "try", "prune")
"""Commands that go on, if given again, where they were interrupted."""

_SILENT = ("check", "plan", "export-gguf", "grade", "compare", "luck", "export", "doctor")
"""Commands that say nothing of their own while they work."""

_MAKE_ROOM = (
    "make room (`headsweep store` says what takes it), and give the same command again; what is "
    "finished is kept"
)

_LOG = logging.getLogger("headsweep")


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line and return the exit status."""
    try:
        return _run(arguments)
    except KeyboardInterrupt:  # before the command began
        print("headsweep: interrupted", file=sys.stderr)
        return 130


def _run(arguments: Sequence[str] | None) -> int:
    if isinstance(sys.stdout, io.TextIOWrapper):  # "−" on a terminal of another encoding
        sys.stdout.reconfigure(errors="backslashreplace")
    words = list(sys.argv[1:] if arguments is None else arguments) or ["--help"]
    libraries.prepare_command()
    if sys.stdout is None:  # the caller has closed it
        sys.stdout = Path(os.devnull).open("w", encoding="utf-8")  # noqa: SIM115
    shown: Any = Visible(sys.stdout)
    log: Path | None = None
    try:
        _set_up_logging(None)
        options = _parsed(words)
        handler = options.pop("handler")
        if log := options.pop("log", None):
            _set_up_logging(log)
        if (system := os.uname().sysname) != "Linux":
            raise ConfigError(
                f"headsweep runs on Linux, not on {system}; use a Linux machine, a container or WSL"
            )
        if not _working_folder_is_there():
            raise ConfigError("the working folder is gone; change to one that is there")
        with redirect_stdout(shown):
            with told(words[0]) if words[0] in _SILENT else nullcontext():
                handler(**options)
            shown.flush()
    except HeadsweepError as error:
        _LOG.error("error: %s", error)
        return 2
    except KeyboardInterrupt:
        kept = "; what is finished is kept" if words[0] in _KEEPING else ""
        _LOG.error("interrupted%s", kept)
        return 130
    except BrokenPipeError:
        return 141  # as a program that SIGPIPE ends
    except Exception as error:
        message = " ".join(str(error).split())
        if isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT):
            _LOG.error("error: %s; %s", message, _MAKE_ROOM)
            return 2
        place = f"in {log}" if log else "above"
        _LOG.log(logging.DEBUG if log else logging.ERROR, "traceback", exc_info=True)
        _LOG.error("failed: %s: %s (traceback %s)", type(error).__name__, message, place)
        return 1
    finally:
        _drop_unwritten()
    return 0


def _parsed(words: Sequence[str]) -> dict[str, Any]:
    """Return what a command line asks: the command's function as `handler`, and its arguments."""
    if job := job_command.parser_of(words[:2]):
        return vars(job.parse_args(words[2:]))
    return vars(parser().parse_args(words))


def parser() -> argparse.ArgumentParser:
    """Return the parser of the whole command line."""
    from headsweep.arguments import Parser, add_command, listed
    from headsweep.cli import commands as tool
    from headsweep.cli import examples
    from headsweep.experiments.recovery import options as recovery

    # A usage and a section of options would push commands off the screen.
    hidden = argparse.SUPPRESS
    top: argparse.ArgumentParser = Parser(
        prog="headsweep", usage=hidden, description=_DESCRIPTION, add_help=False
    )
    top.add_argument("-h", "--help", action="help", help=hidden)
    version = f"headsweep {__version__}"
    top.add_argument("--version", action="version", version=version, help=hidden)
    commands = top.add_subparsers(metavar="COMMAND", prog="headsweep", required=True, help=hidden)
    # In the order in which one meets them.
    tool.add_try(commands)
    add_command(commands, "check", check)
    add_command(commands, "plan", plan)
    add_command(commands, "pilot", tool.pilot)
    start.add_to(commands)
    tool.add_map(commands)
    tool.add_sweep(commands)
    add_command(commands, "peek", tool.peek)
    add_command(commands, "solve", tool.solve)
    recovery.add_to(commands)
    add_command(commands, "export-gguf", tool.export_gguf)
    add_command(commands, "grade", tool.grade, values={"graders": described_graders()})
    add_command(commands, "compare", compare)
    add_command(commands, "luck", tool.luck)
    add_command(commands, "export", tool.export)
    add_command(commands, "store", tool.store, epilog=examples.STORE)
    add_command(commands, "engine", engine)
    add_command(commands, "doctor", tool.doctor)
    top.epilog = f"commands, each with a --help of its own and examples:\n{listed(commands)}"
    job_command.add_to(commands)
    return top


def check(configs: list[Path]) -> None:
    """Check a config, its data and its models before a run.

    Examples:
        headsweep check config/sprint.yaml

    Args:
        configs: for example config/sprint.yaml; several are merged, as by --configfile
    """
    from headsweep.experiments.athena.problems import check_generated
    from headsweep.models.source import BUILTIN
    from headsweep.store.layout import Store
    from headsweep.store.revisions import at, local_file, resolve
    from headsweep.workflow.preflight import check_disk, lacking, preflight, unfetched

    resolved = resolve(_loaded(configs))
    store = Store(resolved)
    preflight(store)
    check_generated(store)
    check_disk(resolved)
    for name, model in resolved.models.items():
        folder = local_file(model)
        if folder is not None and folder.is_dir() and model.source not in BUILTIN:
            from headsweep.benchmarks.prompts import check_reading  # slow to import

            with at(f"models.{name}"):
                check_reading(folder, resolved.decodings.values())
    missing = list(lacking(store))
    for entry in unfetched(store):
        print(f"missing: {entry}; run the target `fetch` where there is network")
    for error in missing:
        print(f"this machine: {error}")
    elsewhere = ", on a machine that has what this one lacks" if missing else ""
    verb = "is" if len(configs) == 1 else "are"
    names = ", ".join(map(str, configs))
    print(f"{names} {verb} sound: run {resolved.run!r} can start{elsewhere}")


def plan(configs: list[Path]) -> None:
    """Estimate what a config costs: jobs, tokens, disk, hours.

    Examples:
        headsweep plan config/sprint.yaml
        headsweep plan config/sprint.yaml config/compression.yaml

    Args:
        configs: for example config/sprint.yaml; several are merged, as by --configfile
    """
    from headsweep.store.layout import Store
    from headsweep.store.revisions import resolve
    from headsweep.workflow.plan import describe

    print(describe(Store(resolve(_loaded(configs)))))


def _loaded(configs: list[Path]) -> "Config":
    """Return the config of some files, as Snakemake merges them."""
    from headsweep.config import load

    if not configs:
        raise ConfigError("no config is named; give one, as config/demo.yaml")
    return load(*configs)


def compare(
    systems: list[str],
    *,
    common: bool = False,
    grader: GraderName = "math",
    final: bool = False,
    metric: str | None = None,
    metric_filter: str | None = None,
    out: Path | None = None,
) -> None:
    """Compare two runs, or anyone's answers: differences, tests, luck.

    Examples:
        headsweep compare demo my-sweep
        headsweep compare base.csv pruned.csv --grader numeric --out compared
        headsweep compare lm-eval/base lm-eval/pruned --metric exact_match

    Args:
        systems: two or more, the first of which is the baseline: runs of headsweep, or their names
            in results/; folders of lm_eval --log_samples; CSV, JSON Lines (.jsonl) or Parquet with
            question_id and correct, or answer and gold; a column sample tells several answers to a
            question apart, a column tokens says what each took. Of two runs alone, settings and
            every head are compared
        common: compare on the questions that all have, where not all have the same
        grader: how answers are found and compared where correct is not there
        final: the answers are final ones: they need no box
        metric: which of lm_eval's metrics says what is right, where there are several; resps: none,
            all answers of a generate_until task are graded here, also those of its repeats
        metric_filter: which of lm_eval's filters, likewise
        out: folder to write the tables to, as CSV
    """
    from headsweep.arguments import refuse_ignored
    from headsweep.cli import compare as runs
    from headsweep.results.run import find, is_foreign

    if len(systems) == 2 and not any(map(is_foreign, systems)):
        of_answers = {"--common": common, "--grader": grader != "math", "--final": final}
        of_answers |= {"--metric": metric is not None}
        of_answers |= {"--metric-filter": metric_filter is not None}
        refuse_ignored(of_answers, "two runs are compared as they were graded")
        first, second = map(find, systems)
        tables, left_out = runs.compare(first, second)
        print(f"first: {first}; second: {second}")
        print(runs.summary(tables, left_out))
        if out:
            runs.write(tables, out)
        return
    from headsweep.cli.compare_answers import ReadingRules
    from headsweep.cli.compare_output import show

    show(systems, ReadingRules(grader, final, metric, metric_filter), common, out)


def engine(action: Literal["status", "stop"]) -> None:
    """Show or stop the engines of this folder.

    Examples:
        headsweep engine status
        headsweep engine stop

    Args:
        action: show them, or stop them
    """
    from headsweep.answers.client import status, stop

    none = "no engine runs in this folder; that of a sweep runs in its --out"
    if action == "stop":
        match stop():
            case 0:
                print(none)
            case 1:
                print("1 engine stopped")
            case stopped:
                print(f"{stopped} engines stopped")
        return
    engines = status()
    for state in engines:
        if "model" not in state:
            print(f"process {state['process']} does not answer: it loads a model, or is stopped")
            continue
        workers, jobs = counted(state["workers"], "worker"), counted(state["jobs"], "job")
        print(f"process {state['process']}: {state['model']}, {workers}, {jobs} waiting")
        for batch, (done, total) in state["batches"].items():
            print(f"  {batch}: {done} of {total} answers")
    if not engines:
        print(none)


def _working_folder_is_there() -> bool:
    try:
        Path.cwd()
    except FileNotFoundError:
        return False
    return True


def _drop_unwritten() -> None:
    """Drop what standard output does not take: Python would complain of it when it ends."""
    try:
        sys.stdout.flush()
    except OSError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


class _Formatter(logging.Formatter):
    """Puts a message on one line, so that it looks like no other, and makes all of it visible."""

    def formatMessage(self, record: logging.LogRecord) -> str:  # noqa: N802
        record.message = one_line(record.message)
        return super().formatMessage(record)

    def formatException(self, ei: Any) -> str:  # noqa: N802
        return visible(super().formatException(ei))


class _Terminal(logging.StreamHandler[Any]):
    """Standard error. What only says that time passes is written over there by the next line."""

    def emit(self, record: logging.LogRecord) -> None:
        is_terminal = not self.stream.closed and self.stream.isatty()
        if hasattr(record, "is_for_terminals") and not is_terminal:
            return
        if is_terminal:
            self.stream.write("\r\x1b[K")
        if record.msg:
            self.terminator = "" if is_terminal and hasattr(record, "is_passing") else "\n"
            super().emit(record)
        else:
            self.flush()


class _LogFile(logging.FileHandler):
    """A new file below results/, which is opened as all of them are."""

    def __init__(self, path: Path) -> None:
        super().__init__(path, mode="w", encoding="utf-8")

    def _open(self) -> io.TextIOWrapper:
        opened = open_to_write(Path(self.baseFilename), os.O_WRONLY | os.O_TRUNC)
        return os.fdopen(opened, "w", encoding="utf-8")

    def handleError(self, record: logging.LogRecord) -> None:  # noqa: N802
        """Say nothing of a log that cannot be written, as on a full disk: the job's error does."""


def _set_up_logging(log: Path | None) -> None:
    """Log progress to the terminal, and everything, including tracebacks, to the log file.

    With HEADSWEEP_QUIET the terminal belongs to the run: the job prints only errors there.
    """
    quiet = log is not None and "HEADSWEEP_QUIET" in os.environ
    _LOG.setLevel(logging.DEBUG)
    _LOG.propagate = False
    terminal = _Terminal()
    terminal.setLevel(logging.ERROR if quiet else logging.INFO)
    terminal.setFormatter(_Formatter("headsweep: %(message)s"))
    _LOG.handlers = [terminal]
    if log is not None:
        file = _LogFile(log)
        file.setFormatter(_Formatter("%(asctime)s %(levelname)s %(message)s"))
        file.addFilter(lambda record: not hasattr(record, "is_for_terminals"))
        _LOG.addHandler(file)
