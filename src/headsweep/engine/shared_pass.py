"""One pass over many pruned rows that shares with their base rows what is the same.

Up to the layer that it is pruned in, a row is computed as the base model's. So a pass begins with
the base rows alone, one for each question, and each pruned row enters at its layer.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn.functional import pad

from headsweep.engine.attention import Hidden, Slots, States
from headsweep.engine.decoder import Changed, Decoder, Joined, Masks, unchanged
from headsweep.engine.operators import Operators
from headsweep.engine.requests import Drafted, Row
from headsweep.engine.segments import Segments, ranges

Pair = tuple[Row, Drafted]  # a row, and the draft that it is verified against


class Chunk(NamedTuple):
    """Successive tokens of a text that are fed in one pass.

    For example ``Chunk(begin=0, end=4, compared=3)`` of the text ``p q a b c d``, whose draft
    begins with ``a``: fed are ``p q a b``, and what a row chooses after ``q``, ``a`` and ``b`` is
    compared with ``a b c``.
    """

    begin: int
    end: int
    compared: int
    """Of how many of them, the last ones, the next token is compared with the row's choice."""

    @property
    def first_compared(self) -> int:
        """Place in the text of the first token that is compared; 2 in the example."""
        return self.end - self.compared + 1

    def fed_of(self, text: Sequence[int]) -> Sequence[int]:
        """Return the tokens that are fed."""
        return text[self.begin : self.end]

    def draft_of(self, text: Sequence[int]) -> Sequence[int]:
        """Return the tokens that are compared; what is chosen after the text has none."""
        return text[self.first_compared : self.end + 1]


class SharedPass(Slots):
    """A pass of rows over the drafts of their questions.

    Up to its mask a row equals the base model's, so one base row a question serves all of them: at
    its layer a pruned row takes the base row's attention output, is masked, and goes on by itself.
    Base rows come first, then the others by ascending layer, so that those that are active at a
    layer are neighbours. With `columns`, all memory is allocated at once, for `slots` rows of so
    many tokens, base rows included.
    """

    def __init__(self, decoder: Decoder, slots: int = 0, columns: int = 0) -> None:
        super().__init__(decoder.weights)
        self._decoder = decoder
        if columns:
            self.renew(slots, columns)

    @property
    def operators(self) -> Operators:
        """What finds the best of its logits."""
        return self._decoder.operators

    def begin(self, pairs: Sequence[Pair]) -> None:
        """Verify these rows, by ascending layer, instead of others."""
        self.pairs = list(pairs)
        drafts = dict.fromkeys(drafted for _, drafted in pairs)
        self._bases = {drafted: slot for slot, drafted in enumerate(drafts)}
        self._own_slots = [*range(len(drafts), len(drafts) + len(pairs))]
        self.renew(len(drafts) + len(pairs), max(len(drafted.text) for drafted in drafts))

    def logits(self, chunks: Mapping[Drafted, Chunk]) -> Iterator[Tensor]:
        """Feed each text's next chunk; yield logits row by row, of the places compared."""
        decoder = self._decoder
        device = self._decoder.weights.device
        bases = {drafted: slot for drafted, slot in self._bases.items() if drafted in chunks}
        base_of = {drafted: number for number, drafted in enumerate(bases)}
        fed = [chunks[drafted] for drafted in (*bases, *(drafted for _, drafted in self.pairs))]
        rows = Segments(
            slots=[*bases.values(), *self._own_slots],
            starts=[chunk.begin for chunk in fed],
            counts=[chunk.end - chunk.begin for chunk in fed],
            device=device,
            keep=[chunk.compared for chunk in fed],
        )
        tokens: list[int] = []
        for drafted in bases:
            tokens += chunks[drafted].fed_of(drafted.text)
        entering = _Entering(
            masks=decoder.masks([row.variant for row, _ in self.pairs]),
            last_layer=len(decoder.weights.layers) - 1,
            rows=rows,
            base_count=len(bases),
            layers=[row.variant.layers[0] for row, _ in self.pairs],
            base_of=[base_of[drafted] for _, drafted in self.pairs],
        )
        only_bases = rows.part(0, len(bases))
        hidden = decoder.forward(torch.tensor(tokens, device=device), only_bases, self, entering)
        return decoder.slabs(hidden)

    def stay(self, rows: Sequence[int]) -> None:
        """Drop all other rows."""
        self.pairs = [self.pairs[row] for row in rows]
        self._own_slots = [self._own_slots[row] for row in rows]

    def states(self, row: int, length: int) -> States:
        """Return a copy of the keys and values of a row's first tokens: own ones above its mask."""
        pruned, drafted = self.pairs[row]
        base = self._bases[drafted]
        above = pruned.variant.layers[0] + 1
        above_mask = self._data[above:, :, self._own_slots[row], :length]
        return torch.cat([self._data[:above, :, base, :length], above_mask])


@dataclass(frozen=True)
class _Entering:
    """A `Change` that lets each pruned row of a pass in, at the layer that it is pruned in.

    The row goes on from the layer's input and attention output of its base row. When the last
    pruned row has entered, the base rows leave: nobody needs their logits.
    """

    masks: Masks  # of the pruned rows
    last_layer: int  # of the model
    rows: Segments  # base rows, then pruned ones by ascending layer
    base_count: int  # number of base rows
    layers: Sequence[int]  # where each pruned row enters
    base_of: Sequence[int]  # the number of each pruned row's base row

    def __call__(self, index: int, segments: Segments, hidden: Hidden, joined: Joined) -> Changed:
        """Let rows in at a layer, and leave the layer out for those that do; see `Change`."""
        if index not in self.masks:
            return unchanged(index, segments, hidden, joined)
        entered_before = bisect_left(self.layers, index)
        entered = bisect_left(self.layers, index + 1)
        if entered_before < entered:
            new = range(entered_before, entered)
            segments, hidden, joined = self._enter(new, index, segments, hidden, joined)
        skipped = self.masks[index].skipped
        if skipped is not None:
            base_rows = len(segments.counts) - entered  # those left, which leave out no layer
            skipped = pad(skipped[:entered], (base_rows, 0))[segments.row_of_token]
        return segments, hidden, joined, skipped

    def _enter(
        self, new: range, index: int, segments: Segments, hidden: Hidden, joined: Joined
    ) -> tuple[Segments, Hidden, Joined]:
        """Return the rows of a layer, their input and outputs, with some pruned rows added."""
        rows = self.rows
        # In the last layer only tokens go on whose next token is chosen.
        if index == self.last_layer and not rows.keeps_all:
            rows, _ = rows.tail()
        end = self.base_count + new.stop
        entering = rows.part(self.base_count + new.start, end)
        masks = self.masks[index].each(lambda part: part[new.start : new.stop])
        mask_of_token = masks.each(lambda part: part[entering.row_of_token])
        offsets = [segments.offsets[self.base_of[number]] for number in new]
        copied = ranges(offsets, entering.counts, entering.device)  # the tokens of their base rows
        is_complete = new.stop == len(self.layers)
        first = self.base_count if is_complete else 0  # of the rows that go on
        staying = segments.offsets[first]
        hidden = torch.cat([hidden[staying:], hidden[copied]])
        joined = torch.cat([joined[staying:], mask_of_token.applied_to(joined[copied])])
        return rows.part(first, end), hidden, joined
