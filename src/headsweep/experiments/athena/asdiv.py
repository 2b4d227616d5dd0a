"""ASDiv-A, the arithmetic part of the public ASDiv.xml, in the columns of ATHENA's file.

Source: Miao et al., A Diverse Corpus for Evaluating and Developing English Math Word Problem
Solvers, ACL 2020 (https://github.com/chaochun/nlu-asdiv-dataset, dataset/ASDiv.xml). That
repository lists the problems of ASDiv-A, a file a fold, in nfolds/asdiv-a.
"""

import io
import re
import xml.etree.ElementTree as ElementTree
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from headsweep.benchmarks.sources import Row, check_file
from headsweep.errors import BenchmarkError, quoted
from headsweep.experiments.athena.equations import (
    NUMBER,
    Constant,
    Equation,
    Number,
    Operation,
    evaluate,
    infix,
    parse,
    walk,
)
from headsweep.files.record import read_bytes, read_text

_DIGITS = "one two three four five six seven eight nine"
_TEENS = "ten eleven twelve thirteen fourteen fifteen sixteen seventeen eighteen nineteen"
_TENS = "twenty thirty forty fifty sixty seventy eighty ninety"
_VALUES = {word: value for value, word in enumerate(f"zero {_DIGITS} {_TEENS}".split())}
_VALUES |= {word: 10 * value for value, word in enumerate(_TENS.split(), start=2)}
_TOKEN = re.compile(
    rf"(?P<compound>(?:{_TENS.replace(' ', '|')})[- ](?:{_DIGITS.replace(' ', '|')})\b)"
    r"|(?P<digits>\d{1,3}(?:,\d{3})+(?!\d)|\d+(?:\.\d+)?|\.\d+)|(?P<word>[a-z]+(?:'[a-z]+)?)|[^\s\w]"
)
_UNIT = re.compile(r"\([a-z/ ]+\)")  # as in 60 (min/hour)


class _Text(NamedTuple):
    """A problem's text with its numbers masked, and the numbers."""

    masked: str
    numbers: list[str]


def xml_rows(file: Path, revision: str | None) -> Iterator[Row]:
    """Yield the problems of ASDiv-A from ASDiv.xml, in the columns of ATHENA's file.

    Raises:
        BenchmarkError: the file is missing, no such XML, of another revision, or without the lists.
    """
    check_file(file, revision)
    try:
        problems = list(ElementTree.parse(io.BytesIO(read_bytes(file))).iter("Problem"))
    except ElementTree.ParseError as error:
        raise BenchmarkError(f"{file} is not XML ({error}); copy it again") from None
    if not problems:
        raise BenchmarkError(f"{file} has no element Problem; give ASDiv.xml")
    folds = _folds(file.parent / "nfolds" / "asdiv-a")
    if not folds:
        raise BenchmarkError(
            f"{file} has no nfolds/asdiv-a beside it, which lists the problems of ASDiv-A; clone "
            f"the whole repository"
        )
    for problem in problems:
        own = {name: (problem.findtext(name) or "").strip() for name in ("Body", "Question")}
        name = problem.get("ID", "")
        formula = problem.findtext("Formula") or ""
        text = _masked(f"{own['Body']} {own['Question']}")
        equation = _over_numbers(formula, text.numbers)
        if name in folds:
            yield (
                f"problem {quoted(name)}",
                {
                    "asdiv_id": name,
                    "fold": folds[name],
                    "Problem": text.masked,
                    "Numbers": " ".join(text.numbers),
                    "Equation": formula if equation is None else infix(equation),
                    "Answer": "0" if equation is None else _value(equation, text.numbers),
                },
            )


def _folds(folder: Path) -> dict[str, str]:
    """Return the fold of each problem of ASDiv-A; none where the lists are missing."""
    lists = sorted(folder.glob("fold*.txt"))
    return {
        name: file.stem.removeprefix("fold") for file in lists for name in read_text(file).split()
    }


def _masked(text: str) -> _Text:
    """Return a text in lower case, with a mask for each number, in digits or words."""
    numbers: list[str] = []
    tokens = []
    for match in _TOKEN.finditer(text.lower()):
        token = match[0]
        value: float | None = None
        if match["compound"]:
            value = sum(_VALUES[word] for word in re.split("[- ]", token))
        elif match["word"]:
            value = _VALUES.get(token)
        elif match["digits"]:
            value = float(token.replace(",", ""))
        if value is None:
            tokens.append(token)
        else:
            tokens.append(NUMBER)
            numbers.append(f"{value:g}" if value < 1e6 else f"{value:.0f}")
    return _Text(" ".join(tokens), numbers)


def _over_numbers(formula: str, numbers: list[str]) -> Equation | None:
    """Return a formula's left side over the numbers of its text, each once; None if it is not."""
    left, *others = _UNIT.sub("", formula).split("=")
    values = list(map(float, numbers))
    free = list(range(len(values)))
    if len(others) != 1:
        return None

    def place(part: Equation) -> Equation:
        match part:
            case Operation(symbol, one, other):
                return Operation(symbol, place(one), place(other))
            case Constant(value):
                index = next(index for index in free if values[index] == value)
                free.remove(index)
                return Number(index)
        return part

    try:
        equation = place(parse("".join(left.split())))
    except (BenchmarkError, StopIteration):
        return None
    operations = sum(isinstance(part, Operation) for part in walk(equation))
    return equation if 1 <= operations <= 2 else None


def _value(equation: Equation, numbers: list[str]) -> str:
    return f"{evaluate(equation, list(map(float, numbers))):.12g}"
