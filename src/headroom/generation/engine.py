"""The engine: requests in, answers out, with rows that come and go (continuous batching).

Rows of different variants share a batch: each carries its own head mask. A finished row leaves at
once; waiting requests enter when an eighth of the batch is free, longest prompts first, so that
prompts prefilled together are about equally long. Requests with the same prompt and variant (the
samples of a question) are prefilled once. In fp32 tokens equal those of `transformers.generate`
with the head's weights zeroed; sampled tokens do not depend on the batch (see `sampling`).
"""

import gc
import inspect
import logging
import math
import sys
from collections import deque
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass, field
from itertools import chain
from typing import Any, Literal

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor
from transformers import DynamicCache
from transformers.cache_utils import Cache, DynamicLayer, DynamicSlidingWindowLayer

from headroom.config import Decoding
from headroom.errors import ModelError
from headroom.generation.cache import SlotCache
from headroom.generation.sampling import greedy, margins, sample, uniforms
from headroom.models.load import LoadedModel
from headroom.models.masks import HeadMasks, variant_masks
from headroom.variants import BASE, Variant

_LOG = logging.getLogger(__name__)

StopReason = Literal["eos", "length"]

_REFILL = 8
"""New rows enter when one row in this many is free: prefilling few at a time is dear."""


@dataclass(frozen=True)
class Request:
    """A question to be answered by a variant."""

    question_id: str
    prompt: tuple[int, ...]
    """Token ids."""
    variant: Variant = BASE
    sample: int = 0
    """Which of several samples of the question; 0 for greedy decoding."""


@dataclass(frozen=True)
class Answer:
    """An answer to a request."""

    request: Request
    token_ids: tuple[int, ...]
    """Without the end of sequence."""
    stop_reason: StopReason
    margin: float
    """Smallest gap between the best and the second-best logit, the end's included."""


@dataclass
class _Row:
    """A request that is being answered."""

    request: Request
    limit: int  # of new tokens
    uniforms: np.ndarray  # one for each new token; none if decoding is greedy
    tokens: list[int] = field(default_factory=list)
    margin: float = math.inf


class Engine:
    """Answers requests to one model, any number of variants, under one decoding.

    Args:
        loaded: the model.
        decoding: how tokens are chosen, and how many at most. An answer also ends where the
            model's positions end. Other settings of the model's `generation_config`, such as a
            repetition penalty, do not apply.
        batch_size: most rows decoded together. Halved when GPU memory runs out.

    Raises:
        ModelError: the model keeps a recurrent state, or its rotary frequencies depend on the
            longest row of a batch.
    """

    def __init__(self, loaded: LoadedModel, decoding: Decoding, batch_size: int) -> None:
        config = loaded.model.config.get_text_config()
        _check_cache(config)
        _check_rotary(config)
        self._loaded = loaded
        self._decoding = decoding
        self._batch_size = batch_size
        self._positions: int = getattr(config, "max_position_embeddings", None) or sys.maxsize

    def run(self, requests: Iterable[Request]) -> Iterator[Answer]:
        """Answer requests; answers come as they finish, in no particular order.

        Raises:
            ModelError: a prompt that the model has no positions for, a head that it does not
                have, or too little memory for a single row.
        """
        waiting = self._queue(requests)
        while waiting:
            rows: list[_Row] = []
            try:
                with HeadMasks(self._loaded.model, self._loaded.geometry) as masks:
                    batch = _Batch(self._loaded, self._decoding, self._batch_size, masks, rows)
                    while waiting or rows:
                        entering = self._take(waiting, len(rows))
                        yield from batch.enter(entering) if entering else batch.step()
            except torch.OutOfMemoryError as error:
                if self._batch_size == 1:
                    raise ModelError(
                        "one sequence alone does not fit in the GPU's memory; lower "
                        "max_new_tokens, use dtype bfloat16, or spread the model over several "
                        "GPUs with device: balanced"
                    ) from error
            if rows:
                # Out of memory. The unfinished start again from their prompts: answers do not
                # depend on the batch, so nothing but time is lost.
                del batch
                gc.collect()
                torch.cuda.empty_cache()
                self._batch_size //= 2
                _LOG.warning("out of GPU memory; going on with batches of %d", self._batch_size)
                waiting = self._queue([*(row.request for row in rows), *chain(*waiting)])

    def _queue(self, requests: Iterable[Request]) -> deque[list[Request]]:
        """Gather requests with the same prompt and variant, longest prompts first."""
        groups: dict[tuple[tuple[int, ...], Variant], list[Request]] = {}
        for request in requests:
            self._loaded.geometry.check(request.variant)
            if not 0 < len(request.prompt) < self._positions:
                raise ModelError(
                    f"the prompt of question {request.question_id!r} has {len(request.prompt)} "
                    f"tokens; the model takes 1 to {self._positions - 1}: leave this question "
                    f"out, or use a model with more positions"
                )
            groups.setdefault((request.prompt, request.variant), []).append(request)
        ordered = sorted(groups.values(), key=lambda group: -len(group[0].prompt))
        size = self._batch_size
        return deque(g[i : i + size] for g in ordered for i in range(0, len(g), size))

    def _take(self, waiting: deque[list[Request]], running: int) -> list[list[_Row]]:
        """Take whole groups from the queue, if enough of the batch is free."""
        free = self._batch_size - running
        taken: list[list[_Row]] = []
        if running and free < self._batch_size / _REFILL:
            return taken
        while waiting and len(waiting[0]) <= free:
            free -= len(waiting[0])
            taken.append([self._row(request) for request in waiting.popleft()])
        return taken

    def _row(self, request: Request) -> _Row:
        limit = min(self._decoding.max_new_tokens, self._positions - len(request.prompt))
        if self._decoding.greedy:
            return _Row(request, limit, np.empty(0))
        seed = self._decoding.seed
        return _Row(request, limit, uniforms(seed, request.question_id, request.sample, limit))


class _Batch:
    """The rows that are decoded together, their cache and their masks."""

    def __init__(
        self,
        loaded: LoadedModel,
        decoding: Decoding,
        size: int,
        masks: HeadMasks,
        rows: list[_Row],
    ) -> None:
        self._loaded = loaded
        self._decoding = decoding
        self._size = size
        self._masks = masks
        self._rows = rows
        self._cache: SlotCache | None = None
        accepted = inspect.signature(loaded.model.forward).parameters
        self._takes_positions = "position_ids" in accepted
        self._options = {"logits_to_keep": 1} if "logits_to_keep" in accepted else {}

    @torch.inference_mode()
    def enter(self, groups: list[list[_Row]]) -> list[Answer]:
        """Prefill each group's prompt once, choose first tokens, return what is finished."""
        entering = [row for group in groups for row in group]
        self._rows += entering
        prompts = [group[0].request.prompt for group in groups]
        width = max(map(len, prompts))
        tokens = torch.tensor(
            [(self._loaded.pad_token_id,) * (width - len(p)) + p for p in prompts]
        )
        visible = torch.tensor([[0] * (width - len(p)) + [1] * len(p) for p in prompts])
        positions = (visible.cumsum(-1) - 1).clamp(min=0)
        cache = DynamicCache()
        self._mask([group[0].request.variant for group in groups])
        logits = self._forward(tokens, visible, positions, cache)
        if self._cache is None:
            self._cache = SlotCache(cache, self._size)
        members = [place for place, group in enumerate(groups) for _ in group]
        self._cache.insert(cache, members, [len(prompts[place]) for place in members])
        self._mask([row.request.variant for row in self._rows])
        first = len(self._rows) - len(entering)
        return self._choose(first, logits[torch.tensor(members, device=logits.device)])

    @torch.inference_mode()
    def step(self) -> list[Answer]:
        """Feed each row's last token, choose the next, return what is finished."""
        assert self._cache is not None
        tokens = torch.tensor([row.tokens[-1:] for row in self._rows])
        visible = self._cache.attention_mask(self._loaded.device)
        lengths = [[len(row.request.prompt) + len(row.tokens) - 1] for row in self._rows]
        logits = self._forward(tokens, visible, torch.tensor(lengths), self._cache)
        self._cache.advance()
        return self._choose(0, logits)

    def _forward(
        self, tokens: Tensor, visible: Tensor, positions: Tensor, cache: Cache
    ) -> Float[Tensor, "batch vocabulary"]:
        """Return the logits of the next token, float32."""
        device = self._loaded.device
        options: dict[str, Any] = dict(self._options)
        if self._takes_positions:
            options["position_ids"] = positions.to(device)
        output = self._loaded.model(
            input_ids=tokens.to(device),
            attention_mask=visible.to(device),
            past_key_values=cache,
            use_cache=True,
            **options,
        )
        return output.logits[:, -1].float()

    def _choose(self, first: int, logits: Float[Tensor, "batch vocabulary"]) -> list[Answer]:
        """Choose the next token of the rows from `first` on; let finished rows leave."""
        rows = self._rows[first:]
        if self._decoding.greedy:
            chosen = greedy(logits)
        else:
            uniform = torch.tensor([row.uniforms[len(row.tokens)] for row in rows])
            chosen = sample(
                logits,
                uniform.to(logits.device),
                self._decoding.temperature,
                self._decoding.top_k,
                self._decoding.top_p,
            )
        answers = {}
        gaps = margins(logits).tolist()
        for place, (row, token, gap) in enumerate(zip(rows, chosen.tolist(), gaps, strict=True)):
            row.margin = min(row.margin, gap)
            ended = token in self._loaded.eos_token_ids
            if not ended:
                row.tokens.append(token)
            if ended or len(row.tokens) == row.limit:
                reason: StopReason = "eos" if ended else "length"
                answers[first + place] = Answer(row.request, tuple(row.tokens), reason, row.margin)
        if answers:
            self._leave(answers.keys())
            self._mask([row.request.variant for row in self._rows])
        return list(answers.values())

    def _leave(self, leaving: Collection[int]) -> None:
        """Drop rows; the last ones move into the holes."""
        assert self._cache is not None
        left = len(self._rows) - len(leaving)
        movers = (row for row in range(left, len(self._rows)) if row not in leaving)
        kept = [next(movers) if row in leaving else row for row in range(left)]
        self._cache.keep(kept)
        self._rows[:] = [self._rows[row] for row in kept]

    def _mask(self, variants: list[Variant]) -> None:
        """Set the head masks of the next forward pass."""
        model = self._loaded.model
        rows = variants if len(set(variants)) > 1 else variants[:1]
        self._masks.replace(
            variant_masks(self._loaded.geometry, rows, self._loaded.device, model.dtype)
        )


def _check_rotary(config: Any) -> None:
    """Refuse rotary frequencies that change with the longest row of a batch."""
    parameters = getattr(config, "rope_parameters", None) or {}
    kinds = {parameters.get("rope_type")}
    kinds |= {part.get("rope_type") for part in parameters.values() if isinstance(part, dict)}
    changing = kinds & {"dynamic", "longrope"}
    if changing:
        raise ModelError(
            f"rope_type {changing.pop()!r} makes an answer depend on the other rows of its batch; "
            f"set rope_parameters in the model's config.json to a fixed type"
        )


def _check_cache(config: Any) -> None:
    """Refuse models that keep anything else than one key and value for each token and head."""
    layers = DynamicCache(config=config).layers
    others = {type(layer) for layer in layers} - {DynamicLayer, DynamicSlidingWindowLayer}
    if others:
        names = ", ".join(sorted(other.__name__ for other in others))
        raise ModelError(
            f"the model keeps more than keys and values ({names}), which the rows of a batch "
            f"cannot share; use a decoder with plain attention"
        )
