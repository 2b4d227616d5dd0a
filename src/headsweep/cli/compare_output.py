"""What `headsweep compare` says of anyone's answers."""

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

from headsweep.arguments import refuse_ignored
from headsweep.cli.compare import shown, write
from headsweep.cli.compare_answers import (
    ReadingRules,
    Tables,
    compared,
    is_lm_eval,
    matched,
    named,
    read_answers,
)
from headsweep.files.safe_files import check_writable
from headsweep.results.facts import FORMS, Cell, Sentence, Source, p_template
from headsweep.results.marks import Mark
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
    graded = False
    for name, given in named(systems).items():
        read = read_answers(given, rules)
        print(read.told)
        answers[name] = read.answers
        graded = graded or read.graded
    if not graded:
        given_rules = {"--grader": rules.grader != ReadingRules.grader, "--final": rules.final}
        refuse_ignored(given_rules, "all systems say themselves what is right")
    compared_answers = matched(answers, common)
    most = max(table["question_id"].nunique() for table in answers.values())
    shared = len(next(iter(compared_answers.values())).correct)
    if shared < most:
        print(f"on the {shared:,} {plural('question', shared)} that all have")
    tables = compared(compared_answers)
    print(summary(tables))
    if out:
        write(tables, out)


def summary(tables: Tables) -> str:
    """Return the tables for a terminal, without the rows that do not fit."""
    lines = []
    for name, table in tables.items():
        lines += ["", name.replace("_", " ") + ":"]
        if name == "best":
            lines.append(str(told_of_best(Source("best.csv", table))))
            continue
        if "holm" in table and len(table) > _SHOWN:
            table = table.sort_values("p", kind="stable")
        of_systems = dict.fromkeys(("low", "high"), FORMS["part"]) if name == "systems" else {}
        lines += shown(table, _FORMS | of_systems, _SHOWN)
    told = told_of_pairs(Source("pairs.csv", tables["pairs"]))
    return "\n".join([*lines, "", str(told), _NOTES])


def told_of_pairs(pairs: Source) -> Sentence:
    """Say what the table ``pairs`` shows: which of two is better, or how many pairs differ.

    A difference is shown where both say so, the test and the interval.
    """
    if len(pairs) > 1:
        differing = pairs.query(f"holm < {SIGNIFICANCE} and (low > 0 or high < 0)")
        count = differing.number("holm", "count", "count")
        said = "{shown} of {count} differences are more than chance, corrected for all of them."
        return Sentence(said, shown=count, count=pairs.number("holm", "count", "count"))
    mark = pairs.direction("low", "high", "holm")
    said = {
        Mark.BETTER: "{second} is better than {first}: {difference} points.",
        Mark.WORSE: "{second} is worse than {first}: {difference} points.",
        Mark.NOT_SHOWN: "{second} and {first} are not shown to differ: {difference} points.",
    }[mark]
    if mark is not pairs.direction("low", "high"):  # the test alone does not show it
        said = f"{said.removesuffix('.')}, {p_template(pairs.value('holm'))}."
    difference = Cell("difference", "points", "low", "high")
    return pairs.say(said, difference=difference, p=Cell("holm", "p"))


def told_of_best(best: Source) -> Sentence:
    """Say whether the best of several is more than lucky, from the table ``best``."""
    said = "{best} gains {gain} points over {baseline}, the most of {others}. "
    none_gains = p_template(best.value("p"))
    if best.number("by_chance"):
        said += "The best of so many would gain {by_chance} points by chance alone (that none of "
        said += f"them gains: {none_gains})."
    else:  # all of them clearly lose
        said += f"That none of them gains: {none_gains}."
    if best.number("held_out"):
        said += " Chosen on one half of the questions, the best gains {held_out} on the other."
    return best.say(
        said,
        gain=Cell("gain", "points"),
        others=Cell("others", "count"),
        by_chance=Cell("by_chance", "points"),
        p=Cell("p", "p"),
        held_out=Cell("held_out", "points", "low", "high"),
    )
