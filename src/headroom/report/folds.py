"""The page's folded tables and images, one declaration each."""

from collections.abc import Iterable, Iterator, Mapping
from types import MappingProxyType
from typing import NamedTuple

from headroom import paths
from headroom.analysis.facts import Source
from headroom.analysis.text import short
from headroom.analysis.verdicts import tested_on, title
from headroom.config import Config
from headroom.planning.exhibits import COMPRESSION_TABLES, EXHIBITS, Exhibit, find_exhibit
from headroom.planning.shown import Shown
from headroom.report.blocks import Block, Columns, Images, Table, table
from headroom.sprint.matching import MEAN


class Fold(NamedTuple):
    """A folded table; its path says if there is one per sweep, selector, comparison or run."""

    section: str
    title: str
    template: str
    columns: str
    """Titles and cells, see `headroom.report.blocks.Columns`: ``right (%)=accuracy part, ...``."""
    said: str = ""
    where: Mapping[str, object] = MappingProxyType({})


def _controls(name: str) -> str:
    return paths.CONTROLS.replace("{table}", name)


_TRIED = (
    "geometry=geometry, reading=reading, criterion=criterion, embedder=embedder, "
    "dimension=dimension plain, diversity=diversity plain, heads=k count, "
    "weight decay=weight_decay plain, learning rate=learning_rate plain, N=n, seed=seed count, "
    "Pass@1 (%)=pass_at_1 part, Pass@4 (%)=pass_at_4 part, Pass@N (%)=pass_at_n part, "
    "test (%)=test part"
)

_TRIALS = "How the settings were chosen"

_FOLDS = (
    Fold(
        "heads",
        "Every head",
        _controls("heads"),
        "head=variant, right (%)=accuracy part, gain=gain points low high, won=gained count, "
        "lost=lost count, q=q p, no answer (%)=no_answer part, cut off (%)=truncated part, "
        "tokens=tokens plain",
    ),
    Fold(
        "heads",
        "How heads that hurt fail",
        _controls("failures"),
        "head=variant, gain=gain points, most fail by=mode, of what it loses (%)=mode_share part, "
        "ends in a loop (%)=loops part, share of the norm (%)=norm_share part, "
        "rank in its layer=norm_rank count",
    ),
    Fold(
        "luck",
        "Gains by subject, level and layer",
        _controls("gains"),
        "questions=group, layer=layer count, n=n count, best head=gain points, "
        "by luck=by_chance points, q=q p, placebo=placebo points, "
        "held out=held_out points low high",
    ),
    Fold(
        "luck",
        "Spread between heads, and placebos",
        _controls("spread"),
        "between=of, heads=heads count, spread=spread points, noise=noise points, "
        "left=component points, p=p p",
        "Standard deviations in points: observed, of equal heads, and what is left.",
    ),
    Fold(
        "luck",
        "Spread between heads, and placebos",
        _controls("placebos"),
        "pruned or placebo=kind, layer=layer count, variants=variants count, "
        "answers changed (%)=changed part, verdicts changed (%)=outcome part, "
        "mean gain=gain points, best gain=best points",
    ),
    Fold(
        "sampling",
        "Pass@N of every method",
        paths.CURVES,
        "method=method, N=n count, solved (%)=pass_at_n part low high, "
        "majority (%)=majority part, distinct answers=distinct_answers ratio, tokens=tokens count",
        where={"n": (1, 2, 4, 8, 16)},
    ),
    Fold(
        "sampling",
        "One answer chosen among N",
        paths.CHOOSING,
        "answers of=method, chosen by=rule, N=n count, right (%)=accuracy part low high",
    ),
    Fold("sampling", _TRIALS, paths.CHOICE, _TRIED, where={"chosen": True}),
    Fold("sampling", _TRIALS, paths.ABLATION, _TRIED, where={"n": MEAN}),
    Fold("sampling", _TRIALS, paths.SENSITIVITY, _TRIED, where={"chosen": True}),
    Fold(
        "question",
        "Other methods",
        paths.EMBEDDING_VALUE,
        "method=method, questions=questions, heads=pool, against=against, "
        "difference=difference points low high, p=p p",
        where={"n": MEAN},
    ),
    Fold(
        "compression",
        "Costs, and what to look at",
        paths.COMPRESSION_TABLE.replace("{exhibit}", "cost"),
        "compression=compression, setting=arm, rounds=rounds count, epochs=epochs count, "
        "tokens=tokens count, seconds=seconds count, look at=warned",
    ),
    Fold(
        "trust",
        "Does the prompt matter?",
        paths.COMPARISON,
        "prompt=decoding, grading=grading, n=n count, right (%)=accuracy part, "
        "verdicts that differ=differ_from_default count",
    ),
)

_PRINTED = (
    "setting=arm, questions=stratum, ratio (%)=ratio part, alpha=alpha plain, "
    "eight bits=quantised, heads gone=heads_removed count, right (%)=accuracy part low high, "
    "change=change points change_low change_high, against the method=gap points gap_low gap_high, "
    "parameters (%)=parameters_removed part, FLOPs (%)=flops_removed part, "
    "time of the whole test (%)=test_time part, speed-up at most (%)=speedup_at_most part, "
    "bytes (%)=weight_removed part, largest ratio (%)=knee part, "
    "published (%)=published_accuracy part, published change=published_change points, "
    "published parameters (%)=published_parameters part, "
    "published speed (%)=published_speedup part"
)
"""Columns of the second paper's tables; a table has only some of them."""


def columns(text: str) -> Columns:
    """Parse declared columns: ``title=cell, title=cell, ...``."""
    pairs = (each.partition("=") for each in text.split(", "))
    return {title: cell for title, _, cell in pairs}


def folded(config: Config, images: Images, section: str) -> dict[str, list[Block]]:
    """Return a section's folded blocks, by title."""
    found: dict[str, list[Block]] = {}
    for fold in _FOLDS:
        if fold.section == section:
            for source, of in _sources(config, fold.template):
                said = f"{of} {fold.said}".strip()
                own = table(source.where(**fold.where), columns(fold.columns), said)
                found.setdefault(fold.title, []).extend(own)
    for exhibit in EXHIBITS:
        if exhibit.section == section:
            found[exhibit.heading] = _drawn(config, images, exhibit)
    return {heading: blocks for heading, blocks in found.items() if blocks}


def as_printed(config: Config, images: Images) -> dict[str, list[Block]]:
    """Return Figures 2, 4 and 5 and Tables 1-4 of both papers, by name."""
    found: dict[str, list[Block]] = {
        **{
            heading: _drawn(config, images, find_exhibit(name))
            for heading, name in (
                ("Figure 2: gains of the best and the median head", "violins"),
                ("Figure 4: Pass@N", "pass_at_n"),
                ("Figure 5: accuracy by subject and head", "heatmap"),
            )
        },
        "Tables 1-4: accuracy by subject, layer and head": [
            _matrix(source, of) for source, of in _sources(config, paths.TABLE)
        ],
    }
    for exhibit in COMPRESSION_TABLES if config.compressions else ():
        if exhibit != "cost":
            source = Source.read(config, paths.COMPRESSION_TABLE, exhibit=exhibit)
            of = {"tested on": lambda row: tested_on(config, row.first["compression"])}
            name = exhibit.replace("table", "Table ").capitalize()
            found[f"Second paper, {name}"] = table(source, {**of, **columns(_PRINTED)})
    return {name: blocks for name, blocks in found.items() if blocks}


def of_sweep(config: Config, sweep: str) -> str:
    """Return the title of a sweep's questions, with its model if the run has several."""
    section = config.sweeps[sweep]
    model = f"{short(section.model, 28)}, " if len(config.models) > 1 else ""
    return f"{model}{title(config, section.questions)} questions."


def _sources(config: Config, template: str) -> Iterator[tuple[Source, str]]:
    """Yield the tables of a template, each with a phrase that says what it is about."""
    if "{sweep}" in template:
        of = {name: of_sweep(config, name) for name in config.sweeps}
        kind = "sweep"
    elif "{selector}" in template:
        of = {name: f"{title(config, each.test)}." for name, each in config.selectors.items()}
        kind = "selector"
    elif "{comparison}" in template:
        tested = config.comparisons.items()
        of = {name: f"{title(config, each.questions)}." for name, each in tested}
        kind = "comparison"
    else:
        of, kind = {"": ""}, "run"
    for name, said in of.items():
        names = {kind: name} if name else {}
        yield Source.read(config, template, **names), said


def _drawn(config: Config, images: Images, exhibit: Exhibit) -> list[Block]:
    """Return the images of a figure: one per sweep, layer, selector, compression or run."""
    subjects: dict[str, Iterable[str]] = {
        "sweep": config.sweeps,
        "layer": config.sweeps,
        "selector": config.selectors,
        "compression": config.compressions,
    }
    layers = Shown(config).layers
    return [
        picture
        for of in subjects.get(exhibit.per, [""])
        for layer in (layers(of) if exhibit.per == "layer" else [0])
        for picture in images.of(exhibit, of, layer)
    ]


def _matrix(cells: Source, caption: str) -> Table:
    """Return accuracy in percent, with one row per head and one column per subject or level."""
    groups = list(dict.fromkeys(cells.rows["group"]))
    rows = [
        ["No Prune" if variant == "base" else variant]
        + [each.number("accuracy", "part") for each in cells.of(part)]
        for variant, part in cells.rows.groupby("variant", sort=False)
    ]
    titles = ["head", *(short(group, 24) for group in groups)]
    return Table(titles, rows, f"{caption} Right answers in percent.", cells.file)
