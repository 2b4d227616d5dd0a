"""Compression as jobs: train what is compressed, compress it, test what is left.

Each job leaves its files and a record in the store. What a killed job had done waits in the
journal, beside the store, and is gone on with.
"""

import logging
import shutil
from collections.abc import Sequence
from pathlib import Path

import pandas as pd

from headroom import paths
from headroom.athena.solver import new_solver
from headroom.athena.storage import read_parts
from headroom.compression import arm_inputs
from headroom.compression.resume import shape_of
from headroom.compression.rounds import compress
from headroom.compression.training import train
from headroom.config import Config
from headroom.models.learner import Example, Learner, Verdict
from headroom.models.source import fetch_model
from headroom.planning.arms import Arm, find_arm, find_encoder, find_solver
from headroom.record import Stopwatch, write_record
from headroom.saying import RESULT
from headroom.tables import (
    OUTCOMES,
    write_json,
    write_table,
)

_LOG = logging.getLogger(__name__)


def prepare_encoder(config: Config, encoder: str) -> None:
    """Fetch a pretrained encoder; say in its JSON file where it is."""
    stopwatch = Stopwatch()
    section = find_encoder(config, encoder)
    assert section.source is not None
    output = Path(paths.ENCODER.format(encoder=encoder))
    write_json(output, {"folder": str(fetch_model(section.source, section.revision))})
    write_record(output, stopwatch, {"encoder": section.model_dump(mode="json")})


def train_teacher(config: Config, solver: str, data: str, seed: int) -> None:
    """Train a solver with all its heads: what every arm starts from."""
    stopwatch = Stopwatch()
    settings, name = find_solver(config, solver, data)
    parts = read_parts(data)
    learner = new_solver(settings, parts.train, seed)
    keys = {"solver": solver, "data": data, "seed": seed}
    journal = Path(paths.TEACHER_JOURNAL.format(**keys))
    journal.parent.mkdir(parents=True, exist_ok=True)
    examples, dev = learner.prepare(parts.train), learner.prepare(parts.dev)
    fit = train(learner, examples, dev, settings.training, seed, checkpoint=journal)
    output = Path(paths.TEACHER.format(**keys))
    learner.save(output.parent)
    epochs = [vars(epoch) for epoch in fit.epochs]
    facts = {**keys, "settings": settings.model_dump(mode="json"), "epochs": epochs}
    write_record(output, stopwatch, {**facts, "best": fit.best}, output.parent)
    _forget(journal)
    last = fit.epochs[(fit.best or 0) - 1]
    solved = "" if last.dev_strict is None else f", {last.dev_strict:.1%} of its development part"
    _LOG.info("%s learnt %s, seed %d%s", solver, name, seed, solved)


def compress_arm(config: Config, subject: str, data: str, arm: str, seed: int) -> None:
    """Compress a trained solver as an arm says, and test what is left.

    The history is written last: it says that all else is there.
    """
    stopwatch = Stopwatch()
    chosen = find_arm(config, subject, data, arm)
    learner, parts = arm_inputs.lesson(config, chosen, seed)
    examples, dev = learner.prepare(parts.train), learner.prepare(parts.dev)
    layout = _layout(config, chosen, seed)
    journal = Path(chosen.file(paths.COMPRESSION_JOURNAL, seed))
    learner, history = compress(
        learner,
        examples,
        dev,
        chosen.settings,
        seed,
        layout=layout,
        journal=journal,
        device=arm_inputs.device(config, chosen),
    )
    if chosen.settings.rounds:
        learner.save(Path(chosen.file(paths.COMPRESSED, seed)))
    outcomes = _test(learner, learner.prepare(parts.test), quantised=False)
    strict = float(outcomes["strict"].mean())
    facts = {
        **chosen.wildcards,
        "seed": seed,
        "settings": chosen.settings.model_dump(mode="json"),
        "strict": strict,
    }
    output = Path(chosen.file(paths.OUTCOMES, seed))
    write_table(output, outcomes, OUTCOMES)
    write_record(output, stopwatch, facts)
    noted = {
        **history.as_json(),
        "seconds": stopwatch.seconds,
        "tokens": history.epochs * sum(len(example.input_ids) for example in examples),
    }
    output = Path(chosen.file(paths.HISTORY, seed))
    write_json(output, noted)
    write_record(output, stopwatch, facts, Path(chosen.file(paths.COMPRESSED, seed)))
    _forget(journal)
    left = history.rounds[-1].heads if history.rounds else history.heads
    study = chosen.study
    _LOG.log(
        RESULT,
        "%s, arm %s, seed %d, with %d of %d heads: %.1f%% of %s right",
        *(study.solver or study.model, chosen.name, seed, left, history.heads),
        *(100 * strict, study.test or study.data),
    )


def quantise(config: Config, subject: str, data: str, arm: str, seed: int) -> None:
    """Test what an arm left with weights of eight bits."""
    stopwatch = Stopwatch()
    chosen = find_arm(config, subject, data, arm)
    learner = arm_inputs.left(config, chosen, seed).quantised()
    examples = learner.prepare(arm_inputs.tested_on(config, chosen))
    outcomes = _test(learner, examples, quantised=True)
    output = Path(chosen.file(paths.INT8_OUTCOMES, seed))
    write_table(output, outcomes, OUTCOMES)
    strict = float(outcomes["strict"].mean())
    write_record(output, stopwatch, {**chosen.wildcards, "seed": seed, "strict": strict})


def _layout(config: Config, arm: Arm, seed: int) -> dict[str, list[int]] | None:
    """Return the heads that an arm from scratch takes over."""
    other = arm.layout()
    if other is None:
        return None
    return shape_of(arm_inputs.left(config, other, seed).encoder)


def _test(learner: Learner, examples: Sequence[Example], *, quantised: bool) -> pd.DataFrame:
    verdicts = pd.DataFrame(learner.verdicts(examples), columns=Verdict._fields)
    return verdicts.assign(quantised=quantised)


def _forget(journal: Path) -> None:
    """Remove a journal, and the folders above it that are empty now."""
    if journal.is_dir():
        shutil.rmtree(journal)
    else:
        journal.unlink(missing_ok=True)
    for folder in journal.parents:
        if not folder.is_dir() or any(folder.iterdir()):
            break
        folder.rmdir()
