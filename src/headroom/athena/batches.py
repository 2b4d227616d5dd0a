"""Word problems as tensors: read texts, and expansions of a whole batch as flat arrays.

A level is one depth of all the batch's problems. Its candidates stand by operation, so that each
operation is applied once; `owner` says whose they are. Thoughts are numbered over the batch, in
the order in which levels accept them.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor
from transformers import PreTrainedTokenizerBase

from headroom.athena.equations import NUMBER, Problem
from headroom.athena.expansion import Schedule, schedule
from headroom.athena.expressions import Op
from headroom.config.compression import Solver
from headroom.errors import BenchmarkError


@dataclass(frozen=True)
class Example:
    """A problem as the solver reads it."""

    problem: Problem
    input_ids: Int[np.ndarray, " tokens"]
    places: Int[np.ndarray, " numbers"]
    """Where the numbers stand."""
    goal: Int[np.ndarray, " goal_tokens"]
    """Where the tokens of the question stand that the answer judge attends to."""
    schedule: Schedule
    """Its expansion under teacher forcing."""

    @property
    def example_id(self) -> str:
        """The problem's."""
        return self.problem.problem_id


@dataclass(frozen=True)
class Texts:
    """The texts of a batch, padded on the right."""

    input_ids: Int[Tensor, "batch tokens"]
    attention_mask: Int[Tensor, "batch tokens"]
    number_owner: Int[Tensor, " numbers"]
    number_place: Int[Tensor, " numbers"]
    goal: Int[Tensor, "batch goal_tokens"]
    goal_mask: Bool[Tensor, "batch goal_tokens"]


@dataclass(frozen=True)
class Level:
    """The candidates of one depth, by operation."""

    counts: tuple[int, ...]
    """How many there are of each `Op`."""
    left: Int[Tensor, " candidates"]
    """Thought, number or constant that the operation takes."""
    right: Int[Tensor, " candidates"]
    owner: Int[Tensor, " candidates"]
    slot: Int[Tensor, " candidates"]
    """Place among the owner's candidates of this depth."""
    most: int
    """The largest number of candidates of a problem."""


@dataclass(frozen=True)
class Accepted:
    """The candidates of a level that become thoughts."""

    index: Int[Tensor, " accepted"]
    """Places among the level's candidates."""
    slot: Int[Tensor, " accepted"]
    """Place among the owner's thoughts."""
    most: int
    """The largest number of thoughts that a problem has from now on."""


@dataclass(frozen=True)
class Batch:
    """Problems with their expansions under teacher forcing; vectors run over all levels."""

    texts: Texts
    levels: tuple[Level, ...]
    accepted: tuple[Accepted, ...]
    """For each level."""
    targets: Float[Tensor, " candidates"]
    owners: Int[Tensor, " candidates"]
    answers: Float[Tensor, " thoughts"]
    """1 for the thought that is the whole equation."""
    thought_owners: Int[Tensor, " thoughts"]

    @property
    def inputs(self) -> Mapping[str, Int[Tensor, "batch tokens"]]:
        """What the encoder reads."""
        texts = self.texts
        return {"input_ids": texts.input_ids, "attention_mask": texts.attention_mask}

    @property
    def size(self) -> int:
        """How many problems there are."""
        return len(self.texts.input_ids)

    @property
    def judged(self) -> int:
        """How many logits the task's loss is averaged over."""
        return len(self.targets) + len(self.answers)


def prepare(
    problems: Sequence[Problem],
    tokenizer: PreTrainedTokenizerBase,
    constants: Sequence[float],
    solver: Solver,
) -> list[Example]:
    """Tokenize problems and work their expansions out.

    Raises:
        BenchmarkError: a text is longer than the encoder reads.
    """
    texts = [problem.text.replace(NUMBER, tokenizer.mask_token) for problem in problems]
    encoded = tokenizer(texts, add_special_tokens=True, verbose=False)
    examples = []
    for index, problem in enumerate(problems):
        ids = np.array(encoded["input_ids"][index], dtype=np.int64)
        places = np.flatnonzero(ids == tokenizer.mask_token_id)
        if len(ids) > tokenizer.model_max_length or len(places) != len(problem.numbers):
            raise BenchmarkError(
                f"problem {problem.problem_id}: {len(ids)} tokens with {len(places)} places for "
                f"{len(problem.numbers)} numbers; the encoder reads at most "
                f"{tokenizer.model_max_length} tokens: shorten or remove it"
            )
        stretch = len(tokenizer.mask_token) - len(NUMBER)
        start = problem.question + stretch * problem.text.count(NUMBER, 0, problem.question)
        end = len(texts[index]) - 1
        tokens = {encoded.char_to_token(index, at) for at in range(start, end + 1)} - {None}
        last = max(tokens)
        goal = sorted(tokens) if solver.goal == "question" else [last]
        plan = schedule(
            problem.equation,
            len(problem.numbers),
            constants,
            solver.depth,
            multi=solver.targets == "multi",
        )
        examples.append(Example(problem, ids, places, np.array(goal), plan))
    return examples


def collate(examples: Sequence[Example], pad_token_id: int) -> Batch:
    """Join examples to a batch."""
    schedules = [example.schedule for example in examples]
    lengths = [len(plan.op) for plan in schedules]
    owner = np.repeat(np.arange(len(examples)), lengths)
    depth = np.concatenate([plan.depth for plan in schedules])
    op = np.concatenate([plan.op for plan in schedules])
    target = np.concatenate([plan.target for plan in schedules])
    slot = _ranks(owner * (depth.max() + 1) + depth)

    # Level by level, operation by operation; within a problem its own order is kept.
    order = np.lexsort((op, depth))
    thought_of = np.empty(len(order), dtype=np.int64)
    thought_of[order] = np.cumsum(target[order]) - 1

    # A problem's k-th thought is the batch's thought thoughts[first_thought[problem] + k].
    thoughts = thought_of[target]
    first_thought = starts([int(plan.target.sum()) for plan in schedules])
    first_number = starts([len(example.places) for example in examples])
    sides = []
    for side in ("left", "right"):
        local = np.concatenate([getattr(plan, side) for plan in schedules])
        place = thoughts[np.where(op > Op.CONSTANT, local + first_thought[owner], 0)]
        place = np.where(op == Op.NUMBER, local + first_number[owner], place)
        sides.append(np.where(op == Op.CONSTANT, local, place))
    left, right = sides

    answers = np.zeros(len(thoughts), dtype=np.float32)
    for plan, first in zip(schedules, first_thought, strict=True):
        if plan.answer is not None:
            answers[thoughts[first + plan.answer]] = 1
    taken = np.argsort(thoughts)  # the batch's thoughts, among all problems' own
    thought_slots = _ranks(owner[target])[taken]
    levels = np.split(order, np.searchsorted(depth[order], np.arange(1, depth.max() + 1)))
    kept = [np.flatnonzero(target[part]) for part in levels]
    ends = np.cumsum([len(index) for index in kept])
    slots = np.split(thought_slots, ends[:-1])
    return Batch(
        texts=collate_texts(examples, pad_token_id),
        levels=tuple(
            level(op[part], left[part], right[part], owner[part], slot[part]) for part in levels
        ),
        accepted=tuple(
            Accepted(tensor(index), tensor(slot), int(thought_slots[:end].max(initial=-1)) + 1)
            for index, slot, end in zip(kept, slots, ends, strict=True)
        ),
        targets=tensor(target[order].astype(np.float32)),
        owners=tensor(owner[order]),
        answers=tensor(answers),
        thought_owners=tensor(owner[target][taken]),
    )


def collate_texts(examples: Sequence[Example], pad_token_id: int) -> Texts:
    """Pad the texts of examples."""
    ids, mask = _padded([example.input_ids for example in examples], pad_token_id)
    goal, goal_mask = _padded([example.goal for example in examples], 0)
    places = [example.places for example in examples]
    return Texts(
        input_ids=ids,
        attention_mask=mask.long(),
        number_owner=tensor(np.repeat(np.arange(len(examples)), [len(p) for p in places])),
        number_place=tensor(np.concatenate(places)),
        goal=goal,
        goal_mask=goal_mask,
    )


def level(
    op: Int[np.ndarray, " candidates"],
    left: Int[np.ndarray, " candidates"],
    right: Int[np.ndarray, " candidates"],
    owner: Int[np.ndarray, " candidates"],
    slot: Int[np.ndarray, " candidates"],
) -> Level:
    """Return candidates, which stand by operation, as tensors."""
    counts = tuple(np.bincount(op, minlength=len(Op)).tolist())
    most = int(slot.max()) + 1
    return Level(counts, tensor(left), tensor(right), tensor(owner), tensor(slot), most)


def _padded(
    rows: Sequence[Int[np.ndarray, " items"]], fill: int
) -> tuple[Int[Tensor, "batch items"], Bool[Tensor, "batch items"]]:
    lengths = np.array([len(row) for row in rows])
    mask = np.arange(lengths.max()) < lengths[:, None]
    padded = np.full(mask.shape, fill, dtype=np.int64)
    padded[mask] = np.concatenate(rows)
    return tensor(padded), tensor(mask)


def _ranks(groups: Int[np.ndarray, " items"]) -> Int[np.ndarray, " items"]:
    """Return each item's place among the items of its group; groups stand together."""
    starts = np.flatnonzero(np.diff(groups, prepend=groups[0] - 1))
    lengths = np.diff(starts, append=len(groups))
    return np.arange(len(groups)) - np.repeat(starts, lengths)


def starts(lengths: Sequence[int]) -> Int[np.ndarray, " problems"]:
    """Return where each problem's items start among all problems' items."""
    return np.concatenate([[0], np.cumsum(lengths)[:-1]])


def tensor(array: np.ndarray) -> Tensor:
    """Return an array as a tensor; its memory is shared where that is possible."""
    return torch.from_numpy(np.ascontiguousarray(array))
