"""What the page says of a sweep and of choosing heads, question by question."""

from collections.abc import Mapping
from pathlib import Path

import pandas as pd
from markupsafe import Markup

from headroom import paths
from headroom.analysis.controls import GAINS, HEADS, LEVEL, SPREAD
from headroom.analysis.facts import Said, Source
from headroom.analysis.text import short
from headroom.analysis.verdicts import best_sampling, title
from headroom.config import Config
from headroom.planning.shown import Shown
from headroom.report.blocks import (
    Images,
    Picture,
    Section,
    Table,
    as_it_is,
    interval,
    join,
    numbers,
    table,
)
from headroom.report.svg import Chart, Line, Scale, ruler, strip
from headroom.sprint import choosing, evaluation, matching, methods
from headroom.sprint.methods import COVER, ORACLE, SPRINT
from headroom.tables import CURVES, read_table

_CLIP = 0.15
"""Gains beyond this are drawn as arrows."""
_LAYERS = 12
"""Layers of a sweep that are shown unfolded."""
_POWERS = (1, 2, 4, 8, 16)


def curves(config: Config, selector: str) -> Mapping[str, Markup]:
    """Return Pass@N of a selector beside sampling, by answers and by tokens."""
    rows = read_table(Path(paths.CURVES.format(run=config.run, selector=selector)), CURVES)
    sampling, most = best_sampling(config, selector)
    rows = rows[rows["n"] <= most]
    chosen = {SPRINT: "SPRINT", sampling: sampling.replace("=", " = "), COVER: "fixed heads"}
    flat = {ORACLE: "all heads", methods.BASE: "one greedy"}
    there = set(rows["method"])
    drawn = {method: rows[rows["method"] == method] for method in chosen if method in there}
    levels = {method: rows[rows["method"] == method].iloc[0] for method in flat if method in there}
    banded = rows[rows["method"].isin([SPRINT, sampling])]
    values = [*banded["low"], *banded["high"], *(row["pass_at_n"] for row in levels.values())]
    y = Scale(100 * min(values) - 1, 100 * max(values) + 1)
    alt = (
        f"Pass@N on {title(config, config.selectors[selector].test)} questions, up to {most} "
        "answers: " + ", ".join(
            f"{chosen[method]} rises to {100 * own['pass_at_n'].iloc[-1]:.1f}%"
            for method, own in drawn.items()
        )
    )
    found = {}
    for axis, column in (("answers", "n"), ("tokens", "tokens")):
        ends = [value for own in drawn.values() for value in own[column]]
        chart = Chart(Scale(min(ends), max(ends), log=True), y, 300, alt, ("{:.0f}", "{:.0f}"))
        for method, row in levels.items():
            chart.level(100 * row["pass_at_n"], f"{flat[method]} {100 * row['pass_at_n']:.1f}")
        chart.lines(
            [
                Line(
                    chosen[method],
                    f"s{number}",
                    [(x, 100 * value) for x, value in zip(own[column], own["pass_at_n"], strict=True)],
                    [
                        (x, 100 * low, 100 * high)
                        for x, low, high in zip(own[column], own["low"], own["high"], strict=True)
                    ]
                    if number < 2
                    else [],
                )
                for number, (method, own) in enumerate(drawn.items())
            ]
        )
        found[axis] = chart.svg()
    return found


def heads(config: Config, images: Images) -> Section:
    """Return what folds away below the explorer: every head, and how those that hurt fail."""
    every, failing = [], []
    for sweep in config.sweeps:
        names = {"sweep": sweep, "table": "heads"}
        own = Source.read(config, paths.CONTROLS, HEADS, **names)
        columns = {
            "head": "variant",
            **numbers("part", **{"right (%)": "accuracy"}),
            "gain": interval("gain", low="low", high="high"),
            **numbers("count", won="gained", lost="lost"),
            **numbers("p", q="q"),
            **numbers("part", **{"no answer (%)": "no_answer", "cut off (%)": "truncated"}),
            **numbers("plain", tokens="tokens"),
        }
        every.append(table(own, columns, _of(config, sweep)))
        failed = Source.read(
            config, paths.CONTROLS, ["mode"], sweep=sweep, table="failures"
        )
        failing.append(
            table(
                failed.of(failed.rows.iloc[1:]),
                {
                    "head": "variant",
                    **numbers("points", "gain"),
                    "most fail by": "mode",
                    **numbers("part", **{"of what it loses (%)": "mode_share"}),
                    **numbers("part", **{"ends in a loop (%)": "loops"}),
                    **numbers("part", **{"share of the norm (%)": "norm_share"}),
                    **numbers("count", **{"rank in its layer": "norm_rank"}),
                },
                _of(config, sweep),
            )
        )
    folds = {"Every head": _there(every), "How heads that hurt fail": _there(failing)}
    return Section("heads", "Which heads matter?", [], [], folds)


def luck(config: Config, images: Images) -> Section:
    """Return whether a best head's gain is more than the luck of the best of many."""
    lead, blocks, rows, spread = [], [], [], []
    for sweep in config.sweeps:
        gains = Source.read(config, paths.CONTROLS, GAINS, sweep=sweep, table="gains")
        overall = gains.where(by="overall")
        subjects = gains.where(by="subject")
        pairs = subjects if len(subjects) else overall
        known = pairs.of(pairs.rows.dropna(subset="by_chance"))
        real = known.of(known.rows[known.rows["q"] < LEVEL])
        if len(known):
            lead.append(
                Said(
                    "{of}The best head of a subject and layer gains {gain} points on average over {n} "
                    "pairs; luck alone gives {luck}. {real} pass the corrected test.",
                    of=Said("{name}: ", name=_of(config, sweep)[:-1]) if len(config.sweeps) > 1 else "",
                    n=known.number("gain", "count", "count"),
                    gain=known.number("gain", "points", "mean"),
                    luck=known.number("by_chance", "points", "mean"),
                    real=real.number("gain", "count", "count") if len(real) else "None",
                )
            )
        shown = overall.of(overall.rows.nlargest(_LAYERS, "held_out").sort_values("layer"))
        blocks.append(_luck_rows(shown, _of(config, sweep)))
        columns = {
            "questions": "group",
            **numbers("count", "layer", "n"),
            **numbers("points", **{"best head": "gain", "by luck": "by_chance"}),
            **numbers("p", q="q"),
            **numbers("points", "placebo"),
            "held out": interval("held_out", low="low", high="high"),
        }
        rows.append(table(gains, columns, _of(config, sweep), limit=100))
        between = Source.read(config, paths.CONTROLS, SPREAD, sweep=sweep, table="spread")
        between.rows["of"] = between.rows["of"].str.replace("do not surely hurt", "are not shown to hurt")
        spread.append(
            table(
                between,
                {
                    "between": "of",
                    **numbers("count", "heads"),
                    **numbers("points", spread="spread", noise="noise", left="component"),
                    **numbers("p", p="p"),
                },
                "Standard deviations in points: observed, of equal heads, what is left.",
            )
        )
        placebos = Source.read(config, paths.CONTROLS, ["kind"], sweep=sweep, table="placebos")
        changes = numbers("part", **{"answers changed (%)": "changed", "verdicts (%)": "outcome"})
        spread.append(
            table(
                placebos,
                {"pruned or placebo": "kind", **numbers("count", "layer", "variants"), **changes}
                | numbers("points", **{"mean gain": "gain", "best gain": "best"}),
                "What placebos change.",
            )
        )
    folds = {
        "Gains by subject, level and layer": _there(rows),
        "Spread between heads, and placebos": _there(spread),
        "Gain by difficulty": images.of("levels"),
    }
    return Section("luck", "Is a gain more than luck?", lead, _there(blocks), folds)


def _luck_rows(gains: Source, caption: object) -> Table | None:
    columns = ("gain", "held_out", "low", "high", "placebo", "by_chance")
    scale = Scale.over(gains.rows[list(columns)].to_numpy().ravel(), _CLIP)

    def drawn(row: Source) -> Markup:
        own = row.first
        marks = {"bar": own["by_chance"], "diamond": own["placebo"], "ring": own["gain"]}
        return strip(scale, marks | {"dot": own["held_out"]}, (own["low"], own["high"]))

    found = table(
        gains,
        {
            "layer": lambda row: Said("{layer}", layer=row.number("layer", "count")),
            "points": drawn,
            "held out": interval("held_out", low="low", high="high"),
        },
        join(
            [
                caption,
                Markup("The best head of a layer: ○ as picked, ● on held-out questions with 95% interval; ")
                + Markup("◇ best placebo, | luck alone."),
            ]
        ),
    )
    if found:
        found.foot, found.kind = ("", ruler(scale), ""), "strips"
    return found


def sampling(config: Config, images: Images) -> Section:
    """Return whether choosing heads beats sampling answers."""
    apart, voted, cost, curves, votes, trials = [], [], [], [], [], []
    for name, section in config.selectors.items():
        of = f"{title(config, section.test)} questions."
        method, most = best_sampling(config, name)
        paired = Source.read(config, paths.PAIRED, evaluation.PAIRED, selector=name)
        curve = Source.read(config, paths.CURVES, selector=name)
        at = paired.where(n=most)
        at = at.of(at.rows[at.rows["method"].isin(_of_many(curve.rows, most))])
        said = Said(
            "{of} SPRINT with {n} answers minus each method: points and 95% interval.",
            of=of,
            n=at.number("n", "count"),
        )
        apart.append(differences(at, "method", said))
        voted_on = Source.read(config, paths.VOTES, evaluation.PAIRED, selector=name).where(n=most)
        said = Said("{of} One answer, by the vote of SPRINT's {n}, minus each.", of=of, n=most)
        voted.append(differences(voted_on, "method", said))
        measured = Source.read(config, paths.DIVERSITY, evaluation.DIVERSITY, selector=name)
        at = measured.where(n=most)
        kept = at.rows["method"].isin([SPRINT, COVER, method, methods.BASE])
        columns = {"method": "method"} | numbers("part", **{"solved (%)": "pass_at_n"})
        columns |= numbers("count", "tokens", "computed")
        columns |= numbers("plain", **{"distinct answers": "distinct_answers"})
        said = Said("{of} What {n} answers cost: tokens generated a question, and computed.", of=of, n=most)
        cost.append(table(at.of(at.rows[kept]), columns, said))
        curve = curve.of(curve.rows[curve.rows["n"].isin(_POWERS)])
        curves.append(
            table(
                curve,
                {"method": "method", **numbers("count", N="n")}
                | {"solved (%)": interval("pass_at_n", "part", "low", "high")}
                | numbers("part", **{"majority (%)": "majority"}),
                of,
            )
        )
        chosen = Source.read(config, paths.CHOOSING, choosing.COLUMNS, selector=name)
        votes.append(
            table(
                chosen.where(n=most),
                {"answers of": "method", "chosen by": "rule", **numbers("count", N="n")}
                | {"right (%)": interval("accuracy", "part", "low", "high")}
                | {"over the majority": interval("over_majority", low="over_low", high="over_high")},
                of,
            )
        )
        for template in (paths.CHOICE, paths.ABLATION, paths.SENSITIVITY):
            tried = Source.read(config, template, selector=name)
            ordered = tried.of(tried.rows.sort_values(_score(tried), ascending=False, kind="stable"))
            trials.append(as_it_is(ordered, of, limit=8))
    folds = {
        "Pass@N of every method": _there(curves),
        "One answer chosen among N": _there(votes),
        "How the settings were chosen": _there(trials),
        "How much heads agree": [p for s in config.sweeps for p in images.of("agreement", sweep=s)],
    }
    lead = ["A question counts as solved if any of N answers is right."]
    return Section("sampling", "Does choosing heads beat sampling?", lead, _there(apart + voted + cost), folds)


def _of_many(curves: pd.DataFrame, n: int) -> list[str]:
    """Return the methods that give N answers: those with fewer spend no more tokens on the last."""
    tokens = curves.pivot(index="method", columns="n", values="tokens")
    return list(tokens.index[tokens[n] > tokens[n - 1]]) if n > 1 else list(tokens.index)


def _score(tried: Source) -> str:
    return next(c for c in ("mean_pass", "pass_at_4", "pass_at_n", "test") if c in tried.rows)


def question(config: Config, images: Images) -> Section:
    """Return whether knowing the question helps to choose heads."""
    blocks, rows = [], []
    for name, section in config.selectors.items():
        of = f"{title(config, section.test)} questions."
        found = Source.read(config, paths.EMBEDDING_VALUE, matching.COLUMNS, selector=name)
        mean = found.where(n=matching.MEAN)
        own = mean.where(method=SPRINT, questions="test", pool=matching.ALL)
        blocks.append(differences(own, "against", Said("{of} SPRINT minus itself without the question, mean of Pass@N in points.", of=of)))
        columns = {"method": "method", "questions": "questions", "heads": "pool", "against": "against"}
        columns |= {"difference": interval("difference", low="low", high="high")} | numbers("p", p="p")
        rows.append(table(mean, columns, of))
    folds = {
        "Other methods, held-out questions, similar heads": _there(rows),
        "Where heads and questions lie": [p for s in config.selectors for p in images.of("space", selector=s)],
    }
    lead = ["SPRINT asks the heads nearest to a question. Does it matter which question?"]
    return Section("question", "Does the question matter?", lead, _there(blocks), folds)


def differences(rows: Source, label: str, caption: object) -> Table | None:
    """Return differences as rows with a mark and an interval, none of them a headline."""
    scale = Scale.over(rows.rows[["low", "high"]].to_numpy().ravel())
    found = table(
        rows,
        {
            "against": label,
            "points": lambda row: strip(
                scale,
                {_mark(row): row.first["difference"]},
                (row.first["low"], row.first["high"]),
            ),
            "difference": interval("difference", low="low", high="high"),
        },
        caption,
    )
    if found:
        found.foot, found.kind = ("", ruler(scale), ""), "strips"
    return found


def _mark(row: Source) -> str:
    low, high = row.first["low"], row.first["high"]
    return "dot up" if low > 0 else "dot down" if high < 0 else "ring"


def printed(config: Config, images: Images) -> dict[str, list[Table | Picture]]:
    """Return the first paper's figures and tables as it prints them, by name."""
    found: dict[str, list[Table | Picture]] = {}
    if config.sweeps:
        found["Figure 2: gains of the best and the median head"] = [*images.of("violins")]
    for name, section in config.selectors.items():
        found[f"Figure 4: Pass@N, {title(config, section.test)}"] = [*images.of("pass_at_n", selector=name)]
    for sweep in config.sweeps:
        layers = Shown(config).layers(sweep)
        of = _of(config, sweep)
        found[f"Figure 5: {of}"] = [
            p for layer in layers for p in images.of("heatmap", sweep=sweep, layer=f"{layer:02d}")
        ]
        found[f"Tables 1-4: {of}"] = _there([_matrix(config, sweep)])
    return {name: blocks for name, blocks in found.items() if blocks}


def _matrix(config: Config, sweep: str) -> Table | None:
    """Return accuracy in percent, a row a head and a column a subject or level."""
    cells = Source.read(config, paths.TABLE, ["group", "variant", "accuracy"], sweep=sweep)
    groups = list(dict.fromkeys(cells.rows["group"]))
    rows = [
        ["No Prune" if variant == "base" else variant]
        + [each.number("accuracy", "part") for each in cells.of(part)]
        for variant, part in cells.rows.groupby("variant", sort=False)
    ]
    return Table(["head", *(short(group, 24) for group in groups)], rows, "Right answers in percent.")


def _of(config: Config, sweep: str) -> str:
    section = config.sweeps[sweep]
    model = f"{short(section.model, 28)}, " if len(config.models) > 1 else ""
    return f"{model}{title(config, section.questions)} questions."


def _there(found: list[Table | None]) -> list[Table | Picture]:
    return [each for each in found if each is not None]
