"""The engine: requests in, answers out; a sweep of many heads costs little above its base.

Rows of different variants share a batch: each carries its own head mask. A finished row leaves at
once, a waiting one takes its place (continuous batching). In greedy decoding the base model answers
first, and its answer is verified for every pruned variant instead of being decoded again (see
`batch`). Numeric placebos are decoded from the prompt on, each by itself, in another order and with
another number of rows: both decide who shares a batch with whom, so shapes, padding, and with them
kernels and rounding. In fp32 tokens equal those of `transformers.generate` with the head's weights
zeroed, up to an answer's first margin below 1e-3; sampled tokens do not depend on the batch, except
at the edge of an interval (see `sampling`). What measured no better stands in `docs/LOG.md`.
"""

from __future__ import annotations

import logging
import sys
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import torch

from headsweep.engine.attention import avoid_compiling
from headsweep.engine.batch import DecodingBatch, Verifier
from headsweep.engine.check import WrongAnswers
from headsweep.engine.decoder import Decoder, SlotRows
from headsweep.engine.devices import give_back_memory
from headsweep.engine.execution_path import ExecutionPath
from headsweep.engine.in_progress import RowsInProgress
from headsweep.engine.loop import Loop
from headsweep.engine.other_architectures import ModuleRows, Modules
from headsweep.engine.plans import planned
from headsweep.engine.refusals import check_kind, check_request
from headsweep.engine.requests import Answer, NotFiniteError, Prompt, Request, Row
from headsweep.engine.sampling import uniforms
from headsweep.engine.sizing import (
    PREFILLED,
    PREFILLED_ON_CPU,
    fitting_rows,
    rows_of,
    rows_together,
    verified_rows,
)
from headsweep.engine.stops import Stops
from headsweep.engine.unit import Begun
from headsweep.engine.weights import fast_linear
from headsweep.errors import ModelError
from headsweep.models.geometry import most_tokens
from headsweep.models.loaded import LoadedModel
from headsweep.variants import BASE, FAMILIES, Variant

if TYPE_CHECKING:
    from headsweep.config import Decoding

_LOG = logging.getLogger(__name__)


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
        check_kind(config)
        self._loaded = loaded
        self.decoding = decoding
        self._stops = Stops(loaded.tokenizer, decoding.stop) if decoding.stop else None
        self._positions = most_tokens(config) or sys.maxsize
        if self._on_gpu:
            avoid_compiling()
        if checked is None:
            checked = loaded.dtype != torch.float32 or self._on_gpu
        decoder = decoder or Decoder.of(loaded)
        self._path = ExecutionPath(loaded, decoder, checked=checked, greedy=decoding.greedy)
        self._size_is_fixed = batch_size is not None
        self._batch_size = batch_size or fitting_rows(loaded, decoder, decoding)
        self._in_progress = RowsInProgress(self._new_row)
        self._kept: SlotRows | None = None
        """The slots of the last batch, on a GPU."""
        self._drafts: dict[Prompt, Sequence[int]] = {}
        """Greedy answers of the base model: those that `run` was given, and those found since."""

    def run(
        self,
        requests: Iterable[Request],
        base_answers: Mapping[str, Sequence[int]] = MappingProxyType({}),
        begun: Mapping[Request, Begun] = MappingProxyType({}),
    ) -> Iterator[Answer]:
        """Answer requests; answers come as they finish, in no particular order.

        Hand over all variants of a question at once: that is what makes a sweep cheap. A question
        asked of two pruned variants or more has its base answer found first, requested or not.

        Args:
            requests: each is answered once; equal ones are one.
            base_answers: token ids of base answers that are known already, without the end of
                sequence, by question. They serve as drafts: a wrong one costs time, never a token.
            begun: what `begun` of another engine, since stopped, has said of some requests. They
                go on from there, as if memory had run out, unless the check of this engine finds
                its own path wrong: then they begin anew.

        Raises:
            ModelError: a prompt that the model has no positions for, a head that it does not
                have, or too little memory for a single row.
        """
        parts: dict[int, list[Request]] = defaultdict(list)
        others: dict[Variant, list[Request]] = defaultdict(list)
        self._clear()
        for request in requests:
            check_request(request, self._loaded.geometry, self._positions)
            if FAMILIES[request.variant.kind].on_weights:
                others[request.variant].append(replace(request, variant=BASE))
                continue
            parts[request.variant.seed].append(request)  # of a numeric placebo; else 0
            if self.decoding.greedy and request.question_id in base_answers:
                self._drafts[request.prompt] = base_answers[request.question_id]
        for request, tokens in begun.items():
            self._in_progress.resume(request, tokens)
        if self._path.has_fallen:  # an engine before may have written them as this one did
            self._in_progress.withdraw()
        for placebo in sorted(parts):
            yield from self._answer_all(parts[placebo], placebo)
        for variant, members in others.items():
            self._clear()
            yield from self._answer_with_weights_of(variant, members)
        self._clear()

    def _clear(self) -> None:
        """Forget drafts, and rows of base answers that served as drafts and nobody asked for."""
        self._in_progress.clear()
        self._drafts.clear()

    def _answer_all(self, requests: Iterable[Request], placebo: int) -> Iterator[Answer]:
        """Answer until nothing is left: after a failure in a simpler way, or with fewer rows."""
        pending = dict.fromkeys(requests)
        while pending:
            go_on: Callable[[], None] | None = None
            try:
                for answer in self._path.checked(self._answer([*pending], placebo)):
                    if answer.request in pending:  # not a base answer that was only a draft
                        del pending[answer.request]
                        self._in_progress.forget(answer.request)
                        yield answer
            except torch.OutOfMemoryError as error:
                if self._batch_size == 1:
                    raise ModelError(
                        "one sequence alone does not fit in the GPU's memory; lower "
                        "max_new_tokens, use dtype bfloat16, or spread the model over several GPUs "
                        "with device: balanced"
                    ) from error
                go_on = self._shrink
            except (WrongAnswers, NotFiniteError, RuntimeError) as error:
                go_on = partial(self._fall, self._path.cause_to_fall(error))
            # Here, not above: an exception holds what its frames hold, such as the slots.
            if go_on:
                go_on()

    def _answer_with_weights_of(
        self, variant: Variant, requests: Iterable[Request]
    ) -> Iterator[Answer]:
        """Answer base requests with the weights of a variant, which rows cannot carry."""
        self.let_go()  # the slots are of other weights
        with self._path.weights_of(variant):
            for answer in self._answer_all(requests, 0):
                yield replace(answer, request=replace(answer.request, variant=variant))

    @property
    def tokens_in_progress(self) -> int:
        """Tokens of answers that are not handed over; another thread may ask."""
        return self._in_progress.tokens

    @property
    def begun(self) -> dict[Request, Begun]:
        """What another engine needs to go on with answers that have begun; another thread may ask.

        Tokens are told once the first answers have passed the check, if there is one. Numeric
        placebos depend on the batch, so they begin anew, as do variants of weights.
        """
        if self._path.edited:
            return {}
        check = self._path.check
        in_progress = self._in_progress
        rows = in_progress.begun if check is None or check.has_passed else in_progress.withdrawn
        return {request: tokens for request, tokens in rows.items() if not request.variant.seed}

    @property
    def _on_gpu(self) -> bool:
        return self._loaded.device.type != "cpu"

    @property
    def facts(self) -> dict[str, Any]:
        """What a record says of how answers came about."""
        path = self._path
        return {"path": path.name, "batch_size": self._batch_size, **path.facts}

    def _fall(self, cause: str) -> None:
        """Go on in a simpler way; what was answered, and not handed over, is answered again."""
        self.let_go()
        self._path.fall(cause)
        self._in_progress.withdraw()

    def _shrink(self) -> None:
        """Go on with half of the rows; those under way keep their tokens."""
        self.let_go()
        give_back_memory()
        self._batch_size //= 2
        self._in_progress.interrupt()
        _LOG.warning("out of GPU memory; going on with batches of %d", self._batch_size)

    def _answer(self, requests: Iterable[Request], placebo: int) -> Iterator[Answer]:
        """Answer requests, of one numeric placebo or of none, as the execution path is now."""
        path = self._path
        ended, requests = self._ended(requests)
        yield from ended
        if not requests:
            return
        longest = max(len(request.prompt) for request in requests)
        columns = min(longest + self.decoding.max_new_tokens, self._positions)  # of a row, at most
        batch_size = self._batch_size
        if self._on_gpu and not self._size_is_fixed:
            batch_size = rows_of(batch_size, columns, self.decoding)
        size = rows_together(batch_size, placebo) if placebo else batch_size
        size = min(size, 2 * len(requests))  # each may need its base answer, and no row more
        drafts = self._drafts if self.decoding.greedy and not placebo else None
        plan = planned(requests, self._in_progress, drafts, placebo, size)
        verified = verified_rows(batch_size) if self._on_gpu else batch_size
        allocated = columns if self._on_gpu else 0  # on a CPU slots grow
        of_verifier = allocated if plan.drafted or plan.waiting else 0
        with fast_linear(self._loaded.model), Modules(self._loaded) as modules:
            states = self._slots(size, allocated) or ModuleRows(modules)
            loop = Loop(
                plan,
                DecodingBatch(states, self.decoding, size, path.check),
                Verifier(path.decoder or modules, verified, path.check, of_verifier),
                self._in_progress,
                self._drafts,
                most_prefilled=PREFILLED if self._on_gpu else PREFILLED_ON_CPU,
            )
            yield from loop.answers()

    def _slots(self, size: int, columns: int) -> SlotRows | None:
        """Return slots of rows that are decoded; None where the model's modules keep states.

        On a GPU they are the last batch's, with the steps that were captured on them.
        """
        decoder = self._path.decoder
        if decoder is None:
            return None
        if not self._on_gpu:
            return SlotRows(decoder, size)
        if self._kept is None or self._kept.weights is not decoder.weights:
            self.let_go()
            self._kept = SlotRows(decoder, size, columns)
        else:
            self._kept.begin(size, columns)
        return self._kept

    def let_go(self) -> None:
        """Let go of the memory that waits for the next batch."""
        self._kept = None

    def _ended(self, requests: Iterable[Request]) -> tuple[list[Answer], list[Request]]:
        """Return answers that were ready when memory ran out, and the requests that are left."""
        answers, left = [], []
        for request in requests:
            answer = self._in_progress.take_ended(request)
            if answer is None:
                left.append(request)
                continue
            answers.append(answer)
            if self.decoding.greedy and request.variant.is_base:
                self._drafts[request.prompt] = answer.token_ids
        return answers, left

    def _new_row(self, request: Request) -> Row:
        limit = min(self.decoding.max_new_tokens, self._positions - len(request.prompt))
        row = Row(request, limit, self._loaded.eos_token_ids, stops=self._stops)
        if not self.decoding.greedy:
            seed = self.decoding.seed
            row.uniforms = uniforms(seed, request.question_id, request.sample, limit)
        return row
