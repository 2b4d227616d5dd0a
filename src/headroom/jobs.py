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
    wildcards: tuple[str, ...] = ()
    online: bool = False
    """Whether it may reach for the network; all others find what those fetched."""
    shortcut: str | None = None
    """What may do it before the config is checked: `shortcut(config_file, *wildcards)`, these as
    they are given; tells whether it has."""


JOBS: tuple[Job, ...] = (
    Job(
        "source",
        "Read one split, whole.",
        "generation.prepare:read_source",
        ("source",),
        online=True,
    ),
    Job("questions", "Draw a question set.", "generation.prepare:draw_questions", ("questions",)),
    Job(
        "model",
        "Fetch or train a model.",
        "generation.prepare:prepare_model",
        ("model",),
        online=True,
    ),
    Job(
        "embedder",
        "Fetch an embedder.",
        "generation.prepare:prepare_embedder",
        ("embedder",),
        online=True,
    ),
    Job(
        "embed",
        "Embed the questions of a set.",
        "generation.prepare:embed_questions",
        ("embedder", "questions"),
    ),
    Job(
        "generate",
        "Answer a question set with one model variant.",
        "generation.job:run",
        ("model", "decoding", "questions", "variant", "cores"),
        shortcut="generation.client:collect",
    ),
    Job(
        "activations",
        "Measure the heads of a model on its own answers.",
        "generation.activations:run",
        ("model", "decoding", "questions"),
    ),
    Job(
        "grade",
        "Judge all answers to a question set; gather Z.",
        "grading.tables:grade",
        ("model", "decoding", "questions"),
    ),
    Job(
        "compare-prompts",
        "Compare prompts and rules.",
        "grading.tables:compare_prompts",
        ("comparison",),
    ),
    Job(
        "comparison-table",
        "Write the table of a comparison.",
        "analysis.jobs:write_comparison",
        ("comparison",),
    ),
    Job("train-selector", "Train a head selector.", "sprint.job:train", ("selector",)),
    Job("rank-heads", "Rank the heads for each question.", "sprint.job:rank", ("selector",)),
    Job("evaluate", "Pass@N of a selector and baselines.", "sprint.job:evaluate", ("selector",)),
    Job(
        "weigh-embedding",
        "Ask whether the question embedding matters.",
        "sprint.job:weigh_embedding",
        ("selector",),
    ),
    Job(
        "choose",
        "Say how much of Pass@N is left without an oracle.",
        "sprint.job:choose",
        ("selector",),
    ),
    Job(
        "problems",
        "Read a dataset and divide it.",
        "athena.storage:read_data",
        ("data",),
        online=True,
    ),
    Job(
        "encoder",
        "Fetch a pretrained encoder.",
        "compression.arm_jobs:prepare_encoder",
        ("encoder",),
        online=True,
    ),
    Job(
        "teacher",
        "Train a solver with all its heads.",
        "compression.arm_jobs:train_teacher",
        ("solver", "data", "seed"),
    ),
    Job(
        "compress",
        "Compress a solver or a model, and test it.",
        "compression.arm_jobs:compress_arm",
        ("subject", "data", "arm", "seed"),
    ),
    Job(
        "quantise",
        "Test what an arm left with weights of eight bits.",
        "compression.arm_jobs:quantise",
        ("subject", "data", "arm", "seed"),
    ),
    Job(
        "gather-compression",
        "Bring the arms of a compression together.",
        "compression.arm_tables:gather",
        ("compression",),
    ),
    Job(
        "measure-compression",
        "Measure size, speed and memory of the arms of a compression.",
        "compression.arm_measurements:measure",
        ("compression",),
    ),
    Job(
        "selector-tables",
        "Write the tables of a selector.",
        "analysis.jobs:write_selector_tables",
        ("selector",),
    ),
    Job(
        "table",
        "Write the tables of a sweep.",
        "analysis.jobs:write_tables",
        ("sweep", "published"),
    ),
    Job("violins", "Draw the gains of all sweeps.", "figures.draw:draw_violins"),
    Job("levels", "Draw the gains by MATH level.", "figures.draw:draw_levels"),
    Job("draw-sweep", "Draw the figures of a sweep.", "figures.draw:draw_sweep", ("sweep",)),
    Job(
        "draw-selector",
        "Draw the figures of a selector.",
        "figures.draw:draw_selector",
        ("selector",),
    ),
    Job(
        "controls",
        "Hold the gains of a sweep against chance.",
        "analysis.jobs:write_controls",
        ("sweep",),
    ),
    Job(
        "compression-tables",
        "Write the tables of all compressions.",
        "analysis.jobs:write_compression_tables",
        ("published",),
    ),
    Job(
        "draw-compression",
        "Draw the figures of a compression.",
        "figures.draw:draw_compression",
        ("compression", "published"),
    ),
    Job("audit", "Audit the published tables.", "figures.draw:draw_audit", ("published",)),
    Job("claims", "Judge the papers' claims.", "analysis.jobs:write_claims", ("published",)),
    Job("report", "Write the report of a run.", "report.page:write_report"),
)
"""All commands of the workflow; the name is the command's."""

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
