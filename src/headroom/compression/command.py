"""The arguments of `headroom prune`; nothing heavy is imported, so the command starts fast."""

import argparse
from pathlib import Path
from typing import Any

from headroom.errors import ConfigError

_FORMS = {
    "zero": ("zeroed", "set the heads' weights to zero: loads everywhere, not smaller"),
    "uniform": ("uniform", "equally many heads of every layer: loads with plain from_pretrained"),
    "free": ("free", "any heads of any layer: loads with headroom.load_model (default)"),
}


def add_to(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    """Add `prune` to a command line."""
    about = "Remove attention heads from a model and save it."
    prune = commands.add_parser("prune", help=about, description=about)
    prune.add_argument("source", metavar="MODEL", help="a folder or a hub id")
    prune.add_argument("--out", type=Path, required=True, help="folder to create")
    which = prune.add_mutually_exclusive_group(required=True)
    which.add_argument("--heads", type=_names, help="heads to remove, as in L05H03,L07H01")
    which.add_argument("--ratio", type=float, help="share of all heads to remove, as in 0.25")
    forms = prune.add_mutually_exclusive_group()
    for flag, (form, text) in _FORMS.items():
        forms.add_argument(
            f"--{flag}", dest="form", action="store_const", const=form, default="free", help=text
        )
    prune.add_argument(
        "--criterion",
        default="norm",
        help="score whose lowest heads are removed: norm (default) and random need no data; "
        "entropy, mixed and attention need --texts; causal needs --accuracy",
    )
    prune.add_argument("--texts", type=Path, help="file of texts, one per line, to score heads on")
    prune.add_argument("--accuracy", type=Path, help="causal: accuracy matrix of a sweep")
    prune.add_argument("--alpha", type=float, default=0.5, help="mixed: weight of the norm")
    prune.add_argument("--seed", type=int, default=0, help="random: seed of the draw")
    prune.add_argument(
        "--scope",
        choices=("all", "layer"),
        default="all",
        help="rank all heads together, or those of each layer",
    )
    prune.add_argument(
        "--unit",
        choices=("group", "query"),
        default="group",
        help="grouped-query attention: remove whole groups, or one query head of each",
    )
    prune.add_argument("--revision", help="hub: commit hash; folder: expected fingerprint")
    prune.add_argument("--device", default="auto", help="auto, cpu, cuda or cuda:N")
    prune.set_defaults(handler=_prune)


def _prune(source: str, out: Path, texts: Path | None, **options: Any) -> None:
    from headroom.compression.pruning import prune

    print(prune(source, out, texts=_lines(texts) if texts else None, **options))


def _lines(file: Path) -> list[str]:
    try:
        lines = file.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"--texts {file} cannot be read ({error}); name a text file") from error
    return [line for line in lines if line.strip()]


def _names(text: str) -> list[str]:
    return [name.strip() for name in text.split(",")]
