"""The arguments of `headsweep bench`. This module imports little: the command line starts fast."""

import argparse
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Any

from headsweep.arguments import count

RIVALS = ("published", "generate_batch", "vllm", "engine")


def add_to(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    """Add `bench` to a command line."""
    about = "Time engine, maps and plan."
    bench = commands.add_parser("bench", description=about)
    targets = bench.add_subparsers(title="benchmarks", metavar="WHAT", required=True)
    about = "Time one sweep with the published method, with its rivals and with the engine."
    sweep = targets.add_parser("sweep", help=about, description=about)
    sweep.add_argument("--model", default="demo", help="a folder, or 'demo' (default)")
    shape = "demo: the model as it is; 46m: embedded into a larger one that answers alike; "
    shape += "qwen2.5-1.5b: random weights of that shape"
    _add(sweep, "shape", "demo", shape, choices=("demo", "46m", "qwen2.5-1.5b"))
    _add(sweep, "heads", 24, "heads to prune, one at a time", type=count)
    _add(sweep, "questions", 200, "generated questions that each pruned model answers", type=count)
    _add(sweep, "max-new-tokens", 128, "token limit of an answer", type=count)
    threads = "CPU threads to try: in one process, and as so many processes (default: 1,2)"
    sweep.add_argument("--threads", type=_counts, default=[1, 2], help=threads)
    sweep.add_argument(
        "--only",
        dest="rivals",
        type=_names,
        default=list(RIVALS),
        help=f"rows to measure, comma-separated (default: {','.join(RIVALS)})",
    )
    _add(sweep, "repeat", 1, "rounds, of which medians are reported", type=count)
    sweep.add_argument("--json", type=Path, help="file for all measurements")
    sweep.set_defaults(handler=partial(_run, "sweep"))
    about = "Time the scoring of a map's texts beside a loop of plain forwards."
    maps = targets.add_parser("map", help=about, description=about)
    maps.add_argument("--model", default="demo", help="a folder, or 'demo' (default)")
    dtypes = ("float32", "bfloat16")
    _add(maps, "dtype", "float32", "type of weights and activations", choices=dtypes)
    maps.add_argument("--layer", type=int, help="whose heads are lost (default: the middle one)")
    _add(maps, "questions", 40, "solutions that are scored", type=count)
    _add(maps, "plain", 10, "solutions that the loop of plain forwards scores", type=count)
    _add(maps, "threads", 1, "CPU threads to use", type=count)
    maps.set_defaults(handler=partial(_run, "maps"))
    about = "Time sweeps of two random models, and compare with what the plan foretells."
    plan = targets.add_parser("plan", help=about, description=about)
    _add(plan, "questions", 12, "questions of each sweep", type=count)
    plan.set_defaults(handler=partial(_run, "plan"))


def _add(
    command: argparse.ArgumentParser, name: str, default: object, text: str, **how: Any
) -> None:
    """Add an option whose help names its default."""
    command.add_argument(f"--{name}", default=default, help=f"{text} (default: %(default)s)", **how)


def _run(target: str, **options: Any) -> None:
    import_module(f"headsweep.bench.{target}").run(**options)


def _counts(text: str) -> list[int]:
    return [count(part) for part in text.split(",")]


def _names(text: str) -> list[str]:
    names = text.split(",")
    for name in names:
        if name not in RIVALS:
            raise argparse.ArgumentTypeError(f"{name!r} is not one of {', '.join(RIVALS)}")
    return names
