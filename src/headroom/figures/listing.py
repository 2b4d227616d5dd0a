"""A plain table as Markdown and LaTeX: some columns of text, then columns of numbers."""

from collections.abc import Sequence

from headroom.figures.text import latex, markdown


def listing(
    header: Sequence[str], rows: Sequence[Sequence[str]], caption: str, texts: int
) -> dict[str, str]:
    """Return a table by suffix: md, tex.

    Args:
        header: titles of the columns.
        rows: cells as text; what they hold is escaped.
        caption: stands above the LaTeX table and under the Markdown one.
        texts: how many columns, from the left, hold text.
    """
    numbers = len(header) - texts
    lines = [markdown_row(header), "|" + "---|" * texts + "--:|" * numbers]
    lines += [markdown_row([markdown(cell) for cell in row]) for row in rows]
    head, *body = (" & ".join(latex(cell) for cell in row) + r" \\" for row in [header, *rows])
    wide = len(header) > 9
    environment, size = ("sidewaystable", "scriptsize") if wide else ("table", "small")
    page = [
        rf"% needs \usepackage{{booktabs{',rotating' if wide else ''}}}",
        rf"\begin{{{environment}}}",
        rf"\centering\{size}",
        rf"\setlength{{\tabcolsep}}{{{3 if wide else 5}pt}}",
        rf"\caption{{{latex(caption)}}}",
        rf"\begin{{tabular}}{{{'l' * texts}{'r' * numbers}}}",
        r"\toprule",
        head,
        r"\midrule",
        *body,
        r"\bottomrule",
        r"\end{tabular}",
        rf"\end{{{environment}}}",
    ]
    return {"md": "\n".join([*lines, "", markdown(caption)]) + "\n", "tex": "\n".join(page) + "\n"}


def markdown_row(cells: Sequence[str]) -> str:
    """Join cells to a row."""
    return f"| {' | '.join(cells)} |"
