"""Generated benchmarks: MATH-like and GSM8K-like questions that need no download.

Each question text belongs to one of three disjoint shares: test, train, or the corpus on which the
embedded reasoner is trained. A hash of the text decides. No question of either split is therefore a
training document of the reasoner, whatever the seeds and sizes, and growing a question set does not
change the reasoner.

Splits have templates of their own, as declared beside the templates, so that no test question is a
training question with other numbers; both then take texts of the test's and the train's share. Or
they share all templates, as the corpus does.
"""

import hashlib
from collections.abc import Iterator
from random import Random

import pandas as pd

from headsweep.benchmarks.templates import GSM8K, Draw, Problem, Template
from headsweep.benchmarks.templates_math import SUBJECTS
from headsweep.errors import BenchmarkError
from headsweep.files import tables

LEVELS = (1, 2, 3, 4, 5)
_MATH_IN_CORPUS = 0.75
_TRIES = 10_000


def generate(benchmark: str, split: str, n: int, seed: int, *, apart: bool) -> pd.DataFrame:
    """Make the first n questions of a split, in the columns of `tables.QUESTIONS`.

    Growing n keeps earlier questions. All texts are distinct, within a split and across splits.
    Subjects and levels alternate. With `apart` only the split's own templates are used, else all.

    Raises:
        BenchmarkError: the templates cannot make n distinct questions.
    """
    math = benchmark == "generated_math"
    subjects = list(SUBJECTS)
    seen = set[str]()
    shares = {"test", "train"} if apart else {split}
    rows = []
    for index in range(n):
        turn, place = divmod(index, len(subjects))
        subject = subjects[place]
        level = LEVELS[turn % len(LEVELS)]
        rng = Random(f"{benchmark}/{split}/{seed}/{index}")
        templates = _templates(math, subject, split if apart else None)
        for _ in range(_TRIES):
            problem = rng.choice(templates)(Draw(rng, level))
            if _share(problem.question) in shares and problem.question not in seen:
                break
        else:
            raise BenchmarkError(
                f"n: {n} is more than {benchmark}/{split} can make; ask for at most {index}"
                + (", or for `templates: shared`, which make more" if apart else "")
            )
        seen.add(problem.question)
        rows.append(
            {
                "question_id": f"{benchmark}/{split}/{index:05d}",
                "split": split,
                "subject": subject if math else None,
                "level": level if math else None,
                **problem._asdict(),
                "answer": problem.answer,
                "source_row": index,
            }
        )
    return pd.DataFrame(rows, columns=tables.QUESTIONS.columns)


def corpus(n: int, seed: int) -> Iterator[Problem]:
    """Yield n training documents of both benchmarks, none of them a question of any split."""
    rng = Random(f"corpus/{seed}")
    while n:
        math = rng.random() < _MATH_IN_CORPUS
        subject = rng.choice(list(SUBJECTS))
        level = rng.choice(LEVELS)
        problem = rng.choice(_templates(math, subject))(Draw(rng, level))
        if _share(problem.question) == "corpus":
            n -= 1
            yield problem


def _templates(math: bool, subject: str, split: str | None = None) -> list[Template]:
    """Return a subject's templates; with a split, those that serve it."""
    division = SUBJECTS[subject] if math else GSM8K
    return [template for template, serves in division.items() if split in (None, serves)]


def _share(question: str) -> str:
    """Return the share that a text belongs to: an eighth each for test and train."""
    byte = hashlib.sha256(question.encode()).digest()[0]
    return {0: "test", 1: "train"}.get(byte % 8, "corpus")
