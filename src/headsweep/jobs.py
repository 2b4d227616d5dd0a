"""The workflow's jobs: their commands, `headsweep job NAME`, and the functions that these call."""

import argparse
import gc
import os
from collections.abc import Callable, Sequence
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from headsweep.errors import ConfigError

if TYPE_CHECKING:
    from headsweep.planning.store import Store


class Job(NamedTuple):
    """A job of the workflow: `headsweep job NAME` calls `function(config, *arguments)`."""

    name: str
    function: str
    """`module:function`, below headsweep; imported only when the job runs."""
    arguments: tuple[str, ...]
    """The options of its command, in the order of the function's parameters: wildcards of the
    rules' files (keys, names, a variant, a number), `cores` and `published`."""
    help: str
    online: bool = False
    """Whether it may use the network."""
    shortcut: str | None = None
    """A function that may do the job before the config is read: `shortcut(config_file,
    *arguments)`, with the arguments as given, returns whether the job is done."""


_BATCH = ("model", "decoding", "questions")
_ARM = ("subject", "data", "arm", "seed")

JOBS = (
    Job("model", "generation.prepare:prepare_model", ("model",), "Fetch a model.", online=True),
    Job(
        "source",
        "generation.prepare:read_source",
        ("source",),
        "Read one split, whole.",
        online=True,
    ),
    Job("questions", "generation.prepare:draw_questions", ("questions",), "Draw a question set."),
    Job(
        "embedder",
        "generation.prepare:prepare_embedder",
        ("embedder",),
        "Fetch an embedder.",
        online=True,
    ),
    Job(
        "embed",
        "generation.prepare:embed_questions",
        ("embedder", "questions"),
        "Embed the questions of a set.",
    ),
    Job(
        "generate",
        "generation.client:run",
        (*_BATCH, "variant", "cores"),
        "Answer with one model variant.",
        shortcut="generation.client:collect",
    ),
    Job("activations", "generation.activations:run", _BATCH, "Measure heads on own answers."),
    Job("grade", "grading.matrix:grade", _BATCH, "Judge answers; gather Z."),
    Job("regrade", "grading.matrix:grade", (*_BATCH, "grading"), "Judge answers by other rules."),
    Job(
        "compare-prompts",
        "grading.matrix:compare_prompts",
        ("comparison",),
        "Compare prompts and rules.",
    ),
    Job(
        "score",
        "maps.job:score_layer",
        ("texts", "layer"),
        "Score known texts without each head of a layer.",
    ),
    Job(
        "gradients",
        "maps.job:estimate_heads",
        ("texts",),
        "Estimate what each head's loss does to known texts.",
    ),
    Job("map", "maps.table:write_tables", ("map",), "Make the tables of a map of every head."),
    Job("train-selector", "sprint.job:train", ("selector",), "Train a head selector."),
    Job("rank-heads", "sprint.job:rank", ("selector",), "Rank the heads for each question."),
    Job(
        "evaluate",
        "sprint.job:evaluate",
        ("selector",),
        "Compute Pass@N of a selector and baselines.",
    ),
    Job(
        "compare-families",
        "frontier:compare",
        ("frontier",),
        "Compare families of variants at equal tokens.",
    ),
    Job(
        "problems",
        "athena.problems:read_data",
        ("data",),
        "Read a dataset and divide it.",
        online=True,
    ),
    Job(
        "encoder",
        "compression.arm_jobs:prepare_encoder",
        ("encoder",),
        "Fetch a pretrained encoder.",
        online=True,
    ),
    Job(
        "teacher",
        "compression.arm_jobs:train_teacher",
        ("solver", "data", "seed"),
        "Train a solver with all its heads.",
    ),
    Job("compress", "compression.arm_jobs:compress_arm", _ARM, "Compress a solver or a model."),
    Job("quantise", "compression.arm_jobs:quantise", _ARM, "Test an arm with 8-bit weights."),
    Job(
        "gather-compression", "analysis.jobs:gather", ("compression",), "Gather the arms' results."
    ),
    Job(
        "measure-compression",
        "compression.arm_measurements:measure",
        ("compression",),
        "Measure sizes and speeds.",
    ),
    Job(
        "table",
        "analysis.jobs:write_tables",
        ("sweep", "published"),
        "Write the tables of a sweep.",
    ),
    Job(
        "controls",
        "analysis.jobs:write_controls",
        ("sweep",),
        "Compare the gains of a sweep with chance.",
    ),
    Job(
        "compression-tables",
        "analysis.jobs:write_compression_tables",
        ("published",),
        "Write compressions' tables.",
    ),
    Job("audit", "analysis.jobs:write_audit", ("published",), "Audit the published tables."),
    Job("claims", "analysis.jobs:write_claims", ("published",), "Judge the papers' claims."),
    Job(
        "draw",
        "figures.draw:draw",
        ("subject", "of"),
        "Draw the figures of a sweep, a selector, the run and so on.",
    ),
    Job("report", "report.page:write_report", (), "Write the report of a run."),
)
"""All jobs, in the order of the workflow."""

_ABOUT = """\
Do one job of the workflow, as its rule does. `snakemake --printshellcmds` shows
the commands of a run.
"""
_CONFIG = "config file of the run: results/<run>/config.json (default: $HEADSWEEP_CONFIG)"
_WILDCARD = "as in the paths of the rule: a key, a name, a variant, a number"
_OTHERS = {
    "cores": "CPU cores that an engine may use (default: all)",
    "published": "folder of the papers' numbers",
}


def add_to(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    """Add `job`, which has a command for each job, to a command line."""
    from headsweep.arguments import listed  # only the whole command line needs it

    command = commands.add_parser(
        "job",
        usage="headsweep job [-h] NAME ...",
        description=_ABOUT,
        formatter_class=argparse.RawDescriptionHelpFormatter,
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
    for argument in job.arguments:
        about = _OTHERS.get(argument, _WILDCARD)
        command.add_argument(f"--{argument}", required=argument != "cores", help=about)
    command.set_defaults(handler=partial(_run, job))


def _run(job: Job, config: Path, **given: Any) -> None:
    """Call a job's function with the config names of the keys among its arguments."""
    if not job.online:
        os.environ["HF_HUB_OFFLINE"] = "1"
        os.environ["HF_HUB_DISABLE_PROGRESS_BARS"] = "1"  # loading is quick
    # Missing weights, of which transformers warns, are checked after loading.
    os.environ.setdefault("TRANSFORMERS_VERBOSITY", "error")
    if "cores" in job.arguments:
        cores, usable = given["cores"], len(os.sched_getaffinity(0))
        if cores is not None and not (cores.isdecimal() and int(cores)):
            raise ConfigError(f"--cores {cores!r} is not a number of cores; give 1 or more")
        given["cores"] = min(int(cores or usable), usable)
    values = [given[argument] for argument in job.arguments]
    if job.shortcut and function(job.shortcut)(config, *values):
        return
    from headsweep.config import load
    from headsweep.planning.store import Store, mark_version

    mark_version()
    store = Store(load(config))
    names = [_named(store, *pair) for pair in zip(job.arguments, values, strict=True)]
    function(job.function)(store.config, *names)


def function(path: str) -> Callable[..., Any]:
    """Import and return a function, by `module:function` below headsweep."""
    module, attribute = path.split(":")
    # Garbage collection takes a fifth of the import time of torch and transformers and finds
    # nothing. It is on again while the job runs, because garbage may hold tensors.
    gc.disable()
    found: Callable[..., Any] = getattr(import_module(f"headsweep.{module}"), attribute)
    gc.enable()
    return found


def _named(store: "Store", argument: str, value: Any) -> Any:
    from headsweep.variants import Variant

    readings: dict[str, Any] = {"variant": Variant.parse, "published": Path, "seed": int}
    if argument in readings:
        return readings[argument](value)
    if argument in ("model", "questions", "decoding", "embedder", "source"):
        return store.name(argument, value)
    if argument in ("comparison", "compression", "frontier", "map", "selector", "sweep"):
        section = getattr(store.config, f"{argument}s")
        if value not in section:
            raise ConfigError(f"{argument} {value!r} is not in the config: {', '.join(section)}")
    return value
