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
from contextlib import contextmanager
from functools import partial

import torch
from jaxtyping import Float, Int
from torch import Tensor
from torch.nn.functional import embedding

from headsweep.engine.attention import Attention, Hidden, Slots, States, best, dense, flash
from headsweep.engine.fused import fused
from headsweep.engine.graphs import Capture, Replayed, Steps, cuda_graph
from headsweep.engine.operators import PLAIN, Operators, Rotations
from headsweep.engine.requests import Row
from headsweep.engine.sampling import places_at_once
from headsweep.engine.segments import Segments
from headsweep.engine.weights import Weights, serves
from headsweep.errors import cause_of
from headsweep.machine.host import host_cores
from headsweep.models.loaded import LoadedModel
from headsweep.models.masks import RowMasks, variant_masks
from headsweep.variants import Variant

_LOG = logging.getLogger(__name__)

_TRIAL = 24  # tokens of the text on which a decoder is held against the model's own modules

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
    """Runs a model on packed tokens; `attend` is by default the fastest that the device allows."""

    def __init__(self, loaded: LoadedModel, attend: Attention | None = None) -> None:
        self.weights = Weights(loaded)
        self.attend = attend or best(self.weights)
        self._loaded = loaded
        self._masked: Sequence[Variant] = ()
        self._masks: Masks = {}
        self.falls: list[str] = []
        """Why it goes on in a simpler way than it began."""
        self.operators = PLAIN
        """What computes all but products and attention."""
        self.rotations: Rotations = torch.empty(0)
        """Rotary embeddings of positions as complex numbers, of as many as were needed so far.

        The weights of queries and keys are in such an order that the two entries of a rotary pair
        stand side by side. So a pair is a complex number, and its rotation one complex product (Su
        et al., arXiv 2104.09864, section 3.4.2)."""
        self.capture: Capture | None = None
        """What captures decoding steps, by `flash`; None: each is launched anew."""

    @staticmethod
    def of(loaded: LoadedModel, *, graphs: bool = False) -> Decoder | None:
        """Return a decoder for a model, or None where it needs its own modules.

        A trial decides. Where a fast way fails it, with an error or with other logits, a simpler
        one has a trial too. With `graphs` decoding steps are captured, if they are by `flash`.
        """
        if serves(loaded):
            decoder = Decoder(loaded)
            decoder.fuse()
            cause = decoder.trial()
            while cause is not None and decoder.attend is not dense:
                decoder.step_down(cause)
                _LOG.warning("%s; going on by %s, slower; please report this", cause, decoder.path)
                cause = decoder.trial()
            if cause is None:
                if graphs and decoder.attend is flash:
                    decoder.capture = partial(cuda_graph, device=loaded.device)
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
        """Return the last norm's output where it matters; keys and values go into the slots.

        The tokens are those of the segments, row after row; the slots hold the keys and values of
        earlier tokens. `change` says what happens between the heads and their output projection.
        """
        weights, operators = self.weights, self.operators
        hidden = embedding(tokens, weights.embeddings)
        if weights.scale is not None:
            hidden = hidden * weights.scale
        normed = weights.layers[0].norm(hidden)
        norms = [*(layer.norm for layer in weights.layers[1:]), weights.norm]
        rotations = self._rotations_up_to(segments.width)
        for index, (layer, next_norm) in enumerate(zip(weights.layers, norms, strict=True)):
            heads = layer.qkv(normed).unflatten(-1, (-1, weights.head_dim))
            queries = operators.place(heads, layer, index, rotations, segments, slots)
            if index == len(weights.layers) - 1 and not segments.keeps_all:
                segments, chosen = segments.tail()
                hidden, queries = hidden[chosen], queries[chosen]
            joined = operators.attend(self.attend, queries, slots, index, segments, layer.window)
            segments, before, joined, skipped = change(index, segments, hidden, joined)
            hidden, normed = operators.add_then_norm(layer.output, joined, before, layer.mlp_norm)
            inner = operators.gated(layer, normed, weights.activation)
            hidden, normed = operators.add_then_norm(layer.down, inner, hidden, next_norm)
            if skipped is not None:
                hidden = torch.where(skipped[:, None] > 0, before, hidden)
                normed = next_norm(hidden)
        return normed

    def logits(self, normed: Hidden) -> Float[Tensor, "tokens vocabulary"]:
        """Return the logits from what `forward` returns.

        On a GPU they have the model's type: a copy in float32 would say no more, and takes longer
        than to find the best one. Elsewhere they are float32.
        """
        logits = self.weights.output(normed)
        return logits if self.on_gpu else logits.float()

    def slabs(self, normed: Hidden) -> Iterator[Tensor]:
        """Yield the logits of all places, so many at a time that they fit into memory."""
        most = places_at_once(len(self.weights.embeddings), on_gpu=self.on_gpu)
        for part in normed.split(most):
            yield self.logits(part)

    @property
    def path(self) -> str:
        """What a record says of how this decodes."""
        attention = getattr(self.attend, "__name__", "")
        graphs = "in graphs" if self.capture else ""
        return " ".join(filter(None, (self.operators.name, attention, graphs)))

    def fuse(self) -> None:
        """Take operators of one kernel each where the device has some, and they are right."""
        if self.attend is not flash:
            return
        found = fused(self.weights, self.attend)
        if isinstance(found, str):
            self.falls.append(f"fused to plain operators: {found}")
            _LOG.warning("%s; going on by PyTorch's operators, slower; please report this", found)
        else:
            self.operators = found

    def step_down(self, cause: str) -> None:
        """Go on without graphs and fused operators, or where there are none by dense attention."""
        before = self.path
        if self.capture is None and self.operators is PLAIN:
            self.attend = dense
        self.capture = None
        self.operators = PLAIN
        self.falls.append(f"{before} to {self.path}: {cause}")

    @contextmanager
    def weights_of_now(self) -> Iterator[None]:
        """Decode with the weights that the model has now, without graphs; then as before.

        Each worker has such weights of its own; on a CPU there is one for each core.
        """
        weights, capture = self.weights, self.capture
        falls = len(self.falls)
        self.weights = Weights(self._loaded, host_cores())
        self.capture = None
        try:
            yield
        finally:
            self.weights = weights
            if len(self.falls) == falls:
                self.capture = capture

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

    def _rotations_up_to(self, width: int) -> Rotations:
        """Return the rotations of at least so many positions, the first; see `rotations`."""
        if width > len(self.rotations):
            positions = torch.arange(2 * width + 64, device=self.weights.device)
            like = torch.empty(0, device=self.weights.device)
            cos, sin = self.weights.rotary(like, positions[None])
            pairs = self.weights.head_dim // 2
            self.rotations = torch.complex(cos[0, :, :pairs], sin[0, :, :pairs])[:, None]
        return self.rotations

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
        self.decoder, self._size = decoder, size
        # A reference back would keep the memory of a batch that has ended from the next one.
        self._steps = Steps(decoder, weakref.proxy(self)) if decoder.capture else None
        self._lengths: list[int] = []
        """Tokens of each row whose keys and values are there."""

    @property
    def operators(self) -> Operators:
        """What finds the best of its logits."""
        return self.decoder.operators

    @property
    def takes_drafts(self) -> bool:
        """Whether `feed_several` is tried: on a GPU it was not measured."""
        return not self.decoder.on_gpu

    def begin(self, size: int, columns: int) -> None:
        """Let another batch begin in the same memory, if it has room, with the steps captured."""
        self._lengths = []
        self._size = size
        self.renew(size, columns)

    def feed(
        self, first: int, rows: Sequence[Row], texts: Sequence[Sequence[int]]
    ) -> Float[Tensor, "rows vocabulary"]:
        """Feed each row, from number `first` on, some tokens; return the logits after them.

        If the batch has only `first` rows, these are new; else they are all from `first` on.
        """
        decoder = self.decoder
        device = decoder.weights.device
        starts = self._lengths[first:] or [0] * len(rows)
        counts = [*map(len, texts)]
        slots = range(first, first + len(rows))
        segments = Segments(slots, starts, counts, device, [1] * len(rows))
        self.reserve(self._size, segments.width)
        self._lengths[first:] = segments.ends
        if self._steps and first == 0 and segments.most_tokens == 1:
            masks = decoder.masks([row.variant for row in rows])
            replayed = self._steps.replayed([text[0] for text in texts], starts, masks)
            if replayed is not None:
                return replayed.logits
        return decoder.logits(self._forward(segments, rows, texts))

    def feed_several(self, rows: Sequence[Row], texts: Sequence[Sequence[int]]) -> Iterator[Tensor]:
        """Feed all rows some tokens; yield the logits after each of them, row by row."""
        counts = [*map(len, texts)]
        device = self.decoder.weights.device
        segments = Segments(range(len(rows)), self._lengths, counts, device, counts)
        self.reserve(self._size, segments.width)
        self._lengths = segments.ends
        return self.decoder.slabs(self._forward(segments, rows, texts))

    def take_back(self, number: int, count: int) -> None:
        """Forget the last tokens that a row was fed."""
        self._lengths[number] -= count

    def _forward(
        self, segments: Segments, rows: Sequence[Row], texts: Sequence[Sequence[int]]
    ) -> Hidden:
        masks = self.decoder.masks([row.variant for row in rows])
        fed = [token for text in texts for token in text]
        tokens = torch.tensor(fed, device=segments.device)
        return self.decoder.forward(tokens, segments, self, partial(masked, masks))

    def replayed(self, rows: Sequence[Row], replays: int) -> Replayed | None:
        """Feed each row its last token, and its choices but the last; None: by `feed`, one a time.

        All rows are fed as often; what lies behind a row's end is to be overlooked.
        """
        if not self._steps:
            return None
        masks = self.decoder.masks([row.variant for row in rows])
        last = [row.tokens[-1] for row in rows]
        replayed = self._steps.replayed(last, self._lengths, masks, replays)
        if replayed is not None:
            self._lengths = [length + replays for length in self._lengths]
        return replayed

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
