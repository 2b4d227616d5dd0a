"""What the run found, read from its own tables, and how it compares with what was planted."""

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import pandas as pd

from benchmarks.proof.planting import COINS, EXPERTS, SABOTAGED, WHOLE
from benchmarks.proof.sabotage import LEAST
from headsweep.config import Config
from headsweep.experiments.sprint.evaluation import MEAN, SHUFFLED
from headsweep.experiments.sprint.methods import COVER, SPRINT
from headsweep.files import paths
from headsweep.files.safe_files import read_table
from headsweep.files.tables import QUESTIONS, RANKING
from headsweep.results.facts import read_csv, rows_of
from headsweep.results.gains import HEADS, shown
from headsweep.store.layout import Store
from headsweep.text import points

NAMED = 6
"""A selector has to ask the right head first for so many of the seven subjects. By luck it does so
for each subject with a chance of 1 in 24."""

_WORTH = ["method", "against", "n", "difference", "low", "high"]


@dataclass(frozen=True)
class Findings:
    """What a finished run says, read without knowledge of what was planted."""

    heads: dict[str, pd.DataFrame]
    """By model, its table of heads, base first."""
    worth: dict[str, pd.DataFrame]
    """By selector, SPRINT minus what ignores the question, at N = 1 and on average."""
    asked_first: dict[str, str]
    """By subject, the head that experts' selector asks first about most of its questions."""

    def helping(self, model: str) -> list[str]:
        """Return the heads that are shown to help when lost."""
        return shown(self.heads[model], 1)["variant"].tolist()

    def won(self, selector: str) -> list[str]:
        """Return the comparisons that show that SPRINT is better."""
        rows = rows_of(self.worth[selector].query("low > 0"))
        return [f"SPRINT against {row.against}, N = {row.n}" for row in rows]


class Line(NamedTuple):
    """A line of the proof: what was planted, what the run says, and whether that is right."""

    planted: str
    says: str
    right: bool


def read(config: Config, folder: Path) -> Findings:
    """Read what the run in a folder found.

    Raises:
        TableError: a table of the run is missing or damaged.
    """
    store = Store(config)
    heads = {
        name: read_csv(folder / store.path(paths.CONTROLS, sweep=name, table="heads"), HEADS)
        for name in config.sweeps
    }
    worth = {}
    for name in config.selectors:
        file = folder / store.path(paths.EMBEDDING_VALUE, selector=name)
        table = read_csv(file, _WORTH).astype({"n": str})
        ignoring = table["against"].isin([SHUFFLED, COVER]) & table["n"].isin(["1", MEAN])
        worth[name] = table[(table["method"] == SPRINT) & ignoring]
    test = config.selectors[EXPERTS].test
    rankings = read_table(folder / store.path(RANKING, selector=EXPERTS), RANKING)
    rows = read_table(folder / store.path(QUESTIONS, questions=test), QUESTIONS)
    first = rankings.set_index("question_id")["heads"].str[0]
    by_subject = rows["question_id"].map(first).groupby(rows["subject"])
    most = {str(subject): str(heads_asked.mode().iloc[0]) for subject, heads_asked in by_subject}
    return Findings(heads, worth, most)


def judge(findings: Findings, secret: dict[str, Any]) -> list[Line]:
    """Compare what a run found with what was planted: a line each."""
    return [
        _of_sabotage(findings, str(secret[SABOTAGED])),
        *_of_experts(findings, secret[EXPERTS]),
        _of_coins(findings),
    ]


def _of_sabotage(findings: Findings, planted: str) -> Line:
    heads = findings.heads[SABOTAGED].set_index("variant")
    cost = findings.heads[WHOLE]["accuracy"].iloc[0] - heads["accuracy"].iloc[0]
    gain = float(heads["gain"][planted])
    named = findings.helping(SABOTAGED)
    right = named == [planted] and min(cost, gain) >= LEAST
    what = f"{planted} sabotaged: base {points(-cost)} points, without it {points(gain)}"
    return Line(what, f"helps when lost: {_listed(named)}", right)


def _of_experts(findings: Findings, planted: dict[str, str]) -> list[Line]:
    lines = [
        Line(
            f"{len(planted)} heads that know a subject",
            f"SPRINT beats {row.against}, N = {row.n}: {points(row.difference)} "
            f"({points(row.low)} to {points(row.high)})",
            bool(row.low > 0),
        )
        for row in rows_of(findings.worth[EXPERTS])
    ]
    rightly = sum(findings.asked_first[subject] == head for subject, head in planted.items())
    says = f"asks the subject's head first: {rightly} of {len(planted)} subjects"
    return [*lines, Line("which head knows which subject", says, rightly >= NAMED)]


def _of_coins(findings: Findings) -> Line:
    """Judge the two models whose heads toss coins: at most one may show something, by chance."""
    shown_by_world = [[*findings.helping(name), *findings.won(name)] for name in COINS]
    first, second = shown_by_world
    says = f"shown to help: {_listed(first)}; in another draw: {_listed(second)}"
    right = not (first and second)
    return Line("heads that flip a tenth of the outcomes", says, right)


def _listed(names: Iterable[str]) -> str:
    return ", ".join(names) or "none"
