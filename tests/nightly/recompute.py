"""The accounts in docs/ recomputed from accuracy matrices and graded answers, without headsweep.

``python tests/nightly/recompute.py results/demo`` compares the demo's account.

Every number of an account is compared, but for one: how long a pruned model took was measured, and
no file lets it be computed again. What has a closed form is held to the last digit printed; what a
run draws at random (ends of the band over all heads and of compressions, luck in published gains)
to what another set of so many draws gives, see `recomputed.chance`. Rankings of heads, a
shortlist's size, the order of a family's members, and prompts' lengths are the run's own.
"""

import re
import sys
from collections import Counter
from itertools import groupby
from pathlib import Path
from typing import NamedTuple

from recomputed import compressions, families, heads, maps, published, selectors
from recomputed.run import Run

_N = r"([+−]?[\d,.]*\d)"
_INTERVAL = rf"{_N} \({_N} to {_N}\) points"
_ENDS = ["difference", "low", "high"]

# What begins a line, by topic; what is found in it, and the names of its numbers.
_TOPICS = {
    "heads": r"(Best of \d+|One head): .* points, ",
    "map": r"Best (?:shown, )?of \d+: .* nats(?: a token)?, ",
    "sampling": r"\d answers, ",
    "question": r"Against shuffled questions",
    "families": r"answers' tokens",
    "compression": r"of heads gone",
    "published": r"Published gains",
    "likeness": r"test questions",
}
_SAID = {
    "heads": [
        (rf"- {_N} heads? helps?", ["shown"]),
        (rf"Best of {_N}: ", ["heads"]),
        (rf"(?:Best of \d+|One head): {_INTERVAL}", ["best", "low", "high"]),
        (rf", {_N} questions; {_N} hurt", ["questions", "hurt"]),
        (rf"Gains above {_N} are unlikely", ["bound"]),
        (rf"hurt; {_N}% of .*answers cut", ["cut"]),
    ],
    "map": [
        (rf"- {_N} heads?'s? loss", ["shown"]),
        (rf"Best (?:shown, )?of {_N}: ", ["heads"]),
        (rf"of \d+: {_N} \({_N} to {_N}\) nats", ["best", "low", "high"]),
        (rf"nats(?: a token)?, {_N} questions", ["questions"]),
        (rf"; {_N} matter", ["matter"]),
        (rf"noise in its layer: {_N};", ["noise"]),
        (rf"likelihood {_N}\.", ["likelihood"]),
        (rf"solutions {_N}\.", ["solutions"]),
    ],
    "sampling": [
        (rf" on {_N} of {_N}\.", ["many", "entries"]),
        (rf"{_N} answers, T = {_N}", ["answers", "temperature"]),
        (rf"best of {_N}, picked", ["samplings"]),
        (rf": {_INTERVAL}, {_N} questions", [*_ENDS, "questions"]),
    ],
    "question": [
        (rf" on {_N} of {_N}\.", ["many", "entries"]),
        (rf": {_INTERVAL}, p = {_N}\.", [*_ENDS, "p"]),
    ],
    "families": [
        (rf"{_N} answers' tokens: {_INTERVAL}", ["budget", *_ENDS]),
        (rf"beat {_N} of", ["beaten"]),
        (rf" of {_N} families", ["families"]),
    ],
    "compression": [
        (rf"{_N}% of heads gone", ["ratio"]),
        (rf": {_INTERVAL} against training as long, {_N} questions", [*_ENDS, "questions"]),
        (rf"Causal scores.*?: {_N}\.", ["causal"]),
        (rf"without a teacher {_N}\.", ["alone"]),
        (rf"{_N}% fewer parameters", ["fewer"]),
    ],
    "published": [
        (rf"{_N} of {_N} best heads pass alone", ["beyond", "pairs"]),
        (rf"luck gives {_N} on average, up to {_N} in", ["luck", "luck_high"]),
    ],
    "likeness": [
        (rf"Of {_N} test questions", ["questions"]),
        (rf"{_N}% equal a training question but for numbers; {_N}% resemble", ["equal", "alike"]),
    ],
}
_SEVERAL = "heads", "compression"
"""Topics of which an account may have a line for each sweep, or each compression, in its order."""
# Words that stand for a number.
_MEANT = {
    "map": [("No head's loss is shown", "shown", 0)],
    "heads": [("No head is shown to help", "shown", 0)],
    "sampling": [
        ("is not shown", "sign", 0),
        ("Sampling beats", "sign", -1),
        ("Choosing heads beats", "sign", 1),
    ],
    "question": [
        ("is not shown", "sign", 0),
        ("question helps", "sign", 1),
        ("question hurts", "sign", -1),
        ("Greedy cover: no difference", "fixed", 0),
        ("Greedy cover does worse", "fixed", 1),
        ("Greedy cover does better", "fixed", -1),
    ],
    "families": [
        ("are not shown", "sign", 0),
        ("Sampling beats heads", "sign", -1),
        ("Heads beat sampling", "sign", 1),
        ("Heads beat none", "beaten", 0),
    ],
    "compression": [
        ("no loss is shown", "sign", 0),
        ("gone: worse", "sign", -1),
        ("gone: better", "sign", 1),
    ],
}


class Stated(NamedTuple):
    """A number of an account."""

    topic: str
    name: str
    value: float
    half: float
    """Half of the last digit that is printed, and a little for rounding of the run's own tables."""


def compare(account, facts):
    """Return how many numbers of an account were compared, and a line for each that differs.

    Args:
        account: Markdown of findings, and of tables of Pass@N, families, subjects or a map.
        facts: what `recomputed` returns.
    """
    said = [*stated(account)]
    return len(said), [line for each in said if (line := _wrong(each, facts))]


def _wrong(said, facts):
    what = f"{said.topic}: {said.name}: the account says {said.value:g}"
    if (said.topic, said.name) not in facts:
        return f"{what}, of which the run has nothing"
    value, luck = facts[said.topic, said.name]
    if abs(said.value - value) <= said.half + luck:
        return ""
    return f"{what}, the answers give {value:.4g}" + (f" ± {luck:.2g}" if luck else "")


def recomputed(folder, sweep="", selector=""):
    """Return `recomputed.run.Fact`s of a run's folder by topic and name.

    Args:
        folder: the run's.
        sweep: whose table by subject the account has, if any.
        selector: whose Pass@N it has, if any.
    """
    run, facts = Run(folder), published.facts()
    for frontier in run.config["frontiers"]:
        facts |= families.facts(run, frontier)
    for number, name in enumerate(run.config["sweeps"], start=1):
        facts |= heads.facts(run, name, f"heads {number}")
    for name in run.config.get("maps", {}):
        facts |= maps.facts(run, name)
    if selector:
        facts |= selectors.facts(run, selector) | published.likeness(run, selector)
    if sweep:
        facts |= heads.by_subject(run, sweep)
    return facts | compressions.facts(run)


def stated(account):
    """Yield the numbers of an account, as `Stated`."""
    lines = account.splitlines()
    told = Counter()
    for line in lines:
        found = (each for each, begin in _TOPICS.items() if re.search(begin, line))
        kind = next(found, None) if line.startswith("- ") else None
        if kind is None:
            continue
        topic = kind
        if kind in _SEVERAL:
            told[kind] += 1
            topic = f"{kind} {told[kind]}"
        for pattern, names in _SAID[kind]:
            if match := re.search(pattern, line):
                for name, text in zip(names, match.groups(), strict=True):
                    yield _number(topic, name, text)
        for words, name, value in _MEANT.get(kind, ()):
            if words in line:
                yield Stated(topic, name, value, 0.0)
    for is_table, group in groupby(lines, lambda line: line.startswith("|")):
        if is_table:
            yield from _cells([*group])


def _cells(lines):
    """Yield the numbers of a table."""
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]
    (title, *columns), _, *rows = rows
    topic = {"family": "families", "right, %": "subjects", "ranks gains": "map"}.get(
        title, "Pass@N"
    )
    for name, *cells in rows:
        for column, cell in zip(columns, cells, strict=True):
            if cell != "–":
                yield _number(topic, f"{name}, {column}", cell)


def _number(topic, name, text):
    plain = text.replace("−", "-").replace(",", "")
    return Stated(topic, name, float(plain), 0.501 * 10 ** -len(plain.partition(".")[2]))


if __name__ == "__main__":
    page = (Path(__file__).parents[2] / "docs/demo.md").read_text(encoding="utf-8")
    demo = page.partition("<!-- From the demo's tables")[2].partition("<!-- End of")[0]
    compared, differing = compare(demo, recomputed(sys.argv[1], selector="math"))
    print(*differing, f"{compared} numbers compared, {len(differing)} differ", sep="\n")
    sys.exit(bool(differing))
