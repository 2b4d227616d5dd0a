"""What `sweep`, `map` and `try` are asked: a model, a benchmark and a prompt, as a config has them.

Heavy modules are imported inside functions, because the command line imports this module.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, get_args

from headsweep.choices import BenchmarkGrader
from headsweep.cli.own_prompt import described_prompt
from headsweep.config import Config, parse
from headsweep.config.questions import Benchmark, Dtype
from headsweep.errors import ConfigError
from headsweep.files.plain_files import expanded
from headsweep.telling import told

MODEL, QUESTION_SET = "model", "questions"
"""Names in the configs that are made here."""
_GENERATED_QUESTIONS = 200


@dataclass(frozen=True, kw_only=True)
class Asked:
    """A model, a benchmark and a prompt, as a command line or a Python call names them.

    Args:
        model: hub id, folder in the hub's format, or GGUF file
        benchmark: math500, math_train, gsm8k, generated_math, generated_gsm8k, a .csv or .jsonl
            file, or a dataset on the hub
        revision: commit hash of a model on the hub (default: the newest, or the newest in the
            cache)
        split: split of the benchmark
        n: how many questions (default: all, or 200 of a generated benchmark)
        file: a file with the rows of a benchmark by name, .jsonl or .csv, in place of the hub
        columns: your own benchmark: names of the columns ``question``, ``answer``, and optionally
            ``id``, ``subject``, ``level``, ``solution``
        grader: your own benchmark: how answers are compared (default: math)
        benchmark_revision: commit hash of a dataset on the hub
        prompt_file: a prompt of your own, in YAML (see below)
        examples: rows of the benchmark, numbered from 0, that the prompt shows solved; they are not
            asked
        max_new_tokens: token limit of an answer
        dtype: type of weights and activations (default: bfloat16 on a GPU, else float32)
        device: auto, cpu, cuda, cuda:1, or balanced over all GPUs
        batch_size: sequences decoded together; changes speed and memory only (in float32)
    """

    model: str | Path
    benchmark: str | Path
    revision: str | None = None
    split: str = "test"
    n: int | None = None
    file: str | Path | None = None
    columns: Mapping[str, str] | None = None
    grader: BenchmarkGrader | None = None
    benchmark_revision: str | None = None
    prompt_file: str | Path | None = None
    examples: Sequence[int] | None = None
    max_new_tokens: int = 2048
    dtype: Dtype | None = None
    device: str = "auto"
    batch_size: int | None = None

    @property
    def questions(self) -> dict[str, Any]:
        """The config section of the benchmark, with the keys that are given.

        A benchmark by name may be read from a file; rows that are examples are not asked.

        Raises:
            ConfigError: there is no such benchmark.
        """
        section: dict[str, Any] = {"split": self.split, "leave_out": list(self.examples or ())}
        if self.columns:
            section["columns"] = dict(self.columns)
        options = {"n": self.n, "grader": self.grader, "revision": self.benchmark_revision}
        section |= {key: value for key, value in options.items() if value is not None}
        benchmark = str(self.benchmark)
        if benchmark in get_args(Benchmark) and benchmark != "custom":
            if self.file is not None:
                section["file"] = str(expanded(self.file).absolute())
            size = {"n": _GENERATED_QUESTIONS} if benchmark.startswith("generated_") else {}
            return {"benchmark": benchmark, **size, **section}
        if self.file is not None:
            raise ConfigError(
                f"--file {self.file} holds the rows of a benchmark by name, as math500 or gsm8k, "
                f"and not of {benchmark!r}; give your own table as the benchmark itself"
            )
        if Path(benchmark).suffix in (".csv", ".jsonl", ".gz"):
            return {**section, "benchmark": "custom", "file": str(expanded(benchmark).absolute())}
        if expanded(benchmark).is_file():
            raise ConfigError(
                f"benchmark {benchmark!r} is a file that is not read; files end in .csv or .jsonl, "
                f"or in one of them with .gz, in small letters: convert it, or rename it"
            )
        if re.fullmatch(r"[\w.-]+/[\w.-]+", benchmark):
            return {**section, "benchmark": "custom", "dataset": benchmark}
        names = ", ".join(name for name in get_args(Benchmark) if name != "custom")
        raise ConfigError(
            f"benchmark {benchmark!r} is not known; choose {names}, a .csv or .jsonl file, or a "
            f"dataset on the hub (owner/name)"
        )

    def greedy(self) -> dict[str, Any]:
        """Return the config section of a greedy decoding, with the prompt of one's own.

        Raises:
            ConfigError, BenchmarkError: what `described_prompt` raises.
        """
        prompt = described_prompt(self.questions, self.prompt_file, self.examples)
        return {"max_new_tokens": self.max_new_tokens, **prompt}

    def config(
        self, run: str, decodings: Mapping[str, Any], experiments: Mapping[str, Any]
    ) -> Config:
        """Return the config of a run, given two of its parts; experiments are by their section.

        Raises:
            HeadsweepError: what is asked for cannot be; first all that needs no model.
        """
        values: dict[str, Any] = {
            "run": run,
            "papers": False,
            "questions": {QUESTION_SET: self.questions},
            "decodings": decodings,
        }
        check_before_fetching(values, run)
        source = str(self.model)
        with told(f"looking at {Path(source).name}"):
            described = described_model(source, self.revision, self.dtype, self.device)
        values["models"] = {MODEL: {**described, "batch_size": self.batch_size}}
        return parse({**values, **experiments}, run)


def check_before_fetching(values: dict[str, Any], origin: str) -> None:
    """Refuse config values that are wrong without a model, which may take long to fetch.

    Raises:
        HeadsweepError: a section cannot be, a file is missing, or a dataset is not pinned.
    """
    from headsweep.store.revisions import resolve

    resolve(parse(values, origin))


def described_model(
    source: str, revision: str | None, dtype: Dtype | None, device: str
) -> dict[str, Any]:
    """Return the config section of a model; fetch it if it is on the hub.

    Without a dtype it is bfloat16 where there is a GPU to use, else float32.
    """
    import torch

    from headsweep.machine.processors import has_gpu
    from headsweep.models import source as files

    local = Path(source).exists() or files.local_folder(source)
    folder = files.fetch_model(source, revision, or_file=True)
    gpu = device != "cpu" and has_gpu() and torch.version.cuda is not None
    return {
        # A snapshot's folder is named by its commit.
        "source": str(folder.absolute()) if local else source,
        "revision": revision if local else folder.name,
        **files.stated_geometry(folder),
        "billions": files.count_parameters(folder) / 1e9,
        "title": _name_of(source),
        "dtype": dtype or ("bfloat16" if gpu else "float32"),
        "device": device,
    }


def _name_of(source: str) -> str:
    """Return what to call a model: the last part of its hub id, or of its path."""
    name = Path(source).name.rpartition(":")[2]
    return name.removesuffix(".gguf") or source
