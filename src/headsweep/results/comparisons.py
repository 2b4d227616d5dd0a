"""Comparisons that a verdict tells together, and what Holm's correction over all of them shows."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import NamedTuple

import numpy as np

from headsweep.experiments.sprint import methods
from headsweep.experiments.sprint.evaluation import TESTED
from headsweep.experiments.sprint.methods import SPRINT
from headsweep.files import paths, tables
from headsweep.results.facts import FORMS, Number, Source
from headsweep.results.marks import Mark
from headsweep.statistics import SIGNIFICANCE
from headsweep.statistics.intervals import holm
from headsweep.store.layout import Store

TESTED_AT_BUDGET = "order == 'ordered' and adjusted.notna()"
"""Rows of a frontier's differences that are tested: at one number of tokens."""


@dataclass(frozen=True, eq=False)
class Comparison:
    """A paired difference that one entry of the config is about."""

    entry: str
    row: Source
    """With the columns ``difference``, ``low``, ``high`` and ``p``."""
    picked_of: int = 1
    """Among how many comparisons it was picked by their outcomes. It counts as so many tests."""


@dataclass(frozen=True, eq=False)
class Together:
    """Comparisons of several entries: a claim about any of them is corrected for all."""

    comparisons: Sequence[Comparison]

    @property
    def tests(self) -> int:
        """How many tests the correction counts."""
        return sum(comparison.picked_of for comparison in self.comparisons)

    @property
    def marks(self) -> list[Mark]:
        """Each comparison's mark: its direction, if Holm's test over all finds one."""
        return [self.mark(comparison) for comparison in self.comparisons]

    @property
    def joint_mark(self) -> Mark:
        """What all show together: a direction, nothing, or both directions, which needs a look."""
        directions = {*self.marks} - {Mark.NOT_SHOWN}
        if len(directions) > 1:
            return Mark.LOOK
        return directions.pop() if directions else Mark.NOT_SHOWN

    @property
    def reported(self) -> Comparison:
        """The comparison with the smallest p-value, if any is shown, or else the first.

        Of the smallest p-value Holm's correction is Bonferroni's, and so is `Source.jointly`.
        """
        if set(self.marks) == {Mark.NOT_SHOWN}:
            return self.comparisons[0]
        return min(self.comparisons, key=lambda comparison: comparison.row.value("p"))

    def mark(self, comparison: Comparison) -> Mark:
        """Return the mark of one of the comparisons."""
        if not self._adjusted[comparison] < SIGNIFICANCE:
            return Mark.NOT_SHOWN
        return comparison.row.direction("low", "high")

    def p(self, comparison: Comparison) -> Number:
        """Return the p-value of one of the comparisons after Holm's correction."""
        raw = comparison.row.number("p", "p")
        if self.tests == 1:
            return raw
        value = self._adjusted[comparison]
        key = f"{raw.key}:holm of {self.tests}"
        return replace(raw, value=value, key=key, text=FORMS["p"](value))

    @cached_property
    def _adjusted(self) -> dict[Comparison, float]:
        """P-values after Holm's correction.

        A picked comparison stands for all that it was picked from, as if each had its p-value. That
        one of them has so small a p-value is at most so many times as likely.
        """
        p = np.array([comparison.row.value("p") for comparison in self.comparisons])
        counts = [comparison.picked_of for comparison in self.comparisons]
        adjusted = holm(np.repeat(p, counts))
        last = np.cumsum(counts) - 1
        return dict(zip(self.comparisons, adjusted[last].tolist(), strict=True))


class Rival(NamedTuple):
    """The method that SPRINT is held against."""

    method: str
    """Its name in tables; "" if there is none."""
    n: int
    """The largest number of answers that both have."""
    picked_of: int
    """Among how many samplings it was picked; 1 if the config names it."""
    sprint_n: int
    """SPRINT's largest number of answers."""


def rival(store: Store, selector: str) -> Rival:
    """Return the method that SPRINT is held against.

    It is the selector's `versus`, or else the sampling with the highest Pass@N at SPRINT's largest
    N (of equals the last in the table). That one is picked by the test questions.
    """
    curves = Source.read(store, tables.CURVES, selector=selector).rows
    largest_n = curves.groupby("method")["n"].max()
    most = int(largest_n[SPRINT])
    section = store.config.selectors[selector]
    if section.versus:
        names = methods.sampling(store.config, section.sampling)
        method = names.get(section.versus, section.versus)
        return Rival(method, min(most, int(largest_n[method])), 1, most)
    samplings = curves[(curves["n"] == most) & curves["method"].map(methods.is_sampling)]
    ranked = samplings.sort_values("pass_at_n", kind="stable")["method"].tolist()
    return Rival(ranked[-1] if ranked else "", most, len(section.sampling), most)


def with_rivals(store: Store) -> Together:
    """Return how SPRINT differs from its rival, for each selector that has one."""
    comparisons = []
    for name in store.config.selectors:
        held = rival(store, name)
        if held.method:
            table = Source.read(store, paths.PAIRED, ["method", "n", *TESTED], selector=name)
            row = table.where(method=held.method, n=held.n)
            comparisons.append(Comparison(name, row, held.picked_of))
    return Together(comparisons)


def against_sampling(store: Store, frontier: str) -> Source:
    """Return the tests of each family against sampling, by any answer and by votes.

    They are at a frontier's one number of tokens, and are corrected together.
    """
    table = Source.read(store, paths.FRONTIER, frontier=frontier, table="paired")
    return table.query(TESTED_AT_BUDGET).where(versus="sampling")


def with_joint_interval(row: Source, tested: Source) -> Source:
    """Return one of the tests of `against_sampling` with an interval that its correction gives.

    Where Holm's correction shows the difference, its interval leaves out zero: as in the test, it
    holds for those with no smaller p-value at once. Otherwise it holds for all tests.
    """
    tests = len(tested)
    if row.value("adjusted") < SIGNIFICANCE:
        tests = int((tested.rows["p"] >= row.value("p")).sum())
    return row.jointly(tests)
