"""Reads each distinct text once and judges each distinct pair once, with as many workers as pay."""

from collections.abc import Callable, Sequence

from headsweep.grading.graders import canonical, shortcut
from headsweep.grading.pool import (
    JudgedPair,
    Limits,
    Pair,
    Reading,
    judge_pairs,
    read_texts,
)
from headsweep.machine.host import host_cores

_PAIRS_A_WORKER = 250  # take about as long as starting another
_CHARACTERS_A_WORKER = 4_000_000  # of texts to read, likewise


def grade_texts(
    texts: Sequence[str | None],
    golds: Sequence[str],
    grader_name: str,
    preset: str,
    workers: int | None = None,
    *,
    limits: Limits | None = None,
    final: bool = False,
    progress: Callable[[int, int], None] | None = None,
) -> tuple[list[Reading], list[JudgedPair]]:
    """Return what each text answers, and the judgement of it; a text that is None answers nothing.

    The options are those of `read_texts` and `judge_pairs`; by default there are as many workers as
    pay. `progress` is told how many distinct pairs are judged, of how many.
    """
    distinct = sorted({text for text in texts if text is not None})
    reading_workers = workers or _paying(sum(map(len, distinct)) / _CHARACTERS_A_WORKER)
    read = read_texts(
        distinct, grader_name, preset, workers=reading_workers, limits=limits, final=final
    )
    reading_of = dict[str | None, Reading](zip(distinct, read, strict=True))
    reading_of[None] = Reading("no_answer")
    readings = [reading_of[text] for text in texts]
    canonical_of = {gold: canonical(gold) for gold in {*golds}}
    pairs = [
        None if reading.canonical is None else (reading.canonical, canonical_of[gold])
        for reading, gold in zip(readings, golds, strict=True)
    ]
    judged = dict[Pair, JudgedPair]()
    hard = list[Pair]()
    for pair in {pair for pair in pairs if pair}:
        is_right = shortcut(*pair)
        if is_right is None:
            hard.append(pair)
        else:
            judged[pair] = JudgedPair("judged", is_right)
    hard.sort(key=lambda pair: pair[::-1])  # so that a worker parses each gold answer once
    easy = len(judged)

    def report(done: int) -> None:
        if progress:
            progress(easy + done, easy + len(hard))

    judging_workers = workers or _paying(len(hard) / _PAIRS_A_WORKER)
    judgements_of_hard = judge_pairs(
        hard, grader_name, preset, workers=judging_workers, limits=limits, progress=report
    )
    judged.update(zip(hard, judgements_of_hard, strict=True))
    judgements = [
        judged[pair] if pair else JudgedPair(reading.verdict, False)
        for reading, pair in zip(readings, pairs, strict=True)
    ]
    return readings, judgements


def _paying(loads: float) -> int:
    """Return how many workers pay, given how many times the work of starting one there is."""
    return min(host_cores(), 1 + int(loads))
