"""The command line: one subcommand for each kind of job, and those for people.

Each subcommand parses its arguments, sets up logging and calls one function. Nothing is computed
here, and heavy modules are imported only by the command that needs them. Exit status: 0 done, 2 bad
input (explained in one line), 130 interrupted, 1 a bug (traceback in the log).
"""

import argparse
import logging
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Literal

from headroom import __version__, jobs
from headroom.errors import HeadroomError

_DESCRIPTION = """\
What does a reasoning model gain by losing an attention head?

The workflow runs one command per job; `snakemake --cores 2` runs them all. By hand:

  headroom check config/sprint.yaml    check a config, its data and its models
  headroom plan config/sprint.yaml     estimate what a config costs, before anything starts
  headroom compare demo mine           what changed between two runs
  headroom store                       what the store holds, and which runs need it
"""

_LOG = logging.getLogger("headroom")


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line and return the exit status."""
    arguments = sys.argv[1:] if arguments is None else arguments
    alone = [job for job in jobs.JOBS if [job.name] == list(arguments[:1])]
    options = vars(parser(alone).parse_args(arguments))
    log = options.pop("log", None)
    os.environ.setdefault("TQDM_DISABLE", "1")  # commands log their own progress
    _set_up_logging(log)
    try:
        options.pop("handler")(**options)
    except HeadroomError as error:
        _LOG.error("error: %s", error)
        return 2
    except KeyboardInterrupt:
        _LOG.error("interrupted; what is finished is kept")
        return 130
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    except Exception as error:
        if log is None:
            raise
        message = " ".join(str(error).split())
        _LOG.error("failed: %s: %s (traceback in %s)", type(error).__name__, message, log)
        _LOG.debug("traceback", exc_info=True)
        return 1
    return 0


def parser(alone: Sequence[jobs.Job] = ()) -> argparse.ArgumentParser:
    """Return the parser of the whole command line, or of some jobs alone, which is faster."""
    top = argparse.ArgumentParser(
        prog="headroom",
        description=_DESCRIPTION,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    top.add_argument("--version", action="version", version=f"headroom {__version__}")
    commands = top.add_subparsers(title="commands", metavar="COMMAND", required=True)
    if alone:
        jobs.add_to(commands, alone)
        return top
    from headroom.arguments import add_command
    from headroom.bench import command as bench
    from headroom.recovery import options as recovery
    from headroom.tool import command as tool

    for function in (check, plan, tool.doctor):
        add_command(commands, function.__name__, function)
    tool.add_to(commands)
    bench.add_to(commands)
    recovery.add_to(commands)
    jobs.add_to(commands, jobs.JOBS)
    for later in (compare, engine):
        add_command(commands, later.__name__, later)
    return top


def check(config: Path) -> None:
    """Check a config, its data and its models, before anything starts.

    Args:
        config: for example config/sprint.yaml
    """
    from headroom.config import load
    from headroom.planning.inputs import check_devices, preflight, resolve, unfetched

    resolved = resolve(load(config))
    preflight(resolved)
    check_devices(resolved)
    for entry in unfetched(resolved):
        print(f"missing: {entry}; run the target `fetch` where there is network")
    print(f"{config} is sound: run {resolved.run!r} can start")


def plan(config: Path) -> None:
    """Estimate what a config costs: jobs, tokens, hours per card, disk.

    Args:
        config: for example config/sprint.yaml
    """
    from headroom.config import load
    from headroom.planning.inputs import resolve
    from headroom.planning.plan import describe

    print(describe(resolve(load(config))))


def compare(first: str, second: str, *, out: Path | None = None) -> None:
    """Show what changed between two runs: settings, right answers, Pass@N.

    Args:
        first: a run's folder, or its name in results/
        second: the run to compare with it, likewise
        out: folder to write the tables to, as CSV
    """
    from headroom.tool.compare import compare, find, summary, write

    tables, left_out = compare(find(first), find(second))
    print(summary(tables, left_out))
    if out:
        write(tables, out)


def engine(action: Literal["status", "stop"]) -> None:
    """Show or stop the engines of this folder.

    Args:
        action: show them, or stop them
    """
    from headroom.generation.client import status, stop

    none = "no engine runs in this folder"
    if action == "stop":
        stopped = stop()
        print(f"{stopped} engine{'s' * (stopped > 1)} stopped" if stopped else none)
        return
    engines = status()
    for each in engines:
        print("process {process}: {model}, {workers} workers, {jobs} jobs wait".format(**each))
        for batch, (done, total) in each["batches"].items():
            print(f"  {batch}: {done} of {total} answers")
    if not engines:
        print(none)


def _set_up_logging(log: Path | None) -> None:
    """Log progress to the terminal, and everything, including tracebacks, to the log file.

    With HEADROOM_QUIET the terminal belongs to the run: the job prints only errors there.
    """
    quiet = log is not None and "HEADROOM_QUIET" in os.environ
    _LOG.setLevel(logging.DEBUG)
    _LOG.propagate = False
    terminal = logging.StreamHandler()
    terminal.setLevel(logging.ERROR if quiet else logging.INFO)
    clear = "\r\x1b[K" if quiet and sys.stderr.isatty() else ""  # of the run's status line
    terminal.setFormatter(logging.Formatter(f"{clear}headroom: %(message)s"))
    _LOG.handlers = [terminal]
    if log is not None:
        log.parent.mkdir(parents=True, exist_ok=True)
        file = logging.FileHandler(log, mode="w", encoding="utf-8")
        file.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(message)s"))
        _LOG.addHandler(file)


if __name__ == "__main__":
    sys.exit(main())
