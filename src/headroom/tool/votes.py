"""Choosing among texts that answer one question, without knowing the right answer."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations

from headroom.grading.graders import find_grader
from headroom.grading.judge import canonical
from headroom.grading.pool import judge_pairs


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
class Grading:
    """How answers are found in texts and compared."""

    family: str
    """A benchmark's rules of extraction, or a custom benchmark's grader."""
    preset: str

    def extract(self, text: str) -> str | None:
        """Return the final answer of a text, None if there is none."""
        return find_grader(self.family, self.preset).extract(text)

    def groups(self, answers: Sequence[str | None]) -> list[int]:
        """Return for each answer the number of the first that equals it."""
        equal = find_grader(self.family, self.preset).equal
        plain = [None if answer is None else canonical(answer) for answer in answers]
        first = [plain.index(answer) for answer in plain]
        distinct = [index for index in dict.fromkeys(first) if plain[index] is not None]
        pairs = [(later, earlier) for earlier, later in combinations(distinct, 2)]
        asked = [(str(plain[later]), str(plain[earlier])) for later, earlier in pairs]
        if equal is not None:
            same = [equal(*pair) for pair in asked]
        else:
            same = [found.correct for found in judge_pairs(asked, self.preset)] if asked else []
        leader = {index: index for index in range(len(answers))}
        for (later, earlier), verdict in zip(pairs, same, strict=True):
            if verdict and leader[later] == later:
                leader[later] = leader[earlier]
        return [leader[index] for index in first]


def count_votes(
    heads: Sequence[str],
    texts: Sequence[str],
    grading: Grading,
    scores: Sequence[float] | None = None,
) -> tuple[list[Candidate], float | None]:
    """Return what some heads answered, the chosen value first, and how far they agree.

    Chosen is the value whose texts have the highest score, or without scores the one with most
    votes; among equals the nearest head decides. A text without an answer has no vote.

    Args:
        heads: nearest first.
        texts: what each wrote.
        grading: how answers are found and compared.
        scores: a verifier's, one for each text.

    Returns:
        The candidates, and the share of pairs of heads that gave equal answers: None for a single
        head.
    """
    answers = [grading.extract(text) for text in texts]
    groups = grading.groups(answers)
    candidates = []
    for group in dict.fromkeys(groups):
        members = [index for index, other in enumerate(groups) if other == group]
        first = members[0]
        candidates.append(
            Candidate(
                answer=answers[first],
                votes=0 if answers[first] is None else len(members),
                heads=[heads[index] for index in members],
                text=texts[first],
                score=None if scores is None else max(scores[index] for index in members),
            )
        )
    # The sort is stable: among equals the nearest head decides.
    candidates.sort(key=lambda c: (c.answer is not None, c.score or 0, c.votes), reverse=True)
    pairs = list(combinations(range(len(heads)), 2))
    agreeing = sum(groups[i] == groups[j] and answers[i] is not None for i, j in pairs)
    return candidates, agreeing / len(pairs) if pairs else None
