"""The command line of the workflow's jobs, `headsweep job NAME`, made of their declarations."""

import argparse
import gc
import os
import sys
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from headsweep.errors import ConfigError
from headsweep.files.paths import BatchKeys
from headsweep.machine import libraries
from headsweep.machine.fork_server import run_in_fork
from headsweep.workflow.jobs import JOBS, Job

if TYPE_CHECKING:
    from headsweep.store.layout import Store

_ABOUT = """\
Do one job of the workflow, as its rule does. `snakemake --printshellcmds` shows
the commands of a run.

examples:
  headsweep job claims --config results/mine/config.json --published published
"""
_MANY = 20_000
"""Objects after which garbage is looked for: with Python's 700 that is a sixth of the imports of
torch and transformers, which leave none. A job's garbage may hold tensors, so it is looked for."""
_CONFIG = "config file of the run: results/<run>/config.json (default: $HEADSWEEP_CONFIG)"
_WILDCARD = "as in the paths of the rule: a key, a name, a variant, a number"
_OTHERS = {
    "cores": "CPU cores that an engine may use (default: all)",
    "published": "folder of the papers' numbers",
}
_OF_DRAW = {
    "subject": "run, sweep, selector, map, compression or frontier",
    "of": "its name in the config; empty for the run",
}


def add_to(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    """Add `job`, which has a command for each job, to a command line."""
    from headsweep.arguments import listed  # only the whole command line needs it

    command = commands.add_parser(
        "job",
        usage="headsweep job [-h] NAME ...",
        description=_ABOUT,
    )
    names = command.add_subparsers(
        metavar="NAME", prog="headsweep job", required=True, help=argparse.SUPPRESS
    )
    for job in JOBS:
        _add_options(names.add_parser(job.name, description=job.help), job)
    command.epilog = f"jobs, in the order of the workflow:\n{listed(names)}"


def parser_of(words: Sequence[str]) -> argparse.ArgumentParser | None:
    """Return the parser of one job alone, which is made fast, or None if the words name no job."""
    for job in JOBS:
        if list(words) == ["job", job.name]:
            parser = argparse.ArgumentParser(f"headsweep job {job.name}", description=job.help)
            _add_options(parser, job)
            return parser
    return None


def _add_options(command: argparse.ArgumentParser, job: Job) -> None:
    command.add_argument(
        "--config",
        type=Path,
        default=os.environ.get("HEADSWEEP_CONFIG"),
        required="HEADSWEEP_CONFIG" not in os.environ,
        help=_CONFIG,
    )
    command.add_argument("--log", type=Path, help="write everything, tracebacks too, here")
    for argument in job.options:
        others = _OTHERS | _OF_DRAW if job.name == "draw" else _OTHERS
        about = others.get(argument, _WILDCARD)
        command.add_argument(f"--{argument}", required=argument != "cores", help=about)
    command.set_defaults(handler=partial(_run, job))


def _run(job: Job, config: Path, **given: Any) -> None:
    """Call a job's function with the batch, or the config names, of the keys that are given."""
    libraries.prepare_job(online=job.online)
    gc.set_threshold(_MANY)
    if "cores" in given:
        given["cores"] = _usable_cores(given["cores"])
    if job.of_batch:
        given["batch"] = BatchKeys(*(given.pop(wildcard) for wildcard in BatchKeys._fields))
    if job.before_config and job.before_config(config, **given):
        return
    if not job.online and (status := run_in_fork(sys.argv[1:])) is not None:
        sys.exit(status)
    from headsweep.store.batches import find_batch
    from headsweep.store.layout import mark_version, read_config

    mark_version()
    store = read_config(config)
    of = find_batch(store, given.pop("batch")) if job.of_batch else store
    values = {argument: _value(store, argument, text) for argument, text in given.items()}
    job.function(of, **values)


def _usable_cores(cores: str | None) -> int:
    """Return the cores that an engine may use, at most those of this process; all by default."""
    from headsweep.machine.host import host_cores

    usable = host_cores()
    if cores is None:
        return usable
    if not cores.isdecimal() or int(cores) == 0:
        raise ConfigError(f"--cores {cores!r} is not a number of cores; give 1 or more")
    return min(int(cores), usable)


def _value(store: "Store", argument: str, text: Any) -> Any:
    """Return the value of an option: the config name of a key; a variant, a folder, a number."""
    from headsweep.variants import Variant

    match argument:
        case "variant":
            return Variant.parse(text)
        case "published":
            return Path(text)
        case "seed":
            return int(text)
        case "model" | "questions" | "embedder" | "source":
            return store.name(argument, text)
        case "comparison" | "compression" | "frontier" | "map" | "selector" | "sweep":
            entries = getattr(store.config, f"{argument}s")
            if text not in entries:
                names = ", ".join(entries)
                raise ConfigError(f"{argument} {text!r} is not in the config: {names}")
    return text
