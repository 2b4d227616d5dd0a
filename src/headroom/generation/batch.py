"""The rows that are decoded together, one token a step; rows come and go at any step."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Sequence
from typing import TYPE_CHECKING, Any

import torch
from jaxtyping import Float
from torch import Tensor

from headroom.errors import ModelError
from headroom.generation.decoder import Decoder
from headroom.generation.modules import Modules
from headroom.generation.requests import Answer, Row
from headroom.generation.sampling import choose, sample

if TYPE_CHECKING:
    from headroom.config import Decoding

Watch = Callable[[Row, int, Tensor], object]
"""Is shown a row, the number of one of its tokens, and the logits that it was chosen by."""


class Batch:
    """Rows of any variants.

    Args:
        forward: runs the model.
        decoding: how tokens are chosen.
        size: most rows.
        watch: is shown all logits.
    """

    def __init__(
        self, forward: Decoder | Modules, decoding: Decoding, size: int, watch: Watch | None = None
    ) -> None:
        self._states: Any = forward.rows(size)
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
        first, leaders = len(self._rows), [n for n, group in enumerate(groups) for _ in group[1:]]
        logits = self._states.enter(first, [group[0] for group in groups], leaders)
        self._rows += [group[0] for group in groups]
        self._rows += [row for group in groups for row in group[1:]]
        return self._choose(first, logits[[*range(len(groups)), *leaders]] if leaders else logits)

    @torch.inference_mode()
    def resume(self, rows: Sequence[Row], states: Sequence[Any]) -> None:
        """Let rows enter that are in the midst of their answers.

        Args:
            rows: with at least one token, the last of which was not fed to the model yet.
            states: keys and values of all tokens before that one.
        """
        self._states.resume(len(self._rows), states)
        self._rows += rows

    @torch.inference_mode()
    def step(self) -> list[Answer]:
        """Feed each row's last token, choose the next, return what is finished."""
        return self._choose(0, self._states.step(self._rows))

    def _choose(self, first: int, logits: Float[Tensor, "batch vocabulary"]) -> list[Answer]:
        """Choose the next token of the rows from `first` on; let finished rows leave."""
        rows, decoding = self._rows[first:], self._decoding
        if self._watch is not None:
            for row, own in zip(rows, logits, strict=True):
                self._watch(row, len(row.tokens), own)
        drawn = None
        if not decoding.greedy:
            uniform = torch.tensor([row.uniforms[len(row.tokens)] for row in rows])
            temperature, top_k, top_p = decoding.temperature, decoding.top_k, decoding.top_p
            drawn = sample(logits, uniform.to(logits.device), temperature, top_k, top_p)
        best, gaps = choose(logits)
        chosen = best if drawn is None else drawn
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
        self._states.keep(self._rows, kept)
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
