"""What to do, in the light of a comparison: which method, how many answers, at what cost."""

import pandas as pd

from headsweep.config import Config
from headsweep.config.titles import title
from headsweep.experiments.sprint.frontier import SAMPLING
from headsweep.experiments.sprint.methods import SPRINT, is_sampling, sampling
from headsweep.files import paths
from headsweep.files.tables import CURVES
from headsweep.results.comparisons import (
    Comparison,
    Together,
    against_sampling,
    with_joint_interval,
)
from headsweep.results.facts import Sentence, Source
from headsweep.results.marks import Mark
from headsweep.statistics import SIGNIFICANCE
from headsweep.store.layout import Store
from headsweep.text import plural

_DO = "{subject}, what to do"
_DO_CHECKED = f"{_DO} where answers can be checked"
_CERTAIN = "95% certain"
_CORRECTED = f"{_CERTAIN}, after Holm's correction."


def of_selector(store: Store, together: Together, comparison: Comparison) -> Sentence:
    """Return what a comparison of SPRINT with its rival recommends.

    It is one of those that a verdict tells together, and says the same as the verdict.

    Raises:
        TableError: a table of the run is missing or damaged.
    """
    selector = comparison.entry
    row = comparison.row
    rival = row.first["method"]
    n = int(row.value("n"))
    curves = Source.read(store, CURVES, selector=selector).where(n=n)
    costs = {"chosen": curves.where(method=SPRINT), "other": curves.where(method=rival)}
    parts: dict[str, object] = {"subject": title(store.config, "selectors", selector), "n": str(n)}
    for name, curve in costs.items():
        parts[name] = curve.number("pass_at_n", "percent")
        parts[f"{name}_tokens"] = curve.number("tokens", "count")
    parts["rival"] = _spaced(rival)
    answers = "{n} answer solves" if n == 1 else "{n} answers solve"
    mark = together.mark(comparison)
    if mark is Mark.NOT_SHOWN:
        untrained = ", which needs no training" if is_sampling(rival) else ""
        those = "that of a chosen head" if n == 1 else "those of chosen heads"
        said = (
            f"{_DO}: {{rival}}{untrained}. {answers} {{other}} for "
            f"{{other_tokens}} tokens, {those} {{chosen}} for {{chosen_tokens}}: no "
            "difference is shown."
        )
        return Sentence(said, **parts)
    if mark is Mark.BETTER:
        what, best, worse = "choose heads by SPRINT", "chosen", "other"
    else:
        what, best, worse = "{rival}", "other", "chosen"
    said = (
        f"{_DO_CHECKED}: {what}. {answers} {{{best}}} for {{{best}_tokens}} tokens, "
        f"against {{{worse}}} for {{{worse}_tokens}}; "
    )
    said += f"{_CERTAIN}." if together.tests == 1 else _CORRECTED
    return Sentence(said, **parts)


def of_frontier(store: Store, frontier: str) -> Sentence | None:
    """Return what a comparison of families with sampling at equal tokens recommends.

    It is the family that solves most, of those that Holm's correction shows to beat sampling, or
    else sampling. Nothing is said without samples.

    Raises:
        TableError: a table of the run is missing or damaged.
    """
    families = Source.read(store, paths.FRONTIER, frontier=frontier, table="families")
    if not families.where(family=SAMPLING):
        return None
    parts: dict[str, object] = {"subject": title(store.config, "frontiers", frontier)}
    tested = against_sampling(store, frontier)
    by_any_answer = tested.where(outcome="pass")
    if not by_any_answer:
        return Sentence(f"{_DO}: raise max_n, as no number of tokens is reached by all.", **parts)
    better = by_any_answer.query(f"adjusted < {SIGNIFICANCE} and difference > 0")
    best = better.of(better.rows.nlargest(1, "value"))
    family = best.first["family"] if best else SAMPLING
    # Curves have a point for each number of answers; the one nearest to the tokens of the test.
    curves = Source.read(store, paths.FRONTIER, frontier=frontier, table="curves")
    curve = curves.where(family=family, order="ordered")
    away = (curve.rows["answers"] - by_any_answer.value("budget")).abs()
    point = curve.of(curve.rows.loc[[away.idxmin()]])
    parts |= {"n": point.number("n", "count"), "tokens": point.number("tokens", "count")}
    answers = plural("answer", point.value("n"))
    parts["method"] = _named(store.config, frontier, families.where(family=family))
    said = f"{_DO_CHECKED}: {{method}}, {{n}} {answers}, {{tokens}} tokens. "
    if best:
        said += f"{{gain}} points over sampling with as many; {_CORRECTED}"
        joint = with_joint_interval(best, tested)
        return Sentence(said, **parts, gain=joint.interval("difference", "points", "low", "high"))
    unknown = by_any_answer.query(f"adjusted >= {SIGNIFICANCE}")
    if not unknown:
        return Sentence(f"{said}Every family solves less; {_CORRECTED}", **parts)
    return Sentence(f"{said}No family's lead is shown.", **parts)


def _named(config: Config, frontier: str, family: Source) -> str:
    """Return a family's title with the scale that was chosen, if it has several."""
    scale = family.first["scale"]
    if family.first["family"] == SAMPLING:
        methods = sampling(config, config.frontiers[frontier].sampling)
        return _spaced(methods.get(scale, scale))
    called = str(family.first["title"])
    return f"{called}, scale {scale}" if pd.notna(scale) else called


def _spaced(method: str) -> str:
    return method.replace("=", " = ")
