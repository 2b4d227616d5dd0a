"""The command line of `headsweep prune`.

Nothing heavy is imported, so the command starts fast.
"""

import argparse
from pathlib import Path

from headsweep.arguments import count, reading
from headsweep.choices import BenchmarkGrader
from headsweep.experiments.recovery.command import prune_as_asked
from headsweep.experiments.recovery.settings import TRAINING, Recovery

_FORMS = {
    "zero": ("zeroed", "set the heads' weights to zero: loads everywhere, not smaller"),
    "uniform": ("uniform", "equally many heads of every layer: loads with plain from_pretrained"),
    "free": ("free", "any heads of any layer: loads with headsweep.load_model (default)"),
}
_EXAMPLES = """\
examples:
  headsweep prune ./my-llama --heads L05H03,L07H01 --zero --out without-two
  headsweep prune ./my-llama --ratio 0.25 --out smaller
  headsweep prune ./my-llama --ratio 0.25 --recover --text chats.jsonl \\
      --out smaller

Without --recover heads are removed at once, and nothing is trained. With it,
they go in rounds: each scores the heads that are left on the texts, removes the
lowest, and trains the rest to predict the texts and to agree with the model
before the round. At the end a table compares perplexity on held-out texts, size
and speed before, pruned and recovered; OUT/README.md and OUT/recovery.json keep
it. The same command goes on where it was stopped. Begin small: --steps 20 shows
how long a step takes. With --ratio 0 it says what training alone does.

Too little memory: --micro-batch 1, --gradient-checkpointing, a smaller
--length, or --lora 16: the model keeps its own type, and two thin matrices are
trained beside each of its own.
Several GPUs:
  accelerate launch --num_processes 4 -m headsweep prune ./my-llama ...
"""


def add_to(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    """Add `prune` to a command line."""
    prune = commands.add_parser(
        "prune",
        description="Remove heads from a model; --recover trains the rest.",
        epilog=_EXAMPLES,
    )
    prune.add_argument("source", metavar="MODEL", help="a folder or a hub id")
    prune.add_argument("--out", type=Path, required=True, help="folder to create")
    _add_choice_of_heads(prune)
    prune.add_argument("--revision", help="hub: commit hash; folder: expected fingerprint")
    prune.add_argument(
        "--device",
        default="auto",
        help="auto, cpu, cuda or cuda:N; with --recover auto or cpu (CUDA_VISIBLE_DEVICES chooses)",
    )
    for name in ("alpha", "scope", "unit"):
        _add_setting(prune, name, default=Recovery.model_fields[name].default)
    _add_recovery(prune.add_argument_group("recovery"))
    prune.set_defaults(handler=prune_as_asked)


def _add_choice_of_heads(prune: argparse.ArgumentParser) -> None:
    """Add which heads go, in which form, and what they are scored on."""
    which = prune.add_mutually_exclusive_group(required=True)
    which.add_argument("--heads", type=_names, help="heads to remove, as in L05H03,L07H01")
    which.add_argument("--ratio", type=float, help="share of all query heads to remove, as in 0.25")
    forms = prune.add_mutually_exclusive_group()
    for flag, (form, text) in _FORMS.items():
        forms.add_argument(
            f"--{flag}", dest="form", action="store_const", const=form, default="free", help=text
        )
    prune.add_argument(
        "--criterion",
        help="score whose lowest heads are removed: norm (default) and random need no data; "
        "entropy, mixed and attention need --text; causal (default with --recover) needs "
        "--accuracy, or with --recover measures the loss without each head",
    )
    prune.add_argument(
        "--text",
        "--texts",
        type=Path,
        help="file of texts to score heads and train on: .jsonl or .jsonl.gz with `text` or "
        "`messages` in each line, or plain text, one a line",
    )
    prune.add_argument(
        "--fields", type=_names, default=[], help="JSON fields that make a text: problem,solution"
    )
    prune.add_argument("--accuracy", type=Path, help="causal: accuracy matrix of a sweep")
    prune.add_argument("--seed", type=int, default=0, help="of random draws")


def _add_recovery(group: argparse._ArgumentGroup) -> None:
    """Add the options of recovery: what is measured in the end, and the settings of training."""
    group.add_argument("--recover", action="store_true", help="remove in rounds and train")
    group.add_argument(
        "--held-out",
        type=Path,
        help="file of texts to measure on (default: a tenth of --text, at most 2,000)",
    )
    group.add_argument(
        "--control", action="store_true", help="also train the same with nothing removed"
    )
    group.add_argument(
        "--benchmark",
        type=Path,
        help="file of questions that all models answer in the end: .csv or .jsonl with the columns "
        "question and answer",
    )
    group.add_argument("--grader", **reading(BenchmarkGrader), help="how answers are compared")
    group.add_argument("-n", type=count, help="how many of its questions (default: all)")
    group.add_argument(
        "--max-new-tokens", type=count, help="token limit of an answer (default: 512)"
    )
    for name in TRAINING:
        _add_setting(group, name, default=argparse.SUPPRESS)


def _add_setting(group: argparse._ActionsContainer, name: str, default: object) -> None:
    """Add a setting of `Recovery`; suppressed, it is among the options only where it is given."""
    field = Recovery.model_fields[name]
    about = " ".join((field.description or "").split())
    if field.default not in (None, False):
        about += f" (default: {field.default})"
    keys = {**reading(field.annotation), "default": default, "help": about}
    group.add_argument(f"--{name.replace('_', '-')}", **keys)


def _names(text: str) -> list[str]:
    return [name.strip() for name in text.split(",")]
