"""The commands of the workflow's jobs: a table of them, their shell commands, and their calls."""

import argparse
import gc
import os
import re
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
    function: str  # `module:function`, below headroom
    wildcards: tuple[str, ...]
    help: str


_TABLE = """\
source generation.prepare:read_source(source) Read one split, whole.
questions generation.prepare:draw_questions(questions) Draw a question set.
model generation.prepare:prepare_model(model) Fetch or train a model.
embedder generation.prepare:prepare_embedder(embedder) Fetch an embedder.
embed generation.prepare:embed_questions(embedder questions) Embed the questions of a set.
generate generation.client:run(model decoding questions variant cores) \
Answer with one model variant.
activations generation.activations:run(model decoding questions) Measure heads on own answers.
grade grading.matrix:grade(model decoding questions) Judge answers; gather Z.
regrade grading.matrix:grade(model decoding questions grading) Judge answers by other rules.
compare-prompts grading.matrix:compare_prompts(comparison) Compare prompts and rules.
train-selector sprint.job:train(selector) Train a head selector.
rank-heads sprint.job:rank(selector) Rank the heads for each question.
evaluate sprint.job:evaluate(selector) Compute Pass@N of a selector and baselines.
compare-families frontier:compare(frontier) Compare families of variants at equal tokens.
problems athena.problems:read_data(data) Read a dataset and divide it.
encoder compression.arm_jobs:prepare_encoder(encoder) Fetch a pretrained encoder.
teacher compression.arm_jobs:train_teacher(solver data seed) Train a solver with all its heads.
compress compression.arm_jobs:compress_arm(subject data arm seed) Compress a solver or a model.
quantise compression.arm_jobs:quantise(subject data arm seed) Test an arm with 8-bit weights.
gather-compression analysis.jobs:gather(compression) Gather the arms' results.
measure-compression compression.arm_measurements:measure(compression) Measure sizes and speeds.
table analysis.jobs:write_tables(sweep published) Write the tables of a sweep.
controls analysis.jobs:write_controls(sweep) Compare the gains of a sweep with chance.
compression-tables analysis.jobs:write_compression_tables(published) Write compressions' tables.
claims analysis.jobs:write_claims(published) Judge the papers' claims.
audit analysis.jobs:write_audit(published) Audit the published tables.
draw figures.draw:draw(subject of) Draw the figures of a sweep, a selector, the run and so on.
report report.page:write_report() Write the report of a run.
"""

JOBS = tuple(
    Job(name, function, tuple(takes.split()), text)
    for name, function, takes, text in re.findall(r"^(\S+) (\S+)\((.*)\) (.*)$", _TABLE, re.M)
)
"""All commands of the workflow."""

_ONLINE = {"source", "model", "embedder", "problems", "encoder"}
"""Jobs that may use the network; all others work offline."""
SHORTCUTS = {"generate": "generation.client:collect"}
"""Functions that may do a job before the config is read: `shortcut(config_file, *wildcards)`, with
the wildcards as given, returns whether the job is done."""
_HELP = "as in the paths of the rule: a key, a name, a variant, a number"
_MORE = {"cores": "{resources.engine_cores}", "published": "{params.folder:q}"}
"""Arguments that are not wildcards of the rules' files, and where rules take them from."""


def command(name: str) -> str:
    """Return the shell command with which a rule of the workflow runs a job.

    Snakemake reruns jobs whose command has changed, even if only a space differs.
    """
    (job,) = (job for job in JOBS if job.name == name)
    own = [f"--{each} {{wildcards.{each}}}" for each in job.wildcards if each not in _MORE]
    more = [f"--{each} {_MORE[each]}" for each in job.wildcards if each in _MORE]
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
            command.add_argument(f"--{wildcard}", required=wildcard != "cores", help=_HELP)
        command.set_defaults(handler=_call, job=job)


def _call(config: Path, job: Job, **wildcards: Any) -> None:
    """Call a job's function with the config names of the keys in its wildcards."""
    if job.name not in _ONLINE:
        os.environ["HF_HUB_OFFLINE"] = "1"
        os.environ["HF_HUB_DISABLE_PROGRESS_BARS"] = "1"  # loading is quick
    # Missing weights, of which transformers warns, are checked after loading.
    os.environ.setdefault("TRANSFORMERS_VERBOSITY", "error")
    if "cores" in wildcards:
        cores, usable = wildcards["cores"], len(os.sched_getaffinity(0))
        if cores is not None and not (cores.isdecimal() and int(cores)):
            raise ConfigError(f"--cores {cores!r} is not a number of cores; give 1 or more")
        wildcards["cores"] = min(int(cores or usable), usable)
    given = [wildcards[wildcard] for wildcard in job.wildcards]
    shortcut = SHORTCUTS.get(job.name)
    if shortcut and _function(shortcut)(config, *given):
        return
    from headroom.config import load
    from headroom.planning.store import Store

    store = Store(load(config))
    names = [_named(store, *pair) for pair in zip(job.wildcards, given, strict=True)]
    _function(job.function)(store.config, *names)


def _function(path: str) -> Callable[..., Any]:
    module, attribute = path.split(":")
    # Garbage collection takes a fifth of the import time of torch and transformers and finds
    # nothing. It is on again while the job runs, because garbage may hold tensors.
    gc.disable()
    function: Callable[..., Any] = getattr(import_module(f"headroom.{module}"), attribute)
    gc.enable()
    return function


def _named(store: "Store", wildcard: str, value: Any) -> Any:
    from headroom.variants import Variant

    readings: dict[str, Any] = {"variant": Variant.parse, "published": Path, "seed": int}
    if wildcard in readings:
        return readings[wildcard](value)
    if wildcard in ("model", "questions", "decoding", "embedder", "source"):
        return store.name(wildcard, value)
    if wildcard in ("comparison", "compression", "frontier", "selector", "sweep"):
        section = getattr(store.config, f"{wildcard}s")
        if value not in section:
            raise ConfigError(f"{wildcard} {value!r} is not in the config: {', '.join(section)}")
    return value
