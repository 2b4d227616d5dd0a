"""Compare grading with calling math-verify on each pair in turn: time and verdicts.

The pairs resemble a sweep's: for each gold answer of MATH, 33 variants answer with the gold
answer, the same in another notation, or something wrong.
"""

import gzip
import json
import os
import random
import re
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
from math_verify import LatexExtractionConfig, parse, verify

from headsweep.errors import BenchmarkError
from headsweep.grading.distinct import judge
from headsweep.grading.graders import canonical
from headsweep.grading.pool import Pair

_SAME, _REWRITTEN = 0.2, 0.3
"""Shares of all answers: the gold answer as it is, and in another notation; the rest is wrong, half
of it in another notation, too. With these shares half of the pairs of MATH are distinct."""
_NUMBER = re.compile(r"\d+")
_ADVICE = "name a file of JSON lines with an `answer`, such as math_train.jsonl.gz"
_PATIENCE = 60
"""Seconds for a pair whose verdicts differ: math-verify judges a pair wrong when it times out."""


def run(
    *, file: Path, questions: int, variants: int, baseline: int, workers: int, seed: int
) -> None:
    """Print how long grading takes, which judges equal pairs once, and math-verify.

    The arguments are those of `headsweep bench grading`; `seed` is that of answers and sample.

    Raises:
        BenchmarkError: the file is empty, or lacks answers.
    """
    golds = _golds(file)[:questions]
    pairs = answers(golds, variants, seed)
    distinct = {(canonical(answer), canonical(gold)) for answer, gold in pairs}
    print(
        f"{len(pairs):,} pairs, {len(set(pairs)):,} distinct, {len(distinct):,} in canonical form"
    )
    sample = random.Random(seed).sample(range(len(pairs)), min(baseline, len(pairs)))
    begin = _clocks()
    verdicts = [_by_math_verify(*pairs[index]) for index in sample]
    seconds_a_pair = (_clocks() - begin) / len(sample)
    by_clock, of_processor = seconds_a_pair
    print(
        f"math-verify, pair after pair: {1e3 * by_clock:.2f} ms a pair "
        f"({1e3 * of_processor:.2f} ms of CPU), {1 / by_clock:,.0f} pairs a second, of "
        f"{len(sample):,} pairs"
    )
    begin = _clocks()
    forms = [(canonical(answer), canonical(gold)) for answer, gold in pairs]
    judgements = judge(set(forms), "math", "default", workers)
    judged = [judgements[form] for form in forms]
    seconds = _clocks() - begin
    wall, processor = seconds_a_pair * len(pairs) / seconds
    differing = sum(
        judged[index].correct not in (verdict, _by_math_verify(*pairs[index], _PATIENCE))
        for index, verdict in zip(sample, verdicts, strict=True)
        if judged[index].correct != verdict
    )
    given_up = sum(judgement.verdict != "judged" for judgement in judged)
    print(
        f"grading, equal pairs once: {seconds[0]:.1f} s on {workers} cores ({seconds[1]:.1f} s of "
        f"CPU), {len(pairs) / seconds[0]:,.0f} pairs a second, {wall:.1f} times faster "
        f"({processor:.1f} times less CPU); {given_up:,} pairs given up; {differing} of "
        f"{len(sample):,} verdicts differ"
    )


def _clocks() -> np.ndarray:
    """Return wall time, and CPU time of this process and its ended workers, in seconds."""
    return np.array([time.perf_counter(), sum(os.times()[:4])])


def answers(golds: Sequence[str], variants: int, seed: int) -> list[Pair]:
    """Return pairs of answer and gold answer: `variants` answers to each question."""
    draw = random.Random(seed)
    pairs = []
    for gold in [*golds] * variants:
        share = draw.random()
        wrong = share >= _SAME + _REWRITTEN
        answer = _wrong(gold, draw, golds) if wrong else gold
        rewritten = draw.random() < 0.5 if wrong else share >= _SAME
        pairs.append((_rewritten(answer, draw) if rewritten else answer, gold))
    return pairs


def _rewritten(gold: str, draw: random.Random) -> str:
    """Write an answer in another notation, as models do."""
    ways: list[Callable[[str], str]] = [
        lambda text: text.replace(r"\frac", r"\dfrac"),
        lambda text: f"{draw.choice('xyabn')} = {text}",
        lambda text: rf"\left({text}\right)",
        lambda text: rf"{text}\,",
        lambda text: text.replace("+", " + ").replace("-", " - "),
        lambda text: rf"\displaystyle {text}",
        lambda text: f"{text}.0" if text.isdecimal() else f"{{{text}}}",
        lambda text: rf"{text} \text{{ {draw.choice(('units', 'cm', 'dollars'))}}}",
    ]
    text = gold
    for way in draw.sample(ways, draw.choice((1, 1, 2))):
        text = way(text)
    return text


def _wrong(gold: str, draw: random.Random, golds: Sequence[str]) -> str:
    """Return a wrong answer: one of its numbers changed, a term added, or another question's."""
    numbers = list(_NUMBER.finditer(gold))
    change = draw.randint(1, 10 ** draw.randint(1, 3))
    way = draw.random()
    if numbers and way < 0.7:
        number = draw.choice(numbers)
        changed = int(number[0]) + change
        return f"{gold[: number.start()]}{changed}{gold[number.end() :]}"
    if way < 0.85:
        return f"{gold} + {change}"
    return draw.choice(golds)


def _by_math_verify(answer: str, gold: str, limit: int = 5) -> bool:
    """Judge one pair as math-verify's users do, but read only LaTeX, as our grading does.

    The limit, 5 s by default, is wall time, which a loaded machine exceeds.
    """
    reader = [LatexExtractionConfig(boxed_match_priority=0)]
    first, second = (
        parse(rf"\boxed{{{canonical(text)}}}", reader, parsing_timeout=limit)
        for text in (gold, answer)
    )
    return bool(verify(first, second, timeout_seconds=limit))


def _golds(file: Path) -> list[str]:
    try:
        with (gzip.open if file.suffix == ".gz" else open)(file, "rt", encoding="utf-8") as lines:
            golds = [json.loads(line)["answer"] for line in lines]
    except (OSError, ValueError, KeyError) as error:
        raise BenchmarkError(f"{file} cannot be read ({error}); {_ADVICE}") from None
    if not golds:
        raise BenchmarkError(f"{file} is empty; {_ADVICE}")
    return golds
