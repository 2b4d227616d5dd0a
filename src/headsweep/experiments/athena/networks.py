"""ATHENA: an encoder reads the problem, a thought head builds its equation step by step.

Source: Kim et al., ATHENA, arXiv 2311.01036. Embeddings have the encoder's width. Every operation
has its own network. One judge says which candidates are steps of the solution (reason), another
which thought is the solution (answer). Networks are pre-norm.
"""

from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn
from torch.nn.functional import scaled_dot_product_attention
from transformers import PreTrainedModel

from headsweep.experiments.athena.batches import Level, ProblemBatch, Rows, Texts
from headsweep.experiments.athena.expressions import MERGES, UNARY, Op
from headsweep.models.learner import attention_maps


class FeedForward(nn.Module):
    """x + W₂ GELU(W₁ LN x)."""

    def __init__(self, width: int, inner: int, dropout: float) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(width)
        self.inner = nn.Linear(width, inner)
        self.outer = nn.Linear(inner, width)
        self.dropout = nn.Dropout(dropout)

    def forward(self, x: Float[Tensor, "*rows width"]) -> Float[Tensor, "*rows width"]:
        """Return the transformed vectors."""
        inner = nn.functional.gelu(self.inner(self.norm(x)))
        return x + self.dropout(self.outer(inner))


class Attention(nn.Module):
    """Multi-head attention with heads of fixed width; the weights decide their number."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.head_dim = width // heads
        self.query = nn.Linear(width, width)
        self.key = nn.Linear(width, width)
        self.value = nn.Linear(width, width)
        self.output = nn.Linear(width, width)

    def forward(
        self,
        x: Float[Tensor, "batch queries width"],
        memory: Float[Tensor, "batch keys width"],
        mask: Bool[Tensor, "batch keys"] | None = None,
    ) -> Float[Tensor, "batch queries width"]:
        """Return the attention output of each query; `mask` says which keys exist."""
        query, key, value = (
            projection(source).unflatten(-1, (-1, self.head_dim)).transpose(1, 2)
            for projection, source in ((self.query, x), (self.key, memory), (self.value, memory))
        )
        seen = None if mask is None else mask[:, None, None]
        mixed = scaled_dot_product_attention(query, key, value, attn_mask=seen)
        return self.output(mixed.transpose(1, 2).flatten(2))


class Merge(nn.Module):
    """A sum or product: the two thoughts attend to each other, outputs summed; order-invariant."""

    def __init__(self, width: int, heads: int, inner: int, dropout: float) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(width)
        self.attention = Attention(width, heads)
        self.forward_layer = FeedForward(width, inner, dropout)

    def forward(
        self, left: Float[Tensor, "pairs width"], right: Float[Tensor, "pairs width"]
    ) -> Float[Tensor, "pairs width"]:
        """Return the embedding of each pair's merge."""
        both = self.norm(torch.stack([left, right], dim=1))
        mixed = self.attention(both, both).sum(dim=1)
        return self.forward_layer(mixed + left + right)


class Judge(nn.Module):
    """Judges whether an expression is right; it attends to a memory of its problem."""

    def __init__(self, width: int, heads: int, inner: int, dropout: float) -> None:
        super().__init__()
        self.before = FeedForward(width, inner, dropout)
        self.norm = nn.LayerNorm(width)
        self.memory_norm = nn.LayerNorm(width)
        self.attention = Attention(width, heads)
        self.dropout = nn.Dropout(dropout)
        self.after = FeedForward(width, inner, dropout)
        self.verdict = nn.Linear(width, 1)

    def forward(
        self,
        embeddings: Float[Tensor, "items width"],
        rows: Rows,
        memory: Float[Tensor, "batch memories width"],
        mask: Bool[Tensor, "batch memories"] | None = None,
    ) -> tuple[Float[Tensor, "items width"], Float[Tensor, " items"]]:
        """Return the final vectors and the logits."""
        x = self.before(embeddings)
        queries = rows.pad(self.norm(x), len(memory))
        attended = self.attention(queries, self.memory_norm(memory), mask)
        x = self.after(x + self.dropout(attended[rows.owner, rows.slot]))
        return x, self.verdict(x).squeeze(-1)


@dataclass(frozen=True)
class SolverOutput:
    """Logits of a batch under teacher forcing, in the order of its `targets` and `answers`."""

    reason: Float[Tensor, " candidates"]
    answer: Float[Tensor, " thoughts"]
    attentions: tuple[Float[Tensor, "batch heads tokens tokens"], ...]  # by layer, if asked for


class ThoughtHead(nn.Module):
    """Embeds constants and expressions in the encoder's `width`, and judges them.

    The number of `heads` divides the width; `inner` is the width inside of feed-forward layers,
    `dropout` a probability, `constants` the number of constants.
    """

    def __init__(self, width: int, heads: int, inner: int, dropout: float, constants: int) -> None:
        super().__init__()
        self.constants = nn.Parameter(torch.randn(constants, width))
        self.constant_norm = nn.LayerNorm(width)
        self.constant_inner = nn.Linear(width, inner)
        self.constant_outer = nn.Linear(inner, width)
        self.unary = nn.ModuleDict({op.name: FeedForward(width, inner, dropout) for op in UNARY})
        self.merges = nn.ModuleDict({op.name: Merge(width, heads, inner, dropout) for op in MERGES})
        self.reason = Judge(width, heads, inner, dropout)
        self.answer = Judge(width, heads, inner, dropout)


class Athena(nn.Module):
    """A text encoder and a thought head of its width."""

    def __init__(self, encoder: PreTrainedModel, head: ThoughtHead) -> None:
        super().__init__()
        self.encoder = encoder
        self.head = head

    def forward(self, batch: ProblemBatch, *, attentions: bool = False) -> SolverOutput:
        """Judge every candidate and every thought of a batch under teacher forcing.

        Raises:
            ModelError: `attentions` are asked for, and the encoder returns none.
        """
        progress = Progress(self, batch.texts, attentions=attentions)
        reason = []
        for level, (index, rows) in zip(batch.levels, batch.accepted, strict=True):
            reason.append(progress.judge(level))
            progress.accept(index, rows)
        return SolverOutput(torch.cat(reason), progress.answers(), progress.attentions)


class Progress:
    """The expansion of a batch: what the encoder read, thoughts and premises.

    At each level call `judge` on the candidates, then `accept`; `answers` judges all thoughts.
    """

    def __init__(self, athena: Athena, texts: Texts, *, attentions: bool = False) -> None:
        wanted = {"output_attentions": True} if attentions else {}
        encoded = athena.encoder(**texts.inputs, **wanted)
        weights = attention_maps(athena.encoder, encoded.attentions) if attentions else ()
        self.attentions = tuple(weights)
        head = self._head = athena.head
        states = encoded.last_hidden_state
        rows = torch.arange(len(states), device=states.device)
        self._numbers = states[texts.number_owner, texts.number_place]
        inner = nn.functional.gelu(head.constant_inner(head.constant_norm(head.constants)))
        self._constants = head.constant_outer(inner)
        self._goal = states[rows, texts.goal][:, None]
        self._first = states[:, 0]
        self._thoughts = self._vectors = self._first[:0]
        self._rows = Rows(rows[:0], rows[:0], 0)
        self._candidates: tuple[Tensor, Tensor]

    def judge(self, level: Level) -> Float[Tensor, " candidates"]:
        """Return the reason logits of a level's candidates."""
        rows = self._rows
        batch = len(self._first)
        # A problem's premises are its first token's state, then its thoughts.
        premises = torch.cat([self._first[:, None], rows.pad(self._vectors, batch)], dim=1)
        valid = torch.zeros_like(premises[..., 0], dtype=torch.bool)
        valid[:, 0] = valid[rows.owner, rows.slot + 1] = True
        embeddings = self._embedded(level)
        vectors, logits = self._head.reason(embeddings, level.rows, premises, valid)
        self._candidates = embeddings, vectors
        return logits

    def _embedded(self, level: Level) -> Float[Tensor, "candidates width"]:
        head = self._head
        thoughts = self._thoughts
        parts = []
        sides = zip(level.left.split(level.counts), level.right.split(level.counts), strict=True)
        for op, (left, right) in zip(Op, sides, strict=True):
            if not len(left):
                continue
            if op == Op.NUMBER:
                parts.append(self._numbers[left])
            elif op == Op.CONSTANT:
                parts.append(self._constants[left])
            elif op in UNARY:
                parts.append(head.unary[op.name](thoughts[left]))
            else:
                parts.append(head.merges[op.name](thoughts[left], thoughts[right]))
        return torch.cat(parts)

    def accept(self, index: Int[Tensor, " accepted"], rows: Rows) -> None:
        """Accept some of the last judged candidates; `rows` are those of all thoughts."""
        embeddings, vectors = self._candidates
        self._thoughts = torch.cat([self._thoughts, embeddings[index]])
        self._vectors = torch.cat([self._vectors, vectors[index]])
        self._rows = rows

    def answers(self) -> Float[Tensor, " thoughts"]:
        """Return the answer logits of all thoughts, in order of acceptance."""
        return self._head.answer(self._thoughts, self._rows, self._goal)[1]
