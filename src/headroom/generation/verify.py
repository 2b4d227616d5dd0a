"""Verification: how much of the base model's answer would a pruned model have given?

The base answer is fed to the pruned model in few passes instead of one token at a time, and every
token is compared with the pruned model's own choice (the verification of speculative decoding,
Leviathan et al., arXiv 2211.17192, with the base answer as the draft). Up to the first difference
the answers agree; there the row takes its own token, and goes on in the batch with the keys and
values of the pass. A draft is only a guess: a wrong one costs time, never a token.

The draft is fed in growing chunks, so that a row that differs early leaves early. Up to its mask
a row equals the base model's, so one base row a question serves all of them: at its layer a pruned
row takes the base row's attention output, is masked, and goes on by itself.
"""

from bisect import bisect_left
from collections import deque
from collections.abc import Iterator, Sequence
from functools import partial
from typing import Any

import torch
from torch import Tensor

from headroom.generation.attention import Segments, Slots, States
from headroom.generation.batch import Watch, check_finite
from headroom.generation.decoder import Changed, Decoder, Hidden, Joined
from headroom.generation.modules import ModuleRows, Modules
from headroom.generation.requests import Answer, Drafted, Row, Statistics
from headroom.generation.sampling import choose
from headroom.variants import FAMILIES

FIRST_CHUNK = 64
"""Draft tokens in the first chunk; a later one takes as many, or half of all before it."""

HEAVY_CHUNK = 16
"""The same where a token's arithmetic costs more than a pass's overhead."""

LARGEST_CHUNK = 256
"""Most tokens in a later chunk."""

PASS_TOKENS = 2048
"""Tokens of several questions' rows in the first chunk of a pass; one question's always are."""

Pair = tuple[Row, Drafted]
Bounds = dict[Drafted, tuple[int, int]]
"""Where a chunk of each text begins and ends."""


class Verifier:
    """Verifies base answers for rows of pruned variants, greedily decoded.

    Args:
        forward: runs the model.
        most_rows: most rows in a pass.
        statistics: where to count what was accepted.
        watch: is shown the logits of each token that a row takes.
    """

    def __init__(
        self,
        forward: Decoder | Modules,
        most_rows: int,
        statistics: Statistics,
        watch: Watch | None = None,
    ) -> None:
        self._most_rows = most_rows
        self._statistics = statistics
        self._watch = watch
        self._together = isinstance(forward, Decoder)
        if isinstance(forward, Decoder):
            self._pass: Any = partial(SharedPass, forward, Slots(forward.weights))
        else:
            self._pass = partial(WholePass, forward)
        heavy = isinstance(forward, Decoder) and forward.weights.is_heavy
        self._chunk = HEAVY_CHUNK if heavy else FIRST_CHUNK
        self.rows: list[Row] = []
        """Those that took a token of their own and go on."""
        self._states: list[Any] = []

    @torch.inference_mode()
    def verify(self, queue: deque[Drafted]) -> list[Answer]:
        """Verify the drafts of a queue's first questions; return what is finished."""
        answers: list[Answer] = []
        pairs = [(row, drafted) for drafted in self._take(queue) for row in drafted.rows]
        pairs.sort(key=lambda pair: _layer(pair[0]))
        for start in range(0, len(pairs), self._most_rows):
            self._work(pairs[start : start + self._most_rows], answers)
        return answers

    def take(self, count: int) -> tuple[list[Row], list[Any]]:
        """Take out rows that go on, with keys and values of all their tokens but the last."""
        taken = self.rows[:count], self._states[:count]
        del self.rows[:count], self._states[:count]
        return taken

    def _take(self, queue: deque[Drafted]) -> list[Drafted]:
        """Take the first questions from a queue, as many as are verified in one pass."""
        taken: list[Drafted] = []
        rows = tokens = 0
        while queue:
            rows += len(queue[0].rows)
            tokens += len(queue[0].rows) * self._next(queue[0], 0)[1]
            if taken and not (self._together and rows <= self._most_rows and tokens <= PASS_TOKENS):
                break
            taken.append(queue.popleft())
        return taken

    def _next(self, drafted: Drafted, begin: int) -> tuple[int, int]:
        """Return the next chunk of a text: the prompt with a first part of the draft, then more."""
        prompt = len(drafted.rows[0].request.prompt)
        length = max(self._chunk, min((begin - prompt) // 2, LARGEST_CHUNK))
        return begin, min(max(begin, prompt) + length, len(drafted.text))

    def _work(self, pairs: list[Pair], answers: list[Answer]) -> None:
        """Compare the rows of a pass with their drafts."""
        run = self._pass(pairs)
        bounds: Bounds = {drafted: (0, 0) for _, drafted in pairs}
        while pairs:
            bounds = {drafted: self._next(drafted, bounds[drafted][1]) for _, drafted in pairs}
            firsts = [
                max(bounds[drafted][0], len(row.request.prompt) - 1) for row, drafted in pairs
            ]
            owners = [
                (row, len(row.tokens) + number)
                for (row, drafted), first in zip(pairs, firsts, strict=True)
                for number in range(bounds[drafted][1] - first)
            ]
            tokens, gaps = self._choices(run.logits(bounds), owners)
            staying = []
            place = 0
            for number, ((row, drafted), first) in enumerate(zip(pairs, firsts, strict=True)):
                count = bounds[drafted][1] - first
                own, own_gaps = tokens[place : place + count], gaps[place : place + count]
                place += count
                ahead = drafted.text[first + 1 : first + 1 + count]
                differing = (n for n, token in enumerate(ahead) if token != own[n])
                agreed = next(differing, len(ahead))
                row.tokens += ahead[:agreed]
                row.margin = min([row.margin, *own_gaps[:agreed]])
                if agreed == count:
                    staying.append(number)
                    continue
                self._statistics.accepted += len(row.tokens)
                answer = row.append(own[agreed], own_gaps[agreed])
                if answer:
                    answers.append(answer)
                    self._statistics.unchanged += answer.token_ids == tuple(drafted.draft)
                else:
                    self.rows.append(row)
                    self._states.append(run.states(number, first + 1 + agreed))
            if len(staying) < len(pairs):
                pairs = [pairs[number] for number in staying]
                run.stay(staying)

    def _choices(
        self, slabs: Iterator[Tensor], owners: list[tuple[Row, int]]
    ) -> tuple[list[int], list[float]]:
        """Return the token chosen at each place, and its gap to the second best."""
        tokens: list[int] = []
        gaps: list[float] = []
        for logits in slabs:
            if self._watch is not None:
                for (row, number), own in zip(owners[len(tokens) :], logits, strict=False):
                    self._watch(row, number, own)
            chosen, their_gaps = choose(logits)
            tokens += chosen.tolist()
            gaps += check_finite(their_gaps.tolist())
        return tokens, gaps


class SharedPass:
    """A pass of rows over the drafts of their questions, which share the base model's states.

    Base rows come first, then the others by ascending layer, so that those that are active at a
    layer are neighbours.

    Args:
        decoder: runs the model.
        slots: for keys and values.
        pairs: rows and their questions, by ascending layer.
    """

    def __init__(self, decoder: Decoder, slots: Slots, pairs: Sequence[Pair]) -> None:
        self._decoder, self._slots = decoder, slots
        self._pairs = list(pairs)
        drafts = {drafted: None for _, drafted in pairs}
        self._bases = {drafted: slot for slot, drafted in enumerate(drafts)}
        self._own = list(range(len(drafts), len(drafts) + len(pairs)))
        slots.reserve(len(drafts) + len(pairs), max(len(drafted.text) for drafted in drafts))

    def logits(self, bounds: Bounds) -> Iterator[Tensor]:
        """Feed each text's next chunk; yield logits row by row, from the prompt's last token on."""
        decoder, device = self._decoder, self._decoder.weights.device
        bases = [drafted for drafted in self._bases if drafted in bounds]
        texts = [*bases, *(drafted for _, drafted in self._pairs)]
        starts = [bounds[drafted][0] for drafted in texts]
        counts = [bounds[drafted][1] - bounds[drafted][0] for drafted in texts]
        # Where the prompt's last token is fed, or a later one, a token is chosen.
        keep = [
            min(count, start + count - len(drafted.rows[0].request.prompt) + 1)
            for drafted, start, count in zip(texts, starts, counts, strict=True)
        ]
        slots: Sequence[int] = [*(self._bases[drafted] for drafted in bases), *self._own]
        every = range(slots[0], slots[-1] + 1)
        if len(every) == len(slots):
            slots = every
        whole = Segments(slots, starts, counts, device, keep)
        number = {drafted: place for place, drafted in enumerate(bases)}
        layers = [_layer(row) for row, _ in self._pairs]
        variants = [row.variant for row, _ in self._pairs]
        skips = [each.layers if FAMILIES[each.kind].skips else () for each in variants]

        def skipping(index: int, active: int, segments: Segments) -> Tensor | None:
            """Return which tokens leave a layer out; the last `active` rows are of variants."""
            rows = [index in skipped for skipped in skips[:active]]
            if not any(rows):
                return None
            every = [False] * (len(segments.counts) - active) + rows
            return torch.tensor(every, device=device)[segments.rows]

        def join(index: int, segments: Segments, hidden: Hidden, joined: Joined) -> Changed:
            """Let the rows in that are pruned here; let the base rows out with the last of them."""
            first, last = bisect_left(layers, index), bisect_left(layers, index + 1)
            if first == last:
                return segments, hidden, joined, skipping(index, last, segments)
            pairs = self._pairs[first:last]
            gone = len(bases) if last == len(layers) else 0
            new = whole.part(len(bases) + first, len(bases) + last)
            after = whole.part(gone, len(bases) + last)
            if index == len(decoder.weights.layers) - 1:
                (new, _), (after, _) = new.tail(), after.tail()
            places: list[int] = []
            for _, drafted in pairs:
                places += range(*segments.offsets[number[drafted] :][:2])
            base = torch.tensor(places, device=device)
            masks = decoder.row_masks([row.variant for row, _ in pairs])[index]
            masked = masks.each(lambda part: part[new.rows]).applied_to(joined[base])
            left = segments.offsets[gone]
            return (
                after,
                torch.cat([hidden[left:], hidden[base]]),
                torch.cat([joined[left:], masked]),
                skipping(index, last, after),
            )

        tokens = [token for drafted in bases for token in drafted.text[slice(*bounds[drafted])]]
        decoder.fed += sum(counts[len(bases) :])
        hidden = decoder.forward(
            torch.tensor(tokens, device=device), whole.part(0, len(bases)), self._slots, join
        )
        return decoder.slabs(hidden)

    def stay(self, rows: Sequence[int]) -> None:
        """Drop all other rows."""
        self._pairs = [self._pairs[row] for row in rows]
        self._own = [self._own[row] for row in rows]

    def states(self, row: int, length: int) -> States:
        """Return keys and values of a row's first tokens."""
        own, drafted = self._pairs[row]
        return self._slots.states(self._own[row], length, self._bases[drafted], _layer(own) + 1)


class WholePass(ModuleRows):
    """A pass of rows over the draft of their question, each through the whole model.

    Args:
        modules: run the model.
        pairs: rows and their question.
    """

    def __init__(self, modules: Modules, pairs: Sequence[Pair]) -> None:
        super().__init__(modules)
        self._rows = [row for row, _ in pairs]

    def logits(self, bounds: Bounds) -> Iterator[Tensor]:
        """Feed the text's next chunk; yield logits row by row, from the prompt's last token on."""
        ((drafted, (begin, end)),) = bounds.items()
        tokens = torch.tensor([drafted.text[begin:end]]).expand(len(self._rows), -1)
        keep = end - max(begin, len(drafted.rows[0].request.prompt) - 1)
        yield self.feed(self._rows, tokens, keep=keep).flatten(0, 1)

    def stay(self, rows: Sequence[int]) -> None:
        """Drop all other rows."""
        self._rows = [self._rows[row] for row in rows]
        self.keep((), rows)


def _layer(row: Row) -> int:
    layer = row.variant.layer
    assert layer is not None
    return layer
