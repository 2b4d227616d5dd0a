"""The engine: requests in, answers out; a sweep of many heads costs little above its base.

Rows of different variants share a batch: each carries its own head mask. A finished row leaves at
once, a waiting one takes its place (continuous batching). In greedy decoding the base model answers
first, and its answer is verified for every pruned variant instead of being decoded again (see
`batch`). Numeric placebos are decoded from the prompt on, each by itself, in another order and with
another number of rows: both decide who shares a batch with whom, so shapes, padding, and with them
kernels and rounding. In fp32 tokens equal those of `transformers.generate` with the head's weights
zeroed, up to an answer's first margin below 1e-3; sampled tokens do not depend on the batch, but at
the edge of an interval (see `sampling`). What measured no better stands in `docs/LOG.md`.
"""

from __future__ import annotations

import gc
import logging
import os
import sys
from collections import Counter, defaultdict, deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from transformers import DynamicCache
from transformers.cache_utils import DynamicLayer, DynamicSlidingWindowLayer

from headsweep.errors import ModelError
from headsweep.generation.attention import dense
from headsweep.generation.batch import Batch, Verifier
from headsweep.generation.check import Check, WrongAnswers
from headsweep.generation.decoder import Decoder
from headsweep.generation.modules import Modules
from headsweep.generation.requests import Answer, Drafted, Request, Row
from headsweep.generation.sampling import uniforms
from headsweep.generation.weights import fast_linear
from headsweep.models.geometry import LoadedModel
from headsweep.models.masks import edited_weights
from headsweep.variants import BASE, FAMILIES, Variant

if TYPE_CHECKING:
    from headsweep.config import Decoding

_LOG = logging.getLogger(__name__)

_REFILL = 8  # prompts are prefilled when one row in this many is free: few at a time are dear
_PROMPT = 512  # tokens of a prompt that memory is set aside for

Prompt = tuple[int, ...]


class Engine:
    """Answers requests to one model, any number of variants, under one decoding.

    Args:
        loaded: the model.
        decoding: how tokens are chosen, and how many at most. An answer also ends where the
            model's positions end. Other settings of the model's `generation_config`, such as a
            repetition penalty, do not apply.
        batch_size: most rows decoded, or verified, together; None: as many as the model's shape
            and the memory allow. Halved when GPU memory runs out.
        decoder: the model's, if it is made already: what is forked later shares its memory.
        checked: whether answers are held against the model's own modules as they come; by default
            in half precision and on GPUs.

    Raises:
        ModelError: the model keeps a recurrent state, or its rotary frequencies depend on the
            longest row of a batch.
    """

    def __init__(
        self,
        loaded: LoadedModel,
        decoding: Decoding,
        batch_size: int | None,
        decoder: Decoder | None = None,
        *,
        checked: bool | None = None,
    ) -> None:
        config = loaded.model.config.get_text_config()
        _check_kind(config)
        self._loaded = loaded
        self._decoding = decoding
        self._positions: int = getattr(config, "max_position_embeddings", None) or sys.maxsize
        self._decoder = decoder or Decoder.of(loaded)
        if checked is None:
            checked = loaded.dtype != torch.float32 or loaded.device.type == "cuda"
        self._check = self._new_check() if checked and self._decoder else None
        self._falls: list[str] = []
        self._batch_size = batch_size or fitting_rows(loaded, self._decoder, decoding)

    def run(
        self,
        requests: Iterable[Request],
        base_answers: Mapping[str, Sequence[int]] = MappingProxyType({}),
    ) -> Iterator[Answer]:
        """Answer requests; answers come as they finish, in no particular order.

        Hand over all variants of a question at once: that is what makes a sweep cheap. A question
        asked of two pruned variants or more has its base answer found first, requested or not.

        Args:
            requests: each is answered once.
            base_answers: token ids of base answers that are known already, without the end of
                sequence, by question. They serve as drafts: a wrong one costs time, never a token.

        Raises:
            ModelError: a prompt that the model has no positions for, a head that it does not
                have, or too little memory for a single row.
        """
        parts: dict[int, Counter[Request]] = defaultdict(Counter)
        others: dict[Variant, list[Request]] = defaultdict(list)
        drafts: dict[Prompt, Sequence[int]] = {}
        for request in requests:
            self._loaded.geometry.check(request.variant)
            if not 0 < len(request.prompt) < self._positions:
                raise ModelError(
                    f"the prompt of question {request.question_id!r} has {len(request.prompt)} "
                    f"tokens; the model takes 1 to {self._positions - 1}: leave this question out, "
                    f"or use a model with more positions"
                )
            if FAMILIES[request.variant.kind].on_weights:
                others[request.variant].append(request)
                continue
            parts[request.variant.seed][request] += 1  # of a numeric placebo; else 0
            if self._decoding.greedy and request.question_id in base_answers:
                drafts[request.prompt] = base_answers[request.question_id]
        for placebo in sorted(parts):
            pending = parts[placebo]
            while pending.total():
                try:
                    answers = self._answer(pending.elements(), drafts, placebo)
                    for answer in self._check.groups(answers) if self._check else answers:
                        if pending[answer.request]:
                            pending[answer.request] -= 1
                            yield answer
                # The unfinished start again: nothing but time is lost.
                except WrongAnswers as cause:
                    self._fall(str(cause))
                except torch.OutOfMemoryError as error:
                    self._shrink(error)
        for variant, asked in others.items():
            yield from self._with_weights_of(variant, asked)

    def _with_weights_of(self, variant: Variant, requests: Sequence[Request]) -> Iterator[Answer]:
        """Answer requests to a model with other weights: rows cannot carry these."""
        loaded = self._loaded
        with edited_weights(loaded.model, loaded.geometry, variant):
            engine = Engine(
                loaded, self._decoding, self._batch_size, checked=self._check is not None
            )
            for answer in engine.run(replace(request, variant=BASE) for request in requests):
                yield replace(answer, request=replace(answer.request, variant=variant))

    @property
    def _path(self) -> str:
        return getattr(self._decoder.attend, "__name__", "") if self._decoder else "modules"

    @property
    def facts(self) -> dict[str, Any]:
        """What a record says of how answers came about."""
        check = {"check": self._check.facts} if self._check else {}
        falls = {"falls": list(self._falls)} if self._falls else {}
        return {"path": self._path, "batch_size": self._batch_size, **check, **falls}

    def _new_check(self) -> Check:
        return Check(self._loaded, greedy=self._decoding.greedy)

    def _fall(self, cause: str) -> None:
        """Go on in a simpler way: dense attention, then the model's own modules."""
        assert self._decoder is not None
        before = self._path
        if before == "dense":
            self._decoder = self._check = None
        else:
            self._decoder.attend, self._check = dense, self._new_check()
        self._falls.append(f"{before} to {self._path}: {cause}")
        _LOG.warning("%s; going on by %s, slower; please report this", cause, self._path)

    def _shrink(self, error: Exception) -> None:
        if self._batch_size == 1:
            raise ModelError(
                "one sequence alone does not fit in the GPU's memory; lower max_new_tokens, use "
                "dtype bfloat16, or spread the model over several GPUs with device: balanced"
            ) from error
        gc.collect()
        torch.cuda.empty_cache()
        self._batch_size //= 2
        _LOG.warning("out of GPU memory; going on with batches of %d", self._batch_size)

    def _answer(
        self, requests: Iterable[Request], drafts: dict[Prompt, Sequence[int]], placebo: int
    ) -> Iterator[Answer]:
        """Answer requests, of one numeric placebo or of none; `drafts` takes base answers found."""
        size = rows_together(self._batch_size, placebo) if placebo else self._batch_size
        groups, drafted, waiting = self._plan(requests, drafts, placebo, size)
        with fast_linear(self._loaded.model), Modules(self._loaded) as modules:
            forward = self._decoder or modules
            watch = self._check.watch if self._check else None
            batch = Batch(forward, self._decoding, size, watch)
            verifier = Verifier(forward, self._batch_size, watch)
            while verifier.ready or groups or drafted or len(batch):
                answers: list[Answer] = []
                if verifier.ready and batch.free:
                    batch.join(verifier.ready)
                elif entering := self._take(groups, batch):
                    answers = batch.enter(entering)
                elif drafted and batch.free:
                    answers = verifier.verify(drafted)
                else:
                    answers = batch.step()
                for answer in answers:
                    prompt = answer.request.prompt
                    if prompt in waiting and answer.request.variant.is_base:
                        drafts[prompt] = answer.token_ids
                        drafted.append(Drafted(answer.token_ids, waiting.pop(prompt)))
                yield from answers

    def _plan(
        self,
        requests: Iterable[Request],
        drafts: Mapping[Prompt, Sequence[int]],
        placebo: int,
        size: int,
    ) -> tuple[deque[list[Request]], deque[Drafted], dict[Prompt, list[Row]]]:
        """Return requests to be decoded, in groups with the same prompt and variant, longest first.

        Besides, those whose base answer is known, and, by prompt, those whose base answer is among
        the first.
        """
        questions: dict[Prompt, dict[Variant, list[Request]]] = defaultdict(dict)
        for request in requests:
            questions[request.prompt].setdefault(request.variant, []).append(request)
        groups: list[list[Request]] = []
        drafted: list[Drafted] = []
        waiting: dict[Prompt, list[Row]] = {}
        for prompt, variants in sorted(questions.items(), key=lambda item: -len(item[0])):
            base, known = variants.pop(BASE, []), prompt in drafts
            verified = self._decoding.greedy and not placebo and len(variants) > 0
            if verified and (known or base or len(variants) > 1):
                rows = [self._row(request) for group in variants.values() for request in group]
                if known:
                    drafted.append(Drafted(drafts[prompt], rows))
                else:
                    waiting[prompt] = rows
                    base = base or [Request(rows[0].request.question_id, prompt)]
                variants = {}
            groups += [group for group in (base, *variants.values()) if group]
        # Drafts of like length are verified together.
        drafted.sort(key=lambda each: -len(each.text))
        if placebo:
            order = np.random.default_rng(placebo).permutation(len(groups))
            groups = [groups[place] for place in order]
        parts = (g[i : i + size] for g in groups for i in range(0, len(g), size))
        return deque(parts), deque(drafted), waiting

    def _take(self, groups: deque[list[Request]], batch: Batch) -> list[list[Row]]:
        """Take whole groups from the queue, if enough of the batch is free."""
        taken, free = list[list[Row]](), batch.free
        if len(batch) and free < self._batch_size / _REFILL:
            return taken
        while groups and len(groups[0]) <= free:
            free -= len(groups[0])
            taken.append([self._row(request) for request in groups.popleft()])
        return taken

    def _row(self, request: Request) -> Row:
        limit = min(self._decoding.max_new_tokens, self._positions - len(request.prompt))
        row = Row(request, limit, self._loaded.eos_token_ids)
        if not self._decoding.greedy:
            row.uniforms = uniforms(self._decoding.seed, request.question_id, request.sample, limit)
        return row


def fitting_rows(loaded: LoadedModel, decoder: Decoder | None, decoding: Decoding) -> int:
    """Return how many rows to decode together, from a model's shape and the memory that is free.

    Large products are faster the more rows they have; small ones gain nothing above 64.
    """
    layers = loaded.geometry.layers
    if loaded.device.type == "cuda":
        free, total = torch.cuda.mem_get_info(loaded.device)
        free, most = free - total // 12 - (1 << 30), 512
    else:
        pages = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
        free = pages // (4 * (os.cpu_count() or 1))  # of one worker, beside weights and the rest
        most = 128 if decoder and decoder.weights.is_heavy else 64
    token = sum(2 * layer.kv_heads * layer.head_dim for layer in layers) * loaded.dtype.itemsize
    row = token * (decoding.max_new_tokens + _PROMPT)
    return max(1, min(most, int(free / (2 * row))))  # decoding and verification have slots each


def rows_together(batch_size: int, placebo: int) -> int:
    """Return how many rows a placebo decodes together: 1, 2, ... fewer than other variants."""
    return max(1, batch_size - 1 - (placebo - 1) % max(1, batch_size // 2))


def _check_kind(config: Any) -> None:
    """Refuse models whose rows depend on one another, or keep more than keys and values."""
    rope = getattr(config, "rope_parameters", None) or {}
    parts = [rope, *(part for part in rope.values() if isinstance(part, dict))]
    if changing := {part.get("rope_type") for part in parts} & {"dynamic", "longrope"}:
        raise ModelError(
            f"rope_type {changing.pop()!r} makes an answer depend on the other rows of its batch; "
            f"set rope_parameters in the model's config.json to a fixed type"
        )
    layers = DynamicCache(config=config).layers
    if others := {type(layer) for layer in layers} - {DynamicLayer, DynamicSlidingWindowLayer}:
        names = ", ".join(sorted(other.__name__ for other in others))
        raise ModelError(
            f"the model keeps more than keys and values ({names}), which the rows of a batch "
            f"cannot share; use a decoder with plain attention"
        )
