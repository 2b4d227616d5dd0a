r"""`headsweep.grade`: anyone's answers, graded by the pool that cannot hang.

The workers stay for the next call. Threads share them; a forked process starts its own.
"""

from collections.abc import Callable, Sequence
from typing import NamedTuple, get_args

from headsweep.benchmarks.golds import should_be
from headsweep.choices import GraderName
from headsweep.errors import GradingError, quoted
from headsweep.grading.distinct import grade_texts
from headsweep.grading.pool import Limits

CAUSES = {"judged": "wrong", "no_answer": "no answer", "timeout": "time"}
"""What `Verdict.cause` calls the pool's verdicts, if an answer is not right; others keep their
name: ``memory``, ``error``."""


class Verdict(NamedTuple):
    """What became of an answer."""

    correct: bool
    """Whether it is right."""
    cause: str
    """``right``, ``wrong``, ``no answer``; ``time`` or ``memory`` if grading it exceeded a limit;
    ``error`` if the judge failed on it."""
    answer: str | None
    """The final answer that was found in the text; None if there is none."""
    form: str | None
    """A form of it: answers to a question whose forms are equal are one, as in a vote."""


def grade(
    answers: Sequence[str | None],
    golds: Sequence[str],
    grader: GraderName = "math",
    *,
    final: bool = False,
    workers: int | None = None,
    limits: Limits | None = None,
    progress: Callable[[int, int], None] | None = None,
) -> list[Verdict]:
    r"""Grade answers, each against its gold answer; return their verdicts in order.

    Equal pairs are judged once. A verdict depends on its pair alone: not on other answers, on the
    number of workers, or on how busy the machine is. A pair that exceeds a limit is ended and
    counts as not right.

    Args:
        answers: what models wrote, any text; None is no answer.
        golds: the gold answer to each, without ``\boxed{}``.
        grader: one of `headsweep.choices.COMPARED`, which says what each compares, or ``gsm8k``
            (as ``math``, or the number that is said, or the last one). All look for the last
            ``\boxed{}`` first.
        final: the answers are final ones already, as if each stood in a ``\boxed{}``.
        workers: how many processes grade (default: as many as pay, at most one a core).
        limits: of CPU seconds, wall seconds and MiB for each text and each pair (default: 5, 30,
            512).
        progress: is called, from time to time, with how many distinct pairs are judged and how many
            there are.

    Raises:
        GradingError: the grader is unknown, the lists differ in length, something is no text, no
            answer can match a gold answer (a whole solution under ``gsm8k``), fewer than one worker
            is asked for, or none can be started.
    """
    graders = get_args(GraderName)
    if grader not in graders:
        allowed = ", ".join(graders)
        raise GradingError(f"grader {quoted(grader)} is unknown; choose one of {allowed}")
    if len(answers) != len(golds):
        raise GradingError(
            f"there are {len(answers)} answers and {len(golds)} gold answers; give one for each"
        )
    if workers is not None and workers < 1:
        raise GradingError(f"workers is {workers}; give 1 or more, or leave it out")
    for place, (answer, gold) in enumerate(zip(answers, golds, strict=True)):
        if not isinstance(gold, str) or not isinstance(answer, str | None):
            no_text = answer if isinstance(gold, str) else gold
            raise GradingError(
                f"pair {place} holds {quoted(no_text)}, which is no text; give texts"
            )
        if wanted := should_be(gold, grader):
            raise GradingError(f"pair {place}: gold is {quoted(gold)}, not {wanted}; correct it")
    readings, judgements = grade_texts(
        answers,
        golds,
        grader,
        "default",
        workers,
        limits=limits,
        final=final,
        progress=progress,
    )
    verdicts = []
    for reading, (verdict, correct) in zip(readings, judgements, strict=True):
        cause = "right" if correct else CAUSES.get(verdict, verdict)
        verdicts.append(Verdict(correct, cause, reading.answer, reading.form))
    return verdicts
