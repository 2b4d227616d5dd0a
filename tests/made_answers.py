"""Answers of a sweep: the gold answer, the same in another notation, or a wrong one."""

import random
import re
from collections.abc import Callable, Sequence

_SAME, _REWRITTEN = 0.2, 0.3
"""Shares of all answers: the gold answer as it is, and in another notation; the rest is wrong, half
of it in another notation, too. With these shares half of the pairs of MATH are distinct."""
_NUMBER = re.compile(r"\d+")


def answers(golds: Sequence[str], variants: int, seed: int) -> list[tuple[str, str]]:
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
