"""The table of claims as text."""

import pandas as pd

from headroom.figures.latex_table import NEEDS, latex_table
from headroom.figures.listing import markdown_row, rows_of
from headroom.figures.text import latex, markdown

_PAPERS = {
    "SPRINT": "SPRINT (arXiv 2506.03978)",
    "compression": "Dynamic pruning and distillation (arXiv 2511.17577)",
}
_CAPTION = (
    "Every quantitative claim of both papers, as transcribed: whether it holds in the paper's own "
    "tables (and, for the second paper, in arithmetic), and in this run. Intervals are 95%. Where "
    "the paper names no number, the one taken is stated. A claim about a model holds only as "
    "measured on that model, on MATH-500; one about compression as such is judged on the run's own "
    "solvers, which the reason names."
)


def claims_tables(table: pd.DataFrame, run: str) -> dict[str, str]:
    """Return the claims as text, by suffix: md, tex, csv.

    Args:
        table: as `claims` returns it.
        run: name of the run.
    """
    header = ("claim", "stated", "in the paper's own numbers", f"in run {run}")
    rows = [
        (
            (row.claim, str(row.value)),
            ((row.published, row.published_why), (row.run, row.run_why)),
            row.paper,
        )
        for row in rows_of(table)
    ]
    lines = ["# Claims of the papers", "", markdown(_CAPTION)]
    body: list[str] = []
    for paper, title in _PAPERS.items():
        lines += ["", f"## {markdown(title)}", "", markdown_row([markdown(h) for h in header])]
        lines.append("|---|---|---|---|")
        body += [r"\midrule"] if body else []
        body.append(rf"\multicolumn{{4}}{{l}}{{\emph{{{latex(title)}}}}} \\*")
        for texts, judged, of in rows:
            if of == paper:
                cells = [f"**{word}**: {markdown(why)}" for word, why in judged]
                lines.append(markdown_row([*map(markdown, texts), *cells]))
                cells = [rf"\textbf{{{word}}}: {latex(why)}" for word, why in judged]
                body.append(" & ".join([*map(latex, texts), *cells]) + r" \\[2pt]")
    ragged = r">{\raggedright\arraybackslash}"
    columns = "".join(rf"{ragged}p{{{width}\linewidth}}" for width in (0.24, 0.13, 0.26, 0.26))
    page = latex_table(
        columns,
        [" & ".join(map(latex, header)) + r" \\"],
        body,
        latex(_CAPTION),
        size="scriptsize",
        separation=3,
        breaks=True,
    )
    return {
        "md": "\n".join(lines) + "\n",
        "tex": "\n".join([NEEDS, *page]) + "\n",
        "csv": table.to_csv(index=False, lineterminator="\n"),
    }
