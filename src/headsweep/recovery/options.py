"""The options of `headsweep prune`, which with `--recover` are the settings of a recovery.

Nothing heavy is imported, so the command starts fast.
"""

import argparse
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, get_args

from pydantic import Field, ValidationError, model_validator

from headsweep.arguments import count, reading
from headsweep.config.compression import Compression
from headsweep.config.questions import Grader
from headsweep.config.section import Count, Positive, Section, Seed, Share
from headsweep.errors import ConfigError
from headsweep.models.gguf import Kind

if TYPE_CHECKING:
    from headsweep.recovery.benchmark import Benchmark

Whole = Annotated[float, Field(ge=0, le=1)]

_FORMS = {
    "zero": ("zeroed", "set the heads' weights to zero: loads everywhere, not smaller"),
    "uniform": ("uniform", "equally many heads of every layer: loads with plain from_pretrained"),
    "free": ("free", "any heads of any layer: loads with headsweep.load_model (default)"),
}
_EXAMPLES = """\
examples:
  headsweep prune ./my-llama --heads L05H03,L07H01 --zero --out without-two-heads
  headsweep prune ./my-llama --ratio 0.25 --out smaller
  headsweep prune ./my-llama --ratio 0.25 --recover --text chats.jsonl --out smaller

Without --recover heads are removed at once, and nothing is trained. With it, they go in rounds:
each scores the heads that are left on the texts, removes the lowest, and trains the rest to predict
the texts and to agree with the model before the round. At the end a table compares perplexity on
held-out texts, size and speed before, pruned and recovered; OUT/README.md and OUT/recovery.json
keep it. The same command goes on where it was stopped. Begin small: --steps 20 shows how long a
step takes. The same call with --ratio 0 says what training alone does.

Too little memory: --micro-batch 1, --gradient-checkpointing, a smaller --length, or --lora 16: the
model keeps its own type, and two thin matrices are trained beside each of its own.
Several GPUs: accelerate launch --num_processes 4 -m headsweep.cli prune ./my-llama ...
"""


class Recovery(Section):
    """How heads are removed from a decoder, and how the rest is trained."""

    ratio: Share = 0.25
    """Share of all heads to remove; 0 trains without removing any, for comparison."""
    criterion: str = "mixed"
    """Score whose lowest heads are removed: mixed, norm, entropy, attention, random, or causal, the
    rise of the loss on the calibration texts without the head, or its group."""
    alpha: Whole = 0.5
    """mixed: weight of the norm"""
    scope: Literal["all", "layer"] = "all"
    """rank all heads together, or those of each layer"""
    unit: Literal["group", "query"] = "group"
    """grouped-query attention: remove whole groups, or one query head of each"""
    uniform: bool = False
    """remove equally many heads of every layer, so that plain from_pretrained loads the result"""
    seed: Seed = 0
    """Decides random scores, the order of texts and what dropout leaves out."""
    rounds: Count = 4
    """rounds of removal and training"""
    exponent: Positive = 1.0
    """above 1 most heads go in late rounds"""
    calibration: Count = 128
    """pieces of text that heads are scored on"""
    steps: Count = 1000
    """training steps of all rounds together"""
    batch_size: Count = 16
    """pieces of text a step"""
    micro_batch: Count = 2
    """pieces that each process has in memory at once"""
    length: Annotated[int, Field(ge=2, strict=True)] = 512
    """tokens of a piece of text, at most"""
    learning_rate: Positive | None = None
    """highest rate of AdamW, reached after a tenth of a round, falling to zero over all (5e-5, with
    LoRA 2e-4)"""
    teacher: Literal["previous", "original", "none"] = "previous"
    """the model before the round, as published, the unpruned one, or the texts alone"""
    temperature: Positive = 2.0
    """divides the logits of teacher and student"""
    distill_weight: Whole = 0.5
    """weight of the teacher in the loss; the texts have the rest"""
    lora: Count | None = None
    """train LoRA matrices of this rank only, beside all linear layers; needs the package peft"""
    gradient_checkpointing: bool = False
    """less memory, a third more time"""
    precision: Literal["auto", "no", "bf16"] = "auto"
    """bf16: passes in bfloat16, trained weights in float32; auto: where a GPU has it"""

    @model_validator(mode="after")
    def _enough_steps(self) -> "Recovery":
        if self.steps < self.rounds:
            raise ValueError(f"{self.steps} steps cannot be divided over {self.rounds} rounds")
        return self

    @property
    def rate(self) -> float:
        """The highest learning rate."""
        return self.learning_rate or (2e-4 if self.lora else 5e-5)

    @property
    def schedule(self) -> Compression:
        """The same as a compression: its schedule, and how heads are ranked."""
        own = {name: getattr(self, name) for name in ("ratio", "rounds", "exponent")}
        ranked = {name: getattr(self, name) for name in ("alpha", "scope", "unit")}
        training = {"epochs": self.rounds}
        return Compression.model_validate({**own, "importance": ranked, "training": training})


def recovery(**settings: object) -> Recovery:
    """Return checked settings.

    Raises:
        ConfigError: one line naming the setting, its value and what is allowed.
    """
    try:
        return Recovery.model_validate(settings)
    except ValidationError as error:
        problem = error.errors()[0]
        name = ".".join(map(str, problem["loc"]))
        if problem["type"] == "extra_forbidden":
            known = ", ".join(Recovery.model_fields)
            raise ConfigError(f"{name!r} is no setting; there are {known}") from None
        text = problem["msg"].removeprefix("Value error, ")
        said = f"{name}: {text}, not {problem['input']!r}" if name else text
        raise ConfigError(said) from None


_QUESTIONS = ("benchmark", "grader", "n", "max_new_tokens")
_MOST_TOKENS = 512
_CHOICE = ("ratio", "criterion", "alpha", "scope", "unit", "uniform", "seed")
_TRAINING = [name for name in Recovery.model_fields if name not in _CHOICE]
"""The settings that only recovery has."""


def add_to(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    """Add `prune` to a command line."""
    about = "Remove heads from a model; --recover trains the rest."
    prune = commands.add_parser(
        "prune",
        description=about,
        epilog=_EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
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
        help="score whose lowest heads are removed: norm (default) and random need no data; "
        "entropy, mixed (default with --recover) and attention need --text; causal needs "
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
    prune.add_argument("--revision", help="hub: commit hash; folder: expected fingerprint")
    prune.add_argument("--device", default="auto", help="auto, cpu, cuda or cuda:N")
    file = prune.add_argument_group("llama.cpp")
    file.add_argument("--gguf", type=Path, help="also write the result as this file, OUT.gguf")
    file.add_argument(
        "--gguf-type",
        **reading(Kind),
        help="type of its matrices (default: f16); llama-cpp-python makes q4_k_m",
    )
    file.add_argument(
        "--gguf-tokenizer", type=Path, help="GGUF file to take the tokenizer from, if need be"
    )
    recovery = prune.add_argument_group("recovery")
    recovery.add_argument("--recover", action="store_true", help="remove in rounds and train")
    recovery.add_argument(
        "--held-out", type=Path, help="file of texts to measure on (default: a tenth of --text)"
    )
    recovery.add_argument(
        "--control", action="store_true", help="also train the same with nothing removed"
    )
    recovery.add_argument(
        "--benchmark",
        type=Path,
        help="file of questions that all models answer in the end: .csv or .jsonl with the columns "
        "question and answer",
    )
    recovery.add_argument("--grader", **reading(Grader), help="how answers are compared")
    recovery.add_argument("-n", type=count, help="how many of its questions (default: all)")
    recovery.add_argument(
        "--max-new-tokens", type=count, help="token limit of an answer (default: 512)"
    )
    for name in ("alpha", "scope", "unit", *_TRAINING):
        field, group = Recovery.model_fields[name], recovery if name in _TRAINING else prune
        about = " ".join((field.description or "").split())
        if field.default not in (None, False):
            about += f" (default: {field.default})"
        default = argparse.SUPPRESS if name in _TRAINING else field.default
        keys = {**reading(field.annotation), "default": default, "help": about}
        group.add_argument(f"--{name.replace('_', '-')}", **keys)
    prune.set_defaults(handler=_prune)


def _prune(
    gguf: Path | None, gguf_type: Kind | None, gguf_tokenizer: Path | None, **options: Any
) -> None:
    if gguf is None:
        if gguf_type or gguf_tokenizer:
            name = "--gguf-type is the type" if gguf_type else "--gguf-tokenizer is the tokenizer"
            raise ConfigError(f"{name} of a file; name it: --gguf OUT.gguf")
        _make(**options)
        return
    from headsweep.models.gguf_export import check_export, export_gguf
    from headsweep.models.source import fetch_model

    kind, uneven = gguf_type or "f16", options["form"] == "free"
    folder = fetch_model(options["source"], options["revision"])
    check_export(folder, gguf, kind, gguf_tokenizer, uneven=uneven)
    if _make(**options):
        print(export_gguf(options["out"], gguf, kind=kind, tokenizer=gguf_tokenizer))


def _make(recover: bool, text: Path | None, fields: list[str], **options: Any) -> bool:
    """Prune, say what came out, and return whether it lies in this process's folder."""
    from headsweep.recovery.texts import read_texts

    texts = read_texts(text, fields) if text else None
    options["criterion"] = options["criterion"] or ("mixed" if recover else "norm")
    held_out = options.pop("held_out")
    control, asked = options.pop("control"), {name: options.pop(name) for name in _QUESTIONS}
    given = [name for name in _TRAINING if name in options]
    if not recover:
        from headsweep.compression.pruning import prune

        late = {"held_out": held_out, "control": control, **asked}
        given += [name for name, value in late.items() if value]
        if given:
            name = given[0].replace("_", "-")
            raise ConfigError(f"--{name} is about training; add --recover")
        plain = [each for each in texts or () if isinstance(each, str)]
        if len(plain) < len(texts or ()):
            raise ConfigError(f"{text} has messages, which need --recover; name fields of texts")
        print(prune(texts=plain, **options))
        return True
    from headsweep.recovery.prune import prune_and_recover

    if texts is None:
        raise ConfigError("--recover trains on texts; name their file: --text FILE.jsonl")
    if options.pop("heads") or options.pop("accuracy") or options["form"] == "zeroed":
        raise ConfigError(
            "--recover removes a ratio of heads for good; give --ratio, and neither --accuracy "
            "nor --zero"
        )
    options["uniform"] = options.pop("form") == "uniform"
    others = read_texts(held_out, fields) if held_out else None
    questions = _benchmark(**asked)
    done = prune_and_recover(
        texts=texts, held_out=others, benchmark=questions, control=control, **options
    )
    if done:
        print(done)
    return done is not None


def _benchmark(
    benchmark: Path | None, grader: Grader | None, n: int | None, max_new_tokens: int | None
) -> "Benchmark | None":
    from headsweep.recovery.benchmark import read_benchmark

    if benchmark is None:
        if grader or n or max_new_tokens:
            raise ConfigError(
                "--grader, -n and --max-new-tokens are about questions; name their "
                "file: --benchmark FILE.jsonl"
            )
        return None
    if grader is None:
        known = ", ".join(get_args(Grader))
        raise ConfigError(f"say how answers to {benchmark} are compared, --grader: {known}")
    return read_benchmark(benchmark, grader, n, max_new_tokens or _MOST_TOKENS)


def _names(text: str) -> list[str]:
    return [name.strip() for name in text.split(",")]
