"""Labelled texts as tensors, and where their answers stand among the tokens."""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from headroom.texts.text import Text

_LONGEST_ANSWER = 30  # tokens, as in BERT's evaluation on SQuAD


@dataclass(frozen=True)
class Example:
    """A text as the encoder reads it."""

    row: Text
    input_ids: Int[np.ndarray, " tokens"]
    types: Int[np.ndarray, " tokens"]
    """Which of two texts a token belongs to, by the encoder's own numbers."""
    spans: Int[np.ndarray, "tokens 2"]
    """Question answering: where each token of the context starts and ends there; -1: no such
    token. Classification: none."""
    targets: tuple[int, ...]
    """The label's number, or the places of the answer's first and last token."""

    @property
    def example_id(self) -> str:
        """The text's."""
        return self.row.example_id


@dataclass(frozen=True)
class Batch:
    """Texts, padded on the right."""

    input_ids: Int[Tensor, "batch tokens"]
    attention_mask: Int[Tensor, "batch tokens"]
    types: Int[Tensor, "batch tokens"] | None
    """None where the encoder knows no types."""
    options: Bool[Tensor, "batch tokens"]
    """Question answering: which tokens may be chosen."""
    targets: Int[Tensor, "batch choices"]

    @property
    def inputs(self) -> Mapping[str, Int[Tensor, "batch tokens"]]:
        """What the encoder reads."""
        found = {"input_ids": self.input_ids, "attention_mask": self.attention_mask}
        return found if self.types is None else {**found, "token_type_ids": self.types}

    @property
    def judged(self) -> int:
        """How many choices the loss is averaged over."""
        return self.targets.numel()


def answer_place(row: Text, spans: Int[np.ndarray, "tokens 2"]) -> tuple[int, int]:
    """Return the first and the last token of a row's first answer; 0 if they are cut off."""
    start, end = row.starts[0], row.starts[0] + len(row.answers[0])
    inside = np.flatnonzero((spans[:, 0] < end) & (spans[:, 1] > start) & (spans[:, 0] >= 0))
    whole = len(inside) and spans[inside[-1], 1] >= end
    return (int(inside[0]), int(inside[-1])) if whole else (0, 0)


def best_span(logits: Float[Tensor, "2 options"], example: Example) -> str:
    """Return the words between the best start and the best end after it."""
    length = len(example.spans)
    start, end = logits[:, :length]
    sums = start[:, None] + end
    possible = torch.ones(length, length).triu().tril(_LONGEST_ANSWER - 1).bool()
    context = torch.from_numpy(example.spans[:, 0] >= 0)
    sums[~(possible & context & context[:, None])] = -torch.inf
    first, last = divmod(int(sums.argmax()), length)
    return example.row.text[example.spans[first, 0] : example.spans[last, 1]]
