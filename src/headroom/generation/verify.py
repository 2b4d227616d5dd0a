"""Verification: how much of the base model's answer would a pruned model have given?

The base answer is fed to the pruned model in few passes instead of one token at a time, and every
token is compared with the pruned model's own choice (the verification of speculative decoding,
Leviathan et al., arXiv 2211.17192, with the base answer as the draft). Up to the first difference
the answers agree; there the row takes its own token, and goes on in the batch with the keys and
values of the pass. A draft is only a guess: a wrong one costs time, never a token.

The draft is fed in growing chunks, so that a row that differs early leaves early. Rows of a pass
are equally long: no padding, plain causal attention.
"""

from collections import defaultdict, deque
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field

import torch
from jaxtyping import Float, Int
from torch import Tensor

from headroom.generation.cache import RowStates
from headroom.generation.forward import Forward
from headroom.generation.passes import BasePass, HeadsPass, can_enter
from headroom.generation.reentry import Reentry
from headroom.generation.requests import Answer, Row
from headroom.generation.sampling import greedy, margins

FIRST_CHUNK = 64
"""Draft tokens in the first chunk; each later chunk takes as many as all before it."""

LARGEST_CHUNK = 256
"""Most tokens in a later chunk: bounds the memory that logits take."""

BASE_TOKENS = 512
"""Tokens of several questions that the base model is run over at once; one always is."""


@dataclass(eq=False)
class Drafted:
    """A question with a draft of its answer."""

    draft: Sequence[int]
    """Token ids without the end of sequence."""
    rows: list[Row]
    """Of pruned variants, all with the same prompt and limit, no tokens yet."""

    @property
    def text(self) -> tuple[int, ...]:
        """The prompt, and what of the draft is fed to verify it: all but a token at the limit."""
        first = self.rows[0]
        return (*first.request.prompt, *self.draft[: first.limit - 1])

    def layers(self) -> dict[int, list[Row]]:
        """Return the rows by the layer that they prune."""
        layers: dict[int, list[Row]] = defaultdict(list)
        for row in self.rows:
            assert row.request.variant.layer is not None
            layers[row.request.variant.layer].append(row)
        return layers


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

    def __init__(self, forward: Forward, most_rows: int) -> None:
        self._forward = forward
        self._most_rows = most_rows
        self._reentry = Reentry(forward.loaded.model, forward.loaded.geometry)
        self._enterable: dict[int, bool] = {}
        self._bases: dict[Drafted, BasePass] = {}

    @torch.inference_mode()
    def verify(self, queue: deque[Drafted]) -> Verified:
        """Take the first question from a queue and verify its draft."""
        if queue[0] not in self._bases:
            self._run_base(queue)
        drafted = queue.popleft()
        base = self._bases.pop(drafted)
        verified = Verified()
        for layer, heads in drafted.layers().items():
            for start in range(0, len(heads), self._most_rows):
                self._verify_heads(base, layer, heads[start : start + self._most_rows], verified)
        draft = tuple(drafted.draft)
        verified.unchanged = sum(answer.token_ids == draft for answer in verified.answers)
        return verified

    def _run_base(self, queue: Iterable[Drafted]) -> None:
        """Run the base model over the next questions of a queue."""
        taken: list[Drafted] = []
        texts: list[tuple[int, ...]] = []
        for drafted in queue:
            width = max(map(len, [*texts, drafted.text]))
            full = len(texts) == self._most_rows or (len(texts) + 1) * width > BASE_TOKENS
            if texts and full:
                break
            taken.append(drafted)
            texts.append(drafted.text)
        entrances = {layer for drafted in taken for layer in drafted.layers()}
        passes = BasePass.over(texts, entrances, self._forward, self._reentry)
        self._bases = dict(zip(taken, passes, strict=True))

    def _verify_heads(
        self, base: BasePass, layer: int, rows: Sequence[Row], verified: Verified
    ) -> None:
        prompt = len(rows[0].request.prompt)
        variants = [row.request.variant for row in rows]
        if layer not in self._enterable:
            self._enterable[layer] = can_enter(
                self._forward, self._reentry, base, variants[0], prompt
            )
        whole = not self._enterable[layer]
        verified.whole += whole * len(rows)
        run = HeadsPass(self._forward, self._reentry, base, variants, whole=whole)
        for begin, end in _chunks(prompt, len(base.tokens)):
            first = max(begin, prompt - 1)  # the position whose logits choose the first token here
            logits = run.feed(begin, end, end - first)
            # After the last token there is no draft any more: there every row chooses for itself.
            ahead = torch.tensor(base.tokens[first + 1 : end + 1], device=logits.device)
            agreed, gaps = _agreement(logits, ahead)
            own = logits[range(len(rows)), [min(n, end - first - 1) for n in agreed]]
            tokens, own_gaps = greedy(own).tolist(), margins(own).tolist()
            staying = []
            for place, row in enumerate(rows):
                row.tokens += base.tokens[first + 1 : first + 1 + agreed[place]]
                row.margin = min([row.margin, *gaps[place][: agreed[place]]])
                if agreed[place] == end - first:
                    staying.append(place)
                    continue
                verified.accepted += len(row.tokens)
                answer = row.append(tokens[place], own_gaps[place])
                if answer:
                    verified.answers.append(answer)
                else:
                    verified.rows.append(row)
                    verified.states.append(run.states(place, first + 1 + agreed[place]))
            rows = [rows[place] for place in staying]
            if not rows:
                return
            run.keep(staying)


def _chunks(prompt: int, length: int) -> Iterator[tuple[int, int]]:
    """Cut a text into the prompt with the first tokens of the draft, and growing chunks."""
    begin, end = 0, prompt + FIRST_CHUNK
    while begin < length:
        yield begin, min(end, length)
        begin, end = end, end + min(end - prompt, LARGEST_CHUNK)


def _agreement(
    logits: Float[Tensor, "rows tokens vocabulary"], draft: Int[Tensor, " drafted"]
) -> tuple[list[int], list[list[float]]]:
    """Return how many first tokens of a draft each row chooses itself, and its gaps.

    A gap is how far the drafted token's logit lies above all others: an agreed token's margin.
    """
    logits = logits[:, : len(draft)]
    index = draft.expand(len(logits), -1)[..., None]
    gaps = logits.gather(-1, index)[..., 0] - logits.scatter(-1, index, -torch.inf).amax(-1)
    agree = gaps > 0
    ties = gaps == 0
    if bool(ties.any()):
        agree |= ties & (greedy(logits) == draft)
    return agree.cumprod(-1).sum(-1).tolist(), gaps.tolist()
