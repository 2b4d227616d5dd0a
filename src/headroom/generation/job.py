"""The generate job: one variant's answers to one question set, written as one table."""

import logging
import time
from collections.abc import Iterable

from headroom.config import Config
from headroom.generation import journal
from headroom.generation.client import ask, progress
from headroom.generation.work import Key, Work
from headroom.record import Stopwatch
from headroom.variants import Variant

_LOG = logging.getLogger(__name__)

_SECONDS_BETWEEN_REPORTS = 10


def run(
    config: Config, model: str, decoding: str, questions: str, variant: Variant, cores: int = 1
) -> None:
    """Answer a question set with one variant of a model; write the table and its record.

    Answers that the store holds already, made for another draw from the same split, are taken
    over, and those of a run that was killed. Only if some question is left, an engine is asked, or
    the model loaded.

    Args:
        config: the run's config.
        model: config name.
        decoding: config name.
        questions: config name.
        variant: what is pruned.
        cores: how many CPU cores an engine may use.

    Raises:
        EngineError: the engine has failed, or was stopped.
        ModelError: the model cannot be loaded, pruned so, or fitted into memory.
        TableError: the question set is missing or damaged.
    """
    stopwatch = Stopwatch()
    work = Work(config, model, decoding, questions)
    missing = work.missing(variant)
    if missing and config.engine == "server":
        ask(work, variant, cores)  # the engine writes, too
        return
    if missing:
        _answer(work, variant, missing)
    count = work.write(variant, stopwatch)
    _LOG.info("%s: %d answers, %.1f s", variant, count, stopwatch.seconds)


def _answer(work: Work, variant: Variant, missing: Iterable[Key]) -> None:
    """Answer in this process, into the journal."""
    from headroom.generation.worker import Worker, load

    requests = [(variant, key) for key in missing]
    unit = work.unit(requests, work.base())
    section = work.config.models[work.model]
    worker = Worker(load(section, work.keys["model"], section.device))
    begin = reported = time.monotonic()
    for done, (_, answer) in enumerate(worker.run(unit), start=1):
        journal.append(work.journal(variant), [answer])
        now = time.monotonic()
        if done == len(requests) or now - reported >= _SECONDS_BETWEEN_REPORTS:
            reported = now
            _LOG.info("%s: %s", variant, progress(done, len(requests), now - begin))
