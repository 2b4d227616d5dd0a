"""`headsweep run CONFIG`: starts Snakemake with the shipped workflow, from any folder."""

import argparse
import os
import shlex
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import NoReturn

from headsweep.errors import ConfigError
from headsweep.files import paths

_ABOUT = """\
examples:
  headsweep run config/demo.yaml
  headsweep run mine.yaml --cores 8 --dry-run --quiet
  headsweep run mine.yaml printed --directory my-run

This is Snakemake with headsweep's own workflow. What CONFIG asks for and the
folder's results/ lacks is made; the same command goes on after a stop. The
words after CONFIG are Snakemake's: options, and targets as printed or fetch.
Paths in CONFIG are read from --directory; the exit status is Snakemake's.

`headsweep doctor` names the folder of the workflow, with configs to begin with
and the profile for SLURM: give a copy that names partition and account as
--workflow-profile.
"""
_OF_PLACE = ("-c", "--cores", "-j", "--jobs", "-e", "--executor", "--profile", "--workflow-profile")
"""Snakemake's options that say where jobs run; without any of them they take this machine."""
_FIXED = ("-s", "--snakefile", "--configfile", "--configfiles")


def add_to(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    """Add `run`, whose last words are Snakemake's, to a command line."""
    from headsweep.arguments import count

    parser = commands.add_parser(
        "run",
        usage="headsweep run CONFIG [--cores N] [OPTION OF SNAKEMAKE ...]",
        description="Do all that a config asks, up to its report, from any folder.",
        epilog=_ABOUT,
    )
    parser.add_argument("config", metavar="CONFIG", type=Path, help="as config/sprint.yaml")
    parser.add_argument("--cores", type=count, metavar="N", help="CPU cores (default: all)")
    rest = parser.add_argument("options", nargs=argparse.REMAINDER, help=argparse.SUPPRESS)
    rest.required = False
    parser.set_defaults(handler=run)


def run(config: Path, cores: int | None, options: Sequence[str]) -> None:
    """Become Snakemake with a config's workflow; its exit status is the command's.

    Raises:
        ConfigError: the config is no config file, an option would run another, or is none of
            Snakemake's.
    """
    from headsweep.config import load
    from headsweep.config.files import read_values

    if cores is not None:
        options = ["--cores", str(cores), *options]
    words = command(config, options)
    if "--config" in options or "-C" in options:  # it may be no config without these
        read_values(config)
    else:
        load(config)
    if options:
        _check(options)
    _check_folder(config, options)
    sys.stdout.flush()
    os.execve(words[0], words, os.environ | {"PYTHONSAFEPATH": "1"})


def command(config: str | Path, options: Sequence[str] = ()) -> list[str]:
    """Return the command that runs a config's workflow in the working folder.

    The workflow and its profile are named, because Snakemake takes the first that lie in the
    working folder, and a stranger's can hold code; for the same reason nothing is imported from
    there. A profile among the `options` takes the place of the shipped one.

    Raises:
        ConfigError: an option would run another workflow or config.
    """
    from headsweep.machine.host import host_cores

    named = [option.partition("=")[0] for option in options]
    if fixed := [option for option in named if option in _FIXED]:
        raise ConfigError(
            f"{fixed[0]}: `headsweep run CONFIG` runs its own workflow with CONFIG alone; start "
            f"`snakemake` in a clone to choose others"
        )
    words = [sys.executable, "-P", "-m", "snakemake", "--configfile", str(config)]
    words += ["--snakefile", str(paths.SHIPPED / "Snakefile")]
    words += ["--workflow-profile", str(paths.SHIPPED / "workflow/profiles/default")]
    if not any(option in _OF_PLACE for option in named):
        words += ["--cores", str(host_cores())]
    return [*words, *options]


def _check_folder(config: Path, options: Sequence[str]) -> None:
    """Refuse the config that a run in another folder has kept, unless the folder is named.

    Raises:
        ConfigError: all answers would be made again here.
    """
    results = config.absolute().parent.parent
    is_kept = config.name == Path(paths.CONFIG).name and results.name == paths.RESULTS
    if not is_kept or results.parent.resolve() == Path.cwd():
        return
    if not any(option.startswith(("-d", "--directory")) for option in options):
        raise ConfigError(
            f"{config} is of a run in {results.parent}, where its answers are: add --directory "
            f"{shlex.quote(str(results.parent))}, or --directory . to make them again here"
        )


def _check(options: Sequence[str]) -> None:
    """Refuse in one line what Snakemake would refuse with a screen of its options."""
    from snakemake.cli import CliException, get_argument_parser  # slow to import

    parser = get_argument_parser()
    parser.error = _refuse
    try:
        parser.parse_args(options)
    except CliException as error:
        _refuse(str(error))


def _refuse(message: str) -> NoReturn:
    raise ConfigError(f"Snakemake's options: {message}; `snakemake --help` lists them")
