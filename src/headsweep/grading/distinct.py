"""Reads each distinct text once and judges each distinct pair once, with as many workers as pay."""

from collections.abc import Callable, Sequence, Set

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
    keep: bool = False,
    final: bool = False,
    progress: Callable[[int, int], None] | None = None,
) -> tuple[list[Reading], list[JudgedPair]]:
    """Return what each text answers, and the judgement of it; a text that is None answers nothing.

    The options are those of `read_texts` and `judge`.
    """
    distinct = sorted({text for text in texts if text is not None})
    reading_workers = workers or _paying(sum(map(len, distinct)) / _CHARACTERS_A_WORKER)
    read = read_texts(
        distinct,
        grader_name,
        preset,
        workers=reading_workers,
        limits=limits,
        keep=keep,
        final=final,
    )
    reading_of = dict[str | None, Reading](zip(distinct, read, strict=True))
    reading_of[None] = Reading("no_answer")
    readings = [reading_of[text] for text in texts]
    canonical_of = {gold: canonical(gold) for gold in {*golds}}
    pairs = [
        None if reading.canonical is None else (reading.canonical, canonical_of[gold])
        for reading, gold in zip(readings, golds, strict=True)
    ]
    wanted = {pair for pair in pairs if pair}
    judged = judge(
        wanted, grader_name, preset, workers, limits=limits, keep=keep, progress=progress
    )
    judgements = [
        judged[pair] if pair else JudgedPair(reading.verdict, False)
        for reading, pair in zip(readings, pairs, strict=True)
    ]
    return readings, judgements


def judge(
    pairs: Set[Pair],
    grader_name: str,
    preset: str,
    workers: int | None = None,
    *,
    limits: Limits | None = None,
    keep: bool = False,
    progress: Callable[[int, int], None] | None = None,
) -> dict[Pair, JudgedPair]:
    """Judge pairs in canonical form; workers, as many as pay by default, where no shortcut does.

    `keep` is that of `judge_pairs`. `progress` is told how many pairs are judged, of how many.
    """
    shortcuts = {pair: shortcut(*pair) for pair in pairs}
    # Sorted by gold answer, so that a worker parses each gold answer once.
    hard = sorted((pair for pair in pairs if shortcuts[pair] is None), key=lambda pair: pair[::-1])
    easy = {
        pair: JudgedPair("judged", right) for pair, right in shortcuts.items() if right is not None
    }
    workers = workers or _paying(len(hard) / _PAIRS_A_WORKER)

    def report(judged: int) -> None:
        if progress:
            progress(len(easy) + judged, len(pairs))

    judged = judge_pairs(
        hard, grader_name, preset, workers=workers, limits=limits, keep=keep, progress=report
    )
    return easy | dict(zip(hard, judged, strict=True))


def _paying(loads: float) -> int:
    """Return how many workers pay, given how many times the work of starting one there is."""
    return min(host_cores(), 1 + int(loads))
