"""What each section of the report says and draws, besides the tables that it declares."""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import pandas as pd
from markupsafe import Markup

from headsweep.config.titles import title, titles
from headsweep.experiments.sprint import validation
from headsweep.experiments.sprint.methods import BASE, COVER, ORACLE, SPRINT
from headsweep.files import paths
from headsweep.files.tables import CURVES
from headsweep.page.blocks import Section, fill, table
from headsweep.page.compression_section import compression
from headsweep.page.map_section import mapped
from headsweep.page.svg import Chart, Scale
from headsweep.results import paper_differences
from headsweep.results.claims import UNDECIDED, UNMEASURED
from headsweep.results.comparisons import against_sampling, rival
from headsweep.results.facts import Cell, Number, Sentence, Source
from headsweep.results.gains import GAINS, HEADS, shown
from headsweep.statistics.power import GAIN, MOST_QUESTIONS, POWER, questions_for
from headsweep.store.layout import Store
from headsweep.text import counted


@dataclass(frozen=True)
class SectionPlan:
    """A question of the page, and what its section shows beside its declared tables."""

    anchor: str
    title: str
    about: tuple[str, ...]
    """Keys of the config; the section is there if the run has one of them."""
    lead: str = ""
    """Its first sentence."""
    add: Callable[[Store, Section], None] | None = None
    """Adds sentences and pictures to its section."""


def first_figure(store: Store, selector: str) -> dict[str, Markup]:
    """Return charts of Pass@N of a selector and of sampling, by answers and by tokens."""
    rows = Source.read(store, CURVES, selector=selector).rows
    held_against = rival(store, selector)
    most = held_against.sprint_n
    rows = rows[rows["n"] <= most].copy()
    rows[["pass_at_n", "low", "high"]] *= 100
    rows_of_method = dict(tuple(rows.groupby("method")))
    rival_label = held_against.method.replace("=", " = ")
    labels = {SPRINT: "SPRINT", held_against.method: rival_label, COVER: "greedy cover"}
    banded = [labels[SPRINT], labels[held_against.method]]
    curves = {
        label: rows_of_method[method]
        for method, label in labels.items()
        if method in rows_of_method
    }
    levels = {
        label: rows_of_method[method]["pass_at_n"].iloc[0]
        for method, label in ((ORACLE, "all heads"), (BASE, "one greedy"))
        if method in rows_of_method
    }
    drawn = list(levels.values())
    for label, curve in curves.items():
        drawn += curve["pass_at_n"].tolist()
        if label in banded:
            drawn += [*curve["low"], *curve["high"]]
    y = Scale(min(drawn) - 1, max(drawn) + 1)
    last = []
    for label, curve in curves.items():
        end = curve.iloc[-1]
        fewer = f" with {end['n']}" if end["n"] < most else ""
        last.append(f"{label} {end['pass_at_n']:.1f}%{fewer}")
    test = title(store.config, "selectors", selector)
    alt = f"Pass@N, {test}: with {counted(most, 'answer')} {', '.join(last)}."
    charts = {}
    for axis, column in (("answers", "n"), ("tokens", "tokens")):
        x = pd.concat([curve[column] for curve in curves.values()])
        chart = Chart(Scale.doublings(x), y, 300, alt, ("{:.0f}", "{:.0f}"))
        for label, value in levels.items():
            chart.level(value, f"{label} {value:.1f}")
        for place, (label, curve) in enumerate(curves.items()):
            line = curve[[column, "pass_at_n"]].to_numpy().tolist()
            ends = curve[[column, "low", "high"]].to_numpy().tolist()
            chart.curve(line, label, f"s{place}", ends if label in banded else [])
        charts[axis] = chart.svg()
    return charts


def luck(store: Store, section: Section) -> None:
    """Say by how much the best heads' gains exceed what selection alone gives, and how many
    questions would show a small gain.
    """
    config = store.config
    for sweep in config.sweeps:
        gains = Source.read(store, paths.CONTROLS, GAINS, sweep=sweep, table="gains")
        heads = Source.read(store, paths.CONTROLS, HEADS, sweep=sweep, table="heads")
        pruned = heads.query("p.notna()")  # all but the base model
        tested = gains.query("by == 'overall' and heads > 1 and by_chance.notna()")
        sweep_title = title(config, "sweeps", sweep)
        if tested:
            real = _best_shown(pruned, tested)
            sentence = tested.say(
                "{sweep}. The best head of a layer gains {gain} points on average (layers: "
                "{layers}); luck alone gives {luck}. {real} pass the corrected test.",
                sweep=sweep_title,
                gain=Cell("gain", "points", over_rows="mean"),
                layers=Cell("gain", "count", over_rows="count"),
                luck=Cell("by_chance", "points", over_rows="mean"),
                real=real.number("gain", "count", "count") if real else "None",
            )
            section.lead.append(sentence)
        section.lead.append(_needed(pruned, sweep_title))


def _needed(heads: Source, sweep_title: str) -> Sentence:
    """Say how many questions another run would need to show a small gain of a sweep's median head.

    Heads are rows of pruned ones (`headsweep.results.gains.HEADS`).
    """
    rows = heads.rows
    changed = float(((rows["gained"] + rows["lost"]) / rows["n"]).median())
    questions = questions_for(GAIN, changed, len(rows))
    return Sentence(
        "{subject}. Another run would show a gain of {gain} points with {count} questions, with "
        "probability {power}.",
        subject=sweep_title,
        gain=f"{100 * GAIN:g}",
        power=f"{POWER:g}",
        count=f"more than {MOST_QUESTIONS:,}" if np.isnan(questions) else f"{questions:,}",
    )


def _best_shown(heads: Source, layers: Source) -> Source:
    """Return the best heads of the given layers that are shown to help, one of each layer."""
    rows = heads.rows[heads.rows["layer"].isin(layers.rows["layer"])]
    best = rows[rows["gain"] == rows.groupby("layer")["gain"].transform("max")]
    return heads.of(shown(best, 1).drop_duplicates("layer"))


def sampling(store: Store, section: Section) -> None:
    """Say how many test questions resemble training questions."""
    for name, selector_title in titles(store.config, "selectors").items():
        likeness = _likeness(store, name)
        section.lead.append(
            Sentence("{selector}: {likeness}", selector=selector_title, likeness=likeness)
        )


def _likeness(store: Store, selector: str) -> Sentence:
    overlap = Source.read(store, paths.OVERLAP, validation.LIKENESS, selector=selector)
    compared = overlap.number("resembles", "count", "count")
    if not compared.value:
        return Sentence(validation.ALL_UNKNOWN)
    rest = f" {validation.SOME_UNKNOWN}" if compared.value < len(overlap) else ""
    return Sentence(
        validation.LIKE + rest,
        n=compared,
        equal=overlap.number("equal", "percent", "mean"),
        resembling=overlap.number("resembles", "percent", "mean"),
    )


def families(store: Store, section: Section) -> None:
    """Say which families of variants were compared."""
    config = store.config
    for name, frontier in config.frontiers.items():
        frontier_title = title(config, "frontiers", name)
        sentence = (
            "{frontier}: {members} each, in an order that training questions chose. Tokens are "
        )
        sentence += "those generated: prompts, which each member reads anew, are left out."
        if frontier.sampling and not against_sampling(store, name):
            sentence += " No number of tokens is reached by all, so nothing is tested: raise max_n."
        section.lead.append(
            Sentence(sentence, frontier=frontier_title, members=counted(frontier.members, "member"))
        )


_CLAIM = ["paper", "claim", "value", "where"]
"""Columns that tell one claim from another: it has a row for each prompt and grading."""


def _claims(rows: Source) -> Number:
    """Return how many claims some rows are about."""
    once = rows.of(rows.rows.drop_duplicates(_CLAIM))
    return once.number("claim", "count", "count")


def published(store: Store, section: Section) -> None:
    """Count the papers' claims that hold, and set published accuracies beside the run's."""
    config = store.config
    claims = Source.read(store, paths.CLAIMS, [*_CLAIM, "published", "run", "run_why"])
    sentence = (
        "Of {claims} claims the papers' own tables bear out {published_holds} and "
        "contradict {published_fails}; this run bears out {run_holds} and contradicts {run_fails}. "
        "{absent} are about what this run does not have; no number decides {undecided}."
    )
    section.lead.append(
        Sentence(
            sentence,
            claims=_claims(claims),
            published_holds=_claims(claims.where(published="holds")),
            published_fails=_claims(claims.where(published="fails")),
            run_holds=_claims(claims.where(run="holds")),
            run_fails=_claims(claims.where(run="fails")),
            absent=_claims(claims.where(run_why=UNMEASURED.why)),
            undecided=_claims(claims.where(run_why=UNDECIDED.why)),
        )
    )
    columns = {
        "head": Cell("variant"),
        "questions": Cell("group"),
        "published (%)": Cell("published", "part"),
        "this run (%)": Cell("accuracy", "part"),
        "difference": Cell("difference", "points", "difference_low", "difference_high"),
    }
    for sweep in config.sweeps:
        cells = Source.read(store, paths.TABLE, ["published", "difference"], sweep=sweep)
        compared = cells.rows.dropna(subset="difference")
        by_size = compared.sort_values("difference", key=np.abs)
        caption = f"{title(config, 'sweeps', sweep)}, the largest differences first. "
        caption += paper_differences.of_sweep(config, sweep)
        section.blocks += table(cells.of(by_size[::-1]), columns, caption, limit=12)


PAGE_SECTIONS = [
    # The explorer and the limits of the run stand in the template.
    SectionPlan("heads", "Which heads matter?", ("sweeps", "maps"), add=mapped),
    SectionPlan("luck", "Is a gain more than luck?", ("sweeps",), add=luck),
    SectionPlan(
        "sampling",
        "Does choosing heads beat sampling?",
        ("selectors",),
        "A question counts as solved if any of N answers is right.",
        sampling,
    ),
    SectionPlan(
        "question",
        "Does the question matter?",
        ("selectors",),
        "SPRINT asks the heads nearest to a question. Does it matter which question?",
    ),
    SectionPlan(
        "families",
        "Are heads special?",
        ("frontiers",),
        "Do pruned heads solve more than other cheap changes, for the same tokens?",
        families,
    ),
    SectionPlan("compression", "Can heads go for good?", ("compressions",), add=compression),
    SectionPlan("published", "Do the papers' numbers hold?", ("papers",), add=published),
    SectionPlan("trust", "How far to trust this; how to run it again", ("run",)),
]
"""The sections, in the order of the page."""


def sections(store: Store) -> list[Section]:
    """Return the sections that apply to a run, with their folded blocks."""
    applicable = []
    for plan in PAGE_SECTIONS:
        if any(getattr(store.config, part) for part in plan.about):
            section = Section(plan.anchor, plan.title)
            if plan.lead:
                section.lead.append(plan.lead)
            if plan.add is not None:
                plan.add(store, section)
            fill(store, section)
            applicable.append(section)
    return applicable
