"""Word problems as the solver sees them: numbers masked, an equation over them, its value.

They come from a local file, from the hub, or are generated. A row that cannot be used is left out
with its reason, never silently; a file that is no such dataset is an error.

Sources: Math23k, Wang et al., Deep Neural Solver for Math Word Problems, EMNLP 2017: Chinese, with
equations over the values of the numbers. ASDiv-A, Miao et al., A Diverse Corpus for Evaluating and
Developing English Math Word Problem Solvers, ACL 2020: its arithmetic subset as ATHENA (arXiv
2311.01036) prepares it, numbers masked already, with equations over n0, n1, ... What counts as a
number of a text follows ATHENA.
"""

import logging
import re
import unicodedata
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from headroom.athena import generated
from headroom.athena.equations import (
    NUMBER,
    PRECEDENCE,
    Constant,
    Equation,
    Number,
    Operation,
    Problem,
    evaluate,
    literal,
    parse,
    parse_prefix,
    replace,
)
from headroom.benchmarks.sources import HubDataset, Row, file_rows, hub_rows
from headroom.config.compression import MATH23K, WordProblems
from headroom.errors import BenchmarkError

_HUB_PARTS = {"train": "train", "validation": "valid", "test": "test"}
_MOST_DROPPED = 0.05  # of all rows; a file that loses more is not what it should be

_NUMBER = re.compile(
    r"[A-Z]+\d+"  # digits glued to a capital letter are a label
    r"|(?P<number>(?:\d+)?\( ?\d+ ?/ ?\d+ ?\)|\d+(?:\.\d+)?%?)"
)
_PLACES = 4  # a number of the equation is the number of the text that agrees to these
_POWERS = (2.0, 3.0)
_CLAUSES = re.compile(r".*[，。．；,;] (?=.*\w)")  # all but the last

_LOG = logging.getLogger(__name__)


class Dropped(NamedTuple):
    """A row that was left out."""

    row: str
    """Its id, or where it stands."""
    reason: str


class Format(NamedTuple):
    """The columns of a dataset's rows, and what makes a problem of one."""

    columns: tuple[str, ...]
    """The first is the id."""
    part: str
    """The column with the official split or fold."""
    convert: Callable[[Mapping[str, Any], str], Problem]
    """Takes a row and its part; raises BenchmarkError for one that cannot be used."""


def read(settings: WordProblems) -> tuple[list[Problem], list[Dropped]]:
    """Read or make a dataset; return the problems, and the rows that were left out.

    Raises:
        BenchmarkError: the source cannot be reached or read, has other columns or an id twice, or
            more than 5% of its rows cannot be used.
    """
    if settings.dataset == "generated":
        assert settings.n is not None  # the settings ask for it
        return generated.generate(settings.n, settings.seed), []
    if settings.file is None:
        assert settings.revision is not None  # the settings ask for it
        hub = HubDataset(MATH23K, None, settings.revision)
        rows: Iterable[Row] = (
            (f"{split} {place}", row | {"split": part})
            for split, part in _HUB_PARTS.items()
            for place, row in hub_rows(hub, split)
        )
        return _read(MATH23K, rows, FORMATS["math23k"])
    file = Path(settings.file).expanduser()
    rows = file_rows(file, settings.revision)
    return _read(str(file), rows, FORMATS[settings.dataset])


def _read(origin: str, rows: Iterable[Row], form: Format) -> tuple[list[Problem], list[Dropped]]:
    problems: list[Problem] = []
    dropped: list[Dropped] = []
    ids: set[str] = set()
    for place, row in rows:
        _check_columns(f"{origin} {place}", row, form)
        row_id = row[form.columns[0]]
        if row_id in ids:
            raise BenchmarkError(f"{origin} {place}: id {row_id!r} stands twice; ids must differ")
        ids.add(row_id)
        try:
            problems.append(form.convert(row, str(row[form.part])))
        except BenchmarkError as error:
            dropped.append(Dropped(row_id, str(error)))
    if not problems or len(dropped) > _MOST_DROPPED * len(ids):
        example = f", such as {dropped[0].row}: {dropped[0].reason}" if dropped else ""
        raise BenchmarkError(f"{origin}: {len(dropped)} of {len(ids)} rows cannot be used{example}")
    if dropped:
        listed = "; ".join(f"{row}: {reason}" for row, reason in dropped)
        _LOG.warning("%s: left out %d of %d rows: %s", origin, len(dropped), len(ids), listed)
    return problems, dropped


def _check_columns(place: str, row: Mapping[str, Any], form: Format) -> None:
    for column in (*form.columns, form.part):
        value = row.get(column)
        if not isinstance(value, str) and not (column == form.part and type(value) is int):
            raise BenchmarkError(
                f"{place}: column {column!r} is {value!r:.60}, not text; the columns are "
                f"{', '.join((*form.columns, form.part))}"
            )


def from_asdiv(row: Mapping[str, Any], part: str) -> Problem:
    """Convert a row of ASDiv-A; its equation may be infix or prefix.

    Raises:
        BenchmarkError: it has no number, or an equation that cannot be read or evaluated.
    """
    text = " ".join(row["Problem"].replace(NUMBER, f" {NUMBER} ").split())
    question = " ".join(row["Question"].replace(NUMBER, f" {NUMBER} ").split())
    if not text.endswith(question):
        raise BenchmarkError(f"the text does not end with its question {question!r:.60}")
    equation = row["Equation"]
    prefix = equation.lstrip()[:1] in PRECEDENCE
    return Problem(
        problem_id=row["asdiv_id"],
        text=text,
        question=len(text) - len(question),
        numbers=tuple(evaluate(parse(number)) for number in row["Numbers"].split()),
        equation=parse_prefix(equation) if prefix else parse(equation),
        answer=evaluate(parse(row["Answer"])),
        part=part,
    )


def from_math23k(row: Mapping[str, Any], part: str) -> Problem:
    """Convert a row of Math23k.

    Raises:
        BenchmarkError: it has no number, or an equation that cannot be read, evaluated or
            expressed.
    """
    text, printed = mask(row["segmented_text"])
    clauses = _CLAUSES.match(text)
    return Problem(
        problem_id=row["id"],
        text=text,
        question=clauses.end() if clauses else 0,
        numbers=tuple(literal(number) for number in printed),
        equation=over_numbers(parse(row["equation"]), printed),
        answer=evaluate(parse(row["ans"])),
        part=part,
    )


def mask(text: str) -> tuple[str, list[str]]:
    """Return a segmented text with its numbers masked, and the numbers as printed.

    Numbers are integers and decimals, with or without percent sign, fractions in brackets, and
    mixed numbers. Characters of private use, which some rows hold, are removed.
    """
    printed: list[str] = []

    def take(match: re.Match[str]) -> str:
        number = match["number"]
        if number is None:
            return match.group()
        printed.append(number)
        return f" {NUMBER} "

    masked = _NUMBER.sub(take, "".join(c for c in text if unicodedata.category(c) != "Co"))
    return " ".join(masked.split()), printed


def over_numbers(equation: Equation, printed: Sequence[str]) -> Equation:
    """Return an equation with values replaced by the numbers of the text that they are.

    The first number with the value counts; a fraction of two values is first looked for among the
    fractions. Exponents stay values, and so does what the text does not hold.

    Raises:
        BenchmarkError: a power other than 2 or 3.
    """
    values = [round(literal(number), _PLACES) for number in printed]
    fractions = {
        value: index for index, value in reversed(list(enumerate(values))) if "/" in printed[index]
    }
    first = {value: index for index, value in reversed(list(enumerate(values)))}

    def place(part: Equation) -> Equation | None:
        match part:
            case Operation("^", base, Constant(power)) if power in _POWERS:
                return Operation("^", replace(base, place), Constant(power))
            case Operation("^"):
                raise BenchmarkError("the equation has a power other than 2 or 3; correct the row")
            case Operation("/", Constant(above), Constant(below)) if below:
                quotient = round(above / below, _PLACES)
                return Number(fractions[quotient]) if quotient in fractions else None
            case Constant(value) if round(value, _PLACES) in first:
                return Number(first[round(value, _PLACES)])
        return None

    return replace(equation, place)


FORMATS = {
    "math23k": Format(("id", "segmented_text", "equation", "ans"), "split", from_math23k),
    "asdiv_a": Format(
        ("asdiv_id", "Problem", "Question", "Numbers", "Equation", "Answer"), "fold", from_asdiv
    ),
}
"""The datasets that are read, by name."""
