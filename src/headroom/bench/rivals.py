"""The work of the rivals in a benchmark, and how each does it with torch and transformers."""

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, nullcontext
from dataclasses import asdict, dataclass, field, replace
from typing import Any
from unittest.mock import patch

import torch
from transformers import ContinuousBatchingConfig, GenerationConfig

from headroom.config import Decoding
from headroom.generation import engine as engine_module
from headroom.generation import verify
from headroom.generation.decoder import Decoder
from headroom.generation.engine import Engine, Request
from headroom.models.load import LoadedModel
from headroom.models.masks import zero_head_weights
from headroom.variants import Variant

PUBLISHED_BATCH = 16
SORTED_BATCH = 256
ENGINE_BATCH = 128
NEAR_TIE = 1e-3
"""Margin, in logits, below which rounding may decide a token in float32."""

Key = tuple[str, str]
"""Question and variant."""


@dataclass(frozen=True)
class Work:
    """A sweep: every question is answered by every variant."""

    prompts: dict[str, tuple[int, ...]]
    """Token ids, by question."""
    variants: tuple[Variant, ...]
    """The base model first."""
    max_new_tokens: int

    def split(self, by: str, parts: int) -> list["Work"]:
        """Divide the work among workers, by `questions` or by `variants`.

        Each part has questions of all lengths.
        """
        if by == "variants":
            return [replace(self, variants=self.variants[part::parts]) for part in range(parts)]
        ordered = sorted(self.prompts.items(), key=lambda item: len(item[1]))
        return [replace(self, prompts=dict(ordered[part::parts])) for part in range(parts)]

    def first(self, *, questions: int | None = None, variants: int | None = None) -> "Work":
        """Return a part: the first questions, the base model and heads of all layers."""
        base, *pruned = self.variants
        count = len(self.variants) if variants is None else variants
        return replace(
            self,
            prompts=dict(list(self.prompts.items())[:questions]),
            variants=(base, *spread(pruned, count - 1)),
        )


def spread(heads: Sequence[Variant], count: int) -> list[Variant]:
    """Choose heads evenly over all layers and heads."""
    count = min(count, len(heads))
    return [heads[place * len(heads) // count] for place in range(count)]


@dataclass
class Outcome:
    """A rival's answers."""

    choices: dict[Key, list[int]] = field(default_factory=dict)
    """Tokens chosen for each question and variant, the end of sequence included."""
    near_ties: list[Key] = field(default_factory=list)
    """Answers whose tokens rounding may decide: their margin is at most `NEAR_TIE`."""
    statistics: dict[str, float] = field(default_factory=dict)


def published(loaded: LoadedModel, work: Work) -> Outcome:
    """Answer as the papers' code does: batches of 16 in given order, one pruned model at a time."""
    return _one_by_one(loaded, work, list(work.prompts), PUBLISHED_BATCH)


def large_sorted(loaded: LoadedModel, work: Work) -> Outcome:
    """Answer in batches of 256, questions of similar length together."""
    order = sorted(work.prompts, key=lambda question: -len(work.prompts[question]))
    return _one_by_one(loaded, work, order, SORTED_BATCH)


def _one_by_one(loaded: LoadedModel, work: Work, order: list[str], size: int) -> Outcome:
    outcome = Outcome()
    for variant in work.variants:
        with zero_head_weights(loaded.model, loaded.geometry, variant):
            for start in range(0, len(order), size):
                questions = order[start : start + size]
                prompts = [work.prompts[question] for question in questions]
                width = max(map(len, prompts))
                padding = [width - len(prompt) for prompt in prompts]
                ids = [
                    [loaded.pad_token_id] * pad + [*prompt]
                    for pad, prompt in zip(padding, prompts, strict=True)
                ]
                visible = [[0] * pad + [1] * (width - pad) for pad in padding]
                rows = loaded.model.generate(
                    torch.tensor(ids, device=loaded.device),
                    attention_mask=torch.tensor(visible, device=loaded.device),
                    generation_config=_settings(loaded, work),
                )[:, width:].tolist()
                for question, row in zip(questions, rows, strict=True):
                    outcome.choices[question, str(variant)] = _until_end(loaded, row)
    return outcome


def continuous(loaded: LoadedModel, work: Work) -> Outcome:
    """Answer with transformers' own continuous batching, one pruned model at a time."""
    outcome = Outcome()
    options = {}
    if loaded.device.type == "cpu":
        # By default it takes most of the memory, and the time to fill it, for every variant.
        longest = max(map(len, work.prompts.values())) + work.max_new_tokens
        pages = -(-longest // 32) * SORTED_BATCH
        options = {"page_size": 32, "num_blocks": pages, "max_batch_tokens": 512}
    for variant in work.variants:
        with zero_head_weights(loaded.model, loaded.geometry, variant):
            outputs = loaded.model.generate_batch(
                inputs=[list(prompt) for prompt in work.prompts.values()],
                generation_config=_settings(loaded, work),
                continuous_batching_config=ContinuousBatchingConfig(**options),
                warmup=loaded.device.type != "cpu",
            )
        found = {tuple(output.prompt_ids): output for output in outputs.values()}
        for question, prompt in work.prompts.items():
            row = _until_end(loaded, found[prompt].generated_tokens)
            outcome.choices[question, str(variant)] = row
    return outcome


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


def engine(
    loaded: LoadedModel,
    work: Work,
    *,
    without: Callable[[], AbstractContextManager[Any]] = nullcontext,
    drafts: bool = True,
    mixed: bool = True,
) -> Outcome:
    """Answer with the engine, or with a part of it switched off.

    Args:
        loaded: the model.
        work: what to answer.
        without: makes a context that switches off or replaces a part of the engine.
        drafts: verify base answers; else decode every answer, after a shared prefill.
        mixed: give the engine all variants at once; else one after the other.
    """
    runner = Engine(loaded, Decoding(max_new_tokens=work.max_new_tokens), ENGINE_BATCH)
    groups = [work.variants] if mixed else [(variant,) for variant in work.variants]
    nothing: Mapping[str, tuple[int, ...]] = {} if drafts else dict.fromkeys(work.prompts, ())
    outcome = Outcome()
    with without():
        for group in groups:
            requests = [
                Request(question, prompt, variant)
                for question, prompt in work.prompts.items()
                for variant in group
            ]
            for answer in runner.run(requests, nothing):
                end = loaded.eos_token_ids[:1] if answer.stop_reason == "eos" else ()
                key = answer.request.question_id, str(answer.request.variant)
                outcome.choices[key] = [*answer.token_ids, *end]
                if answer.margin <= NEAR_TIE:
                    outcome.near_ties.append(key)
    outcome.statistics = asdict(runner.statistics)
    return outcome


@dataclass(frozen=True)
class Rival:
    """A row of the benchmark."""

    name: str
    answer: Callable[[LoadedModel, Work], Outcome] | None
    """None: vLLM's workers answer, in an environment of their own."""
    split: str = "questions"
    """How its work is divided among processes."""
    variants: int | None = None
    """Number of variants it is measured on; all by default."""


def _less(name: str, **options: Any) -> Rival:
    """Return the engine with a part switched off."""
    return Rival(name, lambda loaded, work: engine(loaded, work, **options))


def _own_modules(*others: AbstractContextManager[Any]) -> ExitStack:
    """Use only the models' own modules, and switch off other parts of the engine."""
    stack = ExitStack()
    for context in (patch.object(Decoder, "of", lambda _: None), *others):
        stack.enter_context(context)
    return stack


RIVALS = {
    "published": Rival("generate, batch 16 (published way)", published, "variants"),
    "sorted": Rival("generate, one large sorted batch", large_sorted, "variants"),
    "generate_batch": Rival("generate_batch (transformers)", continuous, "variants", 3),
    "vllm": Rival("vLLM, one pruned model at a time", None, "variants"),
    "engine": Rival("engine", engine),
    "one variant at a time": _less("engine, one variant at a time", mixed=False),
    "no drafts": _less("engine, nothing verified", drafts=False),
    "one chunk": _less(
        "engine, verified in one chunk",
        without=lambda: patch.object(verify, "FIRST_CHUNK", 1 << 30),
    ),
    "own modules": _less("engine, the model's own modules", without=_own_modules),
    "no oneDNN": _less(
        "same, linear layers as PyTorch has them",
        without=lambda: _own_modules(patch.object(engine_module, "fast_linear", nullcontext)),
    ),
}
"""By name on the command line. All but the first five switch off a part of the engine; "same" is
the engine with the model's own modules."""
