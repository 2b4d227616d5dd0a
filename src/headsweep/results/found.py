"""What a run's tables show, by rule: each question's mark and the rows that it rests on.

An effect is shown only if its test is significant. Several entries of the config are corrected for
their number: the chance that any of them is named without an effect stays at 5%. What is said of a
finding stands in `verdicts`.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum

import numpy as np

from headsweep.config.compression import is_narrow
from headsweep.config.experiments import METHOD
from headsweep.experiments.maps import outcomes
from headsweep.experiments.sprint import evaluation
from headsweep.experiments.sprint.evaluation import MEAN
from headsweep.experiments.sprint.methods import COVER, SPRINT
from headsweep.files import paths
from headsweep.results.comparisons import TESTED_AT_BUDGET, Comparison, Together
from headsweep.results.compression_arms import ARM_ACCURACY, causal_arm, control
from headsweep.results.facts import Source, widened
from headsweep.results.gains import HEADS, shown, shown_by_cut_answers
from headsweep.results.marks import Mark
from headsweep.statistics import SIGNIFICANCE
from headsweep.store.layout import Store
from headsweep.variants import BASE


@dataclass(frozen=True, eq=False)
class SweptHeads:
    """Whether a sweep shows a head that helps when it is lost."""

    sweep: str
    base: Source
    pruned: Source
    """All heads of the sweep."""
    helping: Source
    hurting: Source
    by_cut_answers: Source
    """Heads whose gain would be shown if answers that were cut counted."""
    best: Source
    """One row: the largest gain that is shown, or the largest of all."""

    @property
    def mark(self) -> Mark:
        """A gain that cut answers make needs a look, unless another is shown without them."""
        if self.helping:
            return Mark.BETTER
        return Mark.LOOK if self.by_cut_answers else Mark.NOT_SHOWN

    @property
    def best_is_largest(self) -> bool:
        """Whether no head, shown or not, has a larger gain than the best."""
        return self.best.value("gain") >= self.pruned.rows["gain"].max()


def heads(store: Store) -> Iterator[SweptHeads]:
    """Yield what each sweep shows."""
    for sweep in store.config.sweeps:
        table = Source.read(store, paths.CONTROLS, HEADS, sweep=sweep, table="heads")
        pruned = table.of(table.rows[table.rows["variant"] != str(BASE)])
        helping, hurting = (pruned.of(shown(pruned.rows, sign)) for sign in (1, -1))
        yield SweptHeads(
            sweep,
            table.where(variant=str(BASE)),
            pruned,
            helping,
            hurting,
            pruned.of(shown_by_cut_answers(pruned.rows, 1)),
            helping or pruned.largest("gain"),
        )


@dataclass(frozen=True, eq=False)
class MappedHeads:
    """Whether a map shows a head whose loss makes right answers more likely than wrong ones.

    A map of reference solutions alone has no wrong answers: is a head's loss shown to make the
    solutions likelier?
    """

    map: str
    prefers: bool
    """Whether right answers are held against wrong ones."""
    changes: Source
    """All heads, in the outcome that is asked about."""
    helping: Source
    best: Source
    noise: Source
    """The row of the best head's layer, with the change that noise makes there."""
    likelihood: Source
    """All heads, in the likelihood of the model's own answers; empty without such a map."""
    mattering: Source
    placebos: Source
    """Noise that the likelihoods are held against."""
    ranking: tuple[Source, ...]
    """One row for each outcome that is shown to rank gains that a sweep measured."""
    is_ranked: bool
    """Whether there are measured gains to rank."""

    @property
    def mark(self) -> Mark:
        """Better if a head's loss is shown to favour what is right."""
        return Mark.BETTER if self.helping else Mark.NOT_SHOWN

    @property
    def best_is_largest(self) -> bool:
        """Whether no head, shown or not, has a larger change than the best."""
        return self.best.value("change") == self.changes.rows["change"].max()


def mapped_heads(store: Store) -> Iterator[MappedHeads]:
    """Yield what each map shows; a map without an outcome to ask about shows nothing."""
    for name in store.config.maps:
        table = Source.read(store, paths.MAP, outcomes.HEADS, map=name, table="heads")
        pruned = table.where(kind="head")
        preference = pruned.where(outcome=outcomes.PREFERENCE)
        changes = preference or pruned.where(outcome=outcomes.SOLUTIONS)
        if not changes:
            continue
        helping = changes.where(shown=outcomes.HIGHER)
        best = (helping or changes).largest("change")
        layers = Source.read(store, paths.MAP, outcomes.LAYERS, map=name, table="layers")
        likelihood = pruned.where(outcome=outcomes.LIKELIHOOD)
        foretold = Source.read(store, paths.MAP, map=name, table="foretold")
        yield MappedHeads(
            name,
            bool(preference),
            changes,
            helping,
            best,
            layers.where(outcome=changes.first["outcome"], layer=best.value("layer")),
            likelihood,
            likelihood.where(shown=outcomes.LOWER),
            table.where(kind="noise", outcome=outcomes.LIKELIHOOD),
            _shown_to_rank(foretold),
            bool(foretold.query("low.notna()")),
        )


def _shown_to_rank(foretold: Source) -> tuple[Source, ...]:
    """Return the outcomes whose rank correlation with gains is above zero, of those asked."""
    asked = [outcomes.SOLUTIONS]
    if foretold.where(outcome=outcomes.LIKELIHOOD):
        asked = [outcomes.PREFERENCE, outcomes.LIKELIHOOD]
    rows = (foretold.where(outcome=outcome).query("low.notna()") for outcome in asked)
    return tuple(row for row in rows if row and is_shown_to_rank(row, len(asked)))


def is_shown_to_rank(row: Source, entries: int) -> bool:
    """Return whether a rank correlation is above zero by an interval that holds for all entries.

    Fisher's interval is symmetric around the inverse hyperbolic tangent of the correlation.
    """
    low, high = np.arctanh(np.clip([row.value("low"), row.value("high")], -1 + 1e-12, 1 - 1e-12))
    joint_low, _ = widened(low, high, entries)
    return bool(joint_low > 0)


@dataclass(frozen=True, eq=False)
class Shuffled:
    """Whether it matters for which question heads are chosen."""

    together: Together
    """SPRINT against itself with shuffled questions, a comparison for each selector."""
    cover: Mark
    """How the reported selector compares with greedy cover, which knows no question."""


def shuffled_questions(store: Store) -> Shuffled | None:
    """Return what shuffling shows; None without a selector."""
    comparisons = []
    cover = {}
    for name in store.config.selectors:
        table = Source.read(store, paths.EMBEDDING_VALUE, evaluation.TESTED, selector=name)
        of_sprint = table.where(method=SPRINT, n=MEAN)
        comparisons.append(Comparison(name, of_sprint.where(against=evaluation.SHUFFLED)))
        cover[name] = of_sprint.where(against=COVER)
    if not comparisons:
        return None
    together = Together(comparisons)
    against_cover = cover[together.reported.entry].jointly(together.tests)
    return Shuffled(together, against_cover.direction("low", "high", "adjusted"))


@dataclass(frozen=True, eq=False)
class HeadFamily:
    """How a frontier's family of pruned heads compares at equal tokens."""

    frontier: str
    sampling: Source
    """One row: heads against sampling."""
    others: Source
    """Heads against each other family."""
    beaten: Source

    @property
    def mark(self) -> Mark:
        """Heads against sampling, after the correction over all tests of the frontier."""
        return self.sampling.direction("low", "high", "adjusted")


def head_families(store: Store) -> Iterator[HeadFamily]:
    """Yield each frontier in which pruned heads are held against sampling."""
    for name in store.config.frontiers:
        table = Source.read(store, paths.FRONTIER, frontier=name, table="paired")
        of_heads = table.query(TESTED_AT_BUDGET).where(family="head", outcome="pass")
        sampling = of_heads.where(versus="sampling")
        if sampling:
            others = of_heads.query("versus != 'sampling'")
            beaten = others.query(f"adjusted < {SIGNIFICANCE} and difference > 0")
            yield HeadFamily(name, sampling, others, beaten)


class CostlyPart(Enum):
    """Which part of a compression is shown to cost accuracy."""

    REMOVAL = "removal"
    DISTILLATION = "distillation"
    BOTH = "both"
    NOT_SHOWN = "not shown"
    UNTESTED = "untested"


@dataclass(frozen=True, eq=False)
class Compressed:
    """What a compression by the paper's method costs and saves."""

    compression: str
    row: Source
    """The method's arm, one row."""
    column: str
    """The change of accuracy against the arm that it is held against."""
    beside: str
    """What that arm is called."""
    causal: Source
    """The arm that scores heads by their effect; empty without one."""
    without_teacher: Source
    """The arm that removes as many heads and trains as long; empty without one."""

    @property
    def is_tested(self) -> bool:
        """Whether there were questions enough for an interval."""
        return bool(self.row.number(f"{self.column}_low"))

    @property
    def mark(self) -> Mark:
        """The direction of the change of accuracy."""
        return self.row.direction(f"{self.column}_low", f"{self.column}_high")

    @property
    def time_is_known(self) -> bool:
        """Whether the time of a test is measured narrowly enough to be told."""
        return is_narrow(self.row.value("test_time"), self.row.value("test_time_high"))

    @property
    def share_removed(self) -> float:
        """The share of heads that are gone: less than the ratio, if the removal stopped."""
        return self.row.value("heads_removed") / self.row.value("heads")

    @property
    def costly_part(self) -> CostlyPart:
        """Which part costs.

        Without a teacher, the change from training as long with all heads is removal's, and what
        the method differs from it is distillation's. Both are tested together (Bonferroni), so that
        the chance of naming a part that costs nothing stays at 5%.
        """
        alone = self.without_teacher
        ends = ("change_trained_low", "change_trained_high", "gap_low", "gap_high")
        if not alone or not all(alone.number(end) for end in ends):
            return CostlyPart.UNTESTED
        changed_low, changed_high, gap_low, gap_high = (alone.value(end) for end in ends)
        parts = 2
        _, highest_change = widened(changed_low, changed_high, parts)
        lowest_gap, _ = widened(gap_low, gap_high, parts)
        removal_costs = highest_change < 0
        distillation_costs = lowest_gap > 0  # without it, accuracy is higher
        if removal_costs and distillation_costs:
            return CostlyPart.BOTH
        if removal_costs:
            return CostlyPart.REMOVAL
        return CostlyPart.DISTILLATION if distillation_costs else CostlyPart.NOT_SHOWN


def compressions(store: Store) -> Iterator[Compressed]:
    """Yield each compression whose method's arm has a change of accuracy."""
    if not store.config.compressions:
        return
    exhibits = ("table1", "table4", "variations")
    arms, ablation, variations = (
        Source.read(store, paths.COMPRESSION_TABLE, ARM_ACCURACY, exhibit=exhibit)
        for exhibit in exhibits
    )
    for row in arms.where(arm=METHOD):
        name = row.first["compression"]
        column, beside = control(row.first)
        if row.number(column):
            causal = variations.where(
                compression=name, arm=causal_arm(store.config.compressions[name])
            )
            alone = ablation.where(compression=name, arm="pruning_only")
            yield Compressed(name, row, column, beside, causal, alone)


@dataclass(frozen=True, eq=False)
class PublishedGains:
    """How many of the published gains exceed luck."""

    row: Source

    @property
    def mark(self) -> Mark:
        """Better if more best heads pass alone than luck gives in 95% of draws."""
        more = self.row.value("beyond") > self.row.value("luck_high")
        return Mark.BETTER if more else Mark.LOOK


def published_gains(store: Store) -> PublishedGains:
    """Return what chance makes of the published gains."""
    wanted = ["pairs", "beyond", "luck", "luck_high", "p"]
    return PublishedGains(Source.read(store, paths.AUDIT_TABLE, wanted, paper="total"))
