"""The job that makes all printed exhibits of a run."""

from collections import defaultdict
from pathlib import Path
from pkgutil import resolve_name

import pandas as pd

from headsweep.files.record import Stopwatch
from headsweep.files.safe_files import write_csv, write_text
from headsweep.page.figures.draw import drawing, save
from headsweep.page.printed import latex
from headsweep.page.printed.exhibits import DOCUMENT, PRINTED, PrintedExhibit
from headsweep.page.printed.numbers import Numbers, files, numbers_of
from headsweep.page.printed.tables import PrintedTable
from headsweep.results.facts import record
from headsweep.store.layout import Store


def write_printed(store: Store, published: Path) -> None:
    """Make every table and figure of both papers in its own form, and a document of them.

    The numbers are the run's. If it has no experiments, they are those that the papers print.

    Raises:
        TableError: a table is missing or damaged.
    """
    stopwatch = Stopwatch()
    numbers = numbers_of(store, published)
    sources = list(map(Path, files(store))) or [Path(published.name)]
    captions: dict[PrintedExhibit, str] = {}
    tables: list[Path] = []
    figures: list[Path] = []
    for exhibit in PRINTED:
        written = [Path(file) for file in exhibit.files(store.config.run)]
        captions[exhibit] = _make(exhibit, numbers, written, sources)
        of_kind = tables if exhibit.is_table else figures
        of_kind += written
    document = Path(DOCUMENT.format(run=store.config.run))
    write_text(document, latex.document(numbers.source, captions))
    for made in (figures, [*tables, document]):
        record(made, stopwatch, sources)


def _make(
    exhibit: PrintedExhibit, numbers: Numbers, written: list[Path], sources: list[Path]
) -> str:
    """Make the files of an exhibit; return its caption."""
    make = resolve_name(f"headsweep.page.printed.{exhibit.make}")
    if exhibit.is_table:
        made: PrintedTable = make(exhibit, numbers)
        caption = _caption(exhibit, made.words, numbers)
        tex, csv = written
        write_text(tex, latex.table(exhibit, made, caption))
        parts = [_flat(part.cells).assign(part=part.title) for part in made.parts]
        table = pd.concat(parts or [pd.DataFrame({"note": [made.notes]})])
        write_csv(csv, table, 6)
        return caption
    with drawing():
        figure = make(exhibit, numbers)
        caption = _caption(exhibit, figure.facts, numbers)
        save(figure, written, f"{exhibit.place}: {exhibit.title}", caption, sources)
    return caption


def _caption(exhibit: PrintedExhibit, words: object, numbers: Numbers) -> str:
    places: dict[str, object] = defaultdict(lambda: "…", words)  # type: ignore[call-overload]
    return f"{exhibit.title.format_map(places)}. Numbers: {numbers.source}."


def _flat(cells: pd.DataFrame) -> pd.DataFrame:
    """Return cells whose columns have one name each."""
    if cells.columns.nlevels == 1:
        return cells
    names = [" ".join(filter(None, map(str.strip, column))) for column in cells.columns]
    return cells.set_axis(names, axis=1)
