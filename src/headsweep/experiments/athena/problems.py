"""Datasets of word problems: read, divided into parts and stored as a table for all jobs.

Problems come from a local file, from the hub, or are generated. A row that cannot be used is left
out and reported with the reason; a file that is not such a dataset is an error.

A stratum is a complexity and a set of operators; random parts keep the shares of the strata.
Problems with the same masked text differ only in their numbers, so random parts keep them together.
Official parts and a file's own folds are taken as they are; how many texts they share is told.

Sources: Math23k, Wang et al., Deep Neural Solver for Math Word Problems, EMNLP 2017: Chinese, with
equations over the values of the numbers. ASDiv-A, Miao et al., A Diverse Corpus for Evaluating and
Developing English Math Word Problem Solvers, ACL 2020: its arithmetic subset as published, or as
prepared for ATHENA (arXiv 2311.01036), with masked numbers and equations over n0, n1, ... The
definition of a number in a text follows ATHENA.
"""

import logging
import re
import unicodedata
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import accumulate, chain
from pathlib import Path
from random import Random
from typing import Any, NamedTuple

import pandas as pd

from headsweep.benchmarks.sources import HubDataset, Row, file_rows, hub_rows
from headsweep.config.solvers import MATH23K, Partition, WordProblems
from headsweep.errors import BenchmarkError
from headsweep.experiments.athena import generated
from headsweep.experiments.athena.asdiv import xml_rows
from headsweep.experiments.athena.equations import (
    NUMBER,
    OPERATORS,
    Constant,
    Equation,
    Negation,
    Number,
    Operation,
    Problem,
    bracketed,
    evaluate,
    infix,
    literal,
    parse,
    parse_prefix,
    walk,
)
from headsweep.files.plain_files import expanded
from headsweep.files.record import Stopwatch, write_record
from headsweep.files.safe_files import read_table, write_table
from headsweep.files.tables import PROBLEMS
from headsweep.store.layout import Store

_LOG = logging.getLogger(__name__)

_HUB_PARTS = {"train": "train", "validation": "valid", "test": "test"}
_MOST_DROPPED = 0.05  # share of all rows; a file that loses more is probably another dataset
_FOLDS = 5
_DEV_OF_FOLDS = (1, 9)  # shares of development and training part

_NUMBER = re.compile(
    r"[A-Z]+\d+"  # digits glued to a capital letter are a label
    r"|(?P<number>(?:\d+)?\( ?\d+ ?/ ?\d+ ?\)|\d+(?:\.\d+)?%?)"
)
_PLACES = 4  # decimals to which a value of the equation must agree with a number of the text
_POWERS = (2.0, 3.0)


class Parts(NamedTuple):
    """The parts of a dataset."""

    train: list[Problem]
    dev: list[Problem]
    test: list[Problem]


def read_data(store: Store, data: str) -> None:
    """Read the dataset with a key, divide it, and write it; the record says what was left out."""
    stopwatch = Stopwatch()
    name = store.name("data", data)
    settings = store.config.problems[name]
    parts, dropped = _read_divided(name, settings)
    sizes = {part: len(rows) for part, rows in parts._asdict().items()}
    output = Path(PROBLEMS.path.format(data=data))
    write_table(output, table(parts), PROBLEMS)
    facts = {"data": settings.model_dump(mode="json"), "rows": sizes, "dropped": dropped}
    write_record(output, stopwatch, facts)
    counts = ", ".join(f"{count} rows in {part}" for part, count in sizes.items())
    _LOG.info("%s: %s, %d left out", name, counts, len(dropped))


def check_generated(store: Store) -> None:
    """Refuse generated problems that cannot be divided, where their table is still to be made.

    Raises:
        BenchmarkError: one line that names the problems' key.
    """
    for name, settings in store.config.problems.items():
        if settings.generated and not store.path(PROBLEMS, data=name).exists():
            _read_divided(name, settings)


def _read_divided(name: str, settings: WordProblems) -> tuple[Parts, dict[str, str]]:
    """Return a dataset's parts and why rows were left out; errors name the dataset's key."""
    try:
        problems, dropped = read(settings)
        return divide(problems, settings.partition), dropped
    except BenchmarkError as error:
        raise BenchmarkError(f"problems.{name}: {error}") from error


def table(parts: Parts) -> pd.DataFrame:
    """Return divided problems in the columns of `tables.PROBLEMS`."""
    rows = [
        (
            problem.problem_id,
            part,
            stratum(problem.equation),
            problem.part,
            problem.text,
            list(problem.numbers),
            bracketed(problem.equation),
            problem.answer,
        )
        for part, problems in parts._asdict().items()
        for problem in problems
    ]
    return pd.DataFrame(rows, columns=PROBLEMS.columns)


def read_parts(data: str) -> Parts:
    """Return the parts of the dataset with a key, as `read_data` wrote them.

    Raises:
        TableError: the file is missing, damaged or of another schema.
    """
    parts = Parts([], [], [])
    rows = read_table(Path(PROBLEMS.path.format(data=data)), PROBLEMS)
    for row in rows.to_dict("records"):
        problem = Problem(
            problem_id=row["example_id"],
            text=row["text"],
            numbers=tuple(map(float, row["numbers"])),
            equation=parse(row["equation"]),
            answer=row["answer"],
            part=row["official"],
        )
        getattr(parts, row["part"]).append(problem)
    return parts


def divide(problems: Sequence[Problem], partition: Partition) -> Parts:
    """Divide problems into training, development and test parts.

    Raises:
        BenchmarkError: the dataset has no such official split, or a part would be empty.
    """
    match partition.protocol:
        case "random":
            parts = Parts(*draw(problems, partition.ratios, partition.seed))
        case "official":
            names = ("train", "valid", "test")
            parts = Parts(*([p for p in problems if p.part == part] for part in names))
        case "folds":
            folds = [str(fold) for fold in range(_FOLDS)]
            if {problem.part for problem in problems} == set(folds):
                drawn = [[p for p in problems if p.part == fold] for fold in folds]
            else:
                drawn = draw(problems, [1] * _FOLDS, partition.seed)
            test = drawn.pop(partition.fold)
            dev, train = draw([*chain(*drawn)], _DEV_OF_FOLDS, partition.seed)
            parts = Parts(train, dev, test)
    for name, part in parts._asdict().items():
        if not part:
            raise BenchmarkError(
                f"protocol {partition.protocol} leaves the {name} part of {len(problems)} "
                f"problems empty; use another protocol or more problems"
            )
    learnt = {problem.text for problem in chain(parts.train, parts.dev)}
    if known := sum(problem.text in learnt for problem in parts.test):
        _LOG.warning(
            "%d of %d test problems differ from others only in their numbers: the parts of the "
            "dataset share their texts",
            known,
            len(parts.test),
        )
    return parts


def draw(problems: Sequence[Problem], shares: Sequence[int], seed: int) -> list[list[Problem]]:
    """Draw parts at random that keep the shares, overall and in every stratum.

    Each part is in the order of `problems`.
    """
    groups = defaultdict(list)
    for index, problem in enumerate(problems):
        groups[problem.text].append(index)
    order = list(groups.values())
    Random(f"split/{seed}").shuffle(order)

    wanted = [share / sum(shares) for share in shares]
    parts: list[list[int]] = [[] for _ in shares]
    tallies: dict[str, Counter[int]] = defaultdict(Counter)
    for group in order:
        counted = tallies["whole"], tallies[stratum(problems[group[0]].equation)]
        lack = [
            sum(share * (tally.total() + len(group)) - tally[part] for tally in counted)
            for part, share in enumerate(wanted)
        ]
        part = lack.index(max(lack))
        for tally in counted:
            tally[part] += len(group)
        parts[part] += group
    return [[problems[index] for index in sorted(part)] for part in parts]


def stratum(equation: Equation) -> str:
    """Return complexity and set of operators, such as ``low *+``."""
    return f"{complexity(equation)} {''.join(sorted(set(operators(equation))))}"


def complexity(equation: Equation) -> str:
    """Return the class of an equation: low, medium or high.

    Low: at most 2 operators and no brackets. High: 5 operators or more, or brackets within
    brackets. Medium: the rest. Redundant brackets do not count.
    """
    count = len(operators(equation))
    nested = nesting(equation)
    if count >= 5 or nested >= 2:
        return "high"
    return "medium" if count >= 3 or nested else "low"


def operators(equation: Equation) -> list[str]:
    """Return the symbols of an equation's binary operations."""
    return [part.symbol for part in walk(equation) if isinstance(part, Operation)]


def nesting(equation: Equation) -> int:
    """Return the depth of nested brackets, written without redundant ones."""
    steps = ((character == "(") - (character == ")") for character in infix(equation))
    return max(accumulate(steps))


def read(settings: WordProblems) -> tuple[list[Problem], dict[str, str]]:
    """Read or generate a dataset; return its problems, and why rows were left out, by their ids.

    Raises:
        BenchmarkError: the source cannot be reached or read, has other columns or a duplicate id,
            or more than 5% of its rows cannot be used.
    """
    if settings.dataset == "generated":
        assert settings.n is not None  # checked by the settings
        return generated.generate(settings.n, settings.seed), {}
    if settings.file is None:
        assert settings.revision is not None  # checked by the settings
        hub = HubDataset(MATH23K, None, settings.revision)
        rows: Iterable[Row] = (
            (f"{split} {place}", row | {"split": part})
            for split, part in _HUB_PARTS.items()
            for place, row in hub_rows(hub, split)
        )
        return _converted(MATH23K, rows, FORMATS["math23k"])
    file = expanded(settings.file)
    if file.suffix == ".xml":
        return _converted(str(file), xml_rows(file, settings.revision), FORMATS["asdiv_a"])
    return _converted(str(file), file_rows(file, settings.revision), FORMATS[settings.dataset])


class Format(NamedTuple):
    """The columns of a dataset and the function that converts its rows."""

    columns: tuple[str, ...]  # the first is the id
    part: str  # the column with the official split or fold
    convert: Callable[[Mapping[str, Any], str], Problem]
    """Makes a problem of a row and its part; raises BenchmarkError if the row has no number, or its
    equation cannot be parsed or evaluated."""


def _converted(
    origin: str, rows: Iterable[Row], form: Format
) -> tuple[list[Problem], dict[str, str]]:
    problems: list[Problem] = []
    dropped: dict[str, str] = {}
    ids: set[str] = set()
    columns = (*form.columns, form.part)
    for place, row in rows:
        for column in columns:
            value = row.get(column)
            if not isinstance(value, str) and not (column == form.part and type(value) is int):
                raise BenchmarkError(
                    f"{origin} {place}: column {column!r} is {value!r:.60}, not text; the columns "
                    f"are {', '.join(columns)}"
                )
        row_id = row[form.columns[0]]
        if row_id in ids:
            raise BenchmarkError(f"{origin} {place}: id {row_id!r} stands twice; ids must differ")
        ids.add(row_id)
        try:
            problems.append(form.convert(row, str(row[form.part])))
        except BenchmarkError as error:
            dropped[row_id] = str(error)
    listed = "; ".join(f"{row}: {reason}" for row, reason in dropped.items())
    if not problems or len(dropped) > _MOST_DROPPED * len(ids):
        example = f", such as {listed.partition('; ')[0]}" if dropped else ""
        raise BenchmarkError(f"{origin}: {len(dropped)} of {len(ids)} rows cannot be used{example}")
    if dropped:
        _LOG.warning("%s: left out %d of %d rows: %s", origin, len(dropped), len(ids), listed)
    return problems, dropped


def _from_asdiv(row: Mapping[str, Any], part: str) -> Problem:
    equation = row["Equation"]
    prefix = equation.lstrip()[:1] in OPERATORS
    return Problem(
        problem_id=row["asdiv_id"],
        text=" ".join(row["Problem"].replace(NUMBER, f" {NUMBER} ").split()),
        numbers=tuple(evaluate(parse(number)) for number in row["Numbers"].split()),
        equation=parse_prefix(equation) if prefix else parse(equation),
        answer=evaluate(parse(row["Answer"])),
        part=part,
    )


def _from_math23k(row: Mapping[str, Any], part: str) -> Problem:
    # Some rows contain private-use characters.
    text = "".join(c for c in row["segmented_text"] if unicodedata.category(c) != "Co")
    printed = [number for number in _NUMBER.findall(text) if number]
    masked = _NUMBER.sub(lambda match: f" {NUMBER} " if match["number"] else match[0], text)
    return Problem(
        problem_id=row["id"],
        text=" ".join(masked.split()),
        numbers=tuple(literal(number) for number in printed),
        equation=_over_numbers(parse(row["equation"]), printed),
        answer=evaluate(parse(row["ans"])),
        part=part,
    )


def _over_numbers(equation: Equation, printed: Sequence[str]) -> Equation:
    """Return an equation with values replaced by the text's first numbers of the same value.

    A quotient of two values is first looked up among the text's fractions. Exponents stay
    constants, and so do values that the text does not have.
    """
    values = [round(literal(number), _PLACES) for number in printed]
    last_to_first = list(enumerate(values))[::-1]
    first = {value: index for index, value in last_to_first}
    fractions = {value: index for index, value in last_to_first if "/" in printed[index]}

    def place(part: Equation) -> Equation:
        match part:
            case Operation("^", base, Constant(power)) if power in _POWERS:
                return Operation("^", place(base), Constant(power))
            case Operation("^"):
                raise BenchmarkError("the equation has a power other than 2 or 3; correct the row")
            case Operation("/", Constant(above), Constant(below)) if (
                below and (quotient := round(above / below, _PLACES)) in fractions
            ):
                return Number(fractions[quotient])
            case Operation(symbol, left, right):
                return Operation(symbol, place(left), place(right))
            case Negation(operand):
                return Negation(place(operand))
            case Constant(value) if (value := round(value, _PLACES)) in first:
                return Number(first[value])
        return part

    return place(equation)


FORMATS = {
    "math23k": Format(("id", "segmented_text", "equation", "ans"), "split", _from_math23k),
    "asdiv_a": Format(
        ("asdiv_id", "Problem", "Numbers", "Equation", "Answer"), "fold", _from_asdiv
    ),
}
"""The datasets that are read, by name."""
