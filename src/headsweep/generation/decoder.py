"""The one forward pass of Llama-like decoders, on CPU and GPU: tokens of any rows, packed.

All tokens of a pass lie one after the other, without padding; only attention needs to know which
row a token belongs to. The last layer is computed only at tokens whose next token is chosen. Except
for rounding, the result is that of the model's own modules; `Decoder.of` checks this by a trial.
"""

from __future__ import annotations

import logging
import math
import weakref
from collections.abc import Callable, Iterator, Sequence
from functools import partial

import torch
from jaxtyping import Complex, Float, Int
from torch import Tensor
from torch.nn.functional import embedding

from headsweep.errors import cause_of
from headsweep.generation.attention import (
    Attention,
    Hidden,
    Segments,
    Slots,
    States,
    best,
    dense,
)
from headsweep.generation.graphs import Capture, Steps
from headsweep.generation.requests import Row
from headsweep.generation.sampling import places_at_once
from headsweep.generation.weights import Layer, Weights, serves
from headsweep.models.loaded import LoadedModel
from headsweep.models.masks import RowMasks, variant_masks
from headsweep.variants import Variant

_LOG = logging.getLogger(__name__)

_TRIAL = 24  # tokens of the text on which a decoder is held against the model's own modules

Heads = Float[Tensor, "tokens heads head_dim"]
Rotations = Complex[Tensor, "tokens 1 pairs"]
Joined = Float[Tensor, "tokens width"]
Masks = dict[int, RowMasks]  # by layer

Changed = tuple[Segments, Hidden, Joined, Tensor | None]
Change = Callable[[int, Segments, Hidden, Joined], Changed]
"""Changes rows between the heads of a layer and their output projection.

It takes the layer's index, the rows in it, the layer's input and the heads' joined outputs. It
returns the rows that go on, their input and outputs, and 1 for each of their tokens that leaves the
layer out (None: no token does)."""


def unchanged(index: int, segments: Segments, hidden: Hidden, joined: Joined) -> Changed:
    """Change nothing: a `Change`."""
    return segments, hidden, joined, None


class Decoder:
    """Runs a model on packed tokens; `attend` is by default the fastest that the device allows.

    As many processes of this host as `copies` make a decoder of such weights.
    """

    def __init__(
        self, loaded: LoadedModel, attend: Attention | None = None, *, copies: int = 1
    ) -> None:
        self.weights = Weights(loaded, copies)
        self.attend = attend or best(self.weights)
        self._rotations = torch.empty(0)
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
        change: Change = unchanged,
    ) -> Hidden:
        """Return the output of the last layer where it matters; keys and values go into the slots.

        The tokens are those of the segments, row after row; the slots hold the keys and values of
        earlier tokens. `change` says what happens between the heads and their output projection.
        """
        weights = self.weights
        rotated_segments = None
        hidden = embedding(tokens, weights.embeddings)
        if weights.scale is not None:
            hidden = hidden * weights.scale
        for index, layer in enumerate(weights.layers):
            if segments is not rotated_segments:
                rotated_segments = segments
                rotations = self._rotations_at(segments)
            queries, keys, values = self._project(layer, hidden, rotations)
            slots.write(index, segments, keys, values)
            if index == len(weights.layers) - 1 and not segments.keeps_all:
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
        most = places_at_once(len(self.weights.embeddings), on_gpu=self.on_gpu)
        for part in hidden.split(most):
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
        """Return what rows change, by layer.

        The same object comes back as long as the variants are the same: `graphs` relies on it.
        """
        if variants != self._masked:  # at most steps of a batch its rows are the same
            model, geometry = self._loaded.model, self._loaded.geometry
            device = self.weights.device
            dtype = self.weights.dtype
            self._masks = variant_masks(model, geometry, variants, device, dtype)
            self._masked = variants
        return self._masks

    def _project(self, layer: Layer, hidden: Hidden, rotations: Rotations) -> Sequence[Heads]:
        """Return the queries, keys and values of all heads, queries and keys rotated."""
        heads = layer.qkv(layer.norm(hidden)).unflatten(-1, (-1, self.weights.head_dim))
        counts = (layer.query_heads, layer.kv_heads, layer.kv_heads)
        queries, keys, values = heads.split(counts, dim=1)
        if layer.head_norms:
            of_queries, of_keys = layer.head_norms
            queries = _rotated(of_queries(queries), rotations)
            return queries, _rotated(of_keys(keys), rotations), values
        # Queries and keys, rotated in place.
        both = heads[:, : layer.query_heads + layer.kv_heads]
        if heads.dtype == torch.float32:
            torch.view_as_complex(both.unflatten(-1, (-1, 2))).mul_(rotations)
        else:
            both.copy_(_rotated(both, rotations))
        return queries, keys, values

    def _rotations_at(self, segments: Segments) -> Rotations:
        """Return the rotary embeddings of the tokens' positions, as complex numbers.

        The weights of queries and keys are in such an order that the two entries of a rotary pair
        stand side by side. So a pair is a complex number, and its rotation one complex product (Su
        et al., arXiv 2104.09864, section 3.4.2).
        """
        if segments.width > len(self._rotations):
            positions = torch.arange(2 * segments.width + 64, device=self.weights.device)
            like = torch.empty(0, device=self.weights.device)
            cos, sin = self.weights.rotary(like, positions[None])
            pairs = self.weights.head_dim // 2
            self._rotations = torch.complex(cos[0, :, :pairs], sin[0, :, :pairs])[:, None]
        return self._rotations[segments.column_of_token]

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
            return cause_of(error, 200)
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
        """Feed each row, from number `first` on, some tokens; return the logits after them.

        If the batch has only `first` rows, these are new; else they are all from `first` on.
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
        if self._steps and first == 0 and segments.most_tokens == 1:
            hidden = self._steps.hidden(fed, starts, masks)
            if hidden is not None:
                return decoder.logits(hidden)
        tokens = torch.tensor(fed, device=device)
        change = partial(masked, masks)
        return decoder.logits(decoder.forward(tokens, segments, self, change))

    def join(self, states: Sequence[States]) -> None:
        """Let rows in, after the others, whose keys and values are known."""
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


def masked(masks: Masks, index: int, segments: Segments, hidden: Hidden, joined: Joined) -> Changed:
    """Change rows as their masks say: a `Change`, but for the masks."""
    if index not in masks:
        return unchanged(index, segments, hidden, joined)
    mask = masks[index]
    if segments.most_tokens > 1:
        mask = mask.each(lambda part: part[segments.row_of_token])
    return segments, hidden, mask.applied_to(joined), mask.skipped


def _rotated(heads: Heads, rotations: Rotations) -> Heads:
    """Return rotated queries or keys; the product is computed in float32."""
    pairs = torch.view_as_complex(heads.float().unflatten(-1, (-1, 2)).contiguous())
    return torch.view_as_real(pairs * rotations).flatten(-2).to(heads.dtype)
