"""The rows that are decoded together, one token a step; rows come and go at any step."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Sequence
from typing import TYPE_CHECKING

import torch
from jaxtyping import Float
from torch import Tensor

from headroom.errors import ModelError
from headroom.generation.decoder import Decoder
from headroom.generation.modules import ModuleRows, Modules
from headroom.generation.requests import Answer, Request, Row
from headroom.generation.sampling import choose, margins, sample
from headroom.generation.slots import Segments, Slots, States
from headroom.models.masks import RowMasks

if TYPE_CHECKING:
    from headroom.config import Decoding

Watch = Callable[[Row, int, Tensor], object]
"""Is shown a row, the number of one of its tokens, and the logits that it was chosen by."""


class SlotRows:
    """Keys and values of rows of a decoder, and the passes over them.

    Args:
        decoder: runs the model.
        size: most rows.
    """

    def __init__(self, decoder: Decoder, size: int) -> None:
        self._decoder = decoder
        self._size = size
        self._slots = Slots(decoder.weights)
        self._requests: list[Request] = []
        self._lengths: list[int] = []
        self._masks: dict[int, RowMasks] | None = None
        self._numbers = torch.arange(size, device=decoder.weights.device)

    def enter(
        self, requests: Sequence[Request], leaders: Sequence[int]
    ) -> Float[Tensor, "groups vocabulary"]:
        """Prefill prompts; return the logits behind them.

        Args:
            requests: one a prompt.
            leaders: of each new row, whose prompt it has; the first rows are the requests'.
        """
        decoder, first = self._decoder, len(self._lengths)
        prompts = [request.prompt for request in requests]
        counts = [len(prompt) for prompt in prompts]
        self._slots.reserve(self._size, max(counts) + 1)
        segments = Segments.of([0] * len(counts), counts, decoder.weights.device, first)
        masks = decoder.row_masks([request.variant for request in requests])
        hidden = decoder.forward(
            torch.tensor(sum(prompts, ()), device=decoder.weights.device),
            segments,
            self._slots,
            {index: mask.of(segments.rows) for index, mask in masks.items()},
            [1] * len(counts),
        )
        for row, leader in enumerate(leaders[len(requests) :], start=first + len(requests)):
            self._slots.move(first + leader, row, counts[leader])
        self._add([requests[leader] for leader in leaders], [counts[leader] for leader in leaders])
        return decoder.logits(hidden)

    def resume(self, requests: Sequence[Request], states: Sequence[States]) -> None:
        """Let rows in whose keys and values are known."""
        lengths = [each.shape[2] for each in states]
        self._slots.reserve(self._size, max(lengths) + 1)
        for slot, each in enumerate(states, start=len(self._lengths)):
            self._slots.insert(slot, each)
        self._add(requests, lengths)

    def step(self, tokens: Sequence[int]) -> Float[Tensor, "rows vocabulary"]:
        """Feed each row a token; return the logits behind it."""
        decoder, rows = self._decoder, len(tokens)
        width = max(self._lengths) + 1
        self._slots.reserve(self._size, width)
        device = decoder.weights.device
        segments = Segments(
            0, [1] * rows, torch.tensor(self._lengths, device=device), width, False, rows == 1
        )
        segments.rows = self._numbers[:rows]
        if self._masks is None:
            self._masks = decoder.row_masks([request.variant for request in self._requests])
        fed = torch.tensor(tokens, device=device)
        hidden = decoder.forward(fed, segments, self._slots, self._masks)
        self._lengths = [length + 1 for length in self._lengths]
        return decoder.logits(hidden)

    def keep(self, rows: Sequence[int]) -> None:
        """Drop all other rows; afterwards, row i is what row `rows[i]` was, none earlier than i."""
        for new, old in enumerate(rows):
            if new != old:
                self._slots.move(old, new, self._lengths[old])
        self._requests = [self._requests[row] for row in rows]
        self._lengths = [self._lengths[row] for row in rows]
        self._masks = None

    def _add(self, requests: Sequence[Request], lengths: Sequence[int]) -> None:
        self._requests += requests
        self._lengths += lengths
        self._masks = None


class Batch:
    """Rows of any variants.

    Args:
        forward: runs the model.
        decoding: how tokens are chosen.
        size: most rows.
        watch: is shown all logits.
    """

    def __init__(
        self,
        forward: Decoder | Modules,
        decoding: Decoding,
        size: int,
        watch: Watch | None = None,
    ) -> None:
        self._states: SlotRows | ModuleRows
        if isinstance(forward, Decoder):
            self._states = SlotRows(forward, size)
        else:
            self._states = ModuleRows(forward, size)
        self._decoding = decoding
        self._size = size
        self._watch = watch
        self._rows: list[Row] = []

    def __len__(self) -> int:
        return len(self._rows)

    @property
    def free(self) -> int:
        """Number of rows that may enter."""
        return self._size - len(self._rows)

    @torch.inference_mode()
    def enter(self, groups: Sequence[Sequence[Row]]) -> list[Answer]:
        """Prefill each group's prompt once, choose first tokens, return what is finished.

        Args:
            groups: rows with the same prompt and variant, as the samples of a question.
        """
        numbers = range(len(groups))
        leaders = [*numbers, *(n for n in numbers for _ in groups[n][1:])]
        logits = self._states.enter([group[0].request for group in groups], leaders)
        first = len(self._rows)
        self._rows += [group[0] for group in groups]
        self._rows += [row for group in groups for row in group[1:]]
        if len(leaders) > len(groups):
            logits = logits[torch.tensor(leaders, device=logits.device)]
        return self._choose(first, logits)

    @torch.inference_mode()
    def resume(self, rows: Sequence[Row], states: Sequence[States]) -> None:
        """Let rows enter that are in the midst of their answers.

        Args:
            rows: with at least one token, the last of which was not fed to the model yet.
            states: keys and values of all tokens before that one.
        """
        self._states.resume([row.request for row in rows], states)
        self._rows += rows

    @torch.inference_mode()
    def step(self) -> list[Answer]:
        """Feed each row's last token, choose the next, return what is finished."""
        return self._choose(0, self._states.step([row.tokens[-1] for row in self._rows]))

    def _choose(self, first: int, logits: Float[Tensor, "batch vocabulary"]) -> list[Answer]:
        """Choose the next token of the rows from `first` on; let finished rows leave."""
        rows, decoding = self._rows[first:], self._decoding
        if self._watch is not None:
            for row, own in zip(rows, logits, strict=True):
                self._watch(row, len(row.tokens), own)
        if decoding.greedy:
            chosen, gaps = choose(logits)
        else:
            uniform = torch.tensor([row.uniforms[len(row.tokens)] for row in rows])
            temperature, top_k, top_p = decoding.temperature, decoding.top_k, decoding.top_p
            chosen = sample(logits, uniform.to(logits.device), temperature, top_k, top_p)
            gaps = margins(logits)
        answers = {}
        found = zip(rows, chosen.tolist(), check_finite(gaps.tolist()), strict=True)
        for place, (row, token, gap) in enumerate(found):
            answer = row.append(token, gap)
            if answer:
                answers[first + place] = answer
        if answers:
            self._leave(answers.keys())
        return list(answers.values())

    def _leave(self, leaving: Collection[int]) -> None:
        """Drop rows; the last ones move into the holes."""
        left = len(self._rows) - len(leaving)
        movers = (row for row in range(left, len(self._rows)) if row not in leaving)
        kept = [next(movers) if row in leaving else row for row in range(left)]
        self._states.keep(kept)
        self._rows[:] = [self._rows[row] for row in kept]


def check_finite(gaps: list[float]) -> list[float]:
    """Return gaps of logits as they are.

    Raises:
        ModelError: one is no number: the model's arithmetic has left its type's range.
    """
    if any(map(math.isnan, gaps)):
        raise ModelError(
            "the model's logits are not finite: float16 is too narrow for it; use dtype bfloat16"
        )
    return gaps
