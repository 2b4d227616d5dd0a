"""What decoders can still do: the same questions answered greedily by each, graded and compared."""

import hashlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from jaxtyping import Bool
from pydantic import ValidationError
from transformers import PreTrainedModel

from headsweep.benchmarks.draws import draw
from headsweep.benchmarks.prompts import check_prompts
from headsweep.benchmarks.sources import read_source
from headsweep.choices import BenchmarkGrader
from headsweep.config import Decoding, Questions
from headsweep.engine.refusals import check_kind
from headsweep.errors import ConfigError
from headsweep.experiments.compression.decoder import DecoderLearner, to_answer
from headsweep.models.checkpoints import stated_config
from headsweep.models.load import as_loaded, load_tokenizer
from headsweep.statistics.intervals import Estimate, paired_interval, wilson

Right = Bool[np.ndarray, " questions"]
"""Which questions a decoder answers correctly."""


class Benchmark(NamedTuple):
    """Questions, and how they are answered and graded."""

    questions: pd.DataFrame  # as `tables.QUESTIONS`
    grader: BenchmarkGrader
    decoding: Decoding

    @property
    def digest(self) -> str:
        """16 hex digits that tell it from others."""
        whole = self.questions.to_json() + self.grader + self.decoding.model_dump_json()
        return hashlib.sha256(whole.encode()).hexdigest()[:16]


def read_benchmark(
    file: Path, grader: BenchmarkGrader, n: int | None, max_new_tokens: int
) -> Benchmark:
    """Return n questions of a .csv or .jsonl file with the columns question and answer, or all.

    Raises:
        ConfigError, BenchmarkError: one line that says what is wrong.
    """
    if not file.is_file():
        raise ConfigError(f"{file} is no file; name a .csv or .jsonl file of questions")
    values = {"benchmark": "custom", "split": "test", "file": str(file), "grader": grader, "n": n}
    try:
        section = Questions.model_validate(values)
    except ValidationError as error:
        raise ConfigError(f"benchmark {file}: {error.errors()[0]['msg']}") from None
    drawn = draw(read_source(section), section, None)
    return Benchmark(drawn, grader, Decoding(max_new_tokens=max_new_tokens))


def check_answerable(folder: Path, benchmark: Benchmark) -> None:
    """Refuse, before any training, what could not be answered after it.

    Raises:
        ModelError: the decoder of the folder, or a question's prompt, is one that the engine
            refuses.
        BenchmarkError: a question has no text.
    """
    check_kind(stated_config(folder))
    texts = {question.question_id: question.text for question in to_answer(benchmark.questions)}
    check_prompts(folder, texts, benchmark.decoding, benchmark.grader)


def answered(model: PreTrainedModel, folder: Path, benchmark: Benchmark) -> Right:
    """Let a decoder answer the questions, with the tokenizer of a folder, and grade its answers."""
    loaded = as_loaded(model, load_tokenizer(folder), folder)
    decoder = DecoderLearner(loaded, folder.name, benchmark.decoding, benchmark.grader)
    verdicts = decoder.verdicts(decoder.prepare(to_answer(benchmark.questions)))
    return np.array([verdict.strict for verdict in verdicts])


def accuracies(right: Mapping[str, Right]) -> dict[str, dict[str, Any]]:
    """Return each decoder's accuracy, and its differences to `before` and, recovered, `control`."""
    results: dict[str, dict[str, Any]] = {}
    for name, answers in right.items():
        result: dict[str, Any] = {"accuracy": _share(answers)._asdict(), "right": answers.tolist()}
        if name != "before":
            result["gain"] = _difference(answers, right["before"])._asdict()
        if name == "recovered" and "control" in right:
            result["gain_on_control"] = _difference(answers, right["control"])._asdict()
        results[name] = result
    return results


def _share(right: Right) -> Estimate:
    """Return the share of right answers, with Wilson's interval."""
    low, high = wilson(right.sum(), np.array(len(right)))
    return Estimate(float(right.mean()), float(low), float(high))


def _difference(right: Right, other: Right) -> Estimate:
    """Return the difference of two shares on the same questions, with an interval of pairs."""
    differences = (right.astype(float) - other.astype(float))[:, None]
    low, high = paired_interval(differences)
    return Estimate(float(differences.mean()), float(low[0]), float(high[0]))
