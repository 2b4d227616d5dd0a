"""What an arm starts from, learns and is tested on, and what it left: read from the store."""

import os
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import pandas as pd

from headroom import paths
from headroom.athena.solver import load_solver
from headroom.athena.storage import read_parts
from headroom.compression.decoder import Decoder, load_decoder
from headroom.compression.questions import to_answer, to_learn
from headroom.config import Config
from headroom.grading.matrix import accuracy_matrix, grade_answers
from headroom.models.learner import Learner
from headroom.models.load import load_model
from headroom.planning.arms import Arm, own_answers
from headroom.planning.store import Store
from headroom.record import intact, read_json
from headroom.tables import ANSWERS, QUESTIONS, read_table
from headroom.variants import BASE

_ANSWERS_A_WORKER = 10_000


class Parts(NamedTuple):
    """The parts of a dataset, not yet as a learner reads them."""

    train: Sequence[Any]
    dev: Sequence[Any]
    """Empty for a model that reasons in words."""
    test: Sequence[Any]


def lesson(config: Config, arm: Arm, seed: int) -> tuple[Learner, Parts]:
    """Return what an arm starts from, and the data that it is trained, looked at and tested on.

    A model that reasons in words learns its own right answers to the training questions. It comes
    with the accuracy matrix of all its heads on them if the arm asks for it.
    """
    study, learner = arm.study, start(config, arm, seed)
    if study.model is None:
        return learner, Parts(*read_parts(arm.data))
    assert study.train is not None and isinstance(learner, Decoder)
    train = _questions(config, study.train)
    files = own_answers(config, study, arm.every_head(config))
    answers = {variant: read_table(Path(file), ANSWERS) for variant, file in files.items()}
    # A process more takes as long to start as thousands of answers take.
    workers = min(len(os.sched_getaffinity(0)), 1 + len(answers) * len(train) // _ANSWERS_A_WORKER)
    graded = grade_answers(
        train, answers, family=learner.family, preset=config.grading, workers=workers
    )
    if len(answers) > 1:
        learner = replace(learner, matrix=accuracy_matrix(graded, train))
    learnt = to_learn(train, answers[str(BASE)], graded)
    return learner, Parts(learnt, [], tested_on(config, arm))


def tested_on(config: Config, arm: Arm) -> Sequence[Any]:
    """Return what an arm is tested on."""
    if arm.study.test is None:
        return read_parts(arm.data).test
    return to_answer(_questions(config, arm.study.test))


def start(config: Config, arm: Arm, seed: int) -> Learner:
    """Return what an arm starts from, with all heads, on the CPU."""
    study = arm.study
    if study.model is None:
        return load_solver(folder(config, arm, seed, pruned=False))
    assert study.train is not None
    loaded = load_model(str(folder(config, arm, seed, pruned=False)), device="cpu")
    decoding, family = config.decodings[study.decoding], config.questions[study.train].family
    name = config.models[study.model].source or study.model
    return replace(
        Decoder.of(loaded, name, decoding, family),
        grading=config.grading,
        batch_size=config.models[study.model].batch_size,
    )


def left(config: Config, arm: Arm, seed: int) -> Learner:
    """Return what an arm left, on the CPU; an arm without rounds leaves what it found."""
    if not arm.settings.rounds:
        return start(config, arm, seed)
    place = folder(config, arm, seed)
    if arm.study.model is None:
        return load_solver(place)
    learner = load_decoder(place, device="cpu")
    return replace(learner, batch_size=config.models[arm.study.model].batch_size)


def folder(config: Config, arm: Arm, seed: int, *, pruned: bool = True) -> Path:
    """Return the folder of what an arm left, or of what it starts from."""
    if pruned and arm.settings.rounds:
        intact(Path(arm.file(paths.HISTORY, seed)))
        return Path(arm.file(paths.COMPRESSED, seed))
    if arm.study.model is None:
        return intact(Path(arm.file(paths.TEACHER, seed))).parent
    file = Store(config).path(paths.MODEL, model=arm.study.model)
    return Path(read_json(file)["folder"])


def device(config: Config, arm: Arm) -> str:
    """Return where an arm is trained: cpu, or auto, the GPU if there is one."""
    on_cpu = arm.study.model is not None and config.models[arm.study.model].device == "cpu"
    return "cpu" if on_cpu else "auto"


def _questions(config: Config, name: str) -> pd.DataFrame:
    return read_table(Store(config).path(paths.QUESTIONS, questions=name), QUESTIONS)
