"""Passes that grow from layer to layer: one for all pruned heads of some questions.

Up to the mask, the rows of a layer's heads equal the base model's. So a pass starts with one base
row for each question, and at each layer the rows of its heads join: their attention is the base
row's, changed. After the last layer where rows join, the base rows are dropped.
"""

from collections import defaultdict, deque
from collections.abc import Iterator, Sequence

import torch
from jaxtyping import Float
from torch import Tensor

from headroom.generation.cache import RowStates
from headroom.generation.direct import Direct
from headroom.generation.requests import Drafted, Row
from headroom.models.masks import RowMasks, variant_masks
from headroom.variants import Variant

PASS_TOKENS = 2048
"""Tokens of several questions' rows that are fed together; one question's always are."""


class GrowingPass:
    """A pass of pruned heads' rows over texts, in chunks.

    Args:
        direct: runs the model.
        texts: token ids, one for each question.
        rows: the question and the variant of each row, by ascending layer.
    """

    whole = False

    def __init__(
        self,
        direct: Direct,
        texts: Sequence[tuple[int, ...]],
        rows: Sequence[tuple[int, Variant]],
    ) -> None:
        self._direct = direct
        width = max(map(len, texts))
        # Padded on the right, where causal attention does not look.
        padding = (direct.loaded.pad_token_id,) * width
        self._tokens = torch.tensor([(*text, *padding)[:width] for text in texts])
        self._rows = list(rows)
        self._states: list[tuple[Tensor, Tensor]] = []
        """Keys and values of each layer: first base rows, then the rows that joined below it."""

    @classmethod
    def over(
        cls, direct: Direct, queue: deque[Drafted], most_rows: int
    ) -> "Iterator[tuple[GrowingPass, list[tuple[Row, Drafted]]]]":
        """Take the first questions from a queue; return passes over their drafts, with the rows.

        Args:
            direct: runs the model.
            queue: questions whose drafts are to be verified.
            most_rows: most rows in a pass, the base model's not counted.
        """
        taken = [queue.popleft()]
        count, width = len(taken[0].rows), len(taken[0].text)
        while queue:
            count += len(queue[0].rows)
            width = max(width, len(queue[0].text))
            if count > most_rows or count * width > PASS_TOKENS:
                break
            taken.append(queue.popleft())
        rows = [(row, drafted) for drafted in taken for row in drafted.rows]
        rows.sort(key=lambda pair: pair[0].request.variant.layer or 0)
        for start in range(0, len(rows), most_rows):
            part = rows[start : start + most_rows]
            places = [(taken.index(drafted), row.request.variant) for row, drafted in part]
            yield cls(direct, [drafted.text for drafted in taken], places), part

    def feed(self, begin: int, end: int, keep: int) -> Float[Tensor, "rows keep vocabulary"]:
        """Feed tokens `begin` to `end` of the texts; return the last `keep` positions' logits."""
        direct = self._direct
        direct.fed += len(self._rows) * (end - begin)
        hidden = direct.embed(self._tokens[:, begin:end])
        angles = direct.angles(torch.arange(begin, end)[None])
        joining = self._joining()
        seen = None
        if begin:
            seen = torch.ones(end - begin, end, dtype=torch.bool).tril(begin)
        for index, layer in enumerate(direct.layers):
            queries, keys, values = direct.project(layer, hidden, angles)
            keys, values = self._remember(index, keys, values)
            if index == len(direct.layers) - 1:
                hidden, queries = hidden[:, -keep:], queries[:, :, -keep:]
                seen = torch.ones(keep, end, dtype=torch.bool).tril(end - keep)
            joined = direct.attend(queries, keys, values, seen)
            if index in joining:
                questions, masks = joining[index]
                leaving = self._bases(index) - self._bases(index + 1)
                new = masks.applied_to(joined[questions])
                joined = torch.cat([joined[leaving:], new])
                hidden = torch.cat([hidden[leaving:], hidden[questions]])
            hidden = direct.finish(layer, hidden, joined)
        return direct.logits(hidden)

    def keep(self, rows: Sequence[int]) -> None:
        """Drop all other rows, and questions that no row is left of."""
        if len(rows) == len(self._rows):
            return
        left = [self._rows[row] for row in rows]
        questions = sorted({question for question, _ in left})
        for index, (keys, values) in enumerate(self._states):
            base = questions if index <= _layer(left[-1]) else []
            first = self._bases(index)
            joined = [first + row for row in rows if _layer(self._rows[row]) < index]
            kept = torch.tensor([*base, *joined])
            self._states[index] = keys[kept], values[kept]
        self._tokens = self._tokens[questions]
        self._rows = [(questions.index(question), variant) for question, variant in left]

    def states(self, row: int, length: int) -> RowStates:
        """Return keys and values of a row's first tokens."""
        question = self._rows[row][0]
        layer = _layer(self._rows[row])
        return [
            (keys[place, :, :length], values[place, :, :length])
            for index, (keys, values) in enumerate(self._states)
            for place in [self._bases(index) + row if layer < index else question]
        ]

    def _bases(self, index: int) -> int:
        """Return the number of base rows that enter a layer: none above the last that rows join."""
        return len(self._tokens) if index <= _layer(self._rows[-1]) else 0

    def _joining(self) -> dict[int, tuple[Tensor, RowMasks]]:
        """Return the questions of the rows that join at each layer, and their masks."""
        joining: dict[int, list[tuple[int, Variant]]] = defaultdict(list)
        for row in self._rows:
            joining[_layer(row)].append(row)
        geometry = self._direct.loaded.geometry
        return {
            index: (
                torch.tensor([question for question, _ in rows]),
                variant_masks(geometry, [variant for _, variant in rows])[index],
            )
            for index, rows in joining.items()
        }

    def _remember(self, index: int, keys: Tensor, values: Tensor) -> tuple[Tensor, Tensor]:
        """Add a chunk's keys and values to those of a layer; return all."""
        if index == len(self._states):
            self._states.append((keys, values))
        else:
            before = self._states[index]
            self._states[index] = (
                torch.cat([before[0], keys], dim=2),
                torch.cat([before[1], values], dim=2),
            )
        return self._states[index]


def _layer(row: tuple[int, Variant]) -> int:
    layer = row[1].layer
    assert layer is not None
    return layer
