"""Answering a question with the heads that a trained selector picks for it.

The selector names the N nearest heads (SPRINT, arXiv 2506.03978, section 4); each answers with that
head pruned, the unpruned model beside them. Without an oracle somebody has to choose: the majority
of the answers, or a verifier of the user's.
"""

import dataclasses
import importlib
import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import combinations
from pathlib import Path

import torch

from headroom import paths
from headroom.config import Decoding
from headroom.embeddings import embed, load_embedder
from headroom.errors import ConfigError
from headroom.generation.work import Unit
from headroom.generation.worker import Worker
from headroom.grading.graders import find_grader
from headroom.grading.judge import canonical
from headroom.grading.pool import judge_pairs
from headroom.identity import key
from headroom.models.load import load_model
from headroom.sprint.selection import rank
from headroom.tool.run import Run
from headroom.variants import BASE, Variant

Verifier = Callable[[str, list[str]], Sequence[float]]
"""Scores texts that answer a question; higher is better."""


@dataclass(frozen=True)
class Candidate:
    """One value that some heads answered with."""

    answer: str | None
    """As the first of them wrote it; None: no answer was found in their texts."""
    votes: int
    heads: list[str]
    """Nearest first."""
    text: str
    """What the first of them wrote."""
    score: float | None
    """The verifier's, the highest among its texts."""


@dataclass(frozen=True)
class Solved:
    """What the nearest heads answer to a question."""

    question: str
    candidates: list[Candidate]
    """The chosen one first, then by votes."""
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
        selector: which of its selectors; by default the only one.
        n: how many heads answer.
        verifier: chooses among the answers in place of the majority: a function, or where one is,
            as in ``my_module:score``.

    Raises:
        ConfigError: the run or selector is not there, or the verifier cannot be imported.
        TableError, ModelError: a file of the run is missing or damaged.
    """

    def __init__(
        self,
        run: str | Path,
        *,
        selector: str | None = None,
        n: int = 8,
        verifier: str | Verifier | None = None,
    ) -> None:
        found = Run(Path(run))
        config = found.config
        self._selector, facts = found.selector(selector)
        if n > len(facts["heads"]):
            raise ConfigError(f"n: {n} heads are asked for; the pool has {len(facts['heads'])}")
        self._heads = [Variant.parse(name) for name in facts["heads"]]
        self._n = n
        section = config.selectors[found.one("selectors", selector)]
        self._decoding: Decoding = config.decodings[section.decoding]
        self._family = config.questions[section.train].family
        self._preset = config.grading
        self._verifier = _import(verifier) if isinstance(verifier, str) else verifier
        model = config.models[section.model]
        self._batch_size = model.batch_size
        self._embedder = load_embedder(
            _folder(found, paths.EMBEDDER, embedder=key(config, "embedders", section.embedder))
        )
        loaded = load_model(
            str(_folder(found, paths.MODEL, model=key(config, "models", section.model))),
            dtype=model.dtype,
            device=model.device,
            attention=model.attention,
        )
        self._worker = Worker(loaded)

    def solve(self, questions: Sequence[str]) -> list[Solved]:
        """Return what the heads answer to each question, in order."""
        vectors = torch.from_numpy(embed(self._embedder, list(questions)))
        order, _ = rank(self._selector, vectors)
        nearest = [[self._heads[head] for head in row[: self._n]] for row in order]
        texts = self._answer(questions, nearest)
        return [
            self._count(question, heads, given)
            for question, heads, given in zip(questions, nearest, texts, strict=True)
        ]

    def _answer(
        self, questions: Sequence[str], nearest: list[list[Variant]]
    ) -> list[dict[Variant, str]]:
        """Return what the base model and the nearest heads write."""
        unit = Unit(
            decoding=self._decoding,
            family=self._family,
            batch_size=self._batch_size,
            questions={str(number): text for number, text in enumerate(questions)},
            requests=[
                (variant, (str(number), 0))
                for number, heads in enumerate(nearest)
                for variant in [BASE, *heads]
            ],
            base={},
        )
        texts: list[dict[Variant, str]] = [{} for _ in questions]
        for variant, answer in self._worker.run(unit):
            texts[int(answer["question_id"])][variant] = answer["text"]
        return texts

    def _count(self, question: str, heads: list[Variant], texts: dict[Variant, str]) -> Solved:
        grader = find_grader(self._family, self._preset)
        answers = [grader.extract(texts[head]) for head in heads]
        groups = self._groups(answers)
        scores: list[float | None] = [None] * len(heads)
        if self._verifier is not None:
            scores = [float(s) for s in self._verifier(question, [texts[h] for h in heads])]
        candidates = []
        for group in dict.fromkeys(groups):
            members = [index for index, other in enumerate(groups) if other == group]
            answered = answers[members[0]] is not None
            candidates.append(
                Candidate(
                    answer=answers[members[0]],
                    votes=len(members) if answered else 0,
                    heads=[str(heads[index]) for index in members],
                    text=texts[heads[members[0]]],
                    score=max((s for i in members if (s := scores[i]) is not None), default=None),
                )
            )
        # The sort is stable: among equals the nearest head decides.
        candidates.sort(key=lambda c: (c.answer is not None, c.score or 0, c.votes), reverse=True)
        pairs = list(combinations(range(len(heads)), 2))
        agreeing = sum(groups[i] == groups[j] and answers[i] is not None for i, j in pairs)
        return Solved(
            question,
            candidates,
            agreeing / len(pairs) if pairs else None,
            grader.extract(texts[BASE]),
        )

    def _groups(self, answers: list[str | None]) -> list[int]:
        """Return for each answer the number of the first that equals it."""
        equal = find_grader(self._family, self._preset).equal
        plain = [None if answer is None else canonical(answer) for answer in answers]
        first = [plain.index(answer) for answer in plain]
        distinct = [index for index in dict.fromkeys(first) if plain[index] is not None]
        pairs = [(later, earlier) for earlier, later in combinations(distinct, 2)]
        asked = [(str(plain[later]), str(plain[earlier])) for later, earlier in pairs]
        if equal is not None:
            same = [equal(*pair) for pair in asked]
        else:
            same = [found.correct for found in judge_pairs(asked, self._preset)] if asked else []
        leader = {index: index for index in range(len(answers))}
        for (later, earlier), verdict in zip(pairs, same, strict=True):
            if verdict and leader[later] == later:
                leader[later] = leader[earlier]
        return [leader[index] for index in first]


def to_json(solved: Solved) -> str:
    """Return a result as one line of JSON."""
    return json.dumps({"answer": solved.answer, **dataclasses.asdict(solved)}, ensure_ascii=False)


def to_text(solved: Solved) -> str:
    """Return a result for people: answers by votes, with their heads."""
    rows = [
        (candidate.answer or "(no answer)", str(candidate.votes), ", ".join(candidate.heads))
        for candidate in solved.candidates
    ]
    width = max(len("answer"), *(len(row[0]) for row in rows))
    lines = [
        solved.question,
        "",
        f"  {'answer':<{width}}  votes  heads pruned, nearest first",
        *(f"  {answer:<{width}}  {votes:>5}  {heads}" for answer, votes, heads in rows),
        "",
        f"  chosen: {solved.answer or 'none'}; the unpruned model: {solved.base or 'none'}",
    ]
    if solved.agreement is not None:
        lines.append(f"  {solved.agreement:.0%} of the pairs of heads agree")
    return "\n".join(lines) + "\n"


def _folder(run: Run, template: str, **names: str) -> Path:
    """Return the folder that a file of the store names."""
    file = run.path(template, **names)
    try:
        said = json.loads(file.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise ConfigError(f"{file} is missing; solve needs the run's store beside it") from None
    return run.root / said["folder"]  # an absolute folder stays what it is


def _import(name: str) -> Verifier:
    module, _, attribute = name.partition(":")
    try:
        found: Verifier = getattr(importlib.import_module(module), attribute)
    except (ImportError, AttributeError, ValueError) as error:
        raise ConfigError(
            f"verifier {name!r} cannot be imported ({error}); write module:function, with the "
            f"module on PYTHONPATH"
        ) from None
    return found
