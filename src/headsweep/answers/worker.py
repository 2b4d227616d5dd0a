"""A worker of the engine: answers units of requests, in this process or in one of its own."""

import ctypes
import logging
import math
import os
import signal
import threading
import time
from collections.abc import Callable, Iterator, Set
from functools import cache
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import torch

from headsweep.answers.client import ask_for_room
from headsweep.benchmarks.prompts import encode_prompt, prompt_facts
from headsweep.config import Decoding, Model
from headsweep.engine.decoder import Decoder
from headsweep.engine.devices import Device, give_back_memory, held
from headsweep.engine.engine import Engine, Request
from headsweep.engine.stops import text_of
from headsweep.engine.unit import Begun, Key, Unit
from headsweep.engine.vllm import VllmEngine, VllmModel
from headsweep.errors import HeadsweepError, told_of
from headsweep.files import paths
from headsweep.models.load import load_model
from headsweep.models.loaded import LoadedModel
from headsweep.models.source import ready_folder
from headsweep.variants import Variant

_LOG = logging.getLogger(__name__)

_SECONDS_TO_REST = 5.0  # how long a worker waits for a unit until it gives back memory
_SECONDS_BETWEEN_COUNTS = 2.0  # of tokens: a first answer may take many minutes
_FEWEST_KEPT = 64
"""Tokens of an answer from which on it is kept as it grows: whenever it is half as long again, so
that a journal grows no more than about three times as long as its answers."""
_NOTHING = Begun([], math.inf)  # is kept of an answer at first
_DIE_WITH_PARENT = 1  # PR_SET_PDEATHSIG of Linux's prctl


class Worker:
    """Answers units with one loaded model."""

    def __init__(
        self, loaded: LoadedModel | VllmModel, batch_size: int | None, *, graphs: bool = False
    ) -> None:
        self._loaded = loaded
        # At once: what is forked later shares its memory.
        decoder = None if isinstance(loaded, VllmModel) else Decoder.of(loaded, graphs=graphs)

        def engine(decoding: Decoding) -> Engine | VllmEngine:
            if isinstance(loaded, VllmModel):
                return VllmEngine(loaded, decoding)
            return Engine(loaded, decoding, batch_size, decoder)

        self._engine = cache(engine)
        self._answering: Engine | VllmEngine | None = None
        self._asked: Set[tuple[Variant, Key]] = frozenset()
        """What the unit that is being answered asks for."""

    def rest(self) -> None:
        """Give back memory that only waits for the next unit."""
        if isinstance(self._answering, Engine):
            self._answering.let_go()
        give_back_memory()

    def _engine_of(self, decoding: Decoding) -> Engine | VllmEngine:
        """Return the engine of a decoding; the memory of another one's last batch is free then."""
        if isinstance(self._answering, Engine) and self._answering.decoding != decoding:
            self._answering.let_go()
        self._answering = self._engine(decoding)
        return self._answering

    @property
    def tokens_in_progress(self) -> int:
        """Tokens of answers that are not handed over; vLLM does not tell, so 0."""
        return self._answering.tokens_in_progress if isinstance(self._answering, Engine) else 0

    @property
    def begun(self) -> dict[tuple[Variant, Key], Begun]:
        """Answers that have begun, of those that are asked for; vLLM tells of none."""
        if not isinstance(self._answering, Engine):
            return {}
        begun = {
            (request.variant, (request.question_id, request.sample)): tokens
            for request, tokens in self._answering.begun.items()
        }
        return {what: tokens for what, tokens in begun.items() if what in self._asked}

    def run(self, unit: Unit) -> Iterator[tuple[Variant, dict[str, Any]]]:
        """Yield each answer with its variant as it finishes: a row of `tables.ANSWERS`.

        The first of each variant has the facts of the engine, too, as ``engine``, and the first
        after the engine had to go on in a slower way.

        Raises:
            ModelError: see `engine.Engine`.
        """
        loaded = self._loaded
        tokenizer = self._loaded.tokenizer
        prompts = {
            question: encode_prompt(tokenizer, text, unit.decoding, unit.grader_name)
            for question, text in unit.questions.items()
        }
        requests = {
            (variant, (question, sample)): Request(question, prompts[question], variant, sample)
            for variant, (question, sample) in unit.requests
        }
        begun = {requests[what]: tokens for what, tokens in unit.begun.items()}
        facts = {
            "backend": f"vllm {loaded.version}" if isinstance(loaded, VllmModel) else "headsweep",
            "device": str(loaded.device),
            "threads": torch.get_num_threads(),
            "prompt": prompt_facts(tokenizer, unit.decoding, unit.grader_name),
        }
        engine = self._engine_of(unit.decoding)
        self._asked = requests.keys()
        stated = dict[Variant, Any]()
        try:
            for answer in engine.run(requests.values(), unit.base, begun):
                variant = answer.request.variant
                row = {
                    "question_id": answer.request.question_id,
                    "sample": answer.request.sample,
                    "token_ids": answer.token_ids,
                    "text": text_of(tokenizer, answer.token_ids, unit.decoding.stop),
                    "stop_reason": answer.stop_reason,
                    "margin": answer.margin,
                    "prompt_tokens": len(answer.request.prompt),
                }
                state = engine.facts
                if variant not in stated or stated[variant].get("falls") != state.get("falls"):
                    stated[variant] = state
                    row["engine"] = facts | state
                yield variant, row
        finally:
            self._asked = frozenset()


def load(section: Model, model: str, device: str) -> LoadedModel | VllmModel:
    """Load a model, by its section of the config and its key in the store, onto a device.

    Raises:
        ModelError: see `load_model` and `VllmModel`.
    """
    folder = str(ready_folder(section.source, Path(paths.MODEL.format(model=model))))
    if section.backend == "vllm":
        return VllmModel(folder, section.dtype, device, section.tensor_parallel)
    return load_model(folder, dtype=section.dtype, device=device, attention=section.attention)


class _Parent:
    """The engine's process, which hears from a worker: each message is a word and a value."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._one_at_a_time = threading.Lock()
        self._told_tokens = 0
        self._told_begun: dict[tuple[Variant, Key], Begun] = {}

    def tell(self, word: str, value: object) -> None:
        """Send a message."""
        with self._one_at_a_time:
            self._connection.send((word, value))

    def tell_of_wait(self, gpu: str) -> None:
        """Tell that another process has a GPU, and ask engines that are done to leave."""
        self.tell("waits", gpu)
        ask_for_room()

    def tell_of_progress(self, worker: Worker) -> None:
        """Tell the number of tokens, and answers that have grown or begin anew, if it is news."""
        tokens = worker.tokens_in_progress
        if tokens != self._told_tokens:
            self.tell("tokens", tokens)
            self._told_tokens = tokens
        with self._one_at_a_time:  # so that it comes before the word that the unit is done
            begun = worker.begun
            told = {what: self._told_begun.get(what, _NOTHING) for what in begun}
            news = {what: row for what, row in begun.items() if _is_news(row, told[what])}
            if news:
                self._connection.send(("begun", news))
        self._told_begun = told | news

    def tell_of_progress_for_ever(self, worker: Worker) -> None:
        """Tell of progress every few seconds; a thread's function."""
        while True:
            time.sleep(_SECONDS_BETWEEN_COUNTS)
            self.tell_of_progress(worker)


def serve(connection: Connection, make: Callable[[], Worker], parent: int, device: Device) -> None:
    """Answer the units that come over a connection; the main function of a worker process.

    `make` returns the worker, its model loaded, when the device is this process's. Each message is
    a word and a value: ``waits`` with a GPU that another process has, or with an empty text when it
    waits no more, ``ready`` for a unit, ``tokens`` of its answers so far, ``begun`` with those that
    have grown or begin anew, ``answer`` for each that has ended, ``failed`` with the cause;
    ``broken`` with the cause is the last. The process dies with its parent, of which it is given
    the id.
    """
    ctypes.CDLL(None).prctl(_DIE_WITH_PARENT, signal.SIGKILL)
    if os.getppid() != parent:
        return
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)

    engine = _Parent(connection)
    with held(device, engine.tell_of_wait):
        if device.gpus:  # loading a model may take minutes, in which it waits for nobody
            engine.tell("waits", "")
        try:
            worker = make()
        except Exception as error:
            engine.tell("broken", _cause(error))
            return
        telling = engine.tell_of_progress_for_ever
        threading.Thread(target=telling, args=[worker], daemon=True).start()
        while True:
            engine.tell("ready", None)
            if not connection.poll(_SECONDS_TO_REST):
                worker.rest()
            unit: Unit = connection.recv()
            try:
                for answer in worker.run(unit):
                    engine.tell("answer", answer)
            except Exception as error:
                engine.tell("failed", _cause(error))


def _is_news(begun: Begun, kept: Begun) -> bool:
    """Tell whether an answer was begun anew, or has grown enough, since it was kept."""
    if begun.attempt != kept.attempt:
        return begun.attempt > kept.attempt
    return len(begun.token_ids) >= max(_FEWEST_KEPT, 3 * len(kept.token_ids) // 2)


def _cause(error: Exception) -> str:
    """Return one line for the jobs; a bug's traceback goes to the log."""
    if not isinstance(error, HeadsweepError):
        _LOG.error("a worker failed", exc_info=error)
    return told_of(error)
