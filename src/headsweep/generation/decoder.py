"""The one forward pass of Llama-like decoders, on CPU and GPU: tokens of any rows, packed.

All tokens of a pass lie one after the other, without padding; only attention needs to know which
row a token belongs to. The last layer is computed only at tokens whose next token is chosen. Except
for rounding, the result is that of the model's own modules; `Decoder.of` checks this by a trial.
"""

from __future__ import annotations

import logging
import math
import weakref
from bisect import bisect_left
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import NamedTuple

import torch
from jaxtyping import Complex, Float, Int
from torch import Tensor
from torch.nn.functional import embedding, pad

from headsweep.generation.attention import (
    Attention,
    Segments,
    Slots,
    States,
    best,
    dense,
    ranges,
)
from headsweep.generation.graphs import Capture, Steps
from headsweep.generation.requests import Drafted, Row
from headsweep.generation.weights import Layer, Weights, serves
from headsweep.models.loaded import LoadedModel
from headsweep.models.masks import RowMasks, variant_masks
from headsweep.variants import Variant

_LOG = logging.getLogger(__name__)

_TRIAL = 24  # tokens of the text on which a decoder is held against the model's own modules

_LOGIT_BYTES = 1 << 27
"""Logits are computed for no more positions at once than fit into this; a GPU takes 8 times it."""

Hidden = Float[Tensor, "tokens hidden"]
Heads = Float[Tensor, "tokens heads head_dim"]
Turns = Complex[Tensor, "tokens 1 pairs"]
Joined = Float[Tensor, "tokens width"]
Masks = dict[int, RowMasks]  # by layer
Pair = tuple[Row, Drafted]  # a row, and the draft that it is verified against

Changed = tuple[Segments, Hidden, Joined, Tensor | None]
Change = Callable[[int, Segments, Hidden, Joined], Changed]
"""Changes rows between the heads of a layer and their output projection.

It takes the layer's index, the rows in it, the layer's input and the heads' joined outputs. It
returns the rows that go on, their input and outputs, and 1 for each of their tokens that leaves the
layer out (None: no token does)."""


class Decoder:
    """Runs a model on packed tokens; `attend` is by default the fastest that the device allows."""

    def __init__(self, loaded: LoadedModel, attend: Attention | None = None) -> None:
        self.weights = Weights(loaded)
        self.attend = attend or best(self.weights)
        self._turns = torch.empty(0)
        self._loaded = loaded
        self._masked: Sequence[Variant] = ()
        self._masks: Masks = {}
        self.falls: list[str] = []
        """Why it goes on in a simpler way than it began."""
        self.capture: Capture | None = None
        """What captures decoding steps, by `flash`; None: each is launched anew."""

    @staticmethod
    def of(loaded: LoadedModel) -> Decoder | None:
        """Return a decoder for a model, or None where it needs its own modules.

        A trial decides. Where a fast attention fails it, with an error or with other logits, the
        dense one has a trial too.
        """
        if serves(loaded):
            decoder = Decoder(loaded)
            if (cause := decoder.trial()) is None:
                return decoder
            if decoder.attend is not dense:
                decoder.step_down(cause)
                _LOG.warning("%s; going on by dense, slower; please report this", cause)
                if decoder.trial() is None:
                    return decoder
        _LOG.info("%s runs by its own modules", type(loaded.model).__name__)
        return None

    def forward(
        self,
        tokens: Int[Tensor, " tokens"],
        segments: Segments,
        slots: Slots,
        change: Change = lambda _, *rows: (*rows, None),
    ) -> Hidden:
        """Return the output of the last layer where it matters; keys and values go into the slots.

        The tokens are those of the segments, row after row; the slots hold the keys and values of
        earlier tokens. `change` says what happens between the heads and their output projection.
        """
        weights = self.weights
        turned = None
        hidden = embedding(tokens, weights.embeddings)
        if weights.scale is not None:
            hidden = hidden * weights.scale
        for index, layer in enumerate(weights.layers):
            if segments is not turned:
                turned = segments
                turns = self._turns_at(segments)
            queries, keys, values = self._project(layer, hidden, turns)
            slots.write(index, segments, keys, values)
            if index == len(weights.layers) - 1 and segments.keep != segments.counts:
                segments, chosen = segments.tail()
                hidden, queries = hidden[chosen], queries[chosen]
            joined = self.attend(queries, slots, index, segments, layer.window)
            segments, before, joined, skipped = change(index, segments, hidden, joined)
            hidden = layer.output.then("add", before, joined)
            normed = layer.mlp_norm(hidden)
            inner = layer.up.then("mul", layer.gate(normed, weights.activation), normed)
            hidden = layer.down.then("add", hidden, inner)
            if skipped is not None:
                hidden = torch.where(skipped[:, None] > 0, before, hidden)
        return hidden

    def logits(self, hidden: Hidden) -> Float[Tensor, "tokens vocabulary"]:
        """Return the logits from the output of the last layer, float32."""
        return self.weights.output(self.weights.norm(hidden)).float()

    def slabs(self, hidden: Hidden) -> Iterator[Tensor]:
        """Yield the logits of all places, so many at a time that they fit into memory."""
        most = _LOGIT_BYTES * (8 if self.on_gpu else 1)
        for part in hidden.split(max(1, most // (4 * len(self.weights.embeddings)))):
            yield self.logits(part)

    @property
    def path(self) -> str:
        """What a record says of how this decodes."""
        attention = getattr(self.attend, "__name__", "")
        return f"{attention} in graphs" if self.capture else attention

    def step_down(self, cause: str) -> None:
        """Go on without graphs, or where there are none by dense attention."""
        before = self.path
        if self.capture is None:
            self.attend = dense
        self.capture = None
        self.falls.append(f"{before} to {self.path}: {cause}")

    def follow(self, other: Decoder) -> None:
        """Go on by the attention that another has come to, which began with this one's."""
        if other.attend is not self.attend:
            self.attend = other.attend
            self.capture = None
        self.falls += other.falls

    @property
    def on_gpu(self) -> bool:
        """Whether the model is on a GPU."""
        return self.weights.device.type != "cpu"

    def masks(self, variants: Sequence[Variant]) -> Masks:
        """Return what rows change."""
        if variants != self._masked:  # at most steps of a batch its rows are the same
            model, geometry = self._loaded.model, self._loaded.geometry
            device = self.weights.device
            dtype = self.weights.dtype
            self._masks = variant_masks(model, geometry, variants, device, dtype)
            self._masked = variants
        return self._masks

    def _project(self, layer: Layer, hidden: Hidden, turns: Turns) -> Sequence[Heads]:
        heads = layer.qkv(layer.norm(hidden)).unflatten(-1, (-1, self.weights.head_dim))
        queries, keys, values = heads.split(layer.heads, dim=1)
        if layer.head_norms:
            of_queries, of_keys = layer.head_norms
            return _turned(of_queries(queries), turns), _turned(of_keys(keys), turns), values
        turned = heads[:, : sum(layer.heads[:2])]
        if heads.dtype == torch.float32:
            torch.view_as_complex(turned.unflatten(-1, (-1, 2))).mul_(turns)
        else:
            turned.copy_(_turned(turned, turns))
        return queries, keys, values

    def _turns_at(self, segments: Segments) -> Turns:
        """Return what turns queries and keys at the tokens' positions."""
        if segments.width > len(self._turns):
            positions = torch.arange(2 * segments.width + 64, device=self.weights.device)
            like = torch.empty(0, device=self.weights.device)
            cos, sin = self.weights.rotary(like, positions[None])
            pairs = self.weights.head_dim // 2
            self._turns = torch.complex(cos[0, :, :pairs], sin[0, :, :pairs])[:, None]
        return self._turns[segments.columns]

    def trial(self) -> str | None:
        """Return what is wrong with the logits of a short text; None: nothing."""
        try:
            if self._is_faithful(self._loaded):
                return None
        except torch.OutOfMemoryError:
            raise
        except RuntimeError as error:  # an operator is missing or broken on this GPU
            if not self.on_gpu and self.attend is dense:
                raise
            return f"{type(error).__name__}: {' '.join(str(error).split())[:200]}"
        return "other logits than those of the model's own modules"

    @torch.inference_mode()
    def _is_faithful(self, loaded: LoadedModel) -> bool:
        """Compare logits with those of the model's own modules.

        The text's tokens come from the whole vocabulary: a text of its first ones alone, which are
        often special, may leave little but rounding in half precision.
        """
        width = min(_TRIAL, loaded.model.config.max_position_embeddings)
        vocabulary = len(self.weights.embeddings)
        tokens = torch.arange(2 * width, device=loaded.device) * vocabulary // (2 * width)
        expected = loaded.model(tokens.view(2, width)).logits.float().flatten(0, 1)
        slots = Slots(self.weights)
        slots.reserve(2, width)
        counts = [width, width]
        segments = Segments(range(2), [0, 0], counts, loaded.device, counts)
        logits = self.logits(self.forward(tokens, segments, slots))
        # Far above rounding, which can be large at a single place; far below another function.
        tolerance = math.sqrt(torch.finfo(loaded.dtype).eps)
        return bool((expected - logits).norm() <= tolerance * expected.norm())


class SlotRows(Slots):
    """Rows that are decoded, `size` at most: keys and values of row r are in slot r.

    With `columns`, all memory that they take is allocated at once, for rows of so many tokens.
    """

    def __init__(self, decoder: Decoder, size: int, columns: int = 0) -> None:
        super().__init__(decoder.weights)
        if columns:
            self.renew(size, columns)
        self._decoder, self._size = decoder, size
        # A reference back would keep the memory of a batch that has ended from the next one.
        self._steps = Steps(decoder, weakref.proxy(self), size) if decoder.capture else None
        self._lengths: list[int] = []
        """Tokens of each row whose keys and values are there."""

    def feed(
        self, first: int, rows: Sequence[Row], texts: Sequence[Sequence[int]]
    ) -> Float[Tensor, "rows vocabulary"]:
        """Feed each row, from number `first` on, some tokens; return the logits behind them.

        Rows are new where there are no more than `first`.
        """
        decoder = self._decoder
        device = self._decoder.weights.device
        starts = self._lengths[first:] or [0] * len(rows)
        counts = [*map(len, texts)]
        slots = range(first, first + len(rows))
        segments = Segments(slots, starts, counts, device, [1] * len(rows))
        self.reserve(self._size, segments.width)
        self._lengths[first:] = segments.ends
        masks = decoder.masks([row.variant for row in rows])
        fed = [token for text in texts for token in text]
        if self._steps and first == 0 and segments.most == 1:
            hidden = self._steps.hidden(fed, starts, masks)
            if hidden is not None:
                return decoder.logits(hidden)
        tokens = torch.tensor(fed, device=device)
        change = partial(masked, masks)
        return decoder.logits(decoder.forward(tokens, segments, self, change))

    def join(self, states: Sequence[States]) -> None:
        """Let rows in, behind the others, whose keys and values are known."""
        self.reserve(self._size, max(row_states.shape[2] for row_states in states) + 1)
        for row_states in states:
            length = row_states.shape[2]
            self._data[:, :, len(self._lengths), :length] = row_states
            self._lengths.append(length)

    def keep(self, kept: Sequence[int]) -> None:
        """Let row i be what row `kept[i]` was; no row is needed after another took its place."""
        for new, old in enumerate(kept):
            if new != old:
                length = self._lengths[old]
                self._data[:, :, new, :length] = self._data[:, :, old, :length]
        self._lengths = [self._lengths[old] for old in kept]


class Chunk(NamedTuple):
    """Successive tokens of a text that are fed in one pass."""

    begin: int
    end: int
    compared: int
    """Of how many of them, the last ones, the next token is compared with the row's choice."""


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
        texts = [*bases, *(drafted for _, drafted in self.pairs)]
        begins, ends, compared = zip(*(chunks[text] for text in texts), strict=True)
        slots = [*bases.values(), *self._own_slots]
        counts = [*map(int.__sub__, ends, begins)]
        whole = Segments(slots, begins, counts, device, compared)
        number = {drafted: place for place, drafted in enumerate(bases)}
        layers = [row.variant.layers[0] for row, _ in self.pairs]
        masks = decoder.masks([row.variant for row, _ in self.pairs])

        def join(index: int, segments: Segments, hidden: Hidden, joined: Joined) -> Changed:
            """Let the rows in that are pruned here; let the base rows out with the last of them."""
            if index not in masks:
                return segments, hidden, joined, None
            mask = masks[index]
            first = bisect_left(layers, index)
            last = bisect_left(layers, index + 1)
            if first < last:
                gone = len(bases) if last == len(layers) else 0
                every = whole if index < len(decoder.weights.layers) - 1 else whole.tail()[0]
                new = every.part(len(bases) + first, len(bases) + last)
                after = every.part(gone, len(bases) + last)
                places = [number[drafted] for _, drafted in self.pairs[first:last]]
                base = ranges([segments.offsets[place] for place in places], new.counts, device)
                left = segments.offsets[gone]
                new_mask = mask.each(lambda part: part[first:last][new.rows])
                hidden = torch.cat([hidden[left:], hidden[base]])
                joined = torch.cat([joined[left:], new_mask.applied_to(joined[base])])
                segments = after
            skipped = mask.skipped
            if skipped is not None:  # by none of the base rows that are left
                skipped = pad(skipped[:last], (len(segments.counts) - last, 0))[segments.rows]
            return segments, hidden, joined, skipped

        tokens: list[int] = []
        for drafted in bases:
            tokens += drafted.text[chunks[drafted].begin : chunks[drafted].end]
        hidden = decoder.forward(
            torch.tensor(tokens, device=device), whole.part(0, len(bases)), self, join
        )
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


def masked(masks: Masks, index: int, segments: Segments, hidden: Hidden, joined: Joined) -> Changed:
    """Change rows as their masks say: a `Change`, but for the masks."""
    if index not in masks:
        return segments, hidden, joined, None
    mask = masks[index]
    if segments.most > 1:
        mask = mask.each(lambda part: part[segments.rows])
    return segments, hidden, mask.applied_to(joined), mask.skipped


def _turned(heads: Heads, turns: Turns) -> Heads:
    pairs = torch.view_as_complex(heads.float().unflatten(-1, (-1, 2)).contiguous())
    return torch.view_as_real(pairs * turns).flatten(-2).to(heads.dtype)
