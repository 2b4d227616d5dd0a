"""A plain table as Markdown and LaTeX: some columns of text, then columns of numbers."""

from collections.abc import Iterator, Sequence
from typing import Any

import pandas as pd

from headroom.figures.latex_table import NEEDS, latex_table
from headroom.figures.text import latex, markdown


def listing(
    header: Sequence[str],
    rows: Sequence[Sequence[str]],
    caption: str,
    texts: int,
    size: str | None = None,
) -> dict[str, str]:
    """Return a table by suffix: md, tex.

    Args:
        header: titles of the columns.
        rows: cells as text; what they hold is escaped.
        caption: stands above the LaTeX table and under the Markdown one.
        texts: how many columns, from the left, hold text.
        size: of the letters in LaTeX; by default it depends on the number of columns.
    """
    numbers = len(header) - texts
    lines = [markdown_row(header), "|" + "---|" * texts + "--:|" * numbers]
    lines += [markdown_row([markdown(cell) for cell in row]) for row in rows]
    head, *body = (" & ".join(latex(cell) for cell in row) + r" \\" for row in [header, *rows])
    wide = len(header) > 10
    page = latex_table(
        "l" * texts + "r" * numbers,
        [head],
        body,
        latex(caption),
        size=size or ("scriptsize" if len(header) > 9 else "small"),
        separation=3 if wide else 5,
        wide=wide,
    )
    return {
        "md": "\n".join([*lines, "", markdown(caption)]) + "\n",
        "tex": "\n".join([NEEDS, *page]) + "\n",
    }


def markdown_row(cells: Sequence[str]) -> str:
    """Join cells to a row."""
    return f"| {' | '.join(cells)} |"


def rows_of(table: pd.DataFrame) -> Iterator[Any]:
    """Yield the rows of a table as named tuples, whose fields the stubs of pandas do not know."""
    yield from table.itertuples(index=False)
