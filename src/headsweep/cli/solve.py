"""Answer a question with the heads that a trained selector picks for it.

The selector picks the N nearest heads (SPRINT, arXiv 2506.03978, section 4). The model answers once
with each of them pruned, and once unpruned. Without an oracle, the majority of the answers or a
verifier of the user's chooses.
"""

import importlib
import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack
from itertools import combinations
from pathlib import Path
from typing import Any, Literal, NamedTuple

from headsweep.answers.exclusive import placed
from headsweep.answers.worker import Worker
from headsweep.benchmarks.prompts import check_prompts
from headsweep.config import Decoding
from headsweep.engine.unit import Unit
from headsweep.errors import ConfigError, cause_of, quoted
from headsweep.experiments.sprint.head_selector import rank_heads
from headsweep.files import paths
from headsweep.grading.extraction import gradable
from headsweep.grading.pool import Reading, read_texts
from headsweep.models.embeddings import embed, load_embedder
from headsweep.models.load import load_model
from headsweep.results.run import Run
from headsweep.text import aligned, json_line, one_line, visible
from headsweep.variants import BASE, Variant

Verifier = Callable[[str, list[str]], Sequence[float]]
"""Scores texts that answer a question; higher is better."""

_HEADS = 8
_TOGETHER = 32
"""Questions that are answered at once: enough to fill batches, few enough to see results soon."""


class Candidate(NamedTuple):
    """One value that some heads answered with; the nearest head comes first."""

    answer: str | None
    """As the nearest of them wrote it; None: no answer was found in their texts."""
    votes: int
    heads: list[str]
    text: str
    """What the nearest of them wrote."""
    score: float | None
    """The highest score of the verifier among their texts; None without a verifier."""


def count_votes(
    heads: Sequence[str],
    texts: Sequence[str],
    readings: Sequence[Reading],
    scores: Sequence[float] | None = None,
) -> tuple[list[Candidate], float | None]:
    """Return the distinct answers of heads, nearest first, as read in their texts, and agreement.

    The answer with the highest of a verifier's scores comes first, or without them the one with
    most votes; the nearest head breaks ties. A text without an answer has no vote. Agreement is the
    share of pairs of heads with equal answers; None for a single head. Answers are equal if the
    grader's form of them is, as where a run counts votes.
    """
    answers = [reading.answer for reading in readings]
    forms = [reading.form for reading in readings]
    groups = [forms.index(form) for form in forms]
    candidates = []
    for first in dict.fromkeys(groups):
        members = [index for index, group in enumerate(groups) if group == first]
        votes = 0 if answers[first] is None else len(members)
        score = None if scores is None else max(scores[index] for index in members)
        pruned = [heads[index] for index in members]
        candidates.append(Candidate(answers[first], votes, pruned, texts[first], score))

    def merit(candidate: Candidate) -> tuple[bool, float, int]:
        return candidate.answer is not None, candidate.score or 0, candidate.votes

    candidates.sort(key=merit, reverse=True)  # stable, so the nearest head breaks ties
    agreeing = [
        first == second and answers[first] is not None for first, second in combinations(groups, 2)
    ]
    return candidates, sum(agreeing) / len(agreeing) if agreeing else None


class Solved(NamedTuple):
    """What the nearest heads answer to a question."""

    question: str
    candidates: list[Candidate]
    """The chosen one first, then by a verifier's score, or without one by votes."""
    agreement: float | None
    """Share of pairs of heads that gave equal answers; None for a single head."""
    base: str | None
    """The unpruned model's answer."""

    @property
    def answer(self) -> str | None:
        """The chosen answer."""
        return self.candidates[0].answer


class Solver:
    """Answers questions with the heads that a run's selector picks; loads everything once.

    Args:
        run: folder of a run, such as ``results/demo``.
        selector: one of its selectors; by default the only one.
        n: how many heads answer; by default 8, or all if the pool has fewer.
        verifier: scores the answers, of which the best is chosen instead of the majority's: a
            function, or its import path as in ``my_module:score``.

    Raises:
        ConfigError: the run or selector does not exist, n is less than 1 or more than the pool
            has, or the verifier cannot be imported, or is no function.
        TableError, ModelError: a file of the run is missing or damaged.
    """

    def __init__(
        self,
        run: str | Path,
        *,
        selector: str | None = None,
        n: int | None = None,
        verifier: str | Verifier | None = None,
    ) -> None:
        if n is not None and n < 1:
            raise ConfigError(f"n: {n} heads are requested; ask for 1 or more")
        finished = Run(run)
        config = finished.config
        self._selector, facts = finished.selector(selector)
        self._heads = [Variant.parse(name) for name in facts["heads"]]
        self._n = min(_HEADS, len(self._heads)) if n is None else n
        if self._n > len(self._heads):
            raise ConfigError(f"n: {n} heads are requested; ask for 1 to {len(self._heads)}")
        section = config.selectors[finished.one("selectors", selector)]
        self._decoding: Decoding = config.decodings[section.decoding]
        self._grader_name = config.questions[section.train].grader_name
        self._preset = config.grading
        self._verifier = _import(verifier) if isinstance(verifier, str) else verifier
        model = config.models[section.model]
        embedder = self._selector.setting.embedder or section.embedder[0]
        held = ExitStack()
        self._folder = _folder(finished, "model", section.model)
        loaded = load_model(
            str(self._folder),
            dtype=model.dtype,
            device=held.enter_context(placed(model)),
            attention=model.attention,
        )
        self._worker = Worker(loaded, model.batch_size)
        self._embedder = load_embedder(_folder(finished, "embedder", embedder))
        self._held = held  # the GPU, as long as this object lives

    def __repr__(self) -> str:
        by = "the majority" if self._verifier is None else repr(self._verifier)
        return f"Solver: the {self._n} nearest of {len(self._heads)} heads, chosen among by {by}"

    def solve(self, questions: Sequence[str]) -> list[Solved]:
        """Return the nearest heads' answers to each question, in order.

        Raises:
            ModelError: questions are too long for the model; the message has their numbers, from 1.
            ConfigError: the verifier does not return a number for each text.
        """
        return list(self.each(questions))

    def each(self, questions: Sequence[str]) -> Iterator[Solved]:
        """Yield what `solve` returns, as soon as a group of questions is answered."""
        numbered = {str(number): text for number, text in enumerate(questions, 1)}
        check_prompts(self._folder, numbered, self._decoding, self._grader_name)
        vectors = embed(self._embedder, list(questions))
        order, _ = rank_heads(self._selector, vectors)
        nearest = [[self._heads[head] for head in row[: self._n]] for row in order]
        numbers = list(numbered)
        for start in range(0, len(questions), _TOGETHER):
            group = slice(start, start + _TOGETHER)
            answers = self._answer({n: numbered[n] for n in numbers[group]}, nearest[group])
            yield from map(self._count, questions[group], nearest[group], answers)

    def _answer(
        self, questions: dict[str, str], nearest: Sequence[list[Variant]]
    ) -> list[dict[Variant, dict[str, Any]]]:
        """Return what the base model and the nearest heads write to each question."""
        unit = Unit(
            decoding=self._decoding,
            grader_name=self._grader_name,
            questions=questions,
            requests=[
                (variant, (number, 0))
                for number, heads in zip(questions, nearest, strict=True)
                for variant in [BASE, *heads]
            ],
            base={},
        )
        answers: dict[str, dict[Variant, dict[str, Any]]] = {number: {} for number in questions}
        for variant, answer in self._worker.run(unit):
            answers[answer["question_id"]][variant] = answer
        return list(answers.values())

    def _count(
        self, question: str, heads: list[Variant], answers: dict[Variant, dict[str, Any]]
    ) -> Solved:
        written = [answers[head]["text"] for head in heads]
        scores = None if self._verifier is None else _scores(self._verifier, question, written)
        given = [
            gradable(answers[variant]["text"], answers[variant]["stop_reason"], self._preset)
            for variant in [BASE, *heads]
        ]
        base, *readings = read_texts(given, self._grader_name, self._preset)
        candidates, agreement = count_votes(list(map(str, heads)), written, readings, scores)
        return Solved(question, candidates, agreement, base.answer)


def _scores(verifier: Verifier, question: str, texts: list[str]) -> list[float]:
    """Return a verifier's scores of texts, or refuse what it returns or raises."""
    try:
        returned: Any = verifier(question, texts)
        if isinstance(returned, Iterable):  # a generator may fail as late as here
            returned = list(returned)
    except Exception as error:
        raise ConfigError(
            f"verifier {verifier!r} failed for {len(texts)} texts ({cause_of(error, 200)}); it has "
            f"to return a number for each"
        ) from error
    try:
        scores = [float(score) for score in returned]
    except (TypeError, ValueError, OverflowError):
        scores = []
    if len(scores) != len(texts) or any(map(math.isnan, scores)):
        raise ConfigError(
            f"verifier {verifier!r} returned {quoted(returned)} for {len(texts)} texts; it has to "
            f"return a number for each"
        )
    return scores


def to_json(solved: Solved) -> str:
    """Return a result as one line of JSON."""
    candidates = [candidate._asdict() for candidate in solved.candidates]
    values = {"answer": solved.answer, **solved._asdict(), "candidates": candidates}
    return json_line(values)


def to_text(solved: Solved) -> str:
    """Return a result as readable text: a table of answers with heads and votes."""
    has_scores = any(candidate.score is not None for candidate in solved.candidates)
    titles = ["answer", "heads pruned, nearest first", "votes"]
    if has_scores:
        titles.append("score")
    rows = [titles]
    for candidate in solved.candidates:
        answer = candidate.answer or "(no answer)"
        row = [answer, ", ".join(candidate.heads), f"{candidate.votes}"]
        if has_scores:
            row.append("" if candidate.score is None else f"{candidate.score:.3g}")
        rows.append(row)
    lines = [visible(solved.question), "", aligned(rows, left=2), ""]
    chosen, base = (one_line(answer or "none") for answer in (solved.answer, solved.base))
    lines += [f"chosen: {chosen}; the unpruned model: {base}"]
    if solved.agreement is not None:
        lines += [f"{solved.agreement:.0%} of the pairs of heads agree"]
    return "\n".join(lines) + "\n"


def _folder(run: Run, kind: Literal["model", "embedder"], name: str) -> Path:
    """Return the folder of a model or embedder of a run's store."""
    file = run.path(paths.MODEL if kind == "model" else paths.EMBEDDER, **{kind: name})
    if not file.exists():
        raise ConfigError(f"{file} is missing; solve needs the run's store beside it")
    find = run.store.model_folder if kind == "model" else run.store.embedder_folder
    return find(name, run.root)


def _import(name: str) -> Verifier:
    module, _, attribute = name.partition(":")
    try:
        verifier: Verifier = getattr(importlib.import_module(module), attribute)
    except Exception as error:  # whatever the module itself raises, too
        raise ConfigError(
            f"verifier {name!r} cannot be imported ({cause_of(error, 200)}); write "
            f"module:function, with the module on PYTHONPATH"
        ) from error
    if not callable(verifier):
        raise ConfigError(f"verifier {name!r} is no function; write module:function")
    return verifier
