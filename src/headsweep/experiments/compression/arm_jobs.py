"""The jobs of a compression: train a solver, compress it, test the result.

Each job writes its files and a record to the store. A killed job resumes from its journal, which
lies beside the store.
"""

import logging
import os
import shutil
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import pandas as pd
import torch

from headsweep.answers.exclusive import gpu_held
from headsweep.benchmarks.prompts import check_prompts
from headsweep.config import Config, Study
from headsweep.errors import RESULT
from headsweep.experiments.athena.problems import read_parts
from headsweep.experiments.athena.solver import load_solver, new_solver
from headsweep.experiments.compression.decoder import DecoderLearner, to_answer, to_learn
from headsweep.experiments.compression.rounds import compress
from headsweep.experiments.compression.training import train
from headsweep.files import paths
from headsweep.files.record import Stopwatch, checked_file, read_facts, write_facts, write_record
from headsweep.files.safe_files import read_table, write_json, write_table
from headsweep.files.tables import INT8_OUTCOMES, OUTCOMES, QUESTIONS
from headsweep.grading.matrix import accuracy_matrix, grade_batch
from headsweep.models.footprint import trains_on_gpu
from headsweep.models.geometry import kept_heads
from headsweep.models.learner import JudgedAnswer, Learner, quantised
from headsweep.models.load import load_model, torch_device
from headsweep.models.loaded import dtype_name
from headsweep.models.source import fetch_model
from headsweep.store.batches import Arm, all_arms, encoders, find, solvers
from headsweep.store.layout import Store
from headsweep.variants import BASE

_LOG = logging.getLogger(__name__)


def prepare_encoder(store: Store, encoder: str) -> None:
    """Fetch a pretrained encoder and write its folder to its JSON file."""
    stopwatch = Stopwatch()
    section = find(encoders(store.config), encoder)
    assert section.source is not None
    output = Path(paths.ENCODER.format(encoder=encoder))
    write_json(output, {"folder": str(fetch_model(section.source, section.revision))})
    write_record(output, stopwatch, {"encoder": section.model_dump(mode="json")})


def train_teacher(store: Store, solver: str, data: str, seed: int) -> None:
    """Train a solver with all its heads, from which every arm starts."""
    study = find(solvers(store.config), (solver, data))
    device = "auto" if trains_on_gpu(store.config, study) else "cpu"
    with gpu_held(device):
        _train_teacher(store.config, study, solver, data, seed, device)


def _train_teacher(
    config: Config, study: Study, solver: str, data: str, seed: int, device: str
) -> None:
    """Do what `train_teacher` does, on a device, of which no name outlives the call."""
    stopwatch = Stopwatch()
    settings = config.solver_of(study)
    parts = read_parts(data)
    learner = new_solver(settings, parts.train, seed)
    learner.network.to(torch_device(device, "float32"))
    keys = {"solver": solver, "data": data, "seed": seed}
    journal = Path(paths.TEACHER_JOURNAL.format(**keys))
    # The test part only to refuse, before training, what no learner after it could read.
    examples, dev, _ = (learner.prepare(part) for part in parts)
    fit = train(learner, examples, dev, settings.training, seed, checkpoint_file=journal)
    output = Path(paths.TEACHER.format(**keys))
    learner.save(output.parent)
    facts = {**keys, "settings": settings.model_dump(mode="json"), **fit.model_dump()}
    write_record(output, stopwatch, facts, output.parent)
    _forget(journal)
    solved = "" if fit.dev_strict is None else f", solves {fit.dev_strict:.1%} of the dev part"
    _LOG.info("%s trained on %s, seed %d%s", solver, study.data, seed, solved)


def compress_arm(store: Store, subject: str, data: str, arm: str, seed: int) -> None:
    """Compress a solver or model as an arm's settings say, and test the result.

    The history is written last: where it exists, the other files do too.
    """
    chosen = find(all_arms(store.config), (subject, data, arm))
    device = "auto" if trains_on_gpu(store.config, chosen.study) else "cpu"
    with gpu_held(device):
        _compress_arm(store, chosen, seed, device)


def _compress_arm(store: Store, chosen: Arm, seed: int, device: str) -> None:
    """Do what `compress_arm` does, on a device, of which no name outlives the call."""
    stopwatch = Stopwatch()
    study = chosen.study
    settings = chosen.settings
    arm_of_layout = chosen.layout()
    learner, examples, dev = lesson(store, chosen, seed)
    test = test_part(store, chosen, learner)  # before training: it may be refused
    journal = Path(chosen.file(paths.COMPRESSION_JOURNAL, seed))
    before = begin_attempt(journal)
    layout = None
    if arm_of_layout:
        layout = kept_heads(learner_of(store, arm_of_layout, seed).encoder.config)
    learner, history = compress(
        learner, examples, dev, settings, seed, layout=layout, folder=journal, device=device
    )
    learner = learner.finished()
    folder = Path(chosen.file(paths.COMPRESSED, seed))
    if settings.rounds:
        learner.save(folder)
    facts = {**chosen.wildcards, "seed": seed, "settings": settings.model_dump(mode="json")}
    strict = _test(chosen, learner, test, stopwatch, facts)
    epochs = sum(len(done.epochs) for done in history.rounds)
    noted = {
        **history.model_dump(),
        "warnings": history.warnings(),
        "seconds": before + stopwatch.seconds,
        "tokens": epochs * sum(len(example.input_ids) for example in examples),
    }
    output = Path(chosen.file(paths.HISTORY, seed))
    write_json(output, noted)
    write_record(output, stopwatch, {**facts, "strict": strict}, folder)
    _forget(journal)
    _LOG.log(
        RESULT,
        "%s, arm %s, seed %d, with %d of %d heads: %.1f%% of %s right",
        study.solver or study.model,
        chosen.name,
        seed,
        history.heads_left,
        history.heads,
        100 * strict,
        study.test or study.data,
    )


def quantise(store: Store, subject: str, data: str, arm: str, seed: int) -> None:
    """Test an arm's result with 8-bit weights."""
    stopwatch = Stopwatch()
    chosen = find(all_arms(store.config), (subject, data, arm))
    learner = learner_of(store, chosen, seed)
    learner = learner.with_network(quantised(learner.network))
    test = test_part(store, chosen, learner)
    _test(chosen, learner, test, stopwatch, {**chosen.wildcards, "seed": seed}, quantised=True)


def lesson(store: Store, arm: Arm, seed: int) -> tuple[Learner, Sequence[Any], Sequence[Any]]:
    """Return the learner an arm starts from, its training examples and its development part.

    A language model learns its own correct answers to the training questions and has no
    development part. An arm that ranks heads by accuracy needs the matrix on these questions.
    """
    study = arm.study
    learner = learner_of(store, arm, seed, pruned=False)
    if study.model is None:
        parts = read_parts(arm.data)
        return learner, learner.prepare(parts.train), learner.prepare(parts.dev)
    assert study.train is not None and isinstance(learner, DecoderLearner)
    train, answers, graded = grade_batch(arm.answered(store), store.config.grading)
    if len(answers) > 1:
        learner = replace(learner, matrix=accuracy_matrix(graded, train))
    return learner, learner.prepare(to_learn(train, answers[str(BASE)], graded)), []


def test_part(store: Store, arm: Arm, learner: Learner) -> Sequence[Any]:
    """Return what an arm is tested on, as the learner's examples.

    Raises:
        BenchmarkError, ModelError: the learner cannot read some of it; the message names them.
    """
    if arm.study.test is None:
        return learner.prepare(read_parts(arm.data).test)
    assert isinstance(learner, DecoderLearner)
    file = store.path(QUESTIONS, questions=arm.study.test)
    questions = to_answer(read_table(file, QUESTIONS))
    texts = {question.question_id: question.text for question in questions}
    check_prompts(learner.loaded.folder, texts, learner.decoding, learner.grader_name)
    return learner.prepare(questions)


def learner_of(store: Store, arm: Arm, seed: int, *, pruned: bool = True) -> Learner:
    """Return an arm's compressed learner, or the one that it starts from: on the CPU in float32."""
    config = store.config
    study = arm.study
    folder = folder_of(store, arm, seed, pruned=pruned)
    if study.model is None:
        return load_solver(folder)
    assert study.train is not None
    model = config.models[study.model]
    grader_name = config.questions[study.train].grader_name
    return DecoderLearner(
        load_model(str(folder), device="cpu"),
        model.source or study.model,
        config.decodings[study.decoding],
        grader_name,
        config.grading,
        batch_size=model.batch_size,
        dtype=getattr(torch, model.dtype),
    )


def folder_of(store: Store, arm: Arm, seed: int, *, pruned: bool = True) -> Path:
    """Return the folder of an arm's compressed learner, or of the one it starts from."""
    if pruned and arm.settings.rounds:
        checked_file(Path(arm.file(paths.HISTORY, seed)))
        return Path(arm.file(paths.COMPRESSED, seed))
    if arm.study.model is None:
        return checked_file(Path(arm.file(paths.TEACHER, seed))).parent
    return store.model_folder(arm.study.model)


def _test(
    arm: Arm,
    learner: Learner,
    examples: Sequence[Any],
    stopwatch: Stopwatch,
    facts: dict[str, Any],
    *,
    quantised: bool = False,
) -> float:
    """Test a learner, write outcomes and record, and return its strict accuracy."""
    kind = INT8_OUTCOMES if quantised else OUTCOMES
    output = Path(arm.file(kind.path, facts["seed"]))
    verdicts = learner.verdicts(examples)
    outcomes = pd.DataFrame(verdicts, columns=JudgedAnswer._fields).assign(quantised=quantised)
    strict = float(outcomes["strict"].mean())
    write_table(output, outcomes, OUTCOMES)
    computed = dtype_name(learner.encoder.dtype)
    write_record(output, stopwatch, {**facts, "strict": strict, "computed_in": computed})
    return strict


def begin_attempt(journal: Path) -> float:
    """Note that an attempt at a compression begins; return the seconds that earlier ones took.

    A killed attempt is taken to have ended with the last file that it wrote.
    """
    file = journal / "attempts.json"
    seconds = 0.0
    if earlier := read_facts(file):
        last = max(written.stat().st_mtime for written in journal.iterdir())
        seconds = earlier["seconds"] + max(0.0, last - earlier["begun"])
    write_facts(file, {"seconds": seconds, "begun": time.time()})
    return seconds


def _forget(journal: Path) -> None:
    """Remove a journal, and the folders above it that are then empty."""
    if journal.is_dir():
        shutil.rmtree(journal)
    journal.unlink(missing_ok=True)
    with suppress(OSError):
        os.removedirs(journal.parent)
