"""The page's tables and images: tables as ``assets/tables.csv`` declares them, one a row.

Columns of that file: the section, and the title of a folded block; the path's name in
`headroom.paths`, and the table there; which rows, in the language of `pandas.DataFrame.query`; the
cells (`headroom.analysis.facts.columns`); the caption. Rows of marks have a label, columns by the
class of their mark, and the columns of the interval. Braces are filled: ``of`` names the subject.
"""

from collections.abc import Iterator
from pathlib import Path

import pandas as pd

from headroom import paths
from headroom.analysis.facts import Source, columns
from headroom.analysis.latex import PRINTED
from headroom.analysis.text import short
from headroom.analysis.verdicts import rival, tested_on, title
from headroom.config import Config
from headroom.planning.exhibits import COMPRESSION_TABLES, EXHIBITS, find_exhibit
from headroom.planning.shown import Shown
from headroom.report.blocks import Block, Images, Section, Table, marks, table

_DECLARED = Path(__file__).with_name("assets") / "tables.csv"


def fill(config: Config, images: Images, section: Section) -> None:
    """Add the declared tables and images to a section."""
    declared = pd.read_csv(_DECLARED, dtype=str, keep_default_na=False)
    folds: dict[str, list[Block]] = {}
    opened: list[Block] = []
    for row in declared.query("section == @section.anchor").itertuples():
        template = getattr(paths, str(row.path))
        for key in ("table", "exhibit", "paper"):
            template = template.replace(f"{{{key}}}", row.table)
        to = folds.setdefault(str(row.fold), []) if row.fold else opened
        for source, names in _sources(config, template):
            wanted = str(row.filter).format(**names)
            found = source.of(source.rows.query(wanted)) if wanted else source
            caption, shown = str(row.caption).format(**names), columns(str(row.columns))
            if not row.marks:
                to += table(found, shown, caption)
                continue
            drawn = columns(str(row.marks).replace(" ", ", "))
            to += marks(found, str(row.label), drawn, str(row.ends).split(), shown, caption)
    for exhibit in EXHIBITS:
        if exhibit.section == section.anchor:
            folds[exhibit.heading] = images.of(Shown(config).pictures(exhibit))
    section.blocks = [*opened, *section.blocks]
    section.folds = {name: blocks for name, blocks in folds.items() if blocks} | section.folds


def as_printed(config: Config, images: Images) -> dict[str, list[Block]]:
    """Return Figures 2, 4 and 5 and Tables 1-4 of both papers, by name."""
    found: dict[str, list[Block]] = {
        heading: images.of(Shown(config).pictures(find_exhibit(name)))
        for heading, name in (
            ("Figure 2: gains of the best and the median head", "violins"),
            ("Figure 4: Pass@N", "pass_at_n"),
            ("Figure 5: accuracy by subject and head", "heatmap"),
        )
    }
    found["Tables 1-4: accuracy by subject, layer and head"] = [
        _matrix(source, names["of"]) for source, names in _sources(config, paths.TABLE)
    ]
    for exhibit in COMPRESSION_TABLES[:-1] if config.compressions else ():  # costs stand elsewhere
        source = Source.read(config, paths.COMPRESSION_TABLE, exhibit=exhibit)
        of = {"tested on": lambda row: tested_on(config, row.first["compression"])}
        name = exhibit.replace("table", "Table ").capitalize()
        found[f"Second paper, {name}"] = table(source, {**of, **PRINTED})
    return {name: blocks for name, blocks in found.items() if blocks}


def of_sweep(config: Config, sweep: str) -> str:
    """Return the title of a sweep's questions, with its model if the run has several."""
    section = config.sweeps[sweep]
    model = f"{title(config, 'models', section.model)}, " if len(config.models) > 1 else ""
    return f"{model}{title(config, 'questions', section.questions)} questions"


def _sources(config: Config, template: str) -> Iterator[tuple[Source, dict[str, str]]]:
    """Yield the tables of a template, and the names that fill a declaration's braces."""
    if "{sweep}" in template:
        for name in config.sweeps:
            yield Source.read(config, template, sweep=name), {"of": of_sweep(config, name)}
    elif "{selector}" in template:
        for name in config.selectors:
            other, most = rival(config, name)
            names = {"of": title(config, "selectors", name), "most": str(most), "rival": other}
            yield Source.read(config, template, selector=name), names
    elif "{comparison}" in template:
        for name, each in config.comparisons.items():
            of = title(config, "questions", each.questions)
            yield Source.read(config, template, comparison=name), {"of": of}
    else:
        yield Source.read(config, template), {}


def _matrix(cells: Source, of: str) -> Table:
    """Return accuracy in percent, with one row per head and one column per subject or level."""
    groups = list(dict.fromkeys(cells.rows["group"]))
    rows = [
        ["No Prune" if variant == "base" else variant]
        + [each.number("accuracy", "part") for each in cells.of(part)]
        for variant, part in cells.rows.groupby("variant", sort=False)
    ]
    titles = ["head", *(short(group, 24) for group in groups)]
    return Table(titles, rows, f"{of}. Right answers in percent.", cells.file)
