"""The ways to answer one sweep: the engine, the published way, and others."""

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import cache
from math import ceil
from time import process_time
from typing import Any

import torch
from transformers import ContinuousBatchingConfig, GenerationConfig

from benchmarks.gpu import generated
from headsweep.config import Decoding
from headsweep.engine.engine import Engine, Request
from headsweep.engine.requests import NEAR_TIE
from headsweep.engine.vllm import VllmEngine, VllmModel
from headsweep.errors import ModelError
from headsweep.models.load import load_model
from headsweep.models.loaded import LoadedModel, dtype_name
from headsweep.models.masks import edited_weights
from headsweep.variants import Variant

PUBLISHED_BATCH = 16
PAGES_BATCH = 256
Key = tuple[str, str]  # question and variant


@dataclass(frozen=True)
class Work:
    """A sweep: every question is answered by every variant."""

    prompts: dict[str, tuple[int, ...]]  # token ids, by question
    variants: tuple[Variant, ...]  # the base model first
    max_new_tokens: int

    def split(self, parts: int) -> list["Work"]:
        """Divide the questions among workers, some of all lengths to each."""
        ordered = sorted(self.prompts.items(), key=lambda item: len(item[1]))
        return [replace(self, prompts=dict(ordered[part::parts])) for part in range(parts)]


@dataclass
class Outcome:
    """A rival's answers."""

    choices: dict[Key, list[int]] = field(default_factory=dict)
    """Tokens chosen for each question and variant, the end of sequence included."""
    near_ties: set[Key] = field(default_factory=set)  # their margin may be one of rounding
    cpu_seconds: float = 0.0

    def add(self, part: "Outcome") -> None:
        """Add the answers and the times of a part of the sweep."""
        self.choices |= part.choices
        self.near_ties |= part.near_ties
        self.cpu_seconds += part.cpu_seconds


def published(loaded: LoadedModel, work: Work, outcome: Outcome) -> None:
    """Answer as the papers' code does: batches of 16 in given order, one pruned model at a time."""
    order = list(work.prompts)
    for variant in work.variants:
        with edited_weights(loaded.model, loaded.geometry, variant):
            for start in range(0, len(order), PUBLISHED_BATCH):
                questions = order[start : start + PUBLISHED_BATCH]
                prompts = [work.prompts[question] for question in questions]
                rows = generated(loaded, prompts, generation_config=_settings(loaded, work))
                for question, row in zip(questions, rows, strict=True):
                    outcome.choices[question, str(variant)] = _until_end(loaded, row)


def generate_batch(loaded: LoadedModel, work: Work, outcome: Outcome) -> None:
    """Answer with transformers' own continuous batching, one pruned model at a time."""
    options = {}
    if loaded.device.type == "cpu":
        # By default it takes most of the memory, and the time to fill it, for every variant.
        longest = max(map(len, work.prompts.values())) + work.max_new_tokens
        pages = ceil(longest / 32) * PAGES_BATCH
        options = {"page_size": 32, "num_blocks": pages, "max_batch_tokens": 512}
    for variant in work.variants:
        with edited_weights(loaded.model, loaded.geometry, variant):
            outputs = loaded.model.generate_batch(
                inputs=[list(prompt) for prompt in work.prompts.values()],
                generation_config=_settings(loaded, work),
                continuous_batching_config=ContinuousBatchingConfig(**options),
                warmup=loaded.device.type != "cpu",
            )
        by_prompt = {tuple(output.prompt_ids): output for output in outputs.values()}
        for question, prompt in work.prompts.items():
            row = _until_end(loaded, by_prompt[prompt].generated_tokens)
            outcome.choices[question, str(variant)] = row


def engine(loaded: LoadedModel, work: Work, outcome: Outcome) -> None:
    """Answer with the engine."""
    runner = Engine(loaded, Decoding(max_new_tokens=work.max_new_tokens), None)
    _collect(runner, loaded, work, outcome)


def vllm(loaded: LoadedModel, work: Work, outcome: Outcome) -> None:
    """Answer with vLLM, one pruned model at a time."""
    model = _in_vllm(loaded.folder, dtype_name(loaded.dtype), "auto", 1)
    runner = VllmEngine(model, Decoding(max_new_tokens=work.max_new_tokens))
    _collect(runner, loaded, work, outcome)


_in_vllm = cache(VllmModel)


def _collect(runner: Any, loaded: LoadedModel, work: Work, outcome: Outcome) -> None:
    near_tie = NEAR_TIE[dtype_name(loaded.dtype)]
    requests = [
        Request(question, prompt, variant)
        for question, prompt in work.prompts.items()
        for variant in work.variants
    ]
    for answer in runner.run(requests):
        end = loaded.eos_token_ids[:1] if answer.stop_reason == "eos" else ()
        key = answer.request.question_id, str(answer.request.variant)
        outcome.choices[key] = [*answer.token_ids, *end]
        if answer.margin <= near_tie:
            outcome.near_ties.add(key)


def _settings(loaded: LoadedModel, work: Work) -> GenerationConfig:
    return GenerationConfig(
        do_sample=False,
        max_new_tokens=work.max_new_tokens,
        eos_token_id=list(loaded.eos_token_ids) or None,
        pad_token_id=loaded.pad_token_id,
    )


def _until_end(loaded: LoadedModel, row: list[int]) -> list[int]:
    """Cut off padding; replace the end of sequence by the first such token of the model."""
    ends = loaded.eos_token_ids
    place = next((place for place, token in enumerate(row) if token in ends), None)
    return row if place is None else [*row[:place], ends[0]]


RIVALS = {rival.__name__: rival for rival in (published, generate_batch, vllm, engine)}

_loaded: list[LoadedModel] = []  # the model of this process


def start(folder: str, dtype: str, threads: int) -> None:
    """Load the model; the first call in a process of its own."""
    torch.set_num_threads(threads)
    _loaded.append(load_model(folder, dtype=dtype))


def ask(function: Callable[..., Any], *given: Any) -> Any:
    """Return what a function finds on the model of this process."""
    return function(_loaded[0], *given)


def answer(loaded: LoadedModel, rival: str, work: Work) -> Outcome:
    """Answer a part of the sweep.

    Raises:
        ModelError: the rival fails; its cause in one line.
    """
    outcome, begin = Outcome(), process_time()
    try:
        RIVALS[rival](loaded, work, outcome)
    except Exception as error:  # a failed rival is a row of the table
        cause = " ".join(str(error).split())[:200]
        raise ModelError(f"{type(error).__name__}: {cause}") from None
    outcome.cpu_seconds = process_time() - begin
    return outcome
