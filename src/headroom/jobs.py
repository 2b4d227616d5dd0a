"""The commands that the workflow's jobs run: a table, how a rule writes one, how one is called."""

import argparse
import gc
import os
from collections.abc import Callable, Iterable
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from headroom.errors import ConfigError

if TYPE_CHECKING:
    from headroom.planning.store import Store


class Job(NamedTuple):
    """A command of the workflow: `function(config, *wildcards)`."""

    name: str
    help: str
    function: str
    wildcards: tuple[str, ...]
    online: bool
    """Whether it may reach for the network; all others find what those fetched."""
    shortcut: str | None
    """What may do it before the config is checked: `shortcut(config_file, *wildcards)`, these as
    they are given; tells whether it has."""


_BY_MODULE = {
    "generation.prepare": {
        "source": ("read_source", "source", "Read one split, whole."),
        "questions": ("draw_questions", "questions", "Draw a question set."),
        "model": ("prepare_model", "model", "Fetch or train a model."),
        "embedder": ("prepare_embedder", "embedder", "Fetch an embedder."),
        "embed": ("embed_questions", "embedder questions", "Embed the questions of a set."),
    },
    "generation.job": {
        "generate": (
            "run",
            "model decoding questions variant cores",
            "Answer a question set with one model variant.",
        ),
    },
    "generation.activations": {
        "activations": (
            "run",
            "model decoding questions",
            "Measure the heads of a model on its own answers.",
        ),
    },
    "grading.tables": {
        "grade": (
            "grade",
            "model decoding questions",
            "Judge all answers to a question set; gather Z.",
        ),
        "regrade": (
            "grade",
            "model decoding questions grading",
            "Judge all answers to a question set by rules that are not the run's; gather Z.",
        ),
        "compare-prompts": ("compare_prompts", "comparison", "Compare prompts and rules."),
    },
    "sprint.job": {
        "train-selector": ("train", "selector", "Train a head selector."),
        "rank-heads": ("rank", "selector", "Rank the heads for each question."),
        "evaluate": ("evaluate", "selector", "Pass@N of a selector and baselines."),
        "weigh-embedding": (
            "weigh_embedding",
            "selector",
            "Ask whether the question embedding matters.",
        ),
        "choose": ("choose", "selector", "Say how much of Pass@N is left without an oracle."),
    },
    "athena.storage": {
        "problems": ("read_data", "data", "Read a dataset and divide it."),
    },
    "compression.arm_jobs": {
        "encoder": ("prepare_encoder", "encoder", "Fetch a pretrained encoder."),
        "teacher": ("train_teacher", "solver data seed", "Train a solver with all its heads."),
        "compress": (
            "compress_arm",
            "subject data arm seed",
            "Compress a solver or a model, and test it.",
        ),
        "quantise": (
            "quantise",
            "subject data arm seed",
            "Test what an arm left with weights of eight bits.",
        ),
    },
    "compression.arm_tables": {
        "gather-compression": (
            "gather",
            "compression",
            "Bring the arms of a compression together.",
        ),
    },
    "compression.arm_measurements": {
        "measure-compression": (
            "measure",
            "compression",
            "Measure size, speed and memory of the arms of a compression.",
        ),
    },
    "analysis.jobs": {
        "comparison-table": ("write_comparison", "comparison", "Write the table of a comparison."),
        "selector-tables": ("write_selector_tables", "selector", "Write the tables of a selector."),
        "table": ("write_tables", "sweep published", "Write the tables of a sweep."),
        "controls": ("write_controls", "sweep", "Hold the gains of a sweep against chance."),
        "compression-tables": (
            "write_compression_tables",
            "published",
            "Write the tables of all compressions.",
        ),
        "claims": ("write_claims", "published", "Judge the papers' claims."),
    },
    "figures.draw": {
        "violins": ("draw_violins", "", "Draw the gains of all sweeps."),
        "levels": ("draw_levels", "", "Draw the gains by MATH level."),
        "draw-sweep": ("draw_sweep", "sweep", "Draw the figures of a sweep."),
        "draw-selector": ("draw_selector", "selector", "Draw the figures of a selector."),
        "draw-compression": (
            "draw_compression",
            "compression published",
            "Draw the figures of a compression.",
        ),
        "audit": ("draw_audit", "published", "Audit the published tables."),
    },
    "report.page": {
        "report": ("write_report", "", "Write the report of a run."),
    },
}
"""By module: each command's function there, what it takes, and its help."""

_ONLINE = {"source", "model", "embedder", "problems", "encoder"}

JOBS = tuple(
    Job(
        name,
        help_text,
        f"{module}:{function}",
        tuple(takes.split()),
        online=name in _ONLINE,
        shortcut="generation.client:collect" if name == "generate" else None,
    )
    for module, jobs in _BY_MODULE.items()
    for name, (function, takes, help_text) in jobs.items()
)
"""All commands of the workflow; the name is the command's."""

_HELP = {
    "source": "key of a benchmark's split",
    "questions": "key of a question set",
    "model": "key of a model",
    "decoding": "key of a decoding",
    "variant": "base, or layer and head as in L05H03",
    "embedder": "key of an embedder",
    "grading": "grading rules: default or authors",
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


_NO_WILDCARDS = {"cores": "{resources.engine_cores}", "published": "{params.folder:q}"}
"""What commands take that is not in the names of their rules' files."""


def command(name: str) -> str:
    """Return the shell command with which a rule of the workflow runs a job.

    Finished jobs whose command has changed look outdated to Snakemake: not even a space may differ.
    """
    (job,) = (job for job in JOBS if job.name == name)
    own = [f"--{each} {{wildcards.{each}}}" for each in job.wildcards if each not in _NO_WILDCARDS]
    more = [f"--{each} {_NO_WILDCARDS[each]}" for each in job.wildcards if each in _NO_WILDCARDS]
    return " ".join(["headroom", name, "--log {log}", " ".join(own), *more])


def add_to(
    commands: "argparse._SubParsersAction[argparse.ArgumentParser]", jobs: Iterable[Job]
) -> None:
    """Add jobs' commands to a command line."""
    for job in jobs:
        command = commands.add_parser(job.name, help=job.help, description=job.help)
        command.add_argument(
            "--config",
            type=Path,
            default=os.environ.get("HEADROOM_CONFIG"),
            required="HEADROOM_CONFIG" not in os.environ,
            help="config file of the run (default: $HEADROOM_CONFIG)",
        )
        command.add_argument("--log", type=Path, help="write everything, tracebacks too, here")
        for wildcard in job.wildcards:
            optional = wildcard == "cores"
            command.add_argument(f"--{wildcard}", required=not optional, help=_HELP[wildcard])
        command.set_defaults(handler=_call, job=job)


def _call(config: Path, job: Job, **wildcards: Any) -> None:
    """Call a job's function with the config names that the keys in its wildcards stand for."""
    if not job.online:
        os.environ["HF_HUB_OFFLINE"] = "1"
        os.environ["HF_HUB_DISABLE_PROGRESS_BARS"] = "1"  # loading is quick; jobs say the rest
    os.environ.setdefault(
        "TRANSFORMERS_VERBOSITY", "error"
    )  # what is missing is checked after loading
    if "cores" in wildcards:
        wildcards["cores"] = _usable(wildcards["cores"])
    given = [wildcards[wildcard] for wildcard in job.wildcards]
    if job.shortcut and _function(job.shortcut)(config, *given):
        return
    from headroom.config import load
    from headroom.planning.store import Store

    store = Store(load(config))
    names = [_named(store, *pair) for pair in zip(job.wildcards, given, strict=True)]
    _function(job.function)(store.config, *names)


def _function(path: str) -> Callable[..., Any]:
    module, attribute = path.split(":")
    # What importing makes stays: to look for garbage in it takes a fifth of the time of torch and
    # transformers. While jobs compute, garbage may hold tensors.
    gc.disable()
    function: Callable[..., Any] = getattr(import_module(f"headroom.{module}"), attribute)
    gc.enable()
    return function


def _usable(cores: str | None) -> int:
    """Return how many cores are meant, of those that this process may use."""
    usable = len(os.sched_getaffinity(0))
    if cores is None:
        return usable
    if not cores.isdecimal() or int(cores) < 1:
        raise ConfigError(f"--cores {cores!r} is not a number of cores; give 1 or more")
    return min(int(cores), usable)


def _named(store: "Store", wildcard: str, value: Any) -> Any:
    """Return what a wildcard's text stands for: a config name, a number, a variant, a folder."""
    match wildcard:
        case "model" | "questions" | "decoding" | "embedder" | "source":
            return store.name(wildcard, value)
        case "variant":
            from headroom.variants import Variant

            return Variant.parse(value)
        case "published":
            return Path(value)
        case "seed":
            return int(value)
        case "comparison" | "compression" | "selector" | "sweep":
            section = getattr(store.config, f"{wildcard}s")
            if value not in section:
                raise ConfigError(
                    f"{wildcard} {value!r} is not in the config: {', '.join(section)}"
                )
    return value
