"""Teacher-forced passes: one of the base model over a text, then those of its pruned heads.

Up to the mask, the rows of all heads of a layer equal the base model's. So the base model's pass
records its hidden states, and the heads of a layer share one row that enters the model at that
layer; the mask makes one row of it for each head. Where an architecture does not allow this, each
head's row runs through the whole model.
"""

import logging
import math
from collections import defaultdict, deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor
from transformers import DynamicCache
from transformers.cache_utils import DynamicLayer

from headroom.generation.cache import RowStates
from headroom.generation.forward import Forward
from headroom.generation.reentry import Reentry, part
from headroom.generation.requests import Drafted, Row
from headroom.variants import BASE, Variant

_LOG = logging.getLogger(__name__)

BASE_TOKENS = 512
"""Tokens of several questions that the base model is run over at once; one always is."""


@dataclass(frozen=True)
class BasePass:
    """What a pass of the base model over one text leaves behind."""

    tokens: tuple[int, ...]
    outputs: Mapping[int, Any]
    """What the layer below each entrance returned, one row."""
    states: RowStates

    @classmethod
    @torch.inference_mode()
    def over(
        cls,
        texts: Sequence[tuple[int, ...]],
        entrances: Iterable[int],
        forward: Forward,
        reentry: Reentry,
    ) -> "list[BasePass]":
        """Run the base model over several texts at once.

        They are padded on the right, where causal attention does not look.

        Args:
            texts: token ids.
            entrances: layers to be entered later.
            forward: runs the model.
            reentry: its layers.
        """
        width = max(map(len, texts))
        padding = (forward.loaded.pad_token_id,) * width
        tokens = torch.tensor([(*text, *padding)[:width] for text in texts])
        cache = DynamicCache()
        with reentry.recorded(entrances) as outputs:
            forward(tokens, torch.arange(width)[None], [BASE] * len(texts), cache)
        return [
            cls(
                text,
                {
                    entrance: part(output, slice(row, row + 1), slice(len(text)))
                    for entrance, output in outputs.items()
                },
                [
                    (layer.keys[row, :, : len(text)], layer.values[row, :, : len(text)])
                    for layer in cache.layers
                ],
            )
            for row, text in enumerate(texts)
        ]


class HeadsPass:
    """A pass of pruned heads' rows over the same text, in chunks.

    Args:
        forward: runs the model.
        reentry: its layers.
        base: the base model's pass.
        variants: of one layer, one a row.
        whole: whether the rows run through the whole model.
    """

    def __init__(
        self,
        forward: Forward,
        reentry: Reentry,
        base: BasePass,
        variants: Sequence[Variant],
        *,
        whole: bool,
    ) -> None:
        self._forward = forward
        self._reentry = reentry
        self._base = base
        self._variants = list(variants)
        self.whole = whole
        self._entrance = 0 if whole else variants[0].layer or 0
        self._cache = DynamicCache()

    def feed(self, begin: int, end: int, keep: int) -> Float[Tensor, "rows keep vocabulary"]:
        """Feed tokens `begin` to `end` of the text; return the last `keep` positions' logits."""
        tokens = torch.tensor([self._base.tokens[begin:end]])
        if self.whole:
            tokens = tokens.expand(len(self._variants), -1)
        positions = torch.arange(begin, end)[None]
        with ExitStack() as stack:
            if self._entrance:
                self._borrow(begin)
                output = part(self._base.outputs[self._entrance], slice(None), slice(begin, end))
                stack.enter_context(self._reentry.entered(self._entrance, output))
            return self._forward(tokens, positions, self._variants, self._cache, keep=keep)

    def keep(self, rows: Sequence[int]) -> None:
        """Drop all other rows."""
        if len(rows) == len(self._variants):
            return
        self._variants = [self._variants[row] for row in rows]
        for layer in self._cache.layers:
            if layer.is_initialized and len(layer.keys) > 1:
                layer.batch_select_indices(torch.tensor(rows, device=layer.keys.device))

    def states(self, row: int, length: int) -> RowStates:
        """Return keys and values of a row's first tokens."""
        self._borrow(length)
        return [
            (
                layer.keys[min(row, len(layer.keys) - 1), :, :length],
                layer.values[min(row, len(layer.values) - 1), :, :length],
            )
            for layer in self._cache.layers
        ]

    def _borrow(self, length: int) -> None:
        """Take keys and values of skipped layers from the base model: the model reads lengths."""
        states = self._base.states[: self._entrance]
        self._cache.layers[: self._entrance] = [_layer(*layer, length) for layer in states]


class HeadsPasses:
    """Makes passes over drafts, layer by layer of the pruned heads.

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

    def over(self, queue: deque[Drafted]) -> Iterator[tuple[HeadsPass, list[tuple[Row, Drafted]]]]:
        """Take the first question from a queue; return passes over its draft, with their rows."""
        if queue[0] not in self._bases:
            self._run_base(queue)
        drafted = queue.popleft()
        base = self._bases.pop(drafted)
        for layer, heads in _by_layer(drafted).items():
            for start in range(0, len(heads), self._most_rows):
                rows = heads[start : start + self._most_rows]
                variants = [row.request.variant for row in rows]
                if layer not in self._enterable:
                    cut = len(rows[0].request.prompt)
                    self._enterable[layer] = can_enter(
                        self._forward, self._reentry, base, variants[0], cut
                    )
                whole = not self._enterable[layer]
                run = HeadsPass(self._forward, self._reentry, base, variants, whole=whole)
                yield run, [(row, drafted) for row in rows]

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
        entrances = {layer for drafted in taken for layer in _by_layer(drafted)}
        passes = BasePass.over(texts, entrances, self._forward, self._reentry)
        self._bases = dict(zip(taken, passes, strict=True))


def can_enter(
    forward: Forward, reentry: Reentry, base: BasePass, variant: Variant, cut: int
) -> bool:
    """Find out whether an architecture allows shared rows, by comparison with whole passes.

    Args:
        forward: runs the model.
        reentry: its layers.
        base: the base model's pass.
        variant: prunes the layer to be entered.
        cut: where in the text a second chunk begins.
    """
    chunks = [(0, cut), (cut, len(base.tokens))] if cut < len(base.tokens) else [(0, cut)]
    logits = []
    for whole in (True, False):
        # Two rows: making several of one is what may fail.
        run = HeadsPass(forward, reentry, base, [variant, variant], whole=whole)
        try:
            # Of the first chunk one position: logits of a long prompt would take much memory.
            parts = [run.feed(begin, end, end - begin if begin else 1) for begin, end in chunks]
        except torch.OutOfMemoryError:
            raise
        except Exception as error:  # whatever a foreign architecture objects to
            if whole:
                raise
            _LOG.info("layer %s is not entered: %s", variant.layer, error)
            return False
        logits.append(torch.cat(parts, 1))
    expected, found = logits
    if expected.shape == found.shape:
        # Far above rounding, far below what a wrong hidden state, position or mask does.
        tolerance = math.sqrt(torch.finfo(forward.loaded.dtype).eps) * expected.abs().max()
        if bool((expected - found).abs().max() <= tolerance):
            return True
    _LOG.info("layer %s is not entered: logits differ from a whole pass's", variant.layer)
    return False


def _layer(keys: Tensor, values: Tensor, length: int) -> DynamicLayer:
    """Return a cache layer of one row with its first tokens."""
    layer = DynamicLayer()
    layer.lazy_initialization(keys, values)
    layer.keys, layer.values = keys[None, :, :length], values[None, :, :length]
    return layer


def _by_layer(drafted: Drafted) -> dict[int, list[Row]]:
    """Return a question's rows by the layer that they prune."""
    layers: dict[int, list[Row]] = defaultdict(list)
    for row in drafted.rows:
        assert row.request.variant.layer is not None
        layers[row.request.variant.layer].append(row)
    return layers
