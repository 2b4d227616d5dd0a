"""How likely texts are to a model without each head of a layer, by the engine's verification pass.

A text whose tokens are known needs no decoding: the pass that verifies a draft gives the logits of
all its positions. Below its layer a pruned row equals the base model's row, which is computed once.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from headsweep.engine.decoder import Decoder
from headsweep.engine.other_architectures import Modules, WholePass
from headsweep.engine.refusals import check_kind
from headsweep.engine.requests import Drafted, Request, Row
from headsweep.engine.shared_pass import Chunk, SharedPass
from headsweep.engine.weights import fast_linear
from headsweep.models.loaded import LoadedModel
from headsweep.variants import Variant

MOST_TOKENS = 8192
"""Tokens of one text's rows in a pass, whose lower layers are computed once a pass."""
ENOUGH_TOKENS = 2048
"""Tokens of a pass to which no other text is added: more gain nothing and leave the caches."""


@dataclass(frozen=True)
class Text:
    """A prompt, and tokens that are known to follow it."""

    question_id: str
    kind: str  # right, wrong or solution
    prompt: tuple[int, ...]  # token ids
    tokens: tuple[int, ...]  # token ids, without the end of sequence

    @property
    def length(self) -> int:
        """Number of tokens, those of the prompt included."""
        return len(self.prompt) + len(self.tokens)


class Score(NamedTuple):
    """What a variant of the model says of one text."""

    text: Text
    variant: Variant
    log_probability: float
    """Of all tokens together, given the prompt: a sum of natural logarithms."""
    kept: int
    """How many of the tokens are the model's own first choice."""


def score(
    loaded: LoadedModel,
    texts: Sequence[Text],
    variants: Sequence[Variant],
    decoder: Decoder | None = None,
    most_tokens: int = MOST_TOKENS,
) -> Iterator[Score]:
    """Score each text with each variant; scores come text by text.

    Args:
        loaded: the model.
        texts: their tokens are at least one each.
        variants: all of one layer; ``L05R00`` is the model as it is, scored as the others are.
        decoder: the model's, if it is made already.
        most_tokens: of one text's rows in a pass; a single row may have more. A model without
            decoder has no more than its logits allow, which are there at once.

    Raises:
        ModelError: a layer or head is out of range, or the model keeps more than keys and values.
    """
    check_kind(loaded.model.config)
    decoder = decoder or Decoder.of(loaded)
    with torch.inference_mode(), fast_linear(loaded.model), Modules(loaded) as modules:
        if decoder is None:
            most_tokens = min(most_tokens, WholePass(modules).most_places)
        for drafts in _passes(texts, variants, most_tokens, together=decoder is not None):
            run = SharedPass(decoder) if decoder else WholePass(modules)
            scores = list(_scored(run, drafts, loaded.device))
            modules.prune([])  # between two passes the model is whole, for a caller that checks
            yield from scores


def log_probability(loaded: LoadedModel, text: Text) -> Tensor:
    """Return the log-probability of a text's tokens, by the model's own modules."""
    ids = torch.tensor([[*text.prompt, *text.tokens]], device=loaded.device)
    output = loaded.model(input_ids=ids, use_cache=False)
    logits = output.logits[0, len(text.prompt) - 1 : -1].float()
    targets = ids[0, len(text.prompt) :, None]
    return logits.log_softmax(dim=-1).gather(1, targets).sum()


Drafts = dict[Drafted, Text]


def _passes(
    texts: Sequence[Text], variants: Sequence[Variant], most_tokens: int, *, together: bool
) -> Iterator[Drafts]:
    """Yield the drafts of each pass: of whole texts, or of a part of a long text's variants."""
    begun: Drafts = {}
    tokens = 0
    enough = min(ENOUGH_TOKENS, most_tokens)
    for text in texts:
        rows = max(1, most_tokens // text.length)
        for start in range(0, len(variants), rows):
            part = variants[start : start + rows]
            if begun and (not together or tokens + len(part) * text.length > enough):
                yield begun
                begun = {}
                tokens = 0
            begun[_draft(text, part)] = text
            tokens += len(part) * text.length
    if begun:
        yield begun


def _draft(text: Text, variants: Sequence[Variant]) -> Drafted:
    limit = len(text.tokens)  # so that the last token, whose successor is not asked, is not fed
    requests = [Request(text.question_id, text.prompt, variant) for variant in variants]
    return Drafted(text.tokens, [Row(request, limit, ()) for request in requests])


def _scored(run: SharedPass | WholePass, drafts: Drafts, device: torch.device) -> Iterator[Score]:
    """Yield the scores of the rows of one pass."""
    run.begin([(row, drafted) for drafted in drafts for row in drafted.rows])
    chunks = {drafted: Chunk(0, len(drafted.text), len(drafted.draft)) for drafted in drafts}
    expected = [token for _, drafted in run.pairs for token in drafted.draft]
    targets = torch.tensor(expected, device=device)[:, None]
    logs: list[Float[Tensor, " places"]] = []  # of the targets' probabilities
    best: list[Bool[Tensor, " places"]] = []  # no other token is likelier
    start = 0
    for slab in run.logits(chunks):
        logits = slab.float()
        own = targets[start : start + len(slab)]
        # A difference from the sum's logarithm would round the logarithms.
        logs.append(logits.log_softmax(dim=1).gather(1, own)[:, 0].double())
        best.append(logits.gather(1, own)[:, 0] >= logits.amax(dim=1))
        start += len(slab)
    counts = [len(drafted.draft) for _, drafted in run.pairs]
    by_row = zip(
        run.pairs, torch.cat(logs).split(counts), torch.cat(best).split(counts), strict=True
    )
    for (row, drafted), row_logs, row_best in by_row:
        kept = int(row_best.sum().item())
        yield Score(drafts[drafted], row.variant, row_logs.sum().item(), kept)
