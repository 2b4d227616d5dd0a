"""The page's sections: the unfolded blocks that answer each question."""

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from markupsafe import Markup

from headroom import paths
from headroom.analysis.compression.findings import NOTABLE
from headroom.analysis.compression.trial import METHOD, label
from headroom.analysis.controls import GAINS, LEVEL
from headroom.analysis.facts import Sentence, Source
from headroom.analysis.text import plain, short
from headroom.analysis.verdicts import best_sampling, tested_on, title
from headroom.config import Config
from headroom.planning.batches import batches
from headroom.planning.store import Store
from headroom.record import read_record
from headroom.report.blocks import Block, Images, Picture, Section, Table, marks, table
from headroom.report.folds import folded, of_sweep
from headroom.report.svg import Chart, Line, Scale
from headroom.sprint import matching, methods
from headroom.sprint.evaluation import DIVERSITY, PAIRED
from headroom.sprint.methods import COVER, ORACLE, SPRINT
from headroom.tables import CURVES, read_table

_CLIP = 0.15
"""Gains beyond this are drawn as arrows."""
_LAYERS = 12
"""How many layers of a sweep are shown unfolded."""
_ROWS = 8
"""How many arms of all compressions are shown unfolded; at least two of each."""

_READING = (
    "The best head of a layer, in points over the whole model: ○ as picked, ● on held-out "
    "questions with 95% interval; ◇ best placebo, | luck alone."
)
_NAMES = {
    METHOD: "{ratio} gone, taught",
    "pruning_only": "{ratio} gone, no teacher",
    "trained_on": "nothing gone, trained on",
}
"""Names of arms on the page, the most informative first; others go by their ratio or name."""


def curves(config: Config, selector: str) -> dict[str, Markup]:
    """Return charts of Pass@N of a selector and of sampling, by answers and by tokens."""
    rows = read_table(Path(paths.CURVES.format(run=config.run, selector=selector)), CURVES)
    sampling, most = best_sampling(config, selector)
    rows = rows[rows["n"] <= most]
    chosen = {SPRINT: "SPRINT", sampling: sampling.replace("=", " = "), COVER: "fixed heads"}
    drawn = {each: own for each in chosen if len(own := rows[rows["method"] == each])}
    flat = {ORACLE: "all heads", methods.BASE: "one greedy"}
    first = rows[rows["n"] == 1].set_index("method")["pass_at_n"]
    levels = {flat[each]: 100 * float(first[each]) for each in flat if each in first}
    banded = rows[rows["method"].isin([SPRINT, sampling])]
    values = [*100 * banded["low"], *100 * banded["high"], *levels.values()]
    y = Scale(min(values) - 1, max(values) + 1)
    ends = [f"{chosen[each]} {100 * own['pass_at_n'].iloc[-1]:.1f}%" for each, own in drawn.items()]
    test = title(config, config.selectors[selector].test)
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


def heads(config: Config) -> Section:
    """Return the explorer's section, which the template fills."""
    return Section("heads", "Which heads matter?")


def luck(config: Config) -> Section:
    """Return the section on whether the best head's gain exceeds what selection alone gives."""
    lead: list[Sentence] = []
    blocks: list[Block] = []
    for sweep in config.sweeps:
        gains = Source.read(config, paths.CONTROLS, GAINS, sweep=sweep, table="gains")
        overall, subjects = gains.where(by="overall"), gains.where(by="subject")
        pairs = subjects if len(subjects) else overall
        known = pairs.of(pairs.rows.dropna(subset="by_chance"))
        real = known.of(known.rows[known.rows["q"] < LEVEL])
        of = of_sweep(config, sweep)
        if len(known):
            lead.append(
                Sentence(
                    "{of} The best head of a subject and layer gains {gain} points on average over "
                    "{n} pairs; luck alone gives {luck}. {real} pass the corrected test.",
                    of=of,
                    n=known.number("gain", "count", "count"),
                    gain=known.number("gain", "points", "mean"),
                    luck=known.number("by_chance", "points", "mean"),
                    real=real.number("gain", "count", "count") if len(real) else "None",
                )
            )
        shown = overall.of(overall.rows.nlargest(_LAYERS, "held_out").sort_values("layer"))
        blocks += marks(
            shown,
            lambda row: Sentence("Layer {layer}", layer=row.number("layer", "count")),
            {"bar": "by_chance", "diamond": "placebo", "ring": "gain", "dot": "held_out"},
            ("low", "high"),
            {"held out": "held_out points low high"},
            of if blocks else f"{of} {_READING}",
            clip=_CLIP,
        )
    return Section("luck", "Is a gain more than luck?", lead, blocks)


def sampling(config: Config) -> Section:
    """Return the section on whether choosing heads beats sampling answers."""
    apart, voted, cost = [], [], []
    for name, section in config.selectors.items():
        names = {"selector": name}
        of, (method, most) = title(config, section.test), best_sampling(config, name)
        tokens = Source.read(config, paths.CURVES, **names).rows.pivot(
            index="method", columns="n", values="tokens"
        )
        # Where a method has fewer answers, the last one adds no tokens.
        many = tokens.index[tokens[most] > tokens.get(most - 1, 0)]
        paired = Source.read(config, paths.PAIRED, PAIRED, **names).where(n=most)
        equal = paired.of(paired.rows[paired.rows["method"].isin(many)])
        said = f"{of}. SPRINT with {most} answers minus each method with as many, Pass@N."
        apart += _differences(equal, "method", said)
        votes = Source.read(config, paths.VOTES, PAIRED, **names).where(n=most)
        said = f"{of}. One answer, by the vote of SPRINT's {most}, minus each."
        voted += _differences(votes, "method", said)
        spent = Source.read(config, paths.DIVERSITY, DIVERSITY, **names).where(n=most)
        kept = spent.rows["method"].isin([SPRINT, COVER, method, methods.BASE])
        columns = {
            "method": "method",
            "solved (%)": "pass_at_n part",
            "distinct answers": "distinct_answers ratio",
            "tokens generated": "tokens count",
            "computed": "computed count",
        }
        cost += table(
            spent.of(spent.rows[kept]), columns, f"{of}. What {most} answers cost a question."
        )
    lead = ["A question counts as solved if any of N answers is right."]
    return Section("sampling", "Does choosing heads beat sampling?", lead, [*apart, *voted, *cost])


def question(config: Config) -> Section:
    """Return the section on whether knowing the question helps to choose heads."""
    blocks = []
    for name, section in config.selectors.items():
        found = Source.read(config, paths.EMBEDDING_VALUE, matching.COLUMNS, selector=name)
        found = found.where(n=matching.MEAN, method=SPRINT, questions="test", pool=matching.ALL)
        of = title(config, section.test)
        said = f"{of}. SPRINT minus each that ignores the question, mean of Pass@N."
        blocks += _differences(found, "against", said)
    lead = ["SPRINT asks the heads nearest to a question. Does it matter which question?"]
    return Section("question", "Does the question matter?", lead, blocks)


def _differences(rows: Source, of: str, caption: str) -> list[Block]:
    columns = {"difference": "difference points low high"}
    return marks(rows, of, {"sign": "difference"}, ("low", "high"), columns, caption)


def compression(config: Config) -> Section:
    """Return the section on whether heads can be removed for good."""
    pruned = [each for name in config.compressions for each in _pruned(config, name)]
    names = {row: f"{place}. {name}" for place, (name, row) in enumerate(pruned, start=1)}
    rows = marks(
        names,
        names.__getitem__,
        {"sign": "change"},
        ("change_low", "change_high"),
        {
            "change of accuracy": "change points change_low change_high",
            "heads gone": "heads_removed count",
            "of": "heads count",
            "parameters saved": "whole_removed percent",
            "test time": "test_time ratio test_time_low test_time_high",
        },
        "Against the unpruned model; its test time is 1.",
    )
    chart = _against_time([row for _, row in pruned])
    return Section("compression", "Can heads go for good?", [*_longer(config)], [*chart, *rows])


def _bits(row: Source) -> bool:
    return bool(row.first.get("quantised", False))


def _pruned(config: Config, name: str) -> list[tuple[str, Source]]:
    """Return the arms of a compression to show, with names, the most informative first."""
    found: dict[tuple[str, bool], Source] = {}
    for exhibit in ("table4", "table1", "quantisation"):
        tested = Source.read(config, paths.COMPRESSION_TABLE, exhibit=exhibit)
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


def _longer(config: Config) -> Iterator[Sentence]:
    """Yield what models pruned without a teacher, but trained longer, gain over the unpruned."""
    table4, cost = (
        Source.read(config, paths.COMPRESSION_TABLE, exhibit=each) for each in ("table4", "cost")
    )
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


def published(config: Config) -> Section:
    """Return the section on whether the papers' own numbers hold."""
    audit = Source.read(config, paths.AUDIT_TABLE, ["exhibit"], paper="sprint")
    blocks = marks(
        audit,
        lambda row: f"{row.first['exhibit']}: {short(row.first['model'], 28)}",
        {"bar": "by_chance", "dot": "gain"},
        ("chance_low", "chance_high"),
        {
            "published": "gain points",
            "luck alone": "by_chance points chance_low chance_high",
            "beyond luck": "beyond count",
            "of": "pairs count",
        },
        "SPRINT's median gain of a best head, in points: ● as published; line and | luck alone.",
    )
    cuts = Source.read(config, paths.AUDIT_TABLE, ["ratio"], paper="compression")
    for column, what in (("parameters", "parameters"), ("speedup", "speed")):
        most = f"{column}_at_most"
        blocks += marks(
            cuts,
            lambda row: f"{row.first['model']}, {row.first['dataset']}, {row.first['ratio']:g}%",
            {"ring": most, "dot": column},
            (most, column),
            {"published": f"{column} part_of_100", "possible": f"{most} part_of_100"},
            f"Second paper, {what} saved in percent: ● as published, ○ the most that arithmetic "
            "allows for the heads removed.",
            form="{:.1f}".format,
        )
    lead, folds = [], {}
    if Path(paths.CLAIMS.format(run=config.run, suffix="csv")).exists():
        claims = Source.read(config, paths.CLAIMS, ["claim", "published", "run"])
        judged = {
            f"{where}_{verdict}": claims.where(**{where: verdict})
            for where in ("published", "run")
            for verdict in ("holds", "fails")
        }
        lead.append(
            Sentence(
                "Of {all} claims the papers' own tables bear out {published_holds} and contradict "
                "{published_fails}; this run bears out {run_holds} and contradicts {run_fails}. No "
                "number decides the others.",
                all=claims.number("claim", "count", "count"),
                **{name: own.number("claim", "count", "count") for name, own in judged.items()},
            )
        )
        columns = {"paper": "paper", "claim": "claim", "said": "value", "in the paper": "published"}
        columns |= {"because": "published_why", "in this run": "run", "because ": "run_why"}
        decided = sorted({row for own in judged.values() for row in own.rows.index})
        folds["Every claim that a number decides"] = table(
            claims.of(claims.rows.loc[decided]), columns
        )
    for sweep in config.sweeps:
        blocks += _reproduced(config, sweep)
    return Section("published", "Do the papers' numbers hold?", lead, blocks, folds)


def _reproduced(config: Config, sweep: str) -> list[Block]:
    """Return published accuracies beside those of a sweep, for the cells that both have."""
    cells = Source.read(config, paths.TABLE, ["published", "difference"], sweep=sweep)
    both = cells.rows.dropna(subset="difference").sort_values("difference", key=np.abs)
    columns = {
        "head": "variant",
        "questions": "group",
        "published (%)": "published part",
        "this run (%)": "accuracy part",
        "difference": "difference points difference_low difference_high",
    }
    said = f"{of_sweep(config, sweep)} Published beside reproduced, the largest differences first."
    return table(cells.of(both[::-1]), columns, said, limit=12)


def trust(config: Config) -> Section:
    """Return the section on what the run's numbers rest on and how to reproduce them."""
    small = all(model.billions < 0.1 for model in config.models.values())
    seeds = [f"{len(each.seeds)} a selector" for each in config.selectors.values()]
    seeds += [f"{len(each.seeds)} a compression" for each in config.compressions.values()]
    asked = [
        f"{title(config, name)} {each.split}: {each.n or 'all'}"
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
    facts = Table(["", ""], [row for row in rows if row[1]], kind="facts")
    settings = json.dumps(config.model_dump(mode="json"), indent=1, ensure_ascii=False)
    shown = Picture(Markup("<pre>{}</pre>").format(settings), kind="text")
    folds: dict[str, list[Block]] = {
        "Versions and revisions": [_versions(config)],
        "Settings": [shown],
    }
    return Section("trust", "How far to trust this; how to run it again", (), [facts], folds)


def _model(config: Config, name: str) -> str:
    model = config.models[name]
    return f"{short(name, 40)}, {model.layers} layers of {model.heads} heads, {model.dtype}"


def _versions(config: Config) -> Table:
    """Return versions and revisions, from the config and from records of graded answers."""
    store = Store(config)
    facts: dict[str, Any] = {}
    for batch in batches(config):
        facts |= read_record(store.path(paths.GRADED, **batch.names))
    for name in config.compressions:
        path = paths.MEASUREMENTS.format(run=config.run, compression=name)
        facts |= read_record(Path(path))
    rows = [*facts.get("versions", {}).items(), ("git commit", facts.get("git_commit") or "none")]
    revisions = {name: each.revision for name, each in config.models.items()}
    revisions |= {name: each.revision for name, each in config.questions.items()}
    rows += [(plain(name), revision) for name, revision in revisions.items() if revision]
    return Table(["what", "version or revision"], rows)


SECTIONS: tuple[tuple[Callable[[Config], Section], str], ...] = (
    (heads, "sweeps"),
    (luck, "sweeps"),
    (sampling, "selectors"),
    (question, "selectors"),
    (compression, "compressions"),
    (published, "run"),
    (trust, "run"),
)
"""The sections, each with the part of the config that it needs."""


def sections(config: Config, images: Images) -> list[Section]:
    """Return the sections that apply to a run, with their folded blocks."""
    found = [make(config) for make, needs in SECTIONS if getattr(config, needs)]
    for section in found:
        section.folds = folded(config, images, section.anchor) | section.folds
    return found
