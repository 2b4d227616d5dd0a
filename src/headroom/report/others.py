"""What the page says of compressions, of the papers' numbers, and of how a run was made."""

import json
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow.parquet as pq
from markupsafe import Markup

from headroom import paths
from headroom.analysis.compression.trial import BASELINE, METHOD
from headroom.analysis.compression.trial import label as words
from headroom.analysis.facts import Said, Source
from headroom.analysis.text import plain, short
from headroom.analysis.verdicts import measured, tested_on, title
from headroom.config import Config
from headroom.planning.batches import batches
from headroom.planning.store import Store
from headroom.record import record_path
from headroom.report.blocks import Images, Picture, Section, Table, interval, numbers, table
from headroom.report.svg import Chart, Scale, ruler, strip

_NOTABLE = -1.5
"""Change of accuracy in points that a user should look into."""
_ROWS = 8

_NAMES = {
    METHOD: "{ratio} gone, taught",
    "pruning_only": "{ratio} gone, no teacher",
    "trained_on": "nothing gone, trained on",
    BASELINE: "nothing gone",
}
"""How the compressions of a run are called; others by what they change, or by their ratio."""


@dataclass(frozen=True)
class Pruned:
    """A compression that was tested: its name, its numbers, its time."""

    label: str
    row: Source
    time: Source | None
    bits: bool

    @property
    def kind(self) -> str:
        """The class of its mark: filled where its interval leaves out zero."""
        own = self.row.first
        way = "up" if own["change_low"] > 0 else "down" if own["change_high"] < 0 else "none"
        return f"{'ring' if self.bits else 'dot'} {way}"


def compression(config: Config, images: Images) -> Section:
    """Return whether heads can go for good."""
    found = [each for name in config.compressions for each in _pruned(config, name)]
    lead = [*_longer(config)]
    blocks: list[Table | Picture] = [*_scatter(found)]
    ends = [end for each in found for end in each.row.rows[["change_low", "change_high"]].iloc[0]]
    scale = Scale.over(ends)
    rows = [
        [
            each.label,
            Said(
                "{gone} of {heads}",
                gone=each.row.number("heads_removed", "count"),
                heads=each.row.number("heads", "count"),
            ),
            each.row.number("whole_removed", "percent"),
            each.time.interval("test_time", "ratio") if each.time else "",
            strip(
                scale,
                {each.kind: each.row.first["change"]},
                (each.row.first["change_low"], each.row.first["change_high"]),
            ),
            each.row.interval("change"),
        ]
        for each in found
    ]
    if rows:
        titles = ["", "heads gone", "parameters saved", "test time", "points", "change of accuracy"]
        foot = ["", "", "", "", ruler(scale), ""]
        caption = "Against the unpruned model; test time is a ratio. Hollow marks: eight bits."
        blocks.append(Table(titles, rows, caption, foot, "strips"))
    folds = {
        "Costs, and what to look at": _there([_costs(config)]),
        "Losses while training": [
            picture for name in config.compressions for picture in images.of("losses", compression=name)
        ],
    }
    return Section("compression", "Can heads go for good?", lead, blocks, folds)


def _pruned(config: Config, name: str) -> list[Pruned]:
    """Return what a compression tested, the most telling first, so many that all have room."""
    rows: list[tuple[Source, bool]] = []
    for exhibit in ("table4", "table1", "quantisation"):
        source = Source.read(config, paths.COMPRESSION_TABLE, exhibit=exhibit)
        for row in source.where(compression=name):
            bits = bool(row.first.get("quantised", False))
            if not pd.isna(row.first["change"]) and bits == (exhibit == "quantisation"):
                rows.append((row, bits))
    order = [METHOD, "pruning_only", "trained_on"]
    rows.sort(key=lambda each: (order.index(a) if (a := each[0].first["arm"]) in order else 9) + 5 * each[1])
    found, seen = [], set()
    for row, bits in rows:
        arm = row.first["arm"]
        if (arm, bits) in seen:
            continue
        seen.add((arm, bits))
        ratio = config.compressions[name].settings[arm].ratio
        label = _NAMES.get(arm, "{ratio} gone" if "ratio" in arm else words(arm))
        label = f"{tested_on(config, name)}: {label.format(ratio=f'{100 * ratio:g}%')}"
        time = measured(config, name, arm, quantised=bits)
        found.append(Pruned(label + ", 8 bits" * bits, row, time, bits))
    return found[: max(2, _ROWS // len(config.compressions))]


def _longer(config: Config) -> Iterator[Said]:
    """Yield what is gained without a teacher by training longer than the unpruned model."""
    table4 = Source.read(config, paths.COMPRESSION_TABLE, exhibit="table4")
    cost = Source.read(config, paths.COMPRESSION_TABLE, exhibit="cost")
    for row in table4.where(arm="pruning_only"):
        name = row.first["compression"]
        spent = cost.where(compression=name, arm="pruning_only")
        if row.first["change_low"] > 0 and len(spent):
            said = "{of}: pruning without a teacher gains {change} points, but trained {epochs} epochs longer than the unpruned model"
            parts: dict[str, Any] = {"change": row.interval("change"), "epochs": spent.number("epochs", "count")}
            other = table4.where(compression=name, arm="trained_on")
            if len(other):
                said += "; as long with nothing pruned gains {other}"
                parts["other"] = other.interval("change")
            yield Said(said + ".", of=tested_on(config, name), **parts)


def _scatter(found: list[Pruned]) -> list[Picture]:
    timed = [(each, each.time.first["test_time"]) for each in found if each.time]
    if not timed:
        return []
    changes = [100 * value for each in found for value in each.row.rows[["change_low", "change_high"]].iloc[0]]
    times = [time for _, time in timed]
    x = Scale(min([*times, 1]) - 0.05, max([*times, 1]) + 0.05)
    said = ", ".join(f"{each.label} {100 * each.row.first['change']:+.1f}" for each, _ in timed[:4])
    chart = Chart(x, Scale.over([*changes, _NOTABLE]), 280, f"Change of accuracy against test time: {said}.", ("{:.2g}×", "{:+g}"))
    for each, time in timed:
        own = each.row.first
        ends = (100 * own["change_low"], 100 * own["change_high"])
        chart.point(time, 100 * own["change"], each.kind, each.label, ends)
    chart.level(_NOTABLE, "−1.5")
    caption = (
        "Change of accuracy in points with its 95% interval, against the time of the whole test, "
        "1 for the unpruned model. Dashed: a loss of 1.5 points. Hollow: weights of eight bits."
    )
    return [Picture(chart.svg(aside=False), caption)]


def _costs(config: Config) -> Table | None:
    cost = Source.read(config, paths.COMPRESSION_TABLE, exhibit="cost")
    return table(
        cost,
        {
            "tested on": lambda row: tested_on(config, row.first["compression"]),
            "what": lambda row: words(row.first["arm"]),
            **numbers("count", "seeds", "rounds", "epochs", "tokens"),
            **numbers("count", **{"seconds": "seconds"}),
            "look at": "warned",
        },
        "Means over seeds; training before pruning is not counted.",
    )


def published(config: Config, images: Images) -> Section:
    """Return whether the papers' own numbers hold."""
    audit = Source.read(config, paths.AUDIT_TABLE, ["exhibit"], paper="sprint")
    scale = Scale.over(audit.rows[["gain", "chance_low", "chance_high"]].to_numpy().ravel())
    chance = table(
        audit,
        {
            "": lambda row: f"{row.first['exhibit']}: {short(row.first['model'], 28)}",
            "points": lambda row: strip(
                scale,
                {"bar": row.first["by_chance"], "dot": row.first["gain"]},
                (row.first["chance_low"], row.first["chance_high"]),
            ),
            "published": lambda row: row.number("gain", "points"),
            "luck alone": interval("by_chance", low="chance_low", high="chance_high"),
            "beyond luck": lambda row: Said(
                "{beyond} of {pairs}",
                beyond=row.number("beyond", "count"),
                pairs=row.number("pairs", "count"),
            ),
        },
        Markup("SPRINT: median gain of a best head, ● as published; line and | what luck alone gives."),
    )
    cuts = Source.read(config, paths.AUDIT_TABLE, ["ratio"], paper="compression")
    blocks: list[Table | Picture] = []
    if chance:
        chance.foot, chance.kind = ("", ruler(scale), "", "", ""), "strips"
        blocks.append(chance)
    percent = Scale(0, cuts.rows[["parameters", "speedup"]].to_numpy().max() + 2)

    def saved(column: str) -> Any:
        def cell(row: Source) -> Markup:
            most, said = row.first[f"{column}_at_most"], row.first[column]
            return strip(percent, {"ring": most, "dot": said}, (most, said))

        return cell

    arithmetic = table(
        cuts,
        {
            "": lambda row: Said(
                "{model}, {data}, {ratio}%", model=row.first["model"].replace("ATHENA-", ""), data=row.first["dataset"],
                ratio=row.number("ratio", "count"),
            ),
            "parameters (%)": saved("parameters"),
            "said, at most": _said("parameters"),
            "speed (%)": saved("speedup"),
            "said, at most ": _said("speedup"),
        },
        Markup("Second paper: ● cut as published, ○ the most that arithmetic allows for the heads removed."),
    )
    if arithmetic:
        arithmetic.foot, arithmetic.kind = ("", ruler(percent, "{:.1f}".format), "", ruler(percent, "{:.1f}".format), ""), "strips"
        blocks.append(arithmetic)
    lead, folds = [], {}
    if Path(paths.CLAIMS.format(run=config.run, suffix="csv")).exists():
        claims = Source.read(config, paths.CLAIMS, ["claim", "published", "run"])
        decided = claims.of(claims.rows[claims.rows["published"].isin(["holds", "fails"]) | claims.rows["run"].isin(["holds", "fails"])])
        tally = {
            f"{where}_{verdict}": claims.where(**{where: verdict}).number("claim", "count", "count")
            for where in ("published", "run") for verdict in ("holds", "fails")
        }
        lead.append(
            Said(
                "Of {all} claims the papers' own tables bear out {published_holds} and contradict "
                "{published_fails}; this run bears out {run_holds} and contradicts {run_fails}. "
                "The others no number decides.",
                all=claims.number("claim", "count", "count"), **tally,
            )
        )
        columns = {"paper": "paper", "claim": "claim", "said": "value", "in the paper": "published",
                   "because": "published_why", "in this run": "run"}
        folds["Every claim that a number decides"] = _there([table(decided, columns)])
    blocks += _there([*map(lambda sweep: _reproduced(config, sweep), config.sweeps)])
    return Section("published", "Do the papers' numbers hold?", lead, blocks, folds)


def _said(column: str) -> Any:
    return lambda row: Said(
        "{said}, {most}",
        said=row.number(column, "part_of_100"),
        most=row.number(f"{column}_at_most", "part_of_100"),
    )


def _reproduced(config: Config, sweep: str) -> Table | None:
    """Return published accuracies beside a sweep's, where a row matches."""
    cells = Source.read(config, paths.TABLE, ["published", "difference"], sweep=sweep)
    both = cells.rows.dropna(subset="difference")
    both = both.reindex(both["difference"].abs().sort_values(ascending=False).index)
    return table(
        cells.of(both),
        {
            "head": "variant",
            "questions": "group",
            **numbers("part", published="published", **{"this run": "accuracy"}),
            "difference": interval("difference"),
        },
        Said("{of}: published beside reproduced, the largest differences first.", of=title(config, config.sweeps[sweep].questions)),
        limit=12,
    )


def trust(config: Config, images: Images) -> Section:
    """Return what the run's numbers rest on, and how to make them again."""
    asked = [f"{title(config, name)} {config.questions[name].split}: {config.questions[name].n or 'all'}" for name in config.questions]
    seeds = {len(each.seeds) for each in config.selectors.values()}
    own = {len(each.seeds) for each in config.compressions.values()}
    rows: list[list[Any]] = [["Models", ", ".join(_model(config, name) for name in config.models)]]
    rows += [["Questions", ", ".join(asked)]] if asked else []
    rows += [["Seeds", ", ".join(f"{n} a selector" for n in seeds) + "; " * bool(seeds and own) + ", ".join(f"{n} a compression" for n in own)]] if seeds or own else []
    rows.append(["Intervals", "95%, paired by question; several tests of one table are not corrected unless q is shown."])
    rows.append(["Limits", _limits(config)])
    rows.append(["Again", Markup("<code>snakemake --cores 2 --configfile results/{0}/config.json</code>, then <code>headroom compare {0} …</code>").format(config.run)])
    folds: dict[str, list[Table | Picture]] = {}
    compared = [
        table(
            Source.read(config, paths.COMPARISON, ["decoding"], comparison=name),
            {"prompt": "decoding", "grading": "grading", **numbers("count", n="n", right="correct")}
            | numbers("part", **{"right (%)": "accuracy"})
            | numbers("count", **{"verdicts that differ": "differ_from_default"}),
            f"{title(config, each.questions)} questions.",
        )
        for name, each in config.comparisons.items()
    ]
    folds["Does the prompt matter?"] = _there(compared)
    folds["Answers, verdicts and time"] = [_answers(config)]
    folds["Versions and revisions"] = [_versions(config)]
    settings = json.dumps(config.model_dump(mode="json"), indent=1, ensure_ascii=False)
    folds["Settings"] = [Picture(Markup("<pre tabindex='0'>{}</pre>").format(settings), "", "text")]
    return Section("trust", "How far to trust this; how to run it again", [], [Table(["", ""], rows, "", (), "facts")], folds)


def _model(config: Config, name: str) -> str:
    model = config.models[name]
    size = f"{model.billions:g}B" if model.billions >= 0.1 else f"{1000 * model.billions:g}M"
    return f"{short(name, 40)} ({size}, {model.layers} layers of {model.heads} heads, {model.dtype})"


def _limits(config: Config) -> str:
    small = all(model.billions < 0.1 for model in config.models.values())
    limits = ["One run on one machine; answers at near-ties turn with numerics."]
    if small:
        limits.insert(0, "A toy model on generated questions: nothing here carries over to large models.")
    return " ".join(limits)


def _answers(config: Config) -> Table:
    """Return what was answered and graded, and how long it took, from graded answers and records."""
    store, rows = Store(config), []
    for batch in batches(config):
        path = store.path(paths.GRADED, **batch.names)
        if not path.exists():
            continue
        graded = pq.read_table(path, columns=["verdict", "stop_reason", "tokens"]).to_pandas()
        counts = Counter(graded["verdict"])
        records = [facts for file in store.answers(batch) if (facts := _record(Path(file)))]
        stopped = sum(counts[each] for each in ("timeout", "memory", "error"))
        seconds = sum(facts.get("seconds", 0) for facts in records)
        about = f"{short(batch.model, 28)}, {batch.decoding}, {title(config, batch.questions)} {config.questions[batch.questions].split}"
        rows.append([about, *(f"{n:,.0f}" for n in (len(graded), graded["tokens"].sum(), counts["no_answer"], (graded["stop_reason"] == "length").sum(), stopped, seconds))])
    titles = ["answers of", "answers", "tokens", "nothing to grade", "cut off", "grading stopped", "seconds"]
    return Table(titles, rows, "Seconds are summed over jobs that may have run side by side.")


def _versions(config: Config) -> Table:
    facts: dict[str, Any] = {}
    for batch in batches(config):
        facts = facts or _record(Store(config).path(paths.GRADED, **batch.names))
    for name in config.compressions:
        facts = facts or _record(Path(paths.MEASUREMENTS.format(run=config.run, compression=name)))
    rows = [[library, version] for library, version in facts.get("versions", {}).items()]
    rows += [["git commit", facts["git_commit"]]] if facts.get("git_commit") else []
    for name, model in config.models.items():
        rows.append([short(name, 40), f"{model.source or 'trained here'}, {model.revision or 'no revision'}"])
    for name, asked in config.questions.items():
        rows.append([plain(name), f"{asked.file or asked.benchmark}, {asked.revision or 'no revision'}"])
    return Table(["what", "version or revision"], rows)


def _record(file: Path) -> dict[str, Any]:
    """Return the record beside a file; nothing where there is none."""
    path = record_path(file)
    return json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}


def printed(config: Config) -> dict[str, list[Table | Picture]]:
    """Return the second paper's tables as it prints them, by name."""
    found = {}
    names = {"table1": "Table 1: ratios", "table2": "Table 2: sizes", "table3a": "Table 3a: what ranks the heads",
             "table3b": "Table 3b: simple and complex", "table4": "Table 4: what each part adds",
             "quantisation": "Eight bits", "knee": "Where accuracy breaks"}
    for exhibit, name in names.items() if config.compressions else ():
        source = Source.read(config, paths.COMPRESSION_TABLE, exhibit=exhibit)
        columns: dict[str, Any] = {"tested on": lambda row: tested_on(config, row.first["compression"])}
        if "stratum" in source.rows:
            columns["questions"] = "stratum"
        else:
            columns["what"] = lambda row: words(row.first["arm"])
        there = [c for c in source.rows if c in _PRINTED]
        columns |= {_PRINTED[c][0]: _column(source, c) for c in there}
        own = table(source, columns)
        if own:
            found[f"Second paper, {name}"] = [own]
    return found


_PRINTED = {
    "ratio": ("ratio (%)", "part"), "alpha": ("alpha", "plain"), "quantised": ("eight bits", "count"),
    "heads_removed": ("heads gone", "count"), "accuracy": ("right (%)", "part"), "change": ("change", "points"),
    "gap": ("against the method", "points"),
    "parameters_removed": ("parameters (%)", "part"), "flops_removed": ("FLOPs (%)", "part"),
    "saved_small": ("time of one (%)", "part"), "saved_large": ("time of a batch (%)", "part"),
    "weight_removed": ("bytes (%)", "part"), "knee": ("knee (%)", "part"), "safe": ("safe (%)", "part"),
    "published_accuracy": ("published (%)", "part"), "published_change": ("published change", "points"),
    "published_parameters": ("published parameters (%)", "part"), "published_speedup": ("published speed (%)", "part"),
}
"""Columns of the second paper's tables, their titles and forms."""


def _column(source: Source, column: str) -> Any:
    form = _PRINTED[column][1]
    if f"{column}_low" in source.rows:
        return interval(column, form)
    return lambda row: row.number(column, form)


def _there(found: list[Table | None]) -> list[Table | Picture]:
    return [each for each in found if each is not None]
