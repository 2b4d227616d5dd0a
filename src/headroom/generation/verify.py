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

from collections import defaultdict, deque
from collections.abc import Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor

from headroom.generation.batch import Watch, check_finite
from headroom.generation.decoder import Decoder, tail
from headroom.generation.modules import Modules, WholePass
from headroom.generation.requests import Answer, Drafted, Row
from headroom.generation.slots import Segments, Slots, States
from headroom.models.masks import RowMasks

FIRST_CHUNK = 64
"""Draft tokens in the first chunk; a later one takes as many, or half of all before it."""

HEAVY_CHUNK = 16
"""The same where a token's arithmetic costs more than a pass's overhead."""

LARGEST_CHUNK = 256
"""Most tokens in a later chunk."""

PASS_TOKENS = 2048
"""Tokens of several questions' rows in the first chunk of a pass; one question's always are."""

_KNOWN = 32
"""Rows of a layer after which it is known how much of their drafts they accept."""

Pair = tuple[Row, Drafted]
Bounds = tuple[int, int]
"""Where a chunk of a text begins and ends."""


@dataclass
class Verified:
    """What came of a draft."""

    answers: list[Answer] = field(default_factory=list)
    """Finished."""
    rows: list[Row] = field(default_factory=list)
    """Those that took a token of their own and go on."""
    states: list[States] = field(default_factory=list)
    """Keys and values of these rows, of all tokens but the last."""
    accepted: int = 0
    """Tokens of the draft that were found to be the rows' own."""
    unchanged: int = 0
    """Answers equal to the draft."""
    whole: int = 0
    """Rows that ran through the whole model: it cannot be entered at their layer."""

    def take(self, count: int) -> tuple[list[Row], list[States]]:
        """Take out rows that go on, and their states."""
        taken = self.rows[:count], self.states[:count]
        del self.rows[:count], self.states[:count]
        return taken


class Verifier:
    """Verifies base answers for rows of pruned variants, greedily decoded.

    Args:
        forward: runs the model.
        most_rows: most rows in a pass.
        watch: is shown the logits of each token that a row takes.
    """

    def __init__(
        self, forward: Decoder | Modules, most_rows: int, watch: Watch | None = None
    ) -> None:
        self._forward = forward
        self._most_rows = most_rows
        self._watch = watch
        self._slots = Slots(forward.weights) if isinstance(forward, Decoder) else None
        heavy = isinstance(forward, Decoder) and forward.weights.is_heavy
        self._chunk = HEAVY_CHUNK if heavy else FIRST_CHUNK
        self._rows: defaultdict[int, int] = defaultdict(int)
        self._gained: defaultdict[int, float] = defaultdict(float)

    @torch.inference_mode()
    def verify(self, queue: deque[Drafted]) -> Verified:
        """Take the first questions from a queue and verify their drafts."""
        verified = Verified()
        chunk = self._first_chunk(queue[0])
        if isinstance(self._forward, Decoder):
            assert self._slots is not None
            taken = _take(queue, self._most_rows, chunk)
            pairs = [(row, drafted) for drafted in taken for row in drafted.rows]
            pairs.sort(key=lambda pair: _layer(pair[0]))
            for start in range(0, len(pairs), self._most_rows):
                part = pairs[start : start + self._most_rows]
                self._work(SharedPass(self._forward, self._slots, part), part, chunk, verified)
        else:
            drafted = queue.popleft()
            verified.whole += len(drafted.rows)
            for start in range(0, len(drafted.rows), self._most_rows):
                rows = drafted.rows[start : start + self._most_rows]
                part = [(row, drafted) for row in rows]
                self._work(WholePass(self._forward, part), part, chunk, verified)
        return verified

    def _first_chunk(self, drafted: Drafted) -> int:
        """Return a smaller first chunk where a question's layers accept less than they are fed."""
        layers = {_layer(row) for row in drafted.rows}
        rows = sum(self._rows[layer] for layer in layers)
        if rows >= _KNOWN and sum(self._gained[layer] for layer in layers) < 0:
            return max(8, self._chunk // 4)
        return self._chunk

    def _work(
        self, run: "SharedPass | WholePass", pairs: list[Pair], chunk: int, verified: Verified
    ) -> None:
        """Compare the rows of a pass with their drafts."""
        ends = {drafted: 0 for _, drafted in pairs}
        while pairs:
            bounds = {
                drafted: _next(drafted, ends[drafted], chunk)
                for drafted in {drafted: None for _, drafted in pairs}
            }
            ends = {drafted: end for drafted, (_, end) in bounds.items()}
            tokens, gaps = run.feed(bounds, self._watch)
            check_finite(gaps)
            staying = []
            place = 0
            for number, (row, drafted) in enumerate(pairs):
                begin, end = bounds[drafted]
                first = max(begin, len(row.request.prompt) - 1)
                count = end - first
                own, own_gaps = tokens[place : place + count], gaps[place : place + count]
                place += count
                ahead = drafted.text[first + 1 : end + 1]
                agreed = _agreed(own, ahead)
                self._note(row, agreed, count)
                row.tokens += ahead[:agreed]
                row.margin = min([row.margin, *own_gaps[:agreed]])
                if agreed == count:
                    staying.append(number)
                    continue
                verified.accepted += len(row.tokens)
                answer = row.append(own[agreed], own_gaps[agreed])
                if answer:
                    verified.answers.append(answer)
                    verified.unchanged += answer.token_ids == tuple(drafted.draft)
                else:
                    verified.rows.append(row)
                    verified.states.append(run.states(number, first + 1 + agreed))
            pairs = [pairs[number] for number in staying]
            if pairs:
                run.keep(staying, [ends[drafted] for _, drafted in pairs])

    def _note(self, row: Row, accepted: int, fed: int) -> None:
        """Note what a chunk of a row has gained: steps saved, less what it was fed."""
        layer = _layer(row)
        self._rows[layer] += 1
        cost = self._forward.share_above(layer) if isinstance(self._forward, Decoder) else 1.0
        self._gained[layer] += accepted - cost * fed


class SharedPass:
    """A pass of rows over the drafts of their questions, which share the base model's states.

    Base rows come first, then the others by ascending layer, so that those that are active at a
    layer are neighbours. In the slots they keep that order; base rows end where the others begin.

    Args:
        decoder: runs the model.
        slots: for keys and values.
        pairs: rows and their questions, by ascending layer.
    """

    def __init__(self, decoder: Decoder, slots: Slots, pairs: Sequence[Pair]) -> None:
        self._decoder, self._slots = decoder, slots
        self._pairs = list(pairs)
        self._drafts = list({drafted: None for _, drafted in pairs})
        self._first = len(self._drafts)  # slot of the first row
        self._masks = self._joining()
        longest = max(len(drafted.text) for drafted in self._drafts)
        slots.reserve(self._first + len(self._pairs), longest)

    def feed(
        self, bounds: dict[Drafted, Bounds], watch: Watch | None
    ) -> tuple[list[int], list[float]]:
        """Feed each text's next chunk; return each row's choices and gaps, from its prompt on."""
        decoder, bases = self._decoder, len(self._drafts)
        device = decoder.weights.device
        texts = [*self._drafts, *(drafted for _, drafted in self._pairs)]
        starts = [bounds[drafted][0] for drafted in texts]
        counts = [bounds[drafted][1] - bounds[drafted][0] for drafted in texts]
        # Where the prompt's last token is fed, or a later one, a token is chosen.
        keep = [
            min(count, start + count - len(drafted.rows[0].request.prompt) + 1)
            for drafted, start, count in zip(texts, starts, counts, strict=True)
        ]
        segments = Segments.of(starts, counts, device, self._first - bases)
        tokens = [token for each in self._drafts for token in each.text[slice(*bounds[each])]]
        hidden = decoder.embed(torch.tensor(tokens, device=device))
        angles = decoder.angles(segments.columns)
        decoder.fed += sum(counts[bases:])
        top = _layer(self._pairs[-1][0])
        first, last = 0, bases  # rows that are active
        for index, layer in enumerate(decoder.weights.layers):
            active = segments.part(first, last)
            begin = sum(segments.counts[:first])
            place = slice(begin, begin + sum(active.counts))
            queries, keys, values = decoder.project(layer, hidden, angles[place])
            self._slots.write(index, active, keys, values)
            if index == len(decoder.weights.layers) - 1:
                segments, chosen = tail(segments, keep)
                here = chosen[sum(keep[:first]) : sum(keep[:last])] - begin
                hidden, queries = hidden[here], queries[here]
                active = segments.part(first, last)
            joined = decoder.attend(queries, *self._slots.read(index, active), active, layer.window)
            if index in self._masks:
                masks = self._masks[index]
                joining = segments.part(last, last + len(masks.kept))
                base = self._base_places(segments, last, len(masks.kept))
                new = masks.of(joining.rows).applied_to(joined[base][:, None])[:, 0]
                leaving = sum(segments.counts[:bases]) if index == top else 0
                joined = torch.cat([joined[leaving:], new])
                hidden = torch.cat([hidden[leaving:], hidden[base]])
                last += len(masks.kept)
                first = bases if index == top else 0
            hidden = decoder.finish(layer, hidden, joined)
        return decoder.choose(hidden, watch and self._watching(watch, keep[bases:]))

    def keep(self, rows: Sequence[int], lengths: Sequence[int]) -> None:
        """Drop all other rows, and questions that no row is left of.

        Args:
            rows: ascending.
            lengths: how many tokens each of them has been fed.
        """
        if len(rows) == len(self._pairs):
            return
        for new, (old, length) in enumerate(zip(rows, lengths, strict=True)):
            if new != old:
                layer = _layer(self._pairs[old][0])
                self._slots.move(self._first + old, self._first + new, length, layer + 1)
        before = self._base_slots()
        ends = {self._pairs[row][1]: length for row, length in zip(rows, lengths, strict=True)}
        self._pairs = [self._pairs[row] for row in rows]
        self._drafts = [drafted for drafted in self._drafts if drafted in ends]
        after = self._base_slots()
        for drafted in reversed(self._drafts):
            if before[drafted] != after[drafted]:
                self._slots.move(before[drafted], after[drafted], ends[drafted])
        self._masks = self._joining()

    def states(self, row: int, length: int) -> States:
        """Return keys and values of a row's first tokens."""
        own, drafted = self._pairs[row]
        base = self._base_slots()[drafted]
        return self._slots.states(self._first + row, length, base, _layer(own) + 1)

    def _base_slots(self) -> dict[Drafted, int]:
        start = self._first - len(self._drafts)
        return {drafted: start + number for number, drafted in enumerate(self._drafts)}

    def _joining(self) -> dict[int, RowMasks]:
        """Return the masks of the rows that join at each layer."""
        joining: dict[int, list[Row]] = defaultdict(list)
        for row, _ in self._pairs:
            joining[_layer(row)].append(row)
        return {
            index: self._decoder.row_masks([row.request.variant for row in rows])[index]
            for index, rows in joining.items()
        }

    def _base_places(self, segments: Segments, first: int, count: int) -> Tensor:
        """Return where the tokens of joining rows stand in their questions' base rows."""
        bases = len(self._drafts)
        numbers = {drafted: number for number, drafted in enumerate(self._drafts)}
        begins = [sum(segments.counts[:number]) for number in range(bases)]
        places: list[int] = []
        for _, drafted in self._pairs[first - bases : first - bases + count]:
            number = numbers[drafted]
            places += range(begins[number], begins[number] + segments.counts[number])
        return torch.tensor(places, device=segments.columns.device)

    def _watching(self, watch: Watch, keep: Sequence[int]) -> "Watching":
        owners = [
            (row, len(row.tokens) + number)
            for (row, _), count in zip(self._pairs, keep, strict=True)
            for number in range(count)
        ]
        return Watching(watch, owners)


@dataclass
class Watching:
    """Shows logits to a watcher, with the row and the token that they belong to."""

    watch: Watch
    owners: list[tuple[Row, int]]

    def __call__(self, begin: int, logits: Tensor) -> None:
        """Show the logits of the places from `begin` on."""
        for (row, number), own in zip(self.owners[begin:], logits, strict=False):
            self.watch(row, number, own)


def _take(queue: deque[Drafted], most_rows: int, chunk: int) -> list[Drafted]:
    """Take the first questions from a queue, as many as are verified in one pass."""
    taken = [queue.popleft()]
    rows, tokens = len(taken[0].rows), _first_tokens(taken[0], chunk)
    while queue:
        rows += len(queue[0].rows)
        tokens += _first_tokens(queue[0], chunk)
        if rows > most_rows or tokens > PASS_TOKENS:
            break
        taken.append(queue.popleft())
    return taken


def _first_tokens(drafted: Drafted, chunk: int) -> int:
    return len(drafted.rows) * _next(drafted, 0, chunk)[1]


def _next(drafted: Drafted, begin: int, chunk: int) -> Bounds:
    """Return the next chunk of a text: the prompt with a first part of the draft, then more."""
    prompt = len(drafted.rows[0].request.prompt)
    length = max(chunk, min((begin - prompt) // 2, LARGEST_CHUNK))
    return begin, min(max(begin, prompt) + length, len(drafted.text))


def _agreed(own: Sequence[int], ahead: Sequence[int]) -> int:
    """Return how many first tokens are the same."""
    for number, (token, other) in enumerate(zip(own, ahead, strict=False)):
        if token != other:
            return number
    return len(ahead)


def _layer(row: Row) -> int:
    layer = row.request.variant.layer
    assert layer is not None
    return layer
