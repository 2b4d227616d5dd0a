"""Let a model answer a pilot's questions on this machine: `python -m headsweep.cli.pilot_trial`.

It reads an order as JSON from standard input (a config of one batch, cores) and prints what it has
measured as one line of JSON, the last of its output. `attempt` starts it in a process of its own,
so that software that crashes the whole process only counts as failed.

The engine first answers a few questions with all variants: in half precision and on GPUs it then
checks itself, and nothing is slow later because it is new. Then the base model's answers are timed,
and after them those of the heads. On a CPU all workers of a run share the questions.
"""

import json
import os
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass
from functools import partial
from multiprocessing import get_context
from typing import Any, NamedTuple

import torch

from headsweep.answers.worker import load
from headsweep.benchmarks.prompts import encode_prompt
from headsweep.config import Decoding, parse
from headsweep.engine.decoder import Decoder
from headsweep.engine.devices import Device, devices, held
from headsweep.engine.engine import Engine
from headsweep.engine.requests import Answer, Request
from headsweep.engine.stops import text_of
from headsweep.engine.vllm import VllmEngine, VllmModel
from headsweep.errors import EngineError, told_of
from headsweep.files.safe_files import read_arrow
from headsweep.files.tables import QUESTIONS
from headsweep.models.loaded import LoadedModel
from headsweep.store.batches import Batch, batches
from headsweep.store.layout import Store
from headsweep.variants import BASE, Variant

_CHECKED = 8  # questions of the self-check
_FIRST_TOKENS = 32  # of each of their answers
_LIMIT_SECONDS = 3600.0
_LONGEST_CAUSE = 300  # characters of a failure's cause


class Trial(NamedTuple):
    """What one software does with a model on this machine."""

    start: float
    """Seconds from the process's begin to the first answer that could have come."""
    base: float
    """Seconds that all workers together take for an answer of the base model."""
    head: float
    """The same, without a head, once the base model's answers are there."""
    answers: dict[str, list[dict[str, Any]]]
    """Rows of `tables.ANSWERS` by variant, the base model first."""
    facts: dict[str, Any]
    """What the software says of itself: version, device, path, check, falls."""


@dataclass(frozen=True)
class _Asked:
    """A loaded model, and the prompts that it is asked."""

    loaded: LoadedModel | VllmModel
    decoder: Decoder | None
    decoding: Decoding
    batch_size: int | None
    prompts: Mapping[str, tuple[int, ...]]
    """Token ids by question."""

    def engine(self, tokens: int, *, checked: bool) -> Engine | VllmEngine:
        """Return an engine for answers of at most so many tokens."""
        decoding = self.decoding.model_copy(update={"max_new_tokens": tokens})
        if isinstance(self.loaded, VllmModel):
            return VllmEngine(self.loaded, decoding)
        return Engine(self.loaded, decoding, self.batch_size, self.decoder, checked=checked)

    def answer(
        self,
        variants: Sequence[Variant],
        drafts: Mapping[str, Sequence[int]],
        questions: Sequence[str],
    ) -> list[Answer]:
        """Answer questions as each of the variants, given base answers if there are any."""
        requests = [
            Request(question, self.prompts[question], variant)
            for question in questions
            for variant in variants
        ]
        engine = self.engine(self.decoding.max_new_tokens, checked=False)
        return list(engine.run(requests, drafts))


def attempt(store: Store, cores: int) -> Trial:
    """Try software with a model in a process of its own, and return what that has measured.

    Args:
        store: of a resolved config with one batch; its model, which names the software, and its
            questions are there.
        cores: CPU cores that a run's engine may use.

    Raises:
        EngineError: it has failed; the cause in one line.
    """
    (batch,) = batches(store).values()
    backend = store.config.models[batch.model].backend
    values = store.config.model_dump(mode="json")
    threads = str(cores if backend == "vllm" else 1)
    try:
        ended = subprocess.run(
            [sys.executable, "-P", "-m", "headsweep.cli.pilot_trial"],
            input=json.dumps({"config": values, "cores": cores, "begun": time.time()}),
            capture_output=True,
            errors="replace",
            check=False,
            text=True,
            timeout=_LIMIT_SECONDS,
            env={**os.environ, "OMP_NUM_THREADS": threads, "MKL_NUM_THREADS": threads},
        )
    except subprocess.TimeoutExpired:
        raise EngineError(f"{backend}: no result after {_LIMIT_SECONDS:.0f} s") from None
    last = (ended.stdout.strip().splitlines() or [""])[-1]
    try:
        told = json.loads(last)
    except ValueError:
        last_words = " ".join(ended.stderr.split())[-_LONGEST_CAUSE:]
        cause = last_words or f"it ended with status {ended.returncode}"
        raise EngineError(f"{backend}: {cause}") from None
    if "error" in told:
        raise EngineError(f"{backend}: {told['error']}")
    return Trial(**told)


def measure(store: Store, cores: int, begun: float) -> Trial:
    """Return what a config's only model does here.

    `begun` is when the process was started, in seconds of the epoch.

    Raises:
        EngineError: the self-check fails: answers would come from the model's own modules, slowly.
    """
    (batch,) = batches(store).values()
    section = store.config.models[batch.model]
    places = devices(section.device, section.tensor_parallel)
    on_cpu = places == [Device("cpu")]
    workers = cores if on_cpu and section.backend == "headsweep" else 1
    imported = time.time() - begun
    with held(places[0], lambda gpu: print(f"waiting for GPU {gpu}", file=sys.stderr)):
        loading = time.time()  # whatever the wait
        loaded = load(section, batch.keys.model, places[0].name)
        decoder = None
        if isinstance(loaded, LoadedModel):
            decoder = Decoder.of(loaded, graphs=section.graphs == "auto")
        decoding = store.config.decodings[batch.decoding]
        prompts = _prompts(batch, loaded)
        asked = _Asked(loaded, decoder, decoding, section.batch_size, prompts)
        start = imported + time.time() - loading
        facts = _checked(asked, batch.variants)
        begin = time.perf_counter()
        base = _together(workers, asked, [BASE], {})
        drafts = {answer.request.question_id: answer.token_ids for answer in base}
        middle = time.perf_counter()
        pruned = [variant for variant in batch.variants if variant != BASE]
        answers = base + _together(workers, asked, pruned, drafts)
        end = time.perf_counter()
        if decoder is not None:  # it may have failed as late as at full width
            told = asked.engine(_FIRST_TOKENS, checked=False).facts
            facts |= {name: told[name] for name in ("path", "falls") if name in told}
    rows: dict[str, list[dict[str, Any]]] = {str(variant): [] for variant in batch.variants}
    for answer in answers:
        rows[str(answer.request.variant)].append(_row(loaded, answer, decoding))
    return Trial(
        start=round(start, 2),
        base=(middle - begin) / len(base),
        head=(end - middle) / (len(answers) - len(base)),
        answers=rows,
        facts=facts,
    )


def _prompts(batch: Batch, loaded: LoadedModel | VllmModel) -> dict[str, tuple[int, ...]]:
    config = batch.store.config
    questions = read_arrow(batch.path(QUESTIONS), QUESTIONS)
    decoding = config.decodings[batch.decoding]
    grader_name = config.questions[batch.questions].grader_name
    return {
        row["question_id"]: encode_prompt(loaded.tokenizer, row["question"], decoding, grader_name)
        for row in questions.select(["question_id", "question"]).to_pylist()
    }


def _row(loaded: LoadedModel | VllmModel, answer: Answer, decoding: Decoding) -> dict[str, Any]:
    """Return an answer as a row of `tables.ANSWERS`."""
    return {
        "question_id": answer.request.question_id,
        "sample": answer.request.sample,
        "token_ids": list(answer.token_ids),
        "text": text_of(loaded.tokenizer, answer.token_ids, decoding.stop),
        "stop_reason": answer.stop_reason,
        "margin": answer.margin,
    }


def _checked(asked: _Asked, variants: Sequence[Variant]) -> dict[str, Any]:
    """Answer a few questions; return what an engine says of itself after that."""
    loaded = asked.loaded
    exact = isinstance(loaded, LoadedModel) and loaded.dtype == torch.float32
    engine = asked.engine(_FIRST_TOKENS, checked=not exact or str(loaded.device) != "cpu")
    requests = [
        Request(question, asked.prompts[question], variant)
        for question in [*asked.prompts][:_CHECKED]
        for variant in variants
    ]
    answered = sum(1 for _ in engine.run(requests))
    assert answered == len(requests)
    if isinstance(loaded, VllmModel):
        return {"device": str(loaded.device), "version": f"vllm {loaded.version}"}
    facts = {"device": str(loaded.device), **engine.facts}
    if facts.get("falls") and facts["path"] == "modules":
        raise EngineError(
            f"the self-check has failed, and a run would go on by the model's own modules, slowly: "
            f"{facts['falls'][-1]}"
        )
    return facts


def _together(
    workers: int,
    asked: _Asked,
    variants: Sequence[Variant],
    drafts: Mapping[str, Sequence[int]],
) -> list[Answer]:
    """Answer all questions as some variants; so many processes have a part of them each.

    Raises:
        EngineError: one of them has died.
    """
    questions = [*asked.prompts]
    if workers == 1:
        return asked.answer(variants, drafts, questions)
    parts = [questions[place::workers] for place in range(min(workers, len(questions)))]
    # Forked after the model is loaded, they share its memory.
    with ProcessPoolExecutor(len(parts), get_context("fork"), _take, (asked,)) as pool:
        try:
            answered = list(pool.map(partial(_part, variants, drafts), parts))
        except BrokenProcessPool:
            why = "a worker has died, perhaps for lack of memory; lower --cores"
            raise EngineError(why) from None
    return [answer for part in answered for answer in part]


_taken: list[_Asked] = []  # what this worker answers with


def _take(asked: _Asked) -> None:
    _taken.append(asked)


def _part(
    variants: Sequence[Variant], drafts: Mapping[str, Sequence[int]], questions: Sequence[str]
) -> list[Answer]:
    return _taken[0].answer(variants, drafts, questions)


def main() -> None:
    """Do what the order on standard input says; print the result, or the cause of a failure."""
    order = json.load(sys.stdin)
    try:
        trial = measure(Store(parse(order["config"])), order["cores"], order["begun"])
        said = trial._asdict()
    except Exception as error:  # whatever a backend raises
        said = {"error": told_of(error, _LONGEST_CAUSE)}
    print(json.dumps(said))


if __name__ == "__main__":
    main()
