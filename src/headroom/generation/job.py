"""The generate job: one variant's answers to one question set, written as one table."""

import logging

from headroom.config import Config
from headroom.generation.client import ask
from headroom.generation.work import Work
from headroom.record import Stopwatch
from headroom.variants import Variant

_LOG = logging.getLogger(__name__)


def run(
    config: Config, model: str, decoding: str, questions: str, variant: Variant, cores: int = 1
) -> None:
    """Answer a question set with one variant of a model; write the table and its record.

    Answers that the store holds already, made for another draw from the same split, are taken
    over, and those of a run that was killed. Only if some question is left, an engine is asked.

    Args:
        config: the run's config.
        model: config name.
        decoding: config name.
        questions: config name.
        variant: what is pruned.
        cores: how many CPU cores an engine may use.

    Raises:
        EngineError: the engine has failed, or was stopped.
        TableError: the question set is missing or damaged.
    """
    stopwatch = Stopwatch()
    work = Work(config, model, decoding, questions)
    if work.missing(variant):
        ask(work, variant, cores)  # the engine writes, too
        return
    count = work.write(variant, stopwatch)
    _LOG.info("%s: %d answers, %.1f s", variant, count, stopwatch.seconds)
