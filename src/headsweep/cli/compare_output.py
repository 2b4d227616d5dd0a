"""What `headsweep compare` says of anyone's answers, and what it writes."""

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pandas as pd

from headsweep.arguments import refuse_ignored
from headsweep.cli.compare_answers import (
    ReadingRules,
    Tables,
    compared,
    is_lm_eval,
    matched,
    named,
    read_answers,
)
from headsweep.files.safe_files import check_writable, write_csv, written_to
from headsweep.page.comparison import told_of_best, write_page
from headsweep.results.facts import FORMS, Source
from headsweep.statistics import SIGNIFICANCE
from headsweep.text import plural, short

_SHOWN = 12  # rows of a table in the terminal
_PARTS = ["accuracy", "pass_at_k", "pass_low", "pass_high"]
_PARTS += ["vote_at_k", "vote_low", "vote_high"]
_POINTS = ["difference", "low", "high"]
_FORMS: dict[str, Callable[..., Any]] = {
    **dict.fromkeys(_PARTS, FORMS["part"]),
    **dict.fromkeys(_POINTS, FORMS["points"]),
    **dict.fromkeys(("p", "holm"), FORMS["p"]),
    "tokens": FORMS["count"],
    **dict.fromkeys(("system", "first", "second"), partial(short, width=24)),
}
_NOTES = (
    "Percent, points, 95%; differences are second − first. holm: p over all pairs; a difference is "
    f"shown where it is below {SIGNIFICANCE} and the interval leaves out zero."
)


def show(systems: list[str], rules: ReadingRules, common: bool, out: Path | None) -> None:
    """Read, compare, print, and write to a folder, if one is given.

    Raises:
        ConfigError: systems cannot be paired, or the folder cannot be written.
        TableError: a table cannot be read.
    """
    if out:
        check_writable("--out", out, "folder")
    if not any(map(is_lm_eval, systems)):
        given_rules = {"--metric": rules.metric is not None}
        given_rules |= {"--metric-filter": rules.metric_filter is not None}
        refuse_ignored(given_rules, "no system is a folder of lm_eval's")
    answers = {}
    lines = []
    graded = False
    for name, given in named(systems).items():
        read = read_answers(given, rules)
        print(read.told)
        answers[name] = read.answers
        lines.append(read.told)
        graded = graded or read.graded
    if not graded:
        given_rules = {"--grader": rules.grader != ReadingRules.grader, "--final": rules.final}
        refuse_ignored(given_rules, "all systems say themselves what is right")
    compared_answers = matched(answers, common)
    most = max(table["question_id"].nunique() for table in answers.values())
    shared = len(next(iter(compared_answers.values())).correct)
    if shared < most:
        lines.append(f"on the {shared:,} {plural('question', shared)} that all have")
        print(lines[-1])
    tables = compared(compared_answers)
    print(summary(tables))
    if out:
        write(tables, lines, out)


def summary(tables: Tables) -> str:
    """Return the tables for a terminal, without the rows that do not fit."""
    lines = []
    for name, table in tables.items():
        lines += ["", name.replace("_", " ") + ":"]
        if name == "best":
            lines.append(str(told_of_best(Source("best.csv", table))))
            continue
        kept = table if len(table) <= _SHOWN else _strongest(table)
        forms = {column: form for column, form in _FORMS.items() if column in table}
        if name == "systems":
            forms |= dict.fromkeys(("low", "high"), FORMS["part"])
        lines.append(kept.to_string(index=False, formatters=forms))
        if len(kept) < len(table):
            lines.append(f"{len(kept)} of {len(table)} rows; --out writes all")
    return "\n".join([*lines, "", _NOTES])


def _strongest(table: pd.DataFrame) -> pd.DataFrame:
    if "holm" in table:
        table = table.sort_values("p", kind="stable")
    return table.head(_SHOWN)


def write(tables: Tables, lines: list[str], folder: Path) -> None:
    """Write the tables as CSV, and the page.

    Raises:
        ConfigError: the folder cannot be written.
    """
    with written_to("--out", folder, "folder"):
        for name, table in tables.items():
            write_csv(folder / f"{name}.csv", table)
        write_page(folder / "compare.html", tables, lines)
