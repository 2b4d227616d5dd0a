r"""Printed tables as LaTeX, by pandas, and a document of all printed exhibits.

A file needs ``\usepackage{array,booktabs,graphicx,lscape}``.
"""

import unicodedata
from collections.abc import Mapping
from functools import partial
from itertools import pairwise
from typing import Any

import numpy as np
import pandas as pd

from headsweep.page.printed.exhibits import PrintedExhibit
from headsweep.page.printed.tables import Part, PrintedTable
from headsweep.text import plain, wrapped

_LATEX = {
    **{character: f"\\{character}" for character in "{}$&#%_"},
    **{character: rf"\ensuremath{{{character}}}" for character in "<>|"},
    "\\": r"\textbackslash{}",
    "^": r"\textasciicircum{}",
    "~": r"\textasciitilde{}",
    '"': r"\textquotedblright{}",
    "[": "{[}",  # no option of a line break before it
    "−": r"\ensuremath{-}",
    "λ": r"\ensuremath{\lambda}",
    "↓": r"\ensuremath{\downarrow}",
    "↑": r"\ensuremath{\uparrow}",
    "…": r"\ldots{}",
    "–": "--",
}
_ACCENTED = filter(unicodedata.decomposition, map(chr, range(0xC0, 0x100)))
_SETTABLE = {*map(chr, range(0x7F)), *_ACCENTED, *_LATEX}

_FITTED = r"""% A table as wide as it is, unless the line is narrower or the page lower.
\providecommand{\fitted}[1]{\setbox3\hbox{#1}%
  \ifdim\wd3>\linewidth\setbox3\hbox{\resizebox{\linewidth}{!}{\copy3}}\fi
  \ifdim\dimexpr\ht3+\dp3\relax>0.8\vsize
    \setbox3\hbox{\resizebox*{!}{0.8\vsize}{\copy3}}\fi
  \noindent\box3 }
"""
_DOCUMENT = r"""\documentclass[a4paper,10pt]{article}
\usepackage[T1]{fontenc}
\usepackage[margin=2cm]{geometry}
\usepackage{array,booktabs,graphicx,lscape}
\setlength{\parindent}{0pt}
\begin{document}
\raggedright
{\large\bfseries Exhibits of arXiv 2506.03978 (SPRINT) and arXiv 2511.17577, numbers: <source>}\par
\bigskip
<body>
\end{document}
"""
_WIDTH, _GROUP = 11, 17  # letters on a line of the name of a column, and of several
_ABOVE = 16  # rows of a part that leave room for another on a landscape page
_NONE = "--"  # stands in an empty cell


def latex(text: str) -> str:
    """Escape text for LaTeX; what pdfLaTeX cannot set becomes its code point, as [U+6570]."""
    settable = (c if c in _SETTABLE else f"[U+{ord(c):04X}]" for c in plain(text))
    return "".join(_LATEX.get(c, c) for c in "".join(settable))


def table(exhibit: PrintedExhibit, made: PrintedTable, caption: str) -> str:
    """Return a printed table as LaTeX, with its caption above and its notes below."""
    texts = [rf"\noindent\textbf{{{latex(exhibit.place)}.}} {latex(caption)}\par\smallskip"]
    for part in made.parts:
        if part.title:
            if made.wide and len(made.parts[0].cells) > _ABOVE:
                texts.append(r"\clearpage")
            texts.append(rf"\medskip\noindent\textit{{{latex(part.title)}}}\par\smallskip")
        texts.append(f"\\fitted{{%\n{_tabular(part)}}}\\par\\smallskip")
    if made.notes:
        texts.append(rf"{{\footnotesize\noindent {latex(made.notes)}\par}}")
    inner = "\n".join(texts)
    if made.wide:
        gaps = r"\setlength{\tabcolsep}{3pt}"
        return f"{_FITTED}\\begin{{landscape}}{gaps}\n{inner}\n\\end{{landscape}}\n"
    return f"{_FITTED}\\begin{{minipage}}{{\\linewidth}}\n{inner}\n\\end{{minipage}}\\bigskip\n"


def _tabular(part: Part) -> str:
    style = part.cells.reset_index(drop=True).style.hide(axis="index")
    form = f"{{:.{part.digits}f}}".format
    style = style.format(lambda cell: _cell(cell, form))
    *groups, names = range(part.cells.columns.nlevels)
    for level in groups:
        style = style.format_index(partial(_heading, width=_GROUP), axis="columns", level=level)
    style = style.format_index(partial(_heading, width=_WIDTH), axis="columns", level=names)
    if part.bold is not None:
        marks = np.where(part.bold, "textbf: --rwrap;", "")
        style = style.apply(lambda _: marks, axis=None)
    return style.to_latex(
        hrules=True, multicol_align="c", column_format="l" + _columns(part.cells.columns)
    )


def _heading(name: object, width: int) -> str:
    """Return a column's name, on several lines if it is long."""
    longest = max(map(len, str(name).split()), default=1)
    first, *others = map(latex, wrapped(str(name), max(width, longest), 4).split("\n"))
    return r"\shortstack{" + r"\\".join([first, *others]) + "}" if others else first


def _cell(cell: Any, form: Any) -> str:
    if pd.isna(cell):
        return _NONE
    if isinstance(cell, str):
        return latex(cell)
    text = form(cell)
    return latex(text.replace("-", "−"))


def _columns(columns: pd.Index) -> str:
    """Return the columns of a table behind the first, with a gap before each group of them."""
    if columns.nlevels == 1:
        return "r" * (len(columns) - 1)
    groups = columns.get_level_values(0)
    return "".join(
        "r" if group == before else r"@{\hskip 9pt}r" for before, group in pairwise(groups)
    )


def document(source: str, captions: Mapping[PrintedExhibit, str]) -> str:
    """Return a document of all exhibits, given the captions of the figures."""
    body = [
        rf"\textbf{{{latex(exhibit.place)}}} {latex(caption)}\par"
        for exhibit, caption in captions.items()
    ]
    body.append(r"\clearpage")
    for exhibit, caption in captions.items():
        if exhibit.is_table:
            body.append(rf"\input{{{exhibit.name}.tex}}")
            continue
        picture = rf"\includegraphics[width=\linewidth]{{../figures/{exhibit.name}.pdf}}\par"
        text = rf"\textbf{{{latex(exhibit.place)}.}} {latex(caption)}\par\bigskip"
        body.append(f"\\begin{{minipage}}{{\\linewidth}}{picture}\n{text}\\end{{minipage}}")
    return _DOCUMENT.replace("<source>", latex(source)).replace("<body>", "\n\n".join(body))
