"""The ways to answer one sweep: the engine, the published way, and others; and its least cost."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field, replace
from functools import cache, partial
from itertools import takewhile
from math import ceil
from operator import eq
from time import perf_counter, process_time
from typing import Any
from unittest.mock import patch

import torch
from torch import Tensor, nn
from transformers import ContinuousBatchingConfig, GenerationConfig

from benchmarks.gpu import generated
from headsweep.config import Decoding
from headsweep.engine.engine import Engine, Request
from headsweep.engine.requests import NEAR_TIE
from headsweep.engine.vllm import VllmEngine, VllmModel
from headsweep.engine.weights import Linear, fast_linear
from headsweep.errors import ModelError
from headsweep.models.geometry import is_linear
from headsweep.models.load import load_model
from headsweep.models.loaded import LoadedModel, dtype_name
from headsweep.models.masks import edited_weights
from headsweep.models.timing import seconds_of
from headsweep.variants import BASE, Variant

PUBLISHED_BATCH = 16
PAGES_BATCH = 256
_SIZE, _ROUNDS = 1536, 4  # of the products that `peak` measures
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
    product_flops: float = 0.0  # where it was asked for
    product_seconds: float = 0.0

    def add(self, part: "Outcome") -> None:
        """Add the answers and the times of a part of the sweep."""
        self.choices |= part.choices
        self.near_ties |= part.near_ties
        self.cpu_seconds += part.cpu_seconds
        self.product_flops += part.product_flops
        self.product_seconds += part.product_seconds


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


def answer(loaded: LoadedModel, rival: str, work: Work, timed: bool) -> Outcome:
    """Answer a part of the sweep; `timed` counts and times products, which takes time by itself.

    Raises:
        ModelError: the rival fails; its cause in one line.
    """
    outcome, begin = Outcome(), process_time()
    try:
        with timed_products(outcome) if timed else nullcontext():
            RIVALS[rival](loaded, work, outcome)
    except Exception as error:  # a failed rival is a row of the table
        cause = " ".join(str(error).split())[:200]
        raise ModelError(f"{type(error).__name__}: {cause}") from None
    outcome.cpu_seconds = process_time() - begin
    return outcome


@contextmanager
def timed_products(outcome: Outcome) -> Iterator[None]:
    """Add up the arithmetic and the time of all products of `Linear` inside the block.

    On a GPU the time would be that of launching them.
    """

    def timing(name: str) -> Any:
        right = getattr(Linear, name)

        def product(layer: Linear, *given: Any) -> Tensor:
            begin = perf_counter()
            result: Tensor = right(layer, *given)
            outcome.product_seconds += perf_counter() - begin
            outcome.product_flops += 2 * layer.size * result.shape[:-1].numel()
            return result

        return patch.object(Linear, name, product)

    with timing("__call__"), timing("then"):
        yield


@dataclass(frozen=True)
class Costs:
    """Arithmetic of one token, in floating-point operations; all layers alike."""

    layers: int
    projections: int  # of a layer to queries, keys and values
    rest: int  # of a layer: output projection and feed-forward network
    attention: int  # of a layer to one position
    logits: int

    @classmethod
    def of(cls, loaded: LoadedModel) -> "Costs":
        """Return the costs of a dense decoder, from its first layer."""
        layer = loaded.geometry.layers[0]
        weights = {
            f"{layer.block}.{name}": 2 * module.weight.numel()
            for name, module in loaded.model.get_submodule(layer.block).named_modules()
            if is_linear(module)
        }
        attention = layer.name.rpartition(".")[0] + "."
        inside = [cost for name, cost in weights.items() if name.startswith(attention)]
        projections = sum(inside) - weights[layer.name]
        embeddings = loaded.model.get_output_embeddings()
        return cls(
            layers=len(loaded.geometry.layers),
            projections=projections,
            rest=sum(weights.values()) - projections,
            attention=4 * layer.width,
            logits=2 * embeddings.weight.numel(),
        )


def floor(work: Work, choices: Mapping[Key, Sequence[int]], costs: Costs) -> float:
    """Return the floating-point operations that a sweep's distinct tokens need: a lower bound.

    For tokens that it shares with the base answer, including the prompt, a pruned model can reuse
    everything below its pruned layer. It needs logits only where a token is chosen, and at prompt
    positions only keys and values of the last layer. Everything else depends on the head.

    `choices` are the tokens chosen for each question and variant, the end of sequence included.
    """
    total = 0.0
    for question, prompt in work.prompts.items():
        base = choices[question, str(BASE)]
        for variant in work.variants:
            chosen = choices[question, str(variant)]
            fed = len(prompt) + len(chosen) - 1
            if variant.layer is None:
                shared = 0
                above = costs.layers
            else:
                common = sum(takewhile(bool, map(eq, base, chosen)))
                shared = min(fed, len(prompt) + common)
                above = costs.layers - 1 - variant.layer
                total += shared * costs.rest
            layer = costs.projections + costs.rest
            seen, before = fed * (fed + 1) / 2, shared * (shared + 1) / 2
            total += above * (shared * layer + before * costs.attention)
            total += costs.layers * ((fed - shared) * layer + (seen - before) * costs.attention)
            unused = len(prompt) - 1
            total -= unused * costs.rest
            if above or variant.is_base:
                total -= unused * (unused + 1) / 2 * costs.attention
            total += len(chosen) * costs.logits
    return total


@torch.inference_mode()
def peak(loaded: LoadedModel) -> float:
    """Return the floating-point operations a second that large products reach where a model is.

    This is the best of several runs with both libraries, because other work slows them down.
    """
    states = torch.ones(_SIZE, _SIZE, device=loaded.device, dtype=loaded.dtype)
    layer = nn.Linear(_SIZE, _SIZE, bias=False, device=loaded.device, dtype=loaded.dtype)
    work = partial(layer, states)
    seconds = [seconds_of(work) for _ in range(_ROUNDS)]
    with fast_linear(layer):
        seconds += [seconds_of(work) for _ in range(_ROUNDS)]
    return 2 * _SIZE**3 / min(seconds)
