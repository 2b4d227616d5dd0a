"""The commands that the workflow's rules call, one a job: a table, and how one is called."""

import argparse
import gc
import os
from collections.abc import Callable, Iterable
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from headroom.errors import ConfigError

if TYPE_CHECKING:
    from headroom.config import Config


class Rule(NamedTuple):
    """A command that a rule of the workflow calls: `function(config, *wildcards)`."""

    name: str
    help: str
    function: str
    wildcards: tuple[str, ...] = ()
    online: bool = False
    """Whether it may reach for the network; all others find what those fetched."""
    shortcut: str | None = None
    """What may do it before the config is checked: `shortcut(config_file, *wildcards)`, these as
    they are given; tells whether it has."""


RULES: tuple[Rule, ...] = (
    Rule("source", "Read one split, whole.", "stages:read_source", ("source",), online=True),
    Rule("questions", "Draw a question set.", "stages:draw_questions", ("questions",)),
    Rule("model", "Fetch or train a model.", "stages:prepare_model", ("model",), online=True),
    Rule("embedder", "Fetch an embedder.", "stages:prepare_embedder", ("embedder",), online=True),
    Rule(
        "embed",
        "Embed the questions of a set.",
        "stages:embed_questions",
        ("embedder", "questions"),
    ),
    Rule(
        "generate",
        "Answer a question set with one model variant.",
        "generation.job:run",
        ("model", "decoding", "questions", "variant", "cores"),
        shortcut="generation.client:collect",
    ),
    Rule(
        "activations",
        "Measure the heads of a model on its own answers.",
        "generation.activations:run",
        ("model", "decoding", "questions"),
    ),
    Rule(
        "grade",
        "Judge all answers to a question set; gather Z.",
        "stages:grade",
        ("model", "decoding", "questions"),
    ),
    Rule(
        "compare-prompts",
        "Compare prompts and rules.",
        "stages:compare_prompts",
        ("comparison",),
    ),
    Rule(
        "comparison-table",
        "Write the table of a comparison.",
        "figures.job:write_comparison",
        ("comparison",),
    ),
    Rule("train-selector", "Train a head selector.", "sprint.job:train", ("selector",)),
    Rule("rank-heads", "Rank the heads for each question.", "sprint.job:rank", ("selector",)),
    Rule("evaluate", "Pass@N of a selector and baselines.", "sprint.job:evaluate", ("selector",)),
    Rule(
        "weigh-embedding",
        "Ask whether the question embedding matters.",
        "sprint.job:weigh_embedding",
        ("selector",),
    ),
    Rule(
        "choose",
        "Say how much of Pass@N is left without an oracle.",
        "sprint.job:choose",
        ("selector",),
    ),
    Rule(
        "problems",
        "Read a dataset and divide it.",
        "compression.datasets:read_data",
        ("data",),
        online=True,
    ),
    Rule(
        "encoder",
        "Fetch a pretrained encoder.",
        "compression.job:prepare_encoder",
        ("encoder",),
        online=True,
    ),
    Rule(
        "teacher",
        "Train a solver with all its heads.",
        "compression.job:train_teacher",
        ("solver", "data", "seed"),
    ),
    Rule(
        "compress",
        "Compress a solver or a model, and test it.",
        "compression.job:compress_arm",
        ("subject", "data", "arm", "seed"),
    ),
    Rule(
        "quantise",
        "Test what an arm left with weights of eight bits.",
        "compression.job:quantise",
        ("subject", "data", "arm", "seed"),
    ),
    Rule(
        "gather-compression",
        "Bring the arms of a compression together.",
        "compression.gathering:gather",
        ("compression",),
    ),
    Rule(
        "measure-compression",
        "Measure size, speed and memory of the arms of a compression.",
        "compression.measuring:measure",
        ("compression",),
    ),
    Rule(
        "selector-tables",
        "Write the tables of a selector.",
        "figures.job:write_selector_tables",
        ("selector",),
    ),
    Rule(
        "table",
        "Write the tables of a sweep.",
        "figures.job:write_tables",
        ("sweep", "published"),
    ),
    Rule("violins", "Draw the gains of all sweeps.", "figures.draw:draw_violins"),
    Rule("levels", "Draw the gains by MATH level.", "figures.draw:draw_levels"),
    Rule("draw-sweep", "Draw the figures of a sweep.", "figures.draw:draw_sweep", ("sweep",)),
    Rule(
        "draw-selector",
        "Draw the figures of a selector.",
        "figures.draw:draw_selector",
        ("selector",),
    ),
    Rule(
        "controls",
        "Hold the gains of a sweep against chance.",
        "figures.job:write_controls",
        ("sweep",),
    ),
    Rule(
        "compression-tables",
        "Write the tables of all compressions.",
        "figures.compression.job:write_tables",
        ("published",),
    ),
    Rule(
        "draw-compression",
        "Draw the figures of a compression.",
        "figures.compression.job:draw",
        ("compression", "published"),
    ),
    Rule("audit", "Audit the published tables.", "figures.job:draw_audit", ("published",)),
    Rule("claims", "Judge the papers' claims.", "figures.job:write_claims", ("published",)),
    Rule("report", "Write the report of a run.", "figures.job:write_report"),
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


def add_to(
    commands: "argparse._SubParsersAction[argparse.ArgumentParser]", rules: Iterable[Rule]
) -> None:
    """Add rules' commands to a command line."""
    for rule in rules:
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


def _call(config: Path, rule: Rule, **wildcards: Any) -> None:
    """Call a rule's function with the config names that its wildcards, keys, stand for."""
    if not rule.online:
        os.environ["HF_HUB_OFFLINE"] = "1"
        os.environ["HF_HUB_DISABLE_PROGRESS_BARS"] = "1"  # loading is quick; jobs say the rest
    os.environ.setdefault("TRANSFORMERS_VERBOSITY", "error")  # what lacks is checked after loading
    if "cores" in wildcards:
        wildcards["cores"] = _usable(wildcards["cores"])
    given = [wildcards[wildcard] for wildcard in rule.wildcards]
    if rule.shortcut and _function(rule.shortcut)(config, *given):
        return
    from headroom.config import load

    loaded = load(config)
    names = [_name(loaded, *pair) for pair in zip(rule.wildcards, given, strict=True)]
    _function(rule.function)(loaded, *names)


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


def _name(config: "Config", wildcard: str, value: Any) -> Any:
    from headroom.identity import name_of
    from headroom.variants import Variant

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
