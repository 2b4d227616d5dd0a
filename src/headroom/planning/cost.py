"""What a config will cost, before anything starts: jobs, questions, tokens, GPU hours, disk.

An estimate, not a measurement. A decoding step reads all weights once for the whole batch and each
sequence's keys and values, and costs some time to launch whatever the model's size. Assumed are
the answer lengths below, a GPU of 2 TB/s (an A100 with 80 GB) used at half its peak, and 25 ms a
step for launching.
"""

import math
from dataclasses import dataclass

from headroom.config import Config, Model
from headroom.plan import Batch, batches

ANSWER_TOKENS = {
    "math500": 550,
    "math_train": 550,
    "gsm8k": 300,
    "generated_math": 45,
    "generated_gsm8k": 45,
    "custom": 400,
}
"""Mean length of an answer, assumed; the limit of the decoding caps it."""

SPLIT_SIZES = {
    ("math500", "test"): 500,
    ("math_train", "train"): 12_000,
    ("gsm8k", "train"): 7_473,
    ("gsm8k", "test"): 1_319,
}
"""Questions of each split, where the config asks for all of them."""

_UNKNOWN_SIZE = 1_000
"""Assumed for a custom benchmark whose number of questions the config does not state."""

_BYTES_A_SECOND = 1e12  # half the peak of 2 TB/s
_LAUNCH_SECONDS = 0.025  # Python and kernel launches of one step
_HEAD_DIM = 128
_DISK_BYTES_A_TOKEN = 4.0  # token id and text, compressed
_START_SECONDS = 30.0  # start of a job and loading of a model
_CPU_FACTOR = 50  # a CPU reads its memory at about 20 GB/s
_GPU_GIGABYTES = 80
_SHARE_OF_WEIGHTS = 0.6  # the rest of a GPU holds keys, values and activations


@dataclass(frozen=True)
class Cost:
    """The estimated cost of one batch."""

    jobs: int
    answers: int
    tokens: int
    gpu_hours: float
    disk_gigabytes: float


@dataclass(frozen=True)
class Request:
    """What one `generate` job asks a cluster for, at its first attempt."""

    gpus: int
    megabytes: int
    """Main memory: the weights pass through it, and a model on a CPU works in it."""
    minutes: int
    """Twice the estimated time, and a start."""


def request(config: Config, batch: Batch) -> Request:
    """Return what a job of a batch asks a cluster for; it follows the model's size."""
    model = config.models[batch.model]
    weights = model.billions * _width(model)  # GB
    seconds = generating(config, batch) / len(batch.variants)
    if model.device == "cpu":
        gpus, seconds = 0, _CPU_FACTOR * seconds
    elif model.device == "balanced":
        gpus = math.ceil(weights / (_SHARE_OF_WEIGHTS * _GPU_GIGABYTES))
    else:
        gpus = 1
    return Request(gpus, int(4000 + 2500 * weights), math.ceil(5 + 2 * seconds / 60))


def generating(config: Config, batch: Batch) -> float:
    """Return the seconds that a GPU takes for the answers of a batch, starts not counted."""
    expected = cost(config, batch)
    return 3600 * expected.gpu_hours - _START_SECONDS * expected.jobs


def cost(config: Config, batch: Batch) -> Cost:
    """Estimate what generating one batch costs."""
    model = config.models[batch.model]
    decoding = config.decodings[batch.decoding]
    questions = config.questions[batch.questions]
    rows = questions.n or SPLIT_SIZES.get((questions.benchmark, questions.split), _UNKNOWN_SIZE)
    length = answer_length(config, batch)
    answers = rows * decoding.samples * len(batch.variants)
    tokens = answers * length
    width = _width(model)
    cached = 2 * model.layers * model.kv_heads * _HEAD_DIM * width * length
    step_bytes = model.billions * 1e9 * width + model.batch_size * cached
    steps = tokens / model.batch_size
    seconds = steps * (_LAUNCH_SECONDS + step_bytes / _BYTES_A_SECOND)
    jobs = len(batch.variants)
    return Cost(
        jobs=jobs,
        answers=answers,
        tokens=tokens,
        gpu_hours=(seconds + jobs * _START_SECONDS) / 3600,
        disk_gigabytes=tokens * _DISK_BYTES_A_TOKEN / 1e9,
    )


def describe(config: Config) -> str:
    """Return a table of the generation that a config asks for, with its total and assumptions."""
    rows = [(batch, cost(config, batch)) for batch in batches(config)]
    lines = [
        f"run {config.run!r}: what generation costs (finished answers in the store cost nothing)",
        "",
        f"{'model':<20} {'decoding':<9} {'questions':<12} {'jobs':>5} {'answers':>9} "
        f"{'M tokens':>9} {'GPU h':>7} {'disk GB':>8}",
    ]
    lines += [_row(batch.model, batch.decoding, batch.questions, each) for batch, each in rows]
    total = Cost(
        jobs=sum(each.jobs for _, each in rows),
        answers=sum(each.answers for _, each in rows),
        tokens=sum(each.tokens for _, each in rows),
        gpu_hours=sum(each.gpu_hours for _, each in rows),
        disk_gigabytes=sum(each.disk_gigabytes for _, each in rows),
    )
    lengths = sorted({answer_length(config, batch) for batch, _ in rows})
    lines += [
        _row("total", "", "", total),
        "",
        f"Assumed: answers of {', '.join(map(str, lengths))} tokens on average, one GPU of 2 TB/s "
        "at half its peak,",
        "25 ms a step for launching it, 30 s to start each job. A CPU takes far longer, except for "
        "the embedded reasoner.",
    ]
    return "\n".join(lines)


def answer_length(config: Config, batch: Batch) -> int:
    """Return the assumed mean length of a batch's answers, in tokens."""
    benchmark = config.questions[batch.questions].benchmark
    return min(ANSWER_TOKENS[benchmark], config.decodings[batch.decoding].max_new_tokens)


def _width(model: Model) -> int:
    """Return the bytes of a weight."""
    return 4 if model.dtype == "float32" else 2


def _row(model: str, decoding: str, questions: str, each: Cost) -> str:
    return (
        f"{model:<20} {decoding:<9} {questions:<12} {each.jobs:>5,} {each.answers:>9,} "
        f"{each.tokens / 1e6:>9,.1f} {each.gpu_hours:>7,.1f} {each.disk_gigabytes:>8,.2f}"
    )
