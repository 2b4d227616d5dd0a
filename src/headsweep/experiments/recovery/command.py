"""`headsweep prune`: does what its command line asks for.

Heavy modules are imported where they are needed, so that the command line starts fast.
"""

from argparse import Namespace
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, get_args

from headsweep.choices import BenchmarkGrader
from headsweep.errors import ConfigError
from headsweep.experiments.recovery.settings import TRAINING, Recovery
from headsweep.telling import told

if TYPE_CHECKING:
    from headsweep.experiments.compression.pruning import Pruned
    from headsweep.experiments.recovery.benchmark import Benchmark
    from headsweep.experiments.recovery.prune import Recovered
    from headsweep.experiments.recovery.texts import Text

_MEASURED = ("held_out", "control", "benchmark", "grader", "n", "max_new_tokens")
"""Options of what is measured after a recovery."""
_MOST_TOKENS = 512


def prune_as_asked(**options: Any) -> None:
    """Prune a model as `headsweep prune` was asked to, and print what came out.

    The options are those of `headsweep.experiments.recovery.options`, by name.
    """
    from headsweep.experiments.recovery.texts import read_texts

    args = Namespace(**options)
    texts = read_texts(args.text, args.fields) if args.text else None
    done = _recover(args, texts) if args.recover else _remove(args, texts)
    if done is None:  # the first of several processes has the result
        return
    print(done)


def _remove(args: Namespace, texts: "Sequence[Text] | None") -> "Pruned":
    """Remove heads at once."""
    with told("beginning"):  # slow to import
        from headsweep.experiments.compression.pruning import prune

    given = [name for name in TRAINING if name in args]
    given += [name for name in _MEASURED if getattr(args, name)]
    if given:
        option = "-n" if given[0] == "n" else f"--{given[0].replace('_', '-')}"
        raise ConfigError(f"{option} is about training; add --recover")
    plain = [text for text in texts or () if isinstance(text, str)]
    if texts and len(plain) < len(texts):
        raise ConfigError(f"{args.text} has messages, which need --recover; name fields of texts")
    with told("removing heads"):
        return prune(
            args.source,
            args.out,
            heads=args.heads,
            ratio=args.ratio,
            form=args.form,
            criterion=args.criterion or "norm",
            texts=plain,
            accuracy=args.accuracy,
            alpha=args.alpha,
            seed=args.seed,
            scope=args.scope,
            unit=args.unit,
            revision=args.revision,
            device=args.device,
        )


def _recover(args: Namespace, texts: "Sequence[Text] | None") -> "Recovered | None":
    """Remove heads in rounds, and train the rest."""
    with told("beginning"):  # slow to import
        from headsweep.experiments.recovery.prune import prune_and_recover
        from headsweep.experiments.recovery.texts import read_texts

    if texts is None:
        raise ConfigError("--recover trains on texts; name their file: --text FILE.jsonl")
    if args.heads or args.accuracy or args.form == "zeroed":
        raise ConfigError(
            "--recover removes a ratio of heads for good; give --ratio, and neither --accuracy "
            "nor --zero"
        )
    held_out = read_texts(args.held_out, args.fields) if args.held_out else None
    benchmark = _benchmark(args.benchmark, args.grader, args.n, args.max_new_tokens)
    return prune_and_recover(
        args.source,
        args.out,
        texts,
        held_out=held_out,
        revision=args.revision,
        device=args.device,
        benchmark=benchmark,
        control=args.control,
        ratio=args.ratio,
        criterion=args.criterion or Recovery.model_fields["criterion"].default,
        alpha=args.alpha,
        scope=args.scope,
        unit=args.unit,
        uniform=args.form == "uniform",
        seed=args.seed,
        **{name: getattr(args, name) for name in TRAINING if name in args},
    )


def _benchmark(
    file: Path | None, grader: BenchmarkGrader | None, n: int | None, max_new_tokens: int | None
) -> "Benchmark | None":
    """Read the questions that models answer in the end."""
    from headsweep.experiments.recovery.benchmark import read_benchmark

    if file is None:
        if grader or n or max_new_tokens:
            raise ConfigError(
                "--grader, -n and --max-new-tokens are about questions; name their "
                "file: --benchmark FILE.jsonl"
            )
        return None
    if grader is None:
        graders = ", ".join(get_args(BenchmarkGrader))
        raise ConfigError(f"say how answers to {file} are compared, --grader: {graders}")
    return read_benchmark(file, grader, n, max_new_tokens or _MOST_TOKENS)
