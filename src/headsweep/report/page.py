"""The report, one self-contained page that answers questions, and the findings a run prints.

It is rendered from one template with autoescape. Style and script are inlined, images are data
URIs, and a content security policy forbids everything else, so that hostile text remains text and
nothing is fetched.
"""

import base64
import hashlib
import json
from collections.abc import Callable
from functools import partial
from itertools import chain, cycle
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup

from headsweep import __version__, paths
from headsweep.analysis import advice, powers, unlike
from headsweep.analysis.claims import UNDECIDED, UNMEASURED
from headsweep.analysis.facts import LEVEL, Cell, Sentence, Source, record
from headsweep.analysis.gains import GAINS, HEADS
from headsweep.analysis.verdicts import rival, verdicts
from headsweep.config import Config
from headsweep.planning.batches import batches
from headsweep.planning.exhibits import RunFiles
from headsweep.planning.store import Store
from headsweep.planning.titles import title, titles
from headsweep.record import Stopwatch, read_record
from headsweep.report import explorer
from headsweep.report.blocks import Block, Picture, Section, as_printed, bounded, fill, table
from headsweep.report.compressions import compression
from headsweep.report.maps import mapped
from headsweep.report.svg import Chart, Scale
from headsweep.sprint import validation
from headsweep.sprint.methods import BASE, COVER, ORACLE, SPRINT
from headsweep.tables import CURVES, GRADED, write_text

_ASSETS = Path(__file__).with_name("assets")
# Heads and sampling have the colours of the first figure; noise changes as much as a head does.
_FAMILY_COLOURS = {"head": "s0", "sampling": "s1", "noise": "grey"}
_OTHER_COLOURS = ("s3", "s4", "s5")
_OUTCOMES = {
    "pass": "Solved by any of N answers (%)",
    "majority": "Right by the vote of N answers (%)",
}


def curves(config: Config, selector: str) -> dict[str, Markup]:
    """Return charts of Pass@N of a selector and of sampling, by answers and by tokens."""
    rows = Source.read(config, CURVES, selector=selector).rows
    other, most = rival(config, selector)
    rows = rows[rows["n"] <= most].assign(**100 * rows[["pass_at_n", "low", "high"]])
    of = dict(tuple(rows.groupby("method")))
    chosen = {SPRINT: "SPRINT", other: other.replace("=", " = "), COVER: "fixed heads"}
    drawn = {name: of[method] for method, name in chosen.items() if method in of}
    flat = {ORACLE: "all heads", BASE: "one greedy"}
    levels = {flat[each]: of[each]["pass_at_n"].iloc[0] for each in flat if each in of}
    banded = rows[rows["method"].isin([SPRINT, other])]
    ends = [*banded["low"], *banded["high"], *levels.values()]
    y = Scale(min(ends) - 1, max(ends) + 1)
    last = (f"{name} {own['pass_at_n'].iloc[-1]:.1f}%" for name, own in drawn.items())
    test = title(config, "selectors", selector)
    alt = f"Pass@N, {test}: with {most} answers {', '.join(last)}."
    found = {}
    for axis, column in (("answers", "n"), ("tokens", "tokens")):
        x = pd.concat([own[column] for own in drawn.values()])
        chart = Chart(Scale(x.min(), x.max(), log=True), y, 300, alt, ("{:.0f}", "{:.0f}"))
        for name, value in levels.items():
            chart.level(value, f"{name} {value:.1f}")
        for place, (name, own) in enumerate(drawn.items()):
            band = own[[column, "low", "high"]].to_numpy().tolist() if place < 2 else []
            chart.curve(own[[column, "pass_at_n"]].to_numpy().tolist(), name, f"s{place}", band)
        found[axis] = chart.svg()
    return found


def luck(config: Config, section: Section) -> None:
    """Say by how much the best heads' gains exceed what selection alone gives, and how many
    questions would show a small gain.
    """
    for sweep in config.sweeps:
        gains = Source.read(config, paths.CONTROLS, GAINS, sweep=sweep, table="gains")
        known = (gains.where(by="subject") or gains).query("by_chance == by_chance")
        real = known.query(f"q < {LEVEL}")
        said = known.say(
            "{of}. The best head of a subject and layer gains {gain} points on average over "
            "{pairs} pairs; luck alone gives {luck}. {real} pass the corrected test.",
            of=title(config, "sweeps", sweep),
            gain=Cell("gain", "points", over_rows="mean"),
            pairs=Cell("gain", "count", over_rows="count"),
            luck=Cell("by_chance", "points", over_rows="mean"),
            real=real.number("gain", "count", "count") if real else "None",
        )
        section.lead += [said] if known else []
        heads = Source.read(config, paths.CONTROLS, HEADS, sweep=sweep, table="heads")
        tested = heads.query("p == p")  # all but the base model
        section.lead.append(powers.needed(tested, title(config, "sweeps", sweep)))


def sampling(config: Config, section: Section) -> None:
    """Say how many test questions resemble training questions, and last what to do."""
    for name in config.selectors:
        of = title(config, "selectors", name)
        section.lead.append(Sentence("{of}: {said}", of=of, said=_likeness(config, name)))
    for name in config.selectors:
        method, most = rival(config, name)
        section.lead += [advice.of_selector(config, name, method, most)] if method else []


def _likeness(config: Config, selector: str) -> Sentence:
    table = Source.read(config, paths.OVERLAP, validation.LIKENESS, selector=selector)
    known = table.number("resembles", "count", "count")
    if not known.value:
        return Sentence(validation.ALL_UNKNOWN)
    rest = f" {validation.SOME_UNKNOWN}" if known.value < len(table) else ""
    return Sentence(
        validation.LIKE + rest,
        n=known,
        equal=table.number("equal", "percent", "mean"),
        resembling=table.number("resembles", "percent", "mean"),
    )


def look_alikes(config: Config) -> list[tuple[str, Any]]:
    """Return, by title of a selector, which share of its test questions equals a training question
    but for numbers; ``unknown`` without their texts.
    """
    found: list[tuple[str, Any]] = []
    for name, called in titles(config, "selectors").items():
        table = Source.read(config, paths.OVERLAP, validation.LIKENESS, selector=name)
        found.append((called, table.number("equal", "percent", "mean") or "unknown"))
    return found


def families(config: Config, section: Section) -> None:
    """Draw Pass@N and votes of each family against tokens; say what was compared, and last what to
    do.
    """
    for name, frontier in config.frontiers.items():
        table = Source.read(config, paths.FRONTIER, frontier=name, table="families").rows
        said = "{of}: {members} members each, in an order that training questions chose."
        of = title(config, "frontiers", name)
        section.lead.append(Sentence(said, of=of, members=str(frontier.members)))
        curves = Source.read(config, paths.FRONTIER, frontier=name, table="curves")
        called = dict(zip(table["family"], table["title"], strict=True))
        ordered = curves.rows.query("order == 'ordered'")
        by_family = ordered.groupby("family", sort=False)
        x = Scale(ordered["answers"].min(), ordered["answers"].max(), log=True)
        for outcome, what in _OUTCOMES.items():
            share = 100 * ordered[outcome]
            ends = 100 * by_family[outcome].last()
            told = ", ".join(f"{called[family]} {end:.1f}%" for family, end in ends.items())
            alt = f"{what}, {of}: with most answers {told}."
            y = Scale(share.min() - 1, share.max() + 1)
            chart = Chart(x, y, 190, alt, ("{:g}×", "{:.0f}"))
            kinds = cycle(_OTHER_COLOURS)
            for family, own in by_family:
                kind = _FAMILY_COLOURS.get(str(family)) or next(kinds)
                points = own[["answers"]].assign(share=share).to_numpy().tolist()
                chart.curve(points, called[family], kind)
            caption = f"{of}. {what}, by tokens: 1 is one answer of the base model."
            section.blocks.append(Picture(chart.svg(), caption, "half"))
    for name in config.frontiers:
        advised = advice.of_frontier(config, name)
        section.lead += [advised] if advised else []


def published(config: Config, section: Section) -> None:
    """Count the papers' claims that hold, and set published accuracies beside the run's."""
    claims = Source.read(config, paths.CLAIMS, ["claim", "published", "run", "run_why"])
    judged = {
        f"{where}_{verdict}": claims.where(**{where: verdict}).number("claim", "count", "count")
        for where in ("published", "run")
        for verdict in ("holds", "fails")
    }
    said = (
        "Of {claims} claims the papers' own tables bear out {published_holds} and "
        "contradict {published_fails}; this run bears out {run_holds} and contradicts {run_fails}. "
        "{absent} are about what this run does not have; no number decides {undecided}."
    )
    why = claims.rows["run_why"].fillna("")
    judged |= {
        name: claims.of(claims.rows[why == reason]).number("claim", "count", "count")
        for name, reason in (("absent", UNMEASURED.why), ("undecided", UNDECIDED.why))
    }
    every = claims.number("claim", "count", "count")
    section.lead.append(Sentence(said, claims=every, **judged))
    columns = {
        "head": Cell("variant"),
        "questions": Cell("group"),
        "published (%)": Cell("published", "part"),
        "this run (%)": Cell("accuracy", "part"),
        "difference": Cell("difference", "points", "difference_low", "difference_high"),
    }
    for sweep in config.sweeps:
        cells = Source.read(config, paths.TABLE, ["published", "difference"], sweep=sweep)
        both = cells.rows.dropna(subset="difference").sort_values("difference", key=np.abs)
        caption = f"{title(config, 'sweeps', sweep)}, the largest differences first. "
        caption += unlike.of_sweep(config, sweep)
        section.blocks += table(cells.of(both[::-1]), columns, caption, limit=12)


_FAMILIES = "Do pruned heads solve more than other cheap changes, for the same tokens?"
_SAMPLING = "A question counts as solved if any of N answers is right."
_QUESTION = "SPRINT asks the heads nearest to a question. Does it matter which question?"
SECTIONS: dict[str, tuple[str, str, str, Callable[[Config, Section], None] | None]] = {
    "heads": (
        "sweeps maps",
        "Which heads matter?",
        "",
        mapped,
    ),  # and the explorer, in the template
    "luck": ("sweeps", "Is a gain more than luck?", "", luck),
    "sampling": ("selectors", "Does choosing heads beat sampling?", _SAMPLING, sampling),
    "question": ("selectors", "Does the question matter?", _QUESTION, None),
    "families": ("frontiers", "Are heads special?", _FAMILIES, families),
    "compression": ("compressions", "Can heads go for good?", "", compression),
    "published": ("run", "Do the papers' numbers hold?", "", published),
    "trust": ("run", "How far to trust this; how to run it again", "", None),  # likewise
}
"""The sections: the parts of the config of which each needs one, its title, its first sentence, and
what adds to the declared tables."""


def sections(config: Config) -> list[Section]:
    """Return the sections that apply to a run, with their folded blocks."""
    found = []
    for anchor, (needs, heading, lead, more) in SECTIONS.items():
        if any(getattr(config, need) for need in needs.split()):
            section = Section(anchor, heading, [lead] if lead else [])
            if more:
                more(config, section)
            fill(config, section)
            found.append(section)
    return found


def render(template: str, *, script: str = "", data: Markup | None = None, **values: Any) -> str:
    """Return a page from its template in ``assets``.

    Args:
        template: name of the file.
        script: JavaScript, the only one that its content security policy runs; none if empty.
        data: JSON for the script.
        values: what else the template shows.
    """
    how: dict[str, Any] = {"autoescape": True, "trim_blocks": True, "lstrip_blocks": True}
    templates = Environment(loader=FileSystemLoader(_ASSETS), undefined=StrictUndefined, **how)
    templates.filters["sha256"] = _sha256
    return templates.get_template(template).render(
        style=Markup(asset("page.css")), script=Markup(script), data=data, **values
    )


def asset(name: str) -> str:
    """Return a text of ``assets``."""
    return (_ASSETS / name).read_text(encoding="utf-8")


def _sha256(text: str) -> str:
    """Return a text's digest as a content security policy names it."""
    return base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()


def write_report(config: Config) -> None:
    """Write the report of a run, and the findings that the run prints.

    Raises:
        TableError: a table that it shows is missing or damaged.
    """
    stopwatch = Stopwatch()
    store = Store(config)
    shown, printed = sections(config), as_printed(config)
    folds = chain.from_iterable(section.folds.values() for section in shown)
    bounded(chain.from_iterable([*folds, *printed.values()]))
    sweeps = explorer.explored(config)
    told = verdicts(config)
    selectors = titles(config, "selectors")
    charts = [(called, curves(config, name)) for name, called in selectors.items()]
    hero: list[Block] = []
    if not charts and not sweeps:
        hero, shown[0].blocks = shown[0].blocks[:1], shown[0].blocks[1:]
    page = render(
        "page.html",
        script=asset("page.js"),
        data=explorer.script(sweeps) if sweeps else None,
        config=config,
        title=partial(title, config),
        version=__version__,
        verdicts=told,
        charts=charts,
        hero=hero,
        sweeps=sweeps,
        colour=explorer.colour,
        label=explorer.label,
        sections=shown,
        as_printed=printed,
        look_alikes=look_alikes(config),
        versions=_versions(config),
        settings=json.dumps(config.model_dump(mode="json"), indent=1, ensure_ascii=False),
    )
    output, findings = store.path(paths.REPORT), store.path(paths.FINDINGS)
    write_text(output, page)
    write_text(findings, "".join(f"{verdict}\n" for verdict in told))
    record([findings, output], stopwatch, RunFiles(config).judged())


def _versions(config: Config) -> dict[str, str]:
    """Return versions and revisions, from the config and from records of results."""
    store = Store(config)
    made = [store.path(GRADED, **batch.names) for batch in batches(config)]
    made += [store.path(paths.MEASUREMENTS, compression=name) for name in config.compressions]
    facts: dict[str, Any] = {}
    for path in made:
        facts |= read_record(path)
    revisions = {name: each.revision for name, each in (config.models | config.questions).items()}
    commit = {"git commit": facts.get("git_commit") or "none"}
    return facts.get("versions", {}) | commit | {k: v for k, v in revisions.items() if v}
