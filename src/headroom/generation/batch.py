"""The rows that are decoded together, one token a step; rows come and go at any step."""

from collections.abc import Collection, Sequence

import torch
from jaxtyping import Float
from torch import Tensor
from transformers import DynamicCache

from headroom.config import Decoding
from headroom.generation.cache import RowStates, SlotCache
from headroom.generation.direct import Direct
from headroom.generation.forward import Forward
from headroom.generation.requests import Answer, Row
from headroom.generation.sampling import greedy, margins, sample


class Batch:
    """Rows of any variants and their cache.

    Args:
        forward: runs the model.
        decoding: how tokens are chosen.
        size: most rows.
    """

    def __init__(self, forward: Forward | Direct, decoding: Decoding, size: int) -> None:
        self._forward = forward
        self._decoding = decoding
        self._size = size
        self._rows: list[Row] = []
        self._cache: SlotCache | None = None

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
        prompts = [group[0].request.prompt for group in groups]
        width = max(map(len, prompts))
        tokens = torch.tensor(
            [(self._forward.loaded.pad_token_id,) * (width - len(p)) + p for p in prompts]
        )
        visible = torch.tensor([[0] * (width - len(p)) + [1] * len(p) for p in prompts])
        positions = (visible.cumsum(-1) - 1).clamp(min=0)
        cache = DynamicCache()
        variants = [group[0].request.variant for group in groups]
        logits = self._forward(tokens, positions, variants, cache, visible=visible)[:, -1]
        members = [place for place, group in enumerate(groups) for _ in group]
        states = [
            [
                (layer.keys[place, :, width - length :], layer.values[place, :, width - length :])
                for layer in cache.layers
            ]
            for place, length in ((place, len(prompts[place])) for place in members)
        ]
        self.resume([row for group in groups for row in group], states)
        first = len(self._rows) - len(members)
        return self._choose(first, logits[torch.tensor(members, device=logits.device)])

    @torch.inference_mode()
    def resume(self, rows: Sequence[Row], states: Sequence[RowStates]) -> None:
        """Let rows enter that are in the midst of their answers.

        Args:
            rows: with at least one token, the last of which was not fed to the model yet.
            states: keys and values of all tokens before that one.
        """
        if self._cache is None:
            self._cache = SlotCache(states[0], self._size)
        self._cache.insert(states)
        self._rows += rows

    @torch.inference_mode()
    def step(self) -> list[Answer]:
        """Feed each row's last token, choose the next, return what is finished."""
        assert self._cache is not None
        tokens = torch.tensor([row.tokens[-1:] for row in self._rows])
        visible = self._cache.attention_mask(self._forward.loaded.device)
        positions = torch.tensor([[row.length] for row in self._rows])
        variants = [row.request.variant for row in self._rows]
        logits = self._forward(tokens, positions, variants, self._cache, visible=visible)[:, -1]
        self._cache.advance()
        return self._choose(0, logits)

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
        gaps = margins(logits).tolist()
        answers = {}
        for place, (row, token, gap) in enumerate(zip(rows, chosen.tolist(), gaps, strict=True)):
            answer = row.append(token, gap)
            if answer:
                answers[first + place] = answer
        if answers:
            self._leave(answers.keys())
        return list(answers.values())

    def _leave(self, leaving: Collection[int]) -> None:
        """Drop rows; the last ones move into the holes."""
        assert self._cache is not None
        left = len(self._rows) - len(leaving)
        movers = (row for row in range(left, len(self._rows)) if row not in leaving)
        kept = [next(movers) if row in leaving else row for row in range(left)]
        self._cache.keep(kept)
        self._rows[:] = [self._rows[row] for row in kept]
