"""The frame of a LaTeX table: a float where it fits a page, else one that breaks over pages."""

from collections.abc import Sequence

NEEDS = r"% needs \usepackage{array,booktabs,longtable,lscape,rotating}"
"""First line of a file of tables."""

_ROWS = 40  # of a float


def latex_table(
    columns: str,
    header: Sequence[str],
    body: Sequence[str],
    caption: str,
    *,
    size: str = "small",
    separation: float = 5,
    wide: bool = False,
    breaks: bool | None = None,
) -> list[str]:
    r"""Return the lines of a table.

    Args:
        columns: its specification, as in ``lrr``.
        header: rows above the middle rule, as LaTeX.
        body: the other rows, as LaTeX, each with its ``\\``.
        caption: as LaTeX.
        size: of the letters, as in ``\small``.
        separation: half the space between columns, in points.
        wide: whether to turn the table by a quarter.
        breaks: whether it may break over pages, its header repeated; by default, where it is long.
    """
    setting = rf"\{size}\setlength{{\tabcolsep}}{{{separation}pt}}"
    if breaks is None:
        breaks = len(body) > _ROWS
    if not breaks:
        environment = "sidewaystable" if wide else "table"
        return [
            rf"\begin{{{environment}}}",
            rf"\centering{setting}",
            rf"\caption{{{caption}}}",
            rf"\begin{{tabular}}{{{columns}}}",
            *(r"\toprule", *header, r"\midrule", *body, r"\bottomrule"),
            r"\end{tabular}",
            rf"\end{{{environment}}}",
        ]
    if len(body) <= _ROWS:  # it fits a page: none of its rows ends one
        body = [f"{row}*" if row.endswith(r"\\") else rf"{row}\nopagebreak" for row in body]
    lines = [
        rf"\begingroup{setting}\setlength{{\LTcapwidth}}{{\linewidth}}",
        rf"\begin{{longtable}}{{{columns}}}",
        rf"\caption{{{caption}}}\\",
        *(r"\toprule", *header, r"\midrule", r"\endfirsthead"),
        *(r"\toprule", *header, r"\midrule", r"\endhead"),
        *(r"\bottomrule", r"\endfoot"),
        *body,
        r"\end{longtable}",
        r"\endgroup",
    ]
    return [r"\begin{landscape}", *lines, r"\end{landscape}"] if wide else lines
