"""Rows of any variants: decoded together, or verified against a draft.

Verification feeds the base model's answer to a pruned model in few passes, and compares every token
with the pruned model's own choice (as in speculative decoding, Leviathan et al., arXiv 2211.17192).
At the first difference the row takes its own token, and goes on in the batch with the keys and
values of that pass. Drafts are fed in growing chunks, so that a row that differs early leaves
early.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Mapping, Sequence, Set
from itertools import chain, islice
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor

from headsweep.engine.check import Check
from headsweep.engine.decoder import Decoder, SlotRows
from headsweep.engine.graphs import MOST_REPLAYS
from headsweep.engine.other_architectures import ModuleRows, Modules, WholePass
from headsweep.engine.requests import Answer, Drafted, Row
from headsweep.engine.sampling import sample
from headsweep.engine.shared_pass import Chunk, SharedPass
from headsweep.engine.token_choices import Choice, agreed_length, choices, not_finite

if TYPE_CHECKING:
    from headsweep.config import Decoding

FIRST_CHUNK, LARGEST_CHUNK = 64, 256
"""Draft tokens in the first chunk, and most in a later one: as many, or half of all before it."""

HEAVY_CHUNK = 16  # the first where a token's arithmetic costs more than a pass's overhead

PASS_TOKENS = 2048
"""Tokens of several questions' rows in the first chunk of a pass; one question's always are."""

GPU_CHUNK = 128  # draft tokens in each chunk: there a pass's launches cost more than tokens do
GPU_PASS_TOKENS = 1 << 15  # of all rows in the first chunk; in later ones 128 of each of 256 rows
GPU_VERIFIED = 256  # most rows of a pass, base rows included

FEW_ROWS = 8
"""So few rows take less time in a step than its weights to be read: a pass has room for drafts."""

_TOKENS_OF_A_REPLAY = 16
"""A captured step is replayed once for so many tokens that rows have, on average: of answers of 400
tokens some 1% is computed in vain."""


class DecodingBatch:
    """Rows that are decoded, `size` at most; they come and go at any step."""

    def __init__(
        self,
        states: SlotRows | ModuleRows,
        decoding: Decoding,
        size: int,
        watch: Check | None = None,
    ) -> None:
        self._states = states
        self._decoding = decoding
        self.size = size
        self._watch = watch
        self._rows: list[Row] = []

    def __len__(self) -> int:
        return len(self._rows)

    @property
    def free(self) -> int:
        """Number of rows that may enter."""
        return self.size - len(self._rows)

    @torch.inference_mode()
    def enter(self, groups: Sequence[Sequence[Row]]) -> list[Answer]:
        """Prefill each group's text once, choose next tokens, return what is finished.

        Rows of a group have the same text and variant, as the samples of a question.
        """
        first = len(self._rows)
        leaders = [group[0] for group in groups]
        logits = self._states.feed(first, leaders, [row.text for row in leaders])
        followers: list[Row] = []
        leader_of: list[int] = []  # the number of each follower's leader
        for number, group in enumerate(groups):
            for row in group[1:]:
                followers.append(row)
                leader_of.append(number)
        self._rows += leaders + followers
        if followers:
            behind = first + len(leaders)
            self._states.keep([*range(behind), *(first + number for number in leader_of)])
            logits = logits[[*range(len(leaders)), *leader_of]]
        return self._choose(first, logits)

    @torch.inference_mode()
    def join(self, verified: Sequence[tuple[Row, Any]]) -> list[Answer]:
        """Let rows enter with keys and values of all their tokens but the last; there is room.

        This finishes none.
        """
        self._states.join([states for _, states in verified])
        self._rows += [row for row, _ in verified]
        return []

    @torch.inference_mode()
    def step(self) -> list[Answer]:
        """Feed each row's last token, choose the next, return what is finished.

        Where a captured step chooses itself, that is done several times. Where all of a few rows
        repeat themselves, they take several tokens each.
        """
        if drafts := self._drafts():
            return self._repeat(drafts)
        replays = self._replays()
        if replays and (replayed := self._states.replayed(self._rows, replays)):
            return self._take(replayed.chosen)
        last = [row.tokens[-1:] for row in self._rows]
        return self._choose(0, self._states.feed(0, self._rows, last))

    def _drafts(self) -> list[list[int]]:
        """Return a draft of each row if they are few and all repeat themselves; else none.

        A row that does not would wait: its next token costs least beside the others'.
        """
        drafts: list[list[int]] = []
        few = len(self._rows) <= FEW_ROWS
        if not (few and self._decoding.greedy and self._states.takes_drafts):
            return []
        for row in self._rows:
            most = row.limit - len(row.tokens) - 1  # a token of its own follows
            if self._is_watched(row) or not (draft := row.repetitions.draft(row.tokens, most)):
                return []
            drafts.append(draft)
        return drafts

    def _is_watched(self, row: Row) -> bool:
        """Tell whether the logits of a row's next token are looked at."""
        watch = self._watch
        return watch is not None and watch.watching and watch.wants(row, len(row.tokens))

    def _repeat(self, drafts: Sequence[Sequence[int]]) -> list[Answer]:
        """Let rows take their drafts up to the first token that is not their choice, and this."""
        assert isinstance(self._states, SlotRows)
        pairs = [*zip(self._rows, drafts, strict=True)]
        texts = [[row.tokens[-1], *draft] for row, draft in pairs]
        slabs = self._states.feed_several(self._rows, texts)
        chosen = chain.from_iterable(
            choices(slab, (), None, self._states.operators) for slab in slabs
        )
        answers: dict[int, Answer] = {}  # by number of the row
        for number, (row, draft) in enumerate(pairs):
            own_choices = [*islice(chosen, len(draft) + 1)]
            agreed = agreed_length(draft, own_choices)
            self._states.take_back(number, len(draft) - agreed)
            tokens, gaps = zip(*own_choices[: agreed + 1], strict=True)
            if answer := row.extend(tokens, gaps):
                answers[number] = answer
            row.repetitions.judged(row.tokens, len(draft), agreed)
        return self._leaving(answers)

    def _replays(self) -> int:
        """Return how often a captured step may be replayed before anybody looks at its tokens.

        Few times where answers are short: a row that ends before the last computes in vain. 0: its
        choice would not count, or somebody looks at its logits.
        """
        rows = self._rows
        if not self._decoding.greedy:
            return 0
        if any(map(self._is_watched, rows)):
            return 0
        tokens = sum(len(row.tokens) for row in rows) // len(rows)
        left = max(row.limit - len(row.tokens) for row in rows)
        return max(1, min(left, tokens // _TOKENS_OF_A_REPLAY, MOST_REPLAYS))

    def _take(self, chosen: Float[Tensor, "replays 2 batch"]) -> list[Answer]:
        """Let rows take what replays of a step have chosen; let finished rows leave."""
        numbers = np.array(chosen.tolist())  # waits for the device, once
        if not np.isfinite(numbers).all():
            raise not_finite()
        tokens = numbers[:, 0].astype(int).T.tolist()
        gaps = numbers[:, 1].T.tolist()
        answers: dict[int, Answer] = {}  # by number of the row
        for number, row in enumerate(self._rows):
            if answer := row.extend(tokens[number], gaps[number]):
                answers[number] = answer
        return self._leaving(answers)

    def _choose(self, first: int, logits: Float[Tensor, "batch vocabulary"]) -> list[Answer]:
        """Choose the next token of the rows from `first` on; let finished rows leave."""
        rows = self._rows[first:]
        owners = ((row, len(row.tokens)) for row in rows)
        drawn = self._drawn(rows, logits)
        chosen = choices(logits, owners, self._watch, self._states.operators, drawn)
        answers: dict[int, Answer] = {}  # by number of the row
        for number, (row, (token, gap)) in enumerate(zip(rows, chosen, strict=True), start=first):
            if answer := row.append(token, gap):
                answers[number] = answer
        return self._leaving(answers)

    def _drawn(
        self, rows: Sequence[Row], logits: Float[Tensor, "batch vocabulary"]
    ) -> Int[Tensor, " batch"] | None:
        """Return a sampled token for each row; None if decoding is greedy."""
        if self._decoding.greedy:
            return None
        uniform = torch.tensor([row.uniforms[len(row.tokens)] for row in rows])
        return sample(logits, uniform.to(logits.device), self._decoding)

    def _leaving(self, answers: Mapping[int, Answer]) -> list[Answer]:
        """Let rows leave that have ended; return their answers, which are given by number."""
        if answers:
            self._drop(answers.keys())
        return list(answers.values())

    def _drop(self, finished: Set[int]) -> None:
        """Let finished rows leave; the last rows of those that stay move into their places."""
        left = len(self._rows) - len(finished)
        free = [row for row in range(left) if row in finished]
        moving = [row for row in range(left, len(self._rows)) if row not in finished]
        kept = list(range(left))
        for place, row in zip(free, moving, strict=True):
            kept[place] = row
        self._states.keep(kept)
        self._rows[:] = [self._rows[row] for row in kept]


class Verifier:
    """Verifies base answers for rows of pruned variants, at most `most_rows` in a pass.

    On a GPU base rows count as rows, and with `columns` memory for rows of so many tokens is
    allocated at once.
    """

    def __init__(
        self,
        forward: Decoder | Modules,
        most_rows: int,
        watch: Check | None = None,
        columns: int = 0,
    ) -> None:
        self._most_rows = most_rows
        self._most_tokens = PASS_TOKENS
        self._takes_several = isinstance(forward, Decoder)
        """Whether rows of several questions go through a pass."""
        self._chunk, self._largest_chunk = FIRST_CHUNK, LARGEST_CHUNK
        self._counts_bases = False
        self._watch = watch
        self._pass: SharedPass | WholePass
        if isinstance(forward, Decoder):
            self._pass = SharedPass(forward, most_rows, columns)
            if forward.on_gpu:
                self._most_tokens = GPU_PASS_TOKENS
                self._counts_bases = True
                self._chunk = self._largest_chunk = GPU_CHUNK
            elif forward.weights.is_heavy:
                self._chunk = HEAVY_CHUNK
        else:
            self._pass = WholePass(forward)
        self.ready: list[tuple[Row, Any]] = []
        """Rows that took a token of their own, with keys and values of all tokens before it."""

    def take_ready(self, count: int) -> list[tuple[Row, Any]]:
        """Take the first rows out of `ready`, so many at most."""
        taken = self.ready[:count]
        self.ready = self.ready[count:]
        return taken

    @torch.inference_mode()
    def verify(self, queue: deque[Drafted]) -> list[Answer]:
        """Verify the drafts of a queue's first questions; return what is finished."""
        answers: list[Answer] = []
        questions = list(self._take(queue))
        pairs = [(row, drafted) for drafted in questions for row in drafted.rows]
        pairs.sort(key=lambda pair: pair[0].variant.layers[0])
        most = self._rows_at_once(questions)
        for start in range(0, len(pairs), most):
            self._pass.begin(pairs[start : start + most])
            answers += self._compare(self._pass)
        return answers

    def _take(self, queue: deque[Drafted]) -> Iterator[Drafted]:
        """Take the first questions from a queue, as many as are verified in one pass."""
        rows = tokens = 0
        while queue:
            begun = rows > 0
            rows += len(queue[0].rows)
            if self._counts_bases:
                rows += 1
            tokens += len(queue[0].rows) * self._next(queue[0], 0).end
            is_full = rows > self._most_rows or tokens > self._most_tokens
            if begun and (is_full or not self._takes_several):
                break
            yield queue.popleft()

    def _rows_at_once(self, questions: Sequence[Drafted]) -> int:
        """Return how many rows go through a pass together; more are several questions' never."""
        if isinstance(self._pass, WholePass):  # of one question, whose logits are there at once
            most_compared = max(chunk.compared for chunk in self._chunks(questions[0]))
            return max(1, min(self._most_rows, self._pass.most_places // most_compared))
        if not self._counts_bases:
            return self._most_rows
        if len(questions) > 1:  # `_take` has counted them
            return self._most_rows
        first_chunk = self._next(questions[0], 0).end
        return max(1, min(self._most_rows - 1, self._most_tokens // first_chunk))

    def _chunks(self, drafted: Drafted) -> Iterator[Chunk]:
        """Yield all chunks of a text."""
        end = 0
        while end < len(drafted.text):
            chunk = self._next(drafted, end)
            end = chunk.end
            yield chunk

    def _next(self, drafted: Drafted, begin: int) -> Chunk:
        """Return the next chunk of a text: the prompt with a first part of the draft, then more."""
        prompt = len(drafted.rows[0].request.prompt)
        length = max(self._chunk, min((begin - prompt) // 2, self._largest_chunk))
        end = min(max(begin, prompt) + length, len(drafted.text))
        return Chunk(begin, end, end - max(begin, prompt - 1))

    def _compare(self, run: SharedPass | WholePass) -> Iterator[Answer]:
        """Compare the rows of a pass with their drafts; yield what is finished."""
        ends: dict[Drafted, int] = {}
        while run.pairs:
            chunks = {
                drafted: self._next(drafted, ends.get(drafted, 0)) for _, drafted in run.pairs
            }
            ends = {drafted: chunk.end for drafted, chunk in chunks.items()}
            staying = []
            choices_of_rows = self._own_choices(run, chunks)
            for number, (row, drafted) in enumerate(run.pairs):
                own_choices = choices_of_rows[number]
                chunk = chunks[drafted]
                draft = chunk.draft_of(drafted.text)
                agreed = agreed_length(draft, own_choices)
                row.margin = min([row.margin, *(gap for _, gap in own_choices[:agreed])])
                row.tokens += draft[:agreed]
                row.accepted = len(row.tokens)
                if agreed and (answer := row.stopped()):
                    yield answer
                    continue
                if agreed == chunk.compared:
                    staying.append(number)
                    continue
                token, gap = own_choices[agreed]
                if answer := row.append(token, gap):
                    yield answer
                else:
                    before_own = chunk.first_compared + agreed
                    self.ready.append((row, run.states(number, before_own)))
            if len(staying) < len(run.pairs):
                run.stay(staying)

    def _own_choices(
        self, run: SharedPass | WholePass, chunks: Mapping[Drafted, Chunk]
    ) -> list[list[Choice]]:
        """Feed each text's next chunk; return each row's choices at all places compared."""
        owners = (
            (row, len(row.tokens) + number)
            for row, drafted in run.pairs
            for number in range(chunks[drafted].compared)
        )
        of_all_rows: list[Choice] = []
        for slab in run.logits(chunks):
            of_all_rows += choices(slab, owners, self._watch, run.operators)
        rest = iter(of_all_rows)
        return [[*islice(rest, chunks[drafted].compared)] for _, drafted in run.pairs]
