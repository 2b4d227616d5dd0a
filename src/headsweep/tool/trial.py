"""Try one model's software on this machine: `python -m headsweep.tool.trial`.

It reads an order as JSON from standard input (a config of one batch, cores) and prints what it has
measured as one line of JSON, the last of its output. `attempt` starts it in a process of its own,
so that software that crashes the whole process only counts as failed.

In half precision and on GPUs the self-check comes first: the engine answers a few questions with
the base and some heads, and compares itself with the model's own modules. Then as many rows as a
run decodes together generate one token, and then some more: this times prefill and decoding at full
width separately, and without the check. At the end a single row decodes. On a CPU all workers
measure at the same time.
"""

import json
import multiprocessing
import os
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from multiprocessing.connection import Connection
from statistics import fmean
from typing import Any, NamedTuple

import torch

from headsweep.config import Config, Decoding, parse
from headsweep.errors import EngineError, told_of
from headsweep.generation.decoder import Decoder
from headsweep.generation.devices import Device, devices, held
from headsweep.generation.engine import Engine
from headsweep.generation.prompts import encode_prompt
from headsweep.generation.requests import Request
from headsweep.generation.vllm import VllmEngine, VllmModel
from headsweep.generation.worker import decoder_of, load
from headsweep.models.loaded import LoadedModel
from headsweep.planning.batches import PlannedBatch, batches
from headsweep.planning.forecast import Software, Speed
from headsweep.planning.rows_at_once import GPU_ROWS
from headsweep.planning.store import Store
from headsweep.safe_files import read_arrow
from headsweep.tables import QUESTIONS
from headsweep.variants import Variant

CHECKED = 8
"""Questions of the self-check."""
STEPS = 16
"""Tokens that each row decodes while its rate is taken."""
_LIMIT_SECONDS = 3600.0
_LONGEST_CAUSE = 300  # characters of a failure's cause
_MOST_NARROW = 4  # times as many tokens of a single row, which are few

_Model = LoadedModel | VllmModel


class Trial(NamedTuple):
    """What one software does on this machine."""

    software: Software
    facts: dict[str, Any]
    """What it says of itself: version, device, path, check, falls; and the seconds of its start,
    from the process's begin to the first answer that could have come."""


@dataclass(frozen=True)
class _Probe:
    """A model as it is measured."""

    loaded: _Model
    decoder: Decoder | None
    decoding: Decoding  # of the run
    batch_size: int | None
    prompts: list[tuple[int, ...]]

    def engine(self, tokens: int, rows: int | None, *, checked: bool) -> Engine | VllmEngine:
        """Return an engine for answers of so many tokens, of rows that are told or fit."""
        decoding = self.decoding.model_copy(update={"max_new_tokens": tokens})
        if isinstance(self.loaded, VllmModel):
            return VllmEngine(self.loaded, decoding)
        size = rows or self.batch_size
        return Engine(self.loaded, decoding, size, self.decoder, checked=checked)

    def rows(self) -> int:
        """Return how many rows a run decodes together; vLLM sees to that itself."""
        if isinstance(self.loaded, VllmModel):
            return GPU_ROWS
        engine = self.engine(self.decoding.max_new_tokens, None, checked=False)
        return int(engine.facts["batch_size"])

    def requests(self, rows: int) -> list[Request]:
        """Return requests to the base model, all with different prompts: equal ones share a pass.

        Where questions are fewer than rows, they are taken again with their words turned around.
        """
        made = []
        for number in range(rows):
            turns, place = divmod(number, len(self.prompts))
            prompt = self.prompts[place]
            turn = turns % len(prompt)
            made.append(Request(f"{number}", prompt[turn:] + prompt[:turn]))
        return made


def attempt(config: Config, cores: int) -> Trial:
    """Try software with a model in a process of its own, and return what that has measured.

    Args:
        config: resolved, of one batch; its model, which names the software, and its questions are
            in the store.
        cores: CPU cores that a run's engine may use.

    Raises:
        EngineError: it has failed; the cause in one line.
    """
    (batch,) = batches(config)
    backend = config.models[batch.model].backend
    values = config.model_dump(mode="json")
    threads = str(cores if backend == "vllm" else 1)
    try:
        ended = subprocess.run(
            [sys.executable, "-P", "-m", "headsweep.tool.trial"],
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
    software = Software(Speed(**told["speed"]), told["workers"], verifies=backend == "headsweep")
    return Trial(software, told["facts"])


def measure(config: Config, cores: int, begun: float) -> dict[str, Any]:
    """Return what a config's only model does here: speed of a worker, their number, facts.

    `begun` is when the process was started, in seconds of the epoch.

    Raises:
        EngineError: the self-check fails: answers would come from the model's own modules, slowly.
    """
    batch = batches(config)[0]
    section = config.models[batch.model]
    model = Store(config).key("model", batch.model)
    places = devices(section.device, section.tensor_parallel)
    on_cpu = places == [Device("cpu")]
    workers = cores if on_cpu and section.backend == "headsweep" else len(places)
    imported = time.time() - begun
    with held(places[0], lambda gpu: print(f"waiting for GPU {gpu}", file=sys.stderr)):
        loading = time.time()  # whatever the wait
        loaded = load(section, model, places[0].name)
        probe = _Probe(
            loaded,
            None
            if isinstance(loaded, VllmModel)
            else decoder_of(loaded, graphs=section.graphs == "auto"),
            config.decodings[batch.decoding],
            section.batch_size,
            _prompts(config, batch, loaded),
        )
        start = imported + time.time() - loading
        facts = _checked(probe, batch.variants) | {"start": round(start, 2)}
        facts["prompt_tokens"] = fmean(map(len, probe.prompts))
        speeds = _together(workers if on_cpu else 1, lambda: _speed(probe))
        if probe.decoder is not None:  # it may have failed as late as at full width
            told = probe.engine(STEPS, None, checked=False).facts
            facts |= {name: told[name] for name in ("path", "falls") if name in told}
    speed = Speed(
        rows=speeds[0].rows,
        prefill=fmean(speed.prefill for speed in speeds),
        decode=fmean(speed.decode for speed in speeds),
        narrow=fmean(speed.narrow for speed in speeds),
    )
    return {"speed": speed._asdict(), "workers": workers, "facts": facts}


def _prompts(config: Config, batch: PlannedBatch, loaded: _Model) -> list[tuple[int, ...]]:
    file = Store(config).path(QUESTIONS, questions=batch.questions)
    texts = read_arrow(file, QUESTIONS).column("question").to_pylist()
    decoding = config.decodings[batch.decoding]
    grader_name = config.questions[batch.questions].grader_name
    encoded = (encode_prompt(loaded.tokenizer, text, decoding, grader_name) for text in texts)
    return list(dict.fromkeys(encoded))


def _checked(probe: _Probe, variants: Sequence[Variant]) -> dict[str, Any]:
    """Return what an engine says of itself after its self-check, if it makes one."""
    loaded = probe.loaded
    facts: dict[str, Any] = {"device": str(loaded.device)}
    if isinstance(loaded, VllmModel):
        return {**facts, "version": f"vllm {loaded.version}"}
    if loaded.device.type == "cpu" and loaded.dtype == torch.float32:
        return facts | probe.engine(STEPS, None, checked=False).facts
    engine = probe.engine(2 * STEPS, None, checked=True)
    prompts = probe.prompts[:CHECKED]
    requests = [
        Request(f"{number}", prompt, variant)
        for number, prompt in enumerate(prompts)
        for variant in variants
    ]
    answered = sum(1 for _ in engine.run(requests))
    assert answered == len(requests)
    facts |= engine.facts
    if facts.get("falls") and facts["path"] == "modules":
        raise EngineError(
            f"the self-check has failed, and a run would go on by the model's own modules, slowly: "
            f"{facts['falls'][-1]}"
        )
    return facts


def _speed(probe: _Probe) -> Speed:
    """Time prefill, decoding at full width, and decoding of one row."""
    rows = probe.rows()
    wide = probe.requests(rows)
    _timed(probe, wide[: min(rows, 4)], 2, rows)  # kernels are chosen, memory is taken
    fed = _timed(probe, wide, 1, rows)
    decoded = _timed(probe, wide, 1 + STEPS, rows)
    shortest = [min(wide, key=_length)]
    fed_alone = _timed(probe, shortest, 1, 1)
    decoded_alone = _timed(probe, shortest, 1 + _MOST_NARROW * STEPS, 1)
    least = 1e-6  # seconds
    return Speed(
        rows,
        prefill=sum(map(_length, wide)) / fed.seconds,
        decode=max(1, decoded.tokens - rows) / max(least, decoded.seconds - fed.seconds),
        narrow=max(1, decoded_alone.tokens - 1)
        / max(least, decoded_alone.seconds - fed_alone.seconds),
    )


def _length(request: Request) -> int:
    return len(request.prompt)


class _Timed(NamedTuple):
    """How long some answers took."""

    seconds: float
    tokens: int  # of all answers; the end of an answer is a token, too


def _timed(probe: _Probe, requests: Sequence[Request], tokens: int, rows: int) -> _Timed:
    """Time answers of so many tokens each, at most."""
    engine = probe.engine(tokens, rows, checked=False)
    begin = time.perf_counter()
    answers = list(engine.run(requests))
    seconds = time.perf_counter() - begin
    ends = sum(answer.stop_reason == "eos" for answer in answers)
    return _Timed(seconds, ends + sum(len(answer.token_ids) for answer in answers))


def _together(workers: int, measured: Callable[[], Speed]) -> list[Speed]:
    """Return what so many processes measure at the same time; they share the model's memory.

    Raises:
        EngineError: one of them has died, or cannot measure.
    """
    if workers == 1:
        return [measured()]
    context = multiprocessing.get_context("fork")
    connections = []
    for _ in range(workers):
        ours, theirs = context.Pipe()
        context.Process(target=_send, args=(theirs, measured), daemon=True).start()
        theirs.close()
        connections.append(ours)
    try:
        received: list[Speed | str] = [connection.recv() for connection in connections]
    except EOFError:
        raise EngineError("a worker has died, perhaps for lack of memory; lower --cores") from None
    speeds = [speed for speed in received if isinstance(speed, Speed)]
    for cause in received:
        if isinstance(cause, str):
            raise EngineError(cause)
    return speeds


def _send(connection: Connection, measured: Callable[[], Speed]) -> None:
    """Send what is measured, or in one line why nothing is."""
    try:
        connection.send(measured())
    except Exception as error:  # whatever a backend raises
        connection.send(told_of(error, _LONGEST_CAUSE))


def main() -> None:
    """Do what the order on standard input says; print the result, or the cause of a failure."""
    order = json.load(sys.stdin)
    try:
        said = measure(parse(order["config"]), order["cores"], order["begun"])
    except Exception as error:  # whatever a backend raises
        said = {"error": told_of(error, _LONGEST_CAUSE)}
    print(json.dumps(said))


if __name__ == "__main__":
    main()
