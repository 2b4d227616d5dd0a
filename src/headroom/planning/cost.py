"""What a config will cost, before anything starts: jobs, tokens, GPU hours, disk.

Estimates, not measurements.

Generation: a decoding step reads all weights once for the whole batch and each sequence's keys and
values, and costs some time to launch whatever the model's size. Assumed are the answer lengths
below, a GPU of 2 TB/s (an A100 with 80 GB) used at half its peak, and 25 ms a step for launching.

Training: a step takes about six floating-point operations for each weight and token, its teacher
two more. A GPU is assumed to do 20 TFLOP/s of them, and to need 0.2 s a step for launching what a
solver's expansions are made of. Testing on the development part after each epoch takes half as long
again.
"""

import math
from collections.abc import Iterator, Mapping
from typing import NamedTuple

from headroom.config import Config, Model, Study
from headroom.config.compression import Compression, Training
from headroom.planning.batches import Batch, batches, without_numeric

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

ROWS = {"asdiv_a": 1_217, "math23k": 23_162}
"""Rows of each dataset of word problems."""

_UNKNOWN_SIZE = 1_000
"""Assumed for questions whose number the config does not state."""

_CPU_FACTOR = 50  # a CPU reads its memory at about 20 GB/s
_START_SECONDS = 30.0  # start of a job and loading of a model

_BYTES_A_SECOND = 1e12  # half the peak of 2 TB/s
_DECODING_LAUNCH = 0.025  # seconds of Python and kernel launches in one step
_HEAD_DIM = 128
_DISK_BYTES_A_TOKEN = 4.0  # token id and text, compressed
_GPU_GIGABYTES = 80
_SHARE_OF_WEIGHTS = 0.6  # the rest of a GPU holds keys, values and activations

_TEXT_TOKENS = 35
_FLOPS = 2e13
_TRAINING_LAUNCH = 0.2  # seconds
_PASSES = 8  # six of the student, two of its teacher, a weight and token
_DEVELOPMENT = 1.5
_SMALL = 5e6  # parameters below which a GPU is no gain
_BASE, _LARGE = 1.8e8, 4.5e8  # parameters of a solver on an encoder of the hub


class Cost(NamedTuple):
    """The estimated cost of a batch's answers, or of a compression's trainings."""

    jobs: int
    answers: int
    """None are counted for trainings."""
    tokens: float
    gpu_hours: float
    disk_gigabytes: float
    """Of answers, or of weights that are kept."""


class Request(NamedTuple):
    """What one job asks a cluster for, at its first attempt."""

    gpus: int
    megabytes: int
    """Main memory: the weights pass through it, and a model on a CPU works in it."""
    minutes: int
    """Twice the estimated time, and a start."""


def generation_cost(config: Config, batch: Batch) -> Cost:
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
    seconds = steps * (_DECODING_LAUNCH + step_bytes / _BYTES_A_SECOND)
    jobs = len(batch.variants)
    return Cost(
        jobs=jobs,
        answers=answers,
        tokens=tokens,
        gpu_hours=(seconds + jobs * _START_SECONDS) / 3600,
        disk_gigabytes=tokens * _DISK_BYTES_A_TOKEN / 1e9,
    )


def generation_seconds(config: Config, batch: Batch) -> float:
    """Return the seconds that a GPU takes for the answers of a batch, starts not counted."""
    expected = generation_cost(config, batch)
    return 3600 * expected.gpu_hours - _START_SECONDS * expected.jobs


def generation_request(config: Config, batch: Batch) -> Request:
    """Return what a job of a batch asks a cluster for; it follows the model's size."""
    model = config.models[batch.model]
    weights = model.billions * _width(model)  # GB
    seconds = generation_seconds(config, batch) / len(batch.variants)
    if model.device == "cpu":
        gpus, seconds = 0, _CPU_FACTOR * seconds
    elif model.device == "balanced":
        gpus = math.ceil(weights / (_SHARE_OF_WEIGHTS * _GPU_GIGABYTES))
    else:
        gpus = 1
    return Request(gpus, int(4000 + 2500 * weights), math.ceil(5 + 2 * seconds / 60))


def answer_length(config: Config, batch: Batch) -> int:
    """Return the assumed mean length of a batch's answers, in tokens."""
    benchmark = config.questions[batch.questions].benchmark
    return min(ANSWER_TOKENS[benchmark], config.decodings[batch.decoding].max_new_tokens)


def training_cost(config: Config, compression: str) -> Cost:
    """Estimate what the trainings of a compression cost: of the solvers, and of all arms."""
    study = config.compressions[compression]
    recipe = _recipe(config, study)
    recipes = [own.training for own in study.settings.values() if own.rounds]
    recipes = (recipes + ([recipe] if recipe else [])) * len(study.seeds)
    seconds = sum(_seconds(config, study, each) + _START_SECONDS for each in recipes)
    return Cost(
        jobs=len(recipes),
        answers=0,
        tokens=sum(each.epochs for each in recipes) * _tokens(config, study),
        gpu_hours=seconds / 3600,
        disk_gigabytes=4e-9 * parameters(config, study) * len(recipes),
    )


def training_seconds(config: Config, study: Study, settings: Compression | None = None) -> float:
    """Return the seconds that a GPU takes for an arm of a compression, or for its solver."""
    recipe = settings.training if settings else _recipe(config, study) or study.method.training
    return _seconds(config, study, recipe)


def training_request(config: Config, study: Study, settings: Compression | None = None) -> Request:
    """Return what one job of a compression asks a cluster for.

    Args:
        config: the run's.
        study: what is compressed.
        settings: of the arm; None: the training of the solver, or what comes after the arms.
    """
    size = parameters(config, study)
    on_gpu = size > _SMALL and (study.model is None or config.models[study.model].device != "cpu")
    seconds = training_seconds(config, study, settings) * (1 if on_gpu else _CPU_FACTOR)
    megabytes = 8000 + 30 * size / 1e6  # weights, gradients, moments, teacher; a text's activations
    return Request(int(on_gpu), int(megabytes), math.ceil(10 + 2 * seconds / 60))


def parameters(config: Config, study: Study) -> float:
    """Return about how many parameters are trained; an encoder's size follows from its name."""
    if study.model is not None:
        return config.models[study.model].billions * 1e9
    encoder = config.solver_of(study).encoder
    if encoder.source is not None:
        return _LARGE if "large" in encoder.source else _BASE
    # A small one, 3,000 words, and the head: eight layers more.
    layer = 4 * encoder.width**2 + 2 * encoder.width * encoder.intermediate
    return (encoder.layers + 8) * layer + 3000 * encoder.width


def describe(config: Config) -> str:
    """Return tables of the generation and the trainings that a config asks for.

    Each has its total and says what it assumes.
    """
    asked = batches(config)
    answered = {tuple(batch.names.values()): generation_cost(config, batch) for batch in asked}
    lengths = sorted({answer_length(config, batch) for batch in asked})
    lines = [
        f"run {config.run!r}: what generation costs (finished answers in the store cost nothing)",
        "",
        *_table(("model", "decoding", "questions"), answered),
        "",
        f"Assumed: answers of {', '.join(map(str, lengths))} tokens on average, one GPU of 2 TB/s "
        "at half its peak,",
        "25 ms a step for launching it, 30 s to start each job. A CPU takes far longer, except for "
        "the embedded reasoner.",
    ]
    lacking = without_numeric(config)
    if lacking:
        lines += [
            "",
            f"No numeric placebos in half precision: {', '.join(lacking)}. What decoding again in "
            "other batches",
            "changes will not be known; `placebos: numeric` or `both` finds it out.",
        ]
    if config.compressions:
        trained: dict[tuple[str, ...], Cost] = {
            (name,): training_cost(config, name) for name in config.compressions
        }
        lines += [
            "",
            f"run {config.run!r}: what compression costs, at most (finished arms cost nothing)",
            "",
            *_table(("compression",), trained, without="answers"),
            "",
            "Assumed: a GPU that does 20 TFLOP/s, 0.2 s a step for launching it, 30 s to start "
            "each job.",
            "Small solvers from scratch want none: a core trains tiny on ASDiv-A in minutes.",
        ]
    return "\n".join(lines)


_COLUMNS = {
    "jobs": (5, lambda cost: f"{cost.jobs:,}"),
    "answers": (9, lambda cost: f"{cost.answers:,}"),
    "M tokens": (9, lambda cost: f"{cost.tokens / 1e6:,.1f}"),
    "GPU h": (7, lambda cost: f"{cost.gpu_hours:,.1f}"),
    "disk GB": (8, lambda cost: f"{cost.disk_gigabytes:,.2f}"),
}
"""Widths of the columns of costs, and what stands there."""


def _table(
    titles: tuple[str, ...], costs: Mapping[tuple[str, ...], Cost], without: str = ""
) -> Iterator[str]:
    """Yield the lines of a table: titles, a line a cost behind its names, and their total."""
    widths = [max(map(len, column)) for column in zip(titles, *costs, strict=True)]
    columns = {title: column for title, column in _COLUMNS.items() if title != without}
    total = Cost(*map(sum, zip(*costs.values(), strict=True))) if costs else Cost(0, 0, 0, 0, 0)
    last = ("total", *[""] * (len(titles) - 1))
    for row, cost in [(titles, None), *costs.items(), (last, total)]:
        cells = [f"{name:<{width}}" for name, width in zip(row, widths, strict=True)]
        for title, (width, shown) in columns.items():
            cells.append(f"{shown(cost) if cost else title:>{width}}")
        yield " ".join(cells)


def _width(model: Model) -> int:
    """Return the bytes of a weight."""
    return 4 if model.dtype == "float32" else 2


def _recipe(config: Config, study: Study) -> Training | None:
    """Return how a solver is trained before it is compressed; None for a model."""
    return None if study.solver is None else config.solver_of(study).training


def _seconds(config: Config, study: Study, training: Training) -> float:
    rows, _ = _training_part(config, study)
    flops = _PASSES * parameters(config, study) * _tokens(config, study)
    launches = math.ceil(rows / training.batch_size) * _TRAINING_LAUNCH
    return training.epochs * _DEVELOPMENT * (launches + flops / _FLOPS)


def _tokens(config: Config, study: Study) -> float:
    return math.prod(_training_part(config, study))


def _training_part(config: Config, study: Study) -> tuple[int, int]:
    """Return the rows of a training part, and the tokens of each."""
    if study.train is not None:
        questions = config.questions[study.train]
        return questions.n or _UNKNOWN_SIZE, _TEXT_TOKENS + ANSWER_TOKENS[questions.benchmark]
    problems = config.problems[str(study.data)]
    return problems.n or ROWS[problems.dataset], _TEXT_TOKENS
