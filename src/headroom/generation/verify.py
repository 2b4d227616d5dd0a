"""Verification: how much of the base model's answer would a pruned model have given?

The base answer is fed to the pruned model in few passes instead of one token at a time, and every
token is compared with the pruned model's own choice (the verification of speculative decoding,
Leviathan et al., arXiv 2211.17192, with the base answer as the draft). Up to the first difference
the answers agree; there the row takes its own token, and goes on in the batch with the keys and
values of the pass. A draft is only a guess: a wrong one costs time, never a token.

The draft is fed in growing chunks, so that a row that differs early leaves early. Rows
that a pass has in common with others are computed once (`growing`, `passes`).
"""

from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import torch
from jaxtyping import Float
from torch import Tensor

from headroom.generation.cache import RowStates
from headroom.generation.direct import Direct
from headroom.generation.forward import Forward
from headroom.generation.growing import GrowingPass
from headroom.generation.passes import HeadsPass, HeadsPasses
from headroom.generation.requests import Answer, Drafted, Row
from headroom.generation.sampling import greedy, margins

FIRST_CHUNK = 64
"""Draft tokens in the first chunk; a later one takes as many, or half of all before it."""

HEAVY_CHUNK = 16
"""The same where a token's arithmetic costs more than a pass's overhead."""

HEAVY = 1 << 22
"""Weights of a layer from which it does."""

LARGEST_CHUNK = 256
"""Most tokens in a later chunk: bounds the memory that logits take."""

_NONE = -1
"""In the place of a drafted token: the draft is over."""


@dataclass
class Verified:
    """What came of a draft."""

    answers: list[Answer] = field(default_factory=list)
    """Finished."""
    rows: list[Row] = field(default_factory=list)
    """Those that took a token of their own and go on."""
    states: list[RowStates] = field(default_factory=list)
    """Keys and values of these rows, of all tokens but the last."""
    accepted: int = 0
    """Tokens of the draft that were found to be the rows' own."""
    unchanged: int = 0
    """Answers equal to the draft."""
    whole: int = 0
    """Rows that ran through the whole model, where it cannot be entered at their layer."""

    def take(self, count: int) -> tuple[list[Row], list[RowStates]]:
        """Take out rows that go on, and their states."""
        taken = self.rows[:count], self.states[:count]
        del self.rows[:count], self.states[:count]
        return taken


class Verifier:
    """Verifies base answers for rows of pruned variants, greedily decoded.

    Args:
        forward: runs the model.
        most_rows: most rows in a pass.
    """

    def __init__(self, forward: Forward | Direct, most_rows: int) -> None:
        self._most_rows = most_rows
        self._forward = forward if isinstance(forward, Direct) else HeadsPasses(forward, most_rows)
        model = forward.loaded.model
        weights = model.num_parameters(exclude_embeddings=True)
        heavy = weights > HEAVY * len(forward.loaded.geometry.layers)
        self._first_chunk = HEAVY_CHUNK if heavy else FIRST_CHUNK

    @torch.inference_mode()
    def verify(self, queue: deque[Drafted]) -> Verified:
        """Take the first questions from a queue and verify their drafts."""
        verified = Verified()
        for run, rows in self._passes(queue):
            verified.whole += run.whole * len(rows)
            _verify(run, rows, verified, self._first_chunk)
        return verified

    def _passes(
        self, queue: deque[Drafted]
    ) -> Iterator[tuple[GrowingPass | HeadsPass, list[tuple[Row, Drafted]]]]:
        if isinstance(self._forward, Direct):
            yield from GrowingPass.over(self._forward, queue, self._most_rows)
        else:
            yield from self._forward.over(queue)


def _verify(
    run: GrowingPass | HeadsPass,
    rows: Sequence[tuple[Row, Drafted]],
    verified: Verified,
    first_chunk: int,
) -> None:
    """Compare the rows of a pass with their drafts."""
    prompts = [len(row.request.prompt) for row, _ in rows]
    for begin, end in _chunks(max(prompts), max(len(each.text) for _, each in rows), first_chunk):
        prompts = [len(row.request.prompt) for row, _ in rows]
        # The position whose logits choose the first token here; later where a prompt is longer.
        first = max(begin, min(prompts) - 1)
        logits = run.feed(begin, end, end - first)
        starts = [max(prompt - 1 - first, 0) for prompt in prompts]
        ahead = [drafted.text[first + 1 : end + 1] for _, drafted in rows]
        agreed, gaps = _agreement(logits, ahead, starts)
        own = logits[range(len(rows)), [min(n, end - first - 1) for n in agreed]]
        tokens, own_gaps = greedy(own).tolist(), margins(own).tolist()
        staying = []
        for place, (row, drafted) in enumerate(rows):
            same = slice(starts[place], agreed[place])
            row.tokens += ahead[place][same]
            row.margin = min([row.margin, *gaps[place][same]])
            if agreed[place] == end - first:
                staying.append(place)
                continue
            verified.accepted += len(row.tokens)
            answer = row.append(tokens[place], own_gaps[place])
            if answer:
                verified.answers.append(answer)
                verified.unchanged += answer.token_ids == tuple(drafted.draft)
            else:
                verified.rows.append(row)
                verified.states.append(run.states(place, first + 1 + agreed[place]))
        rows = [rows[place] for place in staying]
        if not rows:
            return
        run.keep(staying)


def _chunks(prompt: int, length: int, first: int) -> Iterator[tuple[int, int]]:
    """Cut a text into the prompt with the first tokens of the draft, and growing chunks."""
    begin, end = 0, prompt + first
    while begin < length:
        yield begin, min(end, length)
        begin, end = end, end + max(first, min((end - prompt) // 2, LARGEST_CHUNK))


def _agreement(
    logits: Float[Tensor, "rows tokens vocabulary"],
    drafts: Sequence[Sequence[int]],
    starts: Sequence[int],
) -> tuple[list[int], list[list[float]]]:
    """Return how many first tokens of its draft each row chooses itself, and its gaps.

    A gap is how far the drafted token's logit lies above all others: an agreed token's margin.

    Args:
        logits: the rows' own.
        drafts: a token for each position, from the first on. After the last one a row has no
            draft any more: there it chooses for itself.
        starts: the position of each row before which no token is compared.
    """
    count = logits.shape[1]
    padded = [(*draft, *(_NONE,) * (count - len(draft))) for draft in drafts]
    draft = torch.tensor(padded, device=logits.device)
    index = draft.clamp(min=0)[..., None]
    own = logits.gather(-1, index)
    # In place and back: logits of a large vocabulary take gigabytes.
    gaps = own[..., 0] - logits.scatter_(-1, index, -torch.inf).amax(-1)
    logits.scatter_(-1, index, own)
    agree = gaps > 0
    ties = gaps == 0
    if bool(ties.any()):
        agree |= ties & (greedy(logits) == draft)
    begins = torch.tensor(starts, device=logits.device)[:, None]
    agree = (agree & (draft != _NONE)) | (torch.arange(count, device=logits.device) < begins)
    return agree.cumprod(-1).sum(-1).tolist(), gaps.tolist()
