"""Markdown tables of a run as the report shows them.

Only what this project writes is read: tables with pipes, and paragraphs between them.
"""

import html
import re
from dataclasses import dataclass, field
from pathlib import Path


@dataclass(frozen=True)
class Sheet:
    """A table as text, with the words that stand around it."""

    header: list[str] = field(default_factory=list)
    numeric: list[bool] = field(default_factory=list)  # columns that sort by number
    rows: list[list[str]] = field(default_factory=list)
    words: list[str] = field(default_factory=list)  # paragraphs before or after it


def read_sheets(path: Path) -> list[Sheet]:
    """Return the tables of a Markdown file; none where it does not exist.

    Paragraphs belong to the table before them, or to the first one.
    """
    if not path.exists():
        return []
    sheets: list[Sheet] = []
    words: list[str] = []
    for block in path.read_text(encoding="utf-8").split("\n\n"):
        lines = [line for line in block.splitlines() if line.strip()]
        if len(lines) > 1 and all(line.startswith("|") for line in lines):
            header, rule, *rows = (_cells(line) for line in lines)
            numeric = [cell.endswith(":") for cell in rule]
            sheets.append(
                Sheet(_plain(header), numeric, [_plain(row) for row in rows], list(words))
            )
            words.clear()
        elif lines:
            paragraph = _text(" ".join(line.lstrip("# ") for line in lines))
            (sheets[-1].words if sheets else words).append(paragraph)
    return sheets or ([Sheet(words=words)] if words else [])


def _cells(line: str) -> list[str]:
    """Split a row at the pipes that are not escaped."""
    inner = line.strip().removeprefix("|").removesuffix("|")
    return [cell.strip() for cell in re.split(r"(?<!\\)\|", inner)]


def _plain(cells: list[str]) -> list[str]:
    return [_text(cell) for cell in cells]


def _text(markdown: str) -> str:
    """Undo `headroom.figures.text.markdown`: no marks of bold type, no escapes."""
    unmarked = re.sub(r"(?<!\\)\*\*(.+?)(?<!\\)\*\*", r"\1", markdown)
    return html.unescape(re.sub(r"\\([\\`*_\[\]#|~$!])", r"\1", unmarked))
