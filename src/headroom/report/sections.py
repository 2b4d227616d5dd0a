"""The page's sections: the unfolded blocks that answer each question."""

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from markupsafe import Markup

from headroom import paths
from headroom.analysis.compression.tables import NOTABLE
from headroom.analysis.compression.trial import METHOD, label
from headroom.analysis.controls import GAINS, LEVEL
from headroom.analysis.facts import Sentence, Source, columns
from headroom.analysis.text import plain
from headroom.analysis.verdicts import rival, tested_on, title
from headroom.config import Config
from headroom.planning.batches import batches
from headroom.planning.store import Store
from headroom.record import read_record
from headroom.report.blocks import Block, Images, Picture, Section, Table, marks, table
from headroom.report.svg import Chart, Line, Scale
from headroom.report.tables import fill, of_sweep
from headroom.sprint import methods
from headroom.sprint.methods import COVER, ORACLE, SPRINT
from headroom.tables import CURVES, read_table

_ROWS = 8
"""How many arms of all compressions are shown unfolded; at least two of each."""

_NAMES = {
    METHOD: "{ratio} gone, taught",
    "pruning_only": "{ratio} gone, no teacher",
    "trained_on": "nothing gone, trained on",
}
"""Names of arms on the page, the most informative first; others go by their ratio or name."""


def curves(config: Config, selector: str) -> dict[str, Markup]:
    """Return charts of Pass@N of a selector and of sampling, by answers and by tokens."""
    rows = read_table(Path(paths.CURVES.format(run=config.run, selector=selector)), CURVES)
    other, most = rival(config, selector)
    rows = rows[rows["n"] <= most]
    chosen = {SPRINT: "SPRINT", other: other.replace("=", " = "), COVER: "fixed heads"}
    drawn = {each: own for each in chosen if len(own := rows[rows["method"] == each])}
    flat = {ORACLE: "all heads", methods.BASE: "one greedy"}
    first = rows[rows["n"] == 1].set_index("method")["pass_at_n"]
    levels = {flat[each]: 100 * float(first[each]) for each in flat if each in first}
    banded = rows[rows["method"].isin([SPRINT, other])]
    values = [*100 * banded["low"], *100 * banded["high"], *levels.values()]
    y = Scale(min(values) - 1, max(values) + 1)
    ends = [f"{chosen[each]} {100 * own['pass_at_n'].iloc[-1]:.1f}%" for each, own in drawn.items()]
    test = title(config, "selectors", selector)
    alt = f"Pass@N, {test}: with {most} answers {', '.join(ends)}."
    found = {}
    for axis, column in (("answers", "n"), ("tokens", "tokens")):
        x = [value for own in drawn.values() for value in own[column]]
        chart = Chart(Scale(min(x), max(x), log=True), y, 300, alt, ("{:.0f}", "{:.0f}"))
        for name, value in levels.items():
            chart.level(value, f"{name} {value:.1f}")
        lines = []
        for place, (each, own) in enumerate(drawn.items()):
            points = own[[column, "pass_at_n", "low", "high"]].mul([1, 100, 100, 100]).to_numpy()
            band = points[:, [0, 2, 3]].tolist() if place < 2 else []
            lines.append(Line(chosen[each], f"s{place}", points[:, :2].tolist(), band))
        chart.lines(lines)
        found[axis] = chart.svg()
    return found


def luck(config: Config, section: Section) -> None:
    """Say by how much the best heads' gains exceed what selection alone gives."""
    for sweep in config.sweeps:
        gains = Source.read(config, paths.CONTROLS, GAINS, sweep=sweep, table="gains")
        pairs = gains.where(by="subject") if (gains.rows["by"] == "subject").any() else gains
        known = pairs.of(pairs.rows.dropna(subset="by_chance"))
        if len(known):
            real = known.of(known.rows[known.rows["q"] < LEVEL])
            section.lead.append(
                Sentence(
                    "{of}. The best head of a subject and layer gains {gain} points on average "
                    "over {n} pairs; luck alone gives {luck}. {real} pass the corrected test.",
                    of=of_sweep(config, sweep),
                    n=known.number("gain", "count", "count"),
                    gain=known.number("gain", "points", "mean"),
                    luck=known.number("by_chance", "points", "mean"),
                    real=real.number("gain", "count", "count") if len(real) else "None",
                )
            )


def compression(config: Config, section: Section) -> None:
    """Show what removing heads for good costs, and saves."""
    pruned = [each for name in config.compressions for each in _pruned(config, name)]
    names = {row: f"{place}. {name}" for place, (name, row) in enumerate(pruned, start=1)}
    rows = marks(
        names,
        names.__getitem__,
        {"sign": "change"},
        ("change_low", "change_high"),
        columns(
            "change of accuracy=change points change_low change_high, heads gone=heads_removed "
            "count, of=heads count, parameters saved=whole_removed percent, "
            "test time=test_time ratio test_time_low test_time_high"
        ),
        "Against the unpruned model; its test time is 1.",
    )
    section.lead += _longer(config)
    section.blocks += [*_against_time([row for _, row in pruned]), *rows]


def _bits(row: Source) -> bool:
    return bool(row.first.get("quantised", False))


def _pruned(config: Config, name: str) -> list[tuple[str, Source]]:
    """Return the arms of a compression to show, with names, the most informative first."""
    found: dict[tuple[str, bool], Source] = {}
    for exhibit in ("table4", "table1", "quantisation"):
        tested = _table(config, exhibit)
        for row in tested.where(compression=name):
            if not pd.isna(row.first["change"]):
                found.setdefault((row.first["arm"], _bits(row)), row)
    order = [*_NAMES]
    keys = sorted(found, key=lambda key: (key[1], order.index(key[0]) if key[0] in order else 9))
    named = []
    for arm, bits in keys[: max(2, _ROWS // len(config.compressions))]:
        ratio = f"{100 * config.compressions[name].settings[arm].ratio:g}%"
        own = _NAMES.get(arm, label(arm) if "ratio" not in arm else "{ratio} gone")
        text = f"{tested_on(config, name)}: {own.format(ratio=ratio)}{', 8 bits' * bits}"
        named.append((text, found[arm, bits]))
    return named


def _table(config: Config, exhibit: str) -> Source:
    return Source.read(config, paths.COMPRESSION_TABLE, exhibit=exhibit)


def _longer(config: Config) -> Iterator[Sentence]:
    """Yield what models pruned without a teacher, but trained longer, gain over the unpruned."""
    table4, cost = _table(config, "table4"), _table(config, "cost")
    for row in table4.where(arm="pruning_only"):
        of = {"compression": row.first["compression"]}
        spent, other = cost.where(**of, arm="pruning_only"), table4.where(**of, arm="trained_on")
        if row.first["change_low"] <= 0 or not len(spent):
            continue
        said = (
            "{of}: pruned without a teacher it gains {change} points, but it trained {epochs} "
            "epochs longer than the unpruned model"
        )
        parts: dict[str, Any] = {"epochs": spent.number("epochs", "count")}
        if len(other):
            said += "; as long with nothing pruned it gains {other}"
            parts["other"] = other.number("change", "points")
        change = row.number("change", "points")
        yield Sentence(said + ".", of=tested_on(config, of["compression"]), change=change, **parts)


def _against_time(pruned: list[Source]) -> list[Block]:
    """Return a chart of the change of accuracy against the time of the whole test."""
    timed = [(place, row) for place, row in enumerate(pruned, 1) if row.number("test_time")]
    if not timed:
        return []
    ends = [end for _, row in timed for end in 100 * row.first[["change_low", "change_high"]]]
    times = [1.0, *(row.first["test_time"] for _, row in timed)]
    x, y = Scale(min(times) - 0.05, max(times) + 0.05), Scale.over([-100 * NOTABLE, *ends])
    changes = ", ".join(f"{place}: {100 * row.first['change']:+.1f}" for place, row in timed)
    alt = f"Change of accuracy in points against test time: {changes}."
    chart = Chart(x, y, 280, alt, ("{:.2g}×", "{:g}"))
    for place, row in timed:
        low, high = 100 * row.first["change_low"], 100 * row.first["change_high"]
        way = "up" if low > 0 else "down" if high < 0 else "none"
        kind = f"{'ring' if _bits(row) else 'dot'} {way}"
        change, time = 100 * row.first["change"], row.first["test_time"]
        chart.point(time, change, kind, str(place), (low, high))
    chart.level(-100 * NOTABLE, "−1.5")
    caption = (
        "Change of accuracy in points, with 95% interval, against the time of the whole test. "
        "Dashed: a loss of 1.5 points. Hollow: weights of eight bits. Numbers: rows below."
    )
    return [Picture(chart.svg(aside=False), caption)]


def published(config: Config, section: Section) -> None:
    """Count the papers' claims that hold, and set published accuracies beside the run's."""
    claims = Source.read(config, paths.CLAIMS, ["claim", "published", "run"])
    judged = {
        f"{where}_{verdict}": claims.where(**{where: verdict}).number("claim", "count", "count")
        for where in ("published", "run")
        for verdict in ("holds", "fails")
    }
    said = Sentence(
        "Of {all} claims the papers' own tables bear out {published_holds} and contradict "
        "{published_fails}; this run bears out {run_holds} and contradicts {run_fails}. No number "
        "decides the others.",
        all=claims.number("claim", "count", "count"),
        **judged,
    )
    section.lead.append(said)
    section.blocks += [each for sweep in config.sweeps for each in _reproduced(config, sweep)]


def _reproduced(config: Config, sweep: str) -> list[Block]:
    """Return published accuracies beside those of a sweep, for the cells that both have."""
    cells = Source.read(config, paths.TABLE, ["published", "difference"], sweep=sweep)
    both = cells.rows.dropna(subset="difference").sort_values("difference", key=np.abs)
    shown = columns(
        "head=variant, questions=group, published (%)=published part, this run (%)=accuracy part, "
        "difference=difference points difference_low difference_high"
    )
    prompt = config.decodings[config.sweeps[sweep].decoding].prompt
    said = (
        f"{of_sweep(config, sweep)}. Published under the authors' prompt and grading, reproduced "
        f"under prompt {prompt}, grading {config.grading_of(sweep)}; the largest differences first."
    )
    return table(cells.of(both[::-1]), shown, said, limit=12)


def trust(config: Config, section: Section) -> None:
    """State what the run's numbers rest on and how to reproduce them."""
    small = all(model.billions < 0.1 for model in config.models.values())
    seeds = [f"{len(each.seeds)} a selector" for each in config.selectors.values()]
    seeds += [f"{len(each.seeds)} a compression" for each in config.compressions.values()]
    asked = [
        f"{title(config, 'questions', name)} {each.split}: {each.n or 'all'}"
        for name, each in config.questions.items()
    ]
    toy = "A toy model on generated questions: nothing here carries over to large ones. " * small
    code = Markup("<code>snakemake --cores 2 --configfile results/{}/config.json</code>")
    rows = [
        ["Models", "; ".join(_model(config, name) for name in config.models)],
        ["Questions", ", ".join(asked)],
        ["Seeds", ", ".join(dict.fromkeys(seeds))],
        ["Intervals", "95%, paired by question; corrected for many tests only where q is shown."],
        ["Limits", f"{toy}One run on one machine; answers at near-ties turn with numerics."],
        ["Again", code.format(config.run)],
    ]
    section.blocks.append(Table(["", ""], [row for row in rows if row[1]], kind="facts"))
    settings = json.dumps(config.model_dump(mode="json"), indent=1, ensure_ascii=False)
    shown = Picture(Markup("<pre>{}</pre>").format(settings), kind="text")
    section.folds |= {"Versions and revisions": [_versions(config)], "Settings": [shown]}


def _model(config: Config, name: str) -> str:
    model = config.models[name]
    shape = f"{model.layers} layers of {model.heads} heads, {model.dtype}"
    return f"{title(config, 'models', name)}, {shape}"


def _versions(config: Config) -> Table:
    """Return versions and revisions, from the config and from records of graded answers."""
    store = Store(config)
    made = [store.path(paths.GRADED, **batch.names) for batch in batches(config)]
    made += [store.path(paths.MEASUREMENTS, compression=name) for name in config.compressions]
    facts: dict[str, Any] = {}
    for path in made:
        facts |= read_record(path)
    rows = [*facts.get("versions", {}).items(), ("git commit", facts.get("git_commit") or "none")]
    revisions = {name: each.revision for name, each in config.models.items()}
    revisions |= {name: each.revision for name, each in config.questions.items()}
    rows += [(plain(name), revision) for name, revision in revisions.items() if revision]
    return Table(["what", "version or revision"], rows)


_SAMPLING = "A question counts as solved if any of N answers is right."
_QUESTION = "SPRINT asks the heads nearest to a question. Does it matter which question?"

SECTIONS: dict[str, tuple[str, str, str, Callable[[Config, Section], None] | None]] = {
    "heads": ("sweeps", "Which heads matter?", "", None),  # the explorer, in the template
    "luck": ("sweeps", "Is a gain more than luck?", "", luck),
    "sampling": ("selectors", "Does choosing heads beat sampling?", _SAMPLING, None),
    "question": ("selectors", "Does the question matter?", _QUESTION, None),
    "compression": ("compressions", "Can heads go for good?", "", compression),
    "published": ("run", "Do the papers' numbers hold?", "", published),
    "trust": ("run", "How far to trust this; how to run it again", "", trust),
}
"""The sections: the part of the config that each needs, its title, its first sentence, and what
adds to the declared tables."""


def sections(config: Config, images: Images) -> list[Section]:
    """Return the sections that apply to a run, with their folded blocks."""
    found = []
    for anchor, (needs, heading, lead, more) in SECTIONS.items():
        if getattr(config, needs):
            section = Section(anchor, heading, [lead] if lead else [])
            if more:
                more(config, section)
            fill(config, images, section)
            found.append(section)
    return found
