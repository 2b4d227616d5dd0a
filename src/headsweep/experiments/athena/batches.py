"""Word problems as tensors: tokenized texts, and the expansions of a batch as flat arrays.

A level is one depth of all problems of a batch. Its candidates are sorted by operation, so that
each operation's network runs once. Thoughts are numbered over the batch in order of acceptance.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor

from headsweep.experiments.athena.equations import Problem
from headsweep.experiments.athena.expressions import Op, Schedule
from headsweep.models.learner import Terms, map_terms, padded

Column = Int[np.ndarray, " candidates"]


@dataclass(frozen=True)
class TokenizedProblem:
    """A tokenized problem."""

    problem: Problem
    input_ids: Int[np.ndarray, " tokens"]
    places: Int[np.ndarray, " numbers"]  # token positions of the numbers
    goal: int  # position of the question's last token, which the answer judge attends to
    schedule: Schedule

    @property
    def example_id(self) -> str:
        """The problem's id."""
        return self.problem.problem_id


@dataclass(frozen=True)
class Texts:
    """The texts of a batch, padded on the right."""

    inputs: dict[str, Int[Tensor, "batch tokens"]]  # the encoder's
    number_owner: Int[Tensor, " numbers"]
    number_place: Int[Tensor, " numbers"]
    goal: Int[Tensor, " batch"]


@dataclass(frozen=True)
class Rows:
    """Maps items stored flat over a batch to padded rows, one row per problem."""

    owner: Int[Tensor, " items"]  # the row of each item
    slot: Int[Tensor, " items"]  # its position in the row
    length: int  # of the longest row

    @classmethod
    def of(cls, owner: Int[np.ndarray, " items"]) -> "Rows":
        """Return the rows of items with these owners, keeping the order of the items."""
        order = np.argsort(owner, kind="stable")
        counts = np.bincount(owner, minlength=1)
        slot = np.empty_like(owner)
        slot[order] = np.arange(len(owner)) - np.repeat(starts(counts), counts)
        return cls(torch.as_tensor(owner), torch.as_tensor(slot), int(counts.max()))

    def pad(
        self, items: Float[Tensor, "items width"], batch: int
    ) -> Float[Tensor, "batch length width"]:
        """Return items in rows, padded with zeros."""
        rows = items.new_zeros(batch, self.length, items.shape[-1])
        return rows.index_put((self.owner, self.slot), items)


@dataclass(frozen=True)
class Level:
    """The candidates of one depth, sorted by operation."""

    counts: tuple[int, ...]  # number of candidates of each `Op`
    left: Int[Tensor, " candidates"]  # first operand: a thought, or of leaves a number or constant
    right: Int[Tensor, " candidates"]  # second operand; `left` again where there is none
    rows: Rows

    @classmethod
    def of(cls, op: Column, left: Column, right: Column, owner: Column) -> "Level":
        """Return candidates, sorted by operation, as tensors."""
        counts = tuple(np.bincount(op, minlength=len(Op)).tolist())
        return cls(counts, torch.as_tensor(left), torch.as_tensor(right), Rows.of(owner))


@dataclass(frozen=True)
class ProblemBatch:
    """Problems with their expansions under teacher forcing; targets and answers span all levels."""

    texts: Texts
    levels: tuple[Level, ...]
    accepted: tuple[tuple[Int[Tensor, " accepted"], Rows], ...]
    """For each level, the candidates that become thoughts, and the rows of all thoughts so far."""
    targets: Float[Tensor, " candidates"]  # 1 for candidates to accept, else 0
    answers: Float[Tensor, " thoughts"]  # 1 for the thought that is the whole equation, else 0

    @property
    def inputs(self) -> Mapping[str, Int[Tensor, "batch tokens"]]:
        """The encoder's inputs."""
        return self.texts.inputs

    @property
    def judged(self) -> int:
        """Number of logits that the task loss is averaged over."""
        return len(self.targets) + len(self.answers)

    @property
    def terms(self) -> Terms:
        """Numbers of terms that the losses are averaged over."""
        queries, entries = map_terms(self.inputs["attention_mask"])
        return Terms(self.judged, len(self.targets), len(self.texts.goal), queries, entries)


def collate(examples: Sequence[TokenizedProblem], pad_token_id: int) -> ProblemBatch:
    """Join examples to a batch."""
    plans = [example.schedule for example in examples]
    op, left, right, target, depth = (
        np.concatenate([getattr(plan, name) for plan in plans])
        for name in ("op", "left", "right", "target", "depth")
    )
    owner = np.repeat(np.arange(len(plans)), [len(plan.op) for plan in plans])
    # Sort by level, then operation; the sort is stable, so each problem keeps its own order.
    order = np.lexsort((op, depth))
    thought_of = np.empty(len(order), dtype=np.int64)
    thought_of[order] = np.cumsum(target[order]) - 1

    # A problem's k-th thought is the batch's thought thoughts[first_thought[problem] + k].
    thoughts = thought_of[target]
    first_thought = starts([int(plan.target.sum()) for plan in plans])
    first_number = starts([len(example.places) for example in examples])

    def over_batch(local: Int[np.ndarray, " items"]) -> Int[np.ndarray, " items"]:
        place = local.copy()  # a constant has one number in all problems
        is_number, is_thought = op == Op.NUMBER, op > Op.CONSTANT
        place[is_number] += first_number[owner[is_number]]
        place[is_thought] = thoughts[(local + first_thought[owner])[is_thought]]
        return place

    left, right = over_batch(left), over_batch(right)
    answers = np.zeros(len(thoughts), dtype=np.float32)
    for plan, first in zip(plans, first_thought, strict=True):
        if plan.answer is not None:
            answers[thoughts[first + plan.answer]] = 1
    levels = np.split(order, np.searchsorted(depth[order], np.arange(1, depth.max() + 1)))
    kept = [np.flatnonzero(target[part]) for part in levels]
    owners = owner[order][target[order]]
    ends = np.cumsum([len(index) for index in kept])
    return ProblemBatch(
        texts=collate_texts(examples, pad_token_id),
        levels=tuple(Level.of(op[part], left[part], right[part], owner[part]) for part in levels),
        accepted=tuple(
            (torch.as_tensor(indices), Rows.of(owners[:end]))
            for indices, end in zip(kept, ends, strict=True)
        ),
        targets=torch.as_tensor(target[order].astype(np.float32)),
        answers=torch.as_tensor(answers),
    )


def collate_texts(examples: Sequence[TokenizedProblem], pad_token_id: int) -> Texts:
    """Pad the texts of examples."""
    places = [example.places for example in examples]
    return Texts(
        padded([example.input_ids for example in examples], pad_token_id),
        number_owner=torch.as_tensor(np.repeat(np.arange(len(examples)), [len(p) for p in places])),
        number_place=torch.as_tensor(np.concatenate(places)),
        goal=torch.tensor([example.goal for example in examples]),
    )


def starts(lengths: Sequence[int] | Int[np.ndarray, " problems"]) -> Int[np.ndarray, " problems"]:
    """Return the index of each problem's first item among the items of all problems."""
    return np.concatenate([[0], np.cumsum(lengths)[:-1]])
