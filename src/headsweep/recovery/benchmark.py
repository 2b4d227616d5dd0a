"""What decoders can still do: the same questions answered greedily by each, graded and compared."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from jaxtyping import Bool
from pydantic import ValidationError
from transformers import PreTrainedModel

from headsweep.benchmarks.sources import draw, read_source
from headsweep.compression.decoder import Decoder, to_answer
from headsweep.config import Decoding, Questions
from headsweep.config.questions import Grader
from headsweep.errors import ConfigError
from headsweep.models.load import as_loaded, load_tokenizer
from headsweep.statistics.intervals import paired_interval, wilson
from headsweep.text import part, percent, points

Right = Bool[np.ndarray, " questions"]
"""Which questions a decoder answers correctly."""


class Benchmark(NamedTuple):
    """Questions, and how they are answered and graded."""

    questions: pd.DataFrame  # as `tables.QUESTIONS`
    grader: Grader
    decoding: Decoding


def read_benchmark(file: Path, grader: Grader, n: int | None, max_new_tokens: int) -> Benchmark:
    """Return n questions of a .csv or .jsonl file with the columns question and answer, or all.

    Raises:
        ConfigError, BenchmarkError: one line that says what is wrong.
    """
    if not file.is_file():
        raise ConfigError(f"{file} is no file; name a .csv or .jsonl file of questions")
    asked = {"benchmark": "custom", "split": "test", "file": str(file), "grader": grader, "n": n}
    try:
        section = Questions.model_validate(asked)
    except ValidationError as error:
        raise ConfigError(f"benchmark {file}: {error.errors()[0]['msg']}") from None
    drawn = draw(read_source(section), section, None)
    return Benchmark(drawn, grader, Decoding(max_new_tokens=max_new_tokens))


def answered(model: PreTrainedModel, folder: Path, benchmark: Benchmark) -> Right:
    """Let a decoder answer the questions, with the tokenizer of a folder, and grade its answers."""
    loaded = as_loaded(model, load_tokenizer(folder), folder)
    decoder = Decoder(loaded, folder.name, benchmark.decoding, benchmark.grader)
    found = decoder.verdicts(decoder.prepare(to_answer(benchmark.questions)))
    return np.array([each.strict for each in found])


class Share(NamedTuple):
    """A share of right answers, with Wilson's 95% interval."""

    value: float
    low: float
    high: float

    def __str__(self) -> str:
        return f"{percent(self.value)} ({part(self.low)} to {part(self.high)})"


class Difference(NamedTuple):
    """A difference of shares on the same questions, with a 95% interval of their pairs."""

    value: float
    low: float
    high: float

    def __str__(self) -> str:
        return f"{points(self.value)} ({points(self.low)} to {points(self.high)})"


def accuracies(right: Mapping[str, Right]) -> dict[str, dict[str, Any]]:
    """Return each decoder's accuracy, and its differences to `before` and, recovered, `control`."""
    found: dict[str, dict[str, Any]] = {}
    for name, own in right.items():
        low, high = wilson(own.sum(), np.array(len(own)))
        found[name] = {"accuracy": Share(float(own.mean()), float(low), float(high))._asdict()}
        found[name]["right"] = own.tolist()
        if name != "before":
            found[name]["gain"] = _difference(own, right["before"])._asdict()
        if name == "recovered" and "control" in right:
            found[name]["gain_on_control"] = _difference(own, right["control"])._asdict()
    return found


def _difference(own: Right, other: Right) -> Difference:
    each = (own.astype(float) - other.astype(float))[:, None]
    low, high = paired_interval(each)
    return Difference(float(each.mean()), float(low[0]), float(high[0]))
