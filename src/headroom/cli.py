"""The command line: one subcommand a rule, and what a user asks before the start.

Each subcommand parses its arguments, sets up logging and calls one function; nothing is computed
here, and nothing heavy is imported before it is known what to call. Exit status: 0 done, 2 bad
input (one line says what), 130 interrupted, 1 a bug (traceback in the log).
"""

import argparse
import importlib
import logging
import os
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from headroom import __version__
from headroom.bench import command as bench
from headroom.compression import command as compression
from headroom.config import Config, load
from headroom.errors import ConfigError, HeadroomError
from headroom.identity import name_of
from headroom.tool import command as tool
from headroom.variants import Variant

_DESCRIPTION = """\
What does a reasoning model gain by losing an attention head?

The workflow runs these commands, one a job; `snakemake --cores 2` runs them all. By hand:

  headroom check config/sprint.yaml    whether a config, its data and its models are sound
  headroom plan config/sprint.yaml     what a config will cost, before anything starts
  headroom compare demo mine           what changed between two runs
"""

_LOG = logging.getLogger("headroom")


@dataclass(frozen=True)
class _Rule:
    """A command that a rule of the workflow calls: `function(config, *wildcards)`.

    Only the `online` ones may reach for the network; all others find what those fetched.
    """

    name: str
    help: str
    function: str
    wildcards: tuple[str, ...] = ()
    online: bool = False


RULES: tuple[_Rule, ...] = (
    _Rule("source", "Read one split, whole.", "stages:read_source", ("source",), online=True),
    _Rule("questions", "Draw a question set.", "stages:draw_questions", ("questions",)),
    _Rule("model", "Fetch or train a model.", "stages:prepare_model", ("model",), online=True),
    _Rule("embedder", "Fetch an embedder.", "stages:prepare_embedder", ("embedder",), online=True),
    _Rule(
        "embed",
        "Embed the questions of a set.",
        "stages:embed_questions",
        ("embedder", "questions"),
    ),
    _Rule(
        "generate",
        "Answer a question set with one model variant.",
        "generation.job:run",
        ("model", "decoding", "questions", "variant", "cores"),
    ),
    _Rule(
        "activations",
        "Measure the heads of a model on its own answers.",
        "generation.activations:run",
        ("model", "decoding", "questions"),
    ),
    _Rule(
        "grade",
        "Judge all answers to a question set; gather Z.",
        "stages:grade",
        ("model", "decoding", "questions"),
    ),
    _Rule(
        "compare-prompts",
        "Compare prompts and rules.",
        "stages:compare_prompts",
        ("comparison",),
    ),
    _Rule(
        "comparison-table",
        "Write the table of a comparison.",
        "figures.job:write_comparison",
        ("comparison",),
    ),
    _Rule("train-selector", "Train a head selector.", "sprint.job:train", ("selector",)),
    _Rule("rank-heads", "Rank the heads for each question.", "sprint.job:rank", ("selector",)),
    _Rule("evaluate", "Pass@N of a selector and baselines.", "sprint.job:evaluate", ("selector",)),
    _Rule(
        "weigh-embedding",
        "Ask whether the question embedding matters.",
        "sprint.job:weigh_embedding",
        ("selector",),
    ),
    _Rule(
        "choose",
        "Say how much of Pass@N is left without an oracle.",
        "sprint.job:choose",
        ("selector",),
    ),
    _Rule(
        "problems",
        "Read a dataset and divide it.",
        "compression.datasets:read_data",
        ("data",),
        True,
    ),
    _Rule(
        "encoder",
        "Fetch a pretrained encoder.",
        "compression.job:prepare_encoder",
        ("encoder",),
        online=True,
    ),
    _Rule(
        "teacher",
        "Train a solver with all its heads.",
        "compression.job:train_teacher",
        ("solver", "data", "seed"),
    ),
    _Rule(
        "compress",
        "Compress a solver or a model, and test it.",
        "compression.job:compress_arm",
        ("subject", "data", "arm", "seed"),
    ),
    _Rule(
        "quantise",
        "Test what an arm left with weights of eight bits.",
        "compression.job:quantise",
        ("subject", "data", "arm", "seed"),
    ),
    _Rule(
        "gather-compression",
        "Bring the arms of a compression together.",
        "compression.gathering:gather",
        ("compression",),
    ),
    _Rule(
        "measure-compression",
        "Measure size, speed and memory of the arms of a compression.",
        "compression.measuring:measure",
        ("compression",),
    ),
    _Rule(
        "selector-tables",
        "Write the tables of a selector.",
        "figures.job:write_selector_tables",
        ("selector",),
    ),
    _Rule(
        "table",
        "Write the tables of a sweep.",
        "figures.job:write_tables",
        ("sweep", "published"),
    ),
    _Rule("violins", "Draw the gains of all sweeps.", "figures.draw:draw_violins"),
    _Rule("levels", "Draw the gains by MATH level.", "figures.draw:draw_levels"),
    _Rule("draw-sweep", "Draw the figures of a sweep.", "figures.draw:draw_sweep", ("sweep",)),
    _Rule(
        "draw-selector",
        "Draw the figures of a selector.",
        "figures.draw:draw_selector",
        ("selector",),
    ),
    _Rule(
        "controls",
        "Hold the gains of a sweep against chance.",
        "figures.job:write_controls",
        ("sweep",),
    ),
    _Rule(
        "compression-tables",
        "Write the tables of all compressions.",
        "figures.compression.job:write_tables",
        ("published",),
    ),
    _Rule(
        "draw-compression",
        "Draw the figures of a compression.",
        "figures.compression.job:draw",
        ("compression", "published"),
    ),
    _Rule("audit", "Audit the published tables.", "figures.job:draw_audit", ("published",)),
    _Rule("claims", "Judge the papers' claims.", "figures.job:write_claims", ("published",)),
    _Rule("report", "Write the report of a run.", "figures.job:write_report"),
)
"""The commands that the workflow's rules call, one a job."""

_HELP = {
    "source": "key of a benchmark's split",
    "questions": "key of a question set",
    "model": "key of a model",
    "decoding": "key of a decoding",
    "variant": "base, or layer and head as in L05H03",
    "embedder": "key of an embedder",
    "comparison": "name of a comparison",
    "selector": "name of a selector",
    "sweep": "name of a sweep",
    "cores": "how many CPU cores an engine may use (default: all that this process may)",
    "published": "folder of the published tables",
    "data": "key of a dataset",
    "encoder": "key of a pretrained encoder",
    "solver": "key of a solver",
    "subject": "key of a solver or model",
    "arm": "key of an arm",
    "seed": "a seed",
    "compression": "name of a compression",
}


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line and return the exit status."""
    options = vars(parser().parse_args(arguments))
    log = options.pop("log", None)
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


def parser() -> argparse.ArgumentParser:
    """Return the parser of the command line."""
    top = argparse.ArgumentParser(
        prog="headroom",
        description=_DESCRIPTION,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    top.add_argument("--version", action="version", version=f"headroom {__version__}")
    commands = top.add_subparsers(title="commands", metavar="COMMAND", required=True)
    for name, help_text, handler in (
        ("check", "Check a config, its data and its models, before anything starts.", _check),
        ("plan", "Say what a config will cost: jobs, tokens, GPU hours, disk.", _plan),
    ):
        command = commands.add_parser(name, help=help_text, description=help_text)
        command.add_argument("config", type=Path, help="for example config/sprint.yaml")
        command.set_defaults(handler=handler)
    command = commands.add_parser(
        "doctor", help="Say what a bug report needs, and what is missing."
    )
    command.add_argument("config", type=Path, nargs="?", help="what a config lacks, too")
    command.set_defaults(handler=_doctor)
    tool.add_to(commands)
    bench.add_to(commands)
    compression.add_to(commands)
    for rule in RULES:
        command = commands.add_parser(rule.name, help=rule.help, description=rule.help)
        command.add_argument(
            "--config",
            type=Path,
            default=os.environ.get("HEADROOM_CONFIG"),
            required="HEADROOM_CONFIG" not in os.environ,
            help="config file of the run (default: $HEADROOM_CONFIG)",
        )
        command.add_argument("--log", type=Path, help="write everything, tracebacks too, here")
        for wildcard in rule.wildcards:
            optional = wildcard == "cores"
            command.add_argument(f"--{wildcard}", required=not optional, help=_HELP[wildcard])
        command.set_defaults(handler=_call, rule=rule)
    help_text = "Say what changed between two runs: settings, right answers, gains, Pass@N."
    command = commands.add_parser("compare", help=help_text, description=help_text)
    command.add_argument("first", metavar="RUN_A", help="a run's folder, or its name in results/")
    command.add_argument("second", metavar="RUN_B", help="the run to compare with it, likewise")
    command.add_argument("--out", type=Path, help="write the tables there, as CSV and Markdown")
    command.set_defaults(handler=_compare)
    command = commands.add_parser("engine", help="Show or stop the engines of this folder.")
    command.add_argument("action", choices=["status", "stop"])
    command.set_defaults(handler=_engine)
    return top


def _set_up_logging(log: Path | None) -> None:
    """Send progress to the terminal, and everything, tracebacks included, to the log file."""
    _LOG.setLevel(logging.DEBUG)
    _LOG.propagate = False
    terminal = logging.StreamHandler()
    terminal.setLevel(logging.INFO)
    terminal.setFormatter(logging.Formatter("headroom: %(message)s"))
    _LOG.handlers = [terminal]
    if log is not None:
        log.parent.mkdir(parents=True, exist_ok=True)
        file = logging.FileHandler(log, mode="w", encoding="utf-8")
        file.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(message)s"))
        _LOG.addHandler(file)


def _call(config: Path, rule: _Rule, **wildcards: str | None) -> None:
    """Call a rule's function with the config names that its wildcards, keys, stand for."""
    if not rule.online:
        os.environ["HF_HUB_OFFLINE"] = "1"
        os.environ["HF_HUB_DISABLE_PROGRESS_BARS"] = "1"  # loading is quick; jobs say the rest
    os.environ.setdefault("TRANSFORMERS_VERBOSITY", "error")  # what lacks is checked after loading
    loaded = load(config)
    names = [_name(loaded, wildcard, wildcards[wildcard]) for wildcard in rule.wildcards]
    module, attribute = rule.function.split(":")
    getattr(importlib.import_module(f"headroom.{module}"), attribute)(loaded, *names)


def _name(config: Config, wildcard: str, value: Any) -> Any:
    match wildcard:
        case "model":
            return name_of(config, "models", value)
        case "questions":
            return name_of(config, "questions", value)
        case "decoding":
            return name_of(config, "decodings", value)
        case "embedder":
            return name_of(config, "embedders", value)
        case "variant":
            return Variant.parse(value)
        case "cores":
            usable = len(os.sched_getaffinity(0))
            if value is None:
                return usable
            if not value.isdecimal() or int(value) < 1:
                raise ConfigError(f"--cores {value!r} is not a number of cores; give 1 or more")
            return min(int(value), usable)
        case "published":
            return Path(value)
        case "seed":
            return int(value)
        case "comparison" | "compression" | "selector" | "sweep":
            section = getattr(config, f"{wildcard}s")
            if value not in section:
                raise ConfigError(
                    f"{wildcard} {value!r} is not in the config: {', '.join(section)}"
                )
    return value


def _check(config: Path) -> None:
    from headroom.resolve import check_devices, preflight, resolve

    resolved = resolve(load(config))
    preflight(resolved)
    check_devices(resolved)
    print(f"{config} is sound: run {resolved.run!r} can start")


def _plan(config: Path) -> None:
    from headroom import estimate, training_costs
    from headroom.resolve import resolve

    resolved = resolve(load(config))
    tables = [estimate.describe(resolved)]
    if resolved.compressions:
        tables.append(training_costs.describe(resolved))
    print("\n\n".join(tables))


def _compare(first: str, second: str, out: Path | None) -> None:
    from headroom.figures.compare import compare
    from headroom.figures.compare_text import summary, write
    from headroom.figures.runs import Pair, Run

    pair = Pair(Run.find(first), Run.find(second))
    found = compare(pair)
    print(summary(found, pair))
    if out is not None:
        for file in write(found, pair, out):
            print(f"written: {file}")


def _doctor(config: Path | None) -> None:
    from headroom.doctor import report

    print(report(config))


def _engine(action: str) -> None:
    from headroom.generation.client import status, stop

    if action == "stop":
        print(f"{stop()} engines stopped")
        return
    engines = status()
    for engine in engines:
        print("process {process}: {model}, {workers} workers, {jobs} jobs wait".format(**engine))
        for batch, (done, total) in engine["batches"].items():
            print(f"  {batch}: {done} of {total} answers")
    if not engines:
        print("no engine runs in this folder")


if __name__ == "__main__":
    sys.exit(main())
