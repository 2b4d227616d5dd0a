"""What training and compressing will cost, before anything starts: texts, hours, disk.

An estimate, as `headroom.estimate`. A step of training takes about six floating-point operations
for each weight and token, its teacher two more; a GPU is assumed to do 20 TFLOP/s of them, and to
need 0.2 s a step for launching what a solver's expansions are made of. Looking at the development
part after each epoch takes half as long again.
"""

import math
from dataclasses import dataclass

from headroom.config import Config, Study
from headroom.config.compression import Compression, Encoder, Training
from headroom.estimate import ANSWER_TOKENS, Request

ROWS = {"asdiv_a": 1_217, "math23k": 23_162}
"""Rows of each dataset of word problems."""

_TEXTS = 70_000  # SST-2 has 67,349, SQuAD 87,599
_TEXT_TOKENS = 35
_FLOPS = 2e13
_LAUNCH_SECONDS = 0.2
_PASSES = 8  # six of the student, two of its teacher, a weight and token
_DEVELOPMENT = 1.5
_CPU_FACTOR = 50
_START_SECONDS = 30.0
_SMALL = 5e6  # parameters below which a GPU is no gain
_BASE, _LARGE = 1.8e8, 4.5e8  # parameters of a solver on an encoder of the hub


@dataclass(frozen=True)
class TrainingCost:
    """The estimated cost of the trainings of one compression."""

    jobs: int
    tokens: float
    gpu_hours: float
    disk_gigabytes: float
    """Of the weights that are kept."""


def request(config: Config, study: Study, settings: Compression | None = None) -> Request:
    """Return what one job asks a cluster for, at its first attempt.

    Args:
        config: the run's.
        study: what is compressed.
        settings: of the arm; None: the training of the solver, or what comes after the arms.
    """
    size = parameters(config, study)
    on_gpu = size > _SMALL and (study.model is None or config.models[study.model].device != "cpu")
    seconds = training(config, study, settings) * (1 if on_gpu else _CPU_FACTOR)
    megabytes = 8000 + 30 * size / 1e6  # weights, gradients, moments, teacher; a text's activations
    return Request(int(on_gpu), int(megabytes), math.ceil(10 + 2 * seconds / 60))


def training(config: Config, study: Study, settings: Compression | None = None) -> float:
    """Return the seconds that a GPU takes for an arm of a compression, or for its solver."""
    recipe = settings.training if settings else _recipe(config, study) or study.method.training
    return _seconds(config, study, recipe)


def training_cost(config: Config, compression: str) -> TrainingCost:
    """Estimate what the trainings of a compression cost: of the solvers, and of all arms."""
    study = config.compressions[compression]
    recipe = _recipe(config, study)
    recipes = [own.training for own in study.settings.values() if own.rounds]
    recipes = (recipes + ([recipe] if recipe else [])) * len(study.seeds)
    seconds = sum(_seconds(config, study, each) + _START_SECONDS for each in recipes)
    return TrainingCost(
        jobs=len(recipes),
        tokens=sum(each.epochs for each in recipes) * _tokens(config, study),
        gpu_hours=seconds / 3600,
        disk_gigabytes=4e-9 * parameters(config, study) * len(recipes),
    )


def parameters(config: Config, study: Study) -> float:
    """Return about how many parameters is trained; an encoder's size follows from its name."""
    if study.model is not None:
        return config.models[study.model].billions * 1e9
    assert study.solver is not None and study.data is not None
    encoder = config.solvers[study.solver].on(config.dataset(study.data)).encoder
    if encoder.source is not None:
        return _LARGE if "large" in encoder.source else _BASE
    return _from_scratch(encoder)


def _from_scratch(encoder: Encoder) -> float:
    """Return the parameters of a small encoder, 3,000 words, and the head: eight layers more."""
    layer = 4 * encoder.width**2 + 2 * encoder.width * encoder.intermediate
    return (encoder.layers + 8) * layer + 3000 * encoder.width


def _recipe(config: Config, study: Study) -> Training | None:
    """Return how a solver is trained before it is compressed; None for a model."""
    if study.solver is None or study.data is None:
        return None
    return config.solvers[study.solver].on(config.dataset(study.data)).training


def _seconds(config: Config, study: Study, training: Training) -> float:
    steps = math.ceil(_rows(config, study) / training.batch_size)
    flops = _PASSES * parameters(config, study) * _tokens(config, study)
    return training.epochs * _DEVELOPMENT * (steps * _LAUNCH_SECONDS + flops / _FLOPS)


def _rows(config: Config, study: Study) -> int:
    if study.model is not None:
        assert study.train is not None
        return config.questions[study.train].n or 1_000
    assert study.data is not None
    if study.data in config.texts:
        return config.texts[study.data].n or _TEXTS
    problems = config.problems[study.data]
    return problems.n or ROWS[problems.dataset]


def _tokens(config: Config, study: Study) -> float:
    """Return the tokens of a training part."""
    length = _TEXT_TOKENS
    if study.train is not None:
        length += ANSWER_TOKENS[config.questions[study.train].benchmark]
    return _rows(config, study) * length


def describe(config: Config) -> str:
    """Return a table of the trainings that a config asks for, with its total and assumptions."""
    rows = [(name, training_cost(config, name)) for name in config.compressions]
    total = TrainingCost(
        jobs=sum(each.jobs for _, each in rows),
        tokens=sum(each.tokens for _, each in rows),
        gpu_hours=sum(each.gpu_hours for _, each in rows),
        disk_gigabytes=sum(each.disk_gigabytes for _, each in rows),
    )
    lines = [
        f"run {config.run!r}: what compression costs, at most (finished arms cost nothing)",
        "",
        f"{'compression':<30} {'jobs':>5} {'M tokens':>9} {'GPU h':>7} {'disk GB':>8}",
        *(_row(name, each) for name, each in [*rows, ("total", total)]),
        "",
        "Assumed: a GPU that does 20 TFLOP/s, 0.2 s a step for launching it, 30 s to start each "
        "job.",
        "Small solvers from scratch want none: a core trains tiny on ASDiv-A in minutes.",
    ]
    return "\n".join(lines)


def _row(name: str, each: TrainingCost) -> str:
    return (
        f"{name:<30} {each.jobs:>5,} {each.tokens / 1e6:>9,.1f} {each.gpu_hours:>7,.1f} "
        f"{each.disk_gigabytes:>8,.2f}"
    )
