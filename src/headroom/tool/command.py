"""Arguments of the tool's commands; light, so that the command line starts fast."""

import argparse
import sys
from pathlib import Path
from typing import Any, get_args

from headroom.arguments import count, numbers_or_all
from headroom.config.questions import Grader
from headroom.errors import ConfigError

_EXAMPLES = """\
examples:
  headroom sweep --model Qwen/Qwen2.5-Math-1.5B-Instruct --benchmark math500 --layers 5,15
  headroom sweep --model ./my-llama --benchmark ./mine.csv --question-column q \\
      --answer-column a --grader numeric --layers all --out my-sweep

The same command goes on where it was stopped. All figures and the report, without generating
anything twice: snakemake --cores 2 --directory OUT --configfile OUT/results/sweep/config.json
"""
_STORE = """\
The store, results/store, is shared by all configs: models, questions, answers, trained solvers and
what is left of them. Each line names a kind of file, its key, and the configs that ask for it: of
the runs in results/, by their config.json, and those that you name.

examples:
  headroom store                               what is there, how large, and for which run
  headroom store config/sprint.yaml            the same, with a config that has not run yet
  headroom store --prune config/sprint.yaml    remove what neither it nor any run asks for

--prune asks before it removes; what is removed must be generated again. It keeps every file that a
run or a named config needs, and files whose form it does not know. Answers to a smaller draw from
the same split go too where no config names that draw: grow a question set before you prune. It
refuses to remove anything while a run or an engine is at work in this folder.
"""
_EACH = 5
_SHOWN = 2 * _EACH + 1
"""So many heads are printed at most: the best and the worst."""
_COLUMNS = ("question", "answer", "id", "subject", "level")


def add_to(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    """Add `sweep`, `solve` and `store` to a command line."""
    about = "Prune heads one at a time and answer a benchmark with each; no Snakemake needed."
    sweep = commands.add_parser(
        "sweep",
        help=about,
        description=about,
        epilog=_EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    sweep.add_argument(
        "--model", required=True, help="hub id, folder in the hub's format, or GGUF file"
    )
    sweep.add_argument(
        "--benchmark",
        required=True,
        help="math500, gsm8k, generated_math, ..., a .csv or .jsonl file, or a dataset on the hub",
    )
    sweep.add_argument(
        "--layers",
        required=True,
        type=numbers_or_all,
        help="whose heads are pruned, as in 5,15; or all",
    )
    sweep.add_argument(
        "--heads", type=numbers_or_all, default="all", help="heads of each (default: all)"
    )
    sweep.add_argument(
        "--out",
        type=Path,
        default=Path("headroom-sweep"),
        help="folder of the results (default: %(default)s)",
    )
    sweep.add_argument("--revision", help="commit hash of a model on the hub (default: the newest)")
    sweep.add_argument("--split", default="test", help="of the benchmark (default: %(default)s)")
    sweep.add_argument("-n", type=count, help="how many questions (default: all)")
    for column in _COLUMNS:
        sweep.add_argument(
            f"--{column}-column", metavar="NAME", help=f"your own benchmark: column of the {column}"
        )
    sweep.add_argument(
        "--grader",
        choices=get_args(Grader),
        help="your own benchmark: how answers are compared (default: math)",
    )
    sweep.add_argument("--benchmark-revision", help="commit hash of a dataset on the hub")
    sweep.add_argument("--max-new-tokens", type=count, default=2048, help="(default: %(default)s)")
    sweep.add_argument(
        "--dtype",
        choices=("float32", "bfloat16", "float16"),
        help="(default: bfloat16 on a GPU, else float32)",
    )
    sweep.add_argument(
        "--device", default="auto", help="cpu, cuda, cuda:1, balanced (default: auto)"
    )
    sweep.add_argument("--batch-size", type=count, help="sequences decoded together")
    sweep.add_argument(
        "--placebos",
        choices=("none", "numeric", "noise", "both"),
        default="none",
        help="controls that prune nothing (default: none)",
    )
    sweep.set_defaults(handler=_sweep)

    about = "Answer a question with the heads that a run's selector picks, and count the votes."
    solve = commands.add_parser("solve", help=about, description=about)
    solve.add_argument(
        "question", nargs="?", help="the question; without it, one a line from stdin"
    )
    solve.add_argument("--file", type=Path, help="a file with one question a line")
    solve.add_argument("--run", required=True, type=Path, help="folder of a run: results/demo")
    solve.add_argument("--selector", help="which of the run's selectors (default: the only one)")
    solve.add_argument("-n", type=count, help="how many heads answer (default: 8, or all)")
    chooser = solve.add_mutually_exclusive_group()
    chooser.add_argument(
        "--verifier",
        metavar="MODULE:FUNCTION",
        help="scores each answer: takes the question and a list of texts, returns numbers; the "
        "answer with the highest is chosen in place of the majority's",
    )
    chooser.add_argument(
        "--reward-model",
        metavar="MODEL",
        help="a sequence classifier that scores each answer in place of the majority: folder or "
        "hub id, safetensors only",
    )
    solve.add_argument("--json", action="store_true", help="print one JSON object a question")
    solve.set_defaults(handler=_solve)
    store = commands.add_parser(
        "store",
        help="Say what the store holds and which config asks for it; remove what none does.",
        description="Say what the store holds, how large it is, and which config asks for it.",
        epilog=_STORE,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    store.add_argument(
        "configs",
        metavar="CONFIG",
        type=Path,
        nargs="*",
        help="configs whose files are needed, too",
    )
    store.add_argument("--prune", action="store_true", help="remove what no config asks for")
    store.add_argument("--yes", action="store_true", help="with --prune: remove without a question")
    store.set_defaults(handler=_store)


def _sweep(**options: Any) -> None:
    from headroom.tool.sweep import sweep

    named = {column: options.pop(f"{column}_column") for column in _COLUMNS}
    table = sweep(**options, columns={name: value for name, value in named.items() if value})
    (base,) = table[table["variant"] == "base"].itertuples()
    pruned = table[table["variant"] != "base"].sort_values("gain", ascending=False, kind="stable")
    heads = list(pruned.itertuples())
    print(f"base model: {base.accuracy:.1%} of {base.n} questions\n")
    print("without head  accuracy    gain  95% interval            q")
    lines = [_line(head) for head in heads]
    print(*(lines if len(lines) <= _SHOWN else [*lines[:_EACH], "...", *lines[-_EACH:]]), sep="\n")
    out = options["out"]
    print(f"\nall {len(heads)} heads: {out}/results/sweep/controls/heads/heads.csv")
    print(
        f"figures and report: snakemake --cores 2{_snakefile()} --directory {out} "
        f"--configfile {out}/results/sweep/config.json"
    )


def _snakefile() -> str:
    """Return the option that names the workflow, where Snakemake would not find it by itself."""
    file = Path(__file__).parents[3] / "Snakefile"
    return "" if Path("Snakefile").exists() or not file.exists() else f" --snakefile {file}"


def _line(head: Any) -> str:
    return (
        f"{head.variant:<12}  {head.accuracy:>7.1%}  {head.gain:>+6.1%}  "
        f"[{head.low:>+6.1%}, {head.high:>+6.1%}]  {head.q:>6.3f}"
    )


def _solve(
    question: str | None, file: Path | None, json: bool, reward_model: str | None, **options: Any
) -> None:
    from headroom.tool.reward import RewardModel
    from headroom.tool.solve import Solver, to_json, to_text

    questions = _questions(question, file)
    if reward_model is not None:
        options["verifier"] = RewardModel(reward_model)
    show = to_json if json else to_text
    for solved in Solver(**options).solve(questions):
        print(show(solved))


def _store(configs: list[Path], prune: bool, yes: bool) -> None:
    from headroom.tool.store import show

    show(configs, prune=prune, yes=yes)


def _questions(question: str | None, file: Path | None) -> list[str]:
    if question is not None and file is not None:
        raise ConfigError("a question and --file are given; give one of the two")
    try:
        text = question or (file.read_text(encoding="utf-8") if file else sys.stdin.read())
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"--file {file} cannot be read ({error}); name a text file") from error
    lines = [text] if question else [line for line in text.splitlines() if line.strip()]
    if not lines:
        raise ConfigError("there is no question; give one, or a file with one a line")
    return lines
