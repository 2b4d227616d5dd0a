"""Tables 1-4 of the SPRINT paper: Pass@1 of every pruned head, the base model (No Prune) first.

Rows are heads, columns are layers grouped by subject, then by MATH level. The best of each column
is bold, ties included, the base model among them. Accuracy is in percent with one decimal, so that
different counts never look equal below 1,000 questions.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import pandas as pd

from headroom.errors import TableError
from headroom.figures.gains import OVERALL
from headroom.figures.listing import listing, markdown_row
from headroom.figures.text import latex, markdown, wrapped

COMPARISON_COLUMNS = {
    "decoding": "prompt",
    "grading": "grading",
    "n": "n",
    "correct": "correct",
    "accuracy": "accuracy (%)",
    "no_answer": "no answer",
    "truncated": "truncated",
    "differ_from_default": "differ from default",
}
"""Columns of a comparison, and how they are shown."""

_LANDSCAPE_COLUMNS, _PORTRAIT_COLUMNS = 34, 16
_LANDSCAPE_ROWS = 40


def tables(cells: pd.DataFrame, sweep: str) -> dict[str, str]:
    """Return the tables of a sweep as text, by suffix: md, tex, csv.

    Args:
        cells: as `headroom.figures.gains.cells` returns them.
        sweep: its name.
    """
    return {
        "md": _markdown(cells, sweep),
        "tex": _latex(cells, sweep),
        "csv": cells.to_csv(index=False, lineterminator="\n", float_format="%.6g"),
    }


def read_comparison(path: Path) -> pd.DataFrame:
    """Read a comparison of prompts and grading rules.

    Raises:
        TableError: the file is missing or has other columns.
    """
    return read_csv(path, list(COMPARISON_COLUMNS))


def read_csv(path: Path, columns: Sequence[str]) -> pd.DataFrame:
    """Read a CSV file that must have some columns.

    Raises:
        TableError: the file is missing, empty, or lacks a column.
    """
    try:
        table = pd.read_csv(path)
    except FileNotFoundError:
        raise TableError(f"{path} is missing; the rule that makes it has not run") from None
    except (pd.errors.ParserError, pd.errors.EmptyDataError, UnicodeDecodeError) as error:
        raise TableError(f"{path} cannot be read ({error}); remove it and run again") from error
    missing = [column for column in columns if column not in table.columns]
    if missing:
        raise TableError(f"{path}: columns {missing} are missing; remove the file and rerun")
    return table


def comparison_tables(comparison: pd.DataFrame, name: str) -> dict[str, str]:
    """Return a comparison of prompts and grading rules as text, by suffix: md, tex."""
    header = list(COMPARISON_COLUMNS.values())
    shown = comparison[list(COMPARISON_COLUMNS)].copy()
    shown["accuracy"] = [f"{100 * value:.1f}" for value in shown["accuracy"]]
    rows = [[str(value) for value in row] for row in shown.itertuples(index=False)]
    return listing(header, rows, f"Prompt and grading rules, base model: {name}.", texts=2)


@dataclass(frozen=True)
class _Grid:
    """Counts of right answers, rows No Prune (-1) and heads, columns (group, layer)."""

    correct: pd.DataFrame
    sizes: dict[str, int]

    @classmethod
    def of(cls, cells: pd.DataFrame, by: Sequence[str]) -> "_Grid":
        """Gather the cells of some kinds of group; the group of all questions comes last."""
        chosen = cells[cells["by"].isin(by)]
        groups = chosen.drop_duplicates("group")
        sizes = dict(zip(groups["group"].tolist(), groups["n"].tolist(), strict=True))
        pruned = chosen[chosen["head"].notna()]
        correct = pruned.pivot(index="head", columns=["group", "layer"], values="correct")
        base = chosen[chosen["head"].isna()].set_index("group")["correct"]
        correct.loc[-1] = base[correct.columns.get_level_values("group")].to_list()
        order = [group for group in sizes if group != OVERALL]
        order += [OVERALL] if OVERALL in sizes else []
        correct = correct.sort_index().sort_index(
            axis="columns", level="layer", sort_remaining=False
        )
        return cls(correct.reindex(columns=order, level="group"), sizes)

    @property
    def layers(self) -> list[int]:
        """The layers, ascending."""
        return sorted(set(self.correct.columns.get_level_values("layer").astype(int)))

    def rows(self, columns: Sequence[tuple[str, int]], bold: str) -> Iterator[list[str]]:
        """Yield each row's label and cells, the best of a column set by the template `bold`."""
        best = self.correct.max()
        for head, counts in self.correct.iterrows():
            row = ["No Prune" if head == -1 else str(head)]
            for column in columns:
                text = f"{100 * counts[column] / self.sizes[column[0]]:.1f}"
                row.append(bold.format(text) if counts[column] == best[column] else text)
            yield row


def _grids(cells: pd.DataFrame) -> Iterator[tuple[str, _Grid]]:
    yield "subject", _Grid.of(cells, ["subject", "overall"])
    if (cells["by"] == "level").any():
        yield "MATH level", _Grid.of(cells, ["level"])


def _markdown(cells: pd.DataFrame, sweep: str) -> str:
    """Lay out one block a group, so that a block fits a page."""
    lines = [
        f"# Pass@1 (%) without one attention head: {markdown(sweep)}",
        "",
        "Rows are heads, columns are layers; the best of each column is bold.",
    ]
    for _, grid in _grids(cells):
        for group, n in grid.sizes.items():
            lines += ["", f"## {markdown(group)} (n = {n})", ""]
            lines.append(markdown_row(["head", *(f"layer {layer}" for layer in grid.layers)]))
            lines.append("|---|" + "--:|" * len(grid.layers))
            columns = [(group, layer) for layer in grid.layers]
            lines += [markdown_row(row) for row in grid.rows(columns, "**{}**")]
    return "\n".join(lines) + "\n"


def _latex(cells: pd.DataFrame, sweep: str) -> str:
    lines = [r"% needs \usepackage{booktabs,rotating}"]
    for kind, grid in _grids(cells):
        pages = list(_pages(grid))
        for number, columns in enumerate(pages, start=1):
            part = f" Part {number} of {len(pages)}." if len(pages) > 1 else ""
            caption = (
                f"Pass@1 (\\%) by {kind}, layer and pruned head: {latex(sweep)}. "
                f"The best of each column is bold, ties included.{part}"
            )
            lines += _latex_page(grid, columns, caption)
    return "\n".join(lines) + "\n"


def _latex_page(grid: _Grid, columns: Sequence[tuple[str, int]], caption: str) -> list[str]:
    groups = list(dict.fromkeys(group for group, _ in columns))
    widths = [sum(1 for column in columns if column[0] == group) for group in groups]
    landscape = len(columns) > _PORTRAIT_COLUMNS
    environment = "sidewaystable" if landscape else "table"
    crowded = len(columns) > (26 if landscape else 10) or len(grid.correct) > 30
    size = r"\scriptsize" if crowded else r"\footnotesize"
    titles, rules, first = [], [], 2
    for group, width in zip(groups, widths, strict=True):
        title = r"\\".join(latex(line) for line in wrapped(group, max(13, 4 * width)).splitlines())
        title = rf"\shortstack{{{title}\\$n={grid.sizes[group]}$}}"
        titles.append(rf"\multicolumn{{{width}}}{{c}}{{{title}}}")
        rules.append(rf"\cmidrule(lr){{{first}-{first + width - 1}}}")
        first += width
    head, *body = (" & ".join(row) + r" \\" for row in grid.rows(columns, r"\textbf{{{}}}"))
    return [
        "",
        rf"\begin{{{environment}}}",
        rf"\centering{size}\setlength{{\tabcolsep}}{{{2.6 if landscape else 4}pt}}",
        rf"\caption{{{caption}}}",
        rf"\begin{{tabular}}{{l{'r' * len(columns)}}}",
        r"\toprule",
        " & ".join(["", *titles]) + r" \\",
        "".join(rules),
        " & ".join(["Layer", *(str(layer) for _, layer in columns)]) + r" \\",
        r"\midrule",
        head,
        r"\midrule",
        *body,
        r"\bottomrule",
        r"\end{tabular}",
        rf"\end{{{environment}}}",
    ]


def _pages(grid: _Grid) -> Iterator[list[tuple[str, int]]]:
    """Fill pages with groups of columns; a group with more layers than a page has is split."""
    tall = len(grid.correct) > _LANDSCAPE_ROWS
    limit = _PORTRAIT_COLUMNS if tall else _LANDSCAPE_COLUMNS
    page: list[tuple[str, int]] = []
    for group in grid.correct.columns.unique("group").astype(str):
        for start in range(0, len(grid.layers), limit):
            columns = [(group, layer) for layer in grid.layers[start : start + limit]]
            if page and len(page) + len(columns) > limit:
                yield page
                page = []
            page += columns
    yield page
