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
    about = "Time engine, maps, grading and plan; simulate the referee."
    bench = commands.add_parser("bench", description=about)
    targets = bench.add_subparsers(title="benchmarks", metavar="WHAT", required=True)
    about = "Time one sweep with the published method, with its rivals and with the engine."
    sweep = targets.add_parser("sweep", help=about, description=about)
    sweep.add_argument("--model", default="demo", help="a folder, or 'demo' (default)")
    sweep.add_argument("--shape", choices=("demo", "46m", "qwen2.5-1.5b"), default="demo")
    sweep.add_argument("--heads", type=count, default=24, help="heads to prune, one at a time")
    sweep.add_argument("--questions", type=count, default=200)
    sweep.add_argument("--max-new-tokens", type=count, default=128)
    threads = "CPU threads to try, as in 1,2: in one process, and as so many processes"
    sweep.add_argument("--threads", type=_counts, default=[1, 2], help=threads)
    sweep.add_argument(
        "--only",
        dest="rivals",
        type=_names,
        default=list(RIVALS),
        help=f"rows to measure, comma-separated: {', '.join(RIVALS)}",
    )
    sweep.add_argument(
        "--repeat", type=count, default=1, help="rounds, of which medians are reported"
    )
    sweep.add_argument("--json", type=Path, help="file for all measurements")
    sweep.set_defaults(handler=partial(_run, "sweep"))
    about = "Time the scoring of a map's texts beside a loop of plain forwards."
    maps = targets.add_parser("map", help=about, description=about)
    maps.add_argument("--model", default="demo", help="a folder, or 'demo' (default)")
    maps.add_argument("--dtype", choices=("float32", "bfloat16"), default="float32")
    maps.add_argument("--layer", type=int, help="whose heads are lost (default: the middle one)")
    maps.add_argument("--questions", type=count, default=40, help="solutions that are scored")
    maps.add_argument(
        "--plain", type=count, default=10, help="solutions that the loop of plain forwards scores"
    )
    maps.add_argument("--threads", type=count, default=1)
    maps.set_defaults(handler=partial(_run, "maps"))
    about = "Time grading and math-verify on the same pairs, and compare their verdicts."
    grading = targets.add_parser("grading", help=about, description=about)
    grading.add_argument("file", type=Path, help="JSON lines with an `answer`, as MATH has")
    grading.add_argument("--questions", type=count, default=12_000)
    grading.add_argument("--variants", type=count, default=33, help="answers to each question")
    grading.add_argument(
        "--baseline", type=count, default=5_000, help="pairs that math-verify judges in turn"
    )
    grading.add_argument("--workers", type=count, default=2)
    grading.add_argument("--seed", type=int, default=0)
    grading.set_defaults(handler=partial(_run, "grading"))
    about = "Time sweeps of two random models, and compare with what the plan foretells."
    plan = targets.add_parser("plan", help=about, description=about)
    plan.add_argument("--questions", type=count, default=12, help="of each sweep")
    plan.set_defaults(handler=partial(_run, "plan"))
    about = "Simulate comparisons: how often intervals hold, and what pairing shows."
    referee = targets.add_parser("referee", help=about, description=about)
    referee.add_argument("--comparisons", type=count, default=4_000, help="for each row")
    referee.add_argument("--seed", type=int, default=0)
    referee.set_defaults(handler=partial(_run, "referee"))


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
